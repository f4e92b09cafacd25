//! Nodes for the pods that wait.

use std::time::Duration;

use super::{Action, Engine, ObjectRef, outbox::Purpose, provisioner::promise_until, recall::Replaces};
use crate::{
    Catalogs, Plan, PlannedClaim, Planner, Snapshot, Timestamp,
    api::{NodeClaim, NodePool, conditions::LAUNCHED},
    labels,
};

/// How soon it is tried again while something must be known first.
const HOLD: Duration = Duration::from_secs(1);
/// Nothing is planned while a claim has no machine that pods of nobody knows which would go to, but for no longer than this
/// after it was made: launches take some seconds.
const MAX_HOLD: Duration = Duration::from_mins(1);
/// How soon pods without a place are planned again after something changed that may help them.
const RETRY: Duration = Duration::from_secs(10);
/// Of so many pods of a plan people are told where they should go: Karpenter's burst of such events.
const MAX_NOMINATED: usize = 10;
/// The most claims that are made at once; the pods of others are planned again in the next tick. So many are launched by
/// clouds in a minute.
const MAX_NEW_CLAIMS: usize = 1000;
/// The longest name of a claim, in bytes: as long as the value of a label may be.
const MAX_NAME: usize = 63;

impl Engine {
    /// Plans if it is time.
    pub(super) fn provision(&mut self, now: Timestamp) {
        self.provisioner.lapse(&self.store, now);
        let versions = (self.store.supply, self.market.version(now));
        self.provisioner.look_at_left_over(versions, now);
        if self.provisioner.due(&self.options).is_none_or(|due| now < due) {
            return;
        }
        if !self.market.is_open(now) || self.awaits_machines(now) || self.awaits_answers(now) {
            let not_before = &mut self.provisioner.not_before;
            *not_before = (*not_before).max(Some(now + HOLD));
            return;
        }
        self.provisioner.planned(self.next_to_move(now));
        if !self.may_want_places() {
            return;
        }
        let Some(snapshot) = self.snapshot(now) else {
            self.provisioner.hurry(now);
            self.provisioner.not_before = Some(now + RETRY);
            return;
        };
        if snapshot.pending().len() == 0 {
            return;
        }
        let catalogs = self.market.catalogs(&self.store.pools, now);
        let plan = self.provisioner.replanner.plan(&snapshot, &catalogs).clone();
        if self.options.measures_gap && plan.is_complete() {
            self.measure_gap(&plan, &snapshot, &catalogs);
        }
        self.carry_out(&plan, &snapshot, now);
    }

    fn measure_gap(&mut self, plan: &Plan, snapshot: &Snapshot, catalogs: &Catalogs) {
        let planner = Planner::new(self.options.planner.clone()).keeping(&self.shelf);
        let certificate = planner.prepare(snapshot, catalogs).certify(plan);
        let (cost, bound) = (plan.hourly_cost().dollars_per_hour(), certificate.lower_bound.dollars_per_hour());
        if bound > 0.0 {
            self.provisioner.gap_percent = Some(100.0 * (cost / bound - 1.0));
        }
    }

    /// Whether there is a claim without a machine, so that nobody knows what room it has, which pods may go to that are
    /// planned now: it was made for pods that are gone, or by an engine that was stopped.
    fn awaits_machines(&self, now: Timestamp) -> bool {
        let is_open = |claim: &NodeClaim| {
            let made_for = self.provisioner.made_for.get(claim.name()).copied();
            let is_young = claim.metadata.creation_timestamp.is_some_and(|made| now < made + MAX_HOLD);
            let has_room = made_for.is_none_or(|count| self.provisioner.promised_to(claim.name()) < count);
            is_young && has_room && !is_static(self.store.pool_of(claim).map(AsRef::as_ref))
        };
        let waits = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_none();
        let mut unlaunched = self.store.unlaunched.iter().filter_map(|name| self.store.claims.get(name));
        unlaunched.any(|claim| waits(claim) && !claim.status.is_true(LAUNCHED) && is_open(claim))
    }

    /// Whether offerings had no capacity a short while ago, and others of the same plan may turn out to have none in a moment.
    fn awaits_answers(&mut self, now: Timestamp) -> bool {
        let Some(since) = self.provisioner.short_since else { return false };
        let waits = now < since + self.options.batch_max && self.lives.is_any_launching();
        if !waits {
            self.provisioner.short_since = None;
        }
        waits
    }

