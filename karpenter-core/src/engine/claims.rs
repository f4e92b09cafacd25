//! What the engine does for one claim that is not on its way out.

use std::{sync::Arc, time::Duration};

use super::{
    Action, Engine, ObjectRef, Target, Work,
    disruption::NOT_NEEDED,
    lives::{Content, DriftAnswer, RepairEnd, Sound},
    outbox::Purpose,
    provision::is_static,
    upkeep::GARBAGE_COLLECTED,
};
use crate::{
    Timestamp,
    api::{
        Condition, ConditionStatus, Node, NodeClaim, NodeClassRef,
        conditions::{
            CONSISTENT_STATE_FOUND, CONSOLIDATABLE, DRIFTED, INITIALIZED, LAUNCHED, REGISTERED, condition,
            set_condition,
        },
    },
    disrupt::{Drift, ProviderDrift},
    labels,
    lifecycle::{self, Ailment, LaunchReaction, launch_backoff},
    provider::{CreateError, Launched},
};

/// Why a claim is not `Consolidatable` whose pods were moved in vain.
const MOVED_IN_VAIN: &str = "MovedInVain";
/// The time of the last pod event of a claim is written at most this often, so that a node on which a job runs pod after pod is
/// not written with each of them. Karpenter waits as long.
const POD_EVENT_PERIOD: Duration = Duration::from_secs(10);
/// A claim of this age drifts only if something changes: one whose instance type is not offered is missed sooner.
const GROWN_UP: Duration = Duration::from_hours(2);
/// How often it is looked again whether a sick node may be replaced, after too many others of its pool were sick too.
const REPAIR_RETRY: Duration = Duration::from_mins(5);
/// How often people are told of that. Karpenter tells them as often.
const REPAIR_BLOCKED_PERIOD: Duration = Duration::from_mins(15);

/// How soon it is looked again whether a machine may be bought, in a shortage.
const PACE_CHECK: Duration = Duration::from_secs(1);
/// Why claims go whose offerings have no capacity.
pub(super) const SOLD_OUT: &str = "InsufficientCapacityError";
/// Why claims go whose node is sick.
pub(super) const NODE_REPAIR: &str = "NodeRepair";
/// The most characters of what went wrong with a launch in a condition; Karpenter cuts there too.
const MAX_LAUNCH_MESSAGE: usize = 300;

/// What of the status of a claim tells of its node.
struct Noted {
    conditions: Vec<Condition>,
    last_pod_event_time: Option<Timestamp>,
}

impl Engine {
    pub(super) fn reconcile_claim(&mut self, name: &str, now: Timestamp) {
        let Some(claim) = self.store.claims.get(name).cloned() else {
            // It was not made after all, or somebody took it away before it was told.
            if self.provisioner.creating.contains_key(name) && !self.outbox.is_creating(name) {
                self.disruption.is_stirred = true;
                self.drop_claim(name, now);
            }
            return;
        };
        let target = Target::Claim(name.to_owned());
        if self.must_wait(&target, &claim.metadata.resource_version, now) {
            return;
        }
        if claim.metadata.deletion_timestamp.is_some() {
            self.end_claim(&claim, now);
            return;
        }
        if self.is_succeeded(&claim) {
            // So soon a name does not come again, unless the provider has one for several machines: others would go like this one.
            self.note_stillborn(&claim, now);
            let message = format!("The machine of NodeClaim {name} is gone, and there is another one of its name");
            self.delete_claim(&claim, GARBAGE_COLLECTED, message, now);
            return;
        }
        if self.disruption.has_given_up(name) && self.is_unbought(&claim) {
            let message = format!("NodeClaim {name} came when its disruption was given up already");
            self.delete_claim(&claim, NOT_NEEDED, message, now);
            return;
        }
        if let Some(reason) = self.lives.of(&claim).doom {
            self.delete_claim(&claim, reason, format!("Deleting NodeClaim {name}: {reason}"), now);
            return;
        }
        if let Some(written) = lifecycle::hydrate_claim(&claim).filter(|_| self.lives.of(&claim).refusal.is_none()) {
            self.write_claim(written, now);
            return;
        }
        let nodes: Vec<Arc<Node>> = self.store.nodes_of(&claim).cloned().collect();
        if let Some(machine) = self.lives.of(&claim).machine.clone() {
            // A write may be done by halves.
            let written = lifecycle::launched(&claim, &machine, now);
            if written != *claim {
                self.write_machine(&claim, written, now);
                return;
            }
            self.lives.of(&claim).machine = None;
        }
        let node_refs: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
        if self.is_kept_out(&claim, now) {
            return;
        }
        let step = lifecycle::live(&claim, &node_refs, now);
        self.take_step(&claim, step, now);
        if claim.status.is_true(REGISTERED)
            && let [node] = &nodes[..]
        {
            self.look_after(&claim, node, now);
        }
    }

