//! Domains in which no node is made, so that nobody counts them.
//!
//! A spread counts a domain without pods, and lets no other domain have more than `maxSkew` pods, as soon as there is a node in it that
//! suits its pods by labels, even if none of them can be there: the node may be too small, or have a taint that only others
//! tolerate. The kube-scheduler knows only the nodes that exist. So a plan that makes no such node may place more pods.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    pool::Pool,
    problem::{Base, Problem, Trials},
    solve::Found,
    topology::{Lessons, Named, out_of_reach},
};
use crate::api::{NodeSelectorRequirement, Operator};

impl Problem<'_> {
    /// A plan without nodes in domains that only keep pods of spreads out of others, if it leaves fewer pods and no class fares worse
    /// in it.
    pub(super) fn with_fewer_domains(&self, found: &Found) -> Option<Found> {
        if self.course.trials != Trials::All || found.left.is_empty() || self.is_stopped() {
            return None;
        }
        let closed = out_of_reach(&self.base, &self.left(&found.plan));
        if closed.is_empty() {
            return None;
        }
        let fewer = self.find_outside(&closed);
        let is_better = fewer.left < found.left && self.faring_worse(&fewer.plan, &found.plan).is_empty();
        is_better.then(|| fewer.told_as(&found.plan))
    }

    /// A plan in which no node is made in these domains, or in further ones of the same kind.
    fn find_outside(&self, closed: &BTreeMap<Arc<str>, Named>) -> Found {
        let base = &self.base;
        let pools = base.pools.iter().map(|pool| (pool.source.name(), outside(pool, closed)));
        let further: BTreeMap<&str, Vec<NodeSelectorRequirement>> = pools.collect();
        let snapshot = base.snapshot.with_pools(|pool| {
            let further = further.get(pool.name()).cloned().unwrap_or_default();
            pool.spec.template.spec.requirements.extend(further);
        });
        let base = Base::new(base.options, &snapshot, base.catalogs, false, base.shelf.as_ref());
        let problem = Problem::new(Arc::new(base), &Lessons::default(), self.course.clone());
        let found = problem.find_by_policy();
        problem.with_fewer_domains(&found).unwrap_or(found)
    }
}

/// What keeps the nodes of a pool out of domains in which they could be.
fn outside(pool: &Pool<'_>, closed: &BTreeMap<Arc<str>, Named>) -> Vec<NodeSelectorRequirement> {
    let may_be_in = |key: &str, domains: &Named| {
        let mut values = pool.open_rows.ones().flat_map(|row| pool.values(row, key, None));
        values.any(|value| domains.contains(&value))
    };
    let of_pool = closed.iter().filter(|(key, domains)| may_be_in(key, domains));
    let none_of = |(key, domains): (&Arc<str>, &Named)| {
        NodeSelectorRequirement::new(&**key, Operator::NotIn, domains.iter().map(|domain| &**domain))
    };
    of_pool.map(none_of).collect()
}
