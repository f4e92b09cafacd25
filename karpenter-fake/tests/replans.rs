//! Plans in two parts are as good as others, whatever is remembered of the last.

use karpenter_core::{
    Plan, Planner, Timestamp,
    schedule::{Division, Replanner, StopFlag},
    strategies::{self, RandomProblem},
};
use karpenter_fake::check;
use proptest::prelude::*;

/// Half of a handful of pods, or almost, are planned by themselves.
fn replanner() -> Replanner {
    dividing(Planner::default())
}

fn dividing(planner: Planner) -> Replanner {
    let mut division = Division::default();
    (division.min_pods, division.newest_share_log2) = (2, 1);
    Replanner::new(planner).dividing(division)
}

/// The pods came at these times.
fn aged(mut problem: RandomProblem, ages: &[i64]) -> RandomProblem {
    for (pod, &age) in problem.pods.iter_mut().zip(ages) {
        pod.metadata.creation_timestamp = Some(Timestamp::from_millis(age));
    }
    problem
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn memory_has_no_bearing_on_plans(problem in strategies::problem(16), ages in prop::collection::vec(0..4_i64, 16), last in 0..16_usize) {
        let mut problem = aged(problem, &ages);
        let catalogs = problem.catalogs().expect("a valid catalog");
        let later = problem.snapshot();
        let mut replanner_that_knows = replanner();
        problem.pods.truncate(last);
        replanner_that_knows.plan(&problem.snapshot(), &catalogs);
        let plan: Plan = replanner_that_knows.plan(&later, &catalogs).clone();
        prop_assert_eq!(check(&later, &catalogs, &plan), []);
        prop_assert_eq!(&plan, &replanner().plan(&later, &catalogs).clone());
        prop_assert_eq!(&plan, replanner_that_knows.plan(&later, &catalogs));
    }

    #[test]
    fn plans_in_two_parts_are_valid_wherever_they_are_stopped(problem in strategies::problem(16), ages in prop::collection::vec(0..4_i64, 16), looks in 0..1_000_usize) {
        let problem = aged(problem, &ages);
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let mut replanner = dividing(Planner::default().stopped_by(&StopFlag::after_looks(looks)));
        prop_assert_eq!(check(&snapshot, &catalogs, replanner.plan(&snapshot, &catalogs)), []);
    }
}
