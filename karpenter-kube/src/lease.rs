//! One of several replicas acts: the holder of a `coordination.k8s.io` Lease.
//!
//! As in client-go, no clock of another machine is trusted: a lease is free once it was not renewed for its duration by the
//! clock of whoever looks, counted from when that one last saw it change.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff,
};
use kube::{
    Api, Client, Error,
    api::{ObjectMeta, PostParams},
};
use tokio::{sync::watch, time::Instant};

/// How a lease is held. The defaults are Karpenter's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseOptions {
    /// The name of the lease.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Who wants it: a name that no other replica has.
    pub identity: String,
    /// How long it holds without being renewed: whole seconds, and more of them than `renew_deadline`.
    pub duration: Duration,
    /// A holder who could not renew it for so long gives up: others may take it soon.
    pub renew_deadline: Duration,
    /// How long to wait between two looks.
    pub retry_period: Duration,
}

impl LeaseOptions {
    /// A lease of Karpenter's name and times.
    pub fn new(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            name: "karpenter-leader-election".to_owned(),
            namespace: namespace.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Whether its holder gives it up before others may take it. They are told its duration in whole seconds.
    pub(crate) fn is_safe(&self) -> bool {
        self.renew_deadline < Duration::from_secs(self.duration.as_secs())
    }
}

/// Until when a replica may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// It may not: another one does, or nobody knows.
    Never,
    /// Until then, unless it renews its lease. Nobody is woken at the end: who is late to look must look at the clock.
    Until(Instant),
    /// It is the only one.
    Always,
}

impl Term {
    /// Whether the replica may act now.
    pub(crate) fn is_on(self) -> bool {
        match self {
            Self::Never => false,
            Self::Until(end) => Instant::now() < end,
            Self::Always => true,
        }
    }
}

/// What a look at a lease comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is free: take it.
    Take,
    /// It is ours: renew it.
    Renew,
    /// Another one has it.
    Wait,
}

/// Whose a lease is after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Ours,
    Theirs,
    /// No answer, or another one was faster to write it.
    Unclear,
}

/// Who held a lease when it was last seen to change, and when that was by this machine's clock.
#[derive(Clone, Debug, Default)]
struct Observed {
    spec: Option<LeaseSpec>,
    since: Option<Instant>,
}

impl Observed {
    fn look(&mut self, spec: LeaseSpec, now: Instant) {
        if self.spec.as_ref() != Some(&spec) {
            *self = Self { spec: Some(spec), since: Some(now) };
        }
    }

    fn step(&self, identity: &str, now: Instant) -> Step {
        let Some((spec, since)) = self.spec.as_ref().zip(self.since) else { return Step::Take };
        match spec.holder_identity.as_deref() {
            None | Some("") => Step::Take,
            Some(holder) if holder == identity => Step::Renew,
            Some(_) => {
                let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
                if now >= since + Duration::from_secs(seconds) { Step::Take } else { Step::Wait }
            }
        }
    }
}

/// A candidate for a lease.
pub(crate) struct Election {
    api: Api<Lease>,
    options: LeaseOptions,
    observed: Observed,
}

impl Election {
    pub(crate) fn new(client: Client, options: LeaseOptions) -> Self {
        Self { api: Api::namespaced(client, &options.namespace), options, observed: Observed::default() }
    }

    /// Stands for election until `stop` is set. `term` says how it goes, and wakes those who listen when it begins and when it is
    /// over; once it was won and lost this returns, because another one may act by then.
    pub(crate) async fn run(mut self, term: &watch::Sender<Term>, stop: watch::Receiver<bool>) {
        let options = self.options.clone();
        let was_held = hold(&options, &mut self, term, stop.clone()).await;
        term.send_replace(Term::Never);
        if *stop.borrow()
            && was_held
            && let Err(error) = self.release().await
        {
            tracing::warn!(%error, lease = self.options.name, "the lease could not be given back");
        }
    }

    fn is_lost(&self) -> bool {
        let holder = self.observed.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        holder != Some(self.options.identity.as_str())
    }

    /// Takes or renews the lease if that is possible; whether it is ours then.
    async fn look(&mut self) -> Result<bool, Error> {
        let Some(lease) = self.api.get_opt(&self.options.name).await? else {
            return self.create().await;
        };
        let now = Instant::now();
        self.observed.look(lease.spec.clone().unwrap_or_default(), now);
        let step = self.observed.step(&self.options.identity, now);
        if step == Step::Wait {
            return Ok(false);
        }
        let spec = self.spec(lease.spec.as_ref().filter(|_| step == Step::Renew), lease.spec.as_ref());
        self.replace(Lease { spec: Some(spec), ..lease }).await
    }

