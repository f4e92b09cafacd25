//! Zones that a zonal shift takes traffic away from.

use std::{collections::BTreeSet, time::Duration};

use karpenter_aws::{Clock as _, ec2::shift::ZonalShift, instance_type::labels as own};
use karpenter_core::{
    CloudProvider, Timestamp,
    api::{NodeSelectorRequirement, Operator},
    labels,
    provider::ProviderId,
};

use crate::{
    cluster::Cluster,
    world::{World, claim, label, pool},
};

const ARN: &str = "arn:aws:eks:us-west-2:123456789012:cluster/test";

fn ids(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|id| (*id).to_owned()).collect()
}

fn shift(zone_id: &str, expiry: Option<Timestamp>) -> ZonalShift {
    ZonalShift { zone_id: zone_id.to_owned(), expiry, is_applied: true }
}

/// ARC has these shifts, and is asked.
async fn ask(world: &World, shifts: Vec<ZonalShift>) -> BTreeSet<String> {
    world.aws.with(|state| state.shifts = shifts);
    world.provider.ask_for_shifts(ARN).await.expect("answers")
}

/// The zones of offerings that can be bought, of any kind.
async fn open_zones(world: &World) -> BTreeSet<String> {
    let catalog = world.provider.catalog(&pool()).await.expect("known");
    let offerings = catalog.types().iter().flat_map(|own| &own.offerings);
    offerings.filter(|one| one.available).map(|one| one.label(labels::ZONE).to_owned()).collect()
}

async fn bought_in(world: &World, uid: &str, zone: &str) -> (ProviderId, String) {
    let launched = world.provider.create(&claim(uid, &[(labels::ZONE, &[zone])])).await.expect("bought");
    let machine = launched.instance.id.as_str().rsplit('/').next().expect("an id").to_owned();
    (launched.instance.id, machine)
}

#[tokio::test]
async fn nothing_is_bought_in_a_zone_until_its_shift_expires() {
    let world = World::new();
    assert_eq!(open_zones(&world).await, ids(&["us-west-2a", "us-west-2b", "us-west-2c"]));
    let expiry = world.aws.clock().now() + Duration::from_mins(10);
    assert_eq!(ask(&world, vec![shift("usw2-az1", Some(expiry))]).await, ids(&["usw2-az1"]));
    assert_eq!(open_zones(&world).await, ids(&["us-west-2b", "us-west-2c"]));
    let launched = world.provider.create(&claim("u1", &[])).await.expect("other zones are open");
    assert_ne!(label(&launched, labels::ZONE), "us-west-2a");
    world.provider.create(&claim("u2", &[(labels::ZONE, &["us-west-2a"])])).await.expect_err("the zone is left alone");
    // Nobody asks again: it is over all the same.
    world.aws.clock().advance(Duration::from_mins(10));
    assert_eq!(world.provider.shifted_zone_ids(), ids(&[]));
    assert_eq!(open_zones(&world).await.len(), 3);
}

#[tokio::test]
async fn of_several_shifts_those_count_that_are_there_and_have_an_effect() {
    let world = World::new();
    let later = Some(world.aws.clock().now() + Duration::from_hours(1));
    let both = vec![shift("usw2-az1", later), shift("usw2-az2", None)];
    assert_eq!(ask(&world, both).await, ids(&["usw2-az1", "usw2-az2"]));
    assert_eq!(ask(&world, vec![shift("usw2-az2", None)]).await, ids(&["usw2-az2"]), "one was cancelled");
    let idle = ZonalShift { is_applied: false, ..shift("usw2-az3", later) };
    assert_eq!(ask(&world, vec![idle, shift("usw2-az1", Some(world.aws.clock().now()))]).await, ids(&[]));
    assert_eq!(open_zones(&world).await.len(), 3);
}

#[tokio::test]
async fn what_arc_said_last_holds_while_it_does_not_answer() {
    let world = World::new();
    ask(&world, vec![shift("usw2-az1", None)]).await;
    world.aws.refuse("GetManagedResource", "AccessDeniedException", "no");
    world.provider.ask_for_shifts(ARN).await.expect_err("refused");
    assert_eq!(world.provider.shifted_zone_ids(), ids(&["usw2-az1"]));
    let error = world.provider.ask_for_shifts("arn:aws:eks:us-west-2:1:cluster/other").await.expect_err("unknown");
    assert!(error.to_string().contains("ResourceNotFoundException"), "{error}");
}

