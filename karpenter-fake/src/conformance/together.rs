//! Calls that are made at the same time.

use std::{
    collections::BTreeSet,
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use karpenter_core::provider::{CreateError, Launched, ProviderId};

use super::{Check, Run};

impl Run<'_> {
    /// A second claim, asked for twice at a time, gets one machine, and another one than the first claim. Gives back all that
    /// were bought.
    pub(super) async fn check_together(&mut self, first: &Launched) -> BTreeSet<ProviderId> {
        let claim = self.buyer.claim("second");
        let uid = &claim.metadata.uid;
        let created = both(self.provider.create(&claim), self.provider.create(&claim)).await;
        let created = [created.0, created.1];
        let mut ids: BTreeSet<ProviderId> = created.iter().flatten().map(|other| other.instance.id.clone()).collect();
        // A machine of which no answer tells costs as much as any other.
        let listed = self.provider.list().await.unwrap_or_default().into_iter();
        ids.extend(listed.filter(|i| i.claim_uid == *uid && !i.is_terminating).map(|i| i.id));
        let names = || ids.iter().map(ProviderId::as_str).collect::<Vec<_>>().join(" and ");
        let several = (ids.len() > 1).then(|| format!("uid {uid} asked twice at the same time and got {}", names()));
        self.judge(Check::SimultaneousCreatesBuyOnce, "create", several);
        let id = &first.instance.id;
        let uids = || format!("{} and {uid}", first.instance.claim_uid);
        let shared = ids.contains(id).then(|| format!("uids {} both got {id}", uids()));
        let errors = created.iter().filter_map(|created| created.as_ref().err());
        errors.clone().for_each(|error| self.check_refusal(&claim, error));
        // There may be one such machine only; that is no breach.
        let others = errors.filter(|error| !matches!(error, CreateError::InsufficientCapacity { .. }));
        let error = others.map(ToString::to_string).next().filter(|_| ids.is_empty());
        self.judge(Check::ClaimsGetMachinesOfTheirOwn, "create", shared.or(error));
        ids
    }
}

/// What comes of two futures that run side by side.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(move |context| {
        if of_a.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            of_a = Some(output);
        }
        if of_b.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            of_b = Some(output);
        }
        if of_a.is_none() || of_b.is_none() {
            return Poll::Pending;
        }
        of_a.take().zip(of_b.take()).map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
