//! What a reason says, on random problems: once the obstacle that it names is gone, the pod has a place or another reason.

use std::collections::BTreeMap;

use karpenter_core::{
    InstanceType, Planner, PlannerOptions, Reason, ResourceList,
    api::{Container, NodePool, ObjectKey, Pod, PodSpec, Toleration},
    reason::{Asker, Obstacle, TopologyObstacle},
    schedule::PreferencePolicy,
    strategies::{self, RandomProblem},
};
use proptest::{prelude::*, sample::Index};

fn unplaced(problem: &RandomProblem) -> BTreeMap<ObjectKey, Reason> {
    let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("a valid catalog"));
    let mut options = PlannerOptions::default();
    options.preferences = PreferencePolicy::Ignore;
    Planner::new(options).plan(&snapshot, &catalogs).unplaced().clone()
}

fn pod<'p>(problem: &'p mut RandomProblem, key: &ObjectKey) -> &'p mut Pod {
    problem.pods.iter_mut().find(|pod| pod.key() == *key).expect("a pod of the problem")
}

/// The same problem for this pod without what the reason names; nothing if the reason names nothing that could go.
fn without(problem: &RandomProblem, key: &ObjectKey, reason: &Reason) -> Option<RandomProblem> {
    let mut easier = problem.clone();
    match reason {
        Reason::Volume(_) => pod(&mut easier, key).spec.volumes.clear(),
        Reason::Topology(obstacle) => remove_rule(&mut easier, key, obstacle),
        Reason::NoPlace { pools, .. } => {
            let mut is_easier = false;
            for at in pools {
                for obstacle in at.shut_out.iter().map(|types| &types.obstacle) {
                    if let Obstacle::Limit { .. } = obstacle {
                        let pool = easier.pools.iter_mut().find(|pool| pool.name() == at.pool);
                        pool.expect("a pool of the problem").spec.limits = ResourceList::new();
                    }
                    is_easier |= remove_obstacle(&mut pod(&mut easier, key).spec, obstacle).is_some();
                }
            }
            if !is_easier {
                return None;
            }
        }
        _ => return None,
    }
    Some(easier)
}

/// Changes a pod so that the obstacle is none; nothing if it is none of the pod's making.
fn remove_obstacle(spec: &mut PodSpec, obstacle: &Obstacle) -> Option<()> {
    match obstacle {
        Obstacle::Taint(_) => spec.tolerations.push(tolerates_everything()),
        Obstacle::Label { asker: Asker::Volumes, .. } => spec.volumes.clear(),
        Obstacle::Label { key, .. } => drop_label(spec, key),
        Obstacle::TooSmall { .. } => spec.containers[0].resources.requests = ResourceList::new(),
        Obstacle::HostPort { .. } => spec.containers[0].ports.clear(),
        Obstacle::Limit { .. } => {}
        _ => return None,
    }
    Some(())
}

fn tolerates_everything() -> Toleration {
    serde_json::from_value(serde_json::json!({"operator": "Exists"})).expect("a toleration")
}

/// Drops all that is required of a label: by the pod itself, by its volumes, and by rules about its neighbours. A term
/// that requires nothing else would admit no node, so it goes with all others.
fn drop_label(spec: &mut PodSpec, key: &str) {
    spec.node_selector.remove(key);
    spec.volumes.clear();
    spec.topology_spread_constraints.retain(|spread| spread.topology_key != key);
    spec.affinity.pod_affinity.required.retain(|term| term.topology_key != key);
    spec.affinity.pod_anti_affinity.required.retain(|term| term.topology_key != key);
    let Some(required) = &mut spec.affinity.node_affinity.required else { return };
    for term in &mut required.node_selector_terms {
        term.match_expressions.retain(|expression| expression.key != key);
    }
    if required.node_selector_terms.iter().any(|term| term.match_expressions.is_empty()) {
        spec.affinity.node_affinity.required = None;
    }
}

fn remove_rule(problem: &mut RandomProblem, key: &ObjectKey, obstacle: &TopologyObstacle) {
    let spec = &mut pod(problem, key).spec;
    match obstacle {
        TopologyObstacle::Spread { key, .. } => spec.topology_spread_constraints.retain(|s| s.topology_key != *key),
        TopologyObstacle::AntiAffinity { key, .. } => {
            spec.affinity.pod_anti_affinity.required.retain(|term| term.topology_key != *key);
        }
        TopologyObstacle::Affinity { key, .. } => {
            spec.affinity.pod_affinity.required.retain(|term| term.topology_key != *key);
        }
        TopologyObstacle::Repelled { key: label, .. } => {
            for other in problem.pods.iter_mut().filter(|pod| pod.key() != *key) {
                other.spec.affinity.pod_anti_affinity.required.retain(|term| term.topology_key != *label);
            }
        }
        TopologyObstacle::NoLabel { key } => {
            spec.topology_spread_constraints.retain(|spread| spread.topology_key != *key);
            spec.affinity.pod_affinity.required.retain(|term| term.topology_key != *key);
        }
        _ => {
            spec.affinity.pod_affinity.required.retain(|term| term.topology_key != karpenter_core::labels::HOSTNAME);
        }
    }
}

proptest! {
    #[test]
    fn without_what_a_reason_names_there_is_a_place_or_another_reason(problem in strategies::problem(10)) {
        for (key, reason) in unplaced(&problem) {
            let Some(easier) = without(&problem, &key, &reason) else { continue };
            let after = unplaced(&easier);
            prop_assert_ne!(after.get(&key), Some(&reason), "{}: {}", key, reason);
        }
    }

    #[test]
    fn a_pod_that_asks_for_little_finds_a_place(mut problem in strategies::problem(10), which in any::<Index>()) {
        // A pool without requirements of a machine that is large enough and can be bought.
        let is_sold = |t: &InstanceType| t.offerings.iter().any(|o| o.available && o.reservation_capacity.is_none());
        prop_assume!(problem.types.iter().any(is_sold));
        problem.pools.push(NodePool::named("anything"));
        problem.daemonsets.clear();
        let pod = which.get_mut(&mut problem.pods);
        let key = pod.key();
        pod.spec = PodSpec::default();
        pod.spec.containers.push(Container::default());
        for other in &mut problem.pods {
            // Only others could keep it away.
            other.spec.affinity.pod_anti_affinity.required.clear();
        }
        let left = unplaced(&problem);
        prop_assert_eq!(left.get(&key), None);
    }
}
