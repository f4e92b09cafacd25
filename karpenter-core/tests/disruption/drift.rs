//! Which claims have drifted.

use std::collections::BTreeMap;

use karpenter_core::{
    Catalog, InstanceType, Offering, Planner, Price, Quantity, Requirement, Requirements, Snapshot, Timestamp,
    api::{
        ConditionStatus, Node, NodeClaim, NodePool, NodeSelectorRequirement, Operator, STATIC_HASH_VERSION, Taint,
        TaintEffect,
    },
    disrupt::{Drift, ProviderDrift, drift_order, drifted_since},
    labels, strategies,
};
use proptest::{prelude::*, sample::Index};
use serde::de::DeserializeOwned;

const NOW: &str = "2026-01-02T00:00:00Z";
const RESERVATION: &str = "example.com/capacity-reservation-id";

fn read<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect(json)
}

fn at(text: &str) -> Timestamp {
    text.parse().expect(text)
}

fn expression(key: &str, operator: Operator, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement::new(key, operator, values.iter().copied())
}

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// An on-demand machine of type `m` in zone `a`, a day old.
fn claim() -> NodeClaim {
    read(
        r#"{"metadata":{"name":"c","creationTimestamp":"2026-01-01T00:00:00Z","labels":{
             "karpenter.sh/nodepool":"p","node.kubernetes.io/instance-type":"m","topology.kubernetes.io/zone":"a",
             "karpenter.sh/capacity-type":"on-demand","kubernetes.io/arch":"amd64","size":"5"}},
            "status":{"providerID":"id","conditions":[{"type":"Launched","status":"True"}]}}"#,
    )
}

fn drifted(claim: NodeClaim, reason: &str) -> NodeClaim {
    let condition = format!(
        r#"{{"type":"Drifted","status":"True","reason":"{reason}","lastTransitionTime":"2026-01-01T12:00:00Z"}}"#
    );
    let mut claim = claim;
    claim.status.conditions.push(read(&condition));
    claim
}

fn machine(name: &str) -> InstanceType {
    InstanceType::named(name, [("cpu", Quantity::from_units(4)), ("memory", Quantity::from_bytes(16 << 30))])
}

fn with_offerings(offerings: Vec<Offering>) -> InstanceType {
    let mut machine = machine("m");
    machine.offerings = offerings;
    machine
}

fn price() -> Price {
    Price::per_hour(0.2).expect("not below zero")
}

fn catalog(types: Vec<InstanceType>) -> Catalog {
    Catalog::new(types).expect("valid")
}

/// What is for sale, of which [`claim`] was bought.
fn market() -> Catalog {
    catalog(vec![machine("m").offering("on-demand", "a", price())])
}

/// The drift of a claim from a pool, when all is known and the provider has no complaint.
fn found(claim: &NodeClaim, pool: &NodePool, catalog: &Catalog) -> Option<Drift> {
    Drift::of_claim(claim, pool, Some(catalog), ProviderDrift::Answered(None), at(NOW))
}

fn missing(instance_type: &str) -> Drift {
    Drift::InstanceTypeNotFound { instance_type: Some(instance_type.to_owned()) }
}

