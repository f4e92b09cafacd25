//! What is asked from time to time whatever happens, and what pools are told.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use indexmap::IndexSet;

use super::{
    Action, Engine, ObjectRef, Work,
    market::{CLASS_NOT_READY, Fault, NO_CATALOG_YET},
    outbox::Purpose,
};
use crate::{
    FxBuild, OfferingKey, Quantity, ResourceList, ResourceName, Timestamp,
    api::{
        Condition, ConditionStatus, FieldError, Node, NodeClaim, NodePool,
        conditions::{
            NODE_CLASS_READY, NODE_REGISTRATION_HEALTHY, READY, VALIDATION_SUCCEEDED, condition, set_condition,
        },
    },
    labels,
    lifecycle::{Census, demoted, may_be_demoted},
    provider::{EventCursor, Instance, ProviderEvent, ProviderEvents, ProviderId},
};

/// The status of a pool is worked out at most this often.
const COUNT_PERIOD: Duration = Duration::from_secs(5);
/// How soon all machines are listed again after that failed.
const LIST_RETRY: Duration = Duration::from_secs(15);
/// Why claims go whose machine is nowhere.
pub(super) const GARBAGE_COLLECTED: &str = "GarbageCollected";
/// Why claims go whose machine ended, by whoever it was.
const TERMINATED: &str = "InstanceTerminated";
/// How many launches of a pool are remembered; two failures among them make it unhealthy.
const RING_SIZE: usize = 4;
/// So many failed launches among the last ones make a pool unhealthy.
const UNHEALTHY_FAILURES: usize = 2;
/// How many characters make a name one of its own: 36 to the power of 8 is some 10^12, so that among the names of a year of
/// thousands of claims a day two are alike with a chance of less than one in a million; the API server refuses the second.
const SUFFIX_LENGTH: usize = 8;
/// Resources that the status of a pool always names.
const BASE_RESOURCES: [&str; 5] = ["cpu", "memory", "ephemeral-storage", "pods", "nodes"];

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Upkeep {
    census: Census,
    list: Chore,
    /// When all machines were asked for last.
    listed_at: Option<Timestamp>,
    events: Chore,
    cursor: EventCursor,
    /// The last launches of each pool, of one generation of it.
    rings: BTreeMap<String, (Option<i64>, VecDeque<bool>)>,
    counted: BTreeMap<String, Timestamp>,
    /// What was counted last of each pool.
    tallies: BTreeMap<String, Tally>,
    /// What the pools that need nothing were found so with.
    content: BTreeMap<String, Content>,
    /// The nodes that count for their pools: they have claims, and are not on their way out.
    staying: BTreeMap<String, Arc<Node>>,
    /// The claims that did not count because of a command.
    leaving: Arc<BTreeSet<String>>,
    names: u64,
}

/// What the nodes of a pool have that are not on their way out.
#[derive(Clone, Debug)]
struct Tally {
    /// What it was counted from: the census of the objects, the commands under way, and the version of the pool.
    of: (u64, u64, String),
    nodes: u32,
    resources: ResourceList,
}

/// What a pool needs nothing with, whatever time it is.
#[derive(Clone, Debug)]
struct Content {
    pool: Arc<NodePool>,
    health: Option<ConditionStatus>,
    verdict: Result<(), FieldError>,
}

impl Content {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pool, &other.pool) && (self.health, &self.verdict) == (other.health, &other.verdict)
    }
}

/// A question that is asked again and again.
#[derive(Clone, Debug, Default)]
struct Chore {
    is_asking: bool,
    next: Option<Timestamp>,
}

impl Chore {
    fn is_due(&self, now: Timestamp) -> bool {
        !self.is_asking && self.next.is_none_or(|next| next <= now)
    }

    fn begin(&mut self) {
        self.is_asking = true;
    }

    fn end(&mut self, next: Timestamp) {
        *self = Self { is_asking: false, next: Some(next) };
    }

    fn wake(&self) -> Option<Timestamp> {
        self.next.filter(|_| !self.is_asking)
    }
}

impl Upkeep {
    pub(super) fn wake(&self) -> Option<Timestamp> {
        [self.list.wake(), self.events.wake()].into_iter().flatten().min()
    }

