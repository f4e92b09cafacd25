//! How many pods go to each domain.

use std::{collections::BTreeMap, sync::Arc};

use indexmap::IndexMap;
use smallvec::SmallVec;

use super::{
    domains::Counts,
    offers::{Cell, Charge, Cost},
};
use crate::FxBuild;

/// A rule that counts pods in the domains of one label.
#[derive(Clone)]
pub(super) struct Counted {
    /// The place of the label in a cell.
    pub(super) key_index: usize,
    rule: Rule,
    /// The pods in each domain: first come those that the rule counts. Others have pods all the same, or may get some.
    domains: IndexMap<Arc<str>, Pods, FxBuild>,
    /// How many domains the rule counts.
    ruled: usize,
    /// How many domains have so many pods for sure, of those whose emptiest the rule looks at.
    levels: BTreeMap<i64, usize>,
    /// The fewest pods of any of these.
    floor: i64,
}

/// How many pods a domain has.
#[derive(Clone, Copy, Default)]
struct Pods {
    /// Those that run, and those that are allotted.
    sure: i64,
    /// Those that are allotted and perhaps not counted: they fill a domain, but do not raise the emptiest.
    unsure: i64,
}

impl Pods {
    /// The most that a domain may turn out to have.
    const fn all(self) -> i64 {
        self.sure + self.unsure
    }
}

/// What a counted domain may hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// At most so many more than the emptiest domain, which counts as empty with fewer domains than this.
    Spread { max_skew: i64, min_domains: usize },
    /// At most one.
    Alone,
}

impl Counted {
    /// A rule with the pods that run in the domains that it counts, and those that are allotted and counted for sure or perhaps.
    pub(super) fn new(key_index: usize, rule: Rule, running: &Counts, [planned, unsure]: &[Counts; 2]) -> Self {
        let as_pods = |(domain, &sure): (&Arc<str>, &i64)| (domain.clone(), Pods { sure, unsure: 0 });
        let mut domains: IndexMap<Arc<str>, Pods, FxBuild> = running.iter().map(as_pods).collect();
        for (domain, count) in planned {
            domains.entry(domain.clone()).or_default().sure += count;
        }
        for (domain, count) in unsure {
            domains.entry(domain.clone()).or_default().unsure += count;
        }
        let mut out = Self { key_index, rule, domains, ruled: running.len(), levels: BTreeMap::new(), floor: 0 };
        if matches!(rule, Rule::Spread { .. }) && !out.lacks_domains() {
            for pods in out.domains.values().take(out.ruled) {
                *out.levels.entry(pods.sure).or_default() += 1;
            }
            out.floor = out.levels.keys().next().copied().unwrap_or(0);
        }
        out
    }

    /// Whether there are fewer domains than a spread asks for.
    pub(super) const fn lacks_domains(&self) -> bool {
        matches!(self.rule, Rule::Spread { min_domains, .. } if self.ruled < min_domains)
    }

    /// How many pods a domain may have now.
    fn most(&self) -> i64 {
        match self.rule {
            Rule::Spread { max_skew, .. } => self.floor + max_skew,
            Rule::Alone => 1,
        }
    }

    /// How many more pods a domain may have now.
    pub(super) fn room(&self, domain: &Arc<str>) -> i64 {
        self.most() - self.domains.get(domain).map_or(0, |pods| pods.all())
    }

    /// Whether a domain may have another pod now.
    pub(super) fn is_open(&self, domain: &Arc<str>) -> bool {
        self.room(domain) > 0
    }

    /// The pods in each domain that the rule counts or that has some for sure.
    pub(super) fn totals(&self) -> Counts {
        let told = self.domains.iter().enumerate().filter(|(index, (_, pods))| *index < self.ruled || pods.sure > 0);
        told.map(|(_, (domain, pods))| (domain.clone(), pods.all())).collect()
    }

    /// By how many pods the fullest domain may differ from the emptiest.
    fn max_skew(&self) -> usize {
        match self.rule {
            Rule::Spread { max_skew, .. } => usize::try_from(max_skew).unwrap_or(usize::MAX),
            Rule::Alone => 1,
        }
    }

    /// The index of a domain, which is one of those that may get pods from now on.
    fn index_of(&mut self, domain: &Arc<str>) -> usize {
        let entry = self.domains.entry(domain.clone());
        let index = entry.index();
        entry.or_default();
        index
    }

    fn add(&mut self, domain: usize, count: i64) {
        let before = self.domains[domain].sure;
        self.domains[domain].sure += count;
        if domain >= self.ruled || self.levels.is_empty() {
            return;
        }
        *self.levels.entry(before + count).or_default() += 1;
        if let Some(alike) = self.levels.get_mut(&before) {
            *alike -= 1;
            if *alike == 0 {
                self.levels.remove(&before);
            }
        }
        self.floor = self.levels.keys().next().copied().unwrap_or(0);
    }
}