#[test]
fn hashes_count_if_both_are_there_and_of_one_version() {
    let pool = NodePool::named("p");
    let own = pool.static_hash();
    for (pool_hash, pool_version, claim_hash, claim_version, expected) in [
        (Some("1"), Some("v3"), Some("1"), Some("v3"), None),
        (Some("1"), Some("v3"), Some("2"), Some("v3"), Some("1")),
        (Some("1"), Some("v2"), Some("2"), Some("v2"), Some("1")),
        (Some("1"), Some("v3"), Some("2"), Some("v2"), None),
        (Some("1"), None, Some("2"), Some("v3"), None),
        (Some("1"), Some("v3"), None, Some("v3"), None),
        (Some("1"), Some("v3"), Some("2"), None, None),
        (Some("1"), Some("v3"), None, None, None),
        // A pool without a hash has the one that it would be given.
        (None, None, Some("2"), Some("v3"), Some(own.as_str())),
        (None, Some("v2"), Some("2"), Some("v3"), Some(own.as_str())),
        (None, None, Some(own.as_str()), Some("v3"), None),
        (None, None, Some("2"), Some("v2"), None),
        (None, None, None, None, None),
    ] {
        let annotations = |hash: Option<&str>, version: Option<&str>| {
            let pairs = [(labels::NODE_POOL_HASH, hash), (labels::NODE_POOL_HASH_VERSION, version)];
            pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect()
        };
        let (mut pool, mut claim) = (pool.clone(), claim());
        pool.metadata.annotations = annotations(pool_hash, pool_version);
        claim.metadata.annotations = annotations(claim_hash, claim_version);
        let expected = expected.map(|hash| Drift::NodePoolDrifted {
            claim_hash: claim_hash.unwrap().to_owned(),
            pool_hash: hash.to_owned(),
        });
        let case = format!("{pool_hash:?} {pool_version:?} {claim_hash:?} {claim_version:?}");
        assert_eq!(found(&claim, &pool, &market()), expected, "{case}");
    }
}

#[test]
fn a_hash_of_empty_labels_is_no_drift_from_a_pool_without_labels() {
    // What Karpenter gives a pool like this one whose manifest says `labels: {}`.
    let mut claim = claim();
    claim.metadata.annotations =
        texts([(labels::NODE_POOL_HASH, "5327702334917744615"), (labels::NODE_POOL_HASH_VERSION, STATIC_HASH_VERSION)]);
    let mut pool = NodePool::named("p");
    assert_eq!(found(&claim, &pool, &market()), None);
    pool.spec.template.metadata.labels = texts([("team", "blue")]);
    assert!(matches!(found(&claim, &pool, &market()), Some(Drift::NodePoolDrifted { .. })));
}

#[test]
fn labels_must_meet_the_requirements_of_the_pool() {
    const ARCH: &str = labels::ARCH;
    use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
    for (requirements, expected) in [
        (vec![], None),
        (vec![expression(ARCH, In, &["amd64", "arm64"])], None),
        (vec![expression(ARCH, In, &["arm64"])], Some((ARCH, Some("amd64")))),
        (vec![expression("beta.kubernetes.io/arch", In, &["arm64"])], Some((ARCH, Some("amd64")))),
        (vec![expression(ARCH, Exists, &[])], None),
        (vec![expression(ARCH, DoesNotExist, &[])], Some((ARCH, Some("amd64")))),
        (vec![expression(ARCH, NotIn, &["amd64"])], Some((ARCH, Some("amd64")))),
        (vec![expression(ARCH, NotIn, &["arm64"])], None),
        (vec![expression("size", Gt, &["2"])], None),
        (vec![expression("size", Gt, &["10"])], Some(("size", Some("5")))),
        (vec![expression("size", Lt, &["5"])], Some(("size", Some("5")))),
        // What the node lacks must be allowed to lack.
        (vec![expression(labels::OS, In, &["linux"])], Some((labels::OS, None))),
        (vec![expression("new", Exists, &[])], Some(("new", None))),
        (vec![expression("new", Gt, &["1"])], Some(("new", None))),
        (vec![expression("new", NotIn, &["x"])], None),
        (vec![expression("new", DoesNotExist, &[])], None),
        // The first label in order is named.
        (vec![expression("size", Gt, &["10"]), expression("new", Exists, &[])], Some(("new", None))),
    ] {
        let mut pool = NodePool::named("p");
        pool.spec.template.spec.requirements.clone_from(&requirements);
        let wanted = Requirements::from_iter(&requirements);
        let expected = expected.map(|(label, value): (&str, Option<&str>)| Drift::RequirementsDrifted {
            label: label.to_owned(),
            value: value.map(str::to_owned),
            requirement: wanted.get(label).unwrap().clone(),
        });
        assert_eq!(found(&claim(), &pool, &market()), expected, "{wanted}");
    }
}

