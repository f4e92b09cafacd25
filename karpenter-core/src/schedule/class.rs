//! Pods that ask for the same are planned as one.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
};

use indexmap::{IndexMap, IndexSet};

use super::{
    PlannerOptions, PreferencePolicy,
    amounts::{Amounts, Axes},
    pool::Daemon,
    screen,
    topology::{Neighbourhood, Rules, SelectorId, Selectors, Standing},
    volumes::{AllVolumes, Volumes},
    workload::{WorkloadId, Workloads},
};
use crate::{
    FxBuild, NodeAlternatives, Reason, ResourceList, Snapshot,
    api::{
        Affinity, Container, ContainerPort, NodeAffinity, ObjectKey, Pod, PodSpec, Resources, Toleration,
        TopologySpreadConstraint,
    },
    cluster::{HostPort, pod_requests},
};

/// Pods that differ in nothing that planning looks at.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// The indices of the pods in the snapshot, in order.
    pub(super) pods: Vec<usize>,
    pub(super) requests: Amounts,
    pub(super) request_list: ResourceList,
    /// The index of its [`Constraint`].
    pub(super) constraint: usize,
    /// The ports of its node that each pod takes for itself.
    pub(super) host_ports: Vec<HostPort>,
    /// The index of its [`Neighbourhood`].
    pub(super) neighbourhood: usize,
    /// The number of its workload, if a node takes only a share of one.
    pub(super) workload: Option<WorkloadId>,
    /// The number of its [`Volumes`].
    volumes: usize,
    /// How much its pods matter where limits leave some of the pods without a node; the same for all where there are no limits.
    pub(super) priority: i32,
}

/// What makes a class.
type Meaning = (ResourceList, usize, Vec<HostPort>, usize, Option<WorkloadId>, usize, i32);

/// What a pod says of its node, its resources apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Constraint {
    pub(super) wanted: NodeAlternatives,
    pub(super) tolerations: Vec<Toleration>,
}

impl Constraint {
    pub(super) fn of_pod(spec: &PodSpec) -> Self {
        let mut tolerations = spec.tolerations.clone();
        tolerations.sort();
        Self { wanted: NodeAlternatives::of_pod(spec), tolerations }
    }
}

/// The pending pods of a snapshot: in classes, or refused.
#[derive(Debug, Default)]
pub(super) struct Classes<'s> {
    pub(super) axes: Axes,
    pub(super) list: Vec<Class>,
    pub(super) constraints: Vec<Constraint>,
    pub(super) neighbourhoods: Vec<Neighbourhood>,
    pub(super) selectors: Selectors<'s>,
    pub(super) standing: Standing,
    pub(super) workloads: Workloads<'s>,
    all_volumes: AllVolumes,
    /// The selectors of rules about single nodes.
    pub(super) host_selectors: BTreeSet<SelectorId>,
    pub(super) refused: BTreeMap<ObjectKey, Reason>,
}

/// A pending pod that can be planned.
struct Planned<'p> {
    /// Its index in the snapshot.
    index: usize,
    pod: &'p Pod,
    /// The index of its [`Neighbourhood`].
    neighbourhood: usize,
}

/// The fields of a specification that planning reads, as they were written: equal ones need to be read only once.
#[derive(PartialEq, Eq, Hash)]
struct Written<'p> {
    containers: WrittenContainers<'p>,
    init_containers: WrittenContainers<'p>,
    host_network: bool,
    resources: &'p Resources,
    overhead: &'p ResourceList,
    node_selector: &'p BTreeMap<String, String>,
    node_affinity: &'p NodeAffinity,
    tolerations: &'p [Toleration],
    neighbourhood: usize,
    workload: Option<WorkloadId>,
    volumes: usize,
    priority: i32,
}

/// Containers of which only what planning reads is looked at.
struct WrittenContainers<'p>(&'p [Container]);

impl<'p> Written<'p> {
    fn new(
        spec: &'p PodSpec,
        neighbourhood: usize,
        workload: Option<WorkloadId>,
        volumes: usize,
        priority: i32,
    ) -> Self {
        Self {
            containers: WrittenContainers(&spec.containers),
            init_containers: WrittenContainers(&spec.init_containers),
            host_network: spec.host_network,
            resources: &spec.resources,
            overhead: &spec.overhead,
            node_selector: &spec.node_selector,
            node_affinity: &spec.affinity.node_affinity,
            tolerations: &spec.tolerations,
            neighbourhood,
            workload,
            volumes,
            priority,
        }
    }
}

