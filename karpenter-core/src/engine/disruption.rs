//! Nodes that should go: one search after the other, and each command until its nodes are on their way out.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    Engine, ObjectRef, Target,
    blocked::Blocked,
    outbox::{LOST_AFTER, SETTLE},
    recall::Replaces,
    rests::Rests,
};
use crate::{
    Backoff, Snapshot, Timestamp,
    api::{
        ConditionStatus, NodeClaim,
        conditions::{DISRUPTION_REASON, INITIALIZED, set_condition},
    },
    disrupt::{Candidates, Command, Disruptor, Method, Roster, Standing},
    lifecycle,
};

/// What found nothing is looked at again after this long even if nothing has changed: budgets and quiet times depend on
/// the time alone.
const FORCED_SEARCH: Duration = Duration::from_mins(5);
/// The most commands under way. Each holds a node at least, and clusters have at most some thousands of them.
const MAX_COMMANDS: usize = 1000;
/// Why claims go that a command takes away.
pub(super) const DISRUPTED: &str = "Disrupted";
/// Why replacements go whose command was given up.
pub(super) const NOT_NEEDED: &str = "ReplacementNotNeeded";
/// How long a command may take: a machine joins in about five minutes.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_mins(10);

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Disruption {
    /// When to search next; at once at first.
    next: Option<Timestamp>,
    /// A command that must still be worth it then.
    probation: Option<(Command, Timestamp)>,
    pub(super) active: VecDeque<Active>,
    /// The claims of the nodes that these take away.
    leaving: Arc<BTreeSet<String>>,
    /// Whether something has happened that may bring commands under way a step further.
    pub(super) is_stirred: bool,
    /// Nodes that are marked though no command takes them away, and since when.
    stale: BTreeMap<String, Timestamp>,
    /// Counts how often a command was begun or ended.
    pub(super) turns: u64,
    rests: Rests,
    /// Replacements of commands that were given up, and when. One that is being made then comes when nobody waits for it any more.
    given_up: BTreeMap<String, Timestamp>,
    /// How many searches were stopped since the last one that found nothing or led to something.
    stopped: u32,
    /// What the last search that found nothing was made from, and when.
    barren: Option<((u64, u64), Timestamp)>,
    /// The same as the search saw it.
    standing: Option<Standing>,
    /// The traits of the pods when it was searched last.
    roster: Option<Arc<Roster>>,
    pub(super) blocked: Blocked,
}

/// A command under way.
#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) method: Method,
    pub(super) candidates: Vec<Outgoing>,
    /// The names of the claims that come instead.
    pub(super) replacements: Vec<String>,
    pub(super) since: Timestamp,
    /// Whether it was said in which order the pods leave.
    pub(super) has_turns: bool,
}

/// A node that a command takes away.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) claim: String,
    pub(super) uid: String,
    /// The pool of the claim.
    pub(super) pool: String,
    pub(super) node: String,
}

impl Outgoing {
    pub(super) fn of(claim: &NodeClaim, node: &str) -> Self {
        let (claim, uid, pool) = (claim.name(), claim.metadata.uid.clone(), claim.pool_name().unwrap_or_default());
        Self { claim: claim.to_owned(), uid, pool: pool.to_owned(), node: node.to_owned() }
    }
}

impl Active {
    fn pools(&self) -> BTreeSet<&str> {
        self.candidates.iter().map(|outgoing| outgoing.pool.as_str()).collect()
    }
}

impl Disruption {
    /// The claims whose nodes are being replaced.
    pub(super) fn leaving(&self) -> Arc<BTreeSet<String>> {
        self.leaving.clone()
    }

    /// A command is under way from now on.
    pub(super) fn add(&mut self, active: Active) {
        self.active.push_back(active);
        self.find_leaving();
    }

    /// Finds out what leaves, after a command has come or gone.
    fn find_leaving(&mut self) {
        let outgoing = self.active.iter().flat_map(|active| &active.candidates);
        self.leaving = Arc::new(outgoing.map(|outgoing| outgoing.claim.clone()).collect());
    }

