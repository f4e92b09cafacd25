//! What can be bought, as far as the engine knows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    classes::Classes,
    lacks::{Lack, Lacks},
    overlays::{Terms, is_set_by_overlay},
};
use crate::{
    Catalog, Catalogs, InstanceType, Offering, Quantity, Requirements, ResourceName, Timestamp,
    api::{
        ConditionStatus, Node, NodeClaim, NodeClassRef, NodeOverlay, NodePool, because_of, conditions::NODE_CLASS_READY,
    },
    catalog::{OfferingKey, Overlaid, OverlayFault},
    labels,
    lifecycle::launch_backoff,
    provider::{Launched, ProviderError, ProviderErrorKind},
};

/// The reason of the condition `NodeClassReady` of pools whose node class cannot be used.
pub(super) const CLASS_NOT_READY: &str = "NodeClassNotReady";
/// The reason of that condition if it was never known what can be bought for a pool.
pub(super) const NO_CATALOG_YET: &str = "CatalogUnavailable";
/// At least so often it is asked whether a node class can be used by now that the provider says is not ready.
const ASK_OF_CLASS_EVERY: Duration = Duration::from_secs(10);
/// Nothing is planned while it is not known of a new pool what can be bought for it, but for no longer than this: the provider may
/// hang for one pool and not for the others. The first catalog of a cloud takes some seconds.
const MAX_SILENCE: Duration = Duration::from_mins(1);
/// The catalogs of all pools, and what is known to be different from what they say.
#[derive(Clone, Debug, Default)]
pub(super) struct Market {
    stalls: BTreeMap<String, Stall>,
    /// Offerings without capacity, and until when they are avoided. At most one entry for each offering there is.
    avoided: BTreeMap<OfferingKey, Timestamp>,
    /// How many machines may be bought at a time, by pool; as many as anybody likes where there was no shortage.
    paces: BTreeMap<String, usize>,
    classes: Classes,
    lacks: Lacks,
    /// What people were not told yet of what nodes lack, by pool.
    news: Vec<(String, String)>,
    /// The overlays that do not count, and why.
    faults: BTreeMap<String, OverlayFault>,
    /// Whether it is not known yet what overlays make of the catalogs as they are.
    is_stale: bool,
    /// Counts what changes the catalogs.
    version: u64,
    known: Option<(u64, Catalogs)>,
}

/// Why nothing can be bought for a pool, as its condition `NodeClassReady` says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// One word.
    pub(super) reason: &'static str,
    pub(super) why: String,
    /// When it is tried all the same.
    pub(super) until: Option<Timestamp>,
}

/// The catalog of one pool.
#[derive(Clone, Debug, Default)]
struct Stall {
    /// As the provider gave it.
    catalog: Option<Arc<Catalog>>,
    /// As overlays have it.
    overlaid: Option<Arc<Catalog>>,
    /// That, with what nodes really have.
    adjusted: Option<Arc<Catalog>>,
    /// Whether the provider has answered, be it with an error.
    is_answered: bool,
    /// When it was asked for the first time.
    since: Option<Timestamp>,
    is_asked: bool,
    /// Why the node class cannot be used, if the provider says so.
    class_fault: Option<String>,
    /// Why there never was a catalog, if the provider was asked for one.
    error: Option<ProviderError>,
    /// When to ask; at once if it was never asked, or if the pool has changed since.
    next: Option<Timestamp>,
    failed_attempts: u32,
}

impl Market {
    /// The pools of which the catalog is to be asked for now; they count as asked from then on.
    pub(super) fn ask(&mut self, pools: &BTreeMap<String, Arc<NodePool>>, now: Timestamp) -> Vec<Arc<NodePool>> {
        let is_there = |name: &String| pools.contains_key(name);
        let before = self.stalls.len();
        self.stalls.retain(|name, _| is_there(name));
        if self.stalls.len() != before {
            self.lacks.retain(is_there);
            self.version += 1;
        }
        let is_used =
            |class: &NodeClassRef| pools.values().any(|pool| pool.spec.template.spec.node_class_ref == *class);
        self.version += u64::from(self.classes.retain(is_used));
        let mut out = Vec::new();
        for (name, pool) in pools {
            let stall = self.stalls.entry(name.clone()).or_default();
            if !stall.is_asked && stall.next.is_none_or(|next| next <= now) {
                (stall.is_asked, stall.next) = (true, Some(now));
                stall.since.get_or_insert(now);
                out.push(pool.clone());
            }
        }
        out
    }

