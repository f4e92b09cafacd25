//! What was worked out for one problem and holds for the next, so that a plan for a cluster that has hardly changed takes
//! little time. It has no bearing on any plan.

use std::{
    collections::BTreeMap,
    fmt,
    hash::Hash,
    sync::{Arc, PoisonError},
};

use indexmap::{Equivalent, IndexMap};

use super::{amounts::Axes, pool::Compiled};
use crate::{
    Catalog, FxBuild,
    api::{DaemonSet, NodeClaimTemplate, NodePool},
    cluster::Place,
};

/// How often the same pool is kept: which resources matter differs between problems.
const MAX_OF_POOL: usize = 16;
/// The most pools that are kept. Where there are more all are forgotten: most of them are gone from the cluster.
const MAX_POOLS: usize = 1000;

/// What several threads may ask for and work out.
#[expect(clippy::disallowed_types, reason = "which thread works out an answer changes neither the answer nor a plan")]
type Shared<T> = std::sync::Mutex<T>;

/// Pools compiled against their catalogs. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Shelf {
    /// By name; those that were used last come last.
    pools: Arc<Shared<BTreeMap<String, Vec<Known>>>>,
    prices: Arc<Shared<Prices>>,
}

/// A pool that was compiled, and what from.
type Known = (Origin, Arc<Compiled>);

/// What places were found to cost last, by the catalogs of these pools.
#[derive(Default)]
struct Prices {
    pools: Vec<Arc<Compiled>>,
    places: Vec<(Arc<Place>, Option<f64>)>,
}

/// What a compiled pool is made from.
struct Origin {
    template: NodeClaimTemplate,
    catalog: Catalog,
    daemonsets: Vec<DaemonSet>,
    axes: Axes,
}

impl Shelf {
    /// A pool as it was compiled before, or as it is compiled now.
    pub(super) fn pool(
        &self,
        source: &NodePool,
        catalog: &Catalog,
        daemonsets: &[DaemonSet],
        axes: &Axes,
        compile: impl FnOnce() -> Arc<Compiled>,
    ) -> Arc<Compiled> {
        let is_it = |(known, _): &Known| {
            known.axes == *axes
                && known.catalog.is_same(catalog)
                && known.template == source.spec.template
                && known.daemonsets == daemonsets
        };
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pools.get_mut(source.name())
            && let Some(index) = known.iter().rposition(is_it)
        {
            known[index..].rotate_left(1);
            return known[known.len() - 1].1.clone();
        }
        drop(pools);
        let compiled = compile();
        let origin = Origin {
            template: source.spec.template.clone(),
            catalog: catalog.clone(),
            daemonsets: daemonsets.to_vec(),
            axes: axes.clone(),
        };
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if pools.len() >= MAX_POOLS && !pools.contains_key(source.name()) {
            pools.clear();
        }
        let known = pools.entry(source.name().to_owned()).or_default();
        if known.len() >= MAX_OF_POOL {
            known.remove(0);
        }
        known.push((origin, compiled.clone()));
        compiled
    }

    /// What each of some places costs by the catalogs of pools, as far as they tell: as it was found before for the same labels, or
    /// as it is found now.
    pub(super) fn prices(
        &self,
        pools: Vec<Arc<Compiled>>,
        places: &[Arc<Place>],
        price: impl Fn(&Place) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let known = std::mem::take(&mut *self.prices.lock().unwrap_or_else(PoisonError::into_inner));
        let are_same =
            known.pools.len() == pools.len() && known.pools.iter().zip(&pools).all(|(a, b)| Arc::ptr_eq(a, b));
        let mut known = known.places.into_iter().filter(|_| are_same).peekable();
        let mut out = Vec::with_capacity(places.len());
        for place in places {
            // Both are in the order of their names.
            while known.next_if(|(other, _)| !Arc::ptr_eq(other, place) && other.name < place.name).is_some() {}
            let found = known.next_if(|(other, _)| Arc::ptr_eq(other, place) || other.name == place.name);
            let found = found.filter(|(other, _)| Arc::ptr_eq(other, place) || other.labels == place.labels);
            out.push((place.clone(), found.map_or_else(|| price(place), |(_, price)| price)));
        }
        let prices = out.iter().map(|(_, price)| *price).collect();
        *self.prices.lock().unwrap_or_else(PoisonError::into_inner) = Prices { pools, places: out };
        prices
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
    }
}