    /// Whether a claim is a replacement of a command under way.
    pub(super) fn awaits(&self, claim: &str) -> bool {
        self.active.iter().any(|active| active.replacements.iter().any(|name| name == claim))
    }

    /// Remembers the replacements of a command that is given up, for as long as it may take until the API server tells of them.
    fn give_up(&mut self, active: &Active, now: Timestamp) {
        self.given_up.retain(|_, since| now < *since + LOST_AFTER);
        self.given_up.extend(active.replacements.iter().map(|name| (name.clone(), now)));
    }

    /// Whether a claim is a replacement of a command that was given up.
    pub(super) fn has_given_up(&self, claim: &str) -> bool {
        self.given_up.contains_key(claim)
    }

    /// The traits of the pods of a snapshot, those of pods that are as they were taken over.
    fn roster_of(&mut self, snapshot: &Snapshot) -> Arc<Roster> {
        let roster = match &self.roster {
            Some(earlier) => Roster::after(earlier, snapshot),
            None => Roster::of(snapshot),
        };
        self.roster.insert(Arc::new(roster)).clone()
    }

    pub(super) fn wake(&self) -> Option<Timestamp> {
        let timeout = self.active.iter().map(|active| active.since + COMMAND_TIMEOUT).min();
        let probation = self.probation.as_ref().map(|(_, until)| *until);
        probation.or(self.next).into_iter().chain(timeout).min()
    }

    /// Whether a command has to be looked at.
    fn is_due(&self, now: Timestamp) -> bool {
        self.is_stirred || self.active.iter().any(|active| active.since + COMMAND_TIMEOUT <= now)
    }
}

/// How long to wait after what failed, where searches are so far apart.
fn backoff(period: Duration) -> Backoff {
    Backoff { shortest: period, longest: FORCED_SEARCH.max(period) }
}

impl Engine {
    /// Brings the commands under way a step further if there is reason to.
    pub(super) fn carry_commands_on(&mut self, now: Timestamp) {
        if self.disruption.is_due(now) {
            self.go_on(now);
        }
    }

    /// Looks for a command if it is time.
    pub(super) fn disrupt(&mut self, now: Timestamp) {
        // Nothing is found then, and nothing learned from it.
        if self.is_stopped() {
            return;
        }
        if let Some((_, until)) = &self.disruption.probation {
            if now < *until {
                return;
            }
        } else if self.disruption.next.is_some_and(|next| now < next) {
            return;
        }
        self.recall(now);
        self.take_stale_marks(now);
        let Some(period) = self.options.disruption_period else {
            // A mark is stale once it has stood for a while, so that it is looked at again.
            self.disruption.next = (!self.disruption.stale.is_empty()).then(|| now + SETTLE);
            return;
        };
        if self.disruption.rests.end(&self.store.pools, now) {
            // More nodes may go than when nothing was found.
            (self.disruption.barren, self.disruption.standing) = (None, None);
        }
        let has_begun = self.search(now);
        let stopped = self.disruption.stopped;
        let wait = backoff(period).after(stopped.saturating_add(1));
        self.disruption.next = Some(if has_begun && stopped == 0 { now } else { now + wait });
    }

