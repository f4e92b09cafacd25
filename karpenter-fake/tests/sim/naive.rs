//! An engine that buys machines of one type while pods wait, and gives back those that are empty.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karpenter_core::{
    Timestamp,
    api::{Node, NodeClaim, NodeSelectorRequirement, ObjectKey, Operator, Pod},
    engine::{Action, ActionId, ActionResult, Event, Object, ObjectRef, Request},
    labels,
    provider::{Launched, ProviderId},
};
use karpenter_fake::sim::World;

/// How often it looks whether there is something to do.
pub(crate) const TICK: Duration = Duration::from_secs(10);

pub(crate) struct Naive {
    instance_type: &'static str,
    pods_per_node: usize,
    actions: u64,
    made: u64,
    /// The claims of calls that were not answered yet.
    calls: BTreeMap<ActionId, String>,
    /// Claims without nodes.
    coming: BTreeSet<String>,
    /// Pods that found no node, and what runs on each node beside daemons.
    waiting: BTreeSet<ObjectKey>,
    running: BTreeMap<String, BTreeSet<ObjectKey>>,
    homes: BTreeMap<ObjectKey, String>,
    nodes: BTreeMap<String, (String, ProviderId)>,
    /// All that was told, as text, for comparison.
    pub(crate) told: u64,
    pub(crate) digest: u64,
}

impl Naive {
    pub(crate) fn new(instance_type: &'static str, pods_per_node: usize) -> Self {
        Self {
            instance_type,
            pods_per_node,
            actions: 0,
            made: 0,
            calls: BTreeMap::new(),
            coming: BTreeSet::new(),
            waiting: BTreeSet::new(),
            running: BTreeMap::new(),
            homes: BTreeMap::new(),
            nodes: BTreeMap::new(),
            told: 0,
            digest: 0,
        }
    }

    /// Lives with a world until then.
    pub(crate) fn live(&mut self, world: &mut World, until: Timestamp) {
        while world.now() < until {
            let next = (world.now() + TICK).min(until);
            world.advance(next);
            self.see(world);
            self.act(world);
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn see(&mut self, world: &mut World) {
        for event in world.take_events() {
            self.told += 1;
            match event {
                Event::Applied(Object::Pod(pod)) => self.see_pod(&pod),
                Event::Deleted(ObjectRef::Pod(pod)) => self.forget_pod(&pod),
                Event::Applied(Object::Node(node)) => self.see_node(world, &node),
                Event::Deleted(ObjectRef::Node(name)) => self.forget_node(world, &name),
                Event::Done { id, result } => self.see_answer(world, id, result),
                _ => {}
            }
        }
    }

    fn see_pod(&mut self, pod: &Pod) {
        let version: u64 = pod.metadata.resource_version.parse().expect("a number");
        self.digest = (self.digest ^ version).wrapping_mul(0x0100_0000_01b3) ^ pod.spec.node_name.len() as u64;
        self.forget_pod(&pod.key());
        if pod.is_finished() || pod.is_daemon() {
            return;
        }
        if pod.spec.node_name.is_empty() && pod.is_unschedulable() {
            self.waiting.insert(pod.key());
        } else if !pod.spec.node_name.is_empty() {
            self.running.entry(pod.spec.node_name.clone()).or_default().insert(pod.key());
            self.homes.insert(pod.key(), pod.spec.node_name.clone());
        }
    }

    fn forget_pod(&mut self, pod: &ObjectKey) {
        self.waiting.remove(pod);
        if let Some(pods) = self.homes.remove(pod).and_then(|node| self.running.get_mut(&node)) {
            pods.remove(pod);
        }
    }

    /// Registers nodes as they come.
    fn see_node(&mut self, world: &mut World, node: &Node) {
        let name = node.metadata.name.clone();
        let claim = world.api().list::<NodeClaim>().find(|c| c.status.provider_id == node.spec.provider_id);
        let Some(claim) = claim.map(|claim| claim.name().to_owned()) else { return };
        let is_registered = node.metadata.labels.contains_key(labels::REGISTERED);
        if !is_registered {
            let mut changed = node.clone();
            changed.spec.taints.retain(|taint| taint.key != "karpenter.sh/unregistered");
            changed.metadata.labels.insert(labels::REGISTERED.to_owned(), "true".to_owned());
            self.ask(world, Action::UpdateNode(Box::new(changed)));
        }
        self.coming.remove(&claim);
        self.nodes.insert(name, (claim, ProviderId::new(&node.spec.provider_id)));
    }

    fn forget_node(&mut self, world: &mut World, name: &str) {
        let Some((claim, machine)) = self.nodes.remove(name) else { return };
        self.ask(world, Action::Terminate(machine));
        let uid = world.api().claim(&claim).map(|c| c.metadata.uid.clone()).unwrap_or_default();
        self.ask(world, Action::DeleteClaim { name: claim, uid });
    }

    fn see_answer(&mut self, world: &mut World, id: ActionId, result: ActionResult) {
        let Some(name) = self.calls.remove(&id) else { return };
        match result {
            ActionResult::Launched(Ok(launched)) => write_machine(world, &name, &launched),
            // Nobody knows whether it was done, so it is asked for again.
            ActionResult::Launched(Err(_)) => self.launch(world, &name),
            _ => {}
        }
    }

    fn act(&mut self, world: &mut World) {
        let wanted = self.waiting.len().div_ceil(self.pods_per_node);
        for _ in self.coming.len()..wanted {
            self.made += 1;
            let mut claim = NodeClaim::named(format!("claim-{}", self.made));
            let of_type = NodeSelectorRequirement::new(labels::INSTANCE_TYPE, Operator::In, [self.instance_type]);
            claim.spec.requirements.push(of_type);
            let claim = world.api_mut().create(claim).expect("names differ");
            self.coming.insert(claim.name().to_owned());
            self.launch(world, &claim.metadata.name);
        }
        let is_empty = |name: &&String| self.running.get(*name).is_none_or(BTreeSet::is_empty);
        let is_calm = self.waiting.is_empty();
        let empty: Vec<String> = self.nodes.keys().filter(is_empty).filter(|_| is_calm).cloned().collect();
        for name in empty {
            let node = world.api().node(&name).filter(|n| n.metadata.deletion_timestamp.is_none());
            if let Some(uid) = node.map(|n| n.metadata.uid.clone()) {
                self.ask(world, Action::DeleteNode { name, uid });
            }
        }
    }

    fn launch(&mut self, world: &mut World, claim: &str) {
        let Some(found) = world.api().claim(claim).cloned() else { return };
        let id = self.ask(world, Action::Launch(Box::new(NodeClaim::clone(&found))));
        self.calls.insert(id, claim.to_owned());
    }

    fn ask(&mut self, world: &mut World, action: Action) -> ActionId {
        self.actions += 1;
        let id = ActionId(self.actions);
        world.execute(Request { id, action });
        id
    }
}

fn write_machine(world: &mut World, claim: &str, launched: &Launched) {
    world.api_mut().modify::<NodeClaim>(&ObjectKey::new("", claim), |claim| launched.hydrate(claim));
}
