//! `karpenter plan`: reads the files, plans, and says how long it took.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    mem,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use karpenter_core::{
    Catalogs, InstanceType, Plan, Planner, PlannerOptions, Reason, Snapshot, Timestamp,
    api::{NodeClaim, NodeOverlay, ObjectKey, conditions::DISRUPTION_REASON},
    catalog::{Overlaid, OverlayFault},
    schedule::{Certificate, StopFlag},
};

use crate::{
    Error,
    args::{InputArgs, PlanArgs, is_standard_input, present},
    check::check,
    load::{self, BadPod, Cluster, ClusterReader, LoadWarning, TypeList},
    whatif::{Changes, Difference, Future},
};

/// A plan and what belongs in a report about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// What was planned for.
    pub snapshot: Snapshot,
    /// What could be bought.
    pub catalogs: Catalogs,
    /// How many pods wanted a place, those that cannot be read included.
    pub pod_count: usize,
    /// Why pods, by `namespace/name`, have no place.
    pub errors: BTreeMap<String, String>,
    /// What somebody should look at.
    pub warnings: Vec<String>,
    /// What any plan for the pods that have a place costs at least, with the proof.
    pub certificate: Certificate,
    /// The time from the parsed objects to the start of the first search: nothing is warm yet.
    pub setup_time: Duration,
    /// The time of each search.
    pub solve_times: Vec<Duration>,
    /// Against the plan for the dump as it is, if this is one for a changed dump.
    pub difference: Option<Difference>,
}

/// Reads what the command line names, plans, and checks the plan if that is asked for.
///
/// # Errors
/// A file that cannot be read or is not what it should be, or a plan that does not pass the check.
pub fn run(args: &PlanArgs) -> Result<Outcome, Error> {
    let input = Input::read(&args.input)?;
    match Changes::read(&args.changes)? {
        Some(asked) => run_changed(args, &input, &asked),
        None => run_as_is(args, input),
    }
}

/// Plans for the dump with changes too, and compares.
fn run_changed(args: &PlanArgs, input: &Input, asked: &Changes) -> Result<Outcome, Error> {
    let mut changed = asked.apply(input)?;
    let before = run_as_is(args, input.clone())?;
    let after = run_as_is(args, mem::take(&mut changed.input))?;
    let difference = Difference::between(&before.future(), &after.future(), changed);
    Ok(Outcome { difference: Some(difference), ..after })
}

fn run_as_is(args: &PlanArgs, input: Input) -> Result<Outcome, Error> {
    let Input { cluster, types, catalog_file, .. } = input;
    let options = args.policies.options();
    let effort = Effort { repeat: args.repeat, time_limit: args.time_limit };
    let outcome = plan(cluster, types, &catalog_file, &options, effort)?;
    let findings = if args.check { check(&outcome, &options) } else { Vec::new() };
    if findings.is_empty() { Ok(outcome) } else { Err(Error::Unsound { findings }) }
}

impl Outcome {
    fn future(&self) -> Future<'_> {
        Future {
            snapshot: &self.snapshot,
            catalogs: &self.catalogs,
            plan: &self.plan,
            commands: &[],
            is_complete: self.plan.is_complete(),
        }
    }
}

/// What a plan is made from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Input {
    pub(crate) cluster: Cluster,
    pub(crate) types: Vec<InstanceType>,
    /// Where the instance types are from.
    pub(crate) catalog_file: String,
    /// Whether nobody gave any.
    pub(crate) is_built_in: bool,
}