    /// Looks for a command, and says whether one was begun. One that was found before begins if it still is right; others must
    /// wait, unless they are for drift.
    fn search(&mut self, now: Timestamp) -> bool {
        let probation = self.disruption.probation.take();
        if !self.market.is_open(now) || self.disruption.active.len() >= MAX_COMMANDS {
            return false;
        }
        let versions = (self.store.changes, self.market.version(now));
        let is_known = |(seen, at): (_, Timestamp)| seen == versions && now < at + FORCED_SEARCH;
        if probation.is_none() && self.disruption.barren.is_some_and(is_known) {
            return false;
        }
        let Some(snapshot) = self.snapshot(now) else { return false };
        let catalogs = self.market.catalogs(&self.store.pools, now);
        let roster = self.disruption.roster_of(&snapshot);
        let disruptor = self.disruptor(&roster);
        if let Some((command, _)) = probation {
            match disruptor.revalidate(&command, &snapshot, &catalogs, now) {
                _ if self.is_stopped() => return self.give_up_search(),
                Ok(command) => return self.begin(&command, &snapshot, now),
                Err(_) => self.counters.not_valid(&command),
            }
        }
        let standing =
            Standing { snapshot: snapshot.clone(), catalogs: catalogs.clone(), roster: roster.clone(), at: now };
        let is_same = self.disruption.standing.as_ref().is_some_and(|known| known.is_same(&standing));
        let mut commands = (!is_same).then(|| disruptor.start(&snapshot, &catalogs, now));
        let found = commands.as_mut().and_then(Iterator::next);
        let Some(found) = found else {
            if self.is_stopped() {
                return self.give_up_search();
            }
            // The same search as before would find the same.
            if let Some(commands) = &mut commands {
                self.disruption.blocked.homeless = commands.take_homeless();
            }
            let looked_at = commands.and_then(|commands| commands.candidates_of(&snapshot));
            let candidates = || looked_at.unwrap_or_else(|| Candidates::by(&roster, &snapshot, &catalogs, now));
            self.tell_blocked(&snapshot, candidates, now);
            self.disruption.stopped = 0;
            self.disruption.barren = Some((versions, now));
            self.disruption.standing = Some(standing);
            return false;
        };
        if matches!(found.method, Method::Drift | Method::StaticDrift) {
            return self.begin(&found, &snapshot, now);
        }
        self.disruption.probation = Some((found, now + self.options.validation_wait));
        false
    }

    fn disruptor(&self, roster: &Arc<Roster>) -> Disruptor {
        let disruptor = Disruptor::new(self.options.disruptor.clone()).keeping(&self.shelf).knowing(roster);
        let disruptor = disruptor.resting(self.disruption.rests.pools());
        let disruptor = self.stop.iter().fold(disruptor, Disruptor::stopped_by);
        if self.options.static_capacity { disruptor } else { disruptor.leaving_static_pools() }
    }

    /// A search that was stopped before it found anything; the next one waits longer.
    const fn give_up_search(&mut self) -> bool {
        self.disruption.stopped = self.disruption.stopped.saturating_add(1);
        false
    }

    /// Begins a command: its nodes get the taint, replacements are made, and their pods are promised where they go. Says
    /// whether it did.
    fn begin(&mut self, command: &Command, snapshot: &Snapshot, now: Timestamp) -> bool {
        let outgoing: Option<Vec<Outgoing>> = command.candidates.iter().map(|node| self.outgoing(node)).collect();
        let Some(candidates) = outgoing else { return false };
        for outgoing in &candidates {
            self.mark(outgoing, command.method, now);
        }
        let pools: BTreeSet<String> = candidates.iter().map(|outgoing| outgoing.pool.clone()).collect();
        self.counters.decided(command, pools.into_iter());
        let replaces = Replaces {
            method: command.method,
            replacements: command.replacements.len(),
            claims: candidates.iter().map(|outgoing| outgoing.claim.clone()).collect(),
        };
        let mut replacements = Vec::new();
        for planned in &command.replacements {
            if let Some(pool) = snapshot.pool(&planned.node_pool) {
                replacements.push(self.create_claim(planned, pool, Some(&replaces), now));
            }
        }
        for (place, pods) in &command.existing {
            for pod in pods {
                self.provisioner.promise(pod, place, None);
            }
        }
        let method = command.method;
        self.disruption.add(Active { method, candidates, replacements, since: now, has_turns: false });
        self.disruption.turns += 1;
        self.go_on(now);
        true
    }

    fn outgoing(&self, node: &str) -> Option<Outgoing> {
        let claim = self.store.claim_of(self.store.nodes.get(node)?)?;
        Some(Outgoing::of(claim, node))
    }