    fn carry_out(&mut self, plan: &Plan, snapshot: &Snapshot, now: Timestamp) {
        for planned in plan.claims().iter().take(MAX_NEW_CLAIMS) {
            if let Some(pool) = snapshot.pool(&planned.node_pool) {
                self.create_claim(planned, pool, None, now);
                self.note_purchase(planned, now);
            }
        }
        if plan.claims().len() > MAX_NEW_CLAIMS || !plan.is_complete() {
            self.provisioner.hurry(now);
        }
        let until = promise_until(&self.options, now);
        for (place, pods) in plan.existing() {
            let found = snapshot.places().binary_search_by(|known| known.name.as_str().cmp(place));
            let is_ready = found.is_ok_and(|index| snapshot.places()[index].is_initialized);
            for pod in pods {
                self.provisioner.promise(pod, place, is_ready.then_some(until));
            }
        }
        self.tell_nominated(plan, now);
        for (pod, reason) in plan.unplaced() {
            let reason = reason.to_string();
            if self.store.is_waiting(pod) && self.provisioner.tell(pod, &reason, now) {
                self.note(ObjectRef::Pod(pod.clone()), true, "FailedScheduling", reason, now);
            }
        }
        if !plan.unplaced().is_empty() {
            let versions = (self.store.supply, self.market.version(now));
            self.provisioner.left_over = Some((versions, Some(now + RETRY)));
        }
    }

    /// Tells people where the first pods of a plan should go.
    fn tell_nominated(&mut self, plan: &Plan, now: Timestamp) {
        let new = plan.claims().iter().flat_map(|claim| claim.pods.iter());
        let existing = plan.existing().values().flatten();
        for pod in new.chain(existing).take(MAX_NOMINATED) {
            if let Some(place) = self.provisioner.promises.get(pod).map(|promise| promise.place.clone()) {
                let message = format!("Pod should schedule on {place}");
                self.note(ObjectRef::Pod(pod.clone()), false, "Nominated", message, now);
            }
        }
    }

    /// Asks for a claim and promises its room to its pods. Gives back its name.
    pub(super) fn create_claim(
        &mut self,
        planned: &PlannedClaim,
        pool: &NodePool,
        replaces: Option<&Replaces>,
        now: Timestamp,
    ) -> String {
        let name = self.new_name(pool.name(), now);
        let mut claim = planned.to_node_claim(pool, name.clone(), "");
        claim.metadata.finalizers.push(labels::TERMINATION.to_owned());
        if let Some(replaces) = replaces {
            claim.metadata.annotations.insert(labels::REPLACES.to_owned(), replaces.text());
        }
        for pod in &planned.pods {
            self.provisioner.promise(pod, &name, None);
        }
        self.provisioner.made_for.insert(name.clone(), planned.pods.len());
        self.provisioner.creating.insert(name.clone(), claim.clone());
        self.counters.created(pool.name(), replaces.map(|replaces| replaces.method));
        let purpose = Purpose::Create { claim: name.clone() };
        self.outbox.send(Action::CreateClaim(Box::new(claim)), Some(purpose), now);
        name
    }

    /// A name that no claim had before: it tells when it was made, and is another one at the same time. As the API server does
    /// with the names that it makes, the name of the pool is cut, so that all can be the value of a label.
    fn new_name(&mut self, pool: &str, now: Timestamp) -> String {
        loop {
            let suffix = self.upkeep.suffix(now);
            let pool = pool[..pool.floor_char_boundary(MAX_NAME - 1 - suffix.len())].trim_end_matches('.');
            let name = format!("{pool}-{suffix}");
            if !self.store.claims.contains_key(&name) && !self.provisioner.creating.contains_key(&name) {
                return name;
            }
        }
    }

    /// Takes back all that was promised of a claim that will not be.
    pub(super) fn release(&mut self, claim: &str, now: Timestamp) {
        let names = match self.store.claims.get(claim).cloned() {
            Some(claim) => self.names_of(&claim),
            None => vec![claim.to_owned()],
        };
        for name in names {
            self.provisioner.release(&name, now);
        }
        // The pods of its node need another place.
        self.provisioner.trigger(now);
    }

    /// A claim that was asked for will not be there.
    pub(super) fn drop_claim(&mut self, claim: &str, now: Timestamp) {
        self.provisioner.created(claim);
        self.provisioner.release(claim, now);
        self.provisioner.not_before = Some(now + HOLD);
    }
}

pub(super) fn is_static(pool: Option<&NodePool>) -> bool {
    pool.is_some_and(NodePool::is_static)
}