/// A cell to which pods may go.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) cell: Cell,
    /// What a pod costs there.
    pub(super) cost: Cost,
    /// How many may go there at most.
    pub(super) most: usize,
}

impl Open {
    /// A cell to which so many pods may go at most, those that have room on nodes that exist apart from the others.
    pub(super) fn all(cell: &Cell, charge: Charge, most: usize) -> impl Iterator<Item = Self> {
        let free = charge.free.min(most);
        let parts = [(Cost::NOTHING, free), (charge.new, most - free)];
        let open = |(cost, most)| Self { cell: cell.clone(), cost, most };
        parts.into_iter().filter(|&(_, most)| most > 0).map(open)
    }
}

/// Of more cells with room than these, pods of different classes do not all take the first: it is only learned from a search that
/// those are full, and there are no more searches than that.
const MANY_CELLS: usize = 12;

/// Spreads pods over cells, the cheapest cells first, and in each the cheapest part, and gives back how many each gets.
///
/// They are spread evenly, but for the last of them where a rule lets domains differ by more than one pod, unless these are to be
/// even, too: they fill one cell after the other as far as the rules let them, so that few pods need few nodes and take the room
/// that there is. Of very many cells with room those come first that so many pods `before` have left.
pub(super) fn divide(
    pods: usize,
    mut open: Vec<Open>,
    mut rules: Vec<Counted>,
    is_even: bool,
    before: usize,
) -> BTreeMap<Cell, usize> {
    open.sort_by(|a, b| (a.cost, &a.cell).cmp(&(b.cost, &b.cell)));
    let free = open.partition_point(|open| open.cost == Cost::NOTHING);
    if free > MANY_CELLS {
        open[..free].rotate_left(before % free);
    }
    let part = |open: &Open| Part {
        domains: rules.iter_mut().map(|rule| rule.index_of(&open.cell[rule.key_index])).collect(),
        most: open.most,
        pods: 0,
    };
    let parts = open.iter().map(part).collect();
    let mut cells = BTreeMap::new();
    for (open, part) in open.into_iter().zip(Division { left: pods, parts, rules }.made(is_even)) {
        if part.pods > 0 {
            *cells.entry(open.cell).or_default() += part.pods;
        }
    }
    cells
}

/// What is open of a cell, on nodes that exist or on new ones.
#[derive(Clone)]
struct Part {
    /// The index of its domain for each rule.
    domains: SmallVec<[usize; 2]>,
    /// How many more pods may go there at most.
    most: usize,
    /// How many go there.
    pods: usize,
}

/// A division of pods in the making.
#[derive(Clone)]
struct Division {
    /// How many pods have no cell yet.
    left: usize,
    /// The cheapest first.
    parts: Vec<Part>,
    rules: Vec<Counted>,
}

impl Division {
    fn made(self, is_even: bool) -> Vec<Part> {
        let max_skew = self.rules.iter().map(Counted::max_skew).max().unwrap_or(1);
        if max_skew == 1 {
            return self.raised(0).parts;
        }
        let last = max_skew.saturating_mul(self.parts.len());
        let by = |division: Self, is_even| if is_even { division.raised(0) } else { division.raised(last).filled() };
        let first = by(self.clone(), is_even);
        if first.left == 0 {
            return first.parts;
        }
        let second = by(self, !is_even);
        if second.left < first.left { second.parts } else { first.parts }
    }

    /// As evenly as can be, until no more than so many are left.
    ///
    /// With one rule, cells rise together by as much as one step can take them; with several, pod by pod, each of which looks
    /// at all cells.
    fn raised(mut self, left: usize) -> Self {
        while self.left > left {
            let next = match self.rules.as_slice() {
                [rule] => self.rising(rule, self.left - left),
                _ => self.lowest().map(|index| (vec![index], 1)),
            };
            let Some((rising, step)) = next else { break };
            for index in rising {
                self.put(index, step);
            }
        }
        self
    }

    /// With as many pods as the rules allow in the cheapest cell, then in the next.
    fn filled(mut self) -> Self {
        let mut first = 0;
        while self.left > 0 {
            let mut rooms = (first..self.parts.len()).map(|index| (index, self.room(&self.parts[index])));
            let Some((index, room)) = rooms.find(|&(_, room)| room > 0) else { break };
            let is_emptiest = self.rules_at(&self.parts[index]).any(|(rule, pods)| pods.sure <= rule.floor);
            let floors = self.floors();
            self.put(index, if is_emptiest { 1 } else { room.min(self.left) });
            // Where the emptiest domain has one more there may be more room in a cheaper cell.
            first = if self.floors() > floors { 0 } else { index };
        }
        self
    }

