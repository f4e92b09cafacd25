//! An independent checker of plans.
//!
//! [`check`] holds a plan to the filters of the kube-scheduler (v1.35) and to the engine's own rules: completeness,
//! limits, weights, prices. It shares the types of `karpenter-core` and nothing of its logic, so a mistake in one is
//! not hidden by the other: requirements are evaluated as written against the concrete labels of every node that a
//! claim may become, and pods are added up anew.
//!
//! Rules between pods depend on the order in which pods are bound, on what every claim becomes, and on nodes that may
//! be gone or not there yet. The checker takes the order and the nodes that are kindest to the plan, and looks at several
//! choices of what the claims become: a violation is certain, while a rare one may be missed.
//!
//! Plans of another engine are checked just so, after [`Plan::from_parts`].

mod certificate;
mod claims;
pub(crate) mod filters;
mod options;
mod places;
mod pools;
pub(crate) mod ports;
mod reservations;
mod topology;
mod violation;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    Catalogs, Plan, PlannerOptions, Snapshot,
    api::{DaemonSet, ObjectKey, Pod, Taint},
    schedule::MinValuesPolicy,
};

pub use certificate::{CertificateError, check_certificate};
use filters::{Amounts, misfit, requests_of, untolerated};
use reservations::Reservations;
use topology::{Faces, Interest, Namespaces};
pub use violation::{PlannedNode, Violation, VolumeObstacle};
use volumes::Mount;

/// The most instance types that a claim names unless options say otherwise: Karpenter's own limit.
const MAX_INSTANCE_TYPES: usize = 600;

/// All rules that a plan breaks; none if it is valid. It is held to what the default options promise; of a plan that was made with
/// others, [`check_with_options`] knows more.
///
/// `snapshot` and `catalogs` are those that the plan was made from. Of each claim the first node that breaks a rule is
/// reported, not every one that does.
///
/// ```
/// use karpenter_core::{Catalogs, Planner, Snapshot, api::{NodePool, Pod}};
/// use karpenter_fake::{check, generated_types};
///
/// let snapshot = Snapshot::builder()
///     .pool(NodePool::named("general"))
///     .pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(20))
///     .build()?;
/// let catalogs = Catalogs::shared(generated_types(), snapshot.pools())?;
/// let plan = Planner::default().plan(&snapshot, &catalogs);
/// assert_eq!(check(&snapshot, &catalogs, &plan), []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(snapshot: &Snapshot, catalogs: &Catalogs, plan: &Plan) -> Vec<Violation> {
    check_with_options(snapshot, catalogs, plan, &PlannerOptions::default())
}

/// All rules that a plan breaks which was made with these options; none if it is valid.
///
/// Options change two rules: how many instance types a claim names at most, and whether it keeps the `minValues` of its pool
/// (with [`MinValuesPolicy::BestEffort`] it may keep fewer). All others hold whatever they are.
pub fn check_with_options(
    snapshot: &Snapshot,
    catalogs: &Catalogs,
    plan: &Plan,
    options: &PlannerOptions,
) -> Vec<Violation> {
    let mut checker = Checker::new(snapshot, catalogs, plan);
    checker.max_instance_types = options.max_instance_types.max(1);
    checker.keeps_min_values = options.min_values == MinValuesPolicy::Strict;
    checker.check_completeness();
    checker.check_places();
    checker.check_claims();
    checker.check_topology();
    checker.check_reservations();
    checker.check_limits();
    checker.check_weights();
    checker.violations
}

