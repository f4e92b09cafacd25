//! `karpenter plan --check`: holds a plan to the rules before it is printed.

use std::fmt;

use karpenter_core::{Plan, PlannerOptions, Price};
use karpenter_fake::{CertificateError, Violation};

use crate::plan::Outcome;

/// What is wrong with a plan or with what is said of its price.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// The plan breaks a rule.
    Plan(Violation),
    /// The certificate does not prove the lower bound.
    Certificate(CertificateError),
    /// The plan costs less than the lower bound says that any plan does.
    BelowBound {
        /// What the plan costs an hour.
        hourly_cost: Price,
        /// The lower bound.
        lower_bound: Price,
    },
}

/// All that the independent checker finds wrong with a plan, with the proof of its lower bound, and with the two together;
/// nothing if all is well. `options` are those that the plan was made with.
pub fn check(outcome: &Outcome, options: &PlannerOptions) -> Vec<Finding> {
    let Outcome { snapshot, catalogs, plan, certificate, .. } = outcome;
    let violations = karpenter_fake::check_with_options(snapshot, catalogs, plan, options).into_iter();
    let mut findings: Vec<_> = violations.map(Finding::Plan).collect();
    let proven = karpenter_fake::check_certificate(snapshot, catalogs, plan, certificate);
    findings.extend(proven.err().map(Finding::Certificate));
    findings.extend(below_bound(plan, certificate.lower_bound));
    findings
}

/// Compares in the whole numbers of the proof: a sum of many prices may be a little less than it should be.
fn below_bound(plan: &Plan, lower_bound: Price) -> Option<Finding> {
    let prices = plan.claims().iter().map(|claim| i128::from(claim.cheapest_price.nano_dollars_per_hour()));
    let is_below = prices.sum::<i128>() < i128::from(lower_bound.nano_dollars_per_hour());
    is_below.then(|| Finding::BelowBound { hourly_cost: plan.hourly_cost(), lower_bound })
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(violation) => write!(f, "plan: {violation}"),
            Self::Certificate(error) => write!(f, "certificate: {error}"),
            Self::BelowBound { hourly_cost, lower_bound } => {
                let (cost, bound) = (hourly_cost.dollars_per_hour(), lower_bound.dollars_per_hour());
                write!(f, "lower bound: it is {bound} dollars an hour, and the plan costs {cost}")
            }
        }
    }
}
