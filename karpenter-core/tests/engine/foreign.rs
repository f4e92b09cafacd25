//! Pools, claims and nodes of another controller in the same cluster.

use karpenter_core::{
    Quantity, ResourceName,
    api::{Node, NodeClaim, NodeClassKind, NodeClassRef, NodePool},
    engine::EngineOptions,
    labels,
};

use crate::world::{World, at};

const THEIRS: &str = "karpenter.k8s.aws/ec2nodeclass";

fn theirs() -> NodeClassRef {
    NodeClassRef::new("karpenter.k8s.aws", "EC2NodeClass", "default")
}

fn ours() -> NodeClassRef {
    NodeClassRef::new("example.com", "RackClass", "default")
}

fn pool(name: &str, class: NodeClassRef) -> NodePool {
    let mut pool = NodePool::named(name);
    pool.spec.template.spec.node_class_ref = class;
    pool
}

fn world() -> World {
    let mut options = EngineOptions::default();
    options.node_class_kinds = vec![NodeClassKind::new("example.com", "RackClass")];
    World::new(options)
}

/// A claim of theirs, on a machine that this provider does not know.
fn claim(name: &str, provider_id: &str) -> NodeClaim {
    let mut claim = NodeClaim::named(name);
    name.clone_into(&mut claim.metadata.uid);
    claim.metadata.labels.insert(labels::NODE_POOL.to_owned(), "theirs".to_owned());
    claim.metadata.finalizers.push(labels::TERMINATION.to_owned());
    claim.spec.node_class_ref = theirs();
    provider_id.clone_into(&mut claim.status.provider_id);
    claim
}

/// The node of a claim of theirs, which is not ready.
fn node(name: &str) -> Node {
    let status = serde_json::json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let mut node: Node = serde_json::from_value(status).expect("a node");
    name.clone_into(&mut node.metadata.name);
    node.metadata.finalizers.push(labels::TERMINATION.to_owned());
    node.metadata.labels.insert(labels::NODE_POOL.to_owned(), "theirs".to_owned());
    node.metadata.labels.insert(THEIRS.to_owned(), "default".to_owned());
    node.spec.provider_id = format!("aws:///{name}");
    node.status.allocatable.insert(ResourceName::Cpu, Quantity::from_units(4));
    node
}

#[test]
fn what_is_anothers_is_left_alone() {
    let mut world = world();
    world.put_pool(pool("theirs", theirs()));
    world.put_claim(claim("fresh", ""));
    world.put_claim(claim("running", "aws:///running"));
    world.put_node(node("running"));
    let mut leaving = node("leaving");
    leaving.metadata.deletion_timestamp = Some(at(1_000_000));
    world.put_node(leaving);
    world.add_pods("web", 2, "900m");
    let before = (world.pools.clone(), world.claims.clone(), world.nodes.clone());
    world.run(1800);
    assert_eq!((&world.pools, &world.claims, &world.nodes), (&before.0, &before.1, &before.2), "{:#?}", world.log);
    assert_eq!((world.bought, world.unbound()), (0, 2), "{:#?}", world.log);

    world.put_pool(pool("ours", ours()));
    world.run(300);
    assert_eq!((world.bought, world.unbound()), (1, 0), "{:#?}", world.log);
}

#[test]
fn a_pool_that_goes_over_to_another_controller_is_let_go() {
    let mut world = world();
    world.put_pool(pool("one", ours()));
    world.add_pods("web", 1, "900m");
    world.run(300);
    assert_eq!((world.bought, world.unbound()), (1, 0), "{:#?}", world.log);
    world.put_pool(pool("one", theirs()));
    world.add_pods("more", 40, "900m");
    world.run(300);
    assert_eq!(world.bought, 1, "{:#?}", world.log);
}
