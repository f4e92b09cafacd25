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

/// The most characters that the definitions of these objects allow in a message.
const MAX_MESSAGE: usize = 32_768;

/// The condition of this type, if it is there.
pub fn condition<'c>(conditions: &'c [Condition], of_type: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.r#type == of_type)
}

/// Writes a condition as it was seen of an object of this generation, and says whether that changed anything. The time of
/// transition moves with the status only. Where there is no reason to name, it is the type.
///
/// The generation must be that of the object that was looked at: who waits for a condition compares it with the object's own.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    generation: Option<i64>,
    of_type: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let known = conditions.iter_mut().find(|condition| condition.r#type == of_type);
    let since = known.as_ref().filter(|known| known.status == status).map(|known| known.last_transition_time);
    let condition = Condition {
        r#type: of_type.to_owned(),
        status,
        reason: if reason.is_empty() { of_type } else { reason }.to_owned(),
        message: message.chars().take(MAX_MESSAGE).collect(),
        last_transition_time: since.unwrap_or(Some(now)),
        observed_generation: generation,
    };
    match known {
        Some(known) if *known == condition => return false,
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_status_is_a_transition() {
        let mut all = Vec::new();
        let mut set = |generation, status, reason: &str, message: &str, at| {
            let is_new =
                set_condition(&mut all, generation, LAUNCHED, status, reason, message, Timestamp::from_millis(at));
            let [one] = &all[..] else { panic!("{all:#?}") };
            (is_new, one.last_transition_time.map(Timestamp::as_millis), one.observed_generation)
        };
        let (yes, unknown) = (ConditionStatus::True, ConditionStatus::Unknown);
        assert_eq!(set(None, unknown, "a", "", 1), (true, Some(1), None));
        assert_eq!(set(None, unknown, "a", "", 2), (false, Some(1), None));
        assert_eq!(set(None, unknown, "b", "c", 3), (true, Some(1), None));
        assert_eq!(set(None, yes, "b", "", 4), (true, Some(4), None));
        assert_eq!(set(Some(7), yes, "b", "", 5), (true, Some(4), Some(7)));
        assert_eq!(set(Some(7), yes, "b", "", 6), (false, Some(4), Some(7)));
        assert_eq!(set(None, yes, "", "", 7), (true, Some(4), None));
        assert_eq!((all[0].reason.as_str(), all[0].message.as_str()), (LAUNCHED, ""));
    }

    #[test]
    fn messages_are_no_longer_than_definitions_allow() {
        let mut all = Vec::new();
        let message = "é".repeat(MAX_MESSAGE + 1);
        set_condition(&mut all, None, READY, ConditionStatus::False, "a", &message, Timestamp::default());
        assert_eq!(all[0].message.chars().count(), MAX_MESSAGE);
    }
}
