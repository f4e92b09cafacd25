//! Who goes where, and what searches teach about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::domains::Counts;
use crate::{
    NodeAlternatives, Requirement, Requirements,
    api::{Toleration, tolerated_by_both},
    reason::TopologyObstacle,
    schedule::{
        amounts::{Amounts, take},
        class::{Classes, Constraint},
    },
};

/// Pods that ask for the same node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Portion {
    pub(in crate::schedule) key: PortionKey,
    /// The pods of a unit, which must be on one node.
    pub(in crate::schedule) members: Vec<Member>,
    pub(in crate::schedule) units: usize,
    pub(in crate::schedule) wanted: NodeAlternatives,
    /// Whether the pods may go elsewhere if the search finds no node, or others depend on them.
    pub(in crate::schedule) is_tentative: bool,
    /// How many pods in other domains need each of these units to find a node, because a spread keeps them level.
    pub(in crate::schedule) followers: usize,
    /// Whether other pods go where these go, to be near to them.
    pub(in crate::schedule) is_awaited: bool,
    /// Where else the pods might be bound, if one spread divides them.
    pub(in crate::schedule) latitude: Option<Arc<Latitude>>,
    /// What tells those that came last to a unit of several, with the domains that they are given there.
    pub(in crate::schedule) joined_by: Option<PortionKey>,
}

/// A plan gives pods of a spread one of its domains each; the kube-scheduler chooses among those that the spread allows
/// at the time.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Latitude {
    /// The label whose values are the domains.
    pub(in crate::schedule) key: Arc<str>,
    /// What the pods ask of their nodes in any domain.
    pub(in crate::schedule) constraint: Constraint,
    /// The pods that run in each domain.
    pub(in crate::schedule) counts: Counts,
    /// At most so many more than the emptiest domain, which counts as empty with fewer domains than `min_domains`; a
    /// spread that is only wished for has no limit.
    pub(in crate::schedule) limit: Option<(i64, usize)>,
}

/// Tells a portion from others: a class, the step at which it gives up its wishes, and the domains that it is given.
pub(in crate::schedule) type PortionKey = (usize, usize, Requirements);

/// A label and one of its values.
pub(in crate::schedule) type Domain = (Arc<str>, Arc<str>);

/// Pods of one class in a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Member {
    pub(in crate::schedule) class: usize,
    /// The step at which they give up their wishes: how many of them, unless they are weighed.
    pub(in crate::schedule) level: usize,
    pub(in crate::schedule) count: usize,
}

/// Pods that no division gives a domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Blocked {
    pub(in crate::schedule) class: usize,
    pub(in crate::schedule) count: usize,
    /// The rule that is in the way; `None` if it is not a rule about neighbours.
    pub(in crate::schedule) obstacle: Option<TopologyObstacle>,
}

/// Who goes where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Allotment {
    pub(in crate::schedule) portions: Vec<Portion>,
    pub(in crate::schedule) blocked: Vec<Blocked>,
}

/// What a lesson is about. Classes and steps are those of [`Member`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::schedule) enum Subject {
    /// How many units of single pods find nodes.
    Units(PortionKey),
    /// How many pods of a class, at a step of its wishes, fit beside others that they share a node with.
    PodsBesideOthers(usize, usize),
    /// How many units of several pods may have some of a class, at a step of its wishes.
    UnitsWith(usize, usize),
    /// How many units of several pods there may be that some of a class come to in these domains; none, or as many as there are.
    UnitsJoined(PortionKey),
}

/// What earlier searches have taught.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Lessons {
    pub(in crate::schedule) most: BTreeMap<Subject, usize>,
    /// Classes that are given up.
    pub(in crate::schedule) given_up: BTreeSet<usize>,
}

impl Subject {
    /// The class that it is about.
    pub(in crate::schedule) const fn class(&self) -> usize {
        match self {
            Self::Units((class, ..))
            | Self::UnitsJoined((class, ..))
            | Self::PodsBesideOthers(class, _)
            | Self::UnitsWith(class, _) => *class,
        }
    }

    /// The domains that it is about, each with its label.
    pub(in crate::schedule) fn domains(&self) -> impl Iterator<Item = Domain> {
        let pins = match self {
            Self::Units((.., pins)) | Self::UnitsJoined((.., pins)) => Some(pins),
            Self::PodsBesideOthers(..) | Self::UnitsWith(..) => None,
        };
        let of_label = |(key, requirement): (&str, &Requirement)| Some((Arc::from(key), requirement.any_value()?));
        pins.into_iter().flat_map(Requirements::iter).filter_map(of_label)
    }

    pub(in crate::schedule) fn is_in(&self, domain: &Domain) -> bool {
        self.domains().any(|own| own == *domain)
    }
}

