//! How long planning and parsing take, on workloads that are made here.
//!
//!     cargo bench --bench plan

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use karpenter::{
    Catalogs, InstanceType, Planner, Price, Quantity, Requirement, Requirements, Snapshot,
    api::{NodePool, NodeSelectorRequirement, Operator, Pod},
    labels,
};
use serde_json::json;

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Runs of each plan; criterion does ten at least.
const SAMPLES: usize = 10;
/// Kinds of pods in a workload.
const SHAPES: u32 = 50;

/// Types of four families and eight sizes, on demand and spot in three zones: 32 types, 192 offerings.
fn machines() -> Vec<InstanceType> {
    let mut types = Vec::new();
    for (family, gib_per_core, dollars_per_core) in
        [("c", 2, 0.040), ("m", 4, 0.048), ("r", 8, 0.063), ("x", 16, 0.100)]
    {
        for size in 0..8_u8 {
            let cores = 1_i64 << size;
            let memory_bytes = (cores * gib_per_core) << 30;
            let capacity = [("cpu", Quantity::from_units(cores)), ("memory", Quantity::from_bytes(memory_bytes))];
            let on_demand = dollars_per_core * f64::from(1_u32 << size);
            types.push(offered(InstanceType::named(format!("{family}-{cores}"), capacity), on_demand));
        }
    }
    types
}

/// The type with its offerings; spot prices differ between the zones.
fn offered(mut machine: InstanceType, on_demand: f64) -> InstanceType {
    for (zone, spot_share) in ZONES.into_iter().zip([0.35, 0.40, 0.45]) {
        for (capacity_type, dollars) in [(labels::ON_DEMAND, on_demand), (labels::SPOT, on_demand * spot_share)] {
            let price = Price::per_hour(dollars).expect("prices here are above zero");
            machine = machine.offering(capacity_type, zone, price);
        }
    }
    machine
}

/// `count` pods in fifty shapes; every fifth shape wants a zone, every seventh machines on demand.
fn workload(count: u32) -> Snapshot {
    let mut builder = Snapshot::builder().pool(NodePool::named("general"));
    for shape in 0..SHAPES {
        let cpu = format!("{}m", 100 + 150 * (shape % 13));
        let memory = format!("{}Mi", 128 << (shape % 6));
        let mut pods = Pod::named(format!("shape-{shape}")).cpu(&cpu).memory(&memory).replicas(count / SHAPES);
        if shape % 5 == 0 {
            pods = pods.node_selector(labels::ZONE, ZONES[shape as usize % ZONES.len()]);
        }
        if shape % 7 == 0 {
            pods = pods.node_selector(labels::CAPACITY_TYPE, labels::ON_DEMAND);
        }
        builder = builder.pods(pods);
    }
    builder.build().expect("the workload is written rightly")
}

/// `count` pods with the rules of Karpenter's own scheduling benchmark: a fifth each plain, spread over zones, spread over
/// nodes, drawn to their own kind, and at most one to a node. Seven values of a label make them many classes.
fn diverse(count: usize) -> Snapshot {
    let pod = |number: usize| -> Pod {
        // Steps that have no divisor in common with the numbers of values reach all combinations.
        let (cpu, memory) = ([100, 250, 500, 1000, 1500][number * 7 % 5], 128 << (number * 5 % 6));
        let (own, other) = (number * 3 % 7, number * 11 / 5 % 7);
        let spread = |key: &str| {
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"kind": other.to_string()}}}]})
        };
        let term = |key: &str, value: &str, topology: &str| json!([{"labelSelector": {"matchLabels": {key: value}}, "topologyKey": topology}]);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let kind = own.to_string();
        let (label, rules) = match number % 5 {
            0 => (("kind", kind), json!({})),
            1 => (("kind", kind), spread(labels::ZONE)),
            2 => (("kind", kind), spread(labels::HOSTNAME)),
            3 => {
                let near = term("group", &kind, labels::ZONE);
                (("group", kind), json!({"affinity": {"podAffinity": {required: near}}}))
            }
            _ => {
                let away = term("app", "alone", labels::HOSTNAME);
                (("app", "alone".to_owned()), json!({"affinity": {"podAntiAffinity": {required: away}}}))
            }
        };
        let requests = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
        let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
        let rules = rules.as_object().expect("an object").clone();
        spec.as_object_mut().expect("an object").extend(rules);
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
        let pod = json!({"metadata": {"name": format!("pod-{number}"), "namespace": "default", "labels": {label.0: label.1}},
            "spec": spec, "status": {"phase": "Pending", "conditions": [condition]}});
        serde_json::from_value(pod).expect("the pod is written rightly")
    };
    let pods: Vec<Pod> = (0..count).map(pod).collect();
    Snapshot::builder().pool(NodePool::named("general")).pods(pods).build().expect("the workload is written rightly")
}

