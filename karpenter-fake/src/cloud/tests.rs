use karpenter_core::{
    CloudProvider, OfferingKey, Price, Quantity, Timestamp,
    api::{NodeClaim, NodePool, NodeSelectorRequirement, ObjectKey, Operator, Taint, TaintEffect},
    engine::Action,
    labels,
    provider::{CreateError, Deletion, EventCursor, ProviderErrorKind, ProviderEvent, ProviderId},
};
use std::{future::Future, sync::Arc, time::Duration};

use super::{Bill, FakeCloud, offerings_of};
use crate::generated_catalog;

/// Runs a future that waits for nothing.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn claim(uid: &str, requirements: &[(&str, &[&str])]) -> NodeClaim {
    let mut claim = NodeClaim::named(format!("claim-{uid}"));
    claim.metadata.uid = uid.to_owned();
    for (key, values) in requirements {
        let requirement = NodeSelectorRequirement::new(*key, Operator::In, values.iter().copied());
        claim.spec.requirements.push(requirement);
    }
    claim
}

fn key(capacity_type: &str, zone: &str) -> OfferingKey {
    let (instance_type, zone) = ("s-4x-amd64-linux".to_owned(), zone.to_owned());
    OfferingKey { instance_type, zone, capacity_type: capacity_type.to_owned() }
}

const S4: (&str, &[&str]) = (labels::INSTANCE_TYPE, &["s-4x-amd64-linux"]);
const ZONE_A: (&str, &[&str]) = (labels::ZONE, &["test-zone-a"]);

#[test]
fn the_cheapest_offering_that_the_claim_allows_is_bought() {
    let cloud = FakeCloud::new(generated_catalog());
    let mut wanted = claim("1", &[S4, (labels::ZONE, &["test-zone-b", "test-zone-c"]), ("team", &["web"])]);
    wanted.spec.taints.push(Taint::new("dedicated", "web", TaintEffect::NoSchedule));
    let launched = run(cloud.create(&wanted)).expect("for sale");
    let bought = &launched.instance.labels;
    assert_eq!((bought[labels::CAPACITY_TYPE].as_str(), bought["team"].as_str()), ("spot", "web"));
    let offerings = &generated_catalog().get(S4.1[0]).expect("generated").offerings.clone();
    let allowed = offerings.iter().filter(|o| ["test-zone-b", "test-zone-c"].contains(&o.label(labels::ZONE)));
    assert_eq!(Some(cloud.hourly_cost()), allowed.map(|o| o.price).min());
    let node = &cloud.ready_nodes()[0];
    assert_eq!(node.spec.provider_id, launched.instance.id.as_str());
    assert_eq!(node.spec.taints, wanted.spec.taints);
    assert_eq!(node.metadata.labels[labels::HOSTNAME], node.metadata.name);
}