/// Values that are used one after the other, so that they are not made anew each time.
pub(crate) struct Heirlooms<T>(Shared<Vec<T>>);

impl<T> Default for Heirlooms<T> {
    fn default() -> Self {
        Self(Shared::default())
    }
}

impl<T: Default> Heirlooms<T> {
    /// One of the values, or a new one if none is free.
    pub(crate) fn take(&self) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Makes a value free for the next to take.
    pub(crate) fn give_back(&self, left: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(left);
    }
}

/// Answers that are worked out once, up to a number of them.
pub(crate) struct Answers<K, V: ?Sized> {
    most: usize,
    known: Shared<IndexMap<K, Arc<V>, FxBuild>>,
}

impl<K: Hash + Eq, V: ?Sized> Answers<K, V> {
    pub(crate) fn up_to(most: usize) -> Self {
        Self { most, known: Shared::default() }
    }

    /// The answer to a question, which is kept in its owned form.
    pub(crate) fn get<Q>(&self, question: &Q, owned: impl FnOnce(&Q) -> K, answer: impl FnOnce() -> Arc<V>) -> Arc<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        if let Some(known) = self.known(question) {
            return known;
        }
        let answer = answer();
        self.keep(owned(question), answer.clone());
        answer
    }

    /// The answer to a question that was asked before.
    pub(crate) fn known<Q: Hash + Equivalent<K> + ?Sized>(&self, question: &Q) -> Option<Arc<V>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(question).cloned()
    }

    /// The same as [`Self::get`] for a question that the caller gives away.
    pub(crate) fn take(&self, question: K, answer: impl FnOnce() -> Arc<V>) -> Arc<V> {
        if let Some(known) = self.known(&question) {
            return known;
        }
        let answer = answer();
        self.keep(question, answer.clone());
        answer
    }

    /// Keeps an answer. Where there are too many all are forgotten: the old ones are of no more use.
    pub(crate) fn keep(&self, question: K, answer: Arc<V>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.most {
            known.clear();
        }
        known.insert(question, answer);
    }
}

impl<K, V: ?Sized> Default for Answers<K, V> {
    fn default() -> Self {
        Self { most: 0, known: Shared::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn prices_are_found_anew_for_other_labels_and_other_pools_alone() {
        let place = |name: &str, zone: &str| {
            Arc::new(Place::promised(name.to_owned(), BTreeMap::from([("zone".to_owned(), zone.to_owned())])))
        };
        let (shelf, asked) = (Shelf::default(), Cell::new(0));
        let pools: [Arc<Compiled>; 2] = Default::default();
        let prices = |pool: &Arc<Compiled>, places: &[Arc<Place>]| {
            asked.set(0);
            let price = |place: &Place| {
                asked.set(asked.get() + 1);
                place.labels["zone"].parse().ok()
            };
            (shelf.prices(vec![pool.clone()], places, price), asked.get())
        };
        let (a, c) = (place("a", "1"), place("c", "3"));
        assert_eq!(prices(&pools[0], &[a.clone(), c.clone()]), (vec![Some(1.0), Some(3.0)], 2));
        let (b, equal) = (place("b", "none"), place("c", "3"));
        assert_eq!(prices(&pools[0], &[a, b.clone(), equal]), (vec![Some(1.0), None, Some(3.0)], 1));
        let other = place("c", "4");
        assert_eq!(prices(&pools[0], &[b.clone(), other.clone()]), (vec![None, Some(4.0)], 1));
        assert_eq!(prices(&pools[1], &[b, other]), (vec![None, Some(4.0)], 2));
    }
}
