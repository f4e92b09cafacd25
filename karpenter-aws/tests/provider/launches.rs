use std::time::Duration;

use futures_util::future::{join, join_all};
use karpenter_aws::{
    ApiError,
    ec2::{
        fleet::{Allocation, TargetKind},
        network::Subnet,
    },
    instance_type::labels as own,
    mem::{Exhausted, Fault},
    nodeclass::SubnetSelectorTerm,
};
use karpenter_core::{
    CloudProvider, labels,
    provider::{CreateError, Deletion, EventCursor, ProviderErrorKind, ProviderEvent},
};

use crate::world::{World, claim, class, label, pool};

#[tokio::test]
async fn spot_is_bought_before_on_demand_and_the_cheapest_is_taken() {
    let world = World::new();
    let claim = claim("u1", &[(labels::ARCH, &["amd64"])]);
    let launched = world.provider.create(&claim).await.expect("bought");
    assert_eq!(label(&launched, labels::INSTANCE_TYPE), "c5.large");
    assert_eq!(label(&launched, labels::CAPACITY_TYPE), labels::SPOT);
    assert_eq!((label(&launched, labels::NODE_POOL), label(&launched, own::TENANCY)), ("general", "default"));
    assert!(label(&launched, own::ZONE_ID).starts_with("usw2-az"));
    assert_eq!(launched.image_id, "ami-x86");
    let fleet = world.aws.with(|state| state.fleets[0].clone());
    assert_eq!((fleet.target, fleet.allocation), (TargetKind::Spot, Some(Allocation::PriceCapacityOptimized)));
    assert!(fleet.client_token.len() <= 64);
    for (key, value) in [
        ("karpenter.sh/nodepool", "general"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("eks:eks-cluster-name", "test"),
        ("kubernetes.io/cluster/test", "owned"),
        ("karpenter.sh/nodeclaim", "general-u1"),
    ] {
        assert_eq!(fleet.tags[key], value);
    }
    let exotic = |name: &str| name.contains("metal") || name.starts_with("g4dn");
    let choices = fleet.configs.iter().flat_map(|config| &config.overrides);
    assert!(choices.into_iter().all(|choice| !exotic(&choice.instance_type)));
}

#[tokio::test]
async fn what_has_no_capacity_is_gone_round_and_remembered() {
    let world = World::new();
    world.aws.with(|state| state.exhausted.push(Exhausted::new("*", "*", "spot")));
    let on_demand = world.provider.create(&claim("u1", &[])).await.expect("on-demand is left");
    assert_eq!(label(&on_demand, labels::CAPACITY_TYPE), labels::ON_DEMAND);
    let asked = world.aws.count("CreateFleet");
    world.provider.create(&claim("u2", &[])).await.expect("bought");
    assert_eq!(world.aws.count("CreateFleet"), asked + 1, "nobody asks for spot again");
    world.aws.with(|state| state.exhausted.clear());
    world.aws.clock().advance(Duration::from_mins(3));
    let spot = world.provider.create(&claim("u3", &[])).await.expect("bought");
    assert_eq!(label(&spot, labels::CAPACITY_TYPE), labels::SPOT);
}

#[tokio::test]
async fn what_had_no_capacity_is_marked_even_where_something_else_was_bought() {
    let world = World::new();
    world.aws.with(|state| state.exhausted.push(Exhausted::new("c5.large", "*", "spot")));
    let launched = world.provider.create(&claim("u1", &[(labels::ARCH, &["amd64"])])).await.expect("bought");
    assert_eq!(label(&launched, labels::INSTANCE_TYPE), "m5.large", "the next in price");
    assert_eq!(world.aws.count("CreateFleet"), 1);
    let catalog = world.provider.catalog(&pool()).await.expect("known");
    let is_open = |kind: &str| {
        let own = catalog.get("c5.large").expect("there");
        own.offerings.iter().any(|one| one.available && one.label(labels::CAPACITY_TYPE) == kind)
    };
    assert_eq!((is_open(labels::SPOT), is_open(labels::ON_DEMAND)), (false, true));
}

#[tokio::test]
async fn codes_that_mean_not_this_one_not_now_lead_to_another() {
    for code in [
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        "InsufficientFreeAddressesInSubnet",
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
    ] {
        let world = World::new();
        let refused = Exhausted { code: code.to_owned(), ..Exhausted::new("*", "*", "spot") };
        world.aws.with(|state| state.exhausted.push(refused));
        let launched = world.provider.create(&claim("u1", &[])).await.expect(code);
        assert_eq!(label(&launched, labels::CAPACITY_TYPE), labels::ON_DEMAND, "{code}");
    }
}

#[tokio::test]
async fn without_the_role_that_spot_needs_nothing_is_bought_as_spot() {
    let world = World::new();
    let mut refused = Exhausted::new("*", "us-west-2a", "spot");
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted".clone_into(&mut refused.code);
    world.aws.with(|state| state.exhausted.push(refused));
    let only: [(&str, &[&str]); 1] = [(labels::ZONE, &["us-west-2a"])];
    let launched = world.provider.create(&claim("u1", &only)).await.expect("on-demand is left");
    assert_eq!(label(&launched, labels::CAPACITY_TYPE), labels::ON_DEMAND);
    let elsewhere = world.provider.create(&claim("u2", &[])).await.expect("bought");
    assert_eq!(label(&elsewhere, labels::CAPACITY_TYPE), labels::ON_DEMAND, "in no zone");
}

#[tokio::test]
async fn a_claim_that_cannot_be_met_names_all_that_was_tried() {
    let world = World::new();
    world.aws.with(|state| state.exhausted.push(Exhausted::everything()));
    let only = claim("u1", &[(labels::INSTANCE_TYPE, &["m5.large"]), (labels::ZONE, &["us-west-2a", "us-west-2b"])]);
    for _ in 0..2 {
        let error = world.provider.create(&only).await.expect_err("nothing is left");
        let CreateError::InsufficientCapacity { offerings } = error else { panic!("{error}") };
        assert_eq!(offerings.len(), 4, "two zones, spot and on-demand: {offerings:?}");
    }
    let catalog = world.provider.catalog(&pool()).await.expect("known");
    let m5 = catalog.get("m5.large").expect("there");
    assert_eq!(m5.offerings.iter().filter(|offering| offering.available).count(), 2, "the third zone was not tried");
}

#[tokio::test]
async fn a_full_subnet_is_no_shortage_elsewhere() {
    let world = World::new();
    world.aws.with(|state| state.subnets[0].free_addresses = 0);
    let only = claim("u1", &[(labels::ZONE, &["us-west-2a"])]);
    assert!(matches!(world.provider.create(&only).await, Err(CreateError::InsufficientCapacity { .. })));
    let launched = world.provider.create(&claim("u2", &[])).await.expect("other zones have addresses");
    assert_ne!(label(&launched, labels::ZONE), "us-west-2a");
}

#[tokio::test]
async fn a_full_subnet_leaves_its_zone_to_a_smaller_one() {
    let mut class = class();
    let by_id = |id: &str| SubnetSelectorTerm { id: id.to_owned(), ..SubnetSelectorTerm::default() };
    class.spec.subnet_selector_terms = ["subnet-1", "subnet-9"].map(by_id).to_vec();
    let world = World::with(class);
    world.aws.with(|state| {
        let small = Subnet { id: "subnet-9".to_owned(), free_addresses: 5, ..state.subnets[0].clone() };
        state.subnets.push(small);
    });
    world.provider.catalog(&pool()).await.expect("known");
    // EC2 said a moment ago that there are many.
    world.aws.with(|state| state.subnets[0].free_addresses = 0);
    for uid in ["u1", "u2"] {
        world.provider.create(&claim(uid, &[(labels::CAPACITY_TYPE, &[labels::ON_DEMAND])])).await.expect("bought");
    }
    assert_eq!(world.aws.count("CreateFleet"), 3, "one found out");
}

#[tokio::test]
async fn claims_that_are_alike_share_fleets_and_get_machines_of_their_own() {
    let world = World::new();
    let claims: Vec<_> = (0..20).map(|i| claim(&format!("{i:036}"), &[])).collect();
    let launched = join_all(claims.iter().map(|claim| world.provider.create(claim))).await;
    let mut ids: Vec<_> = launched.into_iter().map(|l| l.expect("bought").instance.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.machines()), (20, 20));
    assert!(world.aws.count("CreateFleet") <= 6, "{} fleets", world.aws.count("CreateFleet"));
    for fleet in world.aws.with(|state| state.fleets.clone()) {
        assert!(fleet.tags.values().all(|value| value.len() <= 256));
    }
}

