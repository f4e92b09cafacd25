//! Capacity that was paid for in advance.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::Catalog;

use super::{Checker, Violation, options::Candidate};

/// Reservations that one claim may draw on.
pub(super) type Reservations = BTreeSet<String>;

/// The reservations that nodes of a claim draw on, if every one of them draws on one.
pub(super) fn only_reserved(catalog: &Catalog, nodes: &[Candidate<'_>]) -> Option<Reservations> {
    let label = catalog.reservation_label()?;
    let of_node = |node: &Candidate<'_>| Some(node.offering.label(label).to_owned()).filter(|id| !id.is_empty());
    nodes.iter().map(of_node).collect()
}

impl Checker<'_> {
    /// No more claims need a reservation than it has left.
    pub(super) fn check_reservations(&mut self) {
        let mut seats = Seats { capacity: self.reservation_capacity(), taken: BTreeMap::new(), wanted: &self.reserved };
        let unseated = self.reserved.iter().filter(|(claim, _)| !seats.seat(**claim, &mut BTreeSet::new()));
        let violation = |(&claim, reservations): (&usize, &Reservations)| {
            let reservations = reservations.iter().cloned().collect();
            Violation::Reservation { claim, reservations }
        };
        self.violations.extend(unseated.map(violation));
    }

    /// How many are left of each reservation: the least that any offering says.
    pub(super) fn reservation_capacity(&self) -> BTreeMap<String, u32> {
        let mut out: BTreeMap<String, u32> = BTreeMap::new();
        let catalogs = self.snapshot.pools().iter().filter_map(|pool| self.catalogs.get(pool.name()));
        for (catalog, label) in catalogs.filter_map(|catalog| Some((catalog, catalog.reservation_label()?))) {
            for offering in catalog.types().iter().flat_map(|t| &t.offerings) {
                let (id, left) = (offering.label(label), offering.reservation_capacity.unwrap_or(0));
                if !id.is_empty() {
                    out.entry(id.to_owned()).and_modify(|least| *least = left.min(*least)).or_insert(left);
                }
            }
        }
        out
    }
}

/// Which claim draws on which reservation.
struct Seats<'c> {
    capacity: BTreeMap<String, u32>,
    taken: BTreeMap<String, Vec<usize>>,
    wanted: &'c BTreeMap<usize, Reservations>,
}

impl<'c> Seats<'c> {
    /// Finds a reservation for a claim; others may move to another of theirs for it. Reservations that were `tried`
    /// are not tried again, so this ends after as many steps as there are reservations.
    fn seat(&mut self, claim: usize, tried: &mut BTreeSet<&'c str>) -> bool {
        let wanted: &'c BTreeMap<usize, Reservations> = self.wanted;
        for id in wanted.get(&claim).into_iter().flatten() {
            if !tried.insert(id) {
                continue;
            }
            let taken = self.taken.entry(id.clone()).or_default();
            if taken.len() < self.capacity.get(id).copied().unwrap_or(0) as usize {
                taken.push(claim);
                return true;
            }
            for (seat, other) in taken.clone().into_iter().enumerate() {
                if self.seat(other, tried) {
                    self.taken.entry(id.clone()).or_default()[seat] = claim;
                    return true;
                }
            }
        }
        false
    }
}
