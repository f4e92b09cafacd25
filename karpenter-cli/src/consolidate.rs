//! `karpenter consolidate`: which nodes of a cluster should go, and what comes in their place.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::{Duration, Instant},
};

use karpenter_core::{
    Catalogs, Plan, Planner, Price, Reason, Snapshot, Timestamp,
    api::ObjectKey,
    catalog::Overlaid,
    cluster::Place,
    disrupt::{Candidates, Command, Commands, Disruptor, price_of},
    schedule::StopFlag,
};

use crate::{
    Error,
    args::{ConsolidateArgs, InputArgs},
    load::BadPod,
    plan::{self, Input},
    whatif::{self, Changes, Difference, Future},
};

/// Commands and what belongs in a report about them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Consolidation {
    /// The commands, in the order in which they can be carried out.
    pub commands: Vec<Found>,
    /// The cluster as it is.
    pub snapshot: Snapshot,
    /// What could be bought.
    pub catalogs: Catalogs,
    /// Which of its nodes may go, and what keeps the others, once its waiting pods have their places.
    pub candidates: Candidates,
    /// What its nodes cost before and after the commands.
    pub bill: Bill,
    /// As of when it was judged.
    pub now: Timestamp,
    /// Why pods, by `namespace/name`, were left out.
    pub errors: BTreeMap<String, String>,
    /// What somebody should look at.
    pub warnings: Vec<String>,
    /// Whether the search went to its end, as opposed to being stopped.
    pub is_complete: bool,
    /// How long the whole search took.
    pub time: Duration,
    /// Against the dump as it is, if this is about a changed dump.
    pub difference: Option<Difference>,
}

/// A command and how long it took to find it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Found {
    /// The command.
    pub command: Command,
    /// The time since the command before it was found, or since the search began.
    pub time: Duration,
}

/// What the nodes of a cluster cost together, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bill {
    /// What they cost now.
    pub before: Price,
    /// What they cost once the commands have been carried out.
    pub after: Price,
    /// The nodes of which nobody knows what they cost: they are in neither.
    pub unknown: Vec<String>,
}

/// Reads what the command line names, and looks for commands.
///
/// # Errors
/// A file that cannot be read or is not what it should be.
pub fn run(args: &ConsolidateArgs) -> Result<Consolidation, Error> {
    let input = Input::read(&args.input)?;
    let now = args.disruption.now();
    let Some(asked) = Changes::read(&args.changes)? else {
        return Ok(search(args, now, Prepared::from_input(input, now)?));
    };
    let mut changed = asked.apply(&input)?;
    let with_changes = mem::take(&mut changed.input);
    let after = Ended::of(args, now, &with_changes)?;
    let before = Ended::of(args, now, &input)?;
    let difference = Difference::between(&before.future(), &after.future(), changed);
    let found = if after.has_bound { search(args, now, Prepared::from_input(with_changes, now)?) } else { after.found };
    Ok(Consolidation { difference: Some(difference), ..found })
}

/// Where the pods of a cluster go that wait, and the commands once they are there.
struct Ended {
    snapshot: Snapshot,
    waiting: Plan,
    /// Whether pods are thought of on nodes to which they are not bound yet.
    has_bound: bool,
    found: Consolidation,
}

impl Ended {
    /// # Errors
    /// As for [`Prepared::from_input`].
    fn of(args: &ConsolidateArgs, now: Timestamp, input: &Input) -> Result<Self, Error> {
        let prepared = Prepared::from_input(input.clone(), now)?;
        let snapshot = prepared.snapshot.clone();
        let waiting = Planner::new(args.disruption.options(&args.policies).planner).plan(&snapshot, &prepared.catalogs);
        // That a pod is on its way to a node keeps the node for some seconds, and the question is what is left at the end.
        let mut bound = input.clone();
        let has_bound = whatif::bind(&mut bound.cluster, waiting.existing());
        let in_the_end = if has_bound { Prepared::from_input(bound, now)? } else { prepared };
        let found = search(args, now, in_the_end);
        Ok(Self { snapshot, waiting, has_bound, found })
    }

    fn future(&self) -> Future<'_> {
        let Self { snapshot, waiting, found, .. } = self;
        let is_complete = waiting.is_complete() && found.is_complete;
        Future { snapshot, catalogs: &found.catalogs, plan: waiting, commands: &found.commands, is_complete }
    }
}

