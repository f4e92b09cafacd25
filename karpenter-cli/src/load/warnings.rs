//! What somebody should look at in what was read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use karpenter_core::{
    InstanceType, Requirements,
    api::{
        Affinity, Change, FieldError, NodeClaim, NodeOverlay, NodePool, ObjectKey, ObjectMeta, Operator, Pod,
        READ_VERSIONS,
    },
    labels,
};

use super::objects::{Cluster, is_gated};

/// The most names that a warning lists.
const MAX_NAMES: usize = 3;

/// Something about the input that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadWarning {
    /// A node pool cannot be read, so there is no pool of this name in the plan.
    BadPool {
        /// The file.
        file: String,
        /// The pool, the field and what is wrong with it.
        error: FieldError,
    },
    /// An object of the group `karpenter.sh` is of a version or kind that is not read.
    NotRead {
        /// The file.
        file: String,
        /// The kind and the name.
        object: String,
        /// The group and version.
        api_version: String,
        /// The kind that has taken the place of the object's kind, if one has.
        successor: Option<&'static str>,
    },
    /// A node pool or claim, or several claims, is not written as `karpenter.sh/v1` has it.
    Older {
        /// The file.
        file: String,
        /// The kind and the name; the first by name if there are others.
        object: String,
        /// How many other claims are written in the same way.
        others: usize,
        /// The field, what became of it, and what to do.
        change: Change,
    },
    /// There is no such field in an instance type, a node pool or an overlay, where a misspelt one would change plans.
    UnknownField {
        /// The file.
        file: String,
        /// The kind and the name; of instance types the first in the list.
        object: String,
        /// The field.
        field: String,
        /// How many other instance types of the file have it too.
        others: usize,
    },
    /// Objects among the changes that bear on no plan.
    PassedOver {
        /// How many there are of each kind.
        kinds: BTreeMap<String, usize>,
    },
    /// A pod, or the template of a workload, names a class of which admission would write what pods of it have.
    NotAdmitted {
        /// The file.
        file: String,
        /// The kind and the name.
        object: String,
        /// The field with the name of the class.
        field: String,
        /// The field that admission would write.
        written: &'static str,
    },
    /// Claims of which no machine is bought yet, so that nobody knows which pods they are for.
    NotLaunched {
        /// How many.
        count: usize,
        /// The first by name.
        first: String,
    },
    /// A node takes no further pods, because nobody knows what a pod on it takes.
    ClosedNode {
        /// The name of the node.
        node: String,
        /// The pod that cannot be read.
        pod: ObjectKey,
    },
    /// Pods that run on nodes that are not there.
    NoNodes {
        /// How many.
        count: usize,
        /// The nodes by name.
        nodes: Vec<String>,
    },
    /// Daemonsets that are not there although pods of theirs are.
    NoDaemonSet {
        /// How many.
        count: usize,
        /// The first by namespace and name.
        first: ObjectKey,
    },
    /// Pods that choose the namespaces of others by labels, where there are no namespaces.
    NoNamespaces {
        /// How many.
        count: usize,
        /// The first by namespace and name.
        first: ObjectKey,
    },
    /// Pods for which the kube-scheduler takes others away, so that they are about to get a node.
    Nominated {
        /// How many.
        count: usize,
        /// The first by namespace and name.
        first: ObjectKey,
    },
    /// Pods without a node that the kube-scheduler has not refused, so that they may yet get one.
    NotRefused {
        /// How many.
        count: usize,
        /// The first by namespace and name.
        first: ObjectKey,
    },
    /// A node is of a type that the built-in catalog lacks, which stands for one that was not given.
    NoCatalog {
        /// The name of the node, the first of those that are.
        node: String,
        /// Its type.
        instance_type: String,
    },
    /// Instance types are for pools that are not in the cluster.
    ForNoPool {
        /// The first in the list.
        instance_type: String,
        /// The pools that it names.
        pools: Vec<String>,
        /// How many others are for no pool of the cluster either.
        others: usize,
    },
    /// A pool requires a label of a provider of which the catalog says nothing, so that every type passes.
    UnknownLabel {
        /// The name of the pool.
        pool: String,
        /// The label.
        key: String,
    },
    /// A pool limits a resource that no type of the catalog has.
    UnknownResource {
        /// The name of the pool.
        pool: String,
        /// The resource.
        resource: String,
    },
}

