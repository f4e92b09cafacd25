//! Answers about single pods as other programs read them.

use std::collections::BTreeMap;

use karpenter_core::{
    Catalogs, PlannedClaim, Price, Reason, Requirement, Requirements,
    api::{NodeSelectorRequirement, ObjectKey},
    reason::{Asker, NodeObstacle, NodesShutOut, Obstacle, PoolObstacle, Shortage, TopologyObstacle, TypesShutOut},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::choice::Choice;
use crate::explain::{Explanation, NotPending, PodAnswer};

/// The answer for one pod.
#[derive(Serialize)]
pub(super) struct Document<'e> {
    pod: String,
    answer: &'static str,
    #[serde(flatten)]
    details: Details<'e>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum Details<'e> {
    NewClaim {
        node_pool: &'e str,
        instance_types: &'e [String],
        cheapest_price: Price,
        /// Null if the claim leaves a choice.
        zone: Option<String>,
        capacity_type: Option<String>,
        /// All that is left to choose from.
        zones: Vec<String>,
        capacity_types: Vec<String>,
        requirements: &'e Requirements,
        other_pods: Vec<String>,
    },
    Existing {
        node: &'e str,
        other_pods: Vec<String>,
    },
    Unplaced {
        message: String,
        reason: Described,
        pools: Vec<InPool<'e>>,
        nodes: Nodes,
    },
    NotPending {
        message: String,
        node: Option<&'e str>,
    },
}

/// A kind with its operands.
#[derive(Serialize)]
pub(super) struct Described {
    pub(super) kind: &'static str,
    #[serde(flatten)]
    pub(super) operands: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InPool<'e> {
    node_pool: &'e str,
    types: usize,
    obstacles: Vec<OnTypes>,
}

#[derive(Serialize)]
struct OnTypes {
    count: usize,
    message: String,
    #[serde(flatten)]
    obstacle: Described,
}

#[derive(Default, Serialize)]
struct Nodes {
    count: usize,
    obstacles: Vec<OnNodes>,
}

#[derive(Serialize)]
struct OnNodes {
    count: usize,
    message: String,
    #[serde(flatten)]
    obstacle: Described,
}

/// One answer for each pod, in the order in which they were asked for.
pub(super) fn document(explanation: &Explanation) -> Vec<Document<'_>> {
    let of_pod = |pod: &ObjectKey| {
        let (answer, details) = match explanation.answer(pod) {
            PodAnswer::NewClaim(claim) => ("newClaim", new_claim(claim, &explanation.catalogs, pod)),
            PodAnswer::Existing { node, pods } => {
                ("existing", Details::Existing { node, other_pods: others(pods, pod) })
            }
            PodAnswer::Unplaced(reason) => ("unplaced", unplaced(reason)),
            PodAnswer::NotPending(why) => {
                let node = if let NotPending::Bound { node } = why { Some(node.as_str()) } else { None };
                ("notPending", Details::NotPending { message: why.to_string(), node })
            }
        };
        Document { pod: pod.to_string(), answer, details }
    };
    explanation.pods.iter().map(of_pod).collect()
}

fn new_claim<'e>(claim: &'e PlannedClaim, catalogs: &Catalogs, pod: &ObjectKey) -> Details<'e> {
    let Choice { zones, capacity_types } = Choice::of(claim, catalogs);
    Details::NewClaim {
        node_pool: &claim.node_pool,
        instance_types: &claim.instance_types,
        cheapest_price: claim.cheapest_price,
        zone: zones.only().map(str::to_owned),
        capacity_type: capacity_types.only().map(str::to_owned),
        zones: zones.values,
        capacity_types: capacity_types.values,
        requirements: &claim.requirements,
        other_pods: others(&claim.pods, pod),
    }
}

fn others(pods: &[ObjectKey], pod: &ObjectKey) -> Vec<String> {
    pods.iter().filter(|other| *other != pod).map(ToString::to_string).collect()
}

fn unplaced(reason: &Reason) -> Details<'_> {
    let message = reason.to_string();
    let (pools, nodes) = match reason {
        Reason::NoPlace { pools, node_count, nodes } => {
            let obstacles = nodes.iter().map(on_nodes).collect();
            (pools.iter().map(pool).collect(), Nodes { count: *node_count, obstacles })
        }
        _ => (Vec::new(), Nodes::default()),
    };
    Details::Unplaced { message, reason: described(reason), pools, nodes }
}

fn pool(obstacle: &PoolObstacle) -> InPool<'_> {
    let types = |shut_out: &TypesShutOut| OnTypes {
        count: shut_out.type_count,
        message: shut_out.obstacle.to_string(),
        obstacle: of_types(&shut_out.obstacle),
    };
    let obstacles = obstacle.shut_out.iter().map(types).collect();
    InPool { node_pool: &obstacle.pool, types: obstacle.type_count, obstacles }
}