    /// Takes in whether the launch of a claim came to a node.
    pub(super) fn record_launch(&mut self, claim: &NodeClaim, is_success: bool) {
        let Some(pool) = claim.pool_name() else { return };
        let (_, ring) = self.rings.entry(pool.to_owned()).or_default();
        ring.push_back(is_success);
        if ring.len() > RING_SIZE {
            ring.pop_front();
        }
    }

    /// Whether the last launches of a pool came to nodes: unknown if the pool was changed since, `None` if nothing is remembered.
    fn health(&mut self, pool: &NodePool) -> Option<ConditionStatus> {
        let generation = pool.metadata.generation;
        let (seen, ring) = self.rings.entry(pool.name().to_owned()).or_default();
        // What is remembered of the pool as it was before says nothing of it as it is.
        if seen.is_some() && *seen != generation {
            ring.clear();
            *seen = generation;
            return Some(ConditionStatus::Unknown);
        }
        *seen = generation;
        let failures = ring.iter().filter(|is_success| !**is_success).count();
        let is_healthy = failures < UNHEALTHY_FAILURES;
        (!ring.is_empty()).then_some(if is_healthy { ConditionStatus::True } else { ConditionStatus::False })
    }

    /// The end of a name, which is another one each time.
    pub(super) fn suffix(&mut self, now: Timestamp) -> String {
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        self.names += 1;
        let mut rest = mixed(now.as_millis().cast_unsigned() ^ mixed(self.names));
        let mut out = String::with_capacity(SUFFIX_LENGTH);
        for _ in 0..SUFFIX_LENGTH {
            let digit = usize::try_from(rest % 36).expect("less than 36");
            out.push(char::from(DIGITS[digit]));
            rest /= 36;
        }
        out
    }
}

