//! Pods that ask for the same are planned as one.

use std::{collections::BTreeMap, hash::Hash};

use indexmap::{IndexMap, IndexSet};

use super::{
    amounts::{Amounts, Axes},
    pool::Daemon,
    screen::Screen,
};
use crate::{
    FxBuild, NodeAlternatives, Reason, ResourceList, Snapshot,
    api::{Container, ContainerPort, NodeAffinity, ObjectKey, Pod, PodSpec, Resources, Toleration},
    cluster::{HostPort, pod_requests},
};

/// Pods that differ in nothing that planning looks at.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// By namespace and name.
    pub(super) pods: Vec<ObjectKey>,
    pub(super) requests: Amounts,
    pub(super) request_list: ResourceList,
    /// The index of its [`Constraint`].
    pub(super) constraint: usize,
    /// The ports of its node that each pod takes for itself.
    pub(super) host_ports: Vec<HostPort>,
}

/// What makes a class.
type Meaning = (ResourceList, usize, Vec<HostPort>);

/// What a pod says of its node, its resources apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Constraint {
    pub(super) wanted: NodeAlternatives,
    pub(super) tolerations: Vec<Toleration>,
}

impl Constraint {
    pub(super) fn of_pod(spec: &PodSpec) -> Self {
        Self { wanted: NodeAlternatives::of_pod(spec), tolerations: spec.tolerations.clone() }
    }
}

/// The pending pods of a snapshot: in classes, or refused.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    pub(super) axes: Axes,
    pub(super) list: Vec<Class>,
    pub(super) constraints: Vec<Constraint>,
    pub(super) refused: BTreeMap<ObjectKey, Reason>,
}

/// The fields of a specification that planning reads, as they were written: equal ones need to be read only once.
#[derive(PartialEq, Eq, Hash)]
struct Written<'p> {
    containers: Vec<WrittenContainer<'p>>,
    init_containers: Vec<WrittenContainer<'p>>,
    resources: &'p Resources,
    overhead: &'p ResourceList,
    node_selector: &'p BTreeMap<String, String>,
    node_affinity: &'p NodeAffinity,
    tolerations: &'p [Toleration],
}

/// Resources, ports, and whether it is a sidecar.
type WrittenContainer<'p> = (&'p Resources, &'p [ContainerPort], bool);

impl<'p> Written<'p> {
    fn new(pod: &'p Pod) -> Self {
        let read = |containers: &'p [Container]| {
            containers.iter().map(|c| (&c.resources, c.ports.as_slice(), c.is_sidecar())).collect()
        };
        let spec = &pod.spec;
        Self {
            containers: read(&spec.containers),
            init_containers: read(&spec.init_containers),
            resources: &spec.resources,
            overhead: &spec.overhead,
            node_selector: &spec.node_selector,
            node_affinity: &spec.affinity.node_affinity,
            tolerations: &spec.tolerations,
        }
    }
}

impl Classes {
    /// Sorts the pending pods into classes, in the order of their first pods.
    ///
    /// The axes have the resources of the daemons too.
    pub(super) fn new(snapshot: &Snapshot, daemons: &[Daemon]) -> Self {
        let mut screen = Screen::new(snapshot);
        let mut out = Self::default();
        let mut by_text: IndexMap<Written<'_>, usize, FxBuild> = IndexMap::default();
        let mut by_meaning: IndexMap<Meaning, Vec<ObjectKey>, FxBuild> = IndexMap::default();
        let mut constraints: IndexSet<Constraint, FxBuild> = IndexSet::default();
        for key in snapshot.pending() {
            let pod = &snapshot.pods()[key];
            if let Err(reason) = screen.check(pod) {
                out.refused.insert(key.clone(), reason);
                continue;
            }
            // A pod of a node on its way out may be in the middle of a resize, which its specification does not tell.
            let index = if pod.status.container_statuses.is_empty() {
                *by_text.entry(Written::new(pod)).or_insert_with(|| meaning(pod, &mut by_meaning, &mut constraints))
            } else {
                meaning(pod, &mut by_meaning, &mut constraints)
            };
            by_meaning[index].push(key.clone());
        }
        let daemon_requests = daemons.iter().map(|d| &d.requests);
        out.axes = Axes::of(by_meaning.keys().map(|(requests, ..)| requests).chain(daemon_requests));
        out.constraints = constraints.into_iter().collect();
        out.list = by_meaning
            .into_iter()
            .map(|((request_list, constraint, host_ports), pods)| Class {
                pods,
                requests: out.axes.requests(&request_list),
                request_list,
                constraint,
                host_ports,
            })
            .collect();
        out
    }
}

/// The index of the class of a pod.
fn meaning(
    pod: &Pod,
    by_meaning: &mut IndexMap<Meaning, Vec<ObjectKey>, FxBuild>,
    constraints: &mut IndexSet<Constraint, FxBuild>,
) -> usize {
    let (constraint, _) = constraints.insert_full(Constraint::of_pod(&pod.spec));
    let entry = by_meaning.entry((pod_requests(pod), constraint, HostPort::of_pod(&pod.spec)));
    let index = entry.index();
    entry.or_default();
    index
}