impl fmt::Display for LoadWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadPool { file, error } => write!(f, "{file}: {error} (the pool is left out)"),
            Self::NotRead { file, object, api_version, successor: Some(kind) } => {
                let remedy = format_args!("write a {kind} of {} instead", READ_VERSIONS[0]);
                write!(f, "{file}: {object}: apiVersion: {api_version} is not read: {remedy} (it is left out)")
            }
            Self::NotRead { file, object, api_version, successor: None } => {
                let read = format_args!(
                    "only NodePool and NodeClaim of {}, and NodeOverlay of {}, are read",
                    READ_VERSIONS.join(" and "),
                    NodeOverlay::API_VERSION
                );
                write!(f, "{file}: {object}: apiVersion: {api_version}: {read} (it is left out)")
            }
            Self::Older { file, object, others, change } => {
                write!(f, "{file}: {object}: {change}")?;
                and_so_in(f, *others, "NodeClaim")
            }
            Self::UnknownField { file, object, field, others } => {
                write!(f, "{file}: {object}: {field}: there is no such field (it is left out)")?;
                and_so_in(f, *others, "instance type")
            }
            Self::PassedOver { kinds } => passed_over(f, kinds),
            Self::NotAdmitted { file, object, field, written } => {
                write!(
                    f,
                    "{file}: {object}: {field}: what the class says does not count, as nobody wrote {written} beside it"
                )
            }
            Self::NotLaunched { count, first } => counted(
                f,
                (*count, first),
                ["NodeClaim", "no machine is bought yet: the pods that it is for may get another node"],
                "NodeClaims without a machine: the pods that they are for may get other nodes",
            ),
            Self::ClosedNode { node, pod } => {
                write!(f, "Node {node}: takes no further pods, because what Pod {pod} takes of it is unknown")
            }
            Self::NoNodes { count, nodes } => without_nodes(f, *count, nodes),
            Self::NoDaemonSet { count, first } => counted(
                f,
                (*count, first),
                ["DaemonSet", "is not there, but pods of it are: new nodes are planned without it"],
                "DaemonSets are not there, but pods of theirs are: new nodes are planned without them",
            ),
            Self::NoNamespaces { count, first } => counted(
                f,
                (*count, first),
                ["Pod", "chooses namespaces by their labels, and there are no namespaces: it chooses none"],
                "pods choose namespaces by their labels, and there are no namespaces: they choose none",
            ),
            Self::Nominated { count, first } => counted(
                f,
                (*count, first),
                ["Pod", "left alone, because the kube-scheduler makes room for it on a node"],
                "pods left alone, because the kube-scheduler makes room for them on nodes",
            ),
            Self::NotRefused { count, first } => counted(
                f,
                (*count, first),
                ["Pod", "left alone, because the kube-scheduler has not refused it"],
                "pods left alone, because the kube-scheduler has not refused them",
            ),
            Self::NoCatalog { node, instance_type } => write!(
                f,
                "Node {node}: {instance_type} is not in the built-in catalog, by which types and prices are made up: give --catalog"
            ),
            Self::ForNoPool { instance_type, pools, others } => without_pool(f, instance_type, pools, *others),
            Self::UnknownLabel { pool, key } => write!(
                f,
                "NodePool {pool}: spec.template.spec.requirements: no instance type of the catalog says anything of {key}: all pass"
            ),
            Self::UnknownResource { pool, resource } => write!(
                f,
                "NodePool {pool}: spec.limits: no instance type of the catalog has any {resource}: it limits nothing"
            ),
        }
    }
}

/// Writes in how many others the same was found.
fn and_so_in(f: &mut fmt::Formatter<'_>, others: usize, what: &str) -> fmt::Result {
    match others {
        0 => Ok(()),
        1 => write!(f, " (and so in another {what})"),
        n => write!(f, " (and so in {n} other {what}s)"),
    }
}

/// Writes that there is none of the pools that an instance type is for.
fn without_pool(f: &mut fmt::Formatter<'_>, instance_type: &str, pools: &[String], others: usize) -> fmt::Result {
    let pools = pools.join(", ");
    write!(f, "instance type {instance_type}: nodePools: [{pools}]: there is no such NodePool (it is left out)")?;
    and_so_in(f, others, "instance type")
}