#[test]
fn a_label_under_its_beta_name_counts() {
    let mut claim = claim();
    claim.metadata.labels.remove(labels::ARCH);
    claim.metadata.labels.insert("beta.kubernetes.io/arch".to_owned(), "amd64".to_owned());
    let pool = |arch| NodePool::named("p").require(expression(labels::ARCH, Operator::In, &[arch]));
    assert_eq!(found(&claim, &pool("amd64"), &market()), None);
    assert_eq!(found(&claim, &pool("arm64"), &market()).unwrap().condition_reason(), "RequirementsDrifted");
}

#[test]
fn a_type_must_be_offered_as_it_was_bought() {
    let mut sold_out = Offering::new("on-demand", "a", price());
    sold_out.available = false;
    let bare = || machine("m");
    for (types, expected) in [
        (vec![bare().offering("on-demand", "a", price())], None),
        (vec![bare().offering("spot", "b", price()).offering("on-demand", "a", price())], None),
        (vec![with_offerings(vec![sold_out])], None),
        (vec![], Some(missing("m"))),
        (vec![machine("other").offering("on-demand", "a", price())], Some(missing("m"))),
        (vec![bare()], Some(missing("m"))),
        (vec![bare().offering("on-demand", "b", price())], Some(missing("m"))),
        (vec![bare().offering("spot", "a", price())], Some(missing("m"))),
    ] {
        let offerings = format!("{types:?}");
        assert_eq!(found(&claim(), &NodePool::named("p"), &catalog(types)), expected, "{offerings}");
    }
    let mut nameless = claim();
    nameless.metadata.labels.remove(labels::INSTANCE_TYPE);
    let expected = Drift::InstanceTypeNotFound { instance_type: None };
    assert_eq!(found(&nameless, &NodePool::named("p"), &market()), Some(expected));
}

#[test]
fn a_type_is_missed_after_an_hour() {
    for (created, expected) in [
        (Some("2026-01-01T22:59:59.999Z"), Some(missing("m"))),
        (Some("2026-01-01T23:00:00Z"), None),
        (Some("2026-01-03T00:00:00Z"), None),
        (None, None),
    ] {
        let mut claim = claim();
        claim.metadata.creation_timestamp = created.map(at);
        assert_eq!(found(&claim, &NodePool::named("p"), &catalog(vec![])), expected, "{created:?}");
    }
}

#[test]
fn a_reserved_machine_may_become_an_on_demand_one() {
    let mut claim = claim();
    claim.metadata.labels.extend(texts([(labels::CAPACITY_TYPE, "reserved"), (RESERVATION, "r-1")]));
    let reserved = |zone: &str, id: &str| {
        let mut offering = Offering::new("reserved", zone, price());
        offering.requirements.add(RESERVATION, Requirement::one_of([id]));
        offering
    };
    let plain = |capacity_type: &str, zone: &str| {
        let mut offering = Offering::new(capacity_type, zone, price());
        offering.requirements.add(RESERVATION, Requirement::ABSENT);
        offering
    };
    for (offerings, expected) in [
        (vec![reserved("a", "r-1")], None),
        (vec![reserved("a", "r-2")], None),
        (vec![plain("on-demand", "a")], None),
        (vec![reserved("a", "r-1"), plain("on-demand", "a")], None),
        (vec![reserved("b", "r-1")], Some(missing("m"))),
        (vec![plain("on-demand", "b")], Some(missing("m"))),
        (vec![plain("spot", "a")], Some(missing("m"))),
        (vec![], Some(missing("m"))),
    ] {
        let case = format!("{offerings:?}");
        let market = catalog(vec![with_offerings(offerings)]);
        assert_eq!(found(&claim, &NodePool::named("p"), &market), expected, "{case}");
    }
}

#[test]
fn an_on_demand_machine_does_not_become_a_reserved_one() {
    let types = vec![machine("m").offering("reserved", "a", price())];
    assert_eq!(found(&claim(), &NodePool::named("p"), &catalog(types)), Some(missing("m")));
}

