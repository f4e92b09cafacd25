//! How claims, nodes and machines end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    Action, Engine, ObjectRef, Refusal, Target, Work,
    outbox::Purpose,
    turns::{TURN, Turns},
};
use crate::{
    Backoff, Timestamp,
    api::{
        Node, NodeClaim, ObjectKey, Pod, Shield,
        conditions::{DISRUPTION_REASON, REGISTERED},
    },
    cluster::tenancy,
    labels,
    lifecycle::{self, DrainStep, MIN_DRAIN, Stage},
    provider::{Deletion, Instance, ProviderError, ProviderId},
};

/// How soon a machine that was told to go is told again, until it is gone. Karpenter asks as often.
const TERMINATE_PERIOD: Duration = Duration::from_secs(5);
/// So often it is told at this pace, which is time enough for most machines to shut down; then each wait is longer by as much.
const PROMPT_ATTEMPTS: u32 = 8;
/// The longest wait before a machine is told again to go.
const MAX_TERMINATE_BACKOFF: Duration = Duration::from_mins(1);
/// How often it is looked whether volumes are still attached, if nothing is told of them.
const DETACH_CHECK: Duration = Duration::from_mins(1);
/// The waits after evictions of a pod that were refused.
const EVICT_BACKOFF: Backoff = Backoff { shortest: Duration::from_millis(100), longest: Duration::from_secs(10) };
/// The most evictions under way at a time: five nodes of a hundred pods.
const MAX_EVICTIONS: usize = 500;
/// No pod waits for another one whose eviction was refused so often, within some twelve seconds.
const PATIENCE: u32 = 7;
/// How soon it is tried again when there are too many evictions under way.
const EVICT_RETRY: Duration = Duration::from_millis(200);

/// What is remembered of machines that are told to go, and of pods that are told to leave. At most one entry for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    machines: BTreeMap<ProviderId, End>,
    evictions: BTreeMap<ObjectKey, Eviction>,
    flying_evictions: usize,
    /// The pods of which it was told that their annotation holds them, with their uids.
    shielded: BTreeMap<ObjectKey, String>,
    pub(super) turns: Turns,
}

#[derive(Clone, Debug, Default)]
struct End {
    is_flying: bool,
    fate: Fate,
    /// Volumes that were attached when no pod was left, or that still were when it was told to go.
    has_volumes: bool,
    /// How often it was told to go, and was heard.
    attempts: u32,
    failed_attempts: u32,
    next: Option<Timestamp>,
    /// When to look again whether it is there.
    next_look: Option<Timestamp>,
}

/// How far a machine is on its way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    #[default]
    Kept,
    /// It was told to go.
    Asked,
    Gone,
}

/// The wait before a machine is told again to go.
fn backoff(periods: u32) -> Duration {
    TERMINATE_PERIOD.saturating_mul(periods).min(MAX_TERMINATE_BACKOFF)
}

#[derive(Clone, Debug)]
struct Eviction {
    uid: String,
    is_flying: bool,
    is_forced: bool,
    failed_attempts: u32,
    next: Timestamp,
}

impl Ends {
    fn is_asked(&self, id: &ProviderId) -> bool {
        self.machines.get(id).is_some_and(|end| end.fate >= Fate::Asked)
    }

    fn stage(&self, id: &ProviderId) -> Stage {
        match self.machines.get(id).map(|end| (end.fate >= Fate::Asked, end.has_volumes)) {
            Some((true, false)) => Stage::Terminating,
            Some((true, true)) => Stage::TerminatingWithVolumes,
            Some((false, true)) => Stage::Detaching,
            Some((false, false)) | None => Stage::Draining,
        }
    }

    fn is_gone(&self, id: &ProviderId) -> bool {
        self.machines.get(id).is_some_and(|end| end.fate == Fate::Gone)
    }

    pub(super) fn forget_pod(&mut self, pod: &ObjectKey) {
        self.shielded.remove(pod);
        if let Some(eviction) = self.evictions.remove(pod) {
            self.flying_evictions -= usize::from(eviction.is_flying);
        }
    }

