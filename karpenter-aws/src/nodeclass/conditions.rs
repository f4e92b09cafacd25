//! Whether nodes can be made of a class: what is known of it, one condition each, and all together.

use std::time::Duration;

pub use karpenter_core::api::conditions::{READY, VALIDATION_SUCCEEDED};
use karpenter_core::{
    Timestamp,
    api::{ConditionStatus, conditions::set_condition},
};

use super::{CapacityReservation, Ec2NodeClass, Ec2NodeClassStatus, ReservationState, ReservationType};

/// The images were found.
pub const AMIS_READY: &str = "AMIsReady";
/// Subnets were found.
pub const SUBNETS_READY: &str = "SubnetsReady";
/// Security groups were found.
pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
/// The instance profile is there.
pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
/// The placement group was found, or none is asked for.
pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
/// Capacity reservations were looked for.
pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";

/// The conditions that [`READY`] stands for. [`VALIDATION_SUCCEEDED`] says that instances could be launched.
pub const ALL: [&str; 7] = [
    AMIS_READY,
    SUBNETS_READY,
    SECURITY_GROUPS_READY,
    INSTANCE_PROFILE_READY,
    VALIDATION_SUCCEEDED,
    PLACEMENT_GROUP_READY,
    CAPACITY_RESERVATIONS_READY,
];

/// The reason of a class that cannot be tried out, because another condition does not hold.
pub(crate) const DEPENDENCIES_NOT_READY: &str = "DependenciesNotReady";

/// How long before a capacity block ends nothing is launched into it any more: EC2 ends its instances half an hour
/// before.
const EXPIRES_BEFORE_END: Duration = Duration::from_mins(40);