#[test]
fn the_provider_has_its_say_and_the_condition_stands_in_for_it() {
    use ProviderDrift::{Answered, NotAsked};
    let says = |reason: &str| Some(Drift::Provider(reason.to_owned()));
    for (claim, provider, expected) in [
        (claim(), Answered(Some("AMIDrift")), says("AMIDrift")),
        (claim(), Answered(None), None),
        (claim(), NotAsked, None),
        (drifted(claim(), "AMIDrift"), NotAsked, says("AMIDrift")),
        (drifted(claim(), "AMIDrift"), Answered(None), None),
        (drifted(claim(), "AMIDrift"), Answered(Some("SubnetDrift")), says("SubnetDrift")),
        (drifted(claim(), ""), NotAsked, says("Drifted")),
        (drifted(claim(), "NodePoolDrifted"), NotAsked, None),
        (drifted(claim(), "RequirementsDrifted"), NotAsked, None),
        (drifted(claim(), "InstanceTypeNotFound"), NotAsked, None),
    ] {
        let pool = NodePool::named("p");
        let found = Drift::of_claim(&claim, &pool, Some(&market()), provider, at(NOW));
        assert_eq!(found, expected, "{:?} {provider:?}", claim.status.conditions);
    }
    let mut over = drifted(claim(), "AMIDrift");
    over.status.conditions[1].status = ConditionStatus::False;
    let pool = NodePool::named("p");
    assert_eq!(Drift::of_claim(&over, &pool, Some(&market()), NotAsked, at(NOW)), None);
}

#[test]
fn without_a_catalog_the_condition_stands_in_for_it() {
    let pool = NodePool::named("p");
    for (claim, expected) in
        [(claim(), None), (drifted(claim(), "InstanceTypeNotFound"), Some(missing("m"))), (drifted(claim(), "X"), None)]
    {
        let found = Drift::of_claim(&claim, &pool, None, ProviderDrift::Answered(None), at(NOW));
        assert_eq!(found, expected);
    }
}

#[test]
fn the_first_kind_of_drift_is_told() {
    let mut claim = claim();
    claim.metadata.annotations =
        texts([(labels::NODE_POOL_HASH, "1"), (labels::NODE_POOL_HASH_VERSION, STATIC_HASH_VERSION)]);
    let mut pool = NodePool::named("p").require(expression(labels::ARCH, Operator::In, &["arm64"]));
    let reason = |claim: &NodeClaim, pool: &NodePool, catalog: &Catalog| {
        let provider = ProviderDrift::Answered(Some("AMIDrift"));
        Drift::of_claim(claim, pool, Some(catalog), provider, at(NOW)).unwrap().condition_reason().to_owned()
    };
    let nothing = catalog(vec![]);
    assert_eq!(reason(&claim, &pool, &nothing), "NodePoolDrifted");
    claim.metadata.annotations.clear();
    assert_eq!(reason(&claim, &pool, &nothing), "RequirementsDrifted");
    pool.spec.template.spec.requirements.clear();
    assert_eq!(reason(&claim, &pool, &nothing), "InstanceTypeNotFound");
    assert_eq!(reason(&claim, &pool, &market()), "AMIDrift");
}