    /// Takes in an answer. An error leaves the catalog that is known, and is followed by another attempt soon.
    pub(super) fn answer(
        &mut self,
        pool: &str,
        answer: Result<Arc<Catalog>, ProviderError>,
        period: Duration,
        now: Timestamp,
    ) {
        let Some(stall) = self.stalls.get_mut(pool) else { return };
        self.is_stale |= !stall.is_answered;
        (stall.is_asked, stall.is_answered) = (false, true);
        // The answer may be that of the pool before it changed.
        let is_outdated = stall.next.is_none();
        let catalog = match answer {
            Ok(catalog) => catalog,
            Err(error) => {
                stall.failed_attempts = stall.failed_attempts.saturating_add(1);
                let mut wait = launch_backoff(stall.failed_attempts).min(period);
                if error.kind == ProviderErrorKind::NodeClassNotReady {
                    wait = wait.min(ASK_OF_CLASS_EVERY);
                    self.version += u64::from(stall.class_fault.as_ref() != Some(&error.message));
                    stall.class_fault = Some(error.message);
                } else if stall.catalog.is_none() {
                    self.version += u64::from(stall.error.as_ref() != Some(&error));
                    stall.error = Some(error);
                }
                stall.next = Some(if is_outdated { now } else { now + wait });
                return;
            }
        };
        self.version += u64::from(stall.class_fault.take().is_some() || stall.error.is_some());
        stall.error = None;
        (stall.failed_attempts, stall.next) = (0, Some(if is_outdated { now } else { now + period }));
        let is_known = stall.catalog.as_ref().is_some_and(|known| known.is_same(&catalog));
        if !is_known {
            stall.catalog = Some(catalog);
            self.is_stale = true;
        }
    }

    /// The overlays or the pools have changed.
    pub(super) fn forget_overlays(&mut self) {
        self.is_stale = true;
    }

    /// Works out what overlays make of the catalogs if that is not known, and says whether it did.
    pub(super) fn overlay(
        &mut self,
        pools: &BTreeMap<String, Arc<NodePool>>,
        overlays: &BTreeMap<String, Arc<NodeOverlay>>,
    ) -> bool {
        if !std::mem::take(&mut self.is_stale) {
            return false;
        }
        let mut given = Catalogs::new();
        for (name, stall) in &self.stalls {
            stall.catalog.iter().for_each(|catalog| given.insert(name.clone(), catalog.clone()));
        }
        let pools = pools.values().map(AsRef::as_ref);
        let Overlaid { catalogs, faults } = given.overlaid(pools, overlays.values().map(AsRef::as_ref));
        self.faults = faults;
        for (name, stall) in &mut self.stalls {
            let Some(new) = catalogs.get(name) else { continue };
            if stall.overlaid.as_ref().is_none_or(|known| !known.is_same(new)) {
                stall.overlaid = Some(new.clone());
                stall.adjust(name, &self.lacks);
                self.version += 1;
            }
        }
        true
    }

    /// Why an overlay does not count, if so.
    pub(super) fn fault(&self, overlay: &str) -> Option<&OverlayFault> {
        self.faults.get(overlay)
    }

    /// A claim as its provider is asked for it.
    pub(super) fn order(&self, claim: &NodeClaim) -> NodeClaim {
        let is_open = |own: &InstanceType, offering: &Offering| !self.avoided.contains_key(&offering.key(&own.name));
        self.terms(claim).map_or_else(|| claim.clone(), |terms| terms.order(claim, is_open))
    }

    /// What was bought for a claim, as overlays have it.
    pub(super) fn receive(&self, claim: &NodeClaim, machine: Launched) -> Launched {
        match self.terms(claim) {
            Some(terms) => terms.receive(machine),
            None => machine,
        }
    }

