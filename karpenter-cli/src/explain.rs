//! `karpenter explain`: where single pods are in a plan, and why they are there or nowhere.

use std::{collections::BTreeMap, fmt};

use karpenter_core::{
    Catalogs, Plan, PlannedClaim, Reason,
    api::{ObjectKey, Pod},
    schedule::Answer,
};

use crate::{
    Error,
    args::ExplainArgs,
    load::{BadPod, Cluster, is_gated},
    plan::{self, Effort, Input, Outcome},
};

/// The answers for the pods that were asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The plan in which they are.
    pub plan: Plan,
    /// What could be bought.
    pub catalogs: Catalogs,
    /// The pods in the order in which they were asked for.
    pub pods: Vec<ObjectKey>,
    /// Why pods that cannot be read have no place.
    bad_pods: BTreeMap<ObjectKey, Reason>,
    /// What the pods do if the plan is not about them.
    standing: BTreeMap<ObjectKey, NotPending>,
    /// What somebody should look at.
    pub warnings: Vec<String>,
}

/// Where a pod is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PodAnswer<'e> {
    /// On a node to make.
    NewClaim(&'e PlannedClaim),
    /// In room that there is.
    Existing {
        /// The name of the node, or of the claim while it has none.
        node: &'e str,
        /// All pods that are planned for it.
        pods: &'e [ObjectKey],
    },
    /// Nowhere.
    Unplaced(&'e Reason),
    /// It wants no place.
    NotPending(&'e NotPending),
}

/// Why a pod wants no place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotPending {
    /// It has a node.
    Bound {
        /// The name of the node.
        node: String,
    },
    /// It has run to its end.
    Finished {
        /// `Succeeded` or `Failed`.
        phase: String,
    },
    /// It is being deleted.
    Terminating,
    /// It comes with its node.
    Daemon,
    /// Something keeps the kube-scheduler from looking at it.
    Gated,
    /// The kube-scheduler takes other pods away to make room for it.
    Nominated {
        /// The name of the node.
        node: String,
    },
    /// The kube-scheduler has not refused it.
    NotRefused,
}

/// Reads what the command line names, plans, and looks the pods up.
///
/// # Errors
/// A file that cannot be read or is not what it should be, or a pod that is not in the cluster.
pub fn run(args: &ExplainArgs) -> Result<Explanation, Error> {
    let Input { cluster, types, catalog_file, .. } = Input::read(&args.input)?;
    let mut pods: Vec<ObjectKey> = Vec::new();
    for name in &args.pods {
        let Ok(pod) = name.parse();
        if !pods.contains(&pod) {
            pods.push(pod);
        }
    }
    let standing = standing(&cluster, &pods)?;
    let invalid = |(pod, bad): (&ObjectKey, &BadPod)| (pod.clone(), Reason::Invalid(bad.error.clone()));
    let bad_pods = cluster.bad_pods.iter().map(invalid).collect();
    let outcome = plan::plan(cluster, types, &catalog_file, &args.policies.options(), Effort::default())?;
    let Outcome { plan, catalogs, warnings, .. } = outcome;
    Ok(Explanation { plan, catalogs, pods, bad_pods, standing, warnings })
}

impl Explanation {
    /// Where one pod is in a plan for its cluster.
    pub(crate) fn of_pod(plan: Plan, catalogs: Catalogs, pod: &Pod) -> Self {
        let standing = BTreeMap::from([(pod.key(), NotPending::of(pod))]);
        Self { plan, catalogs, pods: vec![pod.key()], bad_pods: BTreeMap::new(), standing, warnings: Vec::new() }
    }

    /// Where one of the pods is.
    pub fn answer(&self, pod: &ObjectKey) -> PodAnswer<'_> {
        if let Some(reason) = self.bad_pods.get(pod) {
            return PodAnswer::Unplaced(reason);
        }
        match self.plan.why(&pod.to_string()) {
            Answer::NewClaim(claim) => PodAnswer::NewClaim(claim),
            Answer::Existing { place } => {
                PodAnswer::Existing { node: place, pods: self.plan.existing().get(place).map_or(&[], Vec::as_slice) }
            }
            Answer::Unplaced(reason) => PodAnswer::Unplaced(reason),
            _ => PodAnswer::NotPending(self.standing.get(pod).unwrap_or(&NotPending::NotRefused)),
        }
    }
}

/// What the pods do, if nothing is planned for them.
fn standing(cluster: &Cluster, pods: &[ObjectKey]) -> Result<BTreeMap<ObjectKey, NotPending>, Error> {
    let mut missing: Vec<&ObjectKey> = pods.iter().filter(|pod| !cluster.bad_pods.contains_key(pod)).collect();
    let mut out = BTreeMap::new();
    for pod in &cluster.pods {
        let key = pod.key();
        if let Some(index) = missing.iter().position(|missing| **missing == key) {
            missing.swap_remove(index);
            out.insert(key, NotPending::of(pod));
        }
    }
    let Some(first) = missing.into_iter().next() else { return Ok(out) };
    let all = cluster.pods.iter().map(|pod| pod.key()).chain(cluster.bad_pods.keys().cloned());
    let mut elsewhere: Vec<ObjectKey> = all.filter(|key| key.name == first.name).collect();
    elsewhere.sort();
    Err(Error::UnknownPod { pod: first.clone(), elsewhere })
}

impl NotPending {
    fn of(pod: &Pod) -> Self {
        if pod.is_finished() {
            Self::Finished { phase: pod.status.phase.clone() }
        } else if !pod.spec.node_name.is_empty() {
            Self::Bound { node: pod.spec.node_name.clone() }
        } else if pod.is_terminating() {
            Self::Terminating
        } else if pod.is_daemon() || pod.is_mirror() {
            Self::Daemon
        } else if is_gated(pod) {
            Self::Gated
        } else if !pod.status.nominated_node_name.is_empty() {
            Self::Nominated { node: pod.status.nominated_node_name.clone() }
        } else {
            Self::NotRefused
        }
    }
}

impl fmt::Display for NotPending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound { node } => write!(f, "it is on node {node}"),
            Self::Finished { phase } => write!(f, "it has run to its end: {phase}"),
            Self::Terminating => f.write_str("it is being deleted"),
            Self::Daemon => f.write_str("it comes with its node"),
            Self::Gated => f.write_str("a scheduling gate keeps it back"),
            Self::Nominated { node } => write!(f, "the kube-scheduler makes room for it on node {node}"),
            Self::NotRefused => f.write_str("the kube-scheduler has not refused it"),
        }
    }
}
