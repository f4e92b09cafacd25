//! Domains in which no node is made, so that nobody counts them.
//!
//! A spread counts a domain without pods, and lets no other domain have more than `maxSkew` pods, as soon as there is a node in it that
//! suits its pods by labels, even if none of them can be there: the node may be too small, or have a taint that only others
//! tolerate. The kube-scheduler knows only the nodes that exist. So a plan that makes no such node may place more pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fixedbitset::FixedBitSet;

use super::{
    Plan,
    amounts::{fits, take},
    pool::Pool,
    problem::{Problem, Trials},
    solve::Found,
    topology::{Lessons, Named, out_of_reach, within_reach},
};
use crate::{
    Reason,
    api::{NodePool, NodeSelectorRequirement, ObjectKey, Operator, tolerates_all},
    reason::TopologyObstacle,
};

impl Problem<'_> {
    /// The best plan, with or without nodes in domains that keep pods out of others.
    pub(super) fn find_in_any_domains(&self) -> Found {
        let found = self.find();
        self.with_fewer_domains(&found).unwrap_or(found)
    }

    /// A plan without nodes in domains that only keep pods of spreads out of others, if it leaves fewer pods, no class fares worse
    /// in it and it makes no node of a lighter pool in their stead.
    fn with_fewer_domains(&self, found: &Found) -> Option<Found> {
        if self.course.trials != Trials::All || found.left.is_empty() || self.is_stopped() {
            return None;
        }
        let kept_out = self.kept_out_by_spreads(&found.plan);
        if kept_out.is_empty() {
            return None;
        }
        let closed = out_of_reach(&self.base, &kept_out);
        if closed.is_empty() {
            return None;
        }
        let mut fewer = self.find_outside(&closed)?;
        fewer.plan.closes_domains = true;
        let is_better = fewer.left < found.left
            && self.faring_worse(&fewer.plan, &found.plan).is_empty()
            && !self.breaks_weights(&fewer.plan, &closed);
        is_better.then(|| fewer.told_as(&found.plan))
    }

    /// The classes of which a plan leaves pods because of a spread.
    fn kept_out_by_spreads(&self, plan: &Plan) -> BTreeSet<usize> {
        let is_kept_out = |reason: &Reason| matches!(reason, Reason::Topology(TopologyObstacle::Spread { .. }));
        let kept_out = self.count_by_class(|pod| plan.unplaced.get(pod).is_some_and(is_kept_out));
        (0..kept_out.len()).filter(|&class| kept_out[class] > 0).collect()
    }

    /// Whether a plan makes a node of a pool though a heavier one could make one in these domains that takes all its pods.
    fn breaks_weights(&self, plan: &Plan, closed: &BTreeMap<Arc<str>, Named>) -> bool {
        let base = &self.base;
        let weight = |name: &str| base.snapshot.pool(name).map_or(0, NodePool::weight);
        let closed: Vec<_> = base.pools.iter().map(|pool| (pool, rows_in(pool, closed))).collect();
        let mut class_of: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
        let pods: Vec<ObjectKey> = base.snapshot.pods().iter().map(|pod| pod.key()).collect();
        for (index, class) in base.classes.list.iter().enumerate() {
            class_of.extend(class.pods.iter().map(|&pod| (&pods[pod], index)));
        }
        plan.claims.iter().any(|claim| {
            let mut heavier = closed.iter().filter(|(pool, _)| pool.source.weight() > weight(&claim.node_pool));
            let classes: Vec<usize> = claim.pods.iter().filter_map(|pod| class_of.get(pod).copied()).collect();
            heavier.any(|(pool, rows)| self.takes_all(pool, rows.clone(), &classes))
        })
    }

    /// Whether a node of a pool that is bought by one of some offerings takes pods of all these classes together.
    fn takes_all(&self, pool: &Pool<'_>, mut rows: FixedBitSet, classes: &[usize]) -> bool {
        let all = &self.base.classes;
        let mut total = all.axes.zero();
        for &class in classes {
            take(&mut total, &all.list[class].requests, -1);
        }
        for class in classes.iter().copied().collect::<BTreeSet<usize>>() {
            let tolerations = &all.constraints[all.list[class].constraint].tolerations;
            if tolerates_all(tolerations, pool.taints(), false).is_err() {
                return false;
            }
            let met = pool.alternatives(&all.node_wanted(class));
            let mut any = FixedBitSet::with_capacity(rows.len());
            met.iter().for_each(|alternative| any.union_with(&alternative.rows));
            rows.intersect_with(&any);
        }
        rows.ones().any(|row| fits(&total, &pool.variant(row).room) && pool.has_limits_left(row))
    }

    /// A plan in which no node is made in these domains; `None` if pods would have fewer domains of any label to be spread over.
    fn find_outside(&self, closed: &BTreeMap<Arc<str>, Named>) -> Option<Found> {
        let base = &self.base;
        let pools = base.pools.iter().map(|pool| (pool.source.name(), outside(pool, closed)));
        let further: BTreeMap<&str, Vec<NodeSelectorRequirement>> = pools.collect();
        let snapshot = base.snapshot.with_pools(|pool| {
            let further = further.get(pool.name()).cloned().unwrap_or_default();
            pool.spec.template.spec.requirements.extend(further);
        });
        let outside = base.of_other_pools(&snapshot);
        let are_same = within_reach(&outside) == within_reach(base);
        are_same.then(|| Problem::new(Arc::new(outside), &Lessons::default(), self.course.clone()).find())
    }
}

/// What keeps the nodes of a pool out of domains in which they could be.
fn outside(pool: &Pool<'_>, closed: &BTreeMap<Arc<str>, Named>) -> Vec<NodeSelectorRequirement> {
    let may_be_in = |key: &str, domains: &Named| pool.open_rows.ones().any(|row| is_in(pool, row, key, domains));
    let of_pool = closed.iter().filter(|(key, domains)| may_be_in(key, domains));
    let none_of = |(key, domains): (&Arc<str>, &Named)| {
        NodeSelectorRequirement::new(&**key, Operator::NotIn, domains.iter().map(|domain| &**domain))
    };
    of_pool.map(none_of).collect()
}

/// The offerings of a pool by which nodes may be in some of these domains.
fn rows_in(pool: &Pool<'_>, domains: &BTreeMap<Arc<str>, Named>) -> FixedBitSet {
    let is_in_some = |row: &usize| domains.iter().any(|(key, domains)| is_in(pool, *row, key, domains));
    let mut rows = FixedBitSet::with_capacity(pool.open_rows.len());
    rows.extend(pool.open_rows.ones().filter(is_in_some));
    rows
}

fn is_in(pool: &Pool<'_>, row: usize, key: &str, domains: &Named) -> bool {
    pool.values(row, key, None).iter().any(|value| domains.contains(value))
}
