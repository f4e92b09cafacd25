//! Capacity that was paid for in advance: as much of it as is left, and no more.

use std::sync::Arc;

use indexmap::IndexMap;

use super::pool::Pool;
use crate::{FxBuild, Requirement, Requirements, Snapshot, catalog::Catalog, cluster::Place};

/// The reservations that offerings draw on, in the order in which pools name them.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    /// How many machines each has left.
    pub(super) left: IndexMap<String, i64, FxBuild>,
    /// What offerings say of each, in the same order.
    pub(super) said: Vec<Said>,
}

/// What offerings say of a reservation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    /// How many machines are left of it, those that claims are bound to included.
    pub(super) capacity: i64,
    /// Whether it has a name, so that several offerings may draw on it.
    pub(super) has_name: bool,
}

impl Reservations {
    /// Several offerings may draw on one reservation; the least that any of them names is what is left.
    ///
    /// A claim that is bound to a reservation and is not a machine yet will still take one, and so will a node that is only
    /// thought of.
    pub(super) fn new(snapshot: &Snapshot, pools: &[Pool<'_>]) -> Self {
        let mut out = Self::default();
        for pool in pools {
            for &row in &pool.reserved_rows {
                let Some((name, said)) = reservation(pool.catalog, row) else { continue };
                let entry = out.left.entry(name);
                let index = entry.index();
                entry.or_default();
                match out.said.get_mut(index) {
                    Some(known) => known.capacity = said.capacity.min(known.capacity),
                    None => out.said.push(said),
                }
            }
        }
        out.left.values_mut().zip(&out.said).for_each(|(left, said)| *left = said.capacity);
        for pool in pools {
            let Some(key) = pool.catalog.reservation_label() else { continue };
            let mut take = |name: &str| {
                if let Some(left) = out.left.get_mut(name) {
                    *left -= 1;
                }
            };
            for claim in snapshot.unlaunched().iter().filter(|claim| pool.is_of(&claim.metadata.labels)) {
                let requirements: Requirements = claim.spec.requirements.iter().collect();
                // It may become a machine of any of those that it names.
                let asked =
                    requirements.get(key).filter(|asked| !asked.admits_absence() && asked.value_count().is_some());
                asked.into_iter().flat_map(Requirement::values).for_each(&mut take);
            }
            let is_without_claim = |place: &&Arc<Place>| place.is_promised() && place.claim.is_none();
            for place in snapshot.places().iter().filter(is_without_claim).filter(|place| pool.is_of(&place.labels)) {
                place.labels.get(key).map(String::as_str).into_iter().for_each(&mut take);
            }
        }
        out
    }

    /// The number of the reservation that an offering draws on.
    pub(super) fn of(&self, catalog: &Catalog, row: usize) -> Option<usize> {
        let (name, _) = reservation(catalog, row)?;
        self.left.get_index_of(&name)
    }
}

/// The name of the reservation that an offering draws on, and what the offering says of it.
///
/// An offering that is reserved and names no reservation is a reservation by itself, and without a number it is empty.
fn reservation(catalog: &Catalog, row: usize) -> Option<(String, Said)> {
    let table = catalog.table();
    let source = &table.rows()[row];
    if !source.is_reserved {
        return None;
    }
    let instance_type = &catalog.types()[source.type_index];
    let index = row - table.rows_of(source.type_index).start;
    let offering = &instance_type.offerings[index];
    let name = catalog.reservation_label().map_or("", |key| offering.label(key));
    let said = Said { capacity: offering.reservation_capacity.map_or(0, i64::from), has_name: !name.is_empty() };
    let name = if name.is_empty() { format!("{} offering {index}", instance_type.name) } else { name.to_owned() };
    Some((name, said))
}