    /// What overlays have changed for the pool of a claim, if anything.
    fn terms(&self, claim: &NodeClaim) -> Option<Terms<'_>> {
        let stall = self.stalls.get(claim.metadata.labels.get(labels::NODE_POOL)?)?;
        let (given, overlaid) = (stall.catalog.as_ref()?, stall.overlaid.as_ref()?);
        (!Arc::ptr_eq(given, overlaid)).then_some(Terms { given, overlaid })
    }

    /// Asks for the catalog of a pool again, because the pool has changed: at once, or when the question that is open is answered.
    pub(super) fn renew(&mut self, pool: &str) {
        if let Some(stall) = self.stalls.get_mut(pool) {
            stall.next = None;
        }
    }

    /// Whether the provider has answered for every pool, be it with an error, or has had time enough to.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        let is_late = |stall: &Stall| stall.since.is_some_and(|since| since + MAX_SILENCE <= now);
        self.stalls.values().all(|stall| stall.is_answered || is_late(stall))
    }

    /// When to ask for a catalog, or when something that was avoided is tried again.
    pub(super) fn wake(&self) -> Option<Timestamp> {
        let asks = self.stalls.values().filter(|stall| !stall.is_asked).filter_map(|stall| stall.next);
        asks.chain(self.avoided.values().copied()).chain(self.classes.wake()).min()
    }

    /// Avoids offerings until then.
    pub(super) fn avoid(&mut self, offerings: impl IntoIterator<Item = OfferingKey>, until: Timestamp) {
        self.avoided.extend(offerings.into_iter().map(|key| (key, until)));
        self.version += 1;
    }

    /// Whether a claim becomes another one if some of these offerings are avoided: it allows one that is sold under this name, or
    /// one of a type that is not sold any more.
    pub(super) fn may_avoid(&self, claim: &NodeClaim, offerings: &[OfferingKey]) -> bool {
        let pool = claim.metadata.labels.get(labels::NODE_POOL);
        let Some(catalog) = pool.and_then(|pool| self.catalog(pool)) else { return true };
        let requirements: Requirements = claim.spec.requirements.iter().collect();
        let admits = |key: &str, value: &str| {
            value.is_empty() || requirements.get(key).is_none_or(|requirement| requirement.admits(Some(value)))
        };
        let is_allowed = |key: &OfferingKey| {
            admits(labels::INSTANCE_TYPE, &key.instance_type)
                && admits(labels::ZONE, &key.zone)
                && admits(labels::CAPACITY_TYPE, &key.capacity_type)
        };
        let is_sold = |key: &OfferingKey| {
            let own = catalog.get(&key.instance_type);
            own.is_none_or(|own| own.offerings.iter().any(|offering| offering.key(&own.name) == *key))
        };
        offerings.iter().any(|key| is_allowed(key) && is_sold(key))
    }

    /// How many machines may be bought for a pool at a time, while it is not known what else is sold out: one after a refusal,
    /// and twice as many after each purchase, until nothing is avoided any more.
    pub(super) fn pace(&mut self, pool: &str, now: Timestamp) -> usize {
        self.version(now);
        if self.avoided.is_empty() {
            self.paces.clear();
        }
        self.paces.get(pool).copied().unwrap_or(usize::MAX)
    }

    /// Takes in whether there was capacity for a claim of a pool.
    pub(super) fn note_capacity(&mut self, pool: &str, is_there: bool) {
        if !is_there {
            self.paces.insert(pool.to_owned(), 1);
        } else if let Some(pace) = self.paces.get_mut(pool) {
            *pace = pace.saturating_mul(2);
        }
    }

    /// Makes no claim of a node class for a while.
    pub(super) fn block(&mut self, class: NodeClassRef, why: String, now: Timestamp) {
        self.classes.block(class, why, now);
        self.version += 1;
    }

    /// A machine of a node class was bought.
    pub(super) fn serve_class(&mut self, class: &NodeClassRef) {
        self.version += u64::from(self.classes.serve(class));
    }

    /// Why nothing can be bought for a pool: its node class cannot be used, or there never was a catalog, and people must act or it
    /// takes too long already.
    pub(super) fn fault_of(&self, pool: &NodePool, now: Timestamp) -> Option<Fault> {
        let stall = self.stalls.get(pool.name())?;
        let not_ready = |why: &str, until| Fault { reason: CLASS_NOT_READY, why: why.to_owned(), until };
        if let Some(why) = &stall.class_fault {
            return Some(not_ready(why, None));
        }
        if let Some((why, until)) = self.classes.block_of(&pool.spec.template.spec.node_class_ref, now) {
            return Some(not_ready(why, Some(until)));
        }
        let is_late = stall.since.is_some_and(|since| since + MAX_SILENCE <= now);
        let lasts = |error: &&ProviderError| is_late || error.kind == ProviderErrorKind::Unauthorized;
        let error = stall.error.as_ref().filter(lasts)?;
        Some(Fault { reason: NO_CATALOG_YET, why: error.with_kind(), until: None })
    }

    /// Takes in what a node that is ready really has. If it has less than its claim was promised, the planner expects that the next
    /// ones of its type lack as much, until one of them does not. Says whether it is known what the catalog says.
    pub(super) fn learn(&mut self, node: &Node, claim: &NodeClaim) -> bool {
        let label = |key: &str| node.metadata.labels.get(key).map(String::as_str);
        let (Some(pool), Some(name)) = (label(labels::NODE_POOL), label(labels::INSTANCE_TYPE)) else {
            return false;
        };
        let Some(stall) = self.stalls.get_mut(pool) else { return false };
        let both = stall.catalog.as_ref().zip(stall.overlaid.as_ref());
        let Some((given, own)) = both.and_then(|(given, own)| Some((given.get(name)?, own.get(name)?))) else {
            return false;
        };
        let counts = |resource: &ResourceName| !is_of_plugin(resource) && !is_set_by_overlay(given, own, resource);
        let lack = |(resource, has): (&ResourceName, Quantity)| {
            let promised = claim.status.allocatable.get(resource.as_str()).filter(|_| counts(resource))?;
            Some((resource.clone(), Lack::new(promised, has)))
        };
        let has = node.status.allocatable.iter().filter_map(lack);
        let Some(found) = self.lacks.take_in((pool, name), node, has) else { return true };
        for (resource, lack) in found {
            let promised = own.allocatable().get(resource.as_str()).unwrap_or(Quantity::ZERO);
            let expected = promised.saturating_sub(lack.of(promised));
            if expected < promised {
                let told = format!("Node {} has less {resource} than was promised of {name}", node.metadata.name);
                let told = format!("{told}: the next ones are taken to have {expected} of {promised}");
                self.news.push((pool.to_owned(), told));
            }
        }
        stall.adjust(pool, &self.lacks);
        self.version += 1;
        true
    }

    /// What people were not told yet of what the nodes of pools lack.
    pub(super) fn take_news(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.news)
    }

    /// Counts what changes the catalogs; what is no longer avoided counts.
    pub(super) fn version(&mut self, now: Timestamp) -> u64 {
        let before = self.avoided.len();
        self.avoided.retain(|_, until| now < *until);
        self.version += u64::from(self.classes.lapse(now) || self.avoided.len() != before);
        self.version
    }

    /// What can be bought now for each pool, save what is avoided, or why nothing can be. Pools of a node class that is not ready have
    /// no catalog.
    pub(super) fn catalogs(&mut self, pools: &BTreeMap<String, Arc<NodePool>>, now: Timestamp) -> Catalogs {
        let version = self.version(now);
        if let Some((_, known)) = self.known.as_ref().filter(|(of, _)| *of == version) {
            return known.clone();
        }
        let avoided: Vec<OfferingKey> = self.avoided.keys().cloned().collect();
        let mut out = Catalogs::new();
        for (name, stall) in &self.stalls {
            // The pool says the same in a moment.
            if let Some(fault) = pools.get(name).and_then(|pool| self.fault_of(pool, now)) {
                out.insert_missing(name.clone(), because_of(NODE_CLASS_READY, ConditionStatus::False, &fault.why));
            } else if let Some(catalog) = &stall.adjusted {
                out.insert(name.clone(), catalog.clone());
            } else if let Some(error) = &stall.error {
                out.insert_missing(name.clone(), error.as_missing_catalog());
            }
        }
        let out = out.without(&avoided);
        self.known = Some((version, out.clone()));
        out
    }

    /// Whether all that a claim may become is avoided now. One that may become nothing, avoided or not, is not.
    pub(super) fn is_sold_out(&mut self, claim: &NodeClaim, now: Timestamp) -> bool {
        self.version(now);
        let pool = claim.metadata.labels.get(labels::NODE_POOL);
        let Some(catalog) = pool.and_then(|pool| self.catalog(pool)).filter(|_| !self.avoided.is_empty()) else {
            return false;
        };
        let requirements: Requirements = claim.spec.requirements.iter().collect();
        let mut choices = choices(&requirements, catalog).peekable();
        choices.peek().is_some() && choices.all(|(own, offering)| self.avoided.contains_key(&offering.key(&own.name)))
    }

    /// When the first offering that is avoided is no longer.
    pub(super) fn next_return(&self) -> Option<Timestamp> {
        self.avoided.values().min().copied()
    }

    /// The catalog of a pool, with what is avoided.
    pub(super) fn catalog(&self, pool: &str) -> Option<&Arc<Catalog>> {
        self.stalls.get(pool)?.adjusted.as_ref()
    }
}

