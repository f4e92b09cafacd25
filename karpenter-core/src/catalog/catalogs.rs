//! What each pool can buy.

use std::{collections::BTreeMap, sync::Arc};

use fixedbitset::FixedBitSet;

use super::{Catalog, CatalogError, InstanceType, OfferingKey, validate};
use crate::api::NodePool;

/// The catalog of each pool.
///
/// A pool that is not here has no catalog: nobody asked, or the provider could not say, and it may be known why. That is not the
/// same as an empty catalog.
#[derive(Clone, Debug, Default)]
pub struct Catalogs {
    by_pool: BTreeMap<String, Arc<Catalog>>,
    /// Why pools have none.
    missing: BTreeMap<String, String>,
}

impl Catalogs {
    /// No catalogs.
    pub const fn new() -> Self {
        Self { by_pool: BTreeMap::new(), missing: BTreeMap::new() }
    }

    /// One list of types for all pools, save that a type may name the pools that it is for. Several of one name are each for other
    /// pools, as where nodes of one keep more for the system than those of another.
    ///
    /// # Errors
    /// Two types of one name for one pool, or a type that breaks a rule.
    pub fn shared<'p>(
        types: Vec<InstanceType>,
        pools: impl IntoIterator<Item = &'p NodePool>,
    ) -> Result<Self, CatalogError> {
        let mut out = Self::new();
        if types.iter().all(|one| one.node_pools.is_none()) {
            let all = Arc::new(Catalog::new(types)?);
            pools.into_iter().for_each(|pool| out.insert(pool.name(), all.clone()));
            return Ok(out);
        }
        validate::check_for_pools(&types)?;
        let mut known: Vec<(FixedBitSet, Arc<Catalog>)> = Vec::new();
        for pool in pools {
            let own: FixedBitSet = (0..types.len()).filter(|&index| types[index].is_for(pool.name())).collect();
            let catalog = match known.iter().find(|(other, _)| *other == own) {
                Some((_, catalog)) => catalog.clone(),
                None => Arc::new(Catalog::new(own.ones().map(|index| types[index].clone()).collect())?),
            };
            out.insert(pool.name(), catalog.clone());
            known.push((own, catalog));
        }
        Ok(out)
    }

    /// One list of types of which [`Catalogs::shared`] makes these catalogs for the same pools, in the order of names. A type that is
    /// the same for all pools names none; where it is not, each kind of it names its pools.
    ///
    /// ```
    /// use karpenter_core::{Catalogs, InstanceType, Quantity, api::NodePool};
    ///
    /// let pools = ["general", "batch"].map(NodePool::named);
    /// let mut of_batch = InstanceType::named("m", [("cpu", Quantity::from_units(2))]);
    /// of_batch.node_pools = Some(vec!["batch".to_owned()]);
    /// let catalogs = Catalogs::shared(vec![of_batch.clone(), InstanceType::named("s", [("cpu", Quantity::from_units(1))])], &pools)?;
    /// let list = catalogs.to_types();
    /// assert_eq!(list[0], of_batch);
    /// assert_eq!((list[1].name.as_str(), &list[1].node_pools), ("s", &None));
    /// # Ok::<(), karpenter_core::CatalogError>(())
    /// ```
    pub fn to_types(&self) -> Vec<InstanceType> {
        let mut kinds: BTreeMap<String, Vec<(InstanceType, Vec<String>)>> = BTreeMap::new();
        for (pool, catalog) in &self.by_pool {
            for own in catalog.current_types() {
                let own = InstanceType { node_pools: None, ..own };
                let of_name = kinds.entry(own.name.clone()).or_default();
                match of_name.iter_mut().find(|(kind, _)| *kind == own) {
                    Some((_, pools)) => pools.push(pool.clone()),
                    None => of_name.push((own, vec![pool.clone()])),
                }
            }
        }
        let pool_count = self.by_pool.len() + self.missing.len();
        let of_pools = |(kind, pools): (InstanceType, Vec<String>)| {
            let node_pools = (pools.len() < pool_count).then_some(pools);
            InstanceType { node_pools, ..kind }
        };
        kinds.into_values().flatten().map(of_pools).collect()
    }

    /// Sets the catalog of a pool.
    pub fn insert(&mut self, pool: impl Into<String>, catalog: Arc<Catalog>) {
        let pool = pool.into();
        self.missing.remove(&pool);
        self.by_pool.insert(pool, catalog);
    }

    /// The catalog of a pool.
    pub fn get(&self, pool: &str) -> Option<&Arc<Catalog>> {
        self.by_pool.get(pool)
    }

    /// The catalogs of all pools that have one.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Catalog> {
        self.by_pool.values().map(AsRef::as_ref)
    }

    /// Says why a pool has no catalog, in words that follow those that it is not ready.
    pub fn insert_missing(&mut self, pool: impl Into<String>, why: impl Into<String>) {
        let pool = pool.into();
        self.by_pool.remove(&pool);
        self.missing.insert(pool, why.into());
    }

    /// Why a pool has no catalog, if that is known.
    pub fn why_missing(&self, pool: &str) -> Option<&str> {
        self.missing.get(pool).map(String::as_str)
    }

    /// Whether they are the same catalogs. What is shared is not compared.
    pub(crate) fn are_same(&self, other: &Self) -> bool {
        let is_same = |(a, b): (&Arc<Catalog>, &Arc<Catalog>)| Arc::ptr_eq(a, b) || a.is_same(b);
        self.missing == other.missing
            && self.by_pool.keys().eq(other.by_pool.keys())
            && self.by_pool.values().zip(other.by_pool.values()).all(is_same)
    }

    /// The same catalogs, in which these offerings cannot be bought now.
    pub fn without(&self, offerings: &[OfferingKey]) -> Self {
        let narrowed = |catalog: &Arc<Catalog>| {
            if offerings.is_empty() { catalog.clone() } else { Arc::new(catalog.without(offerings)) }
        };
        let by_pool = self.by_pool.iter().map(|(pool, catalog)| (pool.clone(), narrowed(catalog))).collect();
        Self { by_pool, missing: self.missing.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Price, Quantity, ResourceName};

    fn two_zones(name: &str) -> InstanceType {
        let dollar = Price::per_hour(1.0).expect("a price");
        let own = InstanceType::named(name, [("cpu", Quantity::from_units(1))]);
        own.offering("spot", "y", dollar).offering("spot", "z", dollar)
    }

    /// A type that is sold out in one of its zones and in which nodes of the pool `b` keep more for the system, and one of which
    /// that pool knows nothing.
    fn by_pool() -> Catalogs {
        let mut sold_out = two_zones("a");
        sold_out.offerings[0].available = false;
        let mut reserving = sold_out.clone();
        reserving.overhead.kube_reserved.insert(ResourceName::Cpu, Quantity::from_units(1));
        let other = two_zones("other");
        let catalog = |types| Arc::new(Catalog::new(types).expect("a catalog"));
        let mut out = Catalogs::new();
        out.insert("a", catalog(vec![sold_out.clone(), other.clone()]));
        out.insert("b", catalog(vec![reserving]));
        out.insert("c", catalog(vec![two_zones("a"), other]).without([&sold_out.offerings[0].key("a")]).into());
        out
    }

    #[test]
    fn one_list_stands_for_the_catalogs_of_all_pools() {
        let catalogs = by_pool();
        let list = catalogs.to_types();
        let names = |own: &InstanceType| own.node_pools.as_ref().map(|pools| pools.join(" "));
        let told: Vec<_> = list.iter().map(|own| (own.name.as_str(), names(own))).collect();
        let only = |pools: &str| Some(pools.to_owned());
        assert_eq!(told, [("a", only("a c")), ("a", only("b")), ("other", only("a c"))]);
        let again = Catalogs::shared(list, &["a", "b", "c"].map(NodePool::named)).expect("one of a name for each pool");
        assert_eq!(again.to_types(), catalogs.to_types());
        assert!(Arc::ptr_eq(again.get("a").expect("there"), again.get("c").expect("there")));
    }

    #[test]
    fn a_pool_without_a_catalog_has_no_types_in_the_list() {
        let mut catalogs = Catalogs::new();
        catalogs.insert("a", Arc::new(Catalog::new(vec![two_zones("a")]).expect("a catalog")));
        assert_eq!(catalogs.to_types()[0].node_pools, None);
        catalogs.insert_missing("b", "nobody knows");
        assert_eq!(catalogs.to_types()[0].node_pools, Some(vec!["a".to_owned()]));
    }

    #[test]
    fn a_pool_uses_one_type_of_a_name() {
        let named = |pools: Option<&[&str]>| {
            let node_pools = pools.map(|pools| pools.iter().map(ToString::to_string).collect());
            InstanceType { node_pools, ..two_zones("a") }
        };
        let pools = ["a", "b"].map(NodePool::named);
        let refused = |first, second| Catalogs::shared(vec![named(first), named(second)], &pools).is_err();
        assert!(!refused(Some(&["a"]), Some(&["b"])));
        assert!(refused(Some(&["a"]), Some(&["b", "a"])));
        assert!(refused(Some(&["a"]), None) && refused(None, None));
        assert!(refused(Some(&["elsewhere"]), Some(&["elsewhere"])), "a pool that is not there yet");
    }
}
