//! Who is left where there is less room than pods: no class fares worse than it does in the plain order of size.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Plan,
    problem::{Course, Problem},
    solve::Found,
};

/// Once so many classes are sure of room it is no longer asked whether others fare worse because of them.
const MOST_SURE: usize = 20;

impl Problem<'_> {
    /// If classes fare worse in a plan than in the order of size, a plan in which none does: as many of their pods as have a place in
    /// that order are sure of the room that there is.
    pub(super) fn fair(&self, found: &Found, by_size: &Found) -> Option<Found> {
        let left = self.left_by_class(&by_size.plan);
        let placed = |class: usize| self.base.classes.list[class].pods.len() - left[class];
        let mut sure = BTreeMap::new();
        let mut worse = self.faring_worse(&found.plan, &by_size.plan);
        while worse.iter().any(|class| !sure.contains_key(class)) {
            let alike = worse.iter().flat_map(|&class| self.lots.packed_with(class)).chain(worse.iter().copied());
            sure.extend(alike.map(|class| (class, placed(class))));
            let fair = self.with(Course { sure: sure.clone(), ..self.course.clone() });
            worse = self.faring_worse(&fair.plan, &by_size.plan);
            if worse.is_empty() {
                return Some(fair).filter(|fair| fair.heeds_priorities_as(found));
            }
            if sure.len() >= MOST_SURE {
                break;
            }
        }
        None
    }

    /// The classes of which a plan leaves more pods than another.
    pub(super) fn faring_worse(&self, plan: &Plan, other: &Plan) -> BTreeSet<usize> {
        let (left, by_other) = (self.left_by_class(plan), self.left_by_class(other));
        (0..left.len()).filter(|&class| left[class] > by_other[class]).collect()
    }
}

impl Found {
    /// Whether no pod that it leaves is of a higher priority than the one that another leaves in its stead.
    fn heeds_priorities_as(&self, other: &Self) -> bool {
        let mut pairs = self.left.iter().zip(&other.left);
        pairs.find(|(own, others)| own != others).is_none_or(|(own, others)| own < others)
    }
}