    fn take_step(&mut self, claim: &Arc<NodeClaim>, step: lifecycle::Step, now: Timestamp) {
        let name = claim.name().to_owned();
        if let Some(reason) = step.delete {
            if reason != lifecycle::EXPIRED {
                self.count_launch(claim, false);
            }
            self.delete_claim(claim, reason, format!("Deleting NodeClaim {name}: {reason}"), now);
            return;
        }
        if let Some(wake) = step.wake {
            self.agenda.at(Work::Claim(name.clone()), wake);
        }
        if let Some(node) = step.node {
            self.write_node(node, now);
        }
        if let Some(written) = step.claim {
            let becomes = |of_type| written.status.is_true(of_type) && !claim.status.is_true(of_type);
            let (registers, initializes) = (becomes(REGISTERED), becomes(INITIALIZED));
            if self.write_claim(written, now) && registers && self.count_launch(claim, true) {
                self.counters.node_joined(claim);
            }
            if initializes {
                self.provisioner.ready(&self.names_of(claim), now, &self.options);
            }
        }
        if step.launch {
            self.launch(claim, now);
        }
    }

    fn look_at_pools_of(&mut self, class: &NodeClassRef) {
        let of_class = self.store.pools.values().filter(|pool| pool.spec.template.spec.node_class_ref == *class);
        let works: Vec<Work> = of_class.map(|pool| Work::Pool(pool.name().to_owned())).collect();
        for work in works {
            self.agenda.add(work);
        }
    }

    pub(super) fn agenda_pool_of(&mut self, claim: &NodeClaim) {
        if let Some(pool) = claim.pool_name() {
            self.agenda.add(Work::Pool(pool.to_owned()));
        }
    }

    /// Whether no machine was asked for yet.
    fn is_unbought(&mut self, claim: &NodeClaim) -> bool {
        let life = self.lives.of(claim);
        life.asked_at.is_none() && life.machine.is_none() && claim.status.provider_id.is_empty()
    }

    /// The names under which room of a claim may have been promised: its own, and those of its nodes.
    pub(super) fn names_of(&self, claim: &NodeClaim) -> Vec<String> {
        let nodes = self.store.nodes_of(claim).map(|node| node.metadata.name.clone());
        nodes.chain([claim.name().to_owned()]).collect()
    }

    fn launch(&mut self, claim: &Arc<NodeClaim>, now: Timestamp) {
        if self.lives.of(claim).is_launching {
            return;
        }
        if self.market.is_sold_out(claim, now) {
            let message = format!("NodeClaim {}: all that it allows had no capacity a while ago", claim.name());
            self.delete_claim(claim, SOLD_OUT, message, now);
            self.release(claim.name(), now);
            self.provisioner.hurry(now);
            return;
        }
        let pool = claim.pool_name().unwrap_or_default();
        let pace = self.market.pace(pool, now);
        if pace < usize::MAX && pace <= self.asked_for(pool, now) {
            self.agenda.at(Work::Claim(claim.name().to_owned()), now + PACE_CHECK);
            return;
        }
        let life = self.lives.of(claim);
        if let Some(next) = life.next_attempt.filter(|next| now < *next) {
            self.agenda.at(Work::Claim(claim.name().to_owned()), next);
            return;
        }
        (life.is_launching, life.asked_at) = (true, Some(now));
        let purpose = Purpose::Launch { claim: claim.name().to_owned(), uid: claim.metadata.uid.clone() };
        let order = self.market.order(claim);
        self.outbox.send(Action::Launch(Box::new(order)), Some(purpose), now);
    }