impl Ec2NodeClass {
    /// Sets a condition, of the class as it is now. The time is that of the last change of the status.
    pub fn set_condition(
        &mut self,
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: impl AsRef<str>,
        now: Timestamp,
    ) {
        let (conditions, generation) = (&mut self.status.conditions, self.metadata.generation);
        set_condition(conditions, generation, kind, status, reason, message.as_ref(), now);
        conditions.sort_by(|a, b| a.r#type.cmp(&b.r#type));
    }

    /// Sets [`READY`]: it is false if one of the conditions that it stands for is, and unknown if one is not known.
    pub fn set_ready(&mut self, now: Timestamp) {
        let not = |status: ConditionStatus| {
            let kinds = ALL.iter().filter(|kind| self.status.condition(kind) == status);
            kinds.copied().collect::<Vec<_>>()
        };
        let (failed, unknown) = (not(ConditionStatus::False), not(ConditionStatus::Unknown));
        let (status, reason, message) = if !failed.is_empty() {
            (ConditionStatus::False, "UnhealthyDependents", failed.iter().map(|k| format!("{k}=False")).collect())
        } else if !unknown.is_empty() {
            (
                ConditionStatus::Unknown,
                "ReconcilingDependents",
                unknown.iter().map(|k| format!("{k}=Unknown")).collect(),
            )
        } else {
            (ConditionStatus::True, "", Vec::new())
        };
        self.set_condition(READY, status, reason, message.join(", "), now);
    }

    /// Why no instance may be launched of the class now, if so: it is being deleted, not ready, or was changed since it
    /// was looked at.
    pub fn not_ready(&self) -> Option<String> {
        if self.metadata.deletion_timestamp.is_some() {
            return Some("it is being deleted".to_owned());
        }
        let Some(ready) = self.status.conditions.iter().find(|c| c.r#type == READY) else {
            return Some("it was not looked at yet".to_owned());
        };
        if ready.status != ConditionStatus::True {
            return Some(self.status.what_is(ready.status).unwrap_or_else(|| ready.reason.clone()));
        }
        (ready.observed_generation != self.metadata.generation)
            .then(|| "it was changed since it was looked at".to_owned())
    }
}

impl Ec2NodeClassStatus {
    /// The conditions of a status, each with what was said of it, but for one that only waits for others. One that is not there is
    /// unknown.
    fn what_is(&self, status: ConditionStatus) -> Option<String> {
        let of = |kind: &&str| {
            let own = self.conditions.iter().find(|own| own.r#type == **kind);
            let said = own.map(|own| own.message.as_str()).filter(|message| !message.is_empty());
            let said = said.map(|message| format!(" ({message})")).unwrap_or_default();
            let counts = self.condition(kind) == status && own.is_none_or(|own| own.reason != DEPENDENCIES_NOT_READY);
            counts.then(|| format!("{kind}={status:?}{said}"))
        };
        let all: Vec<String> = ALL.iter().filter_map(of).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Whether a condition holds; unknown if it is not there.
    pub fn condition(&self, kind: &str) -> ConditionStatus {
        let found = self.conditions.iter().find(|c| c.r#type == kind);
        found.map_or(ConditionStatus::Unknown, |c| c.status)
    }
}

impl CapacityReservation {
    /// Whether it is about to end at `now`: only blocks are, some time before they end.
    pub fn state_at(&self, now: Timestamp) -> ReservationState {
        let is_block = self.reservation_type == ReservationType::CapacityBlock;
        let is_over = self.end_time.is_some_and(|end| now >= end - EXPIRES_BEFORE_END);
        if is_block && is_over { ReservationState::Expiring } else { ReservationState::Active }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodeclass::InstanceMatchCriteria;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn ready() -> Ec2NodeClass {
        let mut class = Ec2NodeClass::named("default");
        class.metadata.generation = Some(1);
        for kind in ALL {
            class.set_condition(kind, ConditionStatus::True, "", "", at(1));
        }
        class.set_ready(at(1));
        class
    }

    #[test]
    fn a_class_is_ready_if_all_conditions_hold() {
        let mut class = ready();
        assert_eq!(class.not_ready(), None);
        class.set_condition(SUBNETS_READY, ConditionStatus::Unknown, "", "", at(2));
        class.set_ready(at(2));
        assert_eq!(class.status.condition(READY), ConditionStatus::Unknown);
        assert_eq!(class.not_ready().as_deref(), Some("SubnetsReady=Unknown"));
        class.set_condition(AMIS_READY, ConditionStatus::False, "AMINotFound", "no images", at(3));
        class.set_ready(at(3));
        assert_eq!(class.not_ready().as_deref(), Some("AMIsReady=False (no images)"));
        class.set_condition(VALIDATION_SUCCEEDED, ConditionStatus::False, DEPENDENCIES_NOT_READY, "AMIsReady", at(3));
        assert_eq!(class.not_ready().as_deref(), Some("AMIsReady=False (no images)"));
    }

    #[test]
    fn a_class_that_was_changed_or_is_being_deleted_is_not_ready() {
        let mut class = ready();
        class.metadata.generation = Some(2);
        assert!(class.not_ready().is_some_and(|why| why.contains("changed")));
        class.metadata.deletion_timestamp = Some(at(5));
        assert!(class.not_ready().is_some_and(|why| why.contains("deleted")));
        assert!(Ec2NodeClass::named("new").not_ready().is_some());
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change() {
        let mut class = ready();
        class.set_condition(AMIS_READY, ConditionStatus::True, "", "", at(9));
        let since = |class: &Ec2NodeClass| {
            class.status.conditions.iter().find(|c| c.r#type == AMIS_READY).and_then(|c| c.last_transition_time)
        };
        assert_eq!(since(&class), Some(at(1)));
        class.set_condition(AMIS_READY, ConditionStatus::False, "AMINotFound", "", at(9));
        assert_eq!(since(&class), Some(at(9)));
    }

    #[test]
    fn blocks_expire_forty_minutes_before_their_end() {
        let mut reservation = CapacityReservation {
            availability_zone: "z".to_owned(),
            end_time: Some(at(40 * 60 + 10)),
            id: "cr-1".to_owned(),
            instance_match_criteria: InstanceMatchCriteria::Targeted,
            instance_type: "m5.large".to_owned(),
            owner_id: "012345678901".to_owned(),
            reservation_type: ReservationType::CapacityBlock,
            interruptible: false,
            state: ReservationState::Active,
        };
        assert_eq!(reservation.state_at(at(9)), ReservationState::Active);
        assert_eq!(reservation.state_at(at(10)), ReservationState::Expiring);
        reservation.reservation_type = ReservationType::Default;
        assert_eq!(reservation.state_at(at(10)), ReservationState::Active);
        reservation.reservation_type = ReservationType::CapacityBlock;
        reservation.end_time = None;
        assert_eq!(reservation.state_at(at(10)), ReservationState::Active);
    }
}
