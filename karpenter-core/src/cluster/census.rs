//! Where the pods of a cluster are, and which of them want a place.

use std::{collections::BTreeMap, sync::Arc};

use indexmap::{IndexMap, IndexSet};

use super::{
    Place, Snapshot,
    sites::{Site, index_of},
};
use crate::{
    FxBuild, Timestamp,
    api::{NodeClaim, ObjectKey, Pod, PodDisruptionBudget, Shield},
};

/// Where pods are, by index.
pub(super) struct Census {
    /// For each site those that are there or promised to it.
    pub(super) pods_at: Vec<Vec<usize>>,
    /// Those that want a place.
    pub(super) pending: Vec<usize>,
    /// For each pod the site of the node that it is bound to.
    pub(super) stands: Vec<Option<u32>>,
}

/// What a pod is to the cluster.
#[derive(Clone, Copy)]
enum Stand {
    WantsPlace,
    /// It takes room at a site, bound to its node or promised to it.
    At {
        site: usize,
        is_bound: bool,
    },
    /// It takes no room, and is to have none.
    Aside,
}

/// What tells where a pod is.
pub(super) struct Registry<'c> {
    sites: &'c [Site],
    /// By the name of the node and by that of the claim.
    by_name: IndexMap<&'c str, usize, FxBuild>,
    claims: IndexSet<&'c str, FxBuild>,
    nominations: &'c BTreeMap<ObjectKey, String>,
    budgets: &'c [PodDisruptionBudget],
    now: Timestamp,
}

impl<'c> Registry<'c> {
    pub(super) fn new(
        sites: &'c [Site],
        claims: &'c [Arc<NodeClaim>],
        nominations: &'c BTreeMap<ObjectKey, String>,
        budgets: &'c [PodDisruptionBudget],
        now: Timestamp,
    ) -> Self {
        let claims = claims.iter().map(|claim| claim.name()).collect();
        Self { sites, by_name: index_of(sites), claims, nominations, budgets, now }
    }

    /// Where pods are, which come in order. What an earlier snapshot of the same cluster knows is not looked for again.
    pub(super) fn census(&self, pods: &[Arc<Pod>], earlier: Option<&Snapshot>) -> Census {
        let mut census = Census {
            pods_at: vec![Vec::new(); self.sites.len()],
            pending: Vec::new(),
            stands: Vec::with_capacity(pods.len()),
        };
        let mut known = Stands::new(earlier, self.sites, &self.by_name);
        for (index, pod) in pods.iter().enumerate() {
            let at = |site: u32| Stand::At { site: site as usize, is_bound: true };
            let stand = known.site_of(pod).map_or_else(|| self.stand_of(pod), at);
            census.enter(index, stand);
        }
        census
    }

    fn stand_of(&self, pod: &Pod) -> Stand {
        let is_known = |name: &&String| self.by_name.contains_key(name.as_str()) || self.claims.contains(name.as_str());
        let goes = |name: &str| self.by_name.get(name).is_some_and(|&site| self.sites[site].is_deleting());
        let bound = Some(&pod.spec.node_name).filter(|name| !name.is_empty());
        // What was promised to a pod that ends is for whoever comes in its stead.
        let planned = match bound {
            Some(node) if !goes(node) || !pod.is_reschedulable() => bound,
            _ => self.promised(pod).filter(is_known).or(bound),
        };
        let there = planned.or_else(|| nominated_node(pod));
        let number = there.and_then(|name| self.by_name.get(name.as_str())).copied();
        let wants_place = match number.map(|number| &self.sites[number]) {
            Some(site) if planned.is_some() && site.is_deleting() => must_move(pod, self.budgets, self.now),
            _ => there.is_none() && is_provisionable(pod),
        };
        match number {
            _ if wants_place => Stand::WantsPlace,
            Some(site) if !pod.is_finished() => {
                Stand::At { site, is_bound: pod.spec.node_name == self.sites[site].name() }
            }
            _ => Stand::Aside,
        }
    }

