//! The engine drives the provider.

use std::sync::Arc;

use karpenter_aws::{
    ec2::fleet::TargetKind,
    interruption::InterruptionQueue,
    mem::{Exhausted, Fault},
};
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
async fn the_next_offering_is_bought_within_a_second_of_a_refusal() {
    let mut cluster = Cluster::new();
    cluster.aws.with(|state| state.exhausted.push(Exhausted::new("*", "*", "spot")));
    cluster.add_pods(1, "900m");
    while cluster.aws.count("CreateFleet") == 0 {
        cluster.run(1).await;
    }
    assert_eq!(cluster.machines().len(), 1);
    let fleets = cluster.aws.with(|state| state.fleets.clone());
    assert_eq!(fleets.iter().map(|fleet| fleet.target).collect::<Vec<_>>(), [TargetKind::Spot, TargetKind::OnDemand]);
}

#[tokio::test]
async fn a_machine_that_a_message_takes_back_is_replaced_before_it_is_gone() {
    const URL: &str = "https://sqs.example/1/events";
    let mut cluster = Cluster::new();
    cluster.add_pods(4, "900m");
    cluster.run(90).await;
    let old = cluster.machines()[0].clone();
    let aws = Arc::new(cluster.aws.clone());
    cluster.aws.send(
        URL,
        format!(
            r#"{{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning",
            "time":"{}","detail":{{"instance-id":"{old}"}}}}"#,
            cluster.now()
        ),
    );
    let mut queue = InterruptionQueue::new(aws, cluster.provider.clone(), "events");
    queue.poll().await.expect("answers");
    let (mut is_replaced, mut seconds) = (false, 0);
    while cluster.machines().contains(&old) {
        cluster.run(1).await;
        seconds += 1;
        is_replaced |= cluster.machines().len() > 1;
        assert!(seconds < 120, "EC2 takes it back by itself");
    }
    assert!(is_replaced, "gone after {seconds} s without another machine");
    cluster.run(120).await;
    assert_eq!(cluster.unbound(), 0);
    queue.poll().await.expect("answers");
    assert_eq!(cluster.aws.with(|state| state.queues[URL].len()), 0);
}

#[tokio::test]
async fn a_machine_of_no_claim_is_collected() {
    let mut cluster = Cluster::new();
    cluster.add_pods(1, "900m");
    cluster.run(90).await;
    let leaked = cluster.aws.with(|state| {
        let mut machine = state.instances.values().next().expect("bought").clone();
        "i-0leaked".clone_into(&mut machine.id);
        machine.tags.insert("karpenter.k8s.aws/nodeclaim-uid".to_owned(), "nobody".to_owned());
        state.instances.insert(machine.id.clone(), machine.clone());
        machine.id
    });
    assert_eq!(cluster.machines().len(), 2);
    cluster.run(300).await;
    assert!(!cluster.machines().contains(&leaked));
    assert_eq!((cluster.machines().len(), cluster.unbound()), (1, 0));
}

#[tokio::test]
async fn half_a_minute_of_throttling_delays_and_loses_nothing() {
    const CALLS: [&str; 6] = [
        "CreateFleet",
        "CreateLaunchTemplate",
        "DescribeLaunchTemplates",
        "DescribeInstances",
        "DescribeSubnets",
        "TerminateInstances",
    ];
    let mut cluster = Cluster::new();
    cluster.add_pods(20, "900m");
    cluster.aws.with(|state| {
        let throttled = |call| karpenter_aws::ApiError::refused(call, "RequestLimitExceeded", "slow down");
        let fault = |operation| Fault { operation, times: 100_000, error: throttled(operation), is_done: false };
        state.faults.extend(CALLS.map(fault));
    });
    cluster.run(30).await;
    assert_eq!(cluster.machines().len(), 0);
    cluster.aws.with(|state| state.faults.clear());
    cluster.run(150).await;
    assert_eq!((cluster.unbound(), cluster.machines().len()), (0, cluster.nodes.len()));
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
async fn nodes_of_a_class_whose_user_data_changes_are_replaced() {
    let mut cluster = Cluster::new();
    cluster.add_pods(4, "900m");
    cluster.run(90).await;
    let before = cluster.machines();
    cluster.provider.apply_class(crate::world::class());
    cluster.run(900).await;
    assert_eq!(cluster.machines(), before, "the same class again");
    let mut class = crate::world::class();
    class.spec.user_data = Some("echo".to_owned());
    cluster.provider.apply_class(class);
    cluster.run(1800).await;
    assert_eq!(cluster.unbound(), 0);
    assert!(before.iter().all(|machine| !cluster.machines().contains(machine)), "{before:?}");
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
