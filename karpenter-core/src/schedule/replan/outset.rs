//! The cluster from which the newest pods are planned.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::{
    Catalogs, FxBuild, Plan, PlannedClaim, Snapshot,
    api::{NodeClaim, NodePool, ObjectKey, Pod, PodAffinityTerm, TopologySpreadConstraint},
    cluster::Place,
};

/// What rules about neighbours see of a pod.
#[derive(PartialEq, Eq, Hash)]
struct Look<'s> {
    namespace: &'s str,
    labels: &'s BTreeMap<String, String>,
    spreads: &'s [TopologySpreadConstraint],
    away: &'s [PodAffinityTerm],
}

/// The pods of some claims: of those that look alike the first, and how many.
type Crowd<'s> = IndexMap<Look<'s>, (ObjectKey, usize), FxBuild>;

/// The cluster once its pods are where a plan puts them. Its new nodes take no further pods, and what will be known of them
/// when they are launched is not known yet.
pub(super) fn of(snapshot: &Snapshot, plan: &Plan, catalogs: &Catalogs) -> Snapshot {
    let mut alike: BTreeMap<(&str, BTreeMap<String, String>), Crowd<'_>> = BTreeMap::new();
    for claim in plan.claims() {
        let Some(pool) = snapshot.pool(&claim.node_pool) else { continue };
        let mut labels = claim.known_labels(pool);
        let reservation_label = catalogs.get(pool.name()).and_then(|catalog| catalog.reservation_label());
        reservation_label.and_then(|label| labels.remove(label));
        let crowd = alike.entry((pool.name(), labels)).or_default();
        for key in &claim.pods {
            let Some(pod) = snapshot.pod(key) else { continue };
            crowd.entry(Look::of(pod)).or_insert_with(|| (key.clone(), 0)).1 += 1;
        }
    }
    let place = |(number, ((pool, labels), crowd)): (usize, ((&str, _), Crowd<'_>))| Place {
        taints: snapshot.pool(pool).map(|pool| pool.spec.template.spec.taints.clone()).unwrap_or_default(),
        coming: crowd.into_values().collect(),
        ..Place::promised(format!("karpenter.sh/planned-{number:06}"), labels)
    };
    let further = alike.into_iter().enumerate().map(place).collect();
    snapshot.settled(plan.existing(), further).with_unlaunched(using_up(snapshot, plan, catalogs))
}

impl<'s> Look<'s> {
    fn of(pod: &'s Pod) -> Self {
        Self {
            namespace: pod.namespace(),
            labels: &pod.metadata.labels,
            spreads: &pod.spec.topology_spread_constraints,
            away: &pod.spec.affinity.pod_anti_affinity.required,
        }
    }
}

/// The claims that use up limits or may use up reservations.
fn using_up(snapshot: &Snapshot, plan: &Plan, catalogs: &Catalogs) -> Vec<NodeClaim> {
    let has_end = |pool: &NodePool| {
        let has_reservations = catalogs.get(pool.name()).is_some_and(|catalog| catalog.reservation_label().is_some());
        has_reservations || !pool.spec.limits.is_empty()
    };
    let claim = |(number, claim): (usize, &PlannedClaim)| {
        let pool = snapshot.pool(&claim.node_pool).filter(|pool| has_end(pool))?;
        Some(claim.to_node_claim(pool, format!("karpenter.sh/planned-{number:06}"), ""))
    };
    plan.claims().iter().enumerate().filter_map(claim).collect()
}