    /// There is a machine of this name, whatever became of an earlier one.
    pub(super) fn forget_machine(&mut self, id: &ProviderId) {
        self.machines.remove(id);
    }

    /// Forgets that a machine of this name was gone.
    pub(super) fn forget_gone(&mut self, id: &ProviderId) {
        if self.is_gone(id) {
            self.machines.remove(id);
        }
    }

    /// Forgets machines of which nobody knows any more.
    pub(super) fn retain(&mut self, is_known: impl Fn(&ProviderId) -> bool) {
        self.machines.retain(|id, end| end.is_flying || is_known(id));
    }
}

impl Engine {
    /// Brings a claim that is on its way out to its end: first its nodes, then its machine, then its finalizer.
    pub(super) fn end_claim(&mut self, claim: &Arc<NodeClaim>, now: Timestamp) {
        let life = self.lives.of(claim);
        if life.is_launching {
            return;
        }
        let bought = life.machine().map(|machine| machine.instance.id.clone());
        let known = Some(&claim.status.provider_id).filter(|id| !id.is_empty()).map(ProviderId::new);
        let Some(id) = known.or(bought) else {
            self.finish_claim(claim, now);
            return;
        };
        self.warn_of_deadline(claim, now);
        let is_succeeded = self.is_succeeded(claim);
        // One that does not say whose it is may be that of the next machine.
        let is_own = |node: &&Arc<Node>| !is_succeeded || tenancy::is_claimed(node);
        let nodes: Vec<Arc<Node>> = self.store.nodes_of(claim).filter(is_own).cloned().collect();
        for node in &nodes {
            self.delete_node(node, now);
        }
        if is_succeeded {
            if nodes.is_empty() {
                self.finish_claim(claim, now);
            }
        } else if claim.status.is_true(REGISTERED) && !nodes.is_empty() {
            if let Some(written) = lifecycle::prepare_to_end(claim, self.ends.stage(&id), now) {
                self.write_claim(written, now);
            }
        } else if self.terminate(&id, Some(&Work::Claim(claim.name().to_owned())), now) {
            self.finish_claim(claim, now);
        } else if let Some(written) = lifecycle::prepare_to_end(claim, Stage::Terminating, now) {
            self.write_claim(written, now);
        }
    }

    /// Tells people when the pods of a claim are deleted at the latest, before that is written down.
    fn warn_of_deadline(&mut self, claim: &NodeClaim, now: Timestamp) {
        if claim.metadata.annotations.contains_key(labels::TERMINATION_TIMESTAMP) {
            return;
        }
        if let Some(deadline) = lifecycle::deadline(claim) {
            let message = format!("All pods will be deleted by {deadline}");
            let object = ObjectRef::NodeClaim(claim.name().to_owned());
            self.note(object, true, "TerminationGracePeriodExpiring", message, now);
        }
    }

    fn finish_claim(&mut self, claim: &NodeClaim, now: Timestamp) {
        if let Some(metadata) = lifecycle::without_finalizer(&claim.metadata) {
            self.write_claim(NodeClaim { metadata, ..claim.clone() }, now);
        }
    }

    fn delete_node(&mut self, node: &Node, now: Timestamp) {
        let (name, meta) = (node.metadata.name.clone(), &node.metadata);
        if meta.deletion_timestamp.is_some() {
            return;
        }
        let target = Target::Node(name.clone());
        self.write(Action::DeleteNode { name, uid: meta.uid.clone() }, target, &meta.resource_version, now);
    }

