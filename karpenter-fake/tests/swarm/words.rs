//! What passes between an engine and its world, in a few words.

use karpenter_core::{
    api::{Condition, ConditionStatus, Node, NodeClaim, Pod},
    engine::{Action, ActionResult, Event, Object},
};

pub(crate) fn of_event(event: &Event) -> Option<String> {
    Some(match event {
        Event::Applied(Object::Pod(pod)) => of_pod(pod),
        Event::Applied(Object::Node(node)) => of_node(node),
        Event::Applied(Object::NodeClaim(claim)) => of_claim(claim),
        Event::Applied(other) => format!("{:?}", other.reference()),
        Event::Done { result: ActionResult::Catalog(_) | ActionResult::Events(_) | ActionResult::Written, .. } => {
            return None;
        }
        other => cut(&format!("{other:?}")),
    })
}

pub(crate) fn of_action(action: &Action) -> Option<String> {
    Some(match action {
        Action::Catalog(_) | Action::NextEvents(_) | Action::List | Action::Drift(_) | Action::UpdatePool(_) => {
            return None;
        }
        Action::CreateClaim(claim) => format!("create {}", of_claim(claim)),
        Action::UpdateClaim(claim) => format!("update {}", of_claim(claim)),
        Action::Launch(claim) => format!("launch {}", claim.name()),
        Action::UpdateNode(node) => format!("update {}", of_node(node)),
        other => cut(&format!("{other:?}")),
    })
}

fn of_pod(pod: &Pod) -> String {
    let leaving = if pod.metadata.deletion_timestamp.is_some() { " leaving" } else { "" };
    let node = &pod.spec.node_name;
    format!("pod {} on {node:?} {}{} {leaving}", pod.key(), pod.status.phase, conditions(&pod.status.conditions))
}

fn of_node(node: &Node) -> String {
    let taints: Vec<&str> = node.spec.taints.iter().map(|taint| taint.key.as_str()).collect();
    let leaving = if node.metadata.deletion_timestamp.is_some() { " leaving" } else { "" };
    format!("node {} {taints:?}{}{leaving}", node.metadata.name, conditions(&node.status.conditions))
}

fn of_claim(claim: &NodeClaim) -> String {
    let leaving = if claim.metadata.deletion_timestamp.is_some() { " leaving" } else { "" };
    let (id, node) = (&claim.status.provider_id, &claim.status.node_name);
    format!("claim {} {id} {node}{}{leaving}", claim.name(), conditions(&claim.status.conditions))
}

fn conditions(all: &[Condition]) -> String {
    let of = |condition: &Condition| match condition.status {
        ConditionStatus::True => format!(" {}", condition.r#type),
        ConditionStatus::False => format!(" not {}", condition.r#type),
        ConditionStatus::Unknown => format!(" {}?", condition.r#type),
    };
    all.iter().map(of).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}
