//! What keeps nodes, and that they go without it.

use karpenter::{
    api::{Budget, ConditionStatus, ConsolidationPolicy, PodDisruptionBudget, Taint, TaintEffect},
    disrupt::{Disruptor, Method},
    labels,
};
use serde_json::json;

use crate::{
    moves::machine,
    world::{NOW, World, condition},
};

/// A large node for a small pod; with `is_empty` one for none.
fn wasteful(is_empty: bool) -> World {
    let mut world = World::of([machine("large", 8, 80), machine("small", 1, 10)]);
    world.node("a", "large", if is_empty { &[] } else { &["1"] });
    world
}

/// A budget for the pods of the app `web`.
pub(crate) fn pod_budget(max_unavailable: u32) -> PodDisruptionBudget {
    let spec = json!({"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": "web"}}});
    let budget = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec});
    serde_json::from_value(budget).expect("a valid budget")
}

pub(crate) fn node_budget(nodes: &str) -> Budget {
    let mut budget = Budget::default();
    nodes.clone_into(&mut budget.nodes);
    budget
}

fn shield_pods(world: &mut World) {
    for pod in &mut world.objects.pods {
        pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    }
}

/// What is done to a world.
type Obstacle = fn(&mut World);

#[test]
fn each_obstacle_keeps_the_node_and_nothing_else_does() {
    let obstacles: [(&str, Obstacle, bool); 9] = [
        ("a pod that must not be disturbed", shield_pods, false),
        ("a budget that lets no pod go", |w| w.budgets.push(pod_budget(0)), false),
        ("two budgets for one pod", |w| w.budgets.extend(two_budgets()), false),
        ("a pool that lets no node go", |w| w.pool().spec.disruption.budgets.push(node_budget("0")), true),
        ("consolidateAfter Never", |w| w.pool().spec.disruption.consolidate_after = "Never".parse().unwrap(), true),
        ("WhenEmpty", |w| w.pool().spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty, false),
        ("no claim", |w| w.objects.claims.clear(), true),
        ("a static pool", |w| w.pool().spec.replicas = Some(1), true),
        ("an annotated node", annotate_node, true),
    ];
    for is_empty in [false, true] {
        assert_eq!(wasteful(is_empty).commands().len(), 1, "nothing keeps the node");
        for (name, obstacle, keeps_empty) in obstacles {
            let mut world = wasteful(is_empty);
            obstacle(&mut world);
            let is_kept = world.commands().is_empty();
            assert_eq!(is_kept, !is_empty || keeps_empty, "{name}, on a node that is empty: {is_empty}");
        }
    }
}

fn two_budgets() -> [PodDisruptionBudget; 2] {
    let mut other = pod_budget(5);
    "other".clone_into(&mut other.metadata.name);
    [pod_budget(5), other]
}

fn annotate_node(world: &mut World) {
    let annotations = &mut world.objects.nodes[0].metadata.annotations;
    annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
}

fn three_wasteful() -> World {
    let mut world = World::of([machine("large", 8, 80), machine("small", 1, 10)]);
    for name in ["a", "b", "c"] {
        world.node(name, "large", &["1"]);
    }
    world
}

/// A pod of a daemonset on each node.
fn add_daemons(world: &mut World) {
    for node in world.objects.nodes.iter().map(|node| node.metadata.name.clone()).collect::<Vec<_>>() {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]);
        let meta = json!({"name": format!("agent-{node}"), "namespace": "default", "labels": {"app": "web"}, "ownerReferences": owner});
        let pod =
            json!({"metadata": meta, "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Running"}});
        world.objects.pods.push(serde_json::from_value(pod).expect("a valid pod"));
    }
}

#[test]
fn empty_nodes_go_together_unless_a_budget_lets_none_of_their_daemons_go() {
    for (allowed, expected) in [(None, vec!["a b c"]), (Some(1), vec!["a b c"]), (Some(0), vec![])] {
        let mut world = World::of([machine("t", 4, 20)]);
        for name in ["a", "b", "c"] {
            world.node(name, "t", &[]);
        }
        add_daemons(&mut world);
        world.budgets.extend(allowed.map(pod_budget));
        let found: Vec<String> = world.commands().iter().map(|c| c.candidates.join(" ")).collect();
        assert_eq!(found, expected, "{allowed:?} daemons may be away");
    }
}

#[test]
fn a_node_whose_daemons_stay_does_not_use_up_the_budget_of_nodes() {
    let mut world = World::of([machine("t", 4, 20)]);
    for name in ["a", "b"] {
        world.node(name, "t", &[]);
    }
    add_daemons(&mut world);
    world.objects.pods[1].metadata.labels.clear();
    world.budgets.push(pod_budget(0));
    world.pool().spec.disruption.budgets.push(node_budget("1"));
    assert_eq!(world.commands()[0].candidates, ["b"]);
}

#[test]
fn a_budget_of_nodes_holds_for_a_whole_command() {
    for (nodes, most) in [("1", 1), ("2", 2), ("34%", 2), ("10%", 1), ("100%", 3)] {
        let mut world = three_wasteful();
        world.pool().spec.disruption.budgets.push(node_budget(nodes));
        let commands = world.commands();
        assert_eq!(commands.iter().map(|c| c.candidates.len()).max(), Some(most), "{nodes}: {commands:?}");
    }
}

