//! Who is where once all nodes of a plan are there.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    api::{NodeSelectorTerm, ObjectKey, Pod, PodSpec, Taint, TopologySpreadConstraint, UnsatisfiableAction},
    cluster::Place,
    labels,
};

use crate::checker::{
    Checker, PlannedNode,
    claims::hostname,
    options::{Candidate, add_aliases},
};

/// The most choices in which all claims get the offering of one number: enough for every zone of a region.
const MAX_ALIGNED_CHOICES: usize = 16;
/// Choices in which each claim gets an offering of its own.
const MIXED_CHOICES: usize = 4;

type Labels = BTreeMap<String, String>;

/// The keys of labels on which topology rules depend.
#[derive(Debug, Default)]
pub(in crate::checker) struct Interest<'a>(BTreeSet<&'a str>);

impl<'a> Interest<'a> {
    /// What matters to pods that come to a node, `planned`, and to those that are there.
    pub(in crate::checker) fn new(
        planned: impl IntoIterator<Item = &'a Pod>,
        running: impl IntoIterator<Item = &'a Pod>,
    ) -> Self {
        let mut keys = BTreeSet::new();
        for pod in planned {
            let (affinity, hard) = (&pod.spec.affinity, hard_keys(&pod.spec));
            if !hard.is_empty() {
                // Constraints count the nodes that the pod may go to.
                keys.extend(hard);
                keys.extend(node_keys(&pod.spec));
            }
            let terms = affinity.pod_affinity.required.iter().chain(&affinity.pod_anti_affinity.required);
            keys.extend(terms.map(|term| term.topology_key.as_str()));
        }
        for pod in running {
            let terms = &pod.spec.affinity.pod_anti_affinity.required;
            keys.extend(terms.iter().map(|term| term.topology_key.as_str()));
        }
        Self(keys)
    }

    pub(in crate::checker) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, labels: &Labels) -> Labels {
        let known = self.0.iter().filter_map(|key| labels.get_key_value(*key));
        known.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

pub(super) fn is_hard(constraint: &TopologySpreadConstraint) -> bool {
    constraint.when_unsatisfiable == UnsatisfiableAction::DoNotSchedule
}

/// The topology keys of all constraints that must hold.
pub(super) fn hard_keys(spec: &PodSpec) -> BTreeSet<&str> {
    let hard = spec.topology_spread_constraints.iter().filter(|c| is_hard(c));
    hard.map(|c| c.topology_key.as_str()).collect()
}

/// The labels by which the pod chooses its node.
pub(in crate::checker) fn node_keys(spec: &PodSpec) -> impl Iterator<Item = &str> {
    let terms = spec.affinity.node_affinity.required.iter().flat_map(|s| &s.node_selector_terms);
    let of_terms = terms.flat_map(|term: &NodeSelectorTerm| &term.match_expressions).map(|e| e.key.as_str());
    spec.node_selector.keys().map(String::as_str).chain(of_terms)
}

/// A pod that is on a node, or comes to it.
pub(super) struct Actor<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) pod: &'a Pod,
    /// Its node, by the place in the list of [`Scene`].
    pub(super) site: usize,
    /// Whether the plan put it there.
    pub(super) is_new: bool,
}

/// A node that there is, or a claim.
pub(super) struct Site<'a> {
    pub(super) name: String,
    pub(super) taints: &'a [Taint],
    pub(super) is_deleting: bool,
    /// Whether it may be gone, or not there yet, when pods are bound.
    pub(super) may_be_missing: bool,
    pub(super) has_new_pods: bool,
    faces: Faces,
}

/// All that a node may come to be, as far as topology rules can tell.
#[derive(Clone, Debug)]
pub(in crate::checker) struct Faces {
    /// In the order of their labels, never empty.
    all: Vec<Face>,
    /// The one that costs least.
    cheapest: usize,
}

/// One of them, with the labels that matter.
#[derive(Clone, Debug)]
pub(super) struct Face {
    pub(super) labels: Labels,
    pub(super) node: PlannedNode,
}

impl Faces {
    fn of_place(place: &Place, interest: &Interest<'_>) -> Self {
        let mut labels = place.labels.clone();
        add_aliases(&mut labels);
        let node = PlannedNode::Existing(place.name.clone());
        Self { all: vec![Face { labels: interest.of(&labels), node }], cheapest: 0 }
    }

