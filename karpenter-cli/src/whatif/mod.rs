//! Changes to a dump, so that it can be asked what they would come to.

mod difference;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use karpenter_core::api::{NodePool, ObjectKey, Pod, PodStatus, conditions::CONSOLIDATABLE};

pub(crate) use difference::Future;
pub use difference::{Difference, NodesOfType, WithoutPlace};

use crate::{
    Error,
    args::ChangeArgs,
    load::{Accepted, ChangeReader, Cluster, FurtherObjects, is_gated},
    plan::{self, Input},
};

/// Changes to a dump.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// The nodes that are gone, by their names or those of their claims.
    pub without_nodes: Vec<String>,
    /// The instance types that nobody can buy.
    pub without_types: Vec<String>,
    /// Objects that are added, or take the place of those of the same kind and name.
    pub objects: FurtherObjects,
}

/// One change to a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A node is gone.
    NodeGone {
        /// The name.
        node: String,
    },
    /// An instance type cannot be bought.
    TypeGone {
        /// The name.
        instance_type: String,
    },
    /// An object is there that was not.
    Added {
        /// The kind and the name.
        object: String,
    },
    /// An object took the place of another one, or a workload has new pods.
    Replaced {
        /// The kind and the name.
        object: String,
    },
}

/// A dump that was changed.
pub(crate) struct Changed {
    pub(crate) input: Input,
    pub(crate) changes: Vec<Change>,
    /// Pods that were on nodes that are gone and that nobody makes again, with these nodes.
    pub(crate) lost: BTreeMap<ObjectKey, String>,
}

impl Changes {
    /// Reads what the command line asks for; `None` if it asks for no change.
    ///
    /// # Errors
    /// A file that cannot be read or is not what it should be.
    pub fn read(args: &ChangeArgs) -> Result<Option<Self>, Error> {
        if args.is_empty() {
            return Ok(None);
        }
        let mut reader = ChangeReader::default();
        for (files, accepted) in [(&args.set_pool, Accepted::NodePools), (&args.with, Accepted::Everything)] {
            for file in files {
                reader.read(&plan::read_text(file)?, &plan::name_of(file), accepted)?;
            }
        }
        Ok(Some(Self {
            without_nodes: args.without_node.clone(),
            without_types: args.without_type.clone(),
            objects: reader.finish()?,
        }))
    }

    /// The dump with these changes: objects are added, then nodes and types are taken away.
    ///
    /// # Errors
    /// A node or an instance type that is not there, also one to which an object refers.
    pub(crate) fn apply(&self, input: &Input) -> Result<Changed, Error> {
        self.objects.check_nodes(&input.cluster)?;
        let mut input = input.clone();
        let objects = self.add_objects(&mut input.cluster);
        let (mut changes, mut lost) = (Vec::new(), BTreeMap::new());
        for name in unique(&self.without_nodes) {
            lost.extend(take_node(&mut input.cluster, name)?);
            changes.push(Change::NodeGone { node: name.clone() });
        }
        for name in unique(&self.without_types) {
            take_type(&mut input, name)?;
            changes.push(Change::TypeGone { instance_type: name.clone() });
        }
        changes.extend(objects);
        input.cluster.look_over();
        input.warn_of_catalog();
        Ok(Changed { input, changes, lost })
    }

    fn add_objects(&self, cluster: &mut Cluster) -> Vec<Change> {
        let mut further = self.objects.clone();
        for pod in further.cluster.pods.iter_mut().filter(|pod| is_new(pod)) {
            Arc::make_mut(pod).status = PodStatus::unschedulable();
        }
        further.give_free_names(cluster);
        forget_quiet(cluster, &further.cluster.pools);
        let replaced = cluster.put(&further);
        let change = |(kind, key): (&'static str, ObjectKey)| {
            let name = if key.namespace.is_empty() { key.name.clone() } else { key.to_string() };
            let object = format!("{kind} {name}");
            if replaced.contains(&(kind, key)) { Change::Replaced { object } } else { Change::Added { object } }
        };
        further.names().into_iter().map(change).collect()
    }
}

/// The names in order, each once.
fn unique(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().enumerate().filter(|(index, name)| !names[..*index].contains(name)).map(|(_, name)| name)
}

/// Whether a pod is to be planned for: it has no node, and it is for the kube-scheduler to find one.
fn is_new(pod: &Pod) -> bool {
    pod.spec.node_name.is_empty()
        && !pod.is_finished()
        && !pod.is_terminating()
        && !pod.is_daemon()
        && !pod.is_mirror()
        && !is_gated(pod)
}

/// Takes all offerings of a type off the market. What runs on it keeps its price.
fn take_type(input: &mut Input, name: &str) -> Result<(), Error> {
    let mut is_known = false;
    for gone in input.types.iter_mut().filter(|one| one.name == name) {
        is_known = true;
        gone.offerings.iter_mut().for_each(|offering| offering.available = false);
    }
    let unknown = || Error::UnknownType { instance_type: name.to_owned(), file: input.catalog_file.clone() };
    is_known.then_some(()).ok_or_else(unknown)
}

