//! What a place is: a node, a claim, or both.

use karpenter_core::{
    Snapshot,
    api::{Node, NodeClaim, Pod},
};
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("as the API has it")
}

/// A claim for a machine, launched in some minute.
fn claim(name: &str, machine: &str, minute: u32) -> NodeClaim {
    let at = format!("2026-01-01T00:{minute:02}:00Z");
    let launched = json!({"type": "Launched", "status": "True", "reason": "Launched", "lastTransitionTime": at});
    read(json!({
        "metadata": {"name": name, "uid": name}, "spec": {"nodeClassRef": {}, "requirements": []},
        "status": {"providerID": machine, "conditions": [launched]},
    }))
}

/// A node of a machine, which says whose it is if somebody is named.
fn node(name: &str, machine: &str, owner: Option<&str>) -> Node {
    let owners: Vec<Value> = owner
        .map(|uid| json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": uid, "uid": uid}))
        .into_iter()
        .collect();
    read(json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": {"providerID": machine}}))
}

/// Each place with its claim and how many pods it has, where a pod runs on node `n`.
fn places(claims: &[NodeClaim], nodes: &[Node]) -> Vec<(String, Option<String>, usize)> {
    let pod: Pod = read(json!({
        "metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": "Running"},
    }));
    let builder = Snapshot::builder().claims(claims.iter().cloned()).nodes(nodes.iter().cloned());
    let snapshot = builder.pods(vec![pod]).build().expect("a cluster");
    snapshot.places().iter().map(|place| (place.name.clone(), place.claim.clone(), place.pods.len())).collect()
}

/// A place as it is expected.
fn place(name: &str, claim: Option<&str>, pods: usize) -> (String, Option<String>, usize) {
    (name.to_owned(), claim.map(str::to_owned), pods)
}

#[test]
fn nodes_and_claims_are_joined_by_the_id_of_their_machine() {
    let (claims, nodes) = ([claim("c", "id://1", 0), claim("d", "id://2", 0)], [node("n", "id://1", None)]);
    assert_eq!(places(&claims, &nodes), [place("d", Some("d"), 0), place("n", Some("c"), 1)]);
    let stranger = [node("n", "id://3", None)];
    assert_eq!(places(&claims[1..], &stranger), [place("d", Some("d"), 0), place("n", None, 1)]);
}

#[test]
fn a_node_that_does_not_say_yet_which_machine_it_is_has_the_claim_of_its_name() {
    let claims = [claim("n", "id://1", 0)];
    assert_eq!(places(&claims, &[node("n", "", None)]), [place("n", Some("n"), 1)]);
    assert_eq!(places(&claims, &[node("n", "", Some("other"))]), [place("n", None, 1)], "it says whose it is");
}

#[test]
fn pods_of_a_node_are_not_on_a_claim_of_its_name_for_another_machine() {
    assert_eq!(places(&[claim("n", "id://1", 0)], &[node("n", "id://2", None)]), [place("n", None, 1)]);
    let both = [claim("n", "id://1", 0), claim("c", "id://2", 0)];
    assert_eq!(places(&both, &[node("n", "id://2", None)]), [place("n", Some("c"), 1)]);
}

#[test]
fn a_machine_that_two_claims_name_is_one_place() {
    for names in [["n", "x"], ["x", "n"]] {
        let claims = [claim(names[0], "id://1", 0), claim(names[1], "id://1", 5)];
        assert_eq!(places(&claims, &[node("n", "id://1", None)]), [place("n", Some(names[1]), 1)]);
        assert_eq!(places(&claims, &[]).len(), 1, "there is one machine");
    }
    // The name of a machine that is gone was used again, and its last node is still there.
    let claims = [claim("first", "id://1", 0), claim("second", "id://1", 5)];
    let places = places(&claims, &[node("n", "id://1", Some("first"))]);
    assert_eq!(places, [place("n", Some("first"), 1), place("second", Some("second"), 0)]);
}
