//! In which order pods leave the nodes of commands, so that each finds the room that was meant for it.
//!
//! The kube-scheduler puts a pod wherever it fits. A pod that fits in the room of another one waits until that one has left, if
//! the other one does not fit in its room in turn: what has less choice goes first. Of two that fit in the room of each other, it
//! is the one that a node is made for, as room of an existing node may be taken by others all the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Engine, disruption::Active, recall::Replaces};
use crate::{
    NodeAlternatives, ResourceList, Timestamp,
    api::{Node, ObjectKey, Pod, conditions::DISRUPTION_REASON, tolerates_all},
    cluster::pod_requests,
    labels, lifecycle,
};

/// The last turn, counted from zero. Each costs a second, and chains of pods of which each fits where the one before does are
/// rarely longer; pods that wait for each other in a circle have this turn together.
const LAST_TURN: usize = 3;
/// Once the pods of a turn have left, those of the next one follow after this long: time for a controller and the kube-scheduler
/// to put the next ones of the first there.
pub(super) const TURN: Duration = Duration::from_secs(1);
/// The most pods of one command that leave in order: a hundred nodes of twenty pods. Those of a larger one leave at once, as each
/// would have to be compared with each other.
const MAX_ORDERED: usize = 2000;
/// The most pods that are leaving already which those of one command are compared with: fifty nodes of twenty pods.
const MAX_COMPARED: usize = 1000;
/// A pod that ends later than this is not waited for.
const MAX_GRACE: Duration = Duration::from_mins(1);

/// The turns of pods that wait for others or are waited for, which is at most one for each pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    by_pod: BTreeMap<ObjectKey, usize>,
    /// When a pod of each turn left last.
    left: [Option<Timestamp>; LAST_TURN],
}

impl Turns {
    /// The turn of a pod.
    pub(super) fn of(&self, pod: &ObjectKey) -> usize {
        self.by_pod.get(pod).copied().unwrap_or(0)
    }

    fn forget(&mut self, pods: &[ObjectKey]) {
        for pod in pods {
            self.by_pod.remove(pod);
        }
    }

    /// Takes in what a pod has become.
    pub(super) fn observe(&mut self, key: &ObjectKey, before: Option<&Pod>, pod: Option<&Pod>, now: Timestamp) {
        let Some(&turn) = self.by_pod.get(key) else { return };
        let uid = |pod: &Pod| pod.metadata.uid.clone();
        let is_there = pod.is_some_and(|pod| before.map(uid) == Some(uid(pod)) && keeps_room(pod));
        if !is_there {
            self.by_pod.remove(key);
            if let Some(left) = self.left.get_mut(turn) {
                *left = Some(now);
            }
        }
    }
}

/// Whether the next pod in place of one that leaves is not there yet: the pods of a `StatefulSet` have names of their own, which
/// are free only once they are gone.
fn keeps_room(pod: &Pod) -> bool {
    let comes_later = || pod.metadata.controller().is_some_and(|owner| owner.kind == "StatefulSet");
    !pod.is_finished() && (!pod.is_terminating() || comes_later())
}

/// A pod that is to leave.
struct Mover<'s> {
    key: ObjectKey,
    pod: &'s Pod,
    /// Where it is meant to go, by index.
    room: Option<usize>,
    /// Whether the node there comes instead of its own.
    is_made_for_it: bool,
    /// Whether it fits in each of the rooms.
    fits: Vec<bool>,
    turn: usize,
}

impl Mover<'_> {
    /// Whether it may take the room of another one that has less choice.
    fn waits_for(&self, first: &Self) -> bool {
        let Some(room) = first.room.filter(|room| self.room != Some(*room)) else { return false };
        let is_equal = self.room.is_some_and(|own| first.fits[own]);
        self.fits[room] && (!is_equal || first.is_made_for_it && !self.is_made_for_it)
    }
}

/// What is left of nodes to which pods are meant to go, each once.
#[derive(Default)]
struct Rooms<'s> {
    by_node: BTreeMap<&'s str, usize>,
    all: Vec<(&'s Node, ResourceList)>,
}

