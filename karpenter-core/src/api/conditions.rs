//! The conditions of pools, claims and overlays: their names, which are those of Karpenter, and how they are read and written.

use super::{Condition, ConditionStatus};
use crate::Timestamp;

/// The condition of a claim that has a machine.
pub const LAUNCHED: &str = "Launched";
/// The condition of a claim whose node has joined the cluster.
pub const REGISTERED: &str = "Registered";
/// The condition of a claim whose node is ready for pods.
pub const INITIALIZED: &str = "Initialized";
/// The condition of objects that are as they should be: of a claim all of the above holds.
pub const READY: &str = "Ready";
/// The condition of a claim of which the machine was told to go.
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
/// The condition of a claim of which no pod is left that must leave first.
pub const DRAINED: &str = "Drained";
/// The condition of a claim whose node has no volumes attached any more that must be detached first.
pub const VOLUMES_DETACHED: &str = "VolumesDetached";
/// The condition of a claim whose node was chosen to go.
pub const DISRUPTION_REASON: &str = "DisruptionReason";
/// The condition of a claim whose node pods have left alone for as long as its pool asks for.
pub const CONSOLIDATABLE: &str = "Consolidatable";
/// The condition of a claim whose node has what was promised of it.
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
/// The condition of a claim that is not what its pool asks for any more.
pub const DRIFTED: &str = "Drifted";
/// The condition of pools and overlays that break no rule.
pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
/// The condition of pools whose node class can be used.
pub const NODE_CLASS_READY: &str = "NodeClassReady";
/// The condition of pools of which the nodes join the cluster.
pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";

/// The most characters of a message in a condition; Karpenter cuts there too.
const MAX_MESSAGE: usize = 300;

/// The condition of this type, if it is there.
pub fn condition<'c>(conditions: &'c [Condition], of_type: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.r#type == of_type)
}

/// Writes a condition, and says whether that changed anything. The time of transition moves with the status only. Messages
/// are cut after 300 characters. A generation that somebody else saw is taken out: who waits for a condition would take it for
/// what was seen of the object now.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    of_type: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    let Some(known) = conditions.iter_mut().find(|condition| condition.r#type == of_type) else {
        conditions.push(Condition {
            r#type: of_type.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            last_transition_time: Some(now),
            observed_generation: None,
        });
        return true;
    };
    let is_new_status = known.status != status;
    let was_observed = known.observed_generation.take().is_some();
    if !is_new_status && !was_observed && known.reason == reason && known.message == message {
        return false;
    }
    if is_new_status {
        known.last_transition_time = Some(now);
    }
    known.status = status;
    reason.clone_into(&mut known.reason);
    known.message = message;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_status_is_a_transition() {
        let mut all = Vec::new();
        let at = Timestamp::from_millis;
        assert!(set_condition(&mut all, "Launched", ConditionStatus::Unknown, "a", "", at(1)));
        assert!(!set_condition(&mut all, "Launched", ConditionStatus::Unknown, "a", "", at(2)));
        assert!(set_condition(&mut all, "Launched", ConditionStatus::Unknown, "b", &"é".repeat(400), at(3)));
        assert_eq!((all[0].last_transition_time, all[0].message.chars().count()), (Some(at(1)), 300));
        assert!(set_condition(&mut all, "Launched", ConditionStatus::True, "b", "", at(4)));
        assert_eq!((all.len(), all[0].last_transition_time), (1, Some(at(4))));
        all[0].observed_generation = Some(7);
        assert!(set_condition(&mut all, "Launched", ConditionStatus::True, "b", "", at(5)));
        assert_eq!((all[0].observed_generation, all[0].last_transition_time), (None, Some(at(4))));
    }
}