fn on_nodes(shut_out: &NodesShutOut) -> OnNodes {
    let (kind, operands) = match &shut_out.obstacle {
        NodeObstacle::Taint(taint) => ("taint", json!({ "taint": taint })),
        NodeObstacle::Label { key, wanted, asker } => {
            ("label", json!({ "key": key, "wanted": expressions(key, wanted), "asker": of_asker(*asker) }))
        }
        NodeObstacle::Resource { resource, missing } => {
            ("resource", json!({ "resource": resource.as_str(), "missing": missing }))
        }
        NodeObstacle::Combination => ("combination", json!({})),
        NodeObstacle::HostPort => ("hostPort", json!({})),
        NodeObstacle::Neighbours => ("neighbours", json!({})),
        NodeObstacle::WorkloadShare => ("workloadShare", json!({})),
        NodeObstacle::Volumes => ("volumes", json!({})),
        _ => ("other", json!({})),
    };
    let message = shut_out.obstacle.to_string();
    OnNodes { count: shut_out.node_count, message, obstacle: Described { kind, operands } }
}

pub(super) fn of_types(obstacle: &Obstacle) -> Described {
    let (kind, operands) = match obstacle {
        Obstacle::Static => ("static", json!({})),
        Obstacle::NotReady { .. } => ("notReady", json!({})),
        Obstacle::Taint(taint) => ("taint", json!({ "taint": taint })),
        Obstacle::NoInstanceTypes => ("noInstanceTypes", json!({})),
        Obstacle::Label { key, wanted, asker, offered, is_had_alone, similar_key, .. } => {
            let offered: Vec<_> = offered.iter().flat_map(|offered| expressions(key, offered)).collect();
            let (wanted, asker) = (expressions(key, wanted), of_asker(*asker));
            let operands = json!({
                "key": key, "wanted": wanted, "asker": asker, "offered": offered, "hadAlone": is_had_alone,
                "similarKey": similar_key,
            });
            ("label", operands)
        }
        Obstacle::Combination => ("combination", json!({})),
        Obstacle::Daemons => ("daemons", json!({})),
        Obstacle::Unavailable => ("unavailable", json!({})),
        Obstacle::ReservationUsedUp { reservations } => ("reservationUsedUp", json!({ "reservations": reservations })),
        Obstacle::AwaitsReservation { reservations } => ("awaitsReservation", json!({ "reservations": reservations })),
        Obstacle::TooSmall { shortages, nearest_type } => {
            let shortages: Vec<Value> = shortages.iter().map(shortage).collect();
            ("tooSmall", json!({ "shortages": shortages, "nearestType": nearest_type }))
        }
        Obstacle::HostPort { port } => ("hostPort", json!({ "port": port.to_string() })),
        Obstacle::MinValues { key, min_values, available } => {
            ("minValues", json!({ "key": key, "minValues": min_values, "available": available }))
        }
        Obstacle::Neighbours => ("neighbours", json!({})),
        Obstacle::Limit { resource, limit, used } => {
            ("limit", json!({ "resource": resource.as_str(), "limit": limit, "used": used }))
        }
        _ => ("other", json!({})),
    };
    Described { kind, operands }
}

const fn of_asker(asker: Asker) -> &'static str {
    match asker {
        Asker::Pod => "pod",
        Asker::Volumes => "volumes",
        Asker::Neighbours => "neighbours",
        _ => "other",
    }
}

fn shortage(shortage: &Shortage) -> Value {
    json!({
        "resource": shortage.resource.as_str(),
        "types": shortage.type_count,
        "requested": shortage.requested,
        "available": shortage.available,
        "missing": shortage.missing(),
    })
}

pub(super) fn expressions(key: &str, requirement: &Requirement) -> Vec<NodeSelectorRequirement> {
    requirement.to_expressions(key)
}

fn described(reason: &Reason) -> Described {
    let (kind, operands) = match reason {
        Reason::Invalid(error) => ("invalid", json!({ "field": error.field })),
        Reason::Unsupported { field } => ("unsupported", json!({ "field": field })),
        Reason::Volume(_) => ("volume", json!({})),
        Reason::Topology(obstacle) => topology(obstacle),
        Reason::Unmeetable { for_volumes } => ("unmeetable", json!({ "forVolumes": for_volumes })),
        Reason::NoNodePools => ("noNodePools", json!({})),
        Reason::Stopped => ("stopped", json!({})),
        Reason::NoPlace { .. } => ("noPlace", json!({})),
        _ => ("other", json!({})),
    };
    Described { kind, operands }
}

fn topology(obstacle: &TopologyObstacle) -> (&'static str, Value) {
    match obstacle {
        TopologyObstacle::Spread { key, max_skew, counts, full, min_domains } => {
            let counts: BTreeMap<_, _> = counts.iter().cloned().collect();
            let mut operands = json!({ "key": key, "maxSkew": max_skew, "counts": counts, "full": full });
            if let Some(min_domains) = min_domains {
                operands["minDomains"] = (*min_domains).into();
            }
            ("spread", operands)
        }
        TopologyObstacle::AntiAffinity { key, domains } => ("antiAffinity", json!({ "key": key, "domains": domains })),
        TopologyObstacle::Repelled { key, domains } => ("repelled", json!({ "key": key, "domains": domains })),
        TopologyObstacle::Affinity { key, domains } => ("affinity", json!({ "key": key, "domains": domains })),
        TopologyObstacle::OneNode => ("oneNode", json!({})),
        TopologyObstacle::NoLabel { key } => ("noLabel", json!({ "key": key })),
        _ => ("topology", json!({})),
    }
}