#[tokio::test]
async fn machines_of_a_shifted_zone_stay_as_they_are() {
    let world = World::new();
    let (id, machine) = bought_in(&world, "u1", "us-west-2a").await;
    let (elsewhere, _) = bought_in(&world, "u2", "us-west-2b").await;
    world.aws.clock().advance(Duration::from_mins(5));
    ask(&world, vec![shift("usw2-az1", None)]).await;
    world.provider.delete(&id).await.expect_err("it is not given back");
    world.provider.delete(&elsewhere).await.expect("it is");
    let mut named = claim("u1", &[]);
    id.as_str().clone_into(&mut named.status.provider_id);
    "node-1".clone_into(&mut named.status.node_name);
    world.provider.name_machine(&named).await.expect_err("it is not tagged");
    // EC2 tells nothing of the zone.
    let hidden = world.aws.with(|state| state.instances.remove(&machine)).expect("there");
    let listed = async || world.provider.list().await.expect("answers").iter().any(|one| one.id == id);
    assert!(listed().await, "the engine would miss it");
    world.provider.get(&id).await.expect_err("it is not taken for gone");
    world.provider.create(&claim("u1", &[])).await.expect_err("nor bought again");
    assert_eq!(world.aws.count("CreateFleet"), 2);
    ask(&world, Vec::new()).await;
    assert!(!listed().await);
    assert_eq!(world.provider.get(&id).await.expect("answers"), None);
    world.aws.with(|state| state.instances.insert(machine, hidden));
    world.provider.delete(&id).await.expect("it is given back");
}

#[tokio::test]
async fn who_takes_over_during_a_shift_takes_no_machine_for_gone() {
    let mut world = World::new();
    let (id, machine) = bought_in(&world, "u1", "us-west-2a").await;
    world.aws.clock().advance(Duration::from_mins(5));
    world.restart();
    world.provider.adopt(&id, "u1");
    ask(&world, vec![shift("usw2-az1", None)]).await;
    world.provider.delete(&id).await.expect_err("it is not given back");
    world.aws.with(|state| state.instances.remove(&machine));
    assert_eq!(world.provider.list().await.expect("answers").len(), 1);
    world.provider.get(&id).await.expect_err("it is not taken for gone");
}

#[tokio::test]
async fn pools_that_may_buy_in_a_zone_hear_that_its_shift_begins_and_ends() {
    let world = World::new();
    let require = |key: &str, value: &str| {
        let mut own = pool();
        value.clone_into(&mut own.metadata.name);
        own.require(NodeSelectorRequirement::new(key, Operator::In, [value]))
    };
    let mut of_no_class = pool();
    "none".clone_into(&mut of_no_class.spec.template.spec.node_class_ref.name);
    let pools = [
        pool(),
        require(labels::ZONE, "us-west-2a"),
        require(labels::ZONE, "us-west-2b"),
        require(own::ZONE_ID, "usw2-az1"),
        require(own::ZONE_ID, "usw2-az2"),
        of_no_class,
    ];
    let told = |news: Vec<karpenter_aws::provider::ShiftNews>| -> Vec<(String, &'static str, String)> {
        news.into_iter().map(|one| (one.pool.clone(), one.reason(), one.zone)).collect()
    };
    let expected = |reason: &'static str| {
        ["general", "us-west-2a", "usw2-az1"].map(|name| (name.to_owned(), reason, "us-west-2a".to_owned())).to_vec()
    };
    let (none, one) = (ids(&[]), ids(&["usw2-az1", "usw2-az9"]));
    let begins = world.provider.shift_news(&pools, &none, &one).await.expect("known");
    assert_eq!(told(begins), expected("ZonalShiftActive"));
    assert_eq!(world.provider.shift_news(&pools, &one, &one).await, Ok(Vec::new()), "it is known");
    let ends = world.provider.shift_news(&pools, &one, &none).await.expect("known");
    assert_eq!(told(ends), expected("ZonalShiftCleared"));
    let other = World::new();
    other.aws.refuse("DescribeSubnets", "RequestLimitExceeded", "slow down");
    other.provider.shift_news(&pools, &none, &one).await.expect_err("it is tried again");
}

#[tokio::test]
async fn pods_that_come_during_a_shift_get_nodes_in_other_zones() {
    let mut cluster = Cluster::new();
    cluster.run(90).await;
    cluster.aws.with(|state| state.shifts = vec![shift("usw2-az1", None), shift("usw2-az2", None)]);
    cluster.provider.ask_for_shifts(ARN).await.expect("answers");
    // Until the engine has asked again, the launch tells it that there is nothing to be had there.
    cluster.add_pods(8, "900m");
    cluster.run(120).await;
    assert_eq!(cluster.unbound(), 0);
    let zones: BTreeSet<String> =
        cluster.aws.with(|state| state.instances.values().map(|machine| machine.zone.clone()).collect());
    assert_eq!(zones, ids(&["us-west-2c"]));
}
