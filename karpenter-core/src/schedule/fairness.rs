//! Who is left where there is less room than pods: no class fares worse than it does in the plain order of size.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Plan,
    problem::{Course, Problem},
    solve::Found,
};
use crate::api::ObjectKey;

/// How often further classes are made sure of room, which others lost to those before them.
const MAX_ROUNDS: usize = 3;

impl Problem<'_> {
    /// If classes fare worse in a plan than in the order of size, a plan in which none does: as many of their pods as have room in that
    /// order are sure of it. Where much is planned, all of their pods simply come first, which takes less time.
    pub(super) fn fair(&self, found: &Found, by_size: &Found) -> Option<Found> {
        let worse = self.faring_worse(&found.plan, &by_size.plan);
        if worse.is_empty() {
            return None;
        }
        let fair = if self.is_small() {
            self.with_sure_room(&worse, found, by_size)
        } else {
            let fair = self.with(Course { first: worse, ..self.course.clone() });
            self.faring_worse(&fair.plan, &by_size.plan).is_empty().then_some(fair)
        };
        fair.filter(|fair| fair.heeds_priorities_as(found))
    }

    fn with_sure_room(&self, first: &BTreeSet<usize>, found: &Found, by_size: &Found) -> Option<Found> {
        let seated = self.seated_by_class(&by_size.plan);
        let (mut worse, mut sure) = (first.clone(), BTreeMap::new());
        for round in 0..MAX_ROUNDS {
            if self.is_stopped() || worse.iter().all(|class| sure.contains_key(class)) {
                break;
            }
            let alike = worse.iter().flat_map(|&class| self.lots.packed_with(class)).chain(worse.iter().copied());
            sure.extend(alike.map(|class| (class, seated[class])));
            let fair = self.with(Course { sure: sure.clone(), ..self.course.clone() });
            worse = self.faring_worse(&fair.plan, &by_size.plan);
            if worse.is_empty() {
                // What comes to the order of size step by step may leave nearly as many pods.
                let is_worth_it = round == 0 || self.gives_as_much_as_it_takes(&fair, found, first);
                return Some(fair).filter(|_| is_worth_it);
            }
        }
        None
    }

    /// Whether a plan leaves no more pods beyond those of another than it gives pods of some classes a place.
    fn gives_as_much_as_it_takes(&self, fair: &Found, found: &Found, classes: &BTreeSet<usize>) -> bool {
        let left = |plan: &Plan| -> usize {
            let left = self.left_by_class(plan);
            classes.iter().map(|&class| left[class]).sum()
        };
        fair.left.len() + left(&fair.plan) <= found.left.len() + left(&found.plan)
    }

    /// How many pods of each class get some of the room that there is.
    fn seated_by_class(&self, plan: &Plan) -> Vec<usize> {
        let seated: BTreeSet<&ObjectKey> = plan.existing.values().flatten().collect();
        self.count_by_class(|pod| seated.contains(pod))
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
