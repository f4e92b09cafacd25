//! Much goes wrong.

use std::{sync::Arc, time::Duration};

use karpenter_core::{
    Timestamp,
    api::{Node, NodeClaim, Pod},
    engine::{Action, ActionId, ActionResult, Event, Object, Request},
    provider::{EventCursor, ProviderEvent, ProviderId},
};
use karpenter_fake::{
    FakeCloud, generated_catalog,
    sim::{Breach, Workload, World, WorldOptions},
};

use crate::{
    life::{minutes, started},
    naive::Naive,
};

fn running(world: &World) -> usize {
    world.api().list::<Pod>().filter(|pod| pod.status.phase == "Running" && pod.is_active() && !pod.is_daemon()).count()
}

#[test]
fn the_pods_of_an_interrupted_machine_run_elsewhere_later() {
    let (mut world, mut engine) = started(1);
    engine.live(&mut world, minutes(10));
    let node = world.api().list::<Node>().next().expect("there are five").clone();
    let machine = ProviderId::new(&node.spec.provider_id);
    let gone_at = world.cloud().interrupt(&machine, Duration::from_mins(2));
    assert_eq!(gone_at, Some(minutes(12)));
    world.execute(Request { id: ActionId(900), action: Action::NextEvents(EventCursor::default()) });
    world.advance(minutes(10) + Duration::from_secs(3));
    let told = world.take_events().into_iter().find_map(|event| match event {
        Event::Done { id: ActionId(900), result: ActionResult::Events(Ok(told)) } => Some(told.events),
        _ => None,
    });
    assert_eq!(told, Some(vec![ProviderEvent::Interruption { id: machine, at: minutes(12) }]));
    engine.live(&mut world, minutes(12) + Duration::from_secs(30));
    assert!(world.api().node(&node.metadata.name).is_some(), "nobody has noticed yet");
    engine.live(&mut world, minutes(20));
    assert!(world.api().node(&node.metadata.name).is_none());
    assert_eq!((running(&world), world.api().list::<Node>().count()), (30, 5));
    assert_eq!(world.take_breaches(), []);
}

#[test]
fn lost_and_slow_calls_buy_no_machine_twice() {
    let mut options = WorldOptions::default();
    options.lost_calls_ppm = 300_000;
    options.slow_calls_ppm = 200_000;
    let cloud = FakeCloud::new(generated_catalog()).launch_delay(Duration::from_secs(40));
    let mut world = World::with(2, Arc::new(cloud), options);
    let mut engine = Naive::new("s-4x-amd64-linux", 6);
    let pod = Pod::named("web").label("app", "web").cpu("500m").memory("512Mi");
    world.apply(Workload::deployment("web", 60, pod).expect("well written"));
    engine.live(&mut world, minutes(60));
    assert_eq!(running(&world), 60);
    assert_eq!(world.take_breaches(), []);
}

#[test]
fn machines_that_nobody_owns_are_found() {
    let mut world = World::new(3, generated_catalog());
    let claim = world.api_mut().create(NodeClaim::named("lost")).expect("new");
    world.execute(Request { id: ActionId(1), action: Action::Launch(Box::new(NodeClaim::clone(&claim))) });
    let (name, uid) = ("lost".to_owned(), claim.metadata.uid.clone());
    world.execute(Request { id: ActionId(2), action: Action::DeleteClaim { name, uid } });
    world.advance(minutes(30));
    let breaches = world.take_breaches();
    assert!(matches!(breaches.as_slice(), [Breach::Leaked { .. }]), "{breaches:?}");
}

#[test]
fn pods_that_must_be_left_alone_are_missed_when_evicted() {
    let mut world = World::new(3, generated_catalog());
    let mut engine = Naive::new("s-4x-amd64-linux", 6);
    let pod = Pod::named("web").label("app", "web").cpu("500m");
    let mut workload = Workload::deployment("web", 1, pod).expect("well written");
    workload.template.metadata.annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
    world.apply(workload);
    engine.live(&mut world, minutes(5));
    let pod = world.api().list::<Pod>().next().expect("one").clone();
    let (key, uid) = (pod.key(), pod.metadata.uid.clone());
    let delete = Action::DeletePod { pod: key.clone(), uid: uid.clone(), grace_period: Duration::from_secs(5) };
    world.execute(Request { id: ActionId(1_000), action: delete });
    world.advance(minutes(5) + Duration::from_secs(1));
    assert_eq!(world.take_breaches(), [Breach::Hurried { pod: key, node: pod.spec.node_name.clone() }]);
    engine.live(&mut world, minutes(7));
    let pod = world.api().list::<Pod>().next().expect("made anew").clone();
    let evict = Action::Evict { pod: pod.key(), uid: pod.metadata.uid.clone() };
    world.execute(Request { id: ActionId(1_001), action: evict });
    world.advance(minutes(8));
    assert_eq!(world.take_breaches(), [Breach::Disturbed { pod: pod.key() }]);
}

#[test]
fn a_watch_that_was_lost_tells_everything_anew() {
    let (mut world, mut engine) = started(4);
    engine.live(&mut world, minutes(5));
    world.take_events();
    world.lose_watch(Duration::from_mins(1));
    world.scale(&"default/web".parse().expect("a key"), 10);
    world.advance(minutes(5) + Duration::from_secs(50));
    assert!(world.take_events().is_empty());
    world.advance(minutes(7));
    let told = world.take_events();
    let synced = told.iter().position(|event| matches!(event, Event::Synced)).expect("told when all is told");
    let pods = told[..synced].iter().filter(|event| matches!(event, Event::Applied(Object::Pod(_)))).count();
    assert!((10..40).contains(&pods), "{pods}");
}

#[test]
fn a_machine_that_dies_in_silence_is_noticed_by_its_kubelet() {
    let (mut world, mut engine) = started(5);
    engine.live(&mut world, minutes(10));
    let node = world.api().list::<Node>().next().expect("there are five").clone();
    world.cloud().kill(&ProviderId::new(&node.spec.provider_id), false);
    world.advance(minutes(10) + Duration::from_secs(52));
    let lost = world.api().node(&node.metadata.name).expect("the cloud was not asked yet");
    assert_eq!(lost.status.conditions[0].status, karpenter_core::api::ConditionStatus::Unknown);
    engine.live(&mut world, minutes(20));
    assert_eq!(running(&world), 30);
    assert_eq!(world.now(), Timestamp::from_millis(20 * 60_000));
}