/// Writes how many objects of which kinds bear on no plan.
fn passed_over(f: &mut fmt::Formatter<'_>, kinds: &BTreeMap<String, usize>) -> fmt::Result {
    let all: usize = kinds.values().sum();
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} of kind {kind}")).collect();
    let of_all = if all == 1 { "object bears on no plan and is" } else { "objects bear on no plan and are" };
    write!(f, "{all} {of_all} left out: {}", kinds.join(", "))
}

/// Writes how many pods run on which nodes that are not there.
fn without_nodes(f: &mut fmt::Formatter<'_>, count: usize, nodes: &[String]) -> fmt::Result {
    let pods = if count == 1 { "pod runs" } else { "pods run" };
    let [on, them] = if nodes.len() == 1 { ["a node that is", "it"] } else { ["nodes that are", "them"] };
    let names = nodes.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    write!(f, "{count} {pods} on {on} not in the dump: {names}")?;
    if nodes.len() > MAX_NAMES {
        write!(f, " and {} more", nodes.len() - MAX_NAMES)?;
    }
    write!(f, " (how much room there is on {them} is unknown)")
}

/// Writes what is said of an object by its kind and name, or of several with their number.
fn counted(
    f: &mut fmt::Formatter<'_>,
    (count, first): (usize, &impl fmt::Display),
    [kind, of_one]: [&str; 2],
    of_many: &str,
) -> fmt::Result {
    if count == 1 {
        write!(f, "{kind} {first}: {of_one}")
    } else {
        write!(f, "{count} {of_many}; the first is {first}")
    }
}

impl LoadWarning {
    /// Whether it concerns all objects together, or objects and the catalog.
    pub(super) const fn is_of_all(&self) -> bool {
        matches!(
            self,
            Self::ClosedNode { .. }
                | Self::NoNodes { .. }
                | Self::NoDaemonSet { .. }
                | Self::NoNamespaces { .. }
                | Self::Nominated { .. }
                | Self::NotRefused { .. }
                | Self::NotLaunched { .. }
                | Self::NoCatalog { .. }
                | Self::ForNoPool { .. }
                | Self::UnknownLabel { .. }
                | Self::UnknownResource { .. }
        )
    }

    /// What the types of a catalog leave open for a cluster.
    pub(crate) fn of_catalog(cluster: &Cluster, types: &[InstanceType], is_built_in: bool) -> Vec<Self> {
        let no_catalog = is_built_in.then(|| unknown_type(cluster, types)).flatten();
        let of_pool = |pool| unknown_labels(pool, types).into_iter().chain(unknown_resources(pool, cluster, types));
        no_catalog
            .into_iter()
            .chain(for_no_pool(cluster, types))
            .chain(cluster.pools.iter().flat_map(of_pool))
            .collect()
    }

    /// What concerns all objects together.
    pub(super) fn of_all(cluster: &Cluster) -> Vec<Self> {
        let closed = closed_nodes(cluster).into_iter();
        let pods = &cluster.pods;
        let missing = no_nodes(cluster).into_iter().chain(no_daemonset(cluster)).chain(no_namespaces(cluster));
        let pods = missing.chain(not_refused(pods)).chain(nominated(pods));
        closed.chain(pods).chain(not_launched(&cluster.claims)).collect()
    }
}

/// The fields of what is wanted that are unknown. Others, of metadata and status, are there in every cluster.
pub(super) fn unknown_fields(fields: Vec<String>, object: &str, file: &str) -> impl Iterator<Item = LoadWarning> {
    // Of the settings of the kubelet it is said that they are not read.
    let is_asked = |field: &String| field.starts_with("spec.") && !field.starts_with("spec.template.spec.kubelet.");
    let fields = fields.into_iter().filter(is_asked);
    fields.map(move |field| LoadWarning::UnknownField {
        file: file.to_owned(),
        object: object.to_owned(),
        field,
        others: 0,
    })
}