#[tokio::test]
async fn machines_that_cannot_be_told_apart_now_are_not_waited_for() {
    let mut world = World::new();
    let error = ApiError::refused("CreateTags", "RequestLimitExceeded", "Request limit exceeded.");
    world.aws.with(|state| state.faults.push(Fault { operation: "CreateTags", times: 100, error, is_done: false }));
    let claims: Vec<_> = (0..6).map(|i| claim(&format!("{i:036}"), &[])).collect();
    let launched = join_all(claims.iter().map(|claim| world.provider.create(claim))).await;
    assert_eq!((world.aws.count("CreateFleet"), world.aws.count("CreateTags")), (1, 1));
    world.restart();
    let told = world.provider.list().await.expect("answers");
    for (claim, launched) in claims.iter().zip(launched) {
        let id = launched.expect("bought").instance.id;
        let machine = told.iter().find(|machine| machine.id == id).expect("there");
        assert_eq!(machine.claim_uid, claim.metadata.uid, "the order tells");
    }
}

#[tokio::test]
async fn a_thousand_claims_that_are_alike_share_as_few_fleets_as_there_can_be() {
    let world = World::new();
    world.aws.with(|state| state.subnets.iter_mut().for_each(|subnet| subnet.free_addresses = 16_000));
    let claims: Vec<_> = (0..1000).map(|i| claim(&format!("{i:036}"), &[])).collect();
    let launched = join_all(claims.iter().map(|claim| world.provider.create(claim))).await;
    assert!(launched.iter().all(Result::is_ok));
    assert_eq!(world.machines(), 1000);
    let (fleets, six_to_a_fleet) = (world.aws.count("CreateFleet"), 1000_usize.div_ceil(6));
    assert!(fleets <= six_to_a_fleet + 10, "{fleets} fleets");
    let once_for_each = |call: &&&str| matches!(**call, "CreateFleet" | "CreateTags");
    let others = world.aws.with(|state| state.calls.iter().filter(|call| !once_for_each(call)).count());
    assert!(others < 50, "{others} other calls");
}