#[test]
fn a_node_that_was_chosen_before_counts_against_the_budget() {
    for (nodes, goes) in [("1", false), ("2", true)] {
        let mut world = three_wasteful();
        world.pool().spec.disruption.budgets.push(node_budget(nodes));
        let disrupted = Taint::new(labels::DISRUPTED, "", TaintEffect::NoSchedule);
        world.objects.nodes[0].spec.taints.push(disrupted);
        assert_eq!(!world.commands().is_empty(), goes, "{nodes} may go at once, and one does");
    }
}

#[test]
fn a_drifted_node_that_cannot_go_does_not_use_up_the_budget() {
    let mut world = World::of([machine("gone", 8, 80), machine("small", 2, 10)]);
    world.pool().spec.disruption.budgets.push(node_budget("1"));
    world.node("a", "gone", &["6"]);
    world.node("b", "gone", &["1"; 3]);
    world.objects.types[0].offerings[0].available = false;
    for claim in &mut world.objects.claims {
        claim.status.conditions.push(condition("Drifted"));
    }
    let commands = world.commands();
    assert_eq!(commands[0].candidates, ["b"], "{commands:?}");
    assert_eq!(commands[0].method, Method::Drift);
}

#[test]
fn many_wasteful_nodes_that_cannot_go_do_not_use_up_a_small_budget() {
    let mut world = World::of([machine("gone", 8, 80), machine("small", 2, 10)]);
    world.pool().spec.disruption.budgets.push(node_budget("1"));
    world.objects.types[0].offerings[0].available = false;
    for number in 0..30 {
        world.node(&format!("stuck-{number:02}"), "gone", &["6"]);
    }
    world.node("spare", "small", &["1"]);
    let commands = world.commands();
    assert_eq!(commands.iter().map(|c| c.candidates.join(" ")).collect::<Vec<_>>(), ["spare"]);
}

/// The pod of `a` fits nowhere else, and those of `b` fit beside the others.
fn one_of_three() -> World {
    let mut world = World::of([machine("t", 8, 40)]);
    world.node("a", "t", &["5"]);
    world.node("b", "t", &["1"; 4]);
    world.node("c", "t", &["1"; 7]);
    world
}

#[test]
fn a_node_that_cannot_go_does_not_use_up_the_budgets() {
    let mut of_nodes = one_of_three();
    of_nodes.pool().spec.disruption.budgets.push(node_budget("1"));
    let mut of_pods = one_of_three();
    of_pods.budgets.push(pod_budget(4));
    for world in [one_of_three(), of_nodes, of_pods] {
        let commands = world.commands();
        assert_eq!(commands.iter().map(|c| c.candidates.join(" ")).collect::<Vec<_>>(), ["b"]);
    }
}

#[test]
fn a_drifted_node_is_drained_as_fast_as_a_budget_of_pods_allows() {
    for (allowed, goes) in [(0, false), (1, true)] {
        let mut world = World::of([machine("t", 4, 40)]);
        world.pool().spec.disruption.consolidate_after = "Never".parse().unwrap();
        world.node("a", "t", &["1", "1"]);
        world.objects.claims[0].status.conditions.push(condition("Drifted"));
        world.budgets.push(pod_budget(allowed));
        assert_eq!(!world.commands().is_empty(), goes, "{allowed} of two pods may be away");
    }
}

#[test]
fn pods_move_to_no_node_that_is_on_its_way_out() {
    let now = || NOW.parse().expect("a time");
    let obstacles: [(&str, Obstacle); 4] = [
        ("a claim that is being deleted", |w| w.objects.claims[1].metadata.deletion_timestamp = NOW.parse().ok()),
        ("a node that is being deleted", |w| w.objects.nodes[1].metadata.deletion_timestamp = NOW.parse().ok()),
        ("an instance that is terminating", |w| {
            let terminating = condition("InstanceTerminating");
            w.objects.claims[1].status.conditions.push(terminating);
        }),
        ("a node that was chosen to go", |w| {
            w.objects.nodes[1].spec.taints.push(Taint::new(labels::DISRUPTED, "", TaintEffect::NoSchedule));
        }),
    ];
    for (name, obstacle) in obstacles {
        let mut world = World::of([machine("large", 8, 80)]);
        world.node("a", "large", &["1"]);
        world.node("b", "large", &["1"; 6]);
        for pod in &mut world.objects.pods {
            pod.spec.tolerations = serde_json::from_value(json!([{"operator": "Exists"}])).expect("a toleration");
        }
        let goes = |world: &World| {
            let (snapshot, catalogs) = (world.snapshot(), world.catalogs());
            let search = Disruptor::new(world.options.clone()).start(&snapshot, &catalogs, now());
            let alone = search.outlook("a").expect("it is there").alone.expect("it was made by the engine");
            alone.existing.contains_key("b")
        };
        assert!(goes(&world), "there is room");
        obstacle(&mut world);
        assert!(!goes(&world), "{name}");
    }
}

#[test]
fn budgets_count_the_nodes_that_commands_make() {
    let mut world = World::of([machine("large", 8, 80), machine("mean", 6, 10)]);
    for n in 0..11 {
        world.node(&format!("n{n:02}"), "large", &["5"]);
    }
    // One of eleven is away, so that a tenth of them, rounded up, is one more; of ten there would be none.
    let mut not_ready = condition("Ready");
    not_ready.status = ConditionStatus::False;
    world.objects.nodes[10].status.conditions = vec![not_ready];
    world.pool().spec.disruption.budgets = vec![node_budget("10%")];
    assert_eq!(world.commands().len(), 11);
}
