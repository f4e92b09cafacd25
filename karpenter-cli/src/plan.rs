//! `karpenter plan`: reads the files, plans, and says how long it took.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Read as _,
    path::Path,
    time::{Duration, Instant},
};

use karpenter_core::{Catalogs, InstanceType, Plan, Planner, Price, Reason, Snapshot};

use crate::{
    Error,
    args::{PlanArgs, is_standard_input},
    load::{self, Cluster, ClusterReader},
};

/// A plan and what belongs in a report about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// What could be bought.
    pub catalogs: Catalogs,
    /// How many pods wanted a place, those that cannot be read included.
    pub pod_count: usize,
    /// Why pods, by `namespace/name`, have no place.
    pub errors: BTreeMap<String, String>,
    /// What somebody should look at.
    pub warnings: Vec<String>,
    /// What the cheapest possible plan costs at least, if the planner says so.
    pub lower_bound: Option<Price>,
    /// The longest time from the parsed objects to the start of the search.
    pub setup_time: Duration,
    /// The time of each search.
    pub solve_times: Vec<Duration>,
}

/// Reads what the command line names, and plans.
///
/// # Errors
/// A file that cannot be read or is not what it should be.
pub fn run(args: &PlanArgs) -> Result<Outcome, Error> {
    let mut reader = ClusterReader::default();
    for file in &args.cluster {
        reader.read(&read_text(file)?, &name_of(file))?;
    }
    let types = match &args.catalog {
        Some(file) => load::catalog(&read_text(file)?, &name_of(file))?,
        None => default_catalog()?,
    };
    let catalog_file = args.catalog.as_deref().map_or_else(|| "the built-in catalog".to_owned(), name_of);
    plan(&reader.finish(), &types, &catalog_file, args.repeat)
}

/// Plans `repeat` times from the parsed objects, with nothing kept from one time to the next.
///
/// # Errors
/// Objects or instance types that break a rule; `catalog_file` says where the instance types are from.
pub fn plan(cluster: &Cluster, types: &[InstanceType], catalog_file: &str, repeat: u32) -> Result<Outcome, Error> {
    let mut outcome = plan_once(cluster, types, catalog_file)?;
    for _ in 1..repeat {
        let again = plan_once(cluster, types, catalog_file)?;
        outcome.setup_time = outcome.setup_time.max(again.setup_time);
        outcome.solve_times.extend(again.solve_times);
    }
    Ok(outcome)
}

fn plan_once(cluster: &Cluster, types: &[InstanceType], catalog_file: &str) -> Result<Outcome, Error> {
    // The copies stand for the objects as they are after parsing, so making them does not count.
    let (objects, types) = (cluster.clone(), types.to_vec());
    let start = Instant::now();
    let snapshot = snapshot(objects)?;
    let catalogs = Catalogs::shared(types, snapshot.pools())
        .map_err(|source| Error::Catalog { file: catalog_file.to_owned(), source })?;
    let planner = Planner::default();
    let problem = planner.prepare(&snapshot, &catalogs);
    let setup_time = start.elapsed();
    let start = Instant::now();
    let plan = problem.solve();
    let solve_times = vec![start.elapsed()];
    Ok(Outcome {
        pod_count: snapshot.pending().len() + cluster.bad_pods.len(),
        errors: errors(&plan, cluster),
        warnings: warnings(&plan, cluster),
        lower_bound: None,
        plan,
        catalogs,
        setup_time,
        solve_times,
    })
}

fn snapshot(cluster: Cluster) -> Result<Snapshot, Error> {
    let mut builder =
        Snapshot::builder().pools(cluster.pools).claims(cluster.claims).nodes(cluster.nodes).pods(cluster.pods);
    for daemonset in cluster.daemonsets {
        builder = builder.daemonset(daemonset);
    }
    for budget in cluster.budgets {
        builder = builder.budget(budget);
    }
    for node in cluster.bad_pods.into_values().filter_map(|bad| bad.node) {
        builder = builder.full_node(node);
    }
    Ok(builder.build()?)
}

/// The reasons of the plan, and those of the pods that the plan knows nothing of.
fn errors(plan: &Plan, cluster: &Cluster) -> BTreeMap<String, String> {
    let unplaced = plan.unplaced().iter().map(|(pod, reason)| (pod.to_string(), reason.to_string()));
    let bad = cluster.bad_pods.iter();
    let bad = bad.map(|(pod, bad)| (pod.to_string(), Reason::Invalid(bad.error.clone()).to_string()));
    unplaced.chain(bad).collect()
}

fn warnings(plan: &Plan, cluster: &Cluster) -> Vec<String> {
    let loaded = cluster.warnings.iter().map(ToString::to_string);
    loaded.chain(plan.warnings().iter().map(ToString::to_string)).collect()
}

fn read_text(file: &Path) -> Result<String, Error> {
    let unreadable = |source| Error::Unreadable { file: name_of(file), source };
    let bytes = if is_standard_input(file) {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map_err(unreadable)?;
        bytes
    } else {
        fs::read(file).map_err(unreadable)?
    };
    String::from_utf8(bytes)
        .map_err(|error| Error::NotText { file: name_of(file), offset: error.utf8_error().valid_up_to() })
}

/// How a file is named in messages.
fn name_of(file: &Path) -> String {
    if is_standard_input(file) { "standard input".to_owned() } else { file.display().to_string() }
}

/// The instance types to plan with when the command line names none.
fn default_catalog() -> Result<Vec<InstanceType>, Error> {
    Err(Error::NoCatalog)
}