#[tokio::test]
async fn a_lost_answer_buys_once() {
    let world = World::new();
    world.aws.lose_answer("CreateFleet");
    let claim = claim("u1", &[]);
    let error = world.provider.create(&claim).await.expect_err("lost");
    assert!(matches!(error, CreateError::Provider(e) if e.kind == ProviderErrorKind::Unavailable));
    let launched = world.provider.create(&claim).await.expect("it was bought");
    assert_eq!(world.machines(), 1);
    let again = world.provider.create(&claim).await.expect("the same");
    assert_eq!(launched.instance, again.instance);
}

#[tokio::test]
async fn a_lost_answer_buys_once_though_asking_again_is_refused_for_a_while() {
    for code in ["ExpiredToken", "UnauthorizedOperation", "RequestLimitExceeded"] {
        let world = World::new();
        world.aws.lose_answer("CreateFleet");
        let claim = claim("u1", &[]);
        world.provider.create(&claim).await.expect_err("lost");
        world.aws.refuse("CreateFleet", code, "not now");
        world.provider.create(&claim).await.expect_err("refused");
        world.provider.create(&claim).await.expect("it was bought");
        assert_eq!(world.machines(), 1, "{code}");
    }
}

#[tokio::test]
async fn a_lost_answer_buys_once_for_claims_that_shared_a_fleet() {
    let world = World::new();
    world.aws.lose_answer("CreateFleet");
    let claims = ["u1", "u2", "u3"].map(|uid| claim(uid, &[]));
    for answer in join_all(claims.iter().map(|claim| world.provider.create(claim))).await {
        answer.expect_err("lost");
    }
    let mut ids = Vec::new();
    for claim in &claims {
        ids.push(world.provider.create(claim).await.expect("it was bought").instance.id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.machines()), (3, 3));
}

#[tokio::test]
async fn another_process_knows_what_was_bought() {
    let mut world = World::new();
    let claims = ["u1", "u2"].map(|uid| claim(uid, &[]));
    let before = join_all(claims.iter().map(|claim| world.provider.create(claim))).await;
    world.restart();
    let listed = world.provider.list().await.expect("known");
    for (claim, launched) in claims.iter().zip(before) {
        let launched = launched.expect("bought");
        let again = world.provider.create(claim).await.expect("the same");
        assert_eq!(
            (again.instance.id, &again.instance.labels),
            (launched.instance.id.clone(), &launched.instance.labels)
        );
        let found = listed.iter().find(|instance| instance.id == launched.instance.id).expect("listed");
        assert_eq!(found.claim_uid, claim.metadata.uid);
    }
    assert_eq!(world.machines(), 2);
}

