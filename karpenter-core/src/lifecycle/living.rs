//! What a claim that is not on its way out needs next.

use std::time::Duration;

use super::{initialize, register};
use crate::{
    Timestamp,
    api::{
        ConditionStatus, Node, NodeClaim,
        conditions::{INITIALIZED, LAUNCHED, REGISTERED, condition, set_condition},
    },
    labels,
};

/// How long a claim may go without a machine: ten attempts with their waits take about as long.
pub const LAUNCH_TIMEOUT: Duration = Duration::from_mins(5);
/// Why claims go that are old enough.
pub(crate) const EXPIRED: &str = "Expired";
/// Why claims go that have no machine by then.
pub(crate) const LAUNCH_TIMED_OUT: &str = "LaunchTimeout";
/// Why claims go whose node has not joined by then.
pub(crate) const REGISTRATION_TIMED_OUT: &str = "RegistrationTimeout";
/// How long the node of a machine may take to join. Slow images boot in five minutes.
pub const REGISTRATION_TIMEOUT: Duration = Duration::from_mins(15);

/// What a claim needs next.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// The claim as it must become.
    pub claim: Option<NodeClaim>,
    /// Its node as it must become.
    pub node: Option<Node>,
    /// Whether a machine must be bought for it.
    pub launch: bool,
    /// Why it must be deleted, as one word.
    pub delete: Option<&'static str>,
    /// When to look again if nothing happens before.
    pub wake: Option<Timestamp>,
}

/// What a claim that is not on its way out needs next. `nodes` are those with the provider id of its machine.
///
/// First its finalizer, then a machine, then its node joins and becomes ready. It goes when the machine or the registration of its node
/// takes too long, or when it is old enough; to become ready a node may take any time.
pub fn live(claim: &NodeClaim, nodes: &[&Node], now: Timestamp) -> Step {
    let expires = expiry(claim);
    if expires.is_some_and(|at| at <= now) {
        return Step { delete: Some(EXPIRED), ..Step::default() };
    }
    let mut step = grow(claim, nodes, now);
    step.wake = step.wake.into_iter().chain(expires).min();
    step
}

/// When a claim is old enough to go: so long after it was made as its specification says. Such a claim is drained whatever
/// disruption budgets allow, as Karpenter does (<https://karpenter.sh/docs/concepts/disruption/#expiration>).
fn expiry(claim: &NodeClaim) -> Option<Timestamp> {
    Some(claim.metadata.creation_timestamp? + claim.spec.expire_after.duration()?)
}

fn grow(claim: &NodeClaim, nodes: &[&Node], now: Timestamp) -> Step {
    if !claim.metadata.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION) {
        let mut claim = claim.clone();
        claim.metadata.finalizers.push(labels::TERMINATION.to_owned());
        return Step { claim: Some(claim), ..Step::default() };
    }
    if !claim.status.is_true(LAUNCHED) {
        return await_launch(claim, now);
    }
    if !claim.status.is_true(REGISTERED) {
        return await_registration(claim, nodes, now);
    }
    match nodes.first() {
        Some(node) if !claim.status.is_true(INITIALIZED) => {
            let (claim, node) = initialize(claim, node, now);
            Step { claim, node, ..Step::default() }
        }
        // A kubelet that makes its node anew takes away what registration wrote.
        Some(node) if !node.metadata.labels.contains_key(labels::REGISTERED) => {
            Step { node: register(claim, nodes, now).1, ..Step::default() }
        }
        Some(node) if !node.metadata.labels.contains_key(labels::INITIALIZED) => {
            Step { node: initialize(claim, node, now).1, ..Step::default() }
        }
        _ => Step::default(),
    }
}

/// Until when a claim must say which machine it has; `None` if it is not known how old it is. A claim that has not said so
/// by then is deleted.
pub fn launch_deadline(claim: &NodeClaim) -> Option<Timestamp> {
    Some(since(claim, LAUNCHED).or(claim.metadata.creation_timestamp)? + LAUNCH_TIMEOUT)
}

