use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::{Quantity, ResourceList, ResourceName, cluster::Place};

/// One whole number a resource, in the order of [`Axes`]: thousandths of a core for CPU, units for all others.
pub(super) type Amounts = SmallVec<[i64; 6]>;

/// The most room that there is: requests whose sum is too large for a number come to more.
const MOST_ROOM: i64 = i64::MAX - 1;

/// The resources that some pod or daemon asks for; no other can be scarce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        self.read(list, amount_ceil)
    }

    /// What there is, rounded down.
    pub(super) fn room(&self, list: &ResourceList) -> Amounts {
        self.read(list, |name, quantity| amount_floor(name, quantity).min(MOST_ROOM))
    }

    /// What a place has left, rounded down.
    pub(super) fn room_of(&self, place: &Place) -> Amounts {
        self.pick(place.room.iter().map(|(name, amount)| (name, *amount)), |_, amount| amount.min(MOST_ROOM))
    }

    fn read(&self, list: &ResourceList, amount: impl Fn(&ResourceName, Quantity) -> i64) -> Amounts {
        self.pick(list.iter(), amount)
    }

    /// What is told of each resource. Names are in the same order on both sides.
    fn pick<'l, T>(
        &self,
        list: impl Iterator<Item = (&'l ResourceName, T)>,
        amount: impl Fn(&ResourceName, T) -> i64,
    ) -> Amounts {
        let mut rest = list.peekable();
        let of_axis = |name: &ResourceName| {
            while rest.next_if(|(other, _)| *other < name).is_some() {}
            rest.next_if(|(other, _)| *other == name).map_or(0, |(_, told)| amount(name, told))
        };
        self.0.iter().map(of_axis).collect()
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
    name.floor(quantity)
}

/// Whether a pod that asks for `requests` fits. A resource of which it asks nothing may be overdrawn.
pub(super) fn fits(requests: &[i64], room: &[i64]) -> bool {
    requests.iter().zip(room).all(|(&request, &room)| request <= 0 || request <= room)
}

/// How many pods that ask for `requests` each fit together; as many as there may be if they ask for nothing.
pub(super) fn copies(requests: &[i64], room: &[i64]) -> usize {
    let asked = requests.iter().zip(room).filter(|&(&request, _)| request > 0);
    asked.map(|(&request, &room)| usize::try_from(room / request).unwrap_or(0)).min().unwrap_or(usize::MAX)
}

/// The least that any of several ask for, resource by resource; nothing if there are none.
pub(super) fn least<'r>(all: impl IntoIterator<Item = &'r Amounts>) -> Amounts {
    let mut all = all.into_iter();
    let Some(mut out) = all.next().cloned() else { return Amounts::new() };
    for requests in all {
        out.iter_mut().zip(requests).for_each(|(least, &request)| *least = request.min(*least));
    }
    out
}

/// Makes each amount at least another.
pub(super) fn raise(amounts: &mut [i64], least: &[i64]) {
    for (amount, least) in amounts.iter_mut().zip(least) {
        *amount = *least.max(amount);
    }
}

/// How many pods that each ask for `requests` fit.
pub(super) fn fit_count(requests: &[i64], room: &[i64]) -> i64 {
    // Mostly none does, and dividing takes long.
    if !fits(requests, room) {
        return 0;
    }
    let counts = requests.iter().zip(room).filter(|(request, _)| **request > 0).map(|(request, room)| room / request);
    counts.min().unwrap_or(i64::MAX)
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
