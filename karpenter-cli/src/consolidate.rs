//! `karpenter consolidate`: which nodes of a dumped cluster should go, and what comes in their place.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use karpenter_core::{
    Catalogs, Timestamp,
    disrupt::{Command, Disruptor, DisruptorOptions},
};

use crate::{
    Error,
    args::ConsolidateArgs,
    plan::{self, Input},
};

/// Commands and what belongs in a report about them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Consolidation {
    /// The commands, in the order in which they can be carried out.
    pub commands: Vec<Command>,
    /// How long it took to find them.
    pub time: Duration,
}

/// Reads what the command line names, and looks for commands.
///
/// # Errors
/// A file that cannot be read or is not what it should be.
pub fn run(args: &ConsolidateArgs) -> Result<Consolidation, Error> {
    let Input { mut cluster, types, catalog_file } = Input::read(&args.input)?;
    let bad_pods = std::mem::take(&mut cluster.bad_pods);
    let snapshot = plan::snapshot(cluster, &bad_pods)?;
    let catalogs =
        Catalogs::shared(types, snapshot.pools()).map_err(|source| Error::Catalog { file: catalog_file, source })?;
    let mut options = DisruptorOptions::default();
    options.planner = args.policies.options();
    options.planner.slack = 0.0;
    options.min_savings_per_eviction = args.min_savings_per_eviction;
    options.min_savings_share = args.min_savings;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
    let start = Instant::now();
    let mut commands = Disruptor::new(options).commands(&snapshot, &catalogs, now);
    if args.once {
        commands.truncate(1);
    }
    Ok(Consolidation { commands, time: start.elapsed() })
}
