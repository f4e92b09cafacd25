//! Answers about single pods for people.

use std::fmt::Write as _;

use karpenter_core::{
    PlannedClaim, Reason,
    api::ObjectKey,
    reason::{NodesShutOut, PoolObstacle},
};

use super::{
    choice::Choice,
    table::{count, first_names, folded, type_and_others},
};
use crate::{
    error::one_line,
    explain::{Explanation, PodAnswer},
};

/// The indent of what is said about a pod, and of what is said about a pool.
const INDENT: &str = "  ";
const DEEPER: &str = "    ";

/// One paragraph a pod.
pub(super) fn text(explanation: &Explanation) -> String {
    let paragraphs: Vec<String> = explanation.pods.iter().map(|pod| paragraph(explanation, pod)).collect();
    paragraphs.join("\n")
}

fn paragraph(explanation: &Explanation, pod: &ObjectKey) -> String {
    let name = one_line(&pod.to_string());
    match explanation.answer(pod) {
        PodAnswer::NewClaim(claim) => {
            let choice = Choice::of(claim, &explanation.catalogs);
            format!("{name}: on a new node of pool {}\n{}", claim.node_pool, node(claim, &choice, pod))
        }
        PodAnswer::Existing { node, pods } => {
            format!("{name}: on {}, which has room\n{}", one_line(node), company(pods, pod))
        }
        PodAnswer::Unplaced(Reason::NoPlace { pools, node_count, nodes }) => {
            let pools: String = pools.iter().map(pool).collect();
            format!("{name}: without a place\n{pools}{}", existing_nodes(*node_count, nodes))
        }
        PodAnswer::Unplaced(reason) => folded(&format!("{name}: without a place: {reason}"), ""),
        PodAnswer::NotPending(why) => folded(&format!("{name}: not pending: {why}"), ""),
    }
}

/// What a node to make is like.
fn node(claim: &PlannedClaim, choice: &Choice, pod: &ObjectKey) -> String {
    let price = format!("${:.4} an hour", claim.cheapest_price.dollars_per_hour());
    let lines = [
        ("type", type_and_others(&claim.instance_types)),
        ("zone", choice.zones.text()),
        ("capacity", choice.capacity_types.text()),
        ("price", price),
    ];
    let mut out = String::new();
    for (name, value) in lines {
        let _ = writeln!(out, "{INDENT}{name:<9} {}", one_line(&value));
    }
    out + &company(&claim.pods, pod)
}

/// The other pods of a node.
fn company(pods: &[ObjectKey], pod: &ObjectKey) -> String {
    let others: Vec<String> = pods.iter().filter(|other| *other != pod).map(ToString::to_string).collect();
    if others.is_empty() {
        return String::new();
    }
    let number = count(others.len(), "other pod");
    folded(&format!("with {number}: {}", first_names(others.into_iter())), INDENT)
}

/// Why a pool makes no node for the pod.
fn pool(obstacle: &PoolObstacle) -> String {
    let PoolObstacle { pool, type_count, shut_out } = obstacle;
    if let [only] = shut_out.as_slice() {
        let types = if *type_count == 0 { String::new() } else { format!(" ({})", count(*type_count, "type")) };
        return folded(&format!("pool {pool}{types}: {}", only.obstacle), INDENT);
    }
    let mut out = folded(&format!("pool {pool}: none of its {type_count} types will do"), INDENT);
    for types in shut_out {
        out += &folded(&format!("{}: {}", count(types.type_count, "type"), types.obstacle), DEEPER);
    }
    out
}

/// Why no node that exists takes the pod.
fn existing_nodes(node_count: usize, nodes: &[NodesShutOut]) -> String {
    if node_count == 0 {
        return format!("{INDENT}nodes: there are none that take pods\n");
    }
    if let (1, [only]) = (node_count, nodes) {
        return folded(&format!("nodes: the one there is will not do: {}", only.obstacle), INDENT);
    }
    let mut out = format!("{INDENT}nodes: none of {node_count} will do\n");
    for shut_out in nodes {
        out += &folded(&shut_out.to_string(), DEEPER);
    }
    out
}