    /// The rules with what they count in the domains of a cell.
    fn rules_at<'d>(&'d self, part: &'d Part) -> impl Iterator<Item = (&'d Counted, Pods)> {
        self.rules.iter().zip(&part.domains).map(|(rule, &domain)| (rule, rule.domains[domain]))
    }

    fn floors(&self) -> i64 {
        self.rules.iter().map(|rule| rule.floor).sum()
    }

    /// How many more pods may go to a cell now.
    fn room(&self, part: &Part) -> usize {
        let by_rules = self.rules_at(part).map(|(rule, pods)| rule.most() - pods.all()).min();
        usize::try_from(by_rules.unwrap_or(i64::MAX)).unwrap_or(0).min(part.most)
    }

    fn put(&mut self, index: usize, count: usize) {
        let part = &mut self.parts[index];
        for (rule, &domain) in self.rules.iter_mut().zip(&part.domains) {
            rule.add(domain, i64::try_from(count).unwrap_or(i64::MAX));
        }
        part.most -= count;
        part.pods += count;
        self.left -= count;
    }

    /// The cell with the fewest pods of those that may have another.
    fn lowest(&self) -> Option<usize> {
        let open = self.parts.iter().enumerate().filter(|(_, part)| self.room(part) > 0);
        let level = |part| self.rules_at(part).map(|(_, pods)| pods.all()).sum::<i64>();
        open.min_by_key(|(_, part)| level(part)).map(|(index, _)| index)
    }

    /// The cells that rise next, and by how much each, if this is the only rule, so that every cell is a domain of it.
    fn rising(&self, rule: &Counted, pods: usize) -> Option<(Vec<usize>, usize)> {
        let domain = |index: usize| self.parts[index].domains[0];
        let level = |index: usize| rule.domains[domain(index)].all();
        let mut is_new = vec![true; rule.domains.len()];
        let open = (0..self.parts.len()).filter(|&index| self.room(&self.parts[index]) > 0);
        let open: Vec<usize> = open.filter(|&index| std::mem::take(&mut is_new[domain(index)])).collect();
        let lowest_level = open.iter().map(|&index| level(index)).min()?;
        let (mut lowest, others): (Vec<_>, Vec<_>) = open.into_iter().partition(|&index| level(index) == lowest_level);
        if pods < lowest.len() {
            lowest.truncate(pods);
            return Some((lowest, 1));
        }
        // Together they may rise to the next level, as far as the rule and their own bounds let them.
        let by_level = others.into_iter().map(level).min().unwrap_or(i64::MAX) - lowest_level;
        let by_rule = match rule.rule {
            _ if rule.domains.values().any(|pods| pods.unsure > 0) => 1,
            Rule::Spread { max_skew, .. } if !rule.lacks_domains() => {
                let rising = lowest.iter().filter(|&&index| domain(index) < rule.ruled).count();
                let mut others = rule.levels.iter().filter(|&(level, count)| *level != lowest_level || *count > rising);
                others.next().map_or(i64::MAX, |(floor, _)| floor + max_skew - lowest_level)
            }
            _ => rule.most() - lowest_level,
        };
        let by_bounds = lowest.iter().map(|&index| self.parts[index].most).min()?;
        let step = usize::try_from(by_level.min(by_rule)).unwrap_or(usize::MAX);
        let step = step.min(by_bounds).min(pods / lowest.len());
        Some((lowest, step))
    }
}

#[cfg(all(test, feature = "proptest"))]
mod tests {
    use proptest::{
        collection::{btree_map, vec},
        prelude::*,
    };

    use super::*;

    fn domain() -> impl Strategy<Value = Arc<str>> {
        (0..8_u8).prop_map(|number| Arc::from(number.to_string()))
    }

    fn counts() -> impl Strategy<Value = Counts> {
        btree_map(domain(), 0..4_i64, 0..8)
    }

    proptest! {
        #[test]
        fn the_room_is_what_a_recount_leaves(
            running in counts(),
            planned in [counts(), counts()],
            (max_skew, min_domains) in (1..4_i64, 0..8_usize),
            added in vec((domain(), 1..3_i64), 0..30),
        ) {
            let mut counted = Counted::new(0, Rule::Spread { max_skew, min_domains }, &running, &planned);
            let [mut planned, unsure] = planned;
            for (domain, count) in added {
                let index = counted.index_of(&domain);
                counted.add(index, count);
                *planned.entry(domain.clone()).or_default() += count;
                let sure = |domain| running.get(domain).unwrap_or(&0) + planned.get(domain).unwrap_or(&0);
                let emptiest = running.keys().map(sure).min().filter(|_| running.len() >= min_domains);
                let most = emptiest.unwrap_or(0) + max_skew;
                prop_assert_eq!(counted.room(&domain), most - sure(&domain) - unsure.get(&domain).unwrap_or(&0));
            }
        }
    }
}