impl Rooms<'_> {
    /// Whether a pod fits in each of them.
    fn fits(&self, pod: &Pod) -> Vec<bool> {
        let (requests, wanted) = (pod_requests(pod), NodeAlternatives::of_pod(&pod.spec));
        let fits = |(node, free): &(&Node, ResourceList)| {
            requests.fits(free)
                && wanted.admit_node(&node.metadata.name, &node.metadata.labels)
                && tolerates_all(&pod.spec.tolerations, &node.spec.taints, false).is_ok()
        };
        self.all.iter().map(fits).collect()
    }
}

impl Engine {
    /// Says in which order the pods of a command leave, among themselves and with those that are leaving already.
    pub(super) fn give_turns(&mut self, active: &Active) {
        let nodes: BTreeSet<&str> = active.candidates.iter().map(|outgoing| outgoing.node.as_str()).collect();
        let mut rooms = Rooms::default();
        let mut movers: Vec<Mover<'_>> = Vec::new();
        for node in &nodes {
            self.add_movers(node, &mut movers, &mut rooms);
        }
        let count = movers.len();
        if count > MAX_ORDERED {
            let anew: Vec<ObjectKey> = movers.into_iter().map(|mover| mover.key).collect();
            return self.ends.turns.forget(&anew);
        }
        for mover in &mut movers {
            mover.turn = 0;
        }
        let leaving = self.store.leaving_nodes.iter().filter(|node| !nodes.contains(node.as_str()));
        for node in leaving.filter(|node| self.is_chosen(node)) {
            if movers.len() < count + MAX_COMPARED {
                self.add_movers(node, &mut movers, &mut rooms);
            }
        }
        for mover in &mut movers {
            mover.fits = rooms.fits(mover.pod);
        }
        let pairs = pairs(&movers, count);
        for _ in 0..LAST_TURN {
            for &(waiting, first) in &pairs {
                movers[waiting].turn = movers[waiting].turn.max(movers[first].turn + 1).min(LAST_TURN);
            }
        }
        let of_pairs: BTreeSet<usize> = pairs.into_iter().flat_map(|(waiting, first)| [waiting, first]).collect();
        let turn = |index: usize| (movers[index].key.clone(), movers[index].turn);
        let turns: Vec<(ObjectKey, usize)> = of_pairs.into_iter().map(turn).collect();
        let anew: Vec<ObjectKey> = movers.into_iter().take(count).map(|mover| mover.key).collect();
        self.ends.turns.forget(&anew);
        self.ends.turns.by_pod.extend(turns);
    }

    fn is_chosen(&self, node: &str) -> bool {
        let claim = self.store.nodes.get(node).and_then(|node| self.store.claim_of(node));
        claim.is_some_and(|claim| claim.status.is_true(DISRUPTION_REASON))
    }

