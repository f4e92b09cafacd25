//! Ways to fill nodes, made for as long as they make the mixture cheaper.

use indexmap::IndexSet;
use ordered_float::OrderedFloat;

use super::{
    fill::Pattern,
    program::{Kind, Program},
    simplex::{Column, Simplex},
};
use crate::{
    FxBuild,
    schedule::{amounts::fit_count, parallel},
};

/// How often the basis changes at most between two searches for new columns.
const MAX_STEPS: usize = 200;
/// The most columns that join at a time.
const MAX_NEW: usize = 30;
/// A node must hold so much more than it costs, or it is not worth a column.
const LEAST_GAIN: f64 = 1e-4;
/// How much of the worths that proved most so far is mixed into those of the program, which change too much from one time to
/// the next (Wentges, "Weighted Dantzig-Wolfe Decomposition for Linear Mixed-Integer Programming", ITOR 4, 1997).
const MIXING: f64 = 0.5;
/// A kind of node that cannot hold nearly what it costs is left out for some rounds: what it holds at most, and how many.
const IDLE: [(f64, usize); 2] = [(0.85, 7), (0.95, 3)];

/// How hard new ways are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Kinds that held little lately are left out.
    Usual,
    /// None is left out.
    AllKinds,
    /// Fills with a unit fewer of some row are tried too.
    AllFills,
}

/// A mixture in the making.
struct Generation<'g, 'p> {
    program: &'g Program<'p>,
    /// One for each column.
    patterns: IndexSet<Pattern, FxBuild>,
    simplex: Simplex,
    demands: Vec<f64>,
    /// Worths that prove that no mixture is cheaper than so much, as far as the fills tell.
    center: Vec<f64>,
    proved: f64,
    /// For how many rounds each kind is left out.
    idle: Vec<usize>,
    work: usize,
}

impl Program<'_> {
    /// The cheapest mixture: which patterns, and how many nodes of each. It is at least as good as that of some patterns. What is
    /// done for it is taken off the work that may be done.
    pub(super) fn cheapest_mixture(
        &self,
        start: Vec<Pattern>,
        work: &mut usize,
        is_stopped: impl Fn() -> bool,
    ) -> Vec<(Pattern, f64)> {
        let alone: Option<Vec<Pattern>> = (0..self.demands.len()).map(|row| self.alone(row)).collect();
        let Some(alone) = alone else { return Vec::new() };
        let mut generation = Generation::new(self, alone);
        for pattern in start {
            generation.add(pattern);
        }
        generation.optimize();
        while generation.work < *work && !is_stopped() && generation.add_columns() {
            generation.optimize();
        }
        *work = work.saturating_sub(generation.work);
        let of_pattern = |(column, amount): (usize, f64)| (generation.patterns[column].clone(), amount);
        generation.simplex.solution().map(of_pattern).collect()
    }

    /// The cheapest way for units of one row.
    fn alone(&self, row: usize) -> Option<Pattern> {
        let pattern = |(index, kind): (usize, &Kind<'_>)| {
            let guest = kind.guests.iter().find(|guest| guest.row == row)?;
            let count = fit_count(guest.requests, kind.room).min(guest.most);
            Some(Pattern { kind: index, counts: vec![(row, count)] }).filter(|_| count > 0)
        };
        let all = self.kinds.iter().enumerate().filter_map(pattern);
        let cost = |pattern: &Pattern| self.cost(pattern) / pattern.counts[0].1 as f64;
        all.min_by(|a, b| cost(a).total_cmp(&cost(b)))
    }

    /// What a node with such a fill costs.
    fn cost(&self, pattern: &Pattern) -> f64 {
        self.kinds[pattern.kind].cost(pattern.counts.iter().any(|&(row, _)| self.is_limited[row]))
    }
}

impl<'g, 'p> Generation<'g, 'p> {
    fn new(program: &'g Program<'p>, alone: Vec<Pattern>) -> Self {
        let demands: Vec<f64> = program.demands.iter().map(|&demand| demand as f64).collect();
        let columns = alone.iter().map(|pattern| column(program, pattern)).collect();
        Self {
            program,
            patterns: alone.into_iter().collect(),
            simplex: Simplex::new(&demands, columns),
            demands,
            center: program.fractional_worths(),
            proved: 0.0,
            idle: vec![0; program.kinds.len()],
            work: 0,
        }
    }

