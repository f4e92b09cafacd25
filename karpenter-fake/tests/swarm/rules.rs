//! What must hold, whatever happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karpenter_core::{
    Catalogs, Planner, PlannerOptions, Price, Snapshot, SnapshotBuilder, Timestamp,
    api::{DaemonSet, Node, NodeClaim, NodePool, ObjectKey, Operator, Pod, PodDisruptionBudget},
    engine::{Action, ActionId, ActionResult, Event, Object, ObjectRef},
    labels,
    provider::ProviderId,
};
use karpenter_fake::sim::{ApiObject, ApiServer, Exchange};

use crate::{setting::Setting, words};

/// How often rules are looked at that cost more.
const LOOK_EVERY: Duration = Duration::from_mins(5);
/// A life that breaks rules is told of in so many sentences.
const MAX_FAULTS: usize = 5;
/// A pod finds its place in so long, though a call is lost now and then.
const PATIENCE: Duration = Duration::from_mins(8);
/// A pod that waits in vain is looked at again after so long.
const AGAIN: Duration = Duration::from_mins(2);
/// An engine that asks for more than this in an hour is not gentle. The largest clusters here have some fifty nodes.
const MAX_ASKS_PER_HOUR: usize = 20_000;

/// What was broken, and what must be known to tell.
#[derive(Default)]
pub(crate) struct Rules {
    faults: Vec<String>,
    /// The calls that buy machines, and for which claims.
    launches: BTreeMap<ActionId, Box<NodeClaim>>,
    /// The most that the machine of a claim may cost, by the claim's uid.
    plans: BTreeMap<String, Price>,
    /// The claims of machines that were bought.
    bought: BTreeMap<ProviderId, String>,
    /// The claims that the engine knows, with their pools and whether a command takes their nodes away.
    claims: BTreeMap<String, (String, bool)>,
    /// How many nodes of each pool may be disrupted at a time, as it is written.
    budgets: BTreeMap<String, String>,
    is_listing: bool,
    asks: usize,
    since: Option<Timestamp>,
    is_aloud: bool,
}

impl Rules {
    /// Tells what happens.
    pub(crate) fn aloud() -> Self {
        Self { is_aloud: true, ..Self::default() }
    }