    /// The faces of a claim; `None` if it cannot become anything.
    pub(in crate::checker) fn of_claim(
        claim: usize,
        candidates: &[Candidate<'_>],
        interest: &Interest<'_>,
    ) -> Option<Self> {
        let lowest = candidates.iter().min_by_key(|candidate| candidate.offering.price)?;
        let mut by_labels: BTreeMap<Labels, &Candidate<'_>> = BTreeMap::new();
        for candidate in candidates {
            by_labels.entry(interest.of(&candidate.labels)).or_insert(candidate);
        }
        let first = interest.of(&lowest.labels);
        by_labels.insert(first.clone(), lowest);
        let cheapest = by_labels.keys().position(|labels| *labels == first).unwrap_or(0);
        let face = |(labels, candidate): (Labels, &Candidate<'_>)| Face { labels, node: candidate.node(claim) };
        Some(Self { all: by_labels.into_iter().map(face).collect(), cheapest })
    }
}

/// All pods and nodes.
pub(super) struct Scene<'a> {
    pub(super) actors: Vec<Actor<'a>>,
    pub(super) sites: Vec<Site<'a>>,
}

impl<'a> Scene<'a> {
    /// `None` if some claim cannot become anything.
    pub(super) fn new(checker: &Checker<'a>) -> Option<Self> {
        let mut scene = Self { actors: Vec::new(), sites: Vec::new() };
        for place in checker.snapshot.places() {
            let site = Site {
                name: place.name.clone(),
                taints: &place.taints,
                is_deleting: place.is_deleting,
                may_be_missing: place.is_deleting || has_no_node(place),
                has_new_pods: false,
                faces: Faces::of_place(place, &checker.interest),
            };
            let new = checker.plan.existing().get(&place.name).map_or(&[][..], Vec::as_slice);
            scene.add(checker, site, &place.pods, new);
        }
        for (index, claim) in checker.plan.claims().iter().enumerate() {
            let pool = checker.snapshot.pool(&claim.node_pool)?;
            let site = Site {
                name: hostname(index),
                taints: &pool.spec.template.spec.taints,
                is_deleting: false,
                may_be_missing: false,
                has_new_pods: false,
                faces: checker.faces.get(&index)?.clone(),
            };
            scene.add(checker, site, &[], &claim.pods);
        }
        Some(scene)
    }

    fn add(&mut self, checker: &Checker<'a>, mut site: Site<'a>, there: &'a [ObjectKey], new: &'a [ObjectKey]) {
        site.has_new_pods = !new.is_empty();
        let index = self.sites.len();
        for (keys, is_new) in [(there, false), (new, true)] {
            for key in keys {
                let Some(pod) = checker.snapshot.pod(key) else { continue };
                self.actors.push(Actor { key, pod, site: index, is_new });
            }
        }
        self.sites.push(site);
    }

    /// The new pods with their places in the list of all.
    pub(super) fn new_actors(&self) -> impl Iterator<Item = (usize, &Actor<'a>)> {
        self.actors.iter().enumerate().filter(|(_, actor)| actor.is_new)
    }

    /// Choices of what each claim becomes: the cheapest, then all alike, then mixed.
    pub(super) fn worlds(&self) -> impl Iterator<Item = World<'_, 'a>> {
        let most = self.sites.iter().map(|site| site.faces.all.len()).max().unwrap_or(0);
        let open = self.sites.iter().filter(|site| site.faces.all.len() > 1).count();
        let aligned = if open > 0 { most.min(MAX_ALIGNED_CHOICES) } else { 0 };
        let mixed = if open > 1 { MIXED_CHOICES } else { 0 };
        let cheapest = |site: usize| self.sites[site].faces.cheapest;
        let pick = move |choice: usize, site: usize| match choice {
            0 => cheapest(site),
            n if n <= aligned => (n - 1) % self.sites[site].faces.all.len(),
            n => scattered(n, site) % self.sites[site].faces.all.len(),
        };
        let sites = 0..self.sites.len();
        let all = 0..=aligned + mixed;
        all.map(move |choice| World { scene: self, picks: sites.clone().map(|site| pick(choice, site)).collect() })
    }
}

/// A claim whose machine runs and whose node has not come.
fn has_no_node(place: &Place) -> bool {
    let is_registered = place.labels.get(labels::REGISTERED).is_some_and(|value| value == "true");
    place.claim.as_ref() == Some(&place.name) && !is_registered && !place.is_initialized
}

/// A number that looks random, the same in every run (the finalizer of SplitMix64).
fn scattered(choice: usize, site: usize) -> usize {
    let mut x = (choice as u64) << 32 ^ (site as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((x ^ x >> 31) >> 33).unwrap_or(0)
}

/// One choice of what each claim becomes.
pub(super) struct World<'s, 'a> {
    pub(super) scene: &'s Scene<'a>,
    picks: Vec<usize>,
}

impl<'s, 'a> World<'s, 'a> {
    pub(super) fn labels(&self, site: usize) -> &'s Labels {
        &self.face(site).labels
    }

    /// The domain of a node.
    pub(super) fn domain(&self, site: usize, topology_key: &str) -> Option<&'s str> {
        self.labels(site).get(topology_key).map(String::as_str)
    }

    pub(super) fn node(&self, site: usize) -> PlannedNode {
        self.face(site).node.clone()
    }

    /// The node of a pod.
    pub(super) fn node_of(&self, actor: usize) -> PlannedNode {
        self.node(self.actor(actor).site)
    }

    /// The domain of a pod's node.
    pub(super) fn domain_of(&self, actor: usize, topology_key: &str) -> Option<&'s str> {
        self.domain(self.actor(actor).site, topology_key)
    }

    pub(super) fn actor(&self, actor: usize) -> &'s Actor<'a> {
        &self.scene.actors[actor]
    }

    fn face(&self, site: usize) -> &'s Face {
        &self.scene.sites[site].faces.all[self.picks[site]]
    }
}