#[test]
fn only_what_is_launched_drifts() {
    let launched = r#"[{"type":"Launched","status":"True"}]"#;
    for (id, conditions, expected) in [
        ("id", launched, true),
        ("", launched, true),
        ("id", "[]", true),
        ("", "[]", false),
        ("id", r#"[{"type":"Launched","status":"False"}]"#, false),
        ("id", r#"[{"type":"Launched","status":"Unknown"}]"#, false),
    ] {
        let mut claim = claim();
        claim.status.provider_id = id.to_owned();
        claim.status.conditions = read(conditions);
        assert_eq!(found(&claim, &NodePool::named("p"), &catalog(vec![])).is_some(), expected, "{id} {conditions}");
    }
}

#[test]
fn places_drift_as_their_claims() {
    let node: Node = read(r#"{"metadata":{"name":"n"},"spec":{"providerID":"other"}}"#);
    let pool = NodePool::named("p").require(expression(labels::ARCH, Operator::In, &["arm64"]));
    let snapshot = Snapshot::builder().pool(pool.clone()).node(node).claims([claim()]).build().expect("valid");
    let drifts: Vec<_> = snapshot
        .places()
        .iter()
        .map(|place| {
            let drift = Drift::of_place(place, &pool, None, ProviderDrift::NotAsked, at(NOW));
            (place.name.as_str(), drift.map(|drift| drift.condition_reason().to_owned()))
        })
        .collect();
    assert_eq!(drifts, [("c", Some("RequirementsDrifted".to_owned())), ("n", None)]);
}

#[test]
fn drifts_are_told_in_words() {
    let requirement = Requirement::one_of(["arm64"]);
    let label = || "kubernetes.io/arch".to_owned();
    for (drift, expected) in [
        (
            Drift::NodePoolDrifted { claim_hash: "1".to_owned(), pool_hash: "2".to_owned() },
            "the template of the pool has changed: its hash was 1 and is 2",
        ),
        (
            Drift::RequirementsDrifted { label: label(), value: None, requirement },
            "label kubernetes.io/arch must be In [arm64], but the node lacks it",
        ),
        (missing("m"), "instance type m is not offered any more as it was bought"),
        (Drift::InstanceTypeNotFound { instance_type: None }, "its claim names no instance type"),
        (Drift::Provider("AMIDrift".to_owned()), "the provider says AMIDrift"),
    ] {
        assert_eq!(drift.to_string(), expected);
    }
}

#[test]
fn a_drift_is_as_old_as_its_condition() {
    assert_eq!(drifted_since(&claim()), None);
    let mut claim = drifted(claim(), "NodePoolDrifted");
    assert_eq!(drifted_since(&claim), Some(at("2026-01-01T12:00:00Z")));
    claim.status.conditions[1].status = ConditionStatus::False;
    assert_eq!(drifted_since(&claim), None);
}

/// Changes one field of the template that the static hash is about. What it writes is in no random pool.
fn change(pool: &mut NodePool, field: usize) {
    let template = &mut pool.spec.template;
    let taint = || Taint::new("changed", "yes", TaintEffect::NoSchedule);
    match field {
        0 => drop(template.metadata.labels.insert("changed".to_owned(), String::new())),
        1 => drop(template.metadata.annotations.insert("changed".to_owned(), String::new())),
        2 => template.spec.taints.push(taint()),
        3 => template.spec.startup_taints.push(taint()),
        4 => template.spec.node_class_ref.name.push('x'),
        5 => template.spec.expire_after = "721h".parse().expect("a duration"),
        6 => template.spec.expire_after = "Never".parse().expect("a duration"),
        _ => template.spec.termination_grace_period = Some("0s".parse().expect("a duration")),
    }
}

/// The claims of a plan with the labels that their nodes would have, launched and two hours old.
fn launched(problem: &strategies::RandomProblem) -> Vec<(NodeClaim, NodePool, Catalog)> {
    let (snapshot, catalogs) = (problem.snapshot(), problem.catalogs().expect("valid"));
    let plan = Planner::default().plan(&snapshot, &catalogs);
    let launch = |planned: &karpenter_core::PlannedClaim| {
        let pool = problem.pools.iter().find(|pool| pool.name() == planned.node_pool).expect("its pool");
        let catalog = catalogs.get(pool.name()).expect("its catalog");
        let mut claim = planned.to_node_claim(pool, "c", "uid");
        let wanted = Requirements::from_iter(&claim.spec.requirements);
        let instance_type = catalog.get(&planned.instance_types[0]).expect("a type of it");
        let fits = |offering: &&Offering| wanted.conflict(&offering.requirements).is_none();
        let offering = instance_type.offerings.iter().find(fits).expect("an offering that will do");
        for (key, offered) in instance_type.requirements.iter().chain(offering.requirements.iter()) {
            let value = wanted.get(key).map_or_else(|| offered.clone(), |r| r.intersection(offered)).any_value();
            if let Some(value) = value {
                claim.metadata.labels.entry(key.to_owned()).or_insert_with(|| value.to_string());
            }
        }
        "id".clone_into(&mut claim.status.provider_id);
        claim.metadata.creation_timestamp = Some(at("2026-01-01T22:00:00Z"));
        (claim, pool.clone(), Catalog::clone(catalog))
    };
    plan.claims().iter().map(launch).collect()
}

#[test]
fn what_a_provider_says_is_a_reason_if_it_is_one_word() {
    let reason = |text: &str| Drift::Provider(text.to_owned()).condition_reason().to_owned();
    for word in ["ImageDrift", "A", "a:b_1", "x,y"] {
        assert_eq!(reason(word), word);
    }
    for text in ["", "the image is old", "1st", "Größe", "a:", "line\nline", &"x".repeat(1025)] {
        assert_eq!(reason(text), "ProviderDrifted", "{text:?}");
    }
    assert_eq!(Drift::Provider("too old".to_owned()).to_string(), "the provider says too old");
}

proptest! {
    #[test]
    fn a_new_node_has_not_drifted(problem in strategies::problem(8)) {
        for (claim, pool, catalog) in launched(&problem) {
            prop_assert_eq!(found(&claim, &pool, &catalog), None);
            let mut annotated = pool.clone();
            annotated.metadata.annotations = pool.hash_annotations();
            prop_assert_eq!(found(&claim, &annotated, &catalog), None);
        }
    }

    #[test]
    fn a_change_of_the_template_is_drift(problem in strategies::problem(8), field in 0..8_usize) {
        for (claim, mut pool, catalog) in launched(&problem) {
            change(&mut pool, field);
            let drift = found(&claim, &pool, &catalog);
            prop_assert!(matches!(drift, Some(Drift::NodePoolDrifted { .. })), "{drift:?}");
        }
    }

    #[test]
    fn a_change_of_requirements_is_no_drift_of_the_hash(
        pool in strategies::node_pool(),
        new in proptest::collection::vec(strategies::expression("k"), 0..3),
    ) {
        let mut changed = pool.clone();
        changed.spec.template.spec.requirements = new;
        prop_assert_eq!(changed.static_hash(), pool.static_hash());
    }

    #[test]
    fn neither_order_nor_spelling_is_in_the_hash(
        mut pool in strategies::node_pool(),
        shift in any::<Index>(),
        (hours, minutes) in (0..100_u32, 0..100_u32),
    ) {
        let spec = &mut pool.spec.template.spec;
        spec.taints.extend(["a", "b", "c"].map(|key| Taint::new(key, "", TaintEffect::NoExecute)));
        spec.startup_taints = spec.taints.clone();
        spec.expire_after = format!("{hours}h{minutes}m").parse().unwrap();
        let mut respelt = pool.clone();
        let spec = &mut respelt.spec.template.spec;
        let by = shift.index(spec.taints.len());
        spec.taints.rotate_left(by);
        spec.startup_taints.reverse();
        spec.expire_after = format!("{}s", (hours * 60 + minutes) * 60).parse().unwrap();
        prop_assert_eq!(respelt.static_hash(), pool.static_hash());
    }

    #[test]
    fn a_node_without_pods_goes_before_one_with_pods(
        (early, late) in (0..100_i64, 0..100_i64),
        names in ("[a-c]", "[a-c]"),
    ) {
        let since = |millis| (millis > 0).then(|| Timestamp::from_millis(millis));
        let order = |has_pods, millis, name| drift_order(has_pods, since(millis), name);
        prop_assert!(order(false, early, &names.0) < order(true, late, &names.1));
        if 0 < early && (early < late || late == 0) {
            prop_assert!(order(true, early, &names.0) < order(true, late, &names.1));
        }
        prop_assert_eq!(order(true, early, &names.0) < order(true, early, &names.1), names.0 < names.1);
    }
}