    async fn create(&mut self) -> Result<bool, Error> {
        let metadata = ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(self.spec(None, None)) };
        let made = self.api.create(&PostParams::default(), &lease).await;
        self.settle(made)
    }

    /// Fails if the lease has changed since it was read, by its resource version.
    async fn replace(&mut self, lease: Lease) -> Result<bool, Error> {
        let written = self.api.replace(&self.options.name, &PostParams::default(), &lease).await;
        self.settle(written)
    }

    fn settle(&mut self, written: Result<Lease, Error>) -> Result<bool, Error> {
        match written {
            Ok(lease) => {
                self.observed.look(lease.spec.unwrap_or_default(), Instant::now());
                Ok(true)
            }
            // Another one was faster.
            Err(Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What the lease says if it is ours: renewed if it was, and taken from `before` if it was another's.
    fn spec(&self, ours: Option<&LeaseSpec>, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = Some(MicroTime(jiff::Timestamp::now()));
        let taken = before.and_then(|spec| spec.lease_transitions).unwrap_or(-1) + i32::from(ours.is_none());
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: i32::try_from(self.options.duration.as_secs()).ok(),
            acquire_time: ours.map_or(now.clone(), |spec| spec.acquire_time.clone()),
            renew_time: now,
            lease_transitions: Some(taken),
            ..LeaseSpec::default()
        }
    }

    /// Lets another one take the lease at once.
    async fn release(&mut self) -> Result<(), Error> {
        let Some(mut lease) = self.api.get_opt(&self.options.name).await? else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(self.options.identity.as_str()) {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            self.api.replace(&self.options.name, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }
}

/// One who looks at a lease.
trait Look: Send {
    /// Takes or renews the lease if that is possible.
    fn sight(&mut self) -> impl Future<Output = Sight> + Send;
}

impl Look for Election {
    async fn sight(&mut self) -> Sight {
        match self.look().await {
            Ok(true) => Sight::Ours,
            Ok(false) if self.is_lost() => Sight::Theirs,
            Ok(false) => Sight::Unclear,
            Err(error) => {
                tracing::warn!(%error, lease = self.options.name, "the lease could not be read or written");
                Sight::Unclear
            }
        }
    }
}

/// Looks again and again until `stop` is set or a lease that was held is not any more, and says whether it ever was held.
async fn hold(
    options: &LeaseOptions,
    looker: &mut impl Look,
    term: &watch::Sender<Term>,
    mut stop: watch::Receiver<bool>,
) -> bool {
    let mut renewed: Option<Instant> = None;
    while !*stop.borrow() {
        // Others count from when the lease was written, which may be as soon as it is asked for.
        let asked = Instant::now();
        // All looks since the last renewal share one deadline, so that the lease is not free before this one knows.
        let deadline = renewed.unwrap_or(asked) + options.renew_deadline;
        match tokio::time::timeout_at(deadline, looker.sight()).await.unwrap_or(Sight::Unclear) {
            // One that was asleep for too long is late, even if nobody has taken the lease.
            Sight::Ours if Instant::now() < deadline => {
                renewed = Some(asked);
                let until = Term::Until(asked + options.renew_deadline);
                term.send_if_modified(|term| std::mem::replace(term, until) == Term::Never);
            }
            Sight::Theirs if renewed.is_some() => break,
            Sight::Ours | Sight::Theirs | Sight::Unclear => {}
        }
        if renewed.is_some_and(|renewed| renewed.elapsed() >= options.renew_deadline) {
            break;
        }
        let pause = tokio::time::sleep(options.retry_period);
        tokio::select! {
            () = pause => {}
            // Nobody is left who could stop it, nor who acts.
            changed = stop.changed() => if changed.is_err() { break },
        }
    }
    renewed.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renews a lease at once and answers late, again and again, then never.
    struct Slow {
        answers: Vec<Duration>,
        written: Option<Instant>,
    }

    impl Look for Slow {
        async fn sight(&mut self) -> Sight {
            let Some(wait) = self.answers.pop() else { return std::future::pending().await };
            self.written = Some(Instant::now());
            tokio::time::sleep(wait).await;
            Sight::Ours
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_given_up_before_another_one_can_take_it() {
        let options = LeaseOptions::new("default", "me");
        let (term, leads) = watch::channel(Term::Never);
        let (_stop, stopped) = watch::channel(false);
        let mut slow = Slow { answers: vec![Duration::from_secs(7), Duration::ZERO], written: None };
        assert!(hold(&options, &mut slow, &term, stopped).await);
        let written = slow.written.expect("it was renewed");
        assert_eq!((slow.answers.len(), written.elapsed()), (0, options.renew_deadline));
        assert_eq!(*leads.borrow(), Term::Until(written + options.renew_deadline));
        assert!(!leads.borrow().is_on(), "whoever has not heard of it yet must not act either");
    }

    /// Has the lease whenever it looks, and looks no more than so often.
    struct Holder(u32);

    impl Look for Holder {
        async fn sight(&mut self) -> Sight {
            self.0 = self.0.checked_sub(1).expect("it goes on for ever");
            Sight::Ours
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_election_that_nobody_can_stop_any_more_is_over() {
        let (term, _leads) = watch::channel(Term::Never);
        let (stop, stopped) = watch::channel(false);
        drop(stop);
        assert!(hold(&LeaseOptions::new("default", "me"), &mut Holder(9), &term, stopped).await);
    }

    fn held_by(holder: &str, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_free_once_it_was_not_renewed_for_its_duration() {
        let start = Instant::now();
        let mut observed = Observed::default();
        assert_eq!(observed.step("me", start), Step::Take);
        observed.look(held_by("you", 0), start);
        assert_eq!(observed.step("me", start + Duration::from_secs(14)), Step::Wait);
        // What is seen again unchanged does not count as renewed.
        observed.look(held_by("you", 0), start + Duration::from_secs(14));
        assert_eq!(observed.step("me", start + Duration::from_secs(15)), Step::Take);
        observed.look(held_by("you", 1), start + Duration::from_secs(15));
        assert_eq!(observed.step("me", start + Duration::from_secs(29)), Step::Wait);
        assert_eq!(observed.step("you", start + Duration::from_secs(99)), Step::Renew);
        observed.look(held_by("", 1), start + Duration::from_secs(16));
        assert_eq!(observed.step("me", start + Duration::from_secs(16)), Step::Take);
    }
}
