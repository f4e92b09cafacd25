//! What goes wrong in a cloud, as its tests want it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use karpenter_core::{
    Catalog, OfferingKey, Price, Timestamp,
    provider::{EventCursor, ProviderErrorKind, ProviderEvent, ProviderEvents, ProviderId},
};

use super::{Bill, FakeCloud, Machine};

/// The most events that are kept. Who comes later has missed the older ones, as in a real queue.
const MAX_EVENTS: usize = 10_000;

/// A span of time, without its end.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: Timestamp,
    until: Timestamp,
}

impl Window {
    fn contains(self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }
}

/// What goes wrong, and what has happened to machines.
#[derive(Debug, Default)]
pub(super) struct Faults {
    throttled: Vec<Window>,
    /// When an offering is sold out.
    shortages: BTreeMap<OfferingKey, Vec<Window>>,
    /// Memory that machines of a type do not have, though it was promised.
    withheld_bytes: BTreeMap<String, i64>,
    /// How many of the next answers are lost.
    lost_answers: u32,
    /// The latest events, and the number of the first of them.
    events: VecDeque<ProviderEvent>,
    first_event: u64,
    /// Machines of which nobody is told that they are gone.
    silent: BTreeSet<ProviderId>,
}

impl Faults {
    /// How a call fails now, if it does.
    pub(super) fn refusal(&mut self, now: Timestamp) -> Option<ProviderErrorKind> {
        self.throttled.retain(|window| now < window.until);
        self.throttled.iter().any(|window| window.contains(now)).then_some(ProviderErrorKind::Throttled)
    }

    pub(super) fn is_sold_out(&self, offering: &OfferingKey, now: Timestamp) -> bool {
        self.shortages.get(offering).is_some_and(|windows| windows.iter().any(|window| window.contains(now)))
    }

    pub(super) fn withheld_bytes(&self, instance_type: &str) -> i64 {
        self.withheld_bytes.get(instance_type).copied().unwrap_or(0)
    }

    pub(super) fn loses_answer(&mut self) -> bool {
        let is_lost = self.lost_answers > 0;
        self.lost_answers -= u32::from(is_lost);
        is_lost
    }

    pub(super) fn tell_gone(&mut self, machine: &Machine) {
        // One whose deletion was asked for is no news.
        if !self.silent.remove(&machine.id) && !machine.is_terminating {
            self.tell(ProviderEvent::Terminated { id: machine.id.clone() });
        }
    }

    fn tell(&mut self, event: ProviderEvent) {
        self.events.push_back(event);
        if self.events.len() > MAX_EVENTS {
            self.events.pop_front();
            self.first_event += 1;
        }
    }

    pub(super) fn events_since(&self, cursor: EventCursor) -> ProviderEvents {
        let skipped = usize::try_from(cursor.0.saturating_sub(self.first_event)).unwrap_or(usize::MAX);
        let events: Vec<ProviderEvent> = self.events.iter().skip(skipped).cloned().collect();
        let end = self.first_event + self.events.len() as u64;
        ProviderEvents::new(events, EventCursor(end.max(cursor.0)))
    }
}