impl Input {
    pub(crate) fn read(args: &InputArgs) -> Result<Self, Error> {
        let mut reader = ClusterReader::default();
        for file in &args.cluster {
            reader.read(&read_text(file)?, &name_of(file))?;
        }
        #[cfg(feature = "kube")]
        if args.cluster.is_empty() {
            args.access.read(&mut reader)?;
        }
        let mut cluster = reader.finish()?;
        let types = match &args.catalog {
            Some(file) => {
                let TypeList { types, warnings, .. } = load::catalog(&read_text(file)?, &name_of(file))?;
                cluster.warn(warnings);
                types
            }
            None => karpenter_fake::generated_types(),
        };
        let catalog_file = args.catalog.as_deref().map_or_else(|| "the built-in catalog".to_owned(), name_of);
        let mut input = Self { cluster, types, catalog_file, is_built_in: args.catalog.is_none() };
        input.warn_of_catalog();
        Ok(input)
    }

    /// Adds what the catalog leaves open for the cluster.
    pub(crate) fn warn_of_catalog(&mut self) {
        let warnings = LoadWarning::of_catalog(&self.cluster, &self.types, self.is_built_in);
        self.cluster.warn(warnings);
    }
}

/// How often to plan, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How many times.
    pub repeat: u32,
    /// How long a search takes at most, preparations apart; without it as long as it needs.
    pub time_limit: Option<Duration>,
}

impl Default for Effort {
    /// Once, to the end.
    fn default() -> Self {
        Self { repeat: 1, time_limit: None }
    }
}

/// Plans so many times from the parsed objects, with nothing kept from one time to the next.
///
/// # Errors
/// Objects or instance types that break a rule; `catalog_file` says where the instance types are from.
pub fn plan(
    cluster: Cluster,
    types: Vec<InstanceType>,
    catalog_file: &str,
    options: &PlannerOptions,
    effort: Effort,
) -> Result<Outcome, Error> {
    let planner = Planner::new(options.clone());
    let (mut setup_times, mut solve_times) = (Vec::new(), Vec::new());
    for _ in 1..effort.repeat {
        let outcome = plan_once(&planner, cluster.clone(), types.clone(), catalog_file, effort.time_limit)?;
        setup_times.push(outcome.setup_time);
        solve_times.extend(outcome.solve_times);
    }
    let mut outcome = plan_once(&planner, cluster, types, catalog_file, effort.time_limit)?;
    solve_times.append(&mut outcome.solve_times);
    let setup_time = setup_times.first().copied().unwrap_or(outcome.setup_time);
    Ok(Outcome { setup_time, solve_times, ..outcome })
}

fn plan_once(
    planner: &Planner,
    mut cluster: Cluster,
    types: Vec<InstanceType>,
    catalog_file: &str,
    time_limit: Option<Duration>,
) -> Result<Outcome, Error> {
    let stop = StopFlag::default();
    let planner = if time_limit.is_some() { &planner.clone().stopped_by(&stop) } else { planner };
    let (bad_pods, warnings) = (mem::take(&mut cluster.bad_pods), mem::take(&mut cluster.warnings));
    let overlays = mem::take(&mut cluster.overlays);
    let start = Instant::now();
    let snapshot = snapshot(cluster, &bad_pods, present())?;
    let Overlaid { catalogs, faults, .. } = catalogs(types, &snapshot, &overlays, catalog_file)?;
    let problem = planner.prepare(&snapshot, &catalogs);
    let setup_time = start.elapsed();
    let start = Instant::now();
    if let Some(limit) = time_limit {
        stop_after(limit, stop);
    }
    let plan = problem.solve();
    let certificate = problem.certify(&plan);
    let solve_times = vec![start.elapsed()];
    drop(problem);
    let pod_count = snapshot.pending().len() + bad_pods.len();
    let warnings = warnings.iter().map(ToString::to_string).chain(faults.iter().map(without_overlay));
    Ok(Outcome {
        pod_count,
        errors: errors(&plan, &bad_pods),
        warnings: warnings.chain(plan.warnings().iter().map(ToString::to_string)).collect(),
        certificate,
        plan,
        snapshot,
        catalogs,
        setup_time,
        solve_times,
        difference: None,
    })
}