/// Scatters a number over all numbers, each to one of its own (the finalizer of SplitMix64).
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Engine {
    pub(super) fn ask_for_catalogs(&mut self, now: Timestamp) {
        for pool in self.market.ask(&self.store.pools, now) {
            let purpose = Purpose::Catalog { pool: pool.name().to_owned() };
            self.outbox.send(Action::Catalog(Box::new((*pool).clone())), Some(purpose), now);
        }
    }

    pub(super) fn keep_up(&mut self, now: Timestamp) {
        if self.upkeep.list.is_due(now) {
            self.upkeep.list.begin();
            self.upkeep.listed_at = Some(now);
            self.outbox.send(Action::List, Some(Purpose::List), now);
        }
        if self.options.events_period.is_some() && self.upkeep.events.is_due(now) {
            self.upkeep.events.begin();
            self.outbox.send(Action::NextEvents(self.upkeep.cursor), Some(Purpose::Events), now);
        }
    }

    /// Takes in all machines; `None` if they could not be listed.
    pub(super) fn finish_list(&mut self, machines: Option<Vec<Instance>>, now: Timestamp) {
        let wait = if machines.is_some() { self.options.list_period } else { self.options.list_period.min(LIST_RETRY) };
        self.upkeep.list.end(now + wait);
        self.find_staying();
        let Some(mut machines) = machines else { return };
        // What happens to them is not known, and they are not orphans.
        let has_unreadable_claim = |machine: &Instance| self.store.unreadable_claims.values().any(|c| c.has(machine));
        machines.retain(|machine| {
            !has_unreadable_claim(machine) || self.store.claim_of_machine(machine.id.as_str()).is_some()
        });
        self.demote(&machines, now);
        let store = &self.store;
        let node_of = |claim: &NodeClaim| store.nodes_of(claim).next().map(AsRef::<Node>::as_ref);
        let span = self.upkeep.listed_at.unwrap_or(now)..now;
        let lost = self.upkeep.census.compare(&machines, store.claims.values().map(AsRef::as_ref), node_of, span);
        let there: IndexSet<&ProviderId, FxBuild> = machines.iter().map(|machine| &machine.id).collect();
        self.ends.retain(|id| {
            there.contains(id)
                || store.claim_of_machine(id.as_str()).is_some()
                || store.nodes_on(id.as_str()).next().is_some()
        });
        for name in lost.claims {
            if let Some(claim) = self.store.claims.get(&name).cloned() {
                self.note_stillborn(&claim, now);
                self.delete_claim(&claim, GARBAGE_COLLECTED, format!("The machine of NodeClaim {name} is gone"), now);
            }
        }
        for id in lost.machines {
            // It is told of for so long that it is there, also if one of its name was gone.
            self.ends.forget_gone(&id);
            self.terminate(&id, None, now);
        }
    }

    /// Claims and nodes of machines that lost their reservation say so.
    fn demote(&mut self, machines: &[Instance], now: Timestamp) {
        let (mut claims, mut nodes) = (Vec::new(), Vec::new());
        for machine in machines.iter().filter(|machine| may_be_demoted(machine)) {
            let Some(claim) = self.store.claim_of_machine(machine.id.as_str()) else { continue };
            let pool = claim.pool_name();
            let Some(catalog) = pool.and_then(|pool| self.market.catalog(pool)) else { continue };
            if let Some(labels) = demoted(&claim.metadata.labels, machine, catalog) {
                let mut out = (**claim).clone();
                out.metadata.labels = labels;
                claims.push(out);
            }
            for node in self.store.nodes_of(claim) {
                if let Some(labels) = demoted(&node.metadata.labels, machine, catalog) {
                    let mut out = (**node).clone();
                    out.metadata.labels = labels;
                    nodes.push(out);
                }
            }
        }
        for claim in claims {
            self.write_claim(claim, now);
        }
        for node in nodes {
            self.write_node(node, now);
        }
    }

    /// Takes in what happened to machines; `None` if that could not be told.
    pub(super) fn finish_events(&mut self, events: Option<ProviderEvents>, now: Timestamp) {
        let period = self.options.events_period.unwrap_or(Duration::MAX);
        self.upkeep.events.end(now + period);
        let Some(ProviderEvents { events, cursor }) = events else { return };
        self.upkeep.cursor = cursor;
        for event in events {
            let (id, reason, what) = match event {
                ProviderEvent::Interruption { id, .. } => {
                    self.avoid_offering_of(&id, now);
                    (id, "Interrupted", "The cloud takes back")
                }
                ProviderEvent::Ending { id, .. } => (id, "Interrupted", "It ends before its time:"),
                ProviderEvent::Terminated { id } => (id, TERMINATED, "The machine is gone:"),
                ProviderEvent::Notice { id, is_warning, reason, message } => {
                    self.note_of_machine(&id, is_warning, &reason, &message, now);
                    continue;
                }
            };
            let Some(claim) = self.store.claim_of_machine(id.as_str()).cloned() else { continue };
            if reason == TERMINATED {
                self.note_stillborn(&claim, now);
            }
            self.delete_claim(&claim, reason, format!("{what} {id}"), now);
            self.provisioner.hurry(now);
        }
    }

    /// Capacity that was taken back is not to be had for a while.
    fn avoid_offering_of(&mut self, id: &ProviderId, now: Timestamp) {
        let Some(claim) = self.store.claim_of_machine(id.as_str()) else { return };
        let label = |key: &str| claim.metadata.labels.get(key).cloned().unwrap_or_default();
        let key = OfferingKey {
            instance_type: label(labels::INSTANCE_TYPE),
            zone: label(labels::ZONE),
            capacity_type: label(labels::CAPACITY_TYPE),
        };
        if key.capacity_type == labels::SPOT {
            self.market.avoid([key], now + self.options.avoid_for);
        }
    }

    /// Says something of the claim of a machine and of its nodes.
    fn note_of_machine(&mut self, id: &ProviderId, is_warning: bool, reason: &str, message: &str, now: Timestamp) {
        let Some(claim) = self.store.claim_of_machine(id.as_str()).cloned() else { return };
        let nodes = self.store.nodes_of(&claim).map(|node| ObjectRef::Node(node.metadata.name.clone()));
        let objects: Vec<_> = [ObjectRef::NodeClaim(claim.name().to_owned())].into_iter().chain(nodes).collect();
        for object in objects {
            self.note(object, is_warning, reason.to_owned(), message.to_owned(), now);
        }
    }

    /// Writes what a pool should say: its hash, and the same on its claims; what its nodes have; and how it fares.
    pub(super) fn reconcile_pool(&mut self, name: &str, now: Timestamp) {
        let Some(pool) = self.store.pools.get(name).cloned() else {
            self.upkeep.rings.remove(name);
            self.upkeep.counted.remove(name);
            self.upkeep.tallies.remove(name);
            self.upkeep.content.remove(name);
            return;
        };
        self.keep_replicas(&pool, now);
        let next = self.upkeep.counted.get(name).map(|counted| *counted + COUNT_PERIOD).filter(|next| now < *next);
        if let Some(next) = next {
            self.agenda.at(Work::Pool(name.to_owned()), next);
            return;
        }
        let counted_from = (self.store.census, self.disruption.turns, pool.metadata.resource_version.clone());
        let is_known = self.upkeep.tallies.get(name).is_some_and(|tally| tally.of == counted_from);
        if !is_known && self.renew_hashes(&pool, now) {
            // The pool says its new hash only once its claims do.
            self.agenda.at(Work::Pool(name.to_owned()), now + COUNT_PERIOD);
            return;
        }
        self.upkeep.counted.insert(name.to_owned(), now);
        let health = self.upkeep.health(&pool);
        let fault = self.fault_of(&pool, now);
        let verdict = self.market.catalog(name).map_or(Ok(()), |catalog| catalog.check_labels(&pool));
        let verdict = pool.validate().and(verdict);
        let found = Content { pool: pool.clone(), health, verdict: verdict.clone() };
        if is_known && fault.is_none() && self.upkeep.content.get(name).is_some_and(|known| known.is_same(&found)) {
            return;
        }
        let mut out = (*pool).clone();
        out.metadata.annotations.extend(pool.hash_annotations());
        if !is_known {
            let (nodes, resources) = self.count(&pool);
            self.upkeep.tallies.insert(name.to_owned(), Tally { of: counted_from, nodes, resources });
        }
        if let Some(Tally { nodes, resources, .. }) = self.upkeep.tallies.get(name) {
            (out.status.nodes, out.status.resources) = (Some(*nodes), resources.clone());
        }
        judge(&mut out, verdict, health, fault.as_ref(), now);
        if out != *pool {
            self.upkeep.content.remove(name);
            self.write_pool(out, now);
        } else if fault.is_none() {
            self.upkeep.content.insert(name.to_owned(), found);
        }
    }

    /// Why nothing can be bought for a pool, after which it is looked at again.
    fn fault_of(&mut self, pool: &NodePool, now: Timestamp) -> Option<Fault> {
        let fault = self.market.fault_of(pool, now)?;
        if let Some(until) = fault.until {
            self.agenda.at(Work::Pool(pool.name().to_owned()), until);
        }
        Some(fault)
    }

    /// Brings the hashes of claims to the version of today, and says whether there was one to bring.
    fn renew_hashes(&mut self, pool: &NodePool, now: Timestamp) -> bool {
        if pool.has_current_hash() {
            return false;
        }
        let is_of = |claim: &&Arc<NodeClaim>| claim.pool_name() == Some(pool.name());
        let renewed = self.store.claims.values().filter(is_of).filter_map(|claim| {
            let annotations = pool.renewed_hash_annotations(claim);
            if annotations.is_empty() {
                return None;
            }
            let mut out = (**claim).clone();
            out.metadata.annotations.extend(annotations);
            Some(out)
        });
        let renewed: Vec<NodeClaim> = renewed.collect();
        let is_any = !renewed.is_empty();
        for claim in renewed {
            self.write_claim(claim, now);
        }
        is_any
    }

    /// Counts the nodes of a pool that are not on their way out, and what they have.
    fn count(&mut self, pool: &NodePool) -> (u32, ResourceList) {
        self.find_staying();
        let mut total = ResourceList::new();
        for name in BASE_RESOURCES {
            total.insert(ResourceName::from(name), Quantity::ZERO);
        }
        let mut nodes = 0_u32;
        let is_of =
            |node: &&Arc<Node>| node.metadata.labels.get(labels::NODE_POOL).is_some_and(|own| own == pool.name());
        for node in self.upkeep.staying.values().filter(is_of) {
            nodes += 1;
            total.add(&node.status.capacity);
        }
        total.insert(ResourceName::from("nodes"), Quantity::from_units(i64::from(nodes)));
        (nodes, total)
    }

    /// Looks at the nodes anew of which it may have changed whether they count, or what they have.
    fn find_staying(&mut self) {
        let leaving = self.disruption.leaving();
        let mut changed = std::mem::take(&mut self.store.uncounted);
        for claim in leaving.symmetric_difference(&self.upkeep.leaving).filter_map(|name| self.store.claims.get(name)) {
            changed.extend(self.store.nodes_of(claim).map(|node| node.metadata.name.clone()));
        }
        let stays = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_none() && !leaving.contains(claim.name());
        let counts = |node: &&Arc<Node>| {
            node.metadata.deletion_timestamp.is_none() && self.store.claim_of(node).is_some_and(|claim| stays(claim))
        };
        for name in changed {
            match self.store.nodes.get(&name).filter(counts) {
                Some(node) => drop(self.upkeep.staying.insert(name, node.clone())),
                None => drop(self.upkeep.staying.remove(&name)),
            }
        }
        debug_assert!(
            self.store.nodes.values().filter(counts).map(|node| &node.status.capacity).eq(self
                .upkeep
                .staying
                .values()
                .map(|node| &node.status.capacity)),
            "each change was noted"
        );
        self.upkeep.leaving = leaving;
    }
}

