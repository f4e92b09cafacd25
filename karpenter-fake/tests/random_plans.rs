//! The checker finds nothing wrong with the plans of random problems, and finds every pod that is taken out of them.

use karpenter_core::{Plan, Planner, PlannerOptions, schedule::PreferencePolicy, strategies};
use karpenter_fake::{Violation, check};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_planner_breaks_no_rule(problem in strategies::problem(12)) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let plan = Planner::default().plan(&snapshot, &catalogs);
        prop_assert_eq!(check(&snapshot, &catalogs, &plan), []);
    }

    #[test]
    fn a_plan_with_room_for_all_orders_breaks_no_rule(problem in strategies::problem(12)) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let mut options = PlannerOptions::default();
        options.slack = 100.0;
        let plan = Planner::new(options).plan(&snapshot, &catalogs);
        prop_assert_eq!(check(&snapshot, &catalogs, &plan), []);
    }

    #[test]
    fn a_plan_in_which_preferences_have_a_price_breaks_no_rule(problem in strategies::problem(12), price in 0.0..0.5_f64) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let mut options = PlannerOptions::default();
        options.preferences = PreferencePolicy::Weigh;
        options.preference_price_per_hour = price;
        let plan = Planner::new(options).plan(&snapshot, &catalogs);
        prop_assert_eq!(check(&snapshot, &catalogs, &plan), []);
    }

    #[test]
    fn a_pod_that_a_claim_forgets_is_missed(problem in strategies::problem(12)) {
        let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
        let plan = Planner::default().plan(&snapshot, &catalogs);
        let mut claims = plan.claims().to_vec();
        let Some(pod) = claims.iter_mut().find_map(|claim| claim.pods.pop()) else { return Ok(()) };
        let less = Plan::from_parts(claims, plan.existing().clone(), plan.unplaced().clone());
        let lost = Violation::Lost { pod };
        prop_assert!(check(&snapshot, &catalogs, &less).contains(&lost));
    }
}