impl Member {
    /// What pods request together.
    pub(super) fn requests(members: &[Self], classes: &Classes<'_>) -> Amounts {
        let mut out = classes.axes.zero();
        for member in members {
            let count = i64::try_from(member.count).unwrap_or(i64::MAX);
            take(&mut out, &classes.list[member.class].requests, -count);
        }
        out
    }
}

impl Portion {
    /// Single pods.
    pub(in crate::schedule) fn of_pods(
        key: PortionKey,
        units: usize,
        wanted: NodeAlternatives,
        is_tentative: bool,
    ) -> Self {
        let members = vec![Member { class: key.0, level: key.1, count: 1 }];
        let (followers, is_awaited, latitude, joined_by) = (0, false, None, None);
        Self { key, members, units, wanted, is_tentative, followers, is_awaited, latitude, joined_by }
    }

    /// Single pods of a class, wherever they may go.
    pub(in crate::schedule) fn alone(classes: &Classes<'_>, class: usize) -> Self {
        let level = classes.neighbourhood(class).levels() - 1;
        Self::of_pods((class, level, Requirements::new()), 0, classes.node_wanted(class), false)
    }

    /// Whether it is pods with a wish that they can still give up.
    pub(in crate::schedule) fn has_wishes(&self, classes: &Classes<'_>) -> bool {
        self.members.iter().any(|member| member.level + 1 < classes.neighbourhood(member.class).levels())
    }

    /// How many pods a unit has.
    pub(in crate::schedule) fn size(&self) -> usize {
        self.members.iter().map(|m| m.count).sum()
    }

    /// Whether a unit is several pods that must share a node.
    pub(in crate::schedule) fn is_bundle(&self) -> bool {
        self.size() > 1
    }

    /// What a unit asks of its node.
    pub(in crate::schedule) fn constraint(&self, classes: &Classes<'_>) -> Constraint {
        Constraint { wanted: self.wanted.clone(), tolerations: self.tolerations(classes) }
    }

    /// The taints that all pods of a unit tolerate.
    pub(super) fn tolerations(&self, classes: &Classes<'_>) -> Vec<Toleration> {
        let of = |member: &Member| &classes.constraints[classes.list[member.class].constraint].tolerations;
        let mut members = self.members.iter();
        let mut all = members.next().map(of).cloned().unwrap_or_default();
        members.for_each(|member| all = tolerated_by_both(&all, of(member)));
        all
    }

    /// What to do otherwise if only so many units find nodes: fewer units, or a quarter of the pods of a bundle less. Of bundles
    /// there are fewer if others with the same pods find nodes.
    pub(in crate::schedule) fn lesson(
        &self,
        placed: usize,
        bundles_placed: &BTreeMap<Subject, usize>,
    ) -> (Subject, usize) {
        let Some(last) = self.joined_last() else { return (Subject::Units(self.key.clone()), placed) };
        let bundles = Subject::UnitsWith(last.class, last.level);
        match bundles_placed.get(&bundles).copied() {
            Some(placed) if placed > 0 => (bundles, placed),
            _ => (Subject::PodsBesideOthers(last.class, last.level), last.count - last.count.div_ceil(4)),
        }
    }

    /// The pods that came last to a unit of several.
    pub(in crate::schedule) fn joined_last(&self) -> Option<&Member> {
        self.members.last().filter(|_| self.is_bundle())
    }
}

impl Lessons {
    /// Takes the smaller figure where there are two. Classes that nothing new is learned of are given up, so that searches end.
    pub(in crate::schedule) fn add(&mut self, found: BTreeMap<Subject, usize>) {
        let is_known = |(subject, most): (&Subject, &usize)| self.most.get(subject).is_some_and(|known| known <= most);
        if found.iter().all(is_known) {
            self.given_up.extend(found.keys().map(Subject::class));
        }
        for (subject, most) in found {
            let known = self.most.entry(subject).or_insert(most);
            *known = (*known).min(most);
        }
    }

    /// Gives up the classes of which something was learned in the last search: they take no lesson.
    pub(in crate::schedule) fn give_up(&mut self, last: &Self) {
        let is_new = |(subject, most): &(&Subject, &usize)| last.most.get(*subject) != Some(*most);
        let classes: Vec<usize> = self.most.iter().filter(is_new).map(|(subject, _)| subject.class()).collect();
        self.given_up.extend(classes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_of_which_nothing_new_is_learned_is_given_up() {
        let (mut lessons, subject) = (Lessons::default(), Subject::PodsBesideOthers(7, 0));
        lessons.add(BTreeMap::from([(subject.clone(), 4)]));
        lessons.add(BTreeMap::from([(subject.clone(), 3), (Subject::UnitsWith(8, 0), 1)]));
        assert!(lessons.given_up.is_empty(), "each time something was new");
        lessons.add(BTreeMap::from([(subject.clone(), 3)]));
        assert_eq!((lessons.most[&subject], lessons.given_up), (3, BTreeSet::from([7])));
    }
}
