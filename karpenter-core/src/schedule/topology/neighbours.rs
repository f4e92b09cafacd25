//! Rules about the pods of one node.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::{Member, selectors::SelectorId};
use crate::schedule::{class::Classes, workload::WorkloadId};

/// How the pods of a lot bear with others on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::schedule) struct Manners {
    /// How many pods of a unit each selector selects, of those selectors that matter on a node.
    pub(super) selected: Vec<(SelectorId, i64)>,
    /// Pods that may never be there.
    pub(super) away: Vec<SelectorId>,
    /// Pods that may not be there before.
    pub(super) shuns: Vec<SelectorId>,
    pub(super) spreads: Vec<HostSpread>,
    /// What units have of workloads of which a node takes only a share.
    shares: Vec<WorkloadShare>,
    /// Pods that a unit of one must share a node with. It is planned where they are, and is not to change places with others that
    /// need them not.
    company: Vec<SelectorId>,
    /// Whether some pod of a unit keeps away from another of the same unit.
    pub(super) clashes: bool,
}

/// A spread over nodes. There can always be an empty node, so the emptiest one has none of the pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HostSpread {
    pub(super) selector: SelectorId,
    pub(super) max_skew: i64,
    /// How many pods of a unit have the rule and are counted by it.
    pub(super) own: i64,
}

/// Pods of a workload of which a node takes only so many.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct WorkloadShare {
    workload: WorkloadId,
    /// How many pods of it a unit has.
    own: i64,
    /// How many a node takes; a unit is never too many, because pods that must share a node come before this rule.
    most: i64,
}

/// Whose number is limited on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::schedule) enum Counted {
    /// The pods that a selector selects.
    Selected(SelectorId),
    /// The pods of a workload.
    Workload(WorkloadId),
}

/// The pods of one node, as far as such rules go.
#[derive(Clone, Debug, Default)]
pub(in crate::schedule) struct Neighbours {
    /// How many pods each selector selects.
    selected: Tally,
    /// The pods that count for a spread: those that ran before, and those that have the rule themselves. Others can
    /// come later.
    spread: Tally,
    /// Pods that may not come.
    repelled: Vec<SelectorId>,
    /// How many pods of each workload there are, of those that matter.
    workloads: BTreeMap<WorkloadId, i64>,
}

/// How many pods of a node each of a few selectors selects.
#[derive(Clone, Debug, Default)]
struct Tally(SmallVec<[(SelectorId, i64); 8]>);

impl Tally {
    fn count(&self, selector: SelectorId) -> i64 {
        self.0.iter().find(|(known, _)| *known == selector).map_or(0, |(_, count)| *count)
    }

    fn add(&mut self, selector: SelectorId, count: i64) {
        match self.0.iter_mut().find(|(known, _)| *known == selector) {
            Some((_, known)) => *known += count,
            None => self.0.push((selector, count)),
        }
    }
}

impl Manners {
    /// How units of these pods bear with others.
    pub(in crate::schedule) fn of(classes: &Classes<'_>, members: &[Member]) -> Self {
        let mut out = Self::default();
        let mut selected: BTreeMap<SelectorId, i64> = BTreeMap::new();
        for member in members {
            let neighbourhood = classes.neighbourhood(member.class);
            let count = i64::try_from(member.count).unwrap_or(i64::MAX);
            let ids = classes.selectors.ids(neighbourhood.selected_by);
            for id in ids.iter().filter(|id| classes.host_selectors.contains(id)) {
                *selected.entry(*id).or_default() += count;
            }
            let rules = neighbourhood.rules_at(member.level);
            let mut counted: BTreeSet<SelectorId> = BTreeSet::new();
            out.away.extend(rules.away.iter().filter(|t| t.is_by_host()).map(|t| t.selector));
            out.shuns.extend(rules.shuns.iter().filter(|t| t.is_by_host()).map(|t| t.selector));
            if let [Member { count: 1, .. }] = members {
                out.company.extend(rules.near.iter().filter(|t| t.is_by_host()).map(|t| t.selector));
            }
            for spread in rules.spreads.iter().filter(|s| s.term.is_by_host()) {
                let selector = spread.term.selector;
                // A pod counts once, whatever it hopes for beside what it requires.
                let is_own = ids.binary_search(&selector).is_ok() && counted.insert(selector);
                let own = if is_own { count } else { 0 };
                match out.spreads.iter_mut().find(|s| s.selector == selector) {
                    Some(known) => {
                        known.max_skew = known.max_skew.min(spread.max_skew);
                        known.own += own;
                    }
                    None => out.spreads.push(HostSpread { selector, max_skew: spread.max_skew, own }),
                }
            }
        }
        for member in members {
            let neighbourhood = classes.neighbourhood(member.class);
            let rules = neighbourhood.rules_at(member.level);
            for term in rules.away.iter().chain(&rules.shuns).filter(|t| t.is_by_host()) {
                let own = i64::from(classes.selectors.selects(term.selector, neighbourhood.selected_by));
                out.clashes |= selected.get(&term.selector).copied().unwrap_or(0) > own;
            }
        }
        out.selected = selected.into_iter().collect();
        for list in [&mut out.away, &mut out.shuns] {
            list.sort_unstable();
            list.dedup();
        }
        out.spreads.sort_unstable();
        out.shares = shares(classes, members);
        out
    }