    /// For how many claims of a pool a machine was asked for, and it may be heard soon whether there was one.
    fn asked_for(&self, pool: &str, now: Timestamp) -> usize {
        let waits = |claim: &&Arc<NodeClaim>| {
            let life = self.lives.get(claim.name(), &claim.metadata.uid).filter(|life| life.is_launching);
            claim.pool_name() == Some(pool)
                && life.and_then(|life| life.asked_at).is_some_and(|at| now < at + self.options.batch_max)
        };
        self.store.claims.values().filter(waits).count()
    }

    /// Takes in what came of buying a machine.
    pub(super) fn finish_launch(
        &mut self,
        name: &str,
        uid: &str,
        result: Result<Launched, CreateError>,
        now: Timestamp,
    ) {
        self.agenda.add(Work::Claim(name.to_owned()));
        if let Ok(machine) = &result {
            self.move_in(&machine.instance.id, uid);
        }
        let Some(life) = self.lives.get_mut(name, uid) else { return };
        life.is_launching = false;
        let claim = self.store.claims.get(name).filter(|claim| claim.metadata.uid == uid).cloned();
        let pool = claim.as_ref().and_then(|claim| claim.pool_name());
        if let (Some(pool), Ok(_) | Err(CreateError::InsufficientCapacity { .. })) = (pool, &result) {
            self.market.note_capacity(pool, result.is_ok());
        }
        match result {
            Err(error) => self.finish_failed_launch((name, uid), claim.as_ref(), &error, now),
            Ok(machine) => {
                let machine = match &claim {
                    Some(claim) => {
                        self.market.serve_class(&claim.spec.node_class_ref);
                        self.market.receive(claim, machine)
                    }
                    None => machine,
                };
                life.machine = Some(Box::new(machine));
                self.note(ObjectRef::NodeClaim(name.to_owned()), false, LAUNCHED, format!("Launched {name}"), now);
            }
        }
    }

    fn finish_failed_launch(
        &mut self,
        (name, uid): (&str, &str),
        claim: Option<&Arc<NodeClaim>>,
        error: &CreateError,
        now: Timestamp,
    ) {
        self.counters.not_launched(match error {
            CreateError::InsufficientCapacity { .. } => "insufficient_capacity",
            CreateError::NodeClassNotReady { .. } => "nodeclass_not_ready",
            CreateError::NothingCompatible { .. } => "nothing_compatible",
            CreateError::Provider(_) => "provider",
        });
        let Some(life) = self.lives.get_mut(name, uid) else { return };
        life.failed_attempts += 1;
        let pool = claim.and_then(|claim| self.store.pool_of(claim));
        let is_static = is_static(pool.map(AsRef::as_ref));
        let reaction = match lifecycle::react_to_launch_error(error, life.failed_attempts) {
            // Another claim would be the same, as there is nothing to avoid.
            LaunchReaction::Avoid(offerings)
                if claim.is_some_and(|claim| !self.market.may_avoid(claim, &offerings)) =>
            {
                LaunchReaction::Retry(launch_backoff(life.failed_attempts))
            }
            // Another claim of the same pool would be the same.
            LaunchReaction::GiveUp if is_static => LaunchReaction::Retry(launch_backoff(life.failed_attempts)),
            reaction => reaction,
        };
        if let LaunchReaction::Retry(wait) = &reaction {
            life.next_attempt = Some(now + *wait);
        }
        if let Some(claim) = claim {
            self.suffer(claim, error, reaction, now);
        }
    }

    fn suffer(&mut self, claim: &Arc<NodeClaim>, error: &CreateError, reaction: LaunchReaction, now: Timestamp) {
        let (reason, replan) = match reaction {
            LaunchReaction::Avoid(offerings) => {
                self.market.avoid(offerings, now + self.options.avoid_for);
                self.provisioner.short_since.get_or_insert(now);
                (SOLD_OUT, true)
            }
            LaunchReaction::BlockClass(_) => {
                // As the claim names it: by another name that the provider has for it no pool would be left alone.
                let class = claim.spec.node_class_ref.clone();
                self.look_at_pools_of(&class);
                self.market.block(class, error.to_string(), now);
                ("NodeClassNotReady", false)
            }
            LaunchReaction::GiveUp => {
                self.provisioner.strike(claim.name(), &self.store, now);
                ("NothingCompatible", false)
            }
            LaunchReaction::Retry(_) => {
                let mut out = (**claim).clone();
                let message = error.to_string();
                let (generation, status) = (out.metadata.generation, ConditionStatus::Unknown);
                let short: String = message.chars().take(MAX_LAUNCH_MESSAGE).collect();
                let conditions = &mut out.status.conditions;
                set_condition(conditions, generation, LAUNCHED, status, "LaunchFailed", &short, now);
                if out != **claim && claim.metadata.deletion_timestamp.is_none() {
                    self.write_claim(out, now);
                }
                let object = ObjectRef::NodeClaim(claim.name().to_owned());
                self.note(object, true, "LaunchFailed", message, now);
                return;
            }
        };
        self.delete_claim(claim, reason, format!("NodeClaim {}: {error}", claim.name()), now);
        self.release(claim.name(), now);
        if replan {
            self.provisioner.hurry(now);
        }
    }