/// Faults.
///
/// ```
/// use std::time::Duration;
/// use karpenter_core::{CloudProvider, Timestamp, api::NodeClaim, provider::{EventCursor, ProviderEvent}};
/// use karpenter_fake::{FakeCloud, generated_catalog};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let cloud = FakeCloud::new(generated_catalog());
/// let mut claim = NodeClaim::named("one");
/// claim.metadata.uid = "1".into();
/// cloud.lose_answers(1);
/// assert!(cloud.create(&claim).await.is_err());
/// let machine = cloud.create(&claim).await?.instance;
/// assert_eq!(cloud.list().await?, [machine.clone()], "it had been bought, though the answer was lost");
///
/// cloud.interrupt(&machine.id, Duration::from_secs(120));
/// let told = cloud.next_events(EventCursor::default()).await?;
/// assert_eq!(told.events, [ProviderEvent::Interruption { id: machine.id, at: Timestamp::from_millis(120_000) }]);
/// cloud.set_now(Timestamp::from_millis(120_000));
/// assert_eq!(cloud.list().await?, []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl FakeCloud {
    /// Sells an offering at another price from now on. Machines that run cost the new price too, as spot machines do.
    ///
    /// Nothing changes if there is no such offering.
    ///
    /// # Panics
    /// Never: another price makes no other catalog.
    pub fn set_price(&self, offering: &OfferingKey, price: Price) {
        let mut state = self.lock();
        let mut types = state.catalog.types().to_vec();
        let of_type = types.iter_mut().filter(|t| t.name == offering.instance_type);
        for instance_type in of_type {
            let name = instance_type.name.clone();
            instance_type.offerings.iter_mut().filter(|o| o.key(&name) == *offering).for_each(|o| o.price = price);
        }
        state.catalog = Arc::new(Catalog::new(types).expect("another price makes no other catalog"));
        let state = &mut *state;
        let now = state.now;
        let mut bill = Bill::default();
        for machine in state.machines.values_mut().filter(|m| m.offering == *offering) {
            state.meter.reprice(now, machine.price, price);
            bill += Bill::of(machine.price, now.since(machine.priced_since));
            (machine.price, machine.priced_since) = (price, now);
        }
        *state.charged.entry(offering.clone()).or_default() += bill;
    }

    /// Warns that a machine will be taken back, and takes it back after `notice`. A large cloud warns of the end of spot
    /// machines two minutes before, and of maintenance days before. Gives back when the machine will be gone, `None`
    /// if there is no such machine.
    pub fn interrupt(&self, id: &ProviderId, notice: Duration) -> Option<Timestamp> {
        let mut state = self.lock();
        let at = state.now + notice;
        if !state.depart(id, at) {
            return None;
        }
        state.faults.tell(ProviderEvent::Interruption { id: id.clone(), at });
        state.forget_gone();
        Some(at)
    }

    /// Ends a machine at once. `is_told` says whether an event tells of it.
    pub fn kill(&self, id: &ProviderId, is_told: bool) {
        let mut state = self.lock();
        if !is_told {
            state.faults.silent.insert(id.clone());
        }
        let now = state.now;
        state.depart(id, now);
        state.forget_gone();
    }

    /// Loses the answers to the next calls: what was asked is done, and the caller is told that nobody answered.
    pub fn lose_answers(&self, count: u32) {
        self.lock().faults.lost_answers += count;
    }

    /// Refuses every call as one too many from then until then.
    pub fn throttle(&self, from: Timestamp, until: Timestamp) {
        self.lock().faults.throttled.push(Window { from, until });
    }

    /// Sells no more of an offering from then until then.
    pub fn exhaust_between(&self, offering: OfferingKey, from: Timestamp, until: Timestamp) {
        self.lock().faults.shortages.entry(offering).or_default().push(Window { from, until });
    }

    /// Gives machines of a type that are bought from now on less memory than the catalog promises. The answer to the
    /// call that buys them promises it too; only the node tells.
    pub fn withhold_memory(&self, instance_type: &str, memory_bytes: i64) {
        self.lock().faults.withheld_bytes.insert(instance_type.to_owned(), memory_bytes);
    }
}

/// When a machine joins, as which node, and which of its taints are startup taints.
#[cfg(feature = "sim")]
pub(crate) type Joining = (Timestamp, karpenter_core::api::Node, Vec<karpenter_core::api::Taint>);

/// What the simulated cluster must know of machines.
#[cfg(feature = "sim")]
impl FakeCloud {
    /// When the next machine will be gone, as far as is known.
    pub(crate) fn next_departure(&self) -> Option<Timestamp> {
        self.lock().departures.first().map(|(at, _)| *at)
    }

    /// The machines that are gone and were not asked about since.
    pub(crate) fn take_departed(&self) -> Vec<ProviderId> {
        std::mem::take(&mut self.lock().departed)
    }

    /// The machines that are there, with the uids of their claims and when they were bought.
    pub(crate) fn machines(&self) -> Vec<(ProviderId, String, Timestamp)> {
        let state = self.lock();
        state.machines.values().map(|m| (m.id.clone(), m.claim_uid.clone(), m.launched_at)).collect()
    }

    /// How many machines there ever were, and how many of them there are.
    pub(crate) fn turnover(&self) -> (u64, usize) {
        let state = self.lock();
        (state.made, state.machines.len())
    }

    /// The machines of a claim, by its uid, that were launched now.
    pub(crate) fn launched_now(&self, claim_uid: &str) -> Vec<ProviderId> {
        let state = self.lock();
        let is_it = |m: &&Machine| m.claim_uid == claim_uid && m.launched_at == state.now;
        state.machines.values().filter(is_it).map(|m| m.id.clone()).collect()
    }

    /// The node of a machine as it joins.
    pub(crate) fn joining(&self, id: &ProviderId) -> Option<Joining> {
        let state = self.lock();
        let machine = state.machines.get(id)?;
        Some((machine.ready_at, machine.node(), machine.startup_taints.clone()))
    }
}
