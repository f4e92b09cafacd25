//! Which pods wait, which room was promised to which of them, and when to plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{EngineOptions, store::Store};
use crate::{
    Backoff, Planner, PlannerOptions, Timestamp,
    api::{NodeClaim, ObjectKey, Pod},
    schedule::{Replanner, Shelf},
};

/// The least time for which room of a node that is ready is promised. Karpenter keeps it for so long, or for twice the longest
/// batch.
const MIN_PROMISE: Duration = Duration::from_secs(10);
/// A workload for whose pods so many claims became ready in vain is left alone for a while: a webhook, a driver or a scheduler
/// of its own keeps its pods from the nodes that are made for them, and further nodes would fare no better.
const MAX_STRIKES: u32 = 3;
/// How long a workload is left alone.
const PAUSE: Backoff = Backoff { shortest: Duration::from_mins(5), longest: Duration::from_hours(1) };
/// The most workloads with strikes that are remembered. Another one takes the place of any of them, which costs a
/// node more.
const MAX_SUSPECTS: usize = 10_000;

/// How soon a pod is told again why it has no place, if nothing but amounts have changed: as often as Karpenter tells it.
const TOLD_AGAIN: Duration = Duration::from_mins(5);

/// How long nothing is planned after the API server refused claims.
const REFUSAL_WAIT: Backoff = Backoff { shortest: Duration::from_secs(1), longest: Duration::from_secs(16) };

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Provisioner {
    pub(super) replanner: Replanner,
    /// The pods that wait and that no room was promised to.
    pub(super) fresh: BTreeSet<ObjectKey>,
    pub(super) waiting: BTreeSet<ObjectKey>,
    /// At most one for each pod.
    pub(super) promises: BTreeMap<ObjectKey, Promise>,
    pub(super) by_place: BTreeMap<String, BTreeSet<ObjectKey>>,
    lapses: BTreeSet<(Timestamp, ObjectKey)>,
    /// When the first and the last pod came that were not planned for yet.
    batch: Option<(Timestamp, Timestamp)>,
    /// Whether not to wait for further pods.
    is_urgent: bool,
    /// Claims that were asked for and are not there yet.
    pub(super) creating: BTreeMap<String, NodeClaim>,
    /// How many pods each claim was made for.
    pub(super) made_for: BTreeMap<String, usize>,
    suspects: BTreeMap<String, Suspect>,
    /// Since when offerings turn out to have no capacity, until it is planned anew.
    pub(super) short_since: Option<Timestamp>,
    /// When there is something to plan, even if nothing happens.
    next: Option<Timestamp>,
    /// Nothing is planned before this.
    pub(super) not_before: Option<Timestamp>,
    /// In how many plans in a row the API server refused claims, and when last.
    refusals: Option<(u32, Timestamp)>,
    /// What the last plan with pods left over was made from, and when they are planned again at the earliest.
    pub(super) left_over: Option<((u64, u64), Option<Timestamp>)>,
    /// How much dearer the last plan with new nodes is than any can be proven to be, in percent.
    pub(super) gap_percent: Option<f64>,
    /// What pods were told last about why they have no place, and when.
    pub(super) told: BTreeMap<ObjectKey, (String, Timestamp)>,
}

/// Room that a pod was promised.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    pub(super) place: String,
    until: Option<Timestamp>,
}

/// A workload of which pods did not go where nodes were made for them.
#[derive(Clone, Debug)]
struct Suspect {
    strikes: u32,
    last_strike: Timestamp,
    paused_until: Option<Timestamp>,
}

impl Provisioner {
    pub(super) fn new(planner: PlannerOptions, shelf: &Shelf) -> Self {
        Self { replanner: Replanner::new(Planner::new(planner).keeping(shelf)), ..Self::default() }
    }

    /// Takes in whether a pod waits for a node.
    pub(super) fn set_waiting(&mut self, pod: &ObjectKey, waits: bool, now: Timestamp) {
        if waits {
            self.waiting.insert(pod.clone());
            if !self.promises.contains_key(pod) && self.fresh.insert(pod.clone()) {
                self.trigger(now);
            }
        } else {
            self.waiting.remove(pod);
            self.fresh.remove(pod);
            self.told.remove(pod);
        }
    }

    /// Plans soon.
    pub(super) fn trigger(&mut self, now: Timestamp) {
        let (first, _) = self.batch.unwrap_or((now, now));
        self.batch = Some((first, now));
    }

    /// Plans at once.
    pub(super) fn hurry(&mut self, now: Timestamp) {
        self.trigger(now);
        self.is_urgent = true;
    }

    /// When to plan, if there is something to plan.
    pub(super) fn due(&self, options: &EngineOptions) -> Option<Timestamp> {
        let (first, last) = self.batch?;
        let due = if self.is_urgent { first } else { (last + options.batch_idle).min(first + options.batch_max) };
        Some(self.not_before.map_or(due, |not_before| due.max(not_before)))
    }