#[tokio::test]
async fn machines_of_another_controller_are_left_alone_until_they_are_adopted() {
    let world = World::new();
    let launched = world.provider.create(&claim("u1", &[])).await.expect("bought");
    world.aws.with(|state| {
        for machine in state.instances.values_mut() {
            machine.tags.remove("karpenter.k8s.aws/nodeclaim-uid");
        }
    });
    let mut taken_over = World { aws: world.aws.clone(), provider: world.provider.clone() };
    taken_over.restart();
    assert!(taken_over.provider.list().await.expect("known").is_empty());
    taken_over.provider.adopt(&launched.instance.id, "theirs");
    let listed = taken_over.provider.list().await.expect("known");
    assert_eq!(listed.iter().map(|i| i.claim_uid.as_str()).collect::<Vec<_>>(), ["theirs"]);
}

#[tokio::test]
async fn machines_go_once_and_then_are_gone() {
    let world = World::new();
    let id = world.provider.create(&claim("u1", &[])).await.expect("bought").instance.id;
    assert_eq!(world.provider.delete(&id).await, Ok(Deletion::Started));
    assert_eq!(world.provider.delete(&id).await, Ok(Deletion::Started));
    assert_eq!(world.aws.count("TerminateInstances"), 1);
    assert_eq!(world.provider.delete(&id).await, Ok(Deletion::Gone));
    assert_eq!(world.provider.get(&id).await, Ok(None));
    assert!(world.provider.list().await.expect("known").is_empty());
}

#[tokio::test]
async fn a_bad_id_does_not_spoil_the_question_for_others() {
    let world = World::new();
    let id = world.provider.create(&claim("u1", &[])).await.expect("bought").instance.id;
    let bad = karpenter_core::provider::ProviderId::new("aws:///us-west-2a/i-0bad");
    let (good, missing) = join(world.provider.get(&id), world.provider.get(&bad)).await;
    assert_eq!((good.expect("known").map(|i| i.id), missing), (Some(id.clone()), Ok(None)));
    let (good, missing) = join(world.provider.delete(&id), world.provider.delete(&bad)).await;
    assert_eq!((good, missing), (Ok(Deletion::Started), Ok(Deletion::Gone)));
}

#[tokio::test]
async fn what_is_said_of_no_machine_is_not_asked_of_each() {
    let world = World::new();
    let claims: Vec<_> = (0..20).map(|i| claim(&format!("u{i}"), &[])).collect();
    let launched = join_all(claims.iter().map(|claim| world.provider.create(claim))).await;
    let ids: Vec<_> = launched.into_iter().map(|launched| launched.expect("bought").instance.id).collect();
    for call in ["DescribeInstances", "TerminateInstances"] {
        let before = world.aws.count(call);
        let error = ApiError::no_answer(call, "timed out");
        world.aws.with(|state| state.faults.push(Fault { operation: call, times: 1, error, is_done: false }));
        let answers = join_all(ids.iter().map(|id| world.provider.delete(id))).await;
        assert!(answers.iter().all(Result::is_err), "{call}");
        assert_eq!(world.aws.count(call), before + 1);
    }
}

#[tokio::test]
async fn refusals_have_kinds_that_the_engine_reacts_to() {
    let world = World::new();
    for (code, kind) in [
        ("UnauthorizedOperation", ProviderErrorKind::Unauthorized),
        ("RequestLimitExceeded", ProviderErrorKind::Throttled),
        ("InvalidParameterValue", ProviderErrorKind::Other),
    ] {
        world.aws.refuse("CreateFleet", code, "no");
        let error = world.provider.create(&claim("u1", &[])).await.expect_err("refused");
        assert!(matches!(&error, CreateError::Provider(e) if e.kind == kind), "{error}");
    }
    world.provider.create(&claim("u1", &[])).await.expect("nothing stands in the way");
}

#[tokio::test]
async fn a_class_that_is_not_ready_says_why() {
    let world = World::new();
    world.aws.with(|state| state.security_groups.clear());
    let error = world.provider.create(&claim("u1", &[])).await.expect_err("not ready");
    let CreateError::NodeClassNotReady { class, message } = error else { panic!("{error}") };
    assert_eq!((class.as_str(), message.contains("SecurityGroupsReady")), ("default", true), "{message}");
    let mut unknown = claim("u2", &[]);
    unknown.spec.node_class_ref.name = "other".to_owned();
    assert!(matches!(world.provider.create(&unknown).await, Err(CreateError::NodeClassNotReady { .. })));
    assert_eq!(world.aws.count("CreateFleet"), 0);
}

#[tokio::test]
async fn a_template_that_is_gone_is_made_anew() {
    let world = World::new();
    world.provider.create(&claim("u1", &[])).await.expect("bought");
    world.aws.with(|state| state.templates.clear());
    world.provider.create(&claim("u2", &[])).await.expect("bought");
    assert_eq!(world.machines(), 2);
}