/// Until when the node of a claim that has a machine must join.
pub(crate) fn registration_deadline(claim: &NodeClaim) -> Option<Timestamp> {
    Some(since(claim, LAUNCHED).or(claim.metadata.creation_timestamp)? + REGISTRATION_TIMEOUT)
}

fn await_launch(claim: &NodeClaim, now: Timestamp) -> Step {
    let deadline = launch_deadline(claim);
    if deadline.is_some_and(|deadline| deadline <= now) {
        return Step { delete: Some(LAUNCH_TIMED_OUT), ..Step::default() };
    }
    let mut step = Step { launch: true, wake: deadline, ..Step::default() };
    if condition(&claim.status.conditions, LAUNCHED).is_none() {
        let mut out = claim.clone();
        let (conditions, generation) = (&mut out.status.conditions, claim.metadata.generation);
        set_condition(conditions, generation, LAUNCHED, ConditionStatus::Unknown, "AwaitingReconciliation", "", now);
        step.claim = Some(out);
    }
    step
}

fn await_registration(claim: &NodeClaim, nodes: &[&Node], now: Timestamp) -> Step {
    let deadline = registration_deadline(claim);
    // A node that has joined is taken in, however late somebody looks.
    if nodes.len() != 1 && deadline.is_some_and(|deadline| deadline <= now) {
        return Step { delete: Some(REGISTRATION_TIMED_OUT), ..Step::default() };
    }
    let (claim, node) = register(claim, nodes, now);
    Step { claim, node, wake: deadline.filter(|deadline| now < *deadline), ..Step::default() }
}

fn since(claim: &NodeClaim, of_type: &str) -> Option<Timestamp> {
    condition(&claim.status.conditions, of_type)?.last_transition_time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(conditions: &[(&str, &str)]) -> NodeClaim {
        let mut claim = NodeClaim::named("c");
        claim.metadata.creation_timestamp = Some(at(0));
        claim.metadata.finalizers.push(labels::TERMINATION.to_owned());
        for (name, _) in conditions {
            set_condition(&mut claim.status.conditions, None, name, ConditionStatus::True, name, "", at(10));
        }
        claim
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn the_finalizer_comes_before_the_machine() {
        let mut bare = claim(&[]);
        bare.metadata.finalizers.clear();
        let step = live(&bare, &[], at(0));
        assert!(!step.launch && step.claim.is_some_and(|claim| claim.metadata.finalizers == [labels::TERMINATION]));
        let step = live(&claim(&[]), &[], at(0));
        assert!(step.launch && step.wake == Some(at(300)));
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let launched = [(LAUNCHED, "")];
        for (claim, now, expected) in [
            (claim(&[]), 299, None),
            (claim(&[]), 300, Some("LaunchTimeout")),
            (claim(&launched), 909, None),
            (claim(&launched), 910, Some("RegistrationTimeout")),
            (claim(&[(LAUNCHED, ""), (REGISTERED, "")]), 100_000, None),
            (claim(&[(LAUNCHED, ""), (REGISTERED, "")]), 720 * 3600, Some("Expired")),
        ] {
            assert_eq!(live(&claim, &[], at(now)).delete, expected, "{now}");
        }
    }

    #[test]
    fn a_node_that_joined_while_nobody_looked_is_taken_in() {
        let (launched, node) = (claim(&[(LAUNCHED, "")]), Node::default());
        for (nodes, expected) in [
            (vec![], Some("RegistrationTimeout")),
            (vec![&node], None),
            (vec![&node, &node], Some("RegistrationTimeout")),
        ] {
            assert_eq!(live(&launched, &nodes, at(2000)).delete, expected, "{} nodes", nodes.len());
        }
        let joined = live(&launched, &[&node], at(2000)).node.expect("the node lacks everything");
        let registered = live(&launched, &[&joined], at(2001)).claim.expect("the claim does not say so yet");
        assert!(registered.status.is_true(REGISTERED));
        assert_eq!(live(&registered, &[&joined], at(2002)).delete, None);
    }
}
