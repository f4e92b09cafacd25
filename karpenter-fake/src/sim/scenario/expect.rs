//! What a scenario says must hold.

use std::{collections::BTreeSet, sync::Arc};

use karpenter_core::{
    api::{Node, NodeClaim, ObjectKey, Pod},
    labels,
};

use super::{Countable, Expectation};
use crate::sim::{Books, Breach, Live, World};

/// What was put into a cluster, whether or not it is still there: nobody can expect anything of what never was.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) pools: BTreeSet<String>,
    pub(super) workloads: BTreeSet<ObjectKey>,
}

impl Known {
    fn check(&self, what: &Countable) -> Result<(), String> {
        match what {
            Countable::Nodes { pool: Some(pool) } if !self.pools.contains(pool) => {
                Err(format!("there is no node pool {pool}"))
            }
            Countable::Running { workload: Some(workload) } if !self.workloads.contains(workload) => {
                Err(format!("there is no workload {workload}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether it holds; if not, what is the case instead.
pub(super) fn check(
    expectation: &Expectation,
    known: &Known,
    live: &Live,
    books: &Books,
    breaches: &[Breach],
) -> Result<(), String> {
    match expectation {
        Expectation::Count { what, comparison, number } => {
            known.check(what)?;
            let is = count(what, live, books);
            if comparison.holds(is, *number) {
                Ok(())
            } else {
                Err(format!("there are {is}, not {comparison} {number}"))
            }
        }
        Expectation::Bill { comparison, micro_dollars } => {
            let bill = live.world().bill();
            if comparison.holds(bill.micro_dollars(), *micro_dollars) {
                return Ok(());
            }
            Err(format!("the bill is {bill}, not {comparison} ${:.2}", *micro_dollars as f64 / 1e6))
        }
        Expectation::NoBreaches => match breaches.first() {
            None => Ok(()),
            Some(first) => Err(format!("rules were broken: {}; the first: {first}", breaches.len())),
        },
    }
}

fn count(what: &Countable, live: &Live, books: &Books) -> u64 {
    let (world, counts) = (live.world(), books.counts());
    let number = |count: usize| count as u64;
    match what {
        Countable::Nodes { pool } => {
            let is_of =
                |node: &&Arc<Node>| pool.is_none() || node.metadata.labels.get(labels::NODE_POOL) == pool.as_ref();
            number(world.api().list::<Node>().filter(|node| is_in_service(node)).filter(is_of).count())
        }
        Countable::NodesWith { key, value } => {
            let has = |node: &&Arc<Node>| node.metadata.labels.get(key) == Some(value);
            number(world.api().list::<Node>().filter(|node| is_in_service(node)).filter(has).count())
        }
        Countable::Claims => number(world.api().list::<NodeClaim>().len()),
        Countable::Machines => number(live.account().machines),
        Countable::Running { workload } => number(running(world, workload.as_ref())),
        Countable::Pending => number(live.account().pods_waiting),
        Countable::Disrupted { reason: None } => counts.disrupted.values().sum(),
        Countable::Disrupted { reason: Some(reason) } => counts.disrupted.get(reason.name()).copied().unwrap_or(0),
        Countable::Launched => counts.launched,
        Countable::Refused => counts.refused,
        Countable::Evicted => counts.evicted,
    }
}

/// Whether a node is ready and not on its way out.
pub(super) fn is_in_service(node: &Node) -> bool {
    node.is_ready() && node.metadata.deletion_timestamp.is_none()
}

fn running(world: &World, workload: Option<&ObjectKey>) -> usize {
    let is_of = |pod: &Pod| {
        workload.is_none_or(|workload| {
            let owners = &pod.metadata.owner_references;
            pod.namespace() == workload.namespace && owners.iter().any(|owner| owner.name == workload.name)
        })
    };
    let runs = |pod: &&Arc<Pod>| pod.status.phase == "Running" && pod.is_active() && !pod.is_daemon() && is_of(pod);
    world.api().list::<Pod>().filter(runs).count()
}
