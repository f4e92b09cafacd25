//! Plans by mixtures of nodes.
//!
//! A mixture has nodes in fractions. Where there are many equal pods, most of it is whole; where there are few, hardly anything
//! is. Then a node is made of that which there is most of, the mixture for what is left is sought anew, and so on, as in diving
//! heuristics for column generation (Sadykov and others, "Primal Heuristics for Branch and Price: The Assets of Diving Methods",
//! INFORMS Journal on Computing 31, 2019). After each step the plan comes to its end by making the best node time after time,
//! because a mixture tells little of the last nodes; the best of these plans counts.

use ordered_float::OrderedFloat;

use super::{
    columns::{Effort, MAX_WORK},
    parallel,
    problem::Trials,
    search::{Search, Stage},
};

/// How many mixtures are sought for a stage at most where there is little to plan.
const MAX_DIVES: usize = 60;

/// How many units are left, and what the nodes cost: the lower the better.
type Rank = (i64, OrderedFloat<f64>);

impl<'p> Search<'p, '_> {
    /// Plans what can be planned, by mixtures of nodes; `None` if there would be none of them.
    pub(super) fn run_mixture(mut self) -> Option<Self> {
        let problem = self.problem;
        if !problem.has_mixtures() {
            return None;
        }
        let dives = problem.is_small() && problem.course.trials == Trials::All;
        let most = if dives { MAX_DIVES } else { 1 };
        let stages = self.stages();
        let (mut is_mixture, mut best): (_, Option<(Rank, Self)>) = (false, None);
        for (index, stage) in stages.iter().enumerate() {
            self.begin(stage);
            let mut effort = Effort { work: MAX_WORK, makes_parts: dives };
            let mut dive = 0;
            self = loop {
                let mut rest = self.clone();
                rest.make_nodes(&stage.tier, stage.tolerance);
                if dive == most {
                    break rest;
                }
                let made = &rest.batches[self.batches.len()..];
                let is_over = effort.work == 0 || problem.is_stopped();
                let (plan, goes_on) = parallel::both(
                    || dives.then(|| rest.clone().completed(&stages[index + 1..])),
                    || !is_over && self.make_mixture(stage, made, &mut effort),
                );
                best = best.into_iter().chain(plan).min_by_key(|(rank, _)| *rank);
                if !goes_on {
                    break rest;
                }
                is_mixture = true;
                dive += 1;
            };
        }
        let plan = match best {
            Some((rank, best)) if rank < self.rank() => best,
            _ => self,
        };
        is_mixture.then_some(plan)
    }

    /// The plan once it has gone through some stages, and its rank.
    fn completed(mut self, stages: &[Stage<'p>]) -> (Rank, Self) {
        self.go_through(stages);
        (self.rank(), self)
    }

    fn rank(&self) -> Rank {
        let left = (0..self.problem.lots.list.len()).map(|lot| self.remaining(lot)).sum();
        (left, OrderedFloat(self.bill()))
    }
}
