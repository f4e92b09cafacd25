//! Claims without a machine, and machines without a claim.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use indexmap::IndexSet;

use crate::{
    FxBuild, Timestamp,
    api::{
        ConditionStatus, Node, NodeClaim,
        conditions::{LAUNCHED, condition},
    },
    provider::{Instance, ProviderId},
};

/// A machine is missed only so long after it was launched: lists of clouds lag behind by some seconds.
const MISSED_AFTER: Duration = Duration::from_mins(1);
/// A machine without a claim is terminated only so long after it was seen first: the claim that it was bought for may not
/// have been told yet, and a list every two minutes shows it twice.
const ORPHANED_AFTER: Duration = Duration::from_secs(90);
/// The most machines without a claim that are remembered, and so terminated in one go.
const MAX_ORPHANS: usize = 1000;

/// Compares machines with claims, again and again.
///
/// It remembers when it first saw each machine without a claim; one that starts anew only waits a little longer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    orphans: BTreeMap<ProviderId, Timestamp>,
}

/// What has no counterpart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The names of claims whose machine is gone.
    pub(crate) claims: Vec<String>,
    /// Machines whose claim is gone.
    pub(crate) machines: Vec<ProviderId>,
}

impl Census {
    /// Compares all machines, as a list tells of them that was asked for at the start of `span` and answered at its end, with all
    /// claims. A claim whose node is ready keeps it, whatever the list says.
    pub(crate) fn compare<'c>(
        &mut self,
        machines: &[Instance],
        claims: impl IntoIterator<Item = &'c NodeClaim>,
        node_of: impl Fn(&'c NodeClaim) -> Option<&'c Node>,
        span: Range<Timestamp>,
    ) -> Lost {
        let Range { start: asked, end: now } = span;
        let there: IndexSet<&str, FxBuild> = machines.iter().map(|m| m.id.as_str()).collect();
        let (mut lost, mut uids): (_, IndexSet<&str, FxBuild>) = (Lost::default(), IndexSet::default());
        let mut ids: IndexSet<&str, FxBuild> = IndexSet::default();
        for claim in claims {
            uids.insert(claim.metadata.uid.as_str());
            ids.insert(claim.status.provider_id.as_str());
            let is_missed = !there.contains(claim.status.provider_id.as_str()) && launched_before(claim, asked);
            if is_missed && !node_of(claim).is_some_and(Node::is_ready) && claim.metadata.deletion_timestamp.is_none() {
                lost.claims.push(claim.name().to_owned());
            }
        }
        // A machine that a claim names is its own, whatever the provider takes it for.
        let has_claim = |m: &Instance| uids.contains(m.claim_uid.as_str()) || ids.contains(m.id.as_str());
        let is_orphan = |m: &&Instance| !m.is_terminating && !has_claim(m);
        let seen = machines.iter().filter(is_orphan).take(MAX_ORPHANS);
        self.orphans = seen.map(|m| (m.id.clone(), *self.orphans.get(&m.id).unwrap_or(&now))).collect();
        let is_due = |(_, since): &(&ProviderId, &Timestamp)| **since + ORPHANED_AFTER <= now;
        lost.machines = self.orphans.iter().filter(is_due).map(|(id, _)| id.clone()).collect();
        lost
    }
}

/// Whether a machine was launched so long ago that a list that was asked for then tells of it.
fn launched_before(claim: &NodeClaim, asked: Timestamp) -> bool {
    let launched = condition(&claim.status.conditions, LAUNCHED).filter(|c| c.status == ConditionStatus::True);
    let since = launched.and_then(|c| c.last_transition_time);
    !claim.status.provider_id.is_empty() && since.is_some_and(|at| at + MISSED_AFTER <= asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::set_condition;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    /// A claim with the uid `u`.
    fn claim_with(provider_id: &str) -> NodeClaim {
        let mut claim = NodeClaim::named("c");
        claim.metadata.uid = "u".to_owned();
        claim.status.provider_id = provider_id.to_owned();
        claim
    }

    #[test]
    fn both_sides_wait_before_they_are_missed() {
        let mut claim = claim_with("gone");
        set_condition(&mut claim.status.conditions, None, LAUNCHED, ConditionStatus::True, LAUNCHED, "", at(0));
        let orphan = Instance::new(ProviderId::new("orphan"), "nobody", BTreeMap::new());
        let own = Instance::new(ProviderId::new("own"), "u", BTreeMap::new());
        let mut census = Census::default();
        let lost = census.compare(&[orphan.clone(), own.clone()], [&claim], |_| None, at(30)..at(30));
        assert_eq!(lost, Lost::default());
        let lost = census.compare(std::slice::from_ref(&own), [&claim], |_| None, at(59)..at(150));
        assert_eq!(lost, Lost::default(), "when it was asked for it could not tell of the machine");
        census.compare(&[orphan.clone(), own.clone()], [&claim], |_| None, at(30)..at(30));
        let lost = census.compare(&[orphan.clone(), own.clone()], [&claim], |_| None, at(60)..at(150));
        assert_eq!((lost.claims.len(), lost.machines), (1, vec![ProviderId::new("orphan")]));
        census.compare(&[own], [&claim], |_| None, at(160)..at(160));
        assert_eq!(census.compare(&[orphan], [&claim], |_| None, at(400)..at(400)).machines, []);
    }

    #[test]
    fn a_machine_that_a_claim_names_is_no_orphan() {
        let claim = claim_with("named");
        let machines = ["named", "other"].map(|id| Instance::new(ProviderId::new(id), "unknown", BTreeMap::new()));
        let mut census = Census::default();
        census.compare(&machines, [&claim], |_| None, at(0)..at(0));
        let lost = census.compare(&machines, [&claim], |_| None, at(90)..at(90));
        assert_eq!(lost.machines, [ProviderId::new("other")]);
    }
}
