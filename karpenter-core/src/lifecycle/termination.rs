//! The end of a claim and of its node.

use std::{borrow::Cow, time::Duration};

use crate::{
    Timestamp,
    api::{
        ConditionStatus, Node, NodeClaim, ObjectMeta, Taint, TaintEffect,
        conditions::{DISRUPTION_REASON, DRAINED, INSTANCE_TERMINATING, VOLUMES_DETACHED, set_condition},
    },
    labels,
};

/// How long a drain takes at least, so that load balancers learn that nothing is to be sent to the node any more.
pub const MIN_DRAIN: Duration = Duration::from_secs(5);
/// The value of the label that takes a node out of load balancers.
const EXCLUDED_BY: &str = "karpenter";

/// When the last pod of a claim that is on its way out must be gone: at the time in its annotation, else so long after its
/// deletion as its `terminationGracePeriod` says; `None` if pods may take as long as they like. An annotation that is no time
/// counts as none.
pub fn deadline(claim: &NodeClaim) -> Option<Timestamp> {
    let written = claim.metadata.annotations.get(labels::TERMINATION_TIMESTAMP).and_then(|text| text.parse().ok());
    written.or_else(|| {
        let grace_period = claim.spec.termination_grace_period.as_ref()?.duration()?;
        Some(claim.metadata.deletion_timestamp? + grace_period)
    })
}

/// How far the end of a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Pods must leave.
    Draining,
    /// No pod is left that must leave, but volumes are attached.
    Detaching,
    /// The machine was told to go.
    Terminating,
    /// It was told to go with volumes attached, because the time was up.
    TerminatingWithVolumes,
}

/// The claim as it must become while its machine is there and it is on its way out: the deadline is written down, and
/// conditions tell how far it is. `None` if it is so already.
pub(crate) fn prepare_to_end(claim: &NodeClaim, stage: Stage, now: Timestamp) -> Option<NodeClaim> {
    let mut annotations = Cow::Borrowed(&claim.metadata.annotations);
    if let Some(deadline) = deadline(claim) {
        let is_written = annotations.get(labels::TERMINATION_TIMESTAMP).is_some_and(|t| t.parse() == Ok(deadline));
        if !is_written {
            annotations.to_mut().insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_string());
        }
    }
    let mut all = claim.status.conditions.clone();
    let mut set = |of_type, status, reason| {
        set_condition(&mut all, claim.metadata.generation, of_type, status, reason, "", now);
    };
    let (yes, not_yet, no) = (ConditionStatus::True, ConditionStatus::Unknown, ConditionStatus::False);
    if stage == Stage::Draining {
        set(DRAINED, not_yet, "Draining");
    } else {
        set(DRAINED, yes, DRAINED);
    }
    match stage {
        Stage::Draining => {}
        Stage::Detaching => {
            set(VOLUMES_DETACHED, not_yet, "AwaitingVolumeDetachment");
        }
        Stage::Terminating => {
            set(VOLUMES_DETACHED, yes, VOLUMES_DETACHED);
        }
        Stage::TerminatingWithVolumes => {
            set(VOLUMES_DETACHED, no, "TerminationGracePeriodElapsed");
        }
    }
    if stage >= Stage::Terminating {
        set(INSTANCE_TERMINATING, yes, INSTANCE_TERMINATING);
    }
    if all == claim.status.conditions && *annotations == claim.metadata.annotations {
        return None;
    }
    let annotations = annotations.into_owned();
    let mut out = claim.clone();
    (out.metadata.annotations, out.status.conditions) = (annotations, all);
    Some(out)
}

/// The node as it must become while it is drained: no pod comes, and load balancers leave it alone. `None` if it is so
/// already.
pub(crate) fn prepare_to_leave(node: &Node) -> Option<Node> {
    let marked = mark_disrupted(node);
    let is_excluded = node.metadata.labels.get(labels::EXCLUDE_FROM_BALANCERS).is_some_and(|by| by == EXCLUDED_BY);
    if marked.is_none() && is_excluded {
        return None;
    }
    let mut out = marked.unwrap_or_else(|| node.clone());
    out.metadata.labels.insert(labels::EXCLUDE_FROM_BALANCERS.to_owned(), EXCLUDED_BY.to_owned());
    Some(out)
}

/// The node with the taint of nodes that were chosen to go; `None` if it has it.
pub fn mark_disrupted(node: &Node) -> Option<Node> {
    let taint = Taint::new(labels::DISRUPTED, "", TaintEffect::NoSchedule);
    if node.spec.taints.contains(&taint) {
        return None;
    }
    let mut out = node.clone();
    out.spec.taints.retain(|own| own.key != labels::DISRUPTED);
    out.spec.taints.push(taint);
    Some(out)
}

/// A node and a claim as they were before they were chosen to go, where they are not so already.
pub(crate) fn unmark_disrupted(node: Option<&Node>, claim: Option<&NodeClaim>) -> (Option<Node>, Option<NodeClaim>) {
    let node = node.filter(|node| node.is_disrupted()).map(|node| {
        let mut out = node.clone();
        out.spec.taints.retain(|taint| taint.key != labels::DISRUPTED);
        out
    });
    let says_so = |claim: &&NodeClaim| claim.status.conditions.iter().any(|c| c.r#type == DISRUPTION_REASON);
    let claim = claim.filter(says_so).map(|claim| {
        let mut out = claim.clone();
        out.status.conditions.retain(|condition| condition.r#type != DISRUPTION_REASON);
        out
    });
    (node, claim)
}

/// The meta data without the finalizer of machines; `None` if it is not there.
pub(crate) fn without_finalizer(meta: &ObjectMeta) -> Option<ObjectMeta> {
    let is_ours = |finalizer: &String| finalizer == labels::TERMINATION;
    if !meta.finalizers.iter().any(is_ours) {
        return None;
    }
    let mut out = meta.clone();
    out.finalizers.retain(|finalizer| !is_ours(finalizer));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NillableDuration;

    #[test]
    fn the_deadline_is_written_once_and_may_be_brought_forward() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let mut claim = NodeClaim::named("c");
        claim.metadata.deletion_timestamp = Some(at(100));
        assert_eq!(deadline(&claim), None);
        claim.spec.termination_grace_period = Some(NillableDuration::from_secs(60));
        let written = prepare_to_end(&claim, Stage::Draining, at(101)).expect("nothing is written yet");
        assert_eq!(written.metadata.annotations[labels::TERMINATION_TIMESTAMP], "1970-01-01T00:02:40Z");
        assert_eq!(prepare_to_end(&written, Stage::Draining, at(102)), None);
        let mut sick = written;
        sick.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), at(90).to_string());
        assert_eq!(deadline(&sick), Some(at(90)));
        sick.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), "soon".to_owned());
        assert_eq!(deadline(&sick), Some(at(160)));
    }

    #[test]
    fn marks_come_and_go() {
        let mut node = Node::default();
        node.spec.taints.push(Taint::new(labels::DISRUPTED, "old", TaintEffect::NoExecute));
        let marked = mark_disrupted(&node).expect("another taint");
        assert_eq!(marked.spec.taints.len(), 1);
        assert_eq!(mark_disrupted(&marked), None);
        let leaving = prepare_to_leave(&marked).expect("no label yet");
        assert_eq!(prepare_to_leave(&leaving), None);
        let (bare, claim) = unmark_disrupted(Some(&marked), Some(&NodeClaim::named("c")));
        assert_eq!((bare.expect("it was marked").spec.taints, claim), (Vec::new(), None));
    }
}