    /// Adds a column unless it is there.
    fn add(&mut self, pattern: Pattern) -> bool {
        let column = column(self.program, &pattern);
        let is_new = self.patterns.insert(pattern);
        if is_new {
            self.simplex.add(column);
        }
        is_new
    }

    fn optimize(&mut self) {
        let steps = self.simplex.optimize(MAX_STEPS);
        self.work += steps * (self.demands.len() * self.demands.len() + self.patterns.len() * 8);
    }

    /// Looks for fills that hold more than they cost, first by steadier worths than those of the program. Says whether there
    /// are any.
    fn add_columns(&mut self) -> bool {
        let duals = self.simplex.duals().to_vec();
        let steady: Vec<f64> =
            duals.iter().zip(&self.center).map(|(dual, center)| MIXING * center + (1.0 - MIXING) * dual).collect();
        for care in [Care::Usual, Care::AllKinds, Care::AllFills] {
            if care != Care::Usual {
                self.idle.fill(0);
            }
            for worths in [&steady, &duals] {
                let mut found = self.fills(worths, &duals, care);
                found.sort_by_key(|(gain, _)| *gain);
                let count = found.into_iter().take(MAX_NEW).filter(|(_, pattern)| self.add(pattern.clone())).count();
                if count > 0 {
                    return true;
                }
            }
        }
        false
    }

    /// The best fill of each kind by some worths, if it holds more than it costs by those of the program; the best come first
    /// when sorted.
    fn fills(&mut self, worths: &[f64], duals: &[f64], care: Care) -> Vec<(OrderedFloat<f64>, Pattern)> {
        let idle = &self.idle;
        let kinds: Vec<usize> = (0..idle.len()).filter(|&kind| idle[kind] == 0).collect();
        self.idle.iter_mut().for_each(|rounds| *rounds = rounds.saturating_sub(1));
        let filled = parallel::map_quickly(&kinds, |&kind| self.program.best_fill(kind, (worths, duals), care));
        let mut found = Vec::new();
        let mut most = 1.0_f64;
        for (kind, (fill, work)) in kinds.into_iter().zip(filled) {
            self.work += work;
            let Some(Fill { ratio, gain, pattern }) = fill else { continue };
            most = ratio.max(most);
            if gain > 1.0 + LEAST_GAIN {
                found.push((OrderedFloat(-gain), pattern));
            } else if let Some((_, rounds)) = IDLE.iter().find(|(below, _)| ratio < *below) {
                self.idle[kind] = *rounds;
            }
        }
        let proved = worths.iter().zip(&self.demands).map(|(worth, demand)| worth * demand).sum::<f64>() / most;
        if proved > self.proved {
            self.proved = proved;
            self.center = worths.iter().map(|worth| worth / most).collect();
        }
        found
    }
}

/// A way to fill a node, and how many times what it costs it holds.
struct Fill {
    /// By the worths that it was made with.
    ratio: f64,
    /// By those of the program.
    gain: f64,
    pattern: Pattern,
}

impl Program<'_> {
    /// The best fill of a kind by some worths, if it takes anything of worth, and the work that it took.
    fn best_fill(&self, kind: usize, (worths, duals): (&[f64], &[f64]), care: Care) -> (Option<Fill>, usize) {
        let (node, mut work) = (&self.kinds[kind], 0);
        let mut fills = vec![node.fill_by_scarcity(worths, &mut work)];
        if care == Care::AllFills {
            fills.extend(node.fills_with_fewer(worths, &mut work));
        } else {
            fills.push(node.fill_by_share(worths));
        }
        let patterns = fills.into_iter().filter(|counts| !counts.is_empty()).map(|counts| Pattern { kind, counts });
        let rated = patterns.map(|pattern| {
            let cost = self.cost(&pattern);
            Fill { ratio: pattern.worth(worths) / cost, gain: pattern.worth(duals) / cost, pattern }
        });
        (rated.max_by(|a, b| a.ratio.total_cmp(&b.ratio)), work)
    }
}

fn column(program: &Program<'_>, pattern: &Pattern) -> Column {
    let counts = pattern.counts.iter().map(|&(row, count)| (row, count as f64)).collect();
    Column { cost: program.cost(pattern), counts }
}