    /// What a claim with a node needs from time to time.
    fn look_after(&mut self, claim: &Arc<NodeClaim>, node: &Arc<Node>, now: Timestamp) {
        if let Some(written) = lifecycle::hydrate_node(claim, node) {
            self.write_node(written, now);
        }
        let ailment = lifecycle::ailment(node, &self.options.repair_policies);
        if !ailment.is_some_and(|ailment| self.repair(claim, &ailment, now)) {
            self.spare(claim, now);
        }
        if claim.status.is_true(INITIALIZED) {
            self.ask_drift(claim, now);
            self.keep_up_to_date(claim, node, now);
        }
    }

    /// Writes what has become of a claim, unless all that this goes by is as it was when nothing was to be written.
    fn keep_up_to_date(&mut self, claim: &Arc<NodeClaim>, node: &Arc<Node>, now: Timestamp) {
        let pool = self.store.pool_of(claim).cloned();
        let catalog = pool.as_ref().and_then(|pool| self.market.catalog(pool.name())).cloned();
        let last_pod_event = self.lives.last_pod_event(&node.metadata.name);
        let seen = Content { claim: claim.clone(), node: node.clone(), pool, catalog, last_pod_event, until: None };
        let life = self.lives.of(claim);
        // While it is asked, the answer brings the claim back: that the next question is due by then would be no reason to look.
        let next_drift = life.next_drift.filter(|_| !life.is_asking_drift);
        let known = life.content.as_ref().filter(|content| content.holds(&seen, now));
        let until = if let Some(until) = known.map(|content| content.until) {
            until
        } else {
            self.bring_up_to_date(claim, seen, now);
            None
        };
        if let Some(next) = until.into_iter().chain(next_drift).min() {
            self.agenda.at(Work::Claim(claim.name().to_owned()), next);
        }
    }