impl<'p> WrittenContainers<'p> {
    /// Resources, ports, and whether it is a sidecar, of each.
    fn parts(&self) -> impl ExactSizeIterator<Item = (&'p Resources, &'p [ContainerPort], bool)> {
        self.0.iter().map(|c| (&c.resources, c.ports.as_slice(), c.is_sidecar()))
    }
}

impl PartialEq for WrittenContainers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.parts().eq(other.parts())
    }
}

impl Eq for WrittenContainers<'_> {}

impl Hash for WrittenContainers<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.len().hash(state);
        self.parts().for_each(|part| part.hash(state));
    }
}

impl<'s> Classes<'s> {
    /// Sorts the pending pods into classes, those that matter most first, and then in the order of their first pods.
    ///
    /// The axes have the resources of the daemons too.
    pub(super) fn new(
        snapshot: &'s Snapshot,
        daemons: &[Daemon],
        options: &PlannerOptions,
        preferences: PreferencePolicy,
    ) -> Self {
        let workloads = Workloads::new(snapshot, options.max_workload_share);
        let mut out = Self { workloads, ..Self::default() };
        let pods = out.read_neighbourhoods(snapshot, preferences);
        let mut by_text: IndexMap<Written<'_>, usize, FxBuild> = IndexMap::default();
        let mut by_meaning: IndexMap<Meaning, Vec<usize>, FxBuild> = IndexMap::default();
        let mut constraints: IndexSet<Constraint, FxBuild> = IndexSet::default();
        let has_limits = snapshot.pools().iter().any(|pool| !pool.spec.limits.is_empty());
        for Planned { index: pod_index, pod, neighbourhood } in pods {
            let volumes = out.all_volumes.of(pod);
            let workload = out.workloads.of_pod(pod);
            let priority = pod.spec.priority.filter(|_| has_limits).unwrap_or_default();
            let mut meaning = || {
                let (constraint, _) = constraints.insert_full(Constraint::of_pod(&pod.spec));
                let ports = HostPort::of_pod(&pod.spec);
                let meaning = (pod_requests(pod), constraint, ports, neighbourhood, workload, volumes, priority);
                let entry = by_meaning.entry(meaning);
                let index = entry.index();
                entry.or_default();
                index
            };
            // A pod of a node on its way out may be in the middle of a resize, which its specification does not tell.
            let index = if pod.status.all_container_statuses().next().is_none() {
                *by_text
                    .entry(Written::new(&pod.spec, neighbourhood, workload, volumes, priority))
                    .or_insert_with(meaning)
            } else {
                meaning()
            };
            by_meaning[index].push(pod_index);
        }
        let daemon_requests = daemons.iter().map(|d| &d.requests);
        out.axes = Axes::of(by_meaning.keys().map(|(requests, ..)| requests).chain(daemon_requests));
        out.constraints = constraints.into_iter().collect();
        out.list = by_meaning
            .into_iter()
            .map(|((request_list, constraint, host_ports, neighbourhood, workload, volumes, priority), pods)| Class {
                workload: workload.or_else(|| out.workloads.add(pods.len())),
                pods,
                requests: out.axes.requests(&request_list),
                request_list,
                constraint,
                host_ports,
                neighbourhood,
                volumes,
                priority,
            })
            .collect();
        out.list.sort_by_key(|class| Reverse(class.priority));
        out
    }

    /// Whether some pod prefers something of its node.
    pub(super) fn have_wishes(&self) -> bool {
        self.neighbourhoods.iter().any(|neighbourhood| neighbourhood.levels() > 1)
    }