    pub(super) fn mark(&mut self, outgoing: &Outgoing, method: Method, now: Timestamp) {
        self.taint(outgoing, now);
        self.give_reason(outgoing, method, now);
        let message = format!("Disrupting node {}: {}", outgoing.node, method.reason().name());
        self.note(ObjectRef::NodeClaim(outgoing.claim.clone()), false, "DisruptionLaunching", message, now);
    }

    /// Has the claim say why it goes, unless it does.
    fn give_reason(&mut self, outgoing: &Outgoing, method: Method, now: Timestamp) {
        let claim = self.store.claims.get(&outgoing.claim).filter(|claim| claim.metadata.uid == outgoing.uid);
        let Some(claim) = claim.filter(|claim| !claim.status.is_true(DISRUPTION_REASON)) else { return };
        let mut out: NodeClaim = (**claim).clone();
        let (generation, status) = (out.metadata.generation, ConditionStatus::True);
        let (conditions, reason) = (&mut out.status.conditions, method.reason().name());
        set_condition(conditions, generation, DISRUPTION_REASON, status, reason, "", now);
        self.write_claim(out, now);
    }

    /// Keeps pods away from a node, unless it is so already.
    fn taint(&mut self, outgoing: &Outgoing, now: Timestamp) {
        if let Some(node) = self.store.nodes.get(&outgoing.node).and_then(|node| lifecycle::mark_disrupted(node)) {
            self.write_node(node, now);
        }
    }

    /// Brings the commands under way a step further.
    fn go_on(&mut self, now: Timestamp) {
        self.disruption.is_stirred = false;
        for _ in 0..self.disruption.active.len() {
            let Some(mut active) = self.disruption.active.pop_front() else { return };
            if let Some(why) = self.fault(&active, now) {
                self.disruption.turns += 1;
                self.disruption.find_leaving();
                self.roll_back(&active, why, now);
            } else if !self.is_replaced(&active) {
                // Either may have been busy.
                for outgoing in &active.candidates {
                    self.taint(outgoing, now);
                    self.give_reason(outgoing, active.method, now);
                }
                self.disruption.active.push_back(active);
            } else if !self.take_away(&mut active, now) {
                self.disruption.active.push_back(active);
                self.disruption.is_stirred = true;
            } else {
                self.disruption.stopped = 0;
                // Where nothing had to come it is not known whether nodes become ready.
                let pools = if active.replacements.is_empty() { BTreeSet::new() } else { active.pools() };
                if pools.into_iter().filter(|pool| self.disruption.rests.forget(pool)).count() > 0 {
                    (self.disruption.barren, self.disruption.standing) = (None, None);
                }
                self.disruption.turns += 1;
                self.disruption.find_leaving();
            }
        }
    }

