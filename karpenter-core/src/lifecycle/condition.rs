use crate::{
    Timestamp,
    api::{Condition, ConditionStatus},
};

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