    /// The place that was promised to a pod.
    fn promised(&self, pod: &Pod) -> Option<&String> {
        if self.nominations.is_empty() { None } else { self.nominations.get(&pod.key()) }
    }
}

impl Census {
    fn enter(&mut self, index: usize, stand: Stand) {
        let mut bound_to = None;
        match stand {
            Stand::WantsPlace => self.pending.push(index),
            Stand::At { site, is_bound } => {
                self.pods_at[site].push(index);
                bound_to = u32::try_from(site).ok().filter(|_| is_bound);
            }
            Stand::Aside => {}
        }
        self.stands.push(bound_to);
    }
}

/// Where the pods of an earlier snapshot are bound. To look at a pod that is still the same takes no more time than to compare
/// where it lies in memory.
struct Stands<'e> {
    pods: &'e [Arc<Pod>],
    places: &'e [Option<u32>],
    /// For each place of the earlier snapshot the site of the same node, if pods can stay there.
    sites: Vec<Option<u32>>,
    /// The pod that comes next.
    next: usize,
}

impl<'e> Stands<'e> {
    fn new(earlier: Option<&'e Snapshot>, sites: &[Site], by_name: &IndexMap<&str, usize, FxBuild>) -> Self {
        let earlier = earlier.filter(|earlier| earlier.stands.len() == earlier.pods.len());
        let Some(earlier) = earlier else { return Self { pods: &[], places: &[], sites: Vec::new(), next: 0 } };
        let site_of = |place: &Arc<Place>| {
            let &index = by_name.get(place.name.as_str())?;
            let site = Some(&sites[index]).filter(|site| site.name() == place.name && !site.is_deleting());
            site.and_then(|_| u32::try_from(index).ok())
        };
        let sites = earlier.places.iter().map(site_of).collect();
        Self { pods: &earlier.pods, places: &earlier.stands, sites, next: 0 }
    }

    /// The site that a pod is bound to, if it is as it was. Pods are asked for in order.
    fn site_of(&mut self, pod: &Arc<Pod>) -> Option<u32> {
        let is_it = |known: Option<&Arc<Pod>>| known.is_some_and(|known| Arc::ptr_eq(known, pod));
        if !is_it(self.pods.get(self.next)) {
            let rest = &self.pods[self.next..];
            self.next += rest.iter().take_while(|known| known.sort_key() < pod.sort_key()).count();
            if !is_it(self.pods.get(self.next)) {
                return None;
            }
        }
        let place = self.places[self.next];
        self.next += 1;
        self.sites[place? as usize]
    }
}

/// Whether a pod waits for a node and it is the engine's business to make one.
pub(crate) fn is_provisionable(pod: &Pod) -> bool {
    pod.is_unschedulable()
        && pod.status.nominated_node_name.is_empty()
        && !pod.is_daemon()
        && !pod.is_mirror()
        && !pod.is_finished()
        && !pod.is_terminating()
}

/// The node that the kube-scheduler keeps for a pod until its volume is bound or what it preempts is gone.
///
/// The kube-scheduler counts such a pod as there whenever it looks at another one.
fn nominated_node(pod: &Pod) -> Option<&String> {
    Some(&pod.status.nominated_node_name).filter(|name| !name.is_empty() && !pod.is_terminating())
}

/// Whether a pod on a node that is being deleted will need another place.
pub(crate) fn must_move(pod: &Pod, budgets: &[PodDisruptionBudget], now: Timestamp) -> bool {
    if !pod.is_reschedulable() {
        return false;
    }
    if pod.is_terminating() {
        return true;
    }
    if Shield::of_pod(pod, now).is_some() {
        return false;
    }
    let holds = |budget: &PodDisruptionBudget| {
        let namespace = budget.metadata.namespace();
        let selects = budget.spec.selector.as_ref().is_some_and(|s| s.matches(&pod.metadata.labels));
        budget.blocks_fully() && namespace == pod.namespace() && selects
    };
    !budgets.iter().any(holds)
}