struct Checker<'a> {
    snapshot: &'a Snapshot,
    catalogs: &'a Catalogs,
    plan: &'a Plan,
    /// How many types a claim names at most.
    max_instance_types: usize,
    /// Whether a claim keeps the `minValues` of its pool.
    keeps_min_values: bool,
    daemons: Daemons<'a>,
    namespaces: Namespaces<'a>,
    interest: Interest<'a>,
    /// What each claim can become, by its index, as far as it can become anything.
    faces: BTreeMap<usize, Faces>,
    /// The claims that can only draw on reservations, by their index.
    reserved: BTreeMap<usize, Reservations>,
    violations: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn new(snapshot: &'a Snapshot, catalogs: &'a Catalogs, plan: &'a Plan) -> Self {
        let pods = |keys: &'a [ObjectKey]| keys.iter().filter_map(|key| snapshot.pod(key));
        let new = plan.claims().iter().map(|claim| &claim.pods).chain(plan.existing().values());
        let interest = Interest::new(
            new.flat_map(|keys| pods(keys)),
            snapshot.places().iter().flat_map(|place| pods(&place.pods)),
        );
        Self {
            snapshot,
            catalogs,
            plan,
            max_instance_types: MAX_INSTANCE_TYPES,
            keeps_min_values: true,
            daemons: Daemons::new(snapshot.daemonsets()),
            namespaces: Namespaces::new(snapshot),
            interest,
            faces: BTreeMap::new(),
            reserved: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    /// Every pending pod exactly once, no other pod, and none that uses what the engine does not handle.
    fn check_completeness(&mut self) {
        let mut counts: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
        let placed = self.plan.claims().iter().map(|c| &c.pods).chain(self.plan.existing().values()).flatten();
        let placed: Vec<_> = placed.collect();
        for pod in placed.iter().copied().chain(self.plan.unplaced().keys()) {
            *counts.entry(pod).or_default() += 1;
        }
        let pending: BTreeSet<_> = self.snapshot.pending().map(Pod::key).collect();
        for (pod, &count) in &counts {
            if !pending.contains(*pod) {
                self.violations.push(Violation::NotPending { pod: (*pod).clone() });
            } else if count > 1 {
                self.violations.push(Violation::Repeated { pod: (*pod).clone(), count });
            }
        }
        let lost = pending.iter().filter(|pod| !counts.contains_key(pod));
        self.violations.extend(lost.map(|pod| Violation::Lost { pod: pod.clone() }));
        for pod in self.pods(placed) {
            if !pod.spec.resource_claims.is_empty() {
                self.violations.push(Violation::Unsupported { pod: pod.key(), field: "spec.resourceClaims" });
            }
        }
    }

    /// The pods of these keys, without those that do not exist.
    fn pods(&self, keys: impl IntoIterator<Item = &'a ObjectKey>) -> Vec<&'a Pod> {
        keys.into_iter().filter_map(|key| self.snapshot.pod(key)).collect()
    }

    /// What is wrong with a pod on a node of this name, with these labels and taints.
    fn misplacement(
        pod: &Pod,
        mounts: &[Mount<'_>],
        node: &PlannedNode,
        name: &str,
        labels: &BTreeMap<String, String>,
        taints: &[Taint],
    ) -> Option<Violation> {
        let (key, node) = (pod.key(), node.clone());
        match misfit(&pod.spec, name, labels) {
            Some(filters::Misfit::Selector(label)) => {
                return Some(Violation::NodeSelector { pod: key, node, key: label });
            }
            Some(filters::Misfit::Affinity) => return Some(Violation::NodeAffinity { pod: key, node }),
            None => {}
        }
        if let Some(taint) = untolerated(&pod.spec, taints, false) {
            return Some(Violation::Taint { pod: key, node, taint: taint.clone() });
        }
        mounts.iter().find_map(|Mount { claim, rule }| {
            let obstacle = rule.obstacle(name, labels)?;
            Some(Violation::Volume { pod: key.clone(), node: node.clone(), claim: claim.clone(), obstacle })
        })
    }
}

/// The daemonsets, with what a pod of each takes.
struct Daemons<'a>(Vec<(&'a DaemonSet, Amounts)>);

impl<'a> Daemons<'a> {
    fn new(daemonsets: &'a [DaemonSet]) -> Self {
        Self(daemonsets.iter().map(|d| (d, requests_of(&d.spec.template.spec))).collect())
    }

    /// The daemons that come to a node, without those that run there already, by their uids.
    fn coming<'d>(
        &'d self,
        name: &'d str,
        labels: &'d BTreeMap<String, String>,
        taints: &'d [Taint],
        running: &'d BTreeSet<&str>,
    ) -> impl Iterator<Item = &'d (&'a DaemonSet, Amounts)> {
        self.0.iter().filter(move |(daemonset, _)| {
            let spec = &daemonset.spec.template.spec;
            let comes = misfit(spec, name, labels).is_none() && untolerated(spec, taints, false).is_none();
            comes && !running.contains(daemonset.metadata.uid.as_str())
        })
    }
}

#[cfg(test)]
mod tests;