    #[expect(clippy::print_stderr, reason = "it is for people")]
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_aloud {
            eprintln!("{}", what());
        }
    }

    pub(crate) fn verdict(self) -> Result<(), String> {
        if self.faults.is_empty() { Ok(()) } else { Err(self.faults.join("; ")) }
    }

    fn fault(&mut self, fault: String) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        }
    }

    /// Lets time pass until then, and looks at the rules on the way.
    pub(crate) fn run(&mut self, setting: &mut Setting, until: Timestamp) {
        while setting.live.now() < until {
            let next = (setting.live.now() + LOOK_EVERY).min(until);
            setting.live.watch_until(next, &mut |now, exchange| self.see(now, exchange));
            for breach in setting.live.take_breaches() {
                self.fault(format!("{next}: {breach}"));
            }
            self.the_bill_is_no_more_than_was_planned(setting);
            self.limits_are_kept(setting);
            self.it_is_gentle(setting);
        }
    }

    fn see(&mut self, now: Timestamp, exchange: Exchange<'_>) {
        match exchange {
            Exchange::Asked(requests) => {
                self.asks += requests.len();
                for request in requests {
                    if let Some(words) = words::of_action(&request.action).filter(|_| self.is_aloud) {
                        self.tell(|| format!("{now}   {words}"));
                    }
                    if let Action::Launch(claim) = &request.action {
                        self.launches.insert(request.id, claim.clone());
                    }
                }
            }
            Exchange::Told(event) => self.hear(now, event),
            _ => {}
        }
    }

    fn hear(&mut self, now: Timestamp, event: &Event) {
        if let Some(words) = words::of_event(event).filter(|_| self.is_aloud) {
            self.tell(|| format!("{now} {words}"));
        }
        self.budgets_are_kept(now, event);
        let Event::Done { id, result: ActionResult::Launched(result) } = event else { return };
        if let (Some(claim), Ok(launched)) = (self.launches.remove(id), result) {
            self.bought.insert(launched.instance.id.clone(), claim.metadata.uid.clone());
        }
    }

    /// Of no pool more nodes are disrupted at a time than its budget says, as far as claims are marked by commands.
    fn budgets_are_kept(&mut self, now: Timestamp, event: &Event) {
        let claim = match event {
            Event::Relist => {
                self.claims.clear();
                self.is_listing = true;
                return;
            }
            Event::Synced => {
                self.is_listing = false;
                return;
            }
            Event::Deleted(ObjectRef::NodeClaim(name)) => return drop(self.claims.remove(name)),
            Event::Applied(Object::NodePool(pool)) => {
                let nodes = pool.spec.disruption.budgets[0].nodes.clone();
                return drop(self.budgets.insert(pool.name().to_owned(), nodes));
            }
            Event::Applied(Object::NodeClaim(claim)) => claim,
            _ => return,
        };
        let Some(pool) = claim.metadata.labels.get(labels::NODE_POOL).cloned() else { return };
        // A machine that was told to go is not counted any more.
        let is_marked = claim.status.is_true("DisruptionReason") && !claim.status.is_true("InstanceTerminating");
        let before = self.claims.insert(claim.name().to_owned(), (pool.clone(), is_marked));
        if self.is_listing || !is_marked || before.is_some_and(|(_, was_marked)| was_marked) {
            return;
        }
        let of_pool = || self.claims.values().filter(|(own, _)| *own == pool);
        let (total, marked) = (of_pool().count(), of_pool().filter(|(_, is_marked)| *is_marked).count());
        let written = self.budgets.get(&pool).map_or("", String::as_str);
        let allowed = match written.strip_suffix('%') {
            Some(percent) => percent.parse::<usize>().map(|percent| (total * percent).div_ceil(100)),
            None => written.parse(),
        };
        if allowed.is_ok_and(|allowed| allowed < marked) {
            self.fault(format!(
                "{now}: {marked} of {total} nodes of {pool} are disrupted, though its budget is {written}"
            ));
        }
    }

    fn it_is_gentle(&mut self, setting: &Setting) {
        let now = setting.live.now();
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= Duration::from_hours(1) {
            if self.asks > MAX_ASKS_PER_HOUR {
                self.fault(format!("{now}: {} requests in an hour", self.asks));
            }
            (self.asks, self.since) = (0, Some(now));
        }
    }

    /// Each machine belongs to one claim, and costs no more than the dearest offering that the claim allows.
    fn the_bill_is_no_more_than_was_planned(&mut self, setting: &Setting) {
        let (world, now) = (setting.live.world(), setting.live.now());
        let catalog = current(setting);
        let claims: Vec<_> = world.api().list::<NodeClaim>().cloned().collect();
        for claim in &claims {
            let dearest = dearest(claim, &catalog);
            let most = self.plans.entry(claim.metadata.uid.clone()).or_default();
            *most = (*most).max(dearest);
        }
        let machines = setting.live.account().machines;
        let cost = world.cloud().hourly_cost();
        let planned: Price = self.plans.values().copied().sum();
        // Sums of floats depend on their order.
        if cost.dollars_per_hour() > planned.dollars_per_hour() + 1e-9 {
            self.fault(format!("{now}: {machines} machines cost {cost} an hour, but only {planned} was planned"));
        }
        // Claims that are gone have no machine; those of lost calls are found and ended in a few minutes.
        let is_there = |uid: &String| claims.iter().any(|claim| claim.metadata.uid == *uid);
        if machines <= claims.len() {
            self.plans.retain(|uid, _| is_there(uid));
        }
    }

    /// The nodes of a pool that are not being replaced have no more than its limits.
    fn limits_are_kept(&mut self, setting: &Setting) {
        let (api, now) = (setting.live.world().api(), setting.live.now());
        for pool in api.list::<NodePool>() {
            let Some(limit) = pool.spec.limits.get("cpu") else { continue };
            let of_pool = api.list::<NodeClaim>().filter(|claim| {
                claim.metadata.labels.get(labels::NODE_POOL).is_some_and(|own| own == pool.name())
                    && claim.metadata.deletion_timestamp.is_none()
                    && !claim.status.is_true("DisruptionReason")
            });
            let taken = of_pool
                .filter_map(|claim| claim.status.capacity.get("cpu"))
                .fold(karpenter_core::Quantity::ZERO, karpenter_core::Quantity::saturating_add);
            if taken > limit {
                self.fault(format!("{now}: {} has {taken} of {limit} cpu", pool.name()));
            }
        }
    }

    /// No pod waits in vain for long: a place may have come up just now.
    pub(crate) fn nobody_waits(&mut self, setting: &mut Setting) {
        let first = in_vain(setting);
        if first.is_empty() {
            return;
        }
        self.run(setting, setting.live.now() + AGAIN);
        let still = in_vain(setting);
        let both: Vec<&ObjectKey> = first.intersection(&still).collect();
        if let Some(pod) = both.first() {
            self.fault(format!(
                "{}: {} pods wait though they have a place, such as {pod}",
                setting.live.now(),
                both.len()
            ));
        }
    }

    /// Without pods there is nothing.
    pub(crate) fn nothing_is_left(&mut self, setting: &Setting) {
        let (account, api) = (setting.live.account(), setting.live.world().api());
        let claims: Vec<&str> = api.list::<NodeClaim>().map(|claim| claim.name()).collect();
        let nodes: Vec<&str> = api.list::<Node>().map(|node| node.metadata.name.as_str()).collect();
        if account.machines + claims.len() + nodes.len() > 0 {
            let machines = account.machines;
            self.fault(format!("{machines} machines, the claims {claims:?} and the nodes {nodes:?} are left"));
        }
    }
}

