//! How many pods go to each domain.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use super::domains::{Cell, Charge, Cost, Counts};

/// A rule that counts pods in the domains of one label.
#[derive(Clone)]
pub(super) struct Counted {
    /// The place of the label in a cell.
    pub(super) key_index: usize,
    /// How many pods each domain has: those that run and those that are allotted.
    pub(super) counts: Rc<Counts>,
    pub(super) planned: Counts,
    /// Pods that are allotted and perhaps not counted: they fill a domain, but do not raise the emptiest.
    pub(super) unsure: Counts,
    pub(super) rule: Rule,
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
    /// The most pods that a domain may turn out to have.
    fn count(&self, domain: &Arc<str>) -> i64 {
        self.sure_count(domain) + self.unsure.get(domain).copied().unwrap_or(0)
    }

    fn sure_count(&self, domain: &Arc<str>) -> i64 {
        self.counts.get(domain).copied().unwrap_or(0) + self.planned.get(domain).copied().unwrap_or(0)
    }

    /// The fewest pods of any domain.
    pub(super) fn floor(&self) -> i64 {
        match self.rule {
            Rule::Spread { min_domains, .. } if self.counts.len() >= min_domains => {
                self.counts.keys().map(|domain| self.sure_count(domain)).min().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// How many pods a domain may have now.
    fn most(&self) -> i64 {
        match self.rule {
            Rule::Spread { max_skew, .. } => self.floor() + max_skew,
            Rule::Alone => 1,
        }
    }

    /// How many more pods a domain may have now.
    pub(super) fn room(&self, domain: &Arc<str>) -> i64 {
        self.most() - self.count(domain)
    }

    /// Whether a domain may have another pod now.
    pub(super) fn is_open(&self, domain: &Arc<str>) -> bool {
        self.room(domain) > 0
    }

    /// The pods in each domain.
    pub(super) fn totals(&self) -> Counts {
        self.counts.keys().chain(self.planned.keys()).map(|domain| (domain.clone(), self.count(domain))).collect()
    }

    fn add(&mut self, cell: &Cell, count: i64) {
        *self.planned.entry(cell[self.key_index].clone()).or_default() += count;
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

/// Spreads pods over cells, the cheapest cells first, and in each the cheapest part, and gives back how many each gets.
///
/// They are spread evenly, but for the last of them where a rule lets domains differ by more than one pod: these fill one cell
/// after the other as far as the rules let them, so that few pods need few nodes and take the room that there is.
pub(super) fn divide(pods: usize, mut open: Vec<Open>, rules: Vec<Counted>) -> BTreeMap<Cell, usize> {
    open.sort_by(|a, b| (a.cost, &a.cell).cmp(&(b.cost, &b.cell)));
    let max_skews = rules.iter().map(|counted| match counted.rule {
        Rule::Spread { max_skew, .. } => usize::try_from(max_skew).unwrap_or(usize::MAX),
        Rule::Alone => 1,
    });
    let max_skew = max_skews.max().unwrap_or(1);
    let division = Division { left: pods, open, rules, cells: BTreeMap::new() };
    if max_skew == 1 {
        return division.raised(0).cells;
    }
    let filled = division.clone().raised(max_skew.saturating_mul(division.open.len())).filled();
    if filled.left == 0 {
        return filled.cells;
    }
    let even = division.raised(0);
    if even.left < filled.left { even.cells } else { filled.cells }
}

/// A division of pods in the making.
#[derive(Clone)]
struct Division {
    /// How many pods have no cell yet.
    left: usize,
    /// The cells with room, the cheapest first.
    open: Vec<Open>,
    rules: Vec<Counted>,
    /// How many pods each cell has.
    cells: BTreeMap<Cell, usize>,
}

impl Division {
    /// As evenly as can be, until no more than so many are left.
    ///
    /// With one rule, cells rise together by as much as one step can take them; with several, pod by pod: at most the
    /// number of pods times the number of cells, which is a product of few zones, capacity types and the like.
    fn raised(mut self, left: usize) -> Self {
        while self.left > left {
            let Some((lowest, step)) = next(&self.open, &self.rules, self.left - left) else { break };
            for index in lowest {
                self.put(index, step);
            }
        }
        self
    }

    /// With as many pods as the rules allow in the cheapest cell, then in the next.
    fn filled(mut self) -> Self {
        while self.left > 0 {
            let room = |open: &Open| {
                let by_rules = self.rules.iter().map(|rule| rule.room(&open.cell[rule.key_index])).min();
                usize::try_from(by_rules.unwrap_or(i64::MAX)).unwrap_or(0).min(open.most)
            };
            let mut rooms = self.open.iter().map(room).enumerate();
            let Some((index, room)) = rooms.find(|&(_, room)| room > 0) else { break };
            // One more in the emptiest domain may leave more room in a cheaper cell.
            let cell = &self.open[index].cell;
            let is_emptiest = self.rules.iter().any(|rule| rule.sure_count(&cell[rule.key_index]) <= rule.floor());
            self.put(index, if is_emptiest { 1 } else { room.min(self.left) });
        }
        self
    }

    fn put(&mut self, index: usize, count: usize) {
        let Open { cell, most, .. } = &mut self.open[index];
        for rule in &mut self.rules {
            rule.add(cell, i64::try_from(count).unwrap_or(i64::MAX));
        }
        *most -= count;
        self.left -= count;
        *self.cells.entry(cell.clone()).or_default() += count;
    }
}

/// The cells that rise next, and by how much each.
fn next(open: &[Open], rules: &[Counted], pods: usize) -> Option<(Vec<usize>, usize)> {
    let most: Vec<i64> = rules.iter().map(Counted::most).collect();
    let level = |cell: &Cell| rules.iter().map(|rule| rule.count(&cell[rule.key_index])).sum::<i64>();
    let is_allowed = |place: &Open| {
        let counts = rules.iter().zip(&most).map(|(rule, most)| (rule.count(&place.cell[rule.key_index]), *most));
        place.most > 0 && counts.into_iter().all(|(count, most)| count < most)
    };
    let mut seen = BTreeSet::new();
    let allowed: Vec<usize> = (0..open.len()).filter(|&i| is_allowed(&open[i]) && seen.insert(&open[i].cell)).collect();
    let lowest_level = allowed.iter().map(|&i| level(&open[i].cell)).min()?;
    let lowest: Vec<usize> = allowed.iter().copied().filter(|&i| level(&open[i].cell) == lowest_level).collect();
    let [rule] = rules else { return Some((vec![*lowest.first()?], 1)) };
    // Together they may rise to the next level, as far as the rule and their own bounds let them.
    let next_level = allowed.iter().map(|&i| level(&open[i].cell)).filter(|&l| l > lowest_level).min();
    let by_level = next_level.unwrap_or(i64::MAX) - lowest_level;
    let is_rising = |domain: &Arc<str>| lowest.iter().any(|&i| open[i].cell[rule.key_index] == *domain);
    let by_rule = match rule.rule {
        _ if !rule.unsure.is_empty() => 1,
        Rule::Spread { max_skew, min_domains } if rule.counts.len() >= min_domains => {
            let others = rule.counts.keys().filter(|domain| !is_rising(domain)).map(|domain| rule.count(domain));
            others.min().map_or(i64::MAX, |floor| floor + max_skew - lowest_level)
        }
        _ => most[0] - lowest_level,
    };
    let by_bounds = lowest.iter().map(|&i| open[i].most).min()?;
    let by_pods = pods / lowest.len();
    let step = usize::try_from(by_level.min(by_rule)).unwrap_or(usize::MAX).min(by_bounds).min(by_pods);
    Some(if step == 0 { (vec![lowest[0]], 1) } else { (lowest, step) })
}
