//! Pods that must share a node with others that are still to come are planned as one.

use super::{Manners, Member, Neighbours, Portion, PortionKey, Subject, Term, allot::Allotter};
use crate::{
    NodeAlternatives, Requirements, api::tolerated_by_both, cluster::HostPort, requirements::MAX_PRODUCT,
    schedule::class::Constraint,
};

impl Allotter<'_, '_> {
    /// Puts as many pods of a class as fit on the nodes of the pods that they must be near to, as many on each as its
    /// rules allow; gives back how many are left.
    pub(super) fn bundle(
        &mut self,
        who: &PortionKey,
        wanted: &NodeAlternatives,
        terms: &[Term],
        starts_alone: bool,
        mut left: usize,
    ) -> usize {
        let &(class, level, _) = who;
        let has_some = |portion: &Portion| portion.members.iter().any(|m| (m.class, m.level) == (class, level));
        let units_with = self.out.portions.iter().filter(|portion| portion.is_bundle() && has_some(portion)).count();
        let most_units = self.learned(&Subject::UnitsWith(class, level)).unwrap_or(usize::MAX);
        let mut units_left = most_units.saturating_sub(units_with);
        for index in 0..self.out.portions.len() {
            let portion = &self.out.portions[index];
            // The first of them may have come alone.
            let is_begun = starts_alone && portion.units == 1 && portion.members[0].class == class;
            let is_bundle = portion.is_bundle() || is_begun;
            if left > 0 && units_left > 0 && is_bundle && self.has_company(portion, terms) {
                let joined = self.join(index, who, wanted, left);
                units_left -= usize::from(joined > 0);
                left -= joined;
            }
        }
        if starts_alone && !self.out.portions.iter().any(|portion| self.has_company(portion, terms)) {
            return left - self.start(who, wanted, left);
        }
        for index in 0..self.out.portions.len() {
            while left > 0 && units_left > 0 && self.is_free_company(index, class, terms) {
                let joined = self.join_one(index, who, wanted, left);
                if joined == 0 {
                    break;
                }
                units_left -= 1;
                left -= joined;
            }
        }
        left
    }

    /// Adds as many pods of a class as fit to one of the units of a portion, which becomes a portion of its own, and gives back how
    /// many.
    fn join_one(&mut self, index: usize, who: &PortionKey, wanted: &NodeAlternatives, most: usize) -> usize {
        let taken = self.split_one(index);
        let joined = self.join(taken, who, wanted, most);
        if joined == 0 {
            self.out.portions.truncate(taken);
            self.out.portions[index].units += 1;
        }
        joined
    }

    /// Makes a unit of as many pods of a class as fit on one node, and gives back how many.
    fn start(&mut self, who: &PortionKey, wanted: &NodeAlternatives, left: usize) -> usize {
        let &(class, level, _) = who;
        let most = self.learned(&Subject::PodsBesideOthers(class, level)).unwrap_or(usize::MAX);
        let whole = left.min(most).min(self.most(class, level, &Requirements::new()));
        let fitting = self.most_together((class, level), wanted, whole);
        if fitting > 0 {
            let mut portion = Portion::of_pods((class, level, Requirements::new()), 1, wanted.clone(), true);
            portion.members[0].count = fitting;
            portion.joined_by = Some(who.clone());
            self.out.portions.push(portion);
        }
        fitting
    }

    /// How many pods of a class fit on one node, up to so many.
    pub(super) fn most_together(
        &mut self,
        (class, level): (usize, usize),
        wanted: &NodeAlternatives,
        most: usize,
    ) -> usize {
        let constraint = self.seeker(class, wanted.clone());
        largest(most, |count| self.fits(&constraint, &[Member { class, level, count }]))
    }

    /// Whether a portion is single pods of another class that some class wants to be near to.
    fn is_free_company(&self, index: usize, class: usize, terms: &[Term]) -> bool {
        let portion = &self.out.portions[index];
        let [Member { class: host, count: 1, .. }] = *portion.members.as_slice() else { return false };
        host != class && self.has_company(portion, terms)
    }

    /// Makes one unit of a portion a portion of its own and gives back its index.
    pub(super) fn split_one(&mut self, index: usize) -> usize {
        self.out.portions[index].units -= 1;
        let one = Portion { units: 1, is_tentative: true, ..self.out.portions[index].clone() };
        self.out.portions.push(one);
        self.out.portions.len() - 1
    }

    /// Adds as many pods of a class to the one unit of a portion as fit, and gives back how many. Where the wishes of those that
    /// are there keep them all out, who must be there comes first.
    fn join(&mut self, index: usize, who: &PortionKey, wanted: &NodeAlternatives, most: usize) -> usize {
        let &(class, level, _) = who;
        let portion = &self.out.portions[index];
        if portion.wanted.alternatives().len().saturating_mul(wanted.alternatives().len()) > MAX_PRODUCT {
            return 0;
        }
        let both = portion.wanted.and(wanted.alternatives());
        let theirs = portion.tolerations(&self.base.classes);
        let tolerations = tolerated_by_both(&theirs, &self.constraint(class).tolerations);
        let constraint = Constraint { wanted: both.clone(), tolerations };
        let there = portion.members.clone();
        let learned = self.learned(&Subject::PodsBesideOthers(class, level)).unwrap_or(usize::MAX);
        let without_wishes = there.iter().map(|m| Member { level: self.neighbourhood(m.class).levels() - 1, ..*m });
        for there in [there.clone(), without_wishes.collect()] {
            let own: usize = there.iter().filter(|m| (m.class, m.level) == (class, level)).map(|m| m.count).sum();
            let fitting = largest(most.min(learned.saturating_sub(own)), |count| {
                let all: Vec<_> = there.iter().copied().chain([Member { class, level, count }]).collect();
                self.fits(&constraint, &all)
            });
            if fitting > 0 {
                let portion = &mut self.out.portions[index];
                (portion.wanted, portion.members) = (both, there);
                portion.joined_by = Some(who.clone());
                match portion.members.last_mut().filter(|last| (last.class, last.level) == (class, level)) {
                    Some(last) => last.count += fitting,
                    None => portion.members.push(Member { class, level, count: fitting }),
                }
                return fitting;
            }
        }
        0
    }

    /// Whether some node can take these pods together.
    fn fits(&mut self, constraint: &Constraint, pods: &[Member]) -> bool {
        let classes = &self.base.classes;
        let requests = Member::requests(pods, classes);
        let mut ports: Vec<HostPort> = Vec::new();
        for &Member { class, count, .. } in pods {
            let own = &classes.list[class].host_ports;
            if count > 1 && !own.is_empty() || HostPort::any_clash(&ports, own) {
                return false;
            }
            ports.extend_from_slice(own);
        }
        let is_tolerable = Neighbours::default().most(&Manners::of(classes, pods)) > 0;
        is_tolerable && self.domains.takes(constraint, &requests)
    }
}

/// The largest count up to `most` that passes; a count passes if a larger one does.
fn largest(most: usize, mut passes: impl FnMut(usize) -> bool) -> usize {
    if passes(most) {
        return most;
    }
    let (mut fits, mut too_many) = (0, most);
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        *(if passes(middle) { &mut fits } else { &mut too_many }) = middle;
    }
    fits
}