    /// Writes what has become of a claim; what was seen is kept if that is nothing.
    fn bring_up_to_date(&mut self, claim: &Arc<NodeClaim>, seen: Content, now: Timestamp) {
        let (node, status) = (seen.node.clone(), &claim.status);
        let life = self.lives.of(claim);
        life.content = None;
        if life.learned.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &node)) && self.market.learn(&node, claim) {
            life.learned = Some(node.clone());
        }
        let mut out = Noted { conditions: status.conditions.clone(), last_pod_event_time: status.last_pod_event_time };
        self.write_pod_event(claim, &mut out, &node.metadata.name, now);
        self.write_quiet(claim, &mut out, &node.metadata.name, now);
        self.write_consistency(claim, &mut out.conditions, &node, now);
        self.write_drift(claim, &mut out.conditions, now);
        if out.last_pod_event_time != status.last_pod_event_time || out.conditions != status.conditions {
            let mut written = (**claim).clone();
            (written.status.conditions, written.status.last_pod_event_time) = (out.conditions, out.last_pod_event_time);
            self.write_claim(written, now);
        } else if claim.metadata.creation_timestamp.is_some_and(|made| made + GROWN_UP <= now) {
            let until = self.agenda.time_of(&Work::Claim(claim.name().to_owned()));
            self.lives.of(claim).content = Some(Content { until, ..seen });
        }
    }

    /// Takes back the end of a claim that was to be repaired, so that its pods are drained as usual whenever it goes. One that
    /// somebody else wrote stays.
    fn spare(&mut self, claim: &NodeClaim, now: Timestamp) {
        let Some(end) = self.lives.of(claim).repair_end.clone() else { return };
        if claim.metadata.annotations.get(labels::TERMINATION_TIMESTAMP) != Some(&end.written) {
            self.lives.of(claim).repair_end = None;
            return;
        }
        let mut out = claim.clone();
        match end.before {
            Some(before) => out.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), before),
            None => out.metadata.annotations.remove(labels::TERMINATION_TIMESTAMP),
        };
        self.write_claim(out, now);
    }

    /// Brings a claim with a sick node to its end, if it is time and not too many are sick. Says whether it does.
    fn repair(&mut self, claim: &Arc<NodeClaim>, ailment: &Ailment, now: Timestamp) -> bool {
        let work = Work::Claim(claim.name().to_owned());
        if now < ailment.due {
            self.agenda.at(work, ailment.due);
            return false;
        }
        let pool = claim.pool_name();
        // A claim without a pool is one of the whole cluster.
        let of_pool = |node: &&Arc<Node>| {
            pool.is_none_or(|pool| node.metadata.labels.get(labels::NODE_POOL).is_some_and(|own| own == pool))
        };
        let is_sick = |node: &Arc<Node>| lifecycle::ailment(node, &self.options.repair_policies).is_some();
        let (mut sick, mut all) = (0, 0);
        for node in self.store.nodes.values().filter(of_pool) {
            all += 1;
            sick += usize::from(is_sick(node));
        }
        if !lifecycle::may_repair(sick, all) {
            let whole = if pool.is_some() { "pool" } else { "cluster" };
            let message = format!("{sick} of {all} nodes of the {whole} are unhealthy, which is more than a fifth");
            let told = &mut self.lives.of(claim).blocked_at;
            if told.is_none_or(|told| told + REPAIR_BLOCKED_PERIOD <= now) {
                *told = Some(now);
                self.note(ObjectRef::NodeClaim(claim.name().to_owned()), true, "NodeRepairBlocked", message, now);
            }
            self.agenda.at(work, now + REPAIR_RETRY);
            return false;
        }
        let before = claim.metadata.annotations.get(labels::TERMINATION_TIMESTAMP).cloned();
        if before.as_ref().and_then(|end| end.parse().ok()).is_some_and(|end: Timestamp| end <= now) {
            self.delete_claim(claim, NODE_REPAIR, format!("Condition {} calls for repair", ailment.condition), now);
            return true;
        }
        let end = RepairEnd { written: now.to_string(), before };
        let mut out = (**claim).clone();
        out.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), end.written.clone());
        self.lives.of(claim).repair_end = Some(end);
        self.write_claim(out, now);
        true
    }

    fn write_pod_event(&mut self, claim: &NodeClaim, out: &mut Noted, node: &str, now: Timestamp) {
        let Some(event) = self.lives.last_pod_event(node) else { return };
        let written = out.last_pod_event_time;
        if written.is_some_and(|written| event <= written) {
            return;
        }
        let pool = self.store.pool_of(claim);
        let wait = pool.and_then(|pool| pool.spec.disruption.consolidate_after.duration());
        if wait.is_none_or(|wait| wait.is_zero()) {
            return;
        }
        match written.map(|written| written + POD_EVENT_PERIOD).filter(|next| now < *next) {
            Some(next) => self.agenda.at(Work::Claim(claim.name().to_owned()), next),
            None => out.last_pod_event_time = Some(event),
        }
    }

    /// Writes whether pods have left a node alone for as long as its pool asks for.
    fn write_quiet(&mut self, claim: &NodeClaim, out: &mut Noted, node: &str, now: Timestamp) {
        // Nodes of static pools do not go to save money.
        let pool = self.store.pool_of(claim).filter(|pool| !is_static(Some(pool)));
        let wait = pool.and_then(|pool| pool.spec.disruption.consolidate_after.duration());
        let generation = claim.metadata.generation;
        if let Some(until) = wait.and_then(|_| self.rests_until(node, now)) {
            let message = format!("Pods that were moved to save money needed a further node; until {until} they stay");
            let (conditions, status) = (&mut out.conditions, ConditionStatus::False);
            set_condition(conditions, generation, CONSOLIDATABLE, status, MOVED_IN_VAIN, &message, now);
            self.agenda.at(Work::Claim(claim.name().to_owned()), until);
            return;
        }
        let initialized = condition(&claim.status.conditions, INITIALIZED).and_then(|c| c.last_transition_time);
        let event = self.lives.last_pod_event(node).max(out.last_pod_event_time);
        let until = wait.map(|wait| event.or(initialized).map_or(now, |disturbed| disturbed + wait));
        let conditions = &mut out.conditions;
        match until {
            Some(until) if until <= now || wait == Some(Duration::ZERO) => {
                let status = ConditionStatus::True;
                set_condition(conditions, generation, CONSOLIDATABLE, status, CONSOLIDATABLE, "", now);
            }
            _ => conditions.retain(|condition| condition.r#type != CONSOLIDATABLE),
        }
        if let Some(until) = until.filter(|until| now < *until) {
            self.agenda.at(Work::Claim(claim.name().to_owned()), until);
        }
    }

    fn write_consistency(&mut self, claim: &NodeClaim, conditions: &mut Vec<Condition>, node: &Node, now: Timestamp) {
        let mut set = |status, reason: &str, message: &str| {
            set_condition(conditions, claim.metadata.generation, CONSISTENT_STATE_FOUND, status, reason, message, now)
        };
        match lifecycle::shortfall(claim, node) {
            None => {
                set(ConditionStatus::True, CONSISTENT_STATE_FOUND, "");
            }
            Some(name) => {
                let message = format!("expected more of resource {name}, found less than nine tenths of it");
                if set(ConditionStatus::False, "ConsistencyCheckFailed", &message) {
                    let object = ObjectRef::NodeClaim(claim.name().to_owned());
                    self.note(object, true, "FailedConsistencyCheck", message, now);
                }
            }
        }
    }

    /// Asks from time to time whether the machine of a claim is what its node class asks for.
    fn ask_drift(&mut self, claim: &Arc<NodeClaim>, now: Timestamp) {
        let period = self.options.drift_period;
        let life = self.lives.of(claim);
        if life.next_drift.is_none_or(|next| next <= now) && !life.is_asking_drift {
            life.is_asking_drift = true;
            life.next_drift = Some(now + period);
            let purpose = Purpose::Drift { claim: claim.name().to_owned(), uid: claim.metadata.uid.clone() };
            self.outbox.send(Action::Drift(claim.clone()), Some(purpose), now);
        }
    }

    fn write_drift(&mut self, claim: &Arc<NodeClaim>, conditions: &mut Vec<Condition>, now: Timestamp) {
        let Some(pool) = self.store.pool_of(claim).cloned() else { return };
        let catalog = self.market.catalog(pool.name()).cloned();
        let is_grown_up = claim.metadata.creation_timestamp.is_some_and(|made| made + GROWN_UP <= now);
        let life = self.lives.of(claim);
        let seen = Sound { claim: claim.clone(), pool, catalog, answer: life.drift.clone() };
        if is_grown_up && life.sound.as_ref().is_some_and(|known| known.is_same(&seen)) {
            life.sound = Some(seen);
            return;
        }
        let Sound { pool, catalog, .. } = &seen;
        let answer = match &life.drift {
            DriftAnswer::None => ProviderDrift::NotAsked,
            DriftAnswer::Sound => ProviderDrift::Answered(None),
            DriftAnswer::Drifted(reason) => ProviderDrift::Answered(Some(reason)),
        };
        let drift = Drift::of_claim(claim, pool, catalog.as_deref(), answer, now);
        let is_sound = is_grown_up && drift.is_none() && condition(&claim.status.conditions, DRIFTED).is_none();
        life.sound = Some(seen).filter(|_| is_sound);
        match drift {
            Some(drift) => {
                let (generation, status) = (claim.metadata.generation, ConditionStatus::True);
                let (reason, message) = (drift.condition_reason(), drift.to_string());
                set_condition(conditions, generation, DRIFTED, status, reason, &message, now);
            }
            None => conditions.retain(|condition| condition.r#type != DRIFTED),
        }
    }

    /// Takes in what the provider says about drift of the claim that has this name and uid. That it does not know leaves the last
    /// answer.
    pub(super) fn finish_drift(&mut self, name: &str, uid: &str, answer: DriftAnswer) {
        let Some(life) = self.lives.named(name).filter(|life| life.uid == uid) else { return };
        life.is_asking_drift = false;
        if let Some(next) = life.next_drift {
            self.agenda.at(Work::Claim(name.to_owned()), next);
        }
        if answer != DriftAnswer::None && life.drift != answer {
            life.drift = answer;
            life.content = None;
            self.agenda.add(Work::Claim(name.to_owned()));
        }
    }
}
