//! The engine drives the provider.

use karpenter_aws::mem::{Exhausted, Fault};
use karpenter_core::{
    labels,
    provider::{ProviderEvent, ProviderId},
};

use crate::cluster::Cluster;

#[tokio::test]
async fn pods_get_nodes_and_nodes_go_with_their_pods() {
    let mut cluster = Cluster::new();
    cluster.add_pods(40, "900m");
    cluster.run(90).await;
    assert_eq!(cluster.unbound(), 0);
    let machines = cluster.machines().len();
    assert!(machines > 0 && machines == cluster.nodes.len(), "{machines}");
    cluster.remove_all_pods();
    cluster.run(600).await;
    assert_eq!((cluster.machines().len(), cluster.nodes.len()), (0, 0));
}

#[tokio::test]
async fn without_spot_capacity_machines_are_on_demand() {
    let mut cluster = Cluster::new();
    cluster.aws.with(|state| state.exhausted.push(Exhausted::new("*", "*", "spot")));
    cluster.add_pods(10, "900m");
    cluster.run(120).await;
    assert_eq!(cluster.unbound(), 0);
    let kinds = cluster.nodes.values().map(|node| node.metadata.labels[labels::CAPACITY_TYPE].as_str());
    assert!(kinds.into_iter().all(|kind| kind == labels::ON_DEMAND));
}

#[tokio::test]
async fn a_machine_that_is_taken_back_is_replaced() {
    let mut cluster = Cluster::new();
    cluster.add_pods(4, "900m");
    cluster.run(90).await;
    let (id, zone) = cluster.aws.with(|state| {
        let machine = state.instances.values().next().expect("bought");
        (machine.id.clone(), machine.zone.clone())
    });
    let name = ProviderId::new(format!("aws:///{zone}/{id}"));
    cluster.provider.tell(ProviderEvent::Interruption { id: name, at: cluster.now() });
    cluster.run(300).await;
    assert!(!cluster.machines().contains(&id));
    assert_eq!(cluster.unbound(), 0);
}

#[tokio::test]
async fn a_machine_that_died_is_replaced() {
    let mut cluster = Cluster::new();
    cluster.add_pods(4, "900m");
    cluster.run(90).await;
    let first = cluster.machines()[0].clone();
    cluster.kill(&first);
    cluster.run(600).await;
    assert_eq!(cluster.unbound(), 0);
    assert!(!cluster.nodes.contains_key(&first));
}

#[tokio::test]
async fn calls_that_fail_leave_no_machine_behind() {
    for operation in ["CreateFleet", "DescribeInstances", "CreateLaunchTemplate", "TerminateInstances"] {
        let mut cluster = Cluster::new();
        let throttled = karpenter_aws::ApiError::refused(operation, "RequestLimitExceeded", "slow down");
        let lost = karpenter_aws::ApiError::no_answer(operation, "timed out");
        cluster.aws.with(|state| {
            state.faults.push(Fault { operation, times: 2, error: throttled, is_done: false });
            state.faults.push(Fault { operation, times: 2, error: lost, is_done: true });
        });
        cluster.add_pods(20, "900m");
        cluster.run(240).await;
        assert_eq!(cluster.unbound(), 0, "{operation}");
        assert_eq!(cluster.machines().len(), cluster.nodes.len(), "{operation}");
        cluster.remove_all_pods();
        cluster.run(900).await;
        assert_eq!(cluster.machines().len(), 0, "{operation}");
    }
}

#[tokio::test]
async fn nodes_of_a_class_that_changes_are_replaced() {
    let mut cluster = Cluster::new();
    cluster.add_pods(4, "900m");
    cluster.run(90).await;
    let before = cluster.machines();
    cluster.aws.with(|state| {
        for (_, image) in &mut state.images {
            image.image_id.push_str("-new");
        }
        for id in state.parameters.values_mut() {
            id.push_str("-new");
        }
    });
    let mut class = crate::world::class();
    for term in class.spec.ami_selector_terms.iter_mut().filter(|term| !term.id.is_empty()) {
        term.id.push_str("-new");
    }
    cluster.provider.apply_class(class);
    cluster.run(1800).await;
    assert_eq!(cluster.unbound(), 0);
    assert!(before.iter().all(|machine| !cluster.machines().contains(machine)), "{before:?}");
}