    /// Adds the pods of a node that are to leave it and come again elsewhere.
    fn add_movers<'s>(&'s self, node: &str, movers: &mut Vec<Mover<'s>>, rooms: &mut Rooms<'s>) {
        let own = self.store.nodes.get(node).and_then(|node| self.store.claim_of(node));
        for pod in self.store.pods_on(node).filter(|pod| pod.is_active() && pod.is_reschedulable()) {
            let key = pod.key();
            let promise = self.provisioner.promises.get(&key);
            let target = promise.and_then(|promise| self.node_of(&promise.place));
            let claim = target.and_then(|target| self.store.claim_of(target));
            let replaces = claim.and_then(|claim| claim.metadata.annotations.get(labels::REPLACES));
            let is_made_for_it = replaces.zip(own).is_some_and(|(text, own)| Replaces::names(text, own.name()));
            let room = target.map(|target| self.room_of(target, rooms));
            let turn = self.ends.turns.of(&key);
            movers.push(Mover { key, pod, room, is_made_for_it, fits: Vec::new(), turn });
        }
    }

    /// The node of a place, which has the name of its claim or its own.
    fn node_of(&self, place: &str) -> Option<&Node> {
        let of_claim = || self.store.nodes_of(self.store.claims.get(place)?).next();
        self.store.nodes.get(place).or_else(of_claim).map(AsRef::as_ref)
    }

    /// The index of the room of a node.
    fn room_of<'s>(&self, node: &'s Node, rooms: &mut Rooms<'s>) -> usize {
        let name = node.metadata.name.as_str();
        if let Some(&known) = rooms.by_node.get(name) {
            return known;
        }
        rooms.all.push((node, self.store.room_left(node)));
        rooms.by_node.insert(name, rooms.all.len() - 1);
        rooms.all.len() - 1
    }

    /// The last turn of pods that may leave now.
    pub(super) fn turn(&self, now: Timestamp) -> usize {
        let turns = &self.ends.turns;
        let awaited = turns.by_pod.iter().filter(|(key, _)| self.is_awaited(key, now)).map(|(_, turn)| *turn).min();
        let followed = turns.left.iter().position(|left| left.is_some_and(|left| now < left + TURN));
        awaited.into_iter().chain(followed).min().unwrap_or(LAST_TURN)
    }

    /// Whether a pod is leaving its node, and neither is it its turn later nor does something hold it.
    fn is_awaited(&self, key: &ObjectKey, now: Timestamp) -> bool {
        let pod = self.store.pods.get(key).filter(|pod| self.store.leaving_nodes.contains(&pod.spec.node_name));
        pod.is_some_and(|pod| {
            if let Some(gone) = pod.metadata.deletion_timestamp {
                return keeps_room(pod) && gone <= now + MAX_GRACE && !pod.is_stuck_terminating(now);
            }
            let all = self.store.pods_on(&pod.spec.node_name).map(AsRef::as_ref);
            !self.is_held(key, pod, now) && lifecycle::is_next(pod, all, now)
        })
    }
}

/// Which pods, by index, wait for which others. Those from `count` on are leaving already: they were compared with each other
/// before.
fn pairs(movers: &[Mover<'_>], count: usize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (waiting, mover) in movers.iter().enumerate() {
        let others = if waiting < count { movers } else { &movers[..count] };
        let first = others.iter().enumerate().filter(|(_, other)| mover.waits_for(other));
        pairs.extend(first.map(|(first, _)| (waiting, first)));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        disrupt::Method,
        engine::{Event, Object, disruption::Outgoing},
    };

    fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
        serde_json::from_str(json).expect(json)
    }

    /// How many of so many pods of a node have a turn. Every other one needs a large node, where those fit too that are to go to a
    /// small one.
    fn with_turns(count: usize) -> usize {
        let (mut engine, now) = (Engine::new(crate::engine::EngineOptions::default()), Timestamp::default());
        for (name, cpu) in [("old", 0), ("small", 1), ("large", 2)] {
            let allocatable = format!(r#"{{"cpu":"{cpu}","pods":"9"}}"#);
            let node: Node =
                read(&format!(r#"{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{allocatable}}}}}"#));
            engine.observe(Event::Applied(Object::Node(Arc::new(node))), now);
        }
        for (index, (place, cpu)) in (0..count).zip([("small", 1), ("large", 2)].into_iter().cycle()) {
            let spec = format!(
                r#"{{"nodeName":"old","containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}"#
            );
            let pod: Pod = read(&format!(r#"{{"metadata":{{"name":"p{index}"}},"spec":{spec}}}"#));
            let key = pod.key();
            engine.observe(Event::Applied(Object::Pod(Arc::new(pod))), now);
            engine.provisioner.promise(&key, place, None);
        }
        let candidates =
            vec![Outgoing { claim: "old".into(), uid: String::new(), pool: String::new(), node: "old".into() }];
        let replacements = Vec::new();
        let active = Active { method: Method::Drift, candidates, replacements, since: now, has_turns: false };
        engine.give_turns(&active);
        engine.ends.turns.by_pod.len()
    }

    #[test]
    fn very_many_pods_leave_without_an_order() {
        assert_eq!(with_turns(10), 10);
        assert_eq!(with_turns(MAX_ORDERED + 2), 0);
    }
}