    /// When there is something to do.
    pub(super) fn wake(&self, options: &EngineOptions) -> Option<Timestamp> {
        let lapse = self.lapses.first().map(|(time, _)| *time);
        let pauses = self.suspects.values().filter_map(|suspect| suspect.paused_until);
        let retry = self.left_over.and_then(|(_, retry)| retry);
        lapse.into_iter().chain(self.due(options)).chain(pauses).chain(retry).chain(self.next).min()
    }

    /// Plans pods that were left over again, some time after something changed that may help them.
    pub(super) fn look_at_left_over(&mut self, versions: (u64, u64), now: Timestamp) {
        let Some((seen, retry)) = self.left_over else { return };
        if retry.is_some_and(|retry| now < retry) {
            return;
        }
        if seen == versions {
            self.left_over = Some((seen, None));
        } else {
            self.left_over = None;
            self.hurry(now);
        }
    }

    /// There is nothing to plan until something happens, or until then.
    pub(super) fn planned(&mut self, next: Option<Timestamp>) {
        (self.batch, self.is_urgent, self.not_before, self.next) = (None, false, None, next);
    }

    /// Says whether a pod must be told why it has no place, and takes it that it is: it was not told so before. That only amounts are
    /// others, as with each node that comes or goes, is not worth telling at once.
    pub(super) fn tell(&mut self, pod: &ObjectKey, why: &str, now: Timestamp) -> bool {
        let is_known = self
            .told
            .get(pod)
            .is_some_and(|(told, since)| told == why || now < *since + TOLD_AGAIN && words(told).eq(words(why)));
        if !is_known {
            self.told.insert(pod.clone(), (why.to_owned(), now));
        }
        !is_known
    }

    /// Promises the room of a place to a pod; for good, or until then.
    pub(super) fn promise(&mut self, pod: &ObjectKey, place: &str, until: Option<Timestamp>) {
        self.unpromise(pod);
        self.fresh.remove(pod);
        self.told.remove(pod);
        self.promises.insert(pod.clone(), Promise { place: place.to_owned(), until });
        self.by_place.entry(place.to_owned()).or_default().insert(pod.clone());
        self.lapses.extend(until.map(|until| (until, pod.clone())));
    }

