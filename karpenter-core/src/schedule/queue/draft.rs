//! Nodes in the making.

use std::{collections::BTreeMap, sync::Arc};

use fixedbitset::FixedBitSet;
use ordered_float::OrderedFloat;

use super::stock::{Share, Stock};
use crate::{
    Requirements,
    cluster::HostPort,
    schedule::{
        MinValuesPolicy,
        amounts::{Amounts, fits, take},
        class::{Class, Constraint},
        first_fit::keep,
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
    /// What it takes of limits and reservations.
    share: Share,
    /// What its labels must be like, if some of its pods ask for labels that no offering settles.
    settled: Option<Requirements>,
}

impl Draft {
    /// A node of a pool, if limits and reservations leave any.
    pub(super) fn new(base: &Base<'_>, pool: usize, stock: &Stock) -> Option<Self> {
        let (mut open, share) = (base.pools[pool].open_rows.clone(), Share::default());
        keep(&mut open, |row| stock.has(base, (pool, row), &share));
        let (admitted, used) = (open.clone(), base.classes.axes.zero());
        (!open.is_clear()).then_some(Self { pool, admitted, roomy: open, used, share, settled: None })
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

    /// Whether some machine that it may become has room for a pod of a class.
    pub(super) fn has_room(&self, base: &Base<'_>, of_class: &Class) -> bool {
        let pool = &base.pools[self.pool];
        let has_room = |row: usize| {
            let room = pool.variant(row).room.iter().zip(&self.used).map(|(room, used)| room - used);
            of_class.requests.iter().zip(room).all(|(&request, room)| request <= 0 || request <= room)
        };
        self.roomy.ones().any(has_room)
    }

    /// The same with a pod of a class more, if there are machines with room for it.
    pub(super) fn holding(mut self, base: &Base<'_>, of_class: &Class, stock: &Stock) -> Option<Self> {
        let pool = &base.pools[self.pool];
        take(&mut self.used, &of_class.requests, -1);
        keep(&mut self.roomy, |row| {
            let variant = pool.variant(row);
            fits(&self.used, &variant.room)
                && !HostPort::any_clash(&of_class.host_ports, &variant.host_ports)
                && stock.has(base, (self.pool, row), &self.share)
        });
        let has_enough = || {
            let is_left = |of_type: usize| self.roomy.ones().any(|row| pool.variant(row).type_index == of_type);
            base.options.min_values != MinValuesPolicy::Strict || pool.lack(is_left).is_none()
        };
        // Karpenter lets no pod join that would take from a node all reservations that it may use.
        if self.share.loses_reservations(base, self.pool, self.roomy.ones()) {
            return None;
        }
        (!self.roomy.is_clear() && (!pool.has_min_values() || has_enough())).then_some(self)
    }

    /// Takes of limits and reservations what it may need.
    pub(super) fn draw(&mut self, base: &Base<'_>, stock: &mut Stock) {
        let rows: Vec<usize> = self.roomy.ones().collect();
        stock.draw(base, (self.pool, &rows), &mut self.share);
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