#[test]
fn a_machine_has_room_for_what_its_claim_asks_for() {
    let cloud = FakeCloud::new(generated_catalog());
    let mut wanted = claim("1", &[]);
    wanted.spec.resources.requests.insert("cpu".into(), Quantity::from_units(3));
    let launched = run(cloud.create(&wanted)).expect("for sale");
    assert!(launched.allocatable.get("cpu") >= Some(Quantity::from_units(3)), "{launched:?}");
    let mut huge = claim("2", &[S4]);
    huge.spec.resources.requests.insert("cpu".into(), Quantity::from_units(5));
    let error = run(cloud.create(&huge)).expect_err("four cores have no room for five");
    let expected = "no offering meets the requirements: no type that meets them has room for cpu 5";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_claim_has_one_machine_however_often_it_asks() {
    let cloud = FakeCloud::new(generated_catalog());
    let first = run(cloud.create(&claim("1", &[S4]))).expect("for sale");
    assert_eq!(run(cloud.create(&claim("1", &[S4]))), Ok(first));
    run(cloud.create(&claim("2", &[S4]))).expect("for sale");
    assert_eq!(cloud.machine_counts().into_iter().collect::<Vec<_>>(), [(S4.1[0].to_owned(), 2)]);
}

#[test]
fn sold_out_offerings_are_named_and_passed_over() {
    let cloud = FakeCloud::new(generated_catalog());
    cloud.exhaust(key("spot", "test-zone-a"));
    let launched = run(cloud.create(&claim("1", &[S4, ZONE_A]))).expect("on demand is left");
    assert_eq!(launched.instance.labels[labels::CAPACITY_TYPE], "on-demand");
    cloud.limit(key("on-demand", "test-zone-a"), 1);
    let refused = CreateError::InsufficientCapacity {
        offerings: vec![key("spot", "test-zone-a"), key("on-demand", "test-zone-a")],
    };
    assert_eq!(run(cloud.create(&claim("2", &[S4, ZONE_A]))), Err(refused));
    assert_eq!(cloud.capacity_errors(), 1);
    cloud.restore(&key("spot", "test-zone-a"));
    assert!(run(cloud.create(&claim("2", &[S4, ZONE_A]))).is_ok());
}

#[test]
fn what_nothing_meets_is_named() {
    let cloud = FakeCloud::new(generated_catalog());
    let error = run(cloud.create(&claim("1", &[S4, (labels::ARCH, &["riscv64"])]))).expect_err("no such machine");
    let offerings = generated_catalog().types().iter().map(|t| t.offerings.len()).sum::<usize>();
    let of_type = 8;
    let expected = format!(
        "no offering meets the requirements: {} In [riscv64] rules out {offerings} of {offerings} offerings",
        labels::ARCH
    );
    assert_eq!(error.to_string(), expected);
    let error = run(cloud.create(&claim("1", &[S4, (labels::ZONE, &["moon"])]))).expect_err("no such zone");
    let others = offerings - of_type;
    assert!(
        error.to_string().contains(&format!("{} In [{}] rules out {others}", labels::INSTANCE_TYPE, S4.1[0])),
        "{error}"
    );
    assert!(run(cloud.list()).expect("no outage").is_empty());
}

#[test]
fn machines_come_and_go_in_their_time() {
    let second = Duration::from_secs(1);
    let cloud = FakeCloud::new(generated_catalog()).launch_delay(2 * second).termination_delay(3 * second);
    let at = |seconds: i64| cloud.set_now(Timestamp::from_millis(seconds * 1000));
    let id = run(cloud.create(&claim("1", &[S4]))).expect("for sale").instance.id;
    assert!(cloud.ready_nodes().is_empty());
    at(2);
    assert_eq!(cloud.ready_nodes().len(), 1);
    assert_eq!(run(cloud.delete(&id)), Ok(Deletion::Started));
    assert!(cloud.ready_nodes().is_empty());
    assert!(run(cloud.get(&id)).expect("no outage").is_some_and(|i| i.is_terminating));
    at(4);
    assert_eq!(run(cloud.delete(&id)), Ok(Deletion::Started));
    at(5);
    assert_eq!(run(cloud.get(&id)), Ok(None));
    assert_eq!(run(cloud.delete(&id)), Ok(Deletion::Gone));
    assert!(cloud.machine_counts().is_empty());
}

#[test]
fn an_outage_fails_every_call() {
    let cloud = FakeCloud::new(generated_catalog());
    let id = run(cloud.create(&claim("1", &[S4]))).expect("for sale").instance.id;
    cloud.set_outage(Some(ProviderErrorKind::Throttled));
    let error = run(cloud.list()).expect_err("outage");
    assert_eq!((error.operation.as_ref(), error.kind), ("list", ProviderErrorKind::Throttled));
    assert!(run(cloud.catalog(&NodePool::named("p"))).is_err());
    assert!(run(cloud.create(&claim("2", &[S4]))).is_err());
    assert!(run(cloud.get(&id)).is_err() && run(cloud.delete(&id)).is_err());
    cloud.set_outage(None);
    assert_eq!(run(cloud.list()).map(|l| l.len()), Ok(1));
}

#[test]
fn a_pool_sees_the_types_that_are_meant_for_it() {
    let mut types = crate::generated_types();
    types[0].node_pools = Some(vec!["other".to_owned()]);
    let (name, count) = (types[0].name.clone(), types.len());
    let cloud = FakeCloud::new(karpenter_core::Catalog::new(types).expect("valid").into());
    let seen = run(cloud.catalog(&NodePool::named("p"))).expect("no outage");
    assert_eq!((seen.types().len(), seen.get(&name)), (count - 1, None));
    assert!(run(cloud.catalog(&NodePool::named("other"))).expect("no outage").get(&name).is_some());
    assert_eq!(offerings_of(&seen, "spot").len(), (count - 1) * 4);
}

#[test]
fn prices_change_for_what_runs_and_for_what_is_bought() {
    let cloud = FakeCloud::new(generated_catalog());
    let only_spot = [S4, ZONE_A, (labels::CAPACITY_TYPE, &["spot"])];
    run(cloud.create(&claim("1", &only_spot))).expect("for sale");
    let price = Price::per_hour(3.6).expect("a price");
    cloud.set_price(&key("spot", "test-zone-a"), price);
    assert_eq!(cloud.hourly_cost(), price);
    let cheapest = run(cloud.create(&claim("2", &[S4, ZONE_A]))).expect("for sale").instance;
    assert_eq!(cheapest.labels[labels::CAPACITY_TYPE], "on-demand");
    let before = cloud.bill().micro_dollars();
    cloud.set_now(Timestamp::from_millis(10_000));
    let micro_dollars_per_hour = cloud.hourly_cost().nano_dollars_per_hour() / 1000;
    assert_eq!((before, cloud.bill().micro_dollars()), (0, micro_dollars_per_hour / 360));
}

#[test]
fn windows_end_by_themselves() {
    let cloud = FakeCloud::new(generated_catalog());
    let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
    cloud.throttle(at(0), at(10));
    let error = run(cloud.list()).expect_err("too many calls");
    assert_eq!(error.kind, ProviderErrorKind::Throttled);
    cloud.set_now(at(10));
    assert_eq!(run(cloud.list()), Ok(Vec::new()));
    let spot = key("spot", "test-zone-a");
    cloud.exhaust_between(spot, at(10), at(20));
    let only_spot = [S4, ZONE_A, (labels::CAPACITY_TYPE, &["spot"])];
    assert!(matches!(run(cloud.create(&claim("1", &only_spot))), Err(CreateError::InsufficientCapacity { .. })));
    cloud.set_now(at(20));
    assert!(run(cloud.create(&claim("1", &only_spot))).is_ok());
}

#[test]
fn machines_are_billed_until_they_are_gone_and_their_end_is_told_once() {
    let cloud = FakeCloud::new(generated_catalog()).termination_delay(Duration::from_secs(30));
    let bought: Vec<_> =
        (0..3).map(|i| run(cloud.create(&claim(&i.to_string(), &[S4]))).expect("for sale").instance.id).collect();
    cloud.kill(&bought[0], true);
    cloud.kill(&bought[1], false);
    assert_eq!(run(cloud.delete(&bought[2])), Ok(Deletion::Started));
    cloud.set_now(Timestamp::from_millis(100_000));
    assert_eq!(cloud.bill().machine_seconds(), 30);
    let told = run(cloud.next_events(EventCursor::default())).expect("no outage");
    assert_eq!(told.events, [ProviderEvent::Terminated { id: bought[0].clone() }]);
    assert_eq!(run(cloud.next_events(told.cursor)).expect("no outage").events, []);
}

#[test]
fn a_machine_that_has_less_memory_says_so_only_as_a_node() {
    let cloud = FakeCloud::new(generated_catalog());
    cloud.withhold_memory("s-4x-amd64-linux", 1 << 30);
    let launched = run(cloud.create(&claim("1", &[S4]))).expect("for sale");
    let node = cloud.ready_nodes().remove(0);
    let promised = launched.allocatable.get("memory").expect("promised").units_floor();
    assert_eq!(node.status.allocatable.get("memory").map(Quantity::units_floor), Some(promised - (1 << 30)));
}

#[tokio::test]
async fn the_invoice_is_the_bill_through_interruptions_and_changes_of_price() {
    let cloud = FakeCloud::new(generated_catalog()).termination_delay(Duration::from_secs(30));
    let mut machines = Vec::new();
    for number in 0..4_i64 {
        cloud.set_now(Timestamp::from_millis(number * 100_001));
        let mut claim = NodeClaim::named(format!("claim-{number}"));
        claim.metadata.uid = number.to_string();
        machines.push(cloud.create(&claim).await.expect("sold without end").instance);
    }
    let labels = &machines[0].labels;
    let offering = OfferingKey {
        instance_type: labels[labels::INSTANCE_TYPE].clone(),
        zone: labels[labels::ZONE].clone(),
        capacity_type: labels[labels::CAPACITY_TYPE].clone(),
    };
    cloud.interrupt(&machines[1].id, Duration::from_mins(2));
    cloud.set_price(&offering, Price::per_hour(3.7).expect("a price"));
    cloud.set_now(Timestamp::from_millis(1_000_007));
    cloud.delete(&machines[2].id).await.expect("it is there");
    cloud.set_price(&offering, Price::per_hour(0.013).expect("a price"));
    cloud.set_now(Timestamp::from_millis(7_000_003));
    let invoice = cloud.invoice();
    assert!(invoice[&offering].micro_dollars() > 0);
    assert_eq!(invoice.into_values().sum::<Bill>(), cloud.bill());
}

#[test]
fn actions_are_calls_of_the_provider_if_they_name_one_of_its_methods() {
    let cloud = FakeCloud::new(generated_catalog());
    let (claim, pool) = (Box::new(claim("1", &[S4])), Box::new(NodePool::named("general")));
    let (name, uid, pod) = (String::new(), String::new(), ObjectKey::default());
    let machine = ProviderId::new("nowhere");
    let calls = [
        Action::Launch(claim.clone()),
        Action::Terminate(machine.clone()),
        Action::Get(machine),
        Action::List,
        Action::Catalog(pool.clone()),
        Action::Drift(Arc::new(NodeClaim::clone(&claim))),
        Action::NextEvents(EventCursor::default()),
    ];
    for action in calls {
        assert!(action.provider_method().is_some(), "{action:?}");
        assert!(run(action.clone().call(&cloud)).is_ok(), "{action:?}");
    }
    let writes = [
        Action::CreateClaim(claim),
        Action::UpdatePool(pool),
        Action::DeleteNode { name, uid: uid.clone() },
        Action::Evict { pod, uid },
    ];
    for action in writes {
        assert_eq!(action.provider_method(), None, "{action:?}");
        assert_eq!(run(action.clone().call(&cloud)).err(), Some(action));
    }
}