/// Sets a flag when a time has passed. The process need not live until then.
pub(crate) fn stop_after(time: Duration, stop: StopFlag) {
    if time.is_zero() {
        stop.stop();
    } else {
        thread::spawn(move || {
            thread::sleep(time);
            stop.stop();
        });
    }
}

/// What can be bought for each pool, as overlays have it.
pub(crate) fn catalogs(
    types: Vec<InstanceType>,
    snapshot: &Snapshot,
    overlays: &[NodeOverlay],
    catalog_file: &str,
) -> Result<Overlaid, Error> {
    let catalogs = Catalogs::shared(types, snapshot.pools())
        .map_err(|source| Error::Catalog { file: catalog_file.to_owned(), source })?;
    Ok(catalogs.overlaid(snapshot.pools(), overlays))
}

/// A warning of an overlay that is not applied.
pub(crate) fn without_overlay((name, fault): (&String, &OverlayFault)) -> String {
    format!("NodeOverlay {name}: {fault} (it is left out)")
}

pub(crate) fn snapshot(
    cluster: Cluster,
    bad_pods: &BTreeMap<ObjectKey, BadPod>,
    now: Timestamp,
) -> Result<Snapshot, Error> {
    let mut builder = Snapshot::builder()
        .at(now)
        .pools(cluster.pools)
        .claims(cluster.claims.into_iter().map(|claim| with_command(claim, now)))
        .nodes(cluster.nodes)
        .pods(cluster.pods)
        .namespaces(cluster.namespaces)
        .volume_claims(cluster.volume_claims)
        .volumes(cluster.volumes)
        .storage_classes(cluster.storage_classes)
        .csi_nodes(cluster.csi_nodes);
    for daemonset in cluster.daemonsets {
        builder = builder.daemonset(daemonset);
    }
    for budget in cluster.budgets {
        builder = builder.budget(budget);
    }
    for node in bad_pods.values().filter_map(|bad| bad.node.as_deref()) {
        builder = builder.close_node(node);
    }
    Ok(builder.build()?)
}

/// A claim as the controller that has a command for it sees it: its node goes, and its pods want other places, from the moment that
/// it is chosen. It is deleted once what comes in its stead is there.
fn with_command(mut claim: NodeClaim, now: Timestamp) -> NodeClaim {
    if claim.status.is_true(DISRUPTION_REASON) {
        claim.metadata.deletion_timestamp.get_or_insert(now);
    }
    claim
}

/// The reasons of the plan, and those of the pods that the plan knows nothing of.
fn errors(plan: &Plan, bad_pods: &BTreeMap<ObjectKey, BadPod>) -> BTreeMap<String, String> {
    let unplaced = plan.unplaced().iter().map(|(pod, reason)| (pod.to_string(), reason.to_string()));
    let bad = bad_pods.iter().map(|(pod, bad)| (pod.to_string(), Reason::Invalid(bad.error.clone()).to_string()));
    unplaced.chain(bad).collect()
}

pub(crate) fn read_text(file: &Path) -> Result<String, Error> {
    let unreadable = |source| Error::Unreadable { file: name_of(file), source };
    let bytes = if is_standard_input(file) {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map_err(unreadable)?;
        bytes
    } else {
        fs::read(file).map_err(unreadable)?
    };
    match bytes.as_slice() {
        [0x1f, 0x8b, ..] => return Err(Error::Compressed { file: name_of(file) }),
        // With a mark of the order of bytes or without, since text of JSON and YAML starts with a character of ASCII.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [1..=0xff, 0, ..] | [0, 1..=0xff, ..] => {
            return Err(Error::Utf16 { file: name_of(file) });
        }
        _ => {}
    }
    String::from_utf8(bytes)
        .map_err(|error| Error::NotText { file: name_of(file), offset: error.utf8_error().valid_up_to() })
}

/// How a file is named in messages.
pub(crate) fn name_of(file: &Path) -> String {
    if is_standard_input(file) { "standard input".to_owned() } else { file.display().to_string() }
}