    /// Why a command cannot be carried out any more.
    fn fault(&self, active: &Active, now: Timestamp) -> Option<&'static str> {
        let is_lost = |name: &String| match self.store.claims.get(name) {
            Some(claim) => claim.metadata.deletion_timestamp.is_some(),
            None => !self.provisioner.creating.contains_key(name),
        };
        if active.replacements.iter().any(is_lost) {
            return Some("a replacement did not come");
        }
        (active.since + COMMAND_TIMEOUT <= now).then_some("it took too long")
    }

    fn is_replaced(&self, active: &Active) -> bool {
        let is_ready = |name: &String| self.store.claims.get(name).is_some_and(|c| c.status.is_true(INITIALIZED));
        active.replacements.iter().all(is_ready)
    }

    /// Deletes the claims of the nodes that go, and says whether all of them are on their way out.
    fn take_away(&mut self, active: &mut Active, now: Timestamp) -> bool {
        if !std::mem::replace(&mut active.has_turns, true) {
            self.give_turns(active);
        }
        let mut is_over = true;
        for outgoing in &active.candidates {
            let claim = self.store.claims.get(&outgoing.claim).filter(|claim| claim.metadata.uid == outgoing.uid);
            let Some(claim) = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none()).cloned() else {
                continue;
            };
            is_over = false;
            let target = Target::Claim(outgoing.claim.clone());
            if self.must_wait(&target, &claim.metadata.resource_version, now) {
                continue;
            }
            let message = format!("Node {} is {}", outgoing.node, active.method.reason().name());
            self.delete_claim(&claim, DISRUPTED, message, now);
        }
        is_over
    }

    /// Leaves the nodes of a command as they were. Replacements that no pod uses go again.
    fn roll_back(&mut self, active: &Active, why: &str, now: Timestamp) {
        // What was found before may be for the same pools.
        self.disruption.probation = None;
        self.disruption.give_up(active, now);
        let wait = backoff(self.options.disruption_period.unwrap_or_default());
        for pool in active.pools() {
            self.disruption.rests.begin(pool, now.since(active.since), wait, now);
        }
        self.counters.given_up(active.method, active.candidates.len(), active.replacements.is_empty());
        for name in &active.replacements {
            let Some(claim) = self.store.claims.get(name).cloned() else { continue };
            let has_pods = |node: &str| self.store.pods_on(node).any(|pod| pod.is_reschedulable());
            let is_used = self.store.nodes_of(&claim).any(|node| has_pods(&node.metadata.name));
            if !is_used {
                self.delete_claim(&claim, NOT_NEEDED, format!("The disruption was given up: {why}"), now);
            }
        }
        for outgoing in &active.candidates {
            let pods: Vec<_> = self.store.pods_on(&outgoing.node).map(|pod| pod.key()).collect();
            for pod in &pods {
                self.provisioner.unpromise(pod);
            }
            // What is on its way out goes all the same.
            let claim = self.store.claims.get(&outgoing.claim).map(|claim| &claim.metadata);
            let node = self.store.nodes.get(&outgoing.node).map(|node| &node.metadata);
            if claim.into_iter().chain(node).any(|meta| meta.deletion_timestamp.is_some()) {
                continue;
            }
            let message = format!("Disrupting node {} was given up: {why}", outgoing.node);
            self.note(ObjectRef::NodeClaim(outgoing.claim.clone()), true, "DisruptionFailed", message, now);
            self.unmark(&outgoing.node, now);
        }
        self.provisioner.trigger(now);
    }

    /// Takes the taint away from nodes that no command takes away: those of a command that was given up, and those of an
    /// engine that was stopped, once all that it had asked for has come.
    fn take_stale_marks(&mut self, now: Timestamp) {
        let is_stale = |name: &String| {
            let Some(node) = self.store.nodes.get(name).filter(|node| node.metadata.deletion_timestamp.is_none())
            else {
                return false;
            };
            let claim = self.store.claim_of(node);
            let says_so = claim.is_some_and(|claim| claim.status.is_true(DISRUPTION_REASON));
            (node.is_disrupted() || says_so) && claim.is_some_and(|claim| self.stays(claim))
        };
        let stale: Vec<String> = self.store.nodes.keys().filter(|name| is_stale(name)).cloned().collect();
        let before = std::mem::take(&mut self.disruption.stale);
        for name in stale {
            let since = before.get(&name).copied().unwrap_or(now);
            if since + SETTLE <= now {
                self.unmark(&name, now);
            } else {
                self.disruption.stale.insert(name, since);
            }
        }
    }

    fn unmark(&mut self, name: &str, now: Timestamp) {
        let Some(node) = self.store.nodes.get(name).cloned() else { return };
        let claim = self.store.claim_of(&node).filter(|claim| claim.metadata.deletion_timestamp.is_none()).cloned();
        let (node, claim) = lifecycle::unmark_disrupted(Some(&node), claim.as_deref());
        if let Some(node) = node {
            self.write_node(node, now);
        }
        if let Some(claim) = claim {
            self.write_claim(claim, now);
        }
    }
}