/// Nodes of the cluster with a pod that cannot be read, and the first such pod of each.
fn closed_nodes(cluster: &Cluster) -> Vec<LoadWarning> {
    let mut first = BTreeMap::new();
    for (pod, bad) in &cluster.bad_pods {
        if let Some(node) = cluster.nodes.iter().find(|n| Some(&n.metadata.name) == bad.node.as_ref()) {
            first.entry(node.metadata.name.clone()).or_insert_with(|| pod.clone());
        }
    }
    first.into_iter().map(|(node, pod)| LoadWarning::ClosedNode { node, pod }).collect()
}

/// The pods that run on nodes of which a dump has nothing, those that cannot be read among them.
fn no_nodes(cluster: &Cluster) -> Option<LoadWarning> {
    let there: BTreeSet<&str> = cluster.nodes.iter().map(|node| node.metadata.name.as_str()).collect();
    let running = cluster.pods.iter().filter(|pod| !pod.is_finished()).map(|pod| pod.spec.node_name.as_str());
    let bound = running.chain(cluster.bad_pods.values().filter_map(|bad| bad.node.as_deref()));
    let missing: Vec<&str> = bound.filter(|node| !node.is_empty() && !there.contains(node)).collect();
    let nodes: BTreeSet<&str> = missing.iter().copied().collect();
    let nodes: Vec<String> = nodes.into_iter().map(str::to_owned).collect();
    (!nodes.is_empty()).then_some(LoadWarning::NoNodes { count: missing.len(), nodes })
}

fn no_daemonset(cluster: &Cluster) -> Option<LoadWarning> {
    let of_meta = |meta: &ObjectMeta| ObjectKey::new(meta.namespace(), &meta.name);
    let there: BTreeSet<ObjectKey> = cluster.daemonsets.iter().map(|one| of_meta(&one.metadata)).collect();
    let running = cluster.pods.iter().filter(|pod| pod.is_daemon() && pod.is_active());
    let owners = running.filter_map(|pod| Some(ObjectKey::new(pod.namespace(), &pod.metadata.controller()?.name)));
    let missing: BTreeSet<ObjectKey> = owners.filter(|owner| !there.contains(owner)).collect();
    let (count, first) = count_and_first(missing)?;
    Some(LoadWarning::NoDaemonSet { count, first })
}

fn no_namespaces(cluster: &Cluster) -> Option<LoadWarning> {
    if !cluster.namespaces.is_empty() {
        return None;
    }
    let choose = cluster.pods.iter().filter(|pod| pod.is_active() && looks_at_namespaces(pod));
    let (count, first) = count_and_first(choose.map(|pod| pod.key()))?;
    Some(LoadWarning::NoNamespaces { count, first })
}

/// Whether a pod chooses namespaces by other labels than their names, which are known without the namespaces.
fn looks_at_namespaces(pod: &Pod) -> bool {
    let Affinity { pod_affinity, pod_anti_affinity, .. } = &pod.spec.affinity;
    let terms = [pod_affinity, pod_anti_affinity]
        .into_iter()
        .flat_map(|side| side.required.iter().chain(side.preferred.iter().map(|weighted| &weighted.pod_affinity_term)));
    terms.filter_map(|term| term.namespace_selector.as_ref()).any(|selector| {
        let keys = selector.match_labels.keys().chain(selector.match_expressions.iter().map(|e| &e.key));
        keys.into_iter().any(|key| key != labels::NAMESPACE_NAME)
    })
}

fn not_refused(pods: &[Arc<Pod>]) -> Option<LoadWarning> {
    let (count, first) = waiting(pods, |pod| !pod.is_unschedulable())?;
    Some(LoadWarning::NotRefused { count, first })
}

fn nominated(pods: &[Arc<Pod>]) -> Option<LoadWarning> {
    let is_nominated = |pod: &Pod| pod.is_unschedulable() && !pod.status.nominated_node_name.is_empty();
    let (count, first) = waiting(pods, is_nominated)?;
    Some(LoadWarning::Nominated { count, first })
}

/// How many pods wait for the kube-scheduler and are like this, and the first by namespace and name.
fn waiting(pods: &[Arc<Pod>], is_it: impl Fn(&Pod) -> bool) -> Option<(usize, ObjectKey)> {
    let waits = |pod: &&Arc<Pod>| {
        let is_left = pod.spec.node_name.is_empty() && !pod.is_finished() && !pod.is_terminating();
        is_left && !is_gated(pod) && !pod.is_daemon() && !pod.is_mirror() && is_it(pod)
    };
    count_and_first(pods.iter().filter(waits).map(|pod| pod.key()))
}