    /// Looks at a node: one that is on its way out is drained, its machine terminated, and its finalizer taken away.
    pub(super) fn reconcile_node(&mut self, name: &str, now: Timestamp) {
        let Some(node) = self.store.nodes.get(name).cloned() else {
            self.lives.forget_node(name);
            return;
        };
        let is_ours = node.metadata.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION);
        let Some(since) = node.metadata.deletion_timestamp.filter(|_| is_ours) else { return };
        let claim = self.store.claim_of(&node).cloned();
        if claim.is_none() && self.is_foreign_node(&node) {
            return;
        }
        if let Some(claim) = &claim {
            self.delete_claim(claim, "NodeDeleted", format!("Node {name} is being deleted"), now);
        }
        let work = Work::Node(name.to_owned());
        let target = Target::Node(name.to_owned());
        if self.must_wait(&target, &node.metadata.resource_version, now) {
            return;
        }
        let id = ProviderId::new(&node.spec.provider_id);
        if node.spec.provider_id.is_empty() || self.ends.is_gone(&id) || self.is_left_behind(&node) {
            if let Some(metadata) = lifecycle::without_finalizer(&node.metadata) {
                self.write_node(Node { metadata, ..(*node).clone() }, now);
            }
            return;
        }
        self.look_for_machine(&node, &id, now);
        if let Some(written) = lifecycle::prepare_to_leave(&node) {
            self.write_node(written, now);
            return;
        }
        let is_drained = self.ends.is_asked(&id) || self.drain(&node, claim.as_deref(), now);
        if !is_drained {
            return;
        }
        if now < since + MIN_DRAIN {
            self.agenda.at(work, since + MIN_DRAIN);
            return;
        }
        if !self.ends.is_asked(&id) && !self.is_detached(&node, &id, claim.as_deref(), now) {
            return;
        }
        self.terminate(&id, Some(&work), now);
        if let Some(claim) = claim {
            self.agenda.add(Work::Claim(claim.name().to_owned()));
        }
    }

    /// Whether a node without a claim is another controller's: it does not say of a class of this provider that it is its own.
    fn is_foreign_node(&self, node: &Node) -> bool {
        self.options.has_no_kind(|kind| node.metadata.labels.contains_key(&kind.label_key()))
    }

    /// A node that is not ready may have lost its machine already.
    fn look_for_machine(&mut self, node: &Node, id: &ProviderId, now: Timestamp) {
        if node.is_ready() || self.ends.is_asked(id) {
            return;
        }
        let end = self.ends.machines.entry(id.clone()).or_default();
        if end.is_flying {
            return;
        }
        // It may be on its way out, and whatever keeps pods on the node does so for ever once it is gone.
        if let Some(next) = end.next_look.filter(|next| now < *next) {
            self.agenda.at(Work::Node(node.metadata.name.clone()), next);
            return;
        }
        end.is_flying = true;
        self.outbox.send(Action::Get(id.clone()), Some(Purpose::Get(id.clone())), now);
    }

    /// Whether no volume is attached to a node any more, or its time is up. Volumes of pods that stay are not waited for;
    /// those of finished pods are, as they are detached.
    fn is_detached(&mut self, node: &Node, id: &ProviderId, claim: Option<&NodeClaim>, now: Timestamp) -> bool {
        let (name, store) = (&node.metadata.name, &self.store);
        let stays = store.pods_on(name).filter(|pod| !lifecycle::is_waited_for(pod, now) && !pod.is_finished());
        let kept: BTreeSet<&str> = stays.flat_map(|pod| store.volumes_of(pod)).collect();
        let attached = store.volumes_at(name).filter(|volume| !kept.contains(volume)).count();
        let end = self.ends.machines.entry(id.clone()).or_default();
        let is_news = attached > 0 && !end.has_volumes;
        end.has_volumes = attached > 0;
        if attached == 0 {
            return true;
        }
        let deadline = claim.and_then(lifecycle::deadline);
        if deadline.is_some_and(|deadline| deadline <= now) {
            return true;
        }
        self.agenda.at(Work::Node(name.clone()), deadline.unwrap_or(now + DETACH_CHECK).min(now + DETACH_CHECK));
        if is_news {
            let message = format!("Awaiting the detachment of {attached} volumes");
            self.note(ObjectRef::Node(name.clone()), false, "AwaitingVolumeDetachment", message, now);
            if let Some(claim) = claim {
                self.agenda.add(Work::Claim(claim.name().to_owned()));
            }
        }
        false
    }

    /// Makes pods leave a node, and says whether all that must have.
    fn drain(&mut self, node: &Node, claim: Option<&NodeClaim>, now: Timestamp) -> bool {
        let deadline = claim.and_then(lifecycle::deadline);
        let pods = self.store.pods_on(&node.metadata.name).map(AsRef::as_ref);
        let drain = lifecycle::drain(pods, deadline, now);
        let work = Work::Node(node.metadata.name.clone());
        let is_chosen = claim.is_some_and(|claim| claim.status.is_true(DISRUPTION_REASON));
        let turn_of = |step: &DrainStep| match step {
            DrainStep::Evict { pod, .. } if is_chosen => self.ends.turns.of(pod),
            _ => 0,
        };
        let steps: Vec<(usize, DrainStep)> = drain.steps.into_iter().map(|step| (turn_of(&step), step)).collect();
        let turn = if steps.iter().any(|(turn, _)| *turn > 0) { self.turn(now) } else { 0 };
        for (own_turn, step) in steps {
            if own_turn > turn {
                self.agenda.at(work.clone(), now + TURN);
                continue;
            }
            if let Some(retry) = self.send_away(step, now) {
                self.agenda.at(work.clone(), retry);
            }
        }
        if let Some(wake) = drain.wake {
            self.agenda.at(work, wake);
        }
        for (pod, uid) in drain.shielded {
            self.tell_shielded(pod, uid, &node.metadata.name, now);
        }
        drain.waiting == 0
    }

    /// Tells people once which annotation keeps a node from its end.
    fn tell_shielded(&mut self, pod: ObjectKey, uid: String, node: &str, now: Timestamp) {
        if self.ends.shielded.get(&pod) != Some(&uid) {
            let message =
                format!("its annotation {} keeps node {node}, which is on its way out", labels::DO_NOT_DISRUPT);
            self.note(ObjectRef::Pod(pod.clone()), true, "FailedDraining", message, now);
            self.ends.shielded.insert(pod, uid);
        }
    }

    /// Whether something keeps a pod from leaving its node now.
    pub(super) fn is_held(&self, key: &ObjectKey, pod: &Pod, now: Timestamp) -> bool {
        let is_refused = self.ends.evictions.get(key).is_some_and(|tried| tried.failed_attempts >= PATIENCE);
        is_refused || Shield::of_pod(pod, now).is_some() || !lifecycle::is_waited_for(pod, now)
    }

    /// Tells a pod to leave, or says when to try again.
    fn send_away(&mut self, step: DrainStep, now: Timestamp) -> Option<Timestamp> {
        let (pod, uid, grace_period) = match step {
            DrainStep::Evict { pod, uid } => (pod, uid, None),
            DrainStep::Delete { pod, uid, grace_period } => (pod, uid, Some(grace_period)),
        };
        let is_forced = grace_period.is_some();
        let fresh = || Eviction { uid: uid.clone(), is_flying: false, is_forced, failed_attempts: 0, next: now };
        let is_full = self.ends.flying_evictions >= MAX_EVICTIONS;
        let eviction = self.ends.evictions.entry(pod.clone()).or_insert_with(fresh);
        if eviction.is_flying {
            return None;
        }
        if eviction.uid != uid || is_forced && !eviction.is_forced {
            *eviction = fresh();
        }
        if now < eviction.next {
            return Some(eviction.next);
        }
        if is_full {
            return Some(now + EVICT_RETRY);
        }
        eviction.is_flying = true;
        self.ends.flying_evictions += 1;
        let purpose = Purpose::Evict { pod: pod.clone(), uid: uid.clone(), is_forced };
        let action = match grace_period {
            None => Action::Evict { pod, uid },
            Some(grace_period) => Action::DeletePod { pod, uid, grace_period },
        };
        self.outbox.send(action, Some(purpose), now);
        None
    }

    /// Takes in what came of telling a pod to leave. That it is gone may have been told before.
    pub(super) fn finish_eviction(
        &mut self,
        (key, uid): (&ObjectKey, &str),
        is_forced: bool,
        refusal: Option<&Refusal>,
        now: Timestamp,
    ) {
        if !is_forced {
            self.counters.evicted(refusal);
            if refusal.is_none() {
                let message = "Evicted because its node is going".to_owned();
                self.note(ObjectRef::Pod(key.clone()), false, "Evicted", message, now);
            }
        }
        let Some(eviction) = self.ends.evictions.get_mut(key).filter(|eviction| eviction.uid == uid) else { return };
        if eviction.is_flying {
            eviction.is_flying = false;
            self.ends.flying_evictions -= 1;
        }
        match refusal {
            // Its deletion, or that it is gone, will be told.
            None | Some(Refusal::NotFound | Refusal::Conflict) => eviction.next = now + EVICT_BACKOFF.longest,
            Some(refusal) => {
                let is_first = eviction.failed_attempts == 0;
                eviction.failed_attempts = eviction.failed_attempts.saturating_add(1);
                eviction.next = now + EVICT_BACKOFF.after(eviction.failed_attempts);
                if is_first {
                    self.note(ObjectRef::Pod(key.clone()), true, "FailedDraining", refusal.to_string(), now);
                }
            }
        }
        if let Some(pod) = self.store.pods.get(key) {
            self.agenda.add(Work::Node(pod.spec.node_name.clone()));
        }
    }

    /// Tells a machine to go, and says whether it is gone.
    pub(super) fn terminate(&mut self, id: &ProviderId, work: Option<&Work>, now: Timestamp) -> bool {
        let end = self.ends.machines.entry(id.clone()).or_default();
        if end.fate == Fate::Gone {
            return true;
        }
        match end.next.filter(|next| now < *next) {
            _ if end.is_flying => {}
            Some(next) => work.into_iter().for_each(|work| self.agenda.at(work.clone(), next)),
            None => {
                (end.is_flying, end.fate) = (true, Fate::Asked);
                self.outbox.send(Action::Terminate(id.clone()), Some(Purpose::Terminate(id.clone())), now);
            }
        }
        false
    }

    /// Takes in what came of telling a machine to go.
    pub(super) fn finish_termination(
        &mut self,
        id: &ProviderId,
        result: &Result<Deletion, ProviderError>,
        now: Timestamp,
    ) {
        let end = self.ends.machines.entry(id.clone()).or_default();
        end.is_flying = false;
        match result {
            Ok(Deletion::Gone) => end.fate = Fate::Gone,
            Ok(Deletion::Started) => {
                (end.attempts, end.failed_attempts) = (end.attempts.saturating_add(1), 0);
                let late = end.attempts.saturating_sub(PROMPT_ATTEMPTS);
                end.next = Some(now + backoff(late.saturating_add(1)));
            }
            Err(_) => {
                end.failed_attempts = end.failed_attempts.saturating_add(1);
                end.next = Some(now + backoff(end.failed_attempts));
            }
        }
        self.look_at_machine(id);
    }

    /// Takes in whether a machine is there.
    pub(super) fn finish_get(
        &mut self,
        id: &ProviderId,
        result: &Result<Option<Instance>, ProviderError>,
        now: Timestamp,
    ) {
        let end = self.ends.machines.entry(id.clone()).or_default();
        end.is_flying = false;
        end.next_look = Some(now + TERMINATE_PERIOD);
        if *result == Ok(None) {
            end.fate = Fate::Gone;
        }
        self.look_at_machine(id);
    }

    fn look_at_machine(&mut self, id: &ProviderId) {
        let claim = self.store.claim_of_machine(id.as_str()).map(|claim| claim.name().to_owned());
        if let Some(claim) = claim {
            self.agenda.add(Work::Claim(claim));
        }
        let nodes: Vec<String> = self.store.nodes_on(id.as_str()).map(|node| node.metadata.name.clone()).collect();
        for node in nodes {
            self.agenda.add(Work::Node(node));
        }
        // A claim whose machine was bought but is not in its status yet is found by the machine that is remembered.
        for name in self.lives.claims_of(id) {
            self.agenda.add(Work::Claim(name));
        }
    }
}