/// Planning for pods with rules, the two halves apart, and the proof of a bound.
fn rules(c: &mut Criterion) {
    let mut group = c.benchmark_group("diverse");
    group.sample_size(SAMPLES);
    for count in [500, 2_000, 10_000] {
        let snapshot = diverse(count);
        let catalogs = Catalogs::shared(machines(), snapshot.pools()).expect("the catalog is written rightly");
        let planner = Planner::default();
        let problem = planner.prepare(&snapshot, &catalogs);
        let plan = problem.solve();
        assert!(plan.unplaced().is_empty(), "every pod of the bench has a place: {:?}", plan.unplaced());
        group.throughput(Throughput::Elements(count as u64));
        group.bench_with_input(BenchmarkId::new("prepare", count), &snapshot, |b, snapshot| {
            b.iter(|| drop(planner.prepare(black_box(snapshot), &catalogs)));
        });
        group.bench_function(BenchmarkId::new("solve", count), |b| b.iter(|| black_box(&problem).solve()));
        group.bench_function(BenchmarkId::new("certify", count), |b| b.iter(|| black_box(&problem).certify(&plan)));
    }
    group.finish();
}

fn plan(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan");
    group.sample_size(SAMPLES);
    for count in [1_000, 10_000] {
        let snapshot = workload(count);
        let catalogs = Catalogs::shared(machines(), snapshot.pools()).expect("the catalog is written rightly");
        let first = Planner::default().plan(&snapshot, &catalogs);
        assert!(first.unplaced().is_empty(), "every pod of the bench has a place: {:?}", first.unplaced());
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_with_input(BenchmarkId::new("pods", count), &snapshot, |b, snapshot| {
            b.iter(|| Planner::default().plan(black_box(snapshot), &catalogs));
        });
    }
    group.finish();
}

fn catalog(c: &mut Criterion) {
    let types = machines();
    c.bench_function("catalog of 32 types", |b| {
        b.iter(|| karpenter::Catalog::new(black_box(types.clone())).expect("the catalog is written rightly"));
    });
}

fn quantities(c: &mut Criterion) {
    let texts = ["250m", "1.5Gi", "16", "1e3", "100Ki", "0.1n", "1234567890", "64Mi"];
    let mut group = c.benchmark_group("quantity");
    group.throughput(Throughput::Elements(texts.len() as u64));
    group.bench_function("parse", |b| {
        b.iter(|| texts.map(|text| black_box(text).parse::<Quantity>().expect("a quantity")));
    });
    let parsed = texts.map(|text| text.parse::<Quantity>().expect("a quantity"));
    group.bench_function("print", |b| b.iter(|| black_box(parsed).map(|quantity| quantity.to_string())));
    group.finish();
}

fn requirements(c: &mut Criterion) {
    let names: Vec<String> = (0..100).map(|i| format!("type-{i}")).collect();
    let wanted = Requirement::one_of(names.iter().map(String::as_str));
    let others = Requirement::none_of(names.iter().step_by(3).map(String::as_str));
    let mut group = c.benchmark_group("requirements");
    group.bench_function("intersection of 100 values", |b| {
        b.iter(|| black_box(&wanted).intersection(black_box(&others)));
    });
    group.bench_function("intersects", |b| b.iter(|| black_box(&wanted).intersects(black_box(&others))));
    let expressions = [
        NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, names),
        NodeSelectorRequirement::new(labels::ZONE, Operator::NotIn, ["zone-b"]),
        NodeSelectorRequirement::new("cores", Operator::Gt, ["7"]),
    ];
    group.bench_function("from expressions", |b| b.iter(|| black_box(&expressions).iter().collect::<Requirements>()));
    group.finish();
}

criterion_group!(benches, plan, rules, catalog, quantities, requirements);
criterion_main!(benches);