fn count_and_first(keys: impl IntoIterator<Item = ObjectKey>) -> Option<(usize, ObjectKey)> {
    let all = keys.into_iter().map(|key| (1, key));
    all.reduce(|(count, first), (_, key)| (count + 1, first.min(key)))
}

fn not_launched(claims: &[NodeClaim]) -> Option<LoadWarning> {
    let waits = |claim: &&NodeClaim| claim.status.provider_id.is_empty() && claim.metadata.deletion_timestamp.is_none();
    let waiting: BTreeSet<&str> = claims.iter().filter(waits).map(|claim| claim.metadata.name.as_str()).collect();
    let first = (*waiting.first()?).to_owned();
    Some(LoadWarning::NotLaunched { count: waiting.len(), first })
}

fn for_no_pool(cluster: &Cluster, types: &[InstanceType]) -> Option<LoadWarning> {
    let mut left_out = types.iter().filter(|one| !cluster.pools.iter().any(|pool| one.is_for(pool.name())));
    let first = left_out.next().filter(|_| !cluster.pools.is_empty())?;
    let pools = first.node_pools.clone().unwrap_or_default();
    Some(LoadWarning::ForNoPool { instance_type: first.name.clone(), pools, others: left_out.count() })
}

fn unknown_type(cluster: &Cluster, types: &[InstanceType]) -> Option<LoadWarning> {
    let known: BTreeSet<&str> = types.iter().map(|instance_type| instance_type.name.as_str()).collect();
    let of_type = cluster.nodes.iter().filter_map(|node| {
        let instance_type = node.metadata.labels.get(labels::INSTANCE_TYPE)?;
        Some((&node.metadata.name, instance_type)).filter(|_| !known.contains(instance_type.as_str()))
    });
    let (node, instance_type) = of_type.min()?;
    Some(LoadWarning::NoCatalog { node: node.clone(), instance_type: instance_type.clone() })
}

/// The labels that a pool requires and of which providers tell, if the types have none of that provider. Where they have some, the
/// pool is not ready.
fn unknown_labels(pool: &NodePool, types: &[InstanceType]) -> Vec<LoadWarning> {
    let is_told = |key: &str| {
        let tells = |has: &Requirements| has.iter().any(|(known, _)| labels::domain(known) == labels::domain(key));
        types.iter().any(|t| tells(&t.requirements) || t.offerings.iter().any(|offering| tells(&offering.requirements)))
    };
    let asked = pool.spec.template.spec.requirements.iter();
    let asked = asked.filter(|own| !matches!(own.operator, Operator::NotIn | Operator::DoesNotExist));
    let keys: BTreeSet<&str> =
        asked.map(|own| own.key.as_str()).filter(|key| labels::is_of_provider(key) && !is_told(key)).collect();
    let unknown = |key: &str| LoadWarning::UnknownLabel { pool: pool.name().to_owned(), key: key.to_owned() };
    keys.into_iter().map(unknown).collect()
}

/// The resources that a pool limits and that no type has, as overlays have it. A limit of none says what is meant.
fn unknown_resources(pool: &NodePool, cluster: &Cluster, types: &[InstanceType]) -> Vec<LoadWarning> {
    let of_types = types.iter().map(|instance_type| &instance_type.capacity);
    let of_overlays = cluster.overlays.iter().map(|overlay| &overlay.spec.capacity);
    let all: Vec<_> = of_types.chain(of_overlays).collect();
    let is_had = |resource: &str| all.iter().any(|capacity| capacity.get(resource).is_some_and(|has| !has.is_zero()));
    let limits = pool.spec.limits.iter().filter(|(_, most)| !most.is_zero()).map(|(resource, _)| resource.as_str());
    let unknown = limits.filter(|&resource| resource != "nodes" && !types.is_empty() && !is_had(resource));
    let warning =
        |resource: &str| LoadWarning::UnknownResource { pool: pool.name().to_owned(), resource: resource.to_owned() };
    unknown.map(warning).collect()
}