/// Writes whether a pool is valid, whether its nodes come, and whether it is ready.
fn judge(
    pool: &mut NodePool,
    verdict: Result<(), FieldError>,
    health: Option<ConditionStatus>,
    fault: Option<&Fault>,
    now: Timestamp,
) {
    let (conditions, generation) = (&mut pool.status.conditions, pool.metadata.generation);
    // What somebody else says of the class stands.
    let is_own = condition(conditions, NODE_CLASS_READY).is_none_or(|c| {
        c.status == ConditionStatus::Unknown
            || [NODE_CLASS_READY, CLASS_NOT_READY, NO_CATALOG_YET].contains(&&*c.reason)
    });
    let mut set = |of_type: &str, status, reason: &str, message: &str| {
        set_condition(conditions, generation, of_type, status, reason, message, now);
    };
    match verdict {
        Ok(()) => set(VALIDATION_SUCCEEDED, ConditionStatus::True, VALIDATION_SUCCEEDED, ""),
        Err(error) => {
            set(VALIDATION_SUCCEEDED, ConditionStatus::False, "NodePoolValidationFailed", &error.to_string());
        }
    }
    match fault {
        None if is_own => set(NODE_CLASS_READY, ConditionStatus::True, NODE_CLASS_READY, ""),
        None => {}
        Some(fault) => set(NODE_CLASS_READY, ConditionStatus::False, fault.reason, &fault.why),
    }
    match health {
        Some(ConditionStatus::True) => {
            set(NODE_REGISTRATION_HEALTHY, ConditionStatus::True, NODE_REGISTRATION_HEALTHY, "");
        }
        Some(ConditionStatus::False) => {
            set(NODE_REGISTRATION_HEALTHY, ConditionStatus::False, "RegistrationFailed", "nodes fail to register");
        }
        Some(ConditionStatus::Unknown) => {
            set(NODE_REGISTRATION_HEALTHY, ConditionStatus::Unknown, "AwaitingReconciliation", "");
        }
        None => {}
    }
    let is_false = |c: &&Condition| {
        c.status == ConditionStatus::False && matches!(c.r#type.as_str(), VALIDATION_SUCCEEDED | NODE_CLASS_READY)
    };
    let fault = conditions.iter().find(is_false).map(|condition| format!("{} is False", condition.r#type));
    let (status, reason) = match fault {
        Some(_) => (ConditionStatus::False, "UnhealthyDependents"),
        None => (ConditionStatus::True, READY),
    };
    set_condition(conditions, generation, READY, status, reason, &fault.unwrap_or_default(), now);
    // Whether nodes of the pool came as it was before says nothing of it as it is.
    let is_stale = |known: &Condition| known.observed_generation.is_some_and(|seen| Some(seen) != generation);
    if condition(conditions, NODE_REGISTRATION_HEALTHY).is_none_or(is_stale) {
        let (of_type, status) = (NODE_REGISTRATION_HEALTHY, ConditionStatus::Unknown);
        set_condition(conditions, generation, of_type, status, "AwaitingReconciliation", "", now);
    }
}