/// Looks for commands as of `now`.
fn search(args: &ConsolidateArgs, now: Timestamp, prepared: Prepared) -> Consolidation {
    let Prepared { snapshot, catalogs, bad_pods, warnings } = prepared;
    let stop = StopFlag::default();
    let disruptor = Disruptor::new(args.disruption.options(&args.policies)).stopped_by(&stop);
    let start = Instant::now();
    if let Some(limit) = args.time_limit {
        plan::stop_after(limit, stop.clone());
    }
    let search = disruptor.start(&snapshot, &catalogs, now);
    let candidates = Candidates::of(search.snapshot(), &catalogs, now);
    let warnings = warnings.into_iter().chain(search.warnings().iter().map(ToString::to_string)).collect();
    let commands = timed(search, if args.once { 1 } else { usize::MAX }, start);
    let (time, is_complete) = (start.elapsed(), !stop.is_stopped());
    let invalid = bad_pods.into_iter().map(|(pod, bad)| (pod.to_string(), Reason::Invalid(bad.error).to_string()));
    Consolidation {
        bill: Bill::of(&snapshot, &catalogs, &commands),
        candidates,
        commands,
        snapshot,
        catalogs,
        now,
        errors: invalid.collect(),
        warnings,
        is_complete,
        time,
        difference: None,
    }
}

/// What nodes are judged in.
pub(crate) struct Prepared {
    pub(crate) snapshot: Snapshot,
    pub(crate) catalogs: Catalogs,
    bad_pods: BTreeMap<ObjectKey, BadPod>,
    pub(crate) warnings: Vec<String>,
}

impl Prepared {
    pub(crate) fn read(args: &InputArgs, now: Timestamp) -> Result<Self, Error> {
        Self::from_input(Input::read(args)?, now)
    }

    pub(crate) fn from_input(input: Input, now: Timestamp) -> Result<Self, Error> {
        let Input { mut cluster, types, catalog_file, .. } = input;
        let (bad_pods, warnings) = (mem::take(&mut cluster.bad_pods), mem::take(&mut cluster.warnings));
        let overlays = mem::take(&mut cluster.overlays);
        let snapshot = plan::snapshot(cluster, &bad_pods, now)?;
        let Overlaid { catalogs, faults, .. } = plan::catalogs(types, &snapshot, &overlays, &catalog_file)?;
        let warnings = warnings.iter().map(ToString::to_string).chain(faults.iter().map(plan::without_overlay));
        Ok(Self { snapshot, catalogs, bad_pods, warnings: warnings.collect() })
    }
}

/// At most so many commands, each with the time that it took.
fn timed(mut search: Commands<'_>, most: usize, start: Instant) -> Vec<Found> {
    let (mut out, mut before) = (Vec::new(), start);
    while out.len() < most
        && let Some(command) = search.next()
    {
        let found = Instant::now();
        out.push(Found { command, time: found - before });
        before = found;
    }
    out
}

impl Bill {
    fn of(snapshot: &Snapshot, catalogs: &Catalogs, commands: &[Found]) -> Self {
        Self::of_places(snapshot.places().iter().map(AsRef::as_ref), catalogs, commands)
    }

    /// The bill of some of the nodes.
    pub(crate) fn of_places<'p>(
        places: impl Iterator<Item = &'p Place>,
        catalogs: &Catalogs,
        commands: &[Found],
    ) -> Self {
        let price = |place: &Place| price_of(place, catalogs.get(place.pool.as_deref()?)?);
        let gone: BTreeSet<&str> =
            commands.iter().flat_map(|found| &found.command.candidates).map(String::as_str).collect();
        let (mut before, mut kept, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for place in places {
            let Some(price) = price(place) else {
                unknown.push(place.name.clone());
                continue;
            };
            before.push(price);
            kept.extend((!gone.contains(place.name.as_str())).then_some(price));
        }
        let bought = commands.iter().flat_map(|found| &found.command.replacements).map(|claim| claim.cheapest_price);
        Self { before: before.into_iter().sum(), after: kept.into_iter().chain(bought).sum(), unknown }
    }
}