    /// Whether a node takes only so many units, however large it is.
    pub(in crate::schedule) fn is_limited(&self) -> bool {
        self.own_limits().next().is_some()
    }

    /// The rules by which units limit their own number on a node: whom a rule counts, how many of them a unit has, and
    /// how many a node may have.
    pub(in crate::schedule) fn own_limits(&self) -> impl Iterator<Item = (Counted, i64, i64)> {
        let selected = |selector| Counted::Selected(selector);
        let alone = self.away.iter().chain(&self.shuns).map(move |&s| (selected(s), self.selects(s), 1));
        let spread = self.spreads.iter().map(move |spread| (selected(spread.selector), spread.own, spread.max_skew));
        let share = self.shares.iter().map(|share| (Counted::Workload(share.workload), share.own, share.most));
        alone.chain(spread).chain(share).filter(|(_, own, _)| *own > 0)
    }

    /// Whether neighbours make no difference to a unit.
    pub(in crate::schedule) fn is_free(&self) -> bool {
        self.selected.is_empty() && self.away.is_empty() && self.shuns.is_empty() && self.spreads.is_empty()
    }

    /// Whether it makes no difference to a unit who else is on its node.
    pub(super) fn are_free(&self) -> bool {
        self.is_free() && self.shares.is_empty()
    }

    fn selects(&self, selector: SelectorId) -> i64 {
        self.selected.iter().find(|(s, _)| *s == selector).map_or(0, |(_, count)| *count)
    }
}

/// What these pods have of workloads of which a node takes only a share.
fn shares(classes: &Classes<'_>, members: &[Member]) -> Vec<WorkloadShare> {
    let mut own: BTreeMap<WorkloadId, i64> = BTreeMap::new();
    for member in members {
        if let Some(workload) = classes.list[member.class].workload {
            *own.entry(workload).or_default() += i64::try_from(member.count).unwrap_or(i64::MAX);
        }
    }
    let share = |(workload, own): (WorkloadId, i64)| {
        let most = classes.workloads.most(workload).max(own);
        WorkloadShare { workload, own, most }
    };
    own.into_iter().map(share).collect()
}

impl Neighbours {
    /// Those of a place that exists.
    pub(in crate::schedule) fn at_place(classes: &Classes<'_>, place: usize) -> Self {
        let Classes { standing, selectors, workloads, .. } = classes;
        let mut out = Self { workloads: workloads.on_place(place), ..Self::default() };
        for (set, count) in standing.sets(place) {
            for id in selectors.ids(set) {
                out.selected.add(*id, count);
            }
        }
        out.spread.clone_from(&out.selected);
        out.repelled = standing.away(place).iter().filter(|t| t.is_by_host()).map(|t| t.selector).collect();
        out
    }

    /// How many units the node can take of a lot.
    pub(in crate::schedule) fn most(&self, manners: &Manners) -> i64 {
        if manners.is_free() {
            return i64::MAX;
        }
        if manners.clashes || manners.selected.iter().any(|(selector, _)| self.repelled.contains(selector)) {
            return 0;
        }
        let mut most = i64::MAX;
        for &selector in manners.away.iter().chain(&manners.shuns) {
            if self.selected.count(selector) > 0 {
                return 0;
            }
            most = match manners.selects(selector) {
                0 => most,
                1 => most.min(1),
                _ => return 0,
            };
        }
        for HostSpread { selector, max_skew, own } in &manners.spreads {
            let room = max_skew - self.spread.count(*selector);
            most = match own {
                0 if room >= 0 => most,
                0 => 0,
                own => most.min(room / own),
            };
        }
        most.max(0)
    }

    /// How many units the node can take of a lot before it has its share of their workloads.
    pub(in crate::schedule) fn most_of_workloads(&self, manners: &Manners) -> i64 {
        let room = |share: &WorkloadShare| {
            let there = self.workloads.get(&share.workload).copied().unwrap_or(0);
            (share.most - there).max(0) / share.own.max(1)
        };
        manners.shares.iter().map(room).min().unwrap_or(i64::MAX)
    }

    /// Adds units of a lot.
    pub(in crate::schedule) fn add(&mut self, manners: &Manners, count: i64) {
        for &(selector, selected) in &manners.selected {
            self.selected.add(selector, selected * count);
        }
        for spread in &manners.spreads {
            self.spread.add(spread.selector, spread.own * count);
        }
        for share in &manners.shares {
            *self.workloads.entry(share.workload).or_default() += share.own * count;
        }
        for selector in &manners.away {
            if !self.repelled.contains(selector) {
                self.repelled.push(*selector);
            }
        }
    }
}