/// Takes a node and its claim away, and gives back the pods that nobody makes again, with the node.
///
/// Pods of workloads wait for another place. Daemons and mirrors of static pods go with the node, and so do pods that are
/// finished or on their way out, save those of stateful sets, which come again under the same name.
fn take_node(cluster: &mut Cluster, name: &str) -> Result<BTreeMap<ObjectKey, String>, Error> {
    let node = take_machine(cluster, name)?;
    cluster.csi_nodes.retain(|one| one.metadata.name != node);
    let mut lost = BTreeMap::new();
    cluster.pods.retain_mut(|pod| {
        if pod.status.nominated_node_name == node {
            Arc::make_mut(pod).status.nominated_node_name.clear();
        }
        if pod.spec.node_name != node {
            return true;
        }
        if pod.is_reschedulable() && !pod.metadata.owner_references.is_empty() {
            release(Arc::make_mut(pod));
            return true;
        }
        if pod.is_reschedulable() {
            lost.insert(pod.key(), node.clone());
        }
        false
    });
    Ok(lost)
}

/// Takes a node and its claim away by the name of either, and gives back the name of the node.
fn take_machine(cluster: &mut Cluster, name: &str) -> Result<String, Error> {
    let node = cluster.nodes.iter().find(|node| node.metadata.name == name);
    let claim = cluster.claims.iter().find(|claim| claim.name() == name);
    let id = match (node, claim) {
        (Some(node), _) => node.spec.provider_id.clone(),
        (None, Some(claim)) => claim.status.provider_id.clone(),
        (None, None) => return Err(Error::UnknownNode { node: name.to_owned() }),
    };
    let is_it = |other: &str| !id.is_empty() && other == id;
    let of_claim = cluster.nodes.iter().find(|node| is_it(&node.spec.provider_id));
    let node = node.or(of_claim).map_or_else(|| name.to_owned(), |node| node.metadata.name.clone());
    cluster.nodes.retain(|one| one.metadata.name != node);
    cluster.claims.retain(|claim| {
        let is_named = claim.name() == name && id == claim.status.provider_id;
        !is_named && !is_it(&claim.status.provider_id) && claim.status.node_name != node
    });
    Ok(node)
}

/// Makes a pod one that was just made anew and that the kube-scheduler finds no node for.
fn release(pod: &mut Pod) {
    pod.spec.node_name.clear();
    (pod.metadata.creation_timestamp, pod.metadata.deletion_timestamp) = (None, None);
    pod.status = PodStatus::unschedulable();
}

/// Claims do not say any more for how long pods have left them alone where that counts from anew, as their pool says so.
fn forget_quiet(cluster: &mut Cluster, pools: &[NodePool]) {
    let wait = |pool: &NodePool| pool.spec.disruption.consolidate_after.clone();
    let is_other =
        |known: &&NodePool| pools.iter().any(|pool| pool.name() == known.name() && wait(pool) != wait(known));
    let others: BTreeSet<String> = cluster.pools.iter().filter(is_other).map(|pool| pool.name().to_owned()).collect();
    for claim in &mut cluster.claims {
        if claim.pool_name().is_some_and(|pool| others.contains(pool)) {
            claim.status.conditions.retain(|condition| condition.r#type != CONSOLIDATABLE);
        }
    }
}

/// Binds pods to the nodes, by name, to which they are to go, and says whether there are any. Those on their way out stay where they
/// are.
pub(crate) fn bind(cluster: &mut Cluster, pods_of_nodes: &BTreeMap<String, Vec<ObjectKey>>) -> bool {
    let nodes: BTreeSet<&str> = cluster.nodes.iter().map(|node| node.metadata.name.as_str()).collect();
    let real = pods_of_nodes.iter().filter(|(name, _)| nodes.contains(name.as_str()));
    let node_of: BTreeMap<&ObjectKey, &String> =
        real.flat_map(|(node, pods)| pods.iter().map(move |pod| (pod, node))).collect();
    let mut has_bound = false;
    for pod in cluster.pods.iter_mut().filter(|pod| !pod.is_terminating()) {
        if let Some(node) = node_of.get(&pod.key()) {
            has_bound = true;
            let pod = Arc::make_mut(pod);
            pod.spec.node_name.clone_from(node);
            "Running".clone_into(&mut pod.status.phase);
            pod.status.conditions.clear();
            pod.status.nominated_node_name.clear();
        }
    }
    has_bound
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeGone { node } => write!(f, "node {node} is gone"),
            Self::TypeGone { instance_type } => write!(f, "no pool launches {instance_type}"),
            Self::Added { object } => write!(f, "{object} is added"),
            Self::Replaced { object } => write!(f, "{object} is replaced"),
        }
    }
}
