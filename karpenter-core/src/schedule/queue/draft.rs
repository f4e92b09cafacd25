//! Nodes in the making.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fixedbitset::FixedBitSet;
use ordered_float::OrderedFloat;

use crate::{
    Requirements,
    cluster::HostPort,
    schedule::{
        MinValuesPolicy,
        amounts::{Amounts, fits, take},
        class::{Class, Constraint},
        problem::{Base, Tolerance, tolerance},
    },
};

/// A node that may still become any of some machines of a pool.
#[derive(Clone)]
pub(super) struct Draft {
    pub(super) pool: usize,
    /// The offerings that its pods admit by labels, whatever their size: where it may be.
    admitted: FixedBitSet,
    /// Those of them that have room for its pods.
    roomy: FixedBitSet,
    /// What its pods take of it.
    used: Amounts,
    /// The reservations that it may draw on, each of which has one machine less for others.
    reserved: BTreeSet<usize>,
    /// What its labels must be like, if some of its pods ask for labels that no offering settles.
    settled: Option<Requirements>,
}

impl Draft {
    /// A node of a pool of whose limits so much is left, and of all reservations, if there is any.
    pub(super) fn new(base: &Base<'_>, pool: usize, limits_left: &[i64], reservations_left: &[i64]) -> Option<Self> {
        let mut open = base.pools[pool].open_rows.clone();
        let is_left = |row| reservation(base, pool, row).is_none_or(|reservation| reservations_left[reservation] > 0);
        let is_within = |row: usize| capacity(base, pool, row).zip(limits_left).all(|(most, left)| most <= *left);
        keep(&mut open, |row| is_within(row) && is_left(row));
        let (admitted, used) = (open.clone(), base.classes.axes.zero());
        (!open.is_clear()).then_some(Self {
            pool,
            admitted,
            roomy: open,
            used,
            reserved: BTreeSet::new(),
            settled: None,
        })
    }

    /// The same where pods with a constraint admit it so willingly, if they do.
    pub(super) fn admitting(&self, base: &Base<'_>, constraint: &Constraint, most: Tolerance) -> Option<Self> {
        let pool = &base.pools[self.pool];
        if tolerance(constraint, pool.taints())? > most {
            return None;
        }
        let met = pool.alternatives(&constraint.wanted);
        let alternative = met.first()?;
        let mut out = self.clone();
        out.admitted.intersect_with(&alternative.rows);
        if alternative.is_open_ended {
            let settled = pool.settled(self.settled.as_ref(), alternative);
            keep(&mut out.admitted, |row| pool.can_settle(row, &settled));
            out.settled = Some(settled);
        }
        out.roomy.intersect_with(&out.admitted);
        (!out.roomy.is_clear()).then_some(out)
    }

    /// The same with a pod of a class more, if there are machines with room for it.
    pub(super) fn holding(mut self, base: &Base<'_>, of_class: &Class) -> Option<Self> {
        let pool = &base.pools[self.pool];
        take(&mut self.used, &of_class.requests, -1);
        keep(&mut self.roomy, |row| {
            let variant = pool.variant(row);
            fits(&self.used, &variant.room) && !HostPort::any_clash(&of_class.host_ports, &variant.host_ports)
        });
        let has_enough = || {
            let is_left = |of_type: usize| self.roomy.ones().any(|row| pool.variant(row).type_index == of_type);
            base.options.min_values != MinValuesPolicy::Strict || pool.lack(is_left).is_none()
        };
        // Karpenter lets no pod join that would take from a node all reservations that it may use.
        if !self.reserved.is_empty() && self.reservations(base).next().is_none() {
            return None;
        }
        (!self.roomy.is_clear() && (!pool.has_min_values() || has_enough())).then_some(self)
    }

    /// The reservations of the machines that it may become; one may come more than once.
    fn reservations(&self, base: &Base<'_>) -> impl Iterator<Item = usize> {
        self.roomy.ones().filter_map(|row| reservation(base, self.pool, row))
    }

    /// Keeps a machine of each reservation that it may draw on, and gives back the others.
    pub(super) fn reserve(&mut self, base: &Base<'_>, reservations_left: &mut [i64]) {
        let now: BTreeSet<usize> = self.reservations(base).collect();
        self.reserved.iter().for_each(|&before| reservations_left[before] += 1);
        now.iter().for_each(|&kept| reservations_left[kept] -= 1);
        self.reserved = now;
    }

    /// Takes from limits what the largest machine has that it may become: that is how Karpenter counts.
    pub(super) fn use_up(&self, base: &Base<'_>, limits_left: &mut [i64]) {
        for (limit, left) in limits_left.iter_mut().enumerate() {
            let sizes = self.roomy.ones().filter_map(|row| capacity(base, self.pool, row).nth(limit));
            *left -= sizes.max().unwrap_or(0);
        }
    }

    /// The domains of a label in which it may be, that of the cheapest machine first.
    pub(super) fn domains(&self, base: &Base<'_>, key: &str) -> Vec<Arc<str>> {
        let pool = &base.pools[self.pool];
        let settled = self.settled.as_ref().and_then(|settled| settled.get(key));
        let mut prices: BTreeMap<Arc<str>, OrderedFloat<f64>> = BTreeMap::new();
        for row in self.admitted.ones() {
            let price = if self.roomy.contains(row) { base.node_cost(self.pool, row) } else { f64::INFINITY };
            for domain in pool.values(row, key, settled) {
                let known = prices.entry(domain).or_insert(OrderedFloat(f64::INFINITY));
                *known = (*known).min(OrderedFloat(price));
            }
        }
        let mut out: Vec<_> = prices.into_iter().map(|(domain, price)| (price, domain)).collect();
        out.sort();
        out.into_iter().map(|(_, domain)| domain).collect()
    }

    /// Whether it may become the machine of an offering.
    pub(super) fn may_be(&self, row: usize) -> bool {
        self.roomy.contains(row)
    }
}

/// What a machine of an offering has of each limited resource.
fn capacity<'b>(base: &'b Base<'_>, pool: usize, row: usize) -> impl Iterator<Item = i64> + use<'b> {
    let pool = &base.pools[pool];
    let of_type = pool.table().rows()[row].type_index;
    pool.limits.iter().map(move |limit| limit.capacity_by_type[of_type])
}

fn reservation(base: &Base<'_>, pool: usize, row: usize) -> Option<usize> {
    base.reservations.of(base.pools[pool].catalog, row)
}

fn keep(rows: &mut FixedBitSet, is_kept: impl Fn(usize) -> bool) {
    let dropped: Vec<usize> = rows.ones().filter(|&row| !is_kept(row)).collect();
    dropped.into_iter().for_each(|row| rows.set(row, false));
}
