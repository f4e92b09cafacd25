use std::{collections::BTreeMap, time::Duration};

use karpenter_core::{OfferingKey, Timestamp};

/// For how long an offering without capacity is not bought.
pub const UNAVAILABLE_FOR: Duration = Duration::from_mins(3);

/// What an offering is bought within, beside its zone: a placement group may be full where others are not.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The id of the placement group; empty if it is bought in none.
    pub placement_group: String,
    /// Its partition.
    pub partition: Option<u32>,
}

/// What had no capacity when it was last asked for.
///
/// An entry is over three minutes after it was made last. There is at most one for each offering and scope.
#[derive(Clone, Debug, Default)]
pub struct Unavailable {
    offerings: BTreeMap<(OfferingKey, Scope), Timestamp>,
    capacity_types: BTreeMap<String, Timestamp>,
    subnets: BTreeMap<(String, OfferingKey), Timestamp>,
    /// Counts what changes the answers.
    version: u64,
}

impl Unavailable {
    /// An offering had no capacity in this scope.
    pub fn mark(&mut self, offering: OfferingKey, scope: Scope, now: Timestamp) {
        self.version += 1;
        self.offerings.insert((offering, scope), now + UNAVAILABLE_FOR);
    }

    /// A whole capacity type cannot be bought.
    pub fn mark_capacity_type(&mut self, capacity_type: impl Into<String>, now: Timestamp) {
        self.version += 1;
        self.capacity_types.insert(capacity_type.into(), now + UNAVAILABLE_FOR);
    }

    /// A subnet had no address for an offering.
    pub fn mark_subnet(&mut self, subnet: impl Into<String>, offering: OfferingKey, now: Timestamp) {
        self.version += 1;
        self.subnets.insert((subnet.into(), offering), now + UNAVAILABLE_FOR);
    }

    /// Whether an offering is known to have no capacity. `subnets` are all that it could be bought in, in its zone.
    pub fn is_unavailable<'s>(
        &self,
        offering: &OfferingKey,
        scope: &Scope,
        subnets: impl IntoIterator<Item = &'s str>,
        now: Timestamp,
    ) -> bool {
        let holds = |until: Option<&Timestamp>| until.is_some_and(|until| now < *until);
        let in_scope = |scope: Scope| holds(self.offerings.get(&(offering.clone(), scope)));
        let group = Scope { placement_group: scope.placement_group.clone(), partition: None };
        if holds(self.capacity_types.get(&offering.capacity_type)) || in_scope(Scope::default()) {
            return true;
        }
        if in_scope(group) || in_scope(scope.clone()) {
            return true;
        }
        let mut subnets = subnets.into_iter().peekable();
        subnets.peek().is_some()
            && subnets.all(|subnet| holds(self.subnets.get(&(subnet.to_owned(), offering.clone()))))
    }

    /// Forgets what is over.
    pub fn expire(&mut self, now: Timestamp) {
        let before = self.len();
        self.offerings.retain(|_, until| now < *until);
        self.capacity_types.retain(|_, until| now < *until);
        self.subnets.retain(|_, until| now < *until);
        self.version += u64::from(before != self.len());
    }

    /// Counts what changes the answers: marks, and forgetting.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The offerings that are unavailable whatever the scope, spot and on-demand ones of a type among them if a whole
    /// capacity type is not.
    pub fn offerings(&self, now: Timestamp) -> impl Iterator<Item = (&OfferingKey, &Scope)> {
        self.offerings.iter().filter(move |(_, until)| now < **until).map(|((offering, scope), _)| (offering, scope))
    }

    fn len(&self) -> usize {
        self.offerings.len() + self.capacity_types.len() + self.subnets.len()
    }
}

#[cfg(test)]
mod tests {
    use karpenter_core::labels;

    use super::*;

    const NONE: [&str; 0] = [];

    fn spot(instance_type: &str, zone: &str) -> OfferingKey {
        OfferingKey {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type: labels::SPOT.to_owned(),
        }
    }

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn group(partition: Option<u32>) -> Scope {
        Scope { placement_group: "pg-1".to_owned(), partition }
    }

    #[test]
    fn a_mark_holds_three_minutes_from_the_last_time() {
        let mut marks = Unavailable::default();
        let (key, scope) = (spot("m5.large", "a"), Scope::default());
        marks.mark(key.clone(), scope.clone(), at(0));
        marks.mark(key.clone(), scope.clone(), at(60));
        assert!(marks.is_unavailable(&key, &scope, NONE, at(239)));
        assert!(!marks.is_unavailable(&key, &scope, NONE, at(240)));
        assert!(!marks.is_unavailable(&spot("m5.large", "b"), &scope, NONE, at(61)));
    }

    #[test]
    fn a_full_group_says_nothing_of_machines_outside_it() {
        let mut marks = Unavailable::default();
        let key = spot("m5.large", "a");
        marks.mark(key.clone(), group(Some(1)), at(0));
        assert!(marks.is_unavailable(&key, &group(Some(1)), NONE, at(1)));
        assert!(!marks.is_unavailable(&key, &group(Some(2)), NONE, at(1)));
        assert!(!marks.is_unavailable(&key, &Scope::default(), NONE, at(1)));
        marks.mark(key.clone(), group(None), at(0));
        assert!(marks.is_unavailable(&key, &group(Some(2)), NONE, at(1)));
        marks.mark(key.clone(), Scope::default(), at(0));
        assert!(marks.is_unavailable(&key, &Scope::default(), NONE, at(1)));
    }

    #[test]
    fn a_zone_is_full_once_all_its_subnets_are() {
        let mut marks = Unavailable::default();
        let (key, scope) = (spot("m5.large", "a"), Scope::default());
        marks.mark_subnet("s1", key.clone(), at(0));
        assert!(!marks.is_unavailable(&key, &scope, ["s1", "s2"], at(1)));
        assert!(!marks.is_unavailable(&key, &scope, NONE, at(1)), "no subnet is known");
        marks.mark_subnet("s2", key.clone(), at(0));
        assert!(marks.is_unavailable(&key, &scope, ["s1", "s2"], at(1)));
    }

    #[test]
    fn what_changes_the_answers_changes_the_version() {
        let mut marks = Unavailable::default();
        marks.mark_capacity_type(labels::SPOT, at(0));
        let version = marks.version();
        assert!(marks.is_unavailable(&spot("m5.large", "a"), &Scope::default(), NONE, at(1)));
        marks.expire(at(100));
        assert_eq!(marks.version(), version);
        marks.expire(at(180));
        assert_ne!(marks.version(), version);
    }
}