#[tokio::test]
async fn a_template_that_a_fleet_does_not_find_is_looked_for() {
    let world = World::new();
    world.provider.create(&claim("u1", &[])).await.expect("bought");
    let code = "InvalidLaunchTemplateName.NotFoundException".to_owned();
    // The fleet comes into being, and each of its choices fails.
    world.aws.with(|state| state.exhausted.push(Exhausted { code, ..Exhausted::new("*", "*", "*") }));
    world.provider.create(&claim("u2", &[])).await.expect_err("its template is gone");
    world.aws.with(|state| {
        state.templates.clear();
        state.exhausted.clear();
    });
    world.provider.create(&claim("u3", &[])).await.expect("bought");
    assert_eq!(world.aws.count("CreateFleet"), 3, "none was asked for in vain");
}

#[tokio::test]
async fn unused_templates_go_and_so_do_those_of_a_class() {
    let mut world = World::new();
    let templates = |world: &World| world.aws.with(|state| state.templates.len());
    world.provider.create(&claim("u1", &[])).await.expect("bought");
    assert!(templates(&world) > 0);
    world.restart();
    world.provider.upkeep().await.expect("done");
    assert!(templates(&world) > 0, "they may be in use");
    world.aws.clock().advance(Duration::from_mins(1));
    world.provider.upkeep().await.expect("done");
    assert_eq!(templates(&world), 0);
    world.provider.create(&claim("u2", &[])).await.expect("bought");
    world.provider.finalize_class("default", "class-uid").await.expect("done");
    assert_eq!((templates(&world), world.aws.with(|state| state.profiles.len())), (0, 0));
}

#[tokio::test]
async fn reservations_are_bought_first_until_nothing_is_left_of_them() {
    let world = World::reserving(1, |_| {});
    let first = world.provider.create(&claim("u1", &[])).await.expect("bought");
    assert_eq!((label(&first, labels::CAPACITY_TYPE), label(&first, own::RESERVATION_ID)), (labels::RESERVED, "cr-1"));
    assert_eq!(label(&first, labels::INSTANCE_TYPE), "m5.xlarge");
    let second = world.provider.create(&claim("u2", &[])).await.expect("bought");
    assert_eq!((label(&second, labels::CAPACITY_TYPE), label(&second, own::RESERVATION_ID)), (labels::SPOT, ""));
    let found = world.provider.get(&first.instance.id).await.expect("known").expect("there");
    assert_eq!(found.labels[labels::CAPACITY_TYPE], labels::RESERVED);
}

#[tokio::test]
async fn few_types_to_fall_back_on_are_worth_a_warning() {
    let few: &[&str] = &["c5.large", "m5.large", "m5.xlarge", "c5.xlarge"];
    let (both, all) = ([labels::SPOT, labels::ON_DEMAND], [few, &["m5.2xlarge"]].concat());
    for (types, kinds, is_sold_out, is_told) in [
        (few, both.as_slice(), true, true),
        (all.as_slice(), both.as_slice(), true, false),
        (few, both.as_slice(), false, false),
        (few, &[labels::ON_DEMAND], true, false),
    ] {
        let world = World::new();
        if is_sold_out {
            world.aws.with(|state| state.exhausted.push(Exhausted::new("*", "*", "spot")));
        }
        let wanted = claim("u1", &[(labels::INSTANCE_TYPE, types), (labels::CAPACITY_TYPE, kinds)]);
        let launched = world.provider.create(&wanted).await.expect("bought");
        let events = world.provider.next_events(EventCursor::default()).await.expect("known").events;
        let told = events.iter().any(|event| {
            matches!(event, ProviderEvent::Notice { id, is_warning: true, reason, .. }
                if *id == launched.instance.id && reason == "OnDemandFallback")
        });
        assert_eq!(told, is_told, "{types:?} {kinds:?}: {events:?}");
    }
}

#[tokio::test]
async fn a_claim_that_wants_what_no_machine_can_be_says_what_there_is() {
    let world = World::new();
    for (key, value, known) in
        [(own::TENANCY, "host", "default, dedicated"), (labels::CAPACITY_TYPE, "cheap", "spot, on-demand, reserved")]
    {
        let error = world.provider.create(&claim("u1", &[(key, &[value])])).await.expect_err("there is none");
        let CreateError::NothingCompatible { message } = &error else { panic!("{error}") };
        assert!(message.contains(key) && message.contains(known), "{message}");
        let one_is_known = claim("u2", &[(own::TENANCY, &["host", "default"])]);
        world.provider.create(&one_is_known).await.expect("one of them is known");
    }
}