    /// Takes a promise back, without planning anew.
    pub(super) fn unpromise(&mut self, pod: &ObjectKey) {
        let Some(promise) = self.promises.remove(pod) else { return };
        if let Some(until) = promise.until {
            self.lapses.remove(&(until, pod.clone()));
        }
        if let Some(pods) = self.by_place.get_mut(&promise.place) {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_place.remove(&promise.place);
            }
        }
    }

    /// Takes all promises of a place back; its pods are planned anew soon.
    pub(super) fn release(&mut self, place: &str, now: Timestamp) {
        self.made_for.remove(place);
        for pod in self.by_place.get(place).cloned().unwrap_or_default() {
            self.put_off(&pod, now);
        }
    }

    /// Takes a promise back; the pod is planned anew soon.
    pub(super) fn put_off(&mut self, pod: &ObjectKey, now: Timestamp) {
        self.unpromise(pod);
        if self.waiting.contains(pod) {
            self.fresh.insert(pod.clone());
        }
        self.trigger(now);
    }

    /// The pods that the room of a place was promised to.
    pub(super) fn promised_to(&self, place: &str) -> usize {
        self.by_place.get(place).map_or(0, BTreeSet::len)
    }

    /// A node became ready: the pods that it was promised to have a while to come.
    pub(super) fn ready(&mut self, places: &[String], now: Timestamp, options: &EngineOptions) {
        let until = promise_until(options, now);
        for place in places {
            self.made_for.remove(place);
            for pod in self.by_place.get(place).cloned().unwrap_or_default() {
                self.promise(&pod, place, Some(until));
            }
        }
    }

    /// A claim is there.
    pub(super) fn created(&mut self, claim: &str) {
        self.creating.remove(claim);
    }

    /// The API server did not take a claim: a rule of the cluster or a right that is missing, which the next claim is likely to
    /// meet too.
    pub(super) fn refused(&mut self, now: Timestamp) {
        let recent = self.refusals.filter(|(_, last)| now < *last + 2 * REFUSAL_WAIT.longest);
        let count = match recent {
            Some((count, last)) if now < last + REFUSAL_WAIT.shortest => count,
            Some((count, _)) => count.saturating_add(1),
            None => 1,
        };
        self.refusals = Some((count, now));
        self.not_before = self.not_before.max(Some(now + REFUSAL_WAIT.after(count)));
    }

    /// Takes back what was promised for too long: the pods are planned anew, and their workloads are suspects.
    pub(super) fn lapse(&mut self, store: &Store, now: Timestamp) {
        if self.next.take_if(|next| *next <= now).is_some() {
            self.hurry(now);
        }
        while let Some((time, pod)) = self.lapses.first().cloned()
            && time <= now
        {
            self.unpromise(&pod);
            self.lapses.remove(&(time, pod.clone()));
            if self.waiting.contains(&pod) {
                self.suspect(store.pods.get(&pod).map(AsRef::as_ref), now);
                self.fresh.insert(pod);
                self.trigger(now);
            }
        }
        let is_over = |suspect: &Suspect| suspect.paused_until.is_some_and(|until| until <= now);
        if self.suspects.values().any(is_over) {
            self.suspects
                .values_mut()
                .filter(|suspect| is_over(suspect))
                .for_each(|suspect| suspect.paused_until = None);
            self.trigger(now);
        }
    }

    /// The workloads of the pods that a claim was made for are suspects.
    pub(super) fn strike(&mut self, claim: &str, store: &Store, now: Timestamp) {
        for pod in self.by_place.get(claim).cloned().unwrap_or_default() {
            self.suspect(store.pods.get(&pod).map(AsRef::as_ref), now);
        }
    }

    fn suspect(&mut self, pod: Option<&Pod>, now: Timestamp) {
        let Some(pod) = pod else { return };
        let workload = workload_of(pod);
        if self.suspects.len() >= MAX_SUSPECTS && !self.suspects.contains_key(&workload) {
            self.suspects.pop_first();
        }
        let fresh = Suspect { strikes: 0, last_strike: Timestamp::from_millis(i64::MIN), paused_until: None };
        let suspect = self.suspects.entry(workload).or_insert(fresh);
        // Many pods of a workload at about the same time are one mistake: the nodes of a plan do not become ready together.
        if now < suspect.last_strike + MIN_PROMISE {
            return;
        }
        suspect.last_strike = now;
        suspect.strikes = suspect.strikes.saturating_add(1);
        if let Some(more) = suspect.strikes.checked_sub(MAX_STRIKES) {
            suspect.paused_until = Some(now + PAUSE.after(more + 1));
        }
    }

    /// Whether the workload of a pod is left alone for now.
    pub(super) fn is_paused(&self, pod: &Pod) -> bool {
        !self.suspects.is_empty()
            && self.suspects.get(&workload_of(pod)).is_some_and(|suspect| suspect.paused_until.is_some())
    }

    /// Whether some workload is left alone for now.
    pub(super) fn has_pauses(&self) -> bool {
        self.suspects.values().any(|suspect| suspect.paused_until.is_some())
    }

    /// A pod has a node: its workload is above suspicion.
    pub(super) fn settled(&mut self, pod: &Pod) {
        if !self.suspects.is_empty() {
            self.suspects.remove(&workload_of(pod));
        }
    }
}

/// Until when room of a node that is ready is promised.
pub(super) fn promise_until(options: &EngineOptions, now: Timestamp) -> Timestamp {
    now + options.batch_max.saturating_mul(2).max(MIN_PROMISE)
}

/// What made a pod and would make the next one like it: the uid of its controller, or its own.
pub(super) fn workload_of(pod: &Pod) -> String {
    let controller = pod.metadata.controller();
    let uid = controller.map_or(&pod.metadata.uid, |owner| &owner.uid);
    if uid.is_empty() { pod.key().to_string() } else { uid.clone() }
}

/// The words of a text that are no amounts: these begin with a digit.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().filter(|word| !word.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{api::OwnerReference, engine::Object};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Pods of one workload that wait.
    fn waiting(count: usize) -> (Store, Vec<Pod>) {
        let (mut store, mut pods) = (Store::default(), Vec::new());
        for number in 0..count {
            let mut pod = Pod::default();
            pod.metadata.name = format!("web-{number}");
            pod.metadata.namespace = "default".to_owned();
            let mut owner = OwnerReference::default();
            (owner.uid, owner.controller) = ("web".to_owned(), Some(true));
            pod.metadata.owner_references.push(owner);
            store.apply(Object::Pod(Arc::new(pod.clone())));
            pods.push(pod);
        }
        (store, pods)
    }

    #[test]
    fn only_rounds_in_vain_make_a_workload_wait() {
        let (store, pods) = waiting(9);
        let mut provisioner = Provisioner::new(PlannerOptions::default(), &Shelf::default());
        let mut round = |start: i64| {
            for (number, pod) in pods.iter().enumerate() {
                // The nodes of a plan become ready one after the other.
                let until = at(start + i64::try_from(number).expect("a small number") * 10);
                provisioner.set_waiting(&pod.key(), true, at(start));
                provisioner.promise(&pod.key(), "node", Some(until));
                provisioner.lapse(&store, until);
            }
            provisioner.is_paused(&pods[0])
        };
        assert_eq!([round(20_000), round(40_000), round(60_000)], [false, false, true]);
    }
}
