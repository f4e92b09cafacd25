use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::{Quantity, ResourceList, ResourceName};

/// One whole number a resource, in the order of [`Axes`]: thousandths of a core for CPU, units for all others.
pub(super) type Amounts = SmallVec<[i64; 6]>;

/// The resources that some pod or daemon asks for; no other can be scarce.
#[derive(Clone, Debug, Default)]
pub(super) struct Axes(Vec<ResourceName>);

impl Axes {
    pub(super) fn of<'l>(lists: impl IntoIterator<Item = &'l ResourceList>) -> Self {
        let names: BTreeSet<&ResourceName> = lists.into_iter().flat_map(ResourceList::iter).map(|(n, _)| n).collect();
        Self(names.into_iter().cloned().collect())
    }

    pub(super) fn names(&self) -> &[ResourceName] {
        &self.0
    }

    /// Nothing of any resource.
    pub(super) fn zero(&self) -> Amounts {
        self.0.iter().map(|_| 0).collect()
    }

    /// What is asked for, rounded up.
    pub(super) fn requests(&self, list: &ResourceList) -> Amounts {
        self.0.iter().map(|name| list.get(name.as_str()).map_or(0, |q| amount_ceil(name, q))).collect()
    }

    /// What there is, rounded down.
    pub(super) fn room(&self, list: &ResourceList) -> Amounts {
        self.0.iter().map(|name| list.get(name.as_str()).map_or(0, |q| amount_floor(name, q))).collect()
    }

    /// The quantity of an amount on the axis of this index.
    pub(super) fn quantity(&self, axis: usize, amount: i64) -> Quantity {
        amount_quantity(&self.0[axis], amount)
    }
}

pub(super) fn amount_quantity(name: &ResourceName, amount: i64) -> Quantity {
    match name {
        ResourceName::Cpu => Quantity::from_milli(amount),
        ResourceName::Memory | ResourceName::EphemeralStorage => Quantity::from_bytes(amount),
        _ => Quantity::from_units(amount),
    }
}

pub(super) fn amount_ceil(name: &ResourceName, quantity: Quantity) -> i64 {
    if *name == ResourceName::Cpu { quantity.milli_ceil() } else { quantity.units_ceil() }
}

pub(super) fn amount_floor(name: &ResourceName, quantity: Quantity) -> i64 {
    if *name == ResourceName::Cpu { quantity.milli_floor() } else { quantity.units_floor() }
}

/// Whether a pod that asks for `requests` fits. A resource of which it asks nothing may be overdrawn.
pub(super) fn fits(requests: &[i64], room: &[i64]) -> bool {
    requests.iter().zip(room).all(|(&request, &room)| request <= 0 || request <= room)
}

/// How many pods that each ask for `requests` fit.
pub(super) fn fit_count(requests: &[i64], room: &[i64]) -> i64 {
    let counts = requests.iter().zip(room).filter(|(request, _)| **request > 0).map(|(request, room)| room / request);
    counts.min().unwrap_or(i64::MAX).max(0)
}

/// Takes away what `count` pods ask for.
pub(super) fn take(room: &mut [i64], requests: &[i64], count: i64) {
    for (room, request) in room.iter_mut().zip(requests) {
        *room = room.saturating_sub(request.saturating_mul(count));
    }
}

/// The largest share of a resource that a pod takes; infinite if it takes of what is not there.
pub(super) fn dominant_share(requests: &[i64], room: &[i64]) -> f64 {
    let shares = requests.iter().zip(room).filter(|(request, _)| **request > 0);
    shares
        .map(|(&request, &room)| if room > 0 { request as f64 / room as f64 } else { f64::INFINITY })
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_pods() {
        assert_eq!(fit_count(&[2, 0], &[5, -1]), 2);
        assert_eq!(fit_count(&[2, 1], &[5, -1]), 0);
        assert!(fits(&[2, 0], &[2, -1]) && !fits(&[3, 0], &[2, 9]));
        assert_eq!(dominant_share(&[1, 3], &[4, 4]).to_bits(), 0.75_f64.to_bits());
        let mut room = [5, 7];
        take(&mut room, &[1, 2], 3);
        assert_eq!(room, [2, 1]);
    }
}
