//! How long planning and its parts take, on clusters that are made here.
//!
//!     cargo bench --bench plan
//!     cargo bench --bench plan -- schedule/web

mod problems;

use std::{cell::LazyCell, collections::BTreeMap, hint::black_box};

use criterion::{
    BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use karpenter::{
    Catalog, InstanceType, Planner, Quantity, Requirement, Requirements, Snapshot,
    api::{Node, NodePool, NodeSelectorRequirement, Operator, Pod},
    fake::catalog::{INSTANCE_CPU, INSTANCE_FAMILY, INSTANCE_SIZE},
    labels,
    schedule::Replanner,
};
use problems::{Problem, diverse, dump, gpu_batch, machines, plain, preferences, web_shop};
use serde_json::value::RawValue;

/// Runs of what takes long; criterion does ten at least.
const SAMPLES: usize = 10;
/// Pods that are planned when one more comes.
const REPLANNED_PODS: usize = 10_000;
/// Pods and nodes of the dumps that are read.
const DUMPED_PODS: usize = 10_000;
const DUMPED_NODES: usize = 1_000;

/// Planning for pending pods: the two halves apart, and the proof of a bound.
fn schedule(c: &mut Criterion) {
    let mut group = c.benchmark_group("schedule");
    group.sample_size(SAMPLES);
    for count in [1_000, 10_000, 100_000] {
        schedule_one(&mut group, "plain", count, plain::problem);
    }
    for count in [500, 2_000, 10_000, 100_000] {
        schedule_one(&mut group, "diverse", count, diverse::problem);
    }
    schedule_one(&mut group, "preferences", 2_000, preferences::problem);
    schedule_one(&mut group, "gpu-batch", 8_000, gpu_batch::problem);
    schedule_one(&mut group, "web-shop", 2_000, web_shop::problem);
    group.finish();
}

/// Nothing is made for benches that are not asked for.
fn schedule_one(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, count: usize, make: fn(usize) -> Problem) {
    let planner = Planner::default();
    let input = LazyCell::new(|| make(count));
    let problem = LazyCell::new(|| planner.prepare(&input.snapshot, &input.catalogs));
    let plan = LazyCell::new(|| {
        let plan = problem.solve();
        assert!(plan.unplaced().is_empty(), "{name}: every pod of the bench has a place: {:?}", plan.unplaced());
        plan
    });
    group.throughput(Throughput::Elements(count as u64));
    group.bench_function(format!("{name}/{count}/prepare"), |b| {
        let Problem { snapshot, catalogs } = &*input;
        b.iter(|| drop(planner.prepare(black_box(snapshot), catalogs)));
    });
    group.bench_function(format!("{name}/{count}/solve"), |b| {
        let (problem, _plan) = (&*problem, &*plan);
        b.iter(|| black_box(problem).solve());
    });
    group.bench_function(format!("{name}/{count}/certify"), |b| {
        let (problem, plan) = (&*problem, &*plan);
        b.iter(|| black_box(problem).certify(plan));
    });
}

/// Planning again when one pod of each kind has come to ten thousand, beside the same plan from nothing.
fn replan(c: &mut Criterion) {
    let mut group = c.benchmark_group("replan");
    group.sample_size(SAMPLES);
    let input = LazyCell::new(|| diverse::problem(REPLANNED_PODS));
    let known = LazyCell::new(|| {
        let mut replanner = Replanner::default();
        replanner.plan(&input.snapshot, &input.catalogs);
        replanner
    });
    for (kind, number) in diverse::KINDS.into_iter().zip(REPLANNED_PODS..) {
        let later = LazyCell::new(|| {
            let later = input.snapshot.with_pending(diverse::pod_after(number)).expect("the pod is a new one");
            let (mut one, mut other) = (known.clone(), Replanner::default());
            assert_eq!(one.plan(&later, &input.catalogs), other.plan(&later, &input.catalogs), "{kind}");
            later
        });
        group.bench_function(format!("{kind}/from nothing"), |b| {
            let (later, catalogs) = (&*later, &input.catalogs);
            b.iter_batched_ref(
                Replanner::default,
                |replanner| black_box(replanner.plan(later, catalogs)).claims().len(),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(format!("{kind}/one pod more"), |b| {
            let (known, later, catalogs) = (&*known, &*later, &input.catalogs);
            b.iter_batched_ref(
                || known.clone(),
                |replanner| black_box(replanner.plan(later, catalogs)).claims().len(),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// Reading dumps: objects from JSON, and a snapshot of them.
fn parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    group.sample_size(SAMPLES);
    let (pods, nodes, catalog) = (dump::pods(DUMPED_PODS), dump::nodes(DUMPED_NODES), dump::catalog());
    group.throughput(Throughput::Bytes(pods.len() as u64));
    group.bench_function("10,000 pods", |b| b.iter(|| read_pods(black_box(&pods))));
    group.throughput(Throughput::Bytes(nodes.len() as u64));
    group.bench_function("1,000 nodes", |b| b.iter(|| read_nodes(black_box(&nodes))));
    group.throughput(Throughput::Bytes(catalog.len() as u64));
    group.bench_function("catalog of 74 types", |b| {
        b.iter(|| serde_json::from_str::<Vec<InstanceType>>(black_box(&catalog)).expect("a catalog"));
    });
    group.throughput(Throughput::Elements((DUMPED_PODS + DUMPED_NODES) as u64));
    let objects = (read_pods(&pods), read_nodes(&nodes));
    let build = |(pods, nodes): (Vec<Pod>, Vec<Node>)| {
        let builder = Snapshot::builder().pool(NodePool::named("general"));
        builder.pods(pods).nodes(nodes).build().expect("the objects are a cluster")
    };
    group.bench_function("snapshot", |b| b.iter_batched(|| objects.clone(), build, BatchSize::LargeInput));
    group.finish();
}

fn read_pods(list: &str) -> Vec<Pod> {
    serde_json::from_str(items(list)).expect("pods")
}

fn read_nodes(list: &str) -> Vec<Node> {
    serde_json::from_str(items(list)).expect("nodes")
}

/// The text of the objects of a list, as it is.
fn items(list: &str) -> &str {
    let fields: BTreeMap<&str, &RawValue> = serde_json::from_str(list).expect("an object");
    fields["items"].get()
}

/// The algebra of node labels, with a pool and a pod as users write them and the types of a catalog.
fn requirements(c: &mut Criterion) {
    let mut group = c.benchmark_group("requirements");
    let types = machines();
    let of_pool: Requirements = pool_expressions().iter().collect();
    group.throughput(Throughput::Elements(types.len() as u64));
    group.bench_function("intersect a pool with each type", |b| {
        b.iter(|| types.iter().map(|t| intersection(black_box(&of_pool), &t.requirements)).collect::<Vec<_>>());
    });
    group.bench_function("compatible with each type", |b| {
        b.iter(|| types.iter().filter(|t| black_box(&of_pool).conflict(&t.requirements).is_none()).count());
    });
    let nodes: Vec<BTreeMap<String, String>> = types.iter().map(node_labels).collect();
    group.bench_function("admit the labels of a node of each type", |b| {
        b.iter(|| nodes.iter().filter(|labels| black_box(&of_pool).refuses(labels).is_none()).count());
    });
    group.throughput(Throughput::Elements(1));
    let expressions = pool_expressions();
    group.bench_function("from expressions", |b| b.iter(|| black_box(&expressions).iter().collect::<Requirements>()));
    group.bench_function("to expressions", |b| b.iter(|| black_box(&of_pool).to_expressions()));
    sets(&mut group);
    group.finish();
}

/// One label with many values.
fn sets(group: &mut BenchmarkGroup<'_, WallTime>) {
    let names: Vec<String> = (0..600).map(|i| format!("type-{i}")).collect();
    let wanted = Requirement::one_of(names.iter().map(String::as_str));
    let others = Requirement::none_of(names.iter().step_by(3).map(String::as_str));
    let first = Requirement::one_of(names[..1].iter().map(String::as_str));
    group.bench_function("intersection of 600 values", |b| {
        b.iter(|| black_box(&wanted).intersection(black_box(&others)));
    });
    group.bench_function("intersects", |b| b.iter(|| black_box(&wanted).intersects(black_box(&others))));
    group.bench_function("has no values", |b| b.iter(|| black_box(&first).intersection(black_box(&others)).is_none()));
    group.bench_function("has a value", |b| b.iter(|| black_box(&wanted).admits(Some(black_box("type-599")))));
    group.bench_function("list values", |b| b.iter(|| black_box(&wanted).values().map(str::len).sum::<usize>()));
}

fn pool_expressions() -> Vec<NodeSelectorRequirement> {
    vec![
        NodeSelectorRequirement::new(labels::ARCH, Operator::In, ["amd64"]),
        NodeSelectorRequirement::new(labels::OS, Operator::In, ["linux"]),
        NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, [labels::SPOT, labels::ON_DEMAND]),
        NodeSelectorRequirement::new(labels::ZONE, Operator::NotIn, ["test-zone-d"]),
        NodeSelectorRequirement::new(INSTANCE_FAMILY, Operator::In, ["c", "s", "m"]),
        NodeSelectorRequirement::new(INSTANCE_SIZE, Operator::NotIn, ["1x", "96x"]),
        NodeSelectorRequirement::new(INSTANCE_CPU, Operator::Gt, ["3"]),
    ]
}

fn intersection(one: &Requirements, other: &Requirements) -> Requirements {
    let mut both = one.clone();
    both.add_all(other);
    both
}

/// The labels of a node of the type, with the first of several values.
fn node_labels(instance_type: &InstanceType) -> BTreeMap<String, String> {
    let first = |(key, requirement): (&str, &Requirement)| Some((key.to_owned(), requirement.any_value()?.to_string()));
    instance_type.requirements.iter().filter_map(first).collect()
}

fn catalog(c: &mut Criterion) {
    let types = machines();
    c.bench_function("catalog of 74 types", |b| {
        b.iter(|| Catalog::new(black_box(types.clone())).expect("the catalog is written rightly"));
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

criterion_group!(benches, parse, quantities, requirements, catalog, schedule, replan);
criterion_main!(benches);