    /// Sets aside the pods that cannot be planned, and reads the neighbourhoods of the others.
    fn read_neighbourhoods(&mut self, snapshot: &'s Snapshot, preferences: PreferencePolicy) -> Vec<Planned<'s>> {
        let namespaces = snapshot.namespaces();
        self.standing = Standing::new(snapshot, &mut self.selectors, namespaces);
        let mut by_text: IndexMap<Said<'_>, Neighbourhood, FxBuild> = IndexMap::default();
        let mut pods = Vec::with_capacity(snapshot.pending().len());
        for (index, pod) in self.screen(snapshot) {
            let entry = by_text.entry(Said::new(pod));
            let neighbourhood = entry.index();
            entry.or_insert_with(|| Neighbourhood::of_pod(pod, &mut self.selectors, namespaces, preferences));
            pods.push(Planned { index, pod, neighbourhood });
        }
        self.standing.count(snapshot, &mut self.selectors);
        let mut all: IndexSet<Neighbourhood, FxBuild> = IndexSet::default();
        let mut known: IndexMap<_, usize, FxBuild> = IndexMap::default();
        for Planned { pod, neighbourhood, .. } in &mut pods {
            let selected_by = self.selectors.selecting(pod);
            let said = *neighbourhood;
            let whole = || all.insert_full(by_text[said].clone().selected_by(selected_by)).0;
            *neighbourhood = *known.entry((said, selected_by)).or_insert_with(whole);
        }
        self.neighbourhoods = all.into_iter().collect();
        let running = (0..snapshot.places().len()).flat_map(|place| self.standing.away(place));
        let pending: Vec<_> = self.neighbourhoods.iter().map(|n| n.rules_at(0)).collect();
        let terms = pending.iter().flat_map(Rules::terms).chain(running);
        self.host_selectors = terms.filter(|term| term.is_by_host()).map(|term| term.selector).collect();
        pods
    }

    /// Sets aside the pods that cannot be planned, and gives back the others with their indices in the snapshot.
    fn screen(&mut self, snapshot: &'s Snapshot) -> Vec<(usize, &'s Pod)> {
        let mut pods = Vec::with_capacity(snapshot.pending().len());
        for (&index, pod) in snapshot.pending_indices().iter().zip(snapshot.pending()) {
            match screen::check(pod) {
                Ok(()) => pods.push((index, pod)),
                Err(reason) => drop(self.refused.insert(pod.key(), reason)),
            }
        }
        let sharing = screen::sharing_disks(snapshot, &pods);
        pods.retain(|(_, pod)| !sharing.contains_key(&pod.key()));
        self.refused.extend(sharing);
        let (all_volumes, problems) = AllVolumes::new(snapshot, pods.iter().map(|(_, pod)| *pod));
        self.all_volumes = all_volumes;
        if !problems.is_empty() {
            pods.retain(|(_, pod)| !problems.contains_key(&pod.key()));
        }
        self.refused.extend(problems.into_iter().map(|(pod, problem)| (pod, Reason::Volume(problem))));
        pods
    }

    /// On which nodes pods of a class and their volumes may be, wishes apart.
    pub(super) fn node_constraint(&self, class: usize) -> Constraint {
        let tolerations = self.constraints[self.list[class].constraint].tolerations.clone();
        Constraint { wanted: self.node_wanted(class), tolerations }
    }

    /// What the nodes of a class must be like for its pods and their volumes, wishes apart.
    pub(super) fn node_wanted(&self, class: usize) -> NodeAlternatives {
        let own = self.own_wanted(class);
        match self.volumes(class).alternatives.as_slice() {
            [] => own.clone(),
            nodes => own.and(nodes),
        }
    }

    /// The same without its volumes.
    pub(super) fn own_wanted(&self, class: usize) -> &NodeAlternatives {
        &self.constraints[self.list[class].constraint].wanted
    }

    pub(super) fn volumes(&self, class: usize) -> &Volumes {
        self.all_volumes.kind(self.list[class].volumes)
    }

    pub(super) fn neighbourhood(&self, class: usize) -> &Neighbourhood {
        &self.neighbourhoods[self.list[class].neighbourhood]
    }
}

/// What a pod says about its neighbours, as it was written.
#[derive(PartialEq, Eq, Hash)]
struct Said<'p> {
    spreads: &'p [TopologySpreadConstraint],
    affinity: Option<&'p Affinity>,
    namespace: &'p str,
    /// Only if some rule looks at the labels of the pod itself.
    labels: Option<&'p BTreeMap<String, String>>,
}

impl<'p> Said<'p> {
    fn new(pod: &'p Pod) -> Self {
        let Affinity { node_affinity, pod_affinity, pod_anti_affinity } = &pod.spec.affinity;
        let spreads = pod.spec.topology_spread_constraints.as_slice();
        let sides = [pod_affinity, pod_anti_affinity];
        let says_nothing = spreads.is_empty()
            && node_affinity.preferred.is_empty()
            && sides.iter().all(|side| side.required.is_empty() && side.preferred.is_empty());
        if says_nothing {
            return Self { spreads: &[], affinity: None, namespace: "", labels: None };
        }
        let terms = sides.into_iter().flat_map(|side| {
            side.required.iter().chain(side.preferred.iter().map(|weighted| &weighted.pod_affinity_term))
        });
        let looks_at_labels = spreads.iter().any(|spread| !spread.match_label_keys.is_empty())
            || terms.into_iter().any(|t| !t.match_label_keys.is_empty() || !t.mismatch_label_keys.is_empty());
        Self {
            spreads,
            affinity: Some(&pod.spec.affinity),
            namespace: pod.namespace(),
            labels: looks_at_labels.then_some(&pod.metadata.labels),
        }
    }
}
