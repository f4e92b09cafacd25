//! Capacity that was paid for in advance.

use std::time::Duration;

use karpenter_aws::{Clock as _, instance_type::labels as own};
use karpenter_core::{
    CloudProvider, labels,
    provider::{Deletion, EventCursor, ProviderEvent},
};

use crate::{
    cluster::Cluster,
    world::{World, claim, label},
};

#[tokio::test]
async fn a_reservation_that_turns_out_full_is_not_asked_again() {
    let world = World::reserving(5, |_| {});
    world.provider.resolve("default").await.expect("five are left, as far as is known");
    world.aws.with(|state| state.reservations[0].available_count = 0);
    for (uid, fleets) in [("u1", 2), ("u2", 3)] {
        let launched = world.provider.create(&claim(uid, &[])).await.expect("bought");
        assert_eq!(label(&launched, labels::CAPACITY_TYPE), labels::SPOT);
        assert_eq!(world.aws.count("CreateFleet"), fleets);
    }
}

#[tokio::test]
async fn a_slot_is_taken_until_its_machine_is_gone() {
    let world = World::reserving(1, |_| {});
    let kind = async |uid| {
        let launched = world.provider.create(&claim(uid, &[])).await.expect("bought");
        (label(&launched, labels::CAPACITY_TYPE).to_owned(), launched.instance.id)
    };
    let (first, id) = kind("u1").await;
    assert_eq!(world.provider.delete(&id).await, Ok(Deletion::Started));
    let (second, _) = kind("u2").await;
    while world.provider.delete(&id).await.expect("answers") == Deletion::Started {
        world.aws.clock().advance(Duration::from_secs(5));
    }
    let (third, _) = kind("u3").await;
    assert_eq!([first, second, third], [labels::RESERVED, labels::SPOT, labels::RESERVED]);
}

#[tokio::test]
async fn a_machine_that_lost_its_reservation_goes_on_as_one_on_demand() {
    let world = World::reserving(1, |_| {});
    let mut cluster = Cluster::of(world);
    cluster.add_pods(3, "900m");
    cluster.run(90).await;
    let kinds = |cluster: &Cluster| {
        let claims = cluster.claims.values().map(|claim| &claim.metadata.labels);
        let all = claims.chain(cluster.nodes.values().map(|node| &node.metadata.labels));
        let said = |labels: &std::collections::BTreeMap<String, String>| {
            let id = labels.get(own::RESERVATION_ID).cloned().unwrap_or_default();
            let is_typed = labels.contains_key(own::RESERVATION_TYPE);
            (labels[labels::CAPACITY_TYPE].clone(), id, is_typed)
        };
        all.map(said).collect::<Vec<_>>()
    };
    let reserved = ("reserved".to_owned(), "cr-1".to_owned(), true);
    assert_eq!(kinds(&cluster), [reserved.clone(), reserved], "a claim and its node");
    let machines = cluster.machines();
    cluster.aws.with(|state| {
        let machine = state.instances.values_mut().next().expect("bought");
        (machine.reservation_id, machine.reservation_preference) = (None, None);
    });
    let mut seconds = 0;
    while kinds(&cluster).iter().any(|(kind, ..)| kind == labels::RESERVED) {
        cluster.run(1).await;
        seconds += 1;
        assert!(seconds <= 130, "the machines are listed every two minutes");
    }
    let on_demand = ("on-demand".to_owned(), String::new(), false);
    assert_eq!(kinds(&cluster), [on_demand.clone(), on_demand]);
    assert_eq!(cluster.machines(), machines);
}

#[tokio::test]
async fn machines_of_a_block_are_given_up_forty_minutes_before_its_end() {
    let world = World::reserving(2, |block| block.reservation_type = Some("capacity-block".to_owned()));
    let end = world.aws.clock().now() + Duration::from_hours(2);
    world.aws.with(|state| state.reservations[0].end = Some(end));
    let only: [(&str, &[&str]); 1] = [(labels::CAPACITY_TYPE, &[labels::RESERVED])];
    let launched = world.provider.create(&claim("u1", &only)).await.expect("bought");
    assert_eq!(label(&launched, labels::CAPACITY_TYPE), labels::RESERVED);
    let events = async || {
        world.provider.list().await.expect("known");
        world.provider.next_events(EventCursor::default()).await.expect("known").events
    };
    world.aws.clock().advance(Duration::from_mins(79));
    assert_eq!(events().await, []);
    world.aws.clock().advance(Duration::from_mins(1));
    let at = end - Duration::from_mins(30);
    for _ in 0..2 {
        let told = events().await;
        let [ProviderEvent::Notice { .. }, interruption] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(*interruption, ProviderEvent::Ending { id: launched.instance.id.clone(), at });
    }
    let error = world.provider.create(&claim("u2", &only)).await.expect_err("nothing is bought there any more");
    assert!(error.to_string().contains("cr-1") || error.to_string().contains("m5.xlarge"), "{error}");
}
