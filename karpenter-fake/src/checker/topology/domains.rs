//! The domains that pools could make for a pod, whether or not they have nodes today.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karpenter_core::{
    ResourceName,
    api::{NodePool, NodeSelectorRequirement, Pod, Taint, Toleration},
    cluster::Storage,
    labels,
};

use super::scene::hard_keys;
use crate::checker::{
    Checker,
    filters::{Amounts, fits, misfit, requests, untolerated},
    pools::{Room, unready},
    volumes::{MountRule, mounts},
};

/// Values of a topology key.
pub(super) type OpenDomains = Arc<BTreeSet<String>>;

/// Answers for pods of all kinds.
pub(super) struct Domains<'c, 'a> {
    checker: &'c Checker<'a>,
    /// The nodes that the pools can have; filled when somebody asks.
    rooms: Option<Vec<PoolRoom<'a>>>,
    /// For each topology key, the nodes with each value, the largest first.
    by_value: BTreeMap<&'a str, BTreeMap<String, Vec<usize>>>,
    answers: BTreeMap<Question<'a>, OpenDomains>,
}

struct PoolRoom<'a> {
    taints: &'a [Taint],
    room: Room,
}

type Terms<'a> = Vec<(&'a [NodeSelectorRequirement], &'a [NodeSelectorRequirement])>;

/// All of a pod on which the answer depends.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Question<'a> {
    topology_key: &'a str,
    /// The labels without which a node counts for none of its spreads.
    keys: BTreeSet<&'a str>,
    node_selector: &'a BTreeMap<String, String>,
    terms: Option<Terms<'a>>,
    tolerations: &'a [Toleration],
    requests: Amounts,
    mounts: BTreeSet<MountRule<'a>>,
}

impl<'c, 'a> Domains<'c, 'a> {
    pub(super) fn new(checker: &'c Checker<'a>) -> Self {
        Self { checker, rooms: None, by_value: BTreeMap::new(), answers: BTreeMap::new() }
    }

    /// The domains that some ready pool without limits could make for the pod. Hosts can be added at any time, so they
    /// are not waited for.
    pub(super) fn open_to(&mut self, pod: &'a Pod, topology_key: &'a str) -> OpenDomains {
        if topology_key == labels::HOSTNAME {
            return OpenDomains::default();
        }
        let question = Question::new(pod, topology_key, self.checker.snapshot.storage());
        if let Some(answer) = self.answers.get(&question) {
            return answer.clone();
        }
        let checker = self.checker;
        let rooms = self.rooms.get_or_insert_with(|| rooms(checker));
        let by_value = self.by_value.entry(topology_key).or_insert_with(|| by_value(rooms, topology_key));
        let takes = |i: &usize| rooms[*i].takes(pod, &question);
        let open = by_value.iter().filter(|(_, rooms)| rooms.iter().any(takes)).map(|(value, _)| value.clone());
        let open = OpenDomains::new(open.collect());
        self.answers.insert(question, open.clone());
        open
    }
}

impl<'a> Question<'a> {
    fn new(pod: &'a Pod, topology_key: &'a str, storage: &'a Storage) -> Self {
        let spec = &pod.spec;
        let terms = spec.affinity.node_affinity.required.as_ref().map(|selector| {
            let terms = selector.node_selector_terms.iter();
            terms.map(|term| (&term.match_expressions[..], &term.match_fields[..])).collect()
        });
        let (node_selector, tolerations) = (&spec.node_selector, &spec.tolerations[..]);
        let mounts = mounts(pod, storage).into_iter().map(|mount| mount.rule).collect();
        let mut keys = hard_keys(spec);
        keys.remove(labels::HOSTNAME);
        Self { topology_key, keys, node_selector, terms, tolerations, requests: requests(pod), mounts }
    }
}

impl PoolRoom<'_> {
    fn takes(&self, pod: &Pod, question: &Question<'_>) -> bool {
        let labels = &self.room.labels;
        fits(&question.requests, &self.room.free)
            && question.keys.iter().all(|key| labels.contains_key(*key))
            && untolerated(&pod.spec, self.taints, false).is_none()
            && misfit(&pod.spec, "new", labels).is_none()
            && question.mounts.iter().all(|rule| rule.obstacle("new", labels).is_none())
    }
}

fn rooms<'a>(checker: &Checker<'a>) -> Vec<PoolRoom<'a>> {
    let is_open = |pool: &&NodePool| unready(pool).is_none() && pool.spec.limits.is_empty();
    let pools = checker.snapshot.pools().iter().filter(is_open);
    let of_pool = |pool: &'a NodePool| {
        let taints = &pool.spec.template.spec.taints[..];
        checker.rooms(pool).into_iter().map(move |room| PoolRoom { taints, room })
    };
    pools.flat_map(of_pool).collect()
}

fn by_value(rooms: &[PoolRoom<'_>], topology_key: &str) -> BTreeMap<String, Vec<usize>> {
    let mut out: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, room) in rooms.iter().enumerate() {
        if let Some(value) = room.room.labels.get(topology_key) {
            out.entry(value.clone()).or_default().push(i);
        }
    }
    let cpu = |i: &usize| rooms[*i].room.free.get(&ResourceName::Cpu).copied().unwrap_or(0);
    for rooms in out.values_mut() {
        rooms.sort_by_key(|i| Reverse(cpu(i)));
    }
    out
}