/// What the cloud sells now, at the prices of now.
fn current(setting: &Setting) -> std::sync::Arc<karpenter_core::Catalog> {
    setting.live.world().cloud().offers()
}

/// The old pods that wait though the planner finds a place for them in the cluster as it is, save those for which a node is on
/// its way.
fn in_vain(setting: &Setting) -> BTreeSet<ObjectKey> {
    let (world, now) = (setting.live.world(), setting.live.now());
    let waiting = |pod: &&std::sync::Arc<Pod>| {
        let is_old = pod.metadata.creation_timestamp.is_some_and(|made| made + PATIENCE < now);
        is_old && pod.spec.node_name.is_empty() && pod.is_active() && !pod.is_daemon()
    };
    let waiting: Vec<ObjectKey> = world.api().list::<Pod>().filter(waiting).map(|pod| pod.key()).collect();
    if waiting.is_empty() {
        return BTreeSet::new();
    }
    let snapshot = as_it_is(world.api());
    let pools: Vec<NodePool> = world.api().list::<NodePool>().map(|pool| NodePool::clone(pool)).collect();
    // Machines that have less than is said of them may be of no use.
    let is_honest = |own: &&karpenter_core::InstanceType| !setting.liars.contains(&own.name);
    let types = current(setting).types().iter().filter(is_honest).cloned().collect();
    let catalogs = Catalogs::shared(types, &pools).expect("a part of a catalog");
    let plan = Planner::new(PlannerOptions::default()).plan(&snapshot, &catalogs);
    let on_their_way = snapshot.places().iter().filter(|place| !place.is_initialized);
    let coming: BTreeSet<&ObjectKey> =
        on_their_way.filter_map(|place| plan.existing().get(&place.name)).flatten().collect();
    let is_in_vain = |pod: &ObjectKey| !plan.unplaced().contains_key(pod) && !coming.contains(pod);
    waiting.into_iter().filter(is_in_vain).collect()
}

/// The cluster as the kube-scheduler sees it: a node that is on its way out is there, and so is its zone, until it is gone.
fn as_it_is(api: &ApiServer) -> Snapshot {
    fn all<T: ApiObject>(api: &ApiServer) -> impl Iterator<Item = T> {
        api.list::<T>().map(|object| T::clone(object))
    }
    let nodes = all::<Node>(api).map(|mut node| {
        node.metadata.deletion_timestamp = None;
        node
    });
    let claims = all::<NodeClaim>(api).map(|mut claim| {
        claim.metadata.deletion_timestamp = None;
        claim
    });
    let mut builder = Snapshot::builder()
        .pools(all(api))
        .nodes(nodes)
        .claims(claims)
        .namespaces(all(api))
        .volume_claims(all(api))
        .volumes(all(api))
        .storage_classes(all(api))
        .csi_nodes(all(api))
        .pods(all::<Pod>(api).collect::<Vec<_>>());
    builder = all::<DaemonSet>(api).fold(builder, SnapshotBuilder::daemonset);
    builder = all::<PodDisruptionBudget>(api).fold(builder, SnapshotBuilder::budget);
    builder.build().expect("the objects are a cluster")
}

/// The price of the dearest offering that a claim allows.
fn dearest(claim: &NodeClaim, catalog: &karpenter_core::Catalog) -> Price {
    let allows = |key: &str, value: &str| {
        let of_key = claim.spec.requirements.iter().filter(|requirement| requirement.key == key);
        of_key.into_iter().all(|requirement| {
            let is_named = requirement.values.iter().any(|own| own == value);
            match requirement.operator {
                Operator::In => is_named,
                Operator::NotIn => !is_named,
                _ => true,
            }
        })
    };
    let types = catalog.types().iter().filter(|own| allows(labels::INSTANCE_TYPE, &own.name));
    let offerings = types
        .flat_map(|own| &own.offerings)
        .filter(|offering| [labels::ZONE, labels::CAPACITY_TYPE].iter().all(|key| allows(key, offering.label(key))));
    offerings.map(|offering| offering.price).max().unwrap_or_default()
}