/// Whether a plugin of the kubelet tells how much of a resource there is. A node has none while its plugin starts anew, and less
/// while a device is broken, which says nothing of the next node.
fn is_of_plugin(resource: &ResourceName) -> bool {
    resource.as_str().contains('/')
}

/// The types with the offerings that meet requirements and that the provider says can be bought.
pub(super) fn choices<'r, 'c: 'r>(
    requirements: &'r Requirements,
    catalog: &'c Catalog,
) -> impl Iterator<Item = (&'c InstanceType, &'c Offering)> + 'r {
    let asked = requirements.get(labels::INSTANCE_TYPE);
    let is_named = move |own: &&InstanceType| asked.is_none_or(|asked| asked.admits(Some(&own.name)));
    catalog.types().iter().filter(is_named).flat_map(move |own| {
        let open = catalog.open_offerings(own);
        open.filter(move |offering| catalog.unmet(own, offering, requirements).is_none())
            .map(move |offering| (own, offering))
    })
}

impl Stall {
    fn adjust(&mut self, pool: &str, lacks: &Lacks) {
        let both = self.catalog.as_ref().zip(self.overlaid.as_ref());
        self.adjusted = both.map(|(given, overlaid)| adjusted(pool, given, overlaid, lacks));
    }
}

/// A catalog in which types have less by what their nodes lacked, save of what overlays say.
fn adjusted(pool: &str, given: &Catalog, catalog: &Arc<Catalog>, lacks: &Lacks) -> Arc<Catalog> {
    let mut types = catalog.types().to_vec();
    let mut is_changed = false;
    for own in &mut types {
        let Some(lacks) = lacks.get(pool, &own.name) else { continue };
        for (name, promised) in own.allocatable().iter() {
            let lack = lacks.get(name).map_or(Quantity::ZERO, |lack| lack.of(promised));
            if lack == Quantity::ZERO {
                continue;
            }
            if given.get(&own.name).is_some_and(|given| is_set_by_overlay(given, own, name)) {
                continue;
            }
            let kept = own.overhead.system_reserved.get(name.as_str()).unwrap_or(Quantity::ZERO);
            own.overhead.system_reserved.insert(name.clone(), kept.saturating_add(lack));
            is_changed = true;
        }
    }
    let changed = is_changed.then(|| Catalog::new(types).ok()).flatten();
    changed.map_or_else(|| catalog.clone(), Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(class: &str) -> BTreeMap<String, Arc<NodePool>> {
        let mut pool = NodePool::named("p");
        pool.spec.template.spec.node_class_ref = NodeClassRef::new("example.com", "Class", class);
        BTreeMap::from([("p".to_owned(), Arc::new(pool))])
    }

    #[test]
    fn a_pool_has_its_catalog_again_once_its_class_is_not_blocked_any_more() {
        let (now, class) = (Timestamp::default(), NodeClassRef::new("example.com", "Class", "a"));
        for (is_served, later) in [(true, "a"), (false, "b")] {
            let mut market = Market::default();
            market.ask(&pools("a"), now);
            let catalog = Arc::new(Catalog::new(Vec::new()).expect("a catalog"));
            market.answer("p", Ok(catalog), Duration::from_hours(12), now);
            market.overlay(&pools("a"), &BTreeMap::new());
            market.block(class.clone(), "no image".to_owned(), now);
            assert!(market.catalogs(&pools("a"), now).get("p").is_none());
            if is_served {
                market.serve_class(&class);
            }
            market.ask(&pools(later), now);
            assert!(market.catalogs(&pools(later), now).get("p").is_some(), "{later}");
        }
    }
}
