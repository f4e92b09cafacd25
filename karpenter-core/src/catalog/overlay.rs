//! What node overlays make of catalogs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{Catalog, Catalogs, InstanceType, Offering, OfferingKey};
use crate::{
    Requirement, Requirements, ResourceName,
    api::{FieldError, NodeOverlay, NodePool, PriceChange},
    labels,
};

/// Catalogs with overlays applied.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Overlaid {
    /// The catalogs; those that no overlay changes are the same as before.
    pub catalogs: Catalogs,
    /// The overlays that were not applied to anything, by name, and why.
    pub faults: BTreeMap<String, OverlayFault>,
}

/// Why an overlay is not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverlayFault {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] FieldError),
    /// Another overlay of the same weight sets the same, be it to the same value.
    #[error("NodeOverlay {other} of the same weight sets {what} too")]
    Conflict {
        /// The other overlay, whose name comes later and which is applied.
        other: String,
        /// What both set.
        what: OverlayTarget,
    },
}

/// What an overlay sets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum OverlayTarget {
    /// The price of an offering.
    Price { pool: String, offering: OfferingKey },
    /// How much of a resource an instance type has.
    Capacity { pool: String, instance_type: String, resource: ResourceName },
}

impl fmt::Display for OverlayTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Price { pool, offering } => write!(f, "the price of {offering} in NodePool {pool}"),
            Self::Capacity { pool, instance_type, resource } => {
                write!(f, "{resource} of {instance_type} in NodePool {pool}")
            }
        }
    }
}

impl Catalogs {
    /// These catalogs as overlays have them. An overlay is applied to all pools or, if something is wrong with it, to none.
    ///
    /// Heavier overlays come first, then those whose names come later. The first that sets the price of an offering, or a resource
    /// of an instance type, decides it. Requirements are held against the labels of the offering, of the type, and of
    /// the pool: its name, its node class, and what its template says. A resource is set for all offerings of a type if any of
    /// them meets the requirements.
    pub fn overlaid<'o>(
        &self,
        pools: impl IntoIterator<Item = &'o NodePool>,
        overlays: impl IntoIterator<Item = &'o NodeOverlay>,
    ) -> Overlaid {
        let mut overlays: Vec<&NodeOverlay> = overlays.into_iter().collect();
        if overlays.is_empty() {
            return Overlaid { catalogs: self.clone(), faults: BTreeMap::new() };
        }
        overlays.sort_by_key(|overlay| Reverse((overlay.weight(), overlay.name())));
        let mut drafts: Vec<Draft<'_>> =
            pools.into_iter().filter_map(|pool| Some(Draft::new(pool, self.get(pool.name())?))).collect();
        let mut faults = BTreeMap::new();
        for overlay in overlays {
            if let Err(fault) = apply(overlay, &mut drafts) {
                faults.insert(overlay.name().to_owned(), fault);
            }
        }
        let mut catalogs = self.clone();
        for draft in drafts.iter().filter(|draft| !draft.is_empty()) {
            catalogs.insert(draft.pool, draft.finish());
        }
        Overlaid { catalogs, faults }
    }
}

/// What becomes of the catalog of a pool.
struct Draft<'o> {
    pool: &'o str,
    /// The labels that all nodes of the pool have.
    labels: Requirements,
    catalog: &'o Arc<Catalog>,
    /// By the places of type and offering in the catalog.
    prices: BTreeMap<(usize, usize), Layers<'o, PriceChange>>,
    /// By the place of the type.
    capacity: BTreeMap<(usize, &'o ResourceName), Layers<'o, crate::Quantity>>,
}

/// What overlays say of one thing.
struct Layers<'o, T> {
    /// What the first says.
    value: T,
    /// The last so far.
    last: &'o NodeOverlay,
}

impl<'o, T> Layers<'o, T> {
    /// The last one, if it is of the same weight: which of the two counts nobody has said.
    fn rival(&self, overlay: &NodeOverlay) -> Option<String> {
        (self.last.weight() == overlay.weight()).then(|| self.last.name().to_owned())
    }

    fn add<K: Ord>(all: &mut BTreeMap<K, Self>, key: K, value: T, last: &'o NodeOverlay) {
        all.entry(key).and_modify(|layers| layers.last = last).or_insert(Self { value, last });
    }
}

/// Applies an overlay to all drafts, or to none.
fn apply<'o>(overlay: &'o NodeOverlay, drafts: &mut [Draft<'o>]) -> Result<(), OverlayFault> {
    overlay.validate()?;
    let change = overlay.spec.price_change()?;
    let wanted: Requirements = overlay.spec.requirements.iter().collect();
    let meant: Vec<_> = drafts.iter().map(|draft| draft.meant(&wanted)).collect();
    for (draft, meant) in drafts.iter().zip(&meant) {
        draft.check(overlay, change.is_some(), meant)?;
    }
    for (draft, meant) in drafts.iter_mut().zip(meant) {
        let types: BTreeSet<usize> = meant.iter().map(|(own, _)| *own).collect();
        if let Some(change) = change {
            for place in meant {
                Layers::add(&mut draft.prices, place, change, overlay);
            }
        }
        for (name, quantity) in overlay.spec.capacity.iter() {
            for own in &types {
                Layers::add(&mut draft.capacity, (*own, name), quantity, overlay);
            }
        }
    }
    Ok(())
}

impl<'o> Draft<'o> {
    fn new(pool: &'o NodePool, catalog: &'o Arc<Catalog>) -> Self {
        let template = &pool.spec.template;
        let class = &template.spec.node_class_ref;
        let mut own = Requirements::of_labels(&template.metadata.labels);
        own.add(labels::NODE_POOL, Requirement::one_of([pool.name()]));
        own.add(&class.label_key(), Requirement::one_of([class.name.as_str()]));
        Self { pool: pool.name(), labels: own, catalog, prices: BTreeMap::new(), capacity: BTreeMap::new() }
    }

    fn is_empty(&self) -> bool {
        self.prices.is_empty() && self.capacity.is_empty()
    }

    /// The places of the offerings that meet requirements.
    fn meant(&self, wanted: &Requirements) -> Vec<(usize, usize)> {
        let meets = |own: &InstanceType, offering: &Offering| {
            wanted.iter().all(|(key, wanted)| {
                let all = [&offering.requirements, &own.requirements, &self.labels];
                let has = all.into_iter().find_map(|labels| labels.get(key));
                has.map_or_else(|| wanted.admits(None), |has| has.intersects(wanted))
            })
        };
        let types = self.catalog.types().iter().enumerate();
        let all = types.flat_map(|(i, own)| own.offerings.iter().enumerate().map(move |(j, one)| ((i, j), own, one)));
        all.filter(|(_, own, offering)| meets(own, offering)).map(|(place, _, _)| place).collect()
    }

    /// Whether an overlay can be applied to these offerings.
    fn check(&self, overlay: &NodeOverlay, sets_price: bool, meant: &[(usize, usize)]) -> Result<(), OverlayFault> {
        let pool = || self.pool.to_owned();
        for place in meant {
            let own = &self.catalog.types()[place.0];
            if let Some(other) = self.prices.get(place).filter(|_| sets_price).and_then(|one| one.rival(overlay)) {
                let offering = own.offerings[place.1].key(&own.name);
                return Err(OverlayFault::Conflict { other, what: OverlayTarget::Price { pool: pool(), offering } });
            }
            for (resource, _) in overlay.spec.capacity.iter() {
                if let Some(other) = self.capacity.get(&(place.0, resource)).and_then(|one| one.rival(overlay)) {
                    let (instance_type, resource) = (own.name.clone(), resource.clone());
                    let what = OverlayTarget::Capacity { pool: pool(), instance_type, resource };
                    return Err(OverlayFault::Conflict { other, what });
                }
            }
        }
        Ok(())
    }

    fn finish(&self) -> Arc<Catalog> {
        let mut types = self.catalog.types().to_vec();
        for ((own, offering), layers) in &self.prices {
            let price = &mut types[*own].offerings[*offering].price;
            *price = layers.value.of(*price);
        }
        for ((own, resource), layers) in &self.capacity {
            types[*own].capacity.insert((*resource).clone(), layers.value);
        }
        let mut out = Catalog::new(types).expect("prices and quantities that are not below zero break no rule");
        // The offerings are the same, in the same order.
        out.available.clone_from(&self.catalog.available);
        Arc::new(out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Price, Quantity};

    fn overlay(name: &str, spec: &Value) -> NodeOverlay {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        serde_json::from_value(object).expect("an overlay")
    }

    fn on(key: &str, value: &str) -> Value {
        json!([{"key": key, "operator": "In", "values": [value]}])
    }

    /// A small and a large type, spot and on demand, for the pools `a` and `b`.
    fn market() -> (Catalogs, [NodePool; 2]) {
        let price = |dollars| Price::per_hour(dollars).expect("a price");
        let of = |name: &str, dollars: f64| {
            InstanceType::named(name, [("cpu", Quantity::from_units(4)), ("memory", Quantity::from_bytes(8 << 30))])
                .offering("on-demand", "z", price(dollars))
                .offering("spot", "z", price(dollars / 2.0))
        };
        let mut pools = [NodePool::named("a"), NodePool::named("b")];
        pools[1].spec.template.metadata.labels.insert("team".to_owned(), "red".to_owned());
        (Catalogs::shared(vec![of("large", 4.0), of("small", 2.0)], &pools).expect("valid"), pools)
    }

    fn applied(overlays: &[NodeOverlay]) -> Overlaid {
        let (catalogs, pools) = market();
        catalogs.overlaid(&pools, overlays)
    }

    /// On demand and spot, large and small.
    fn prices(overlaid: &Overlaid, pool: &str) -> Vec<f64> {
        let types = overlaid.catalogs.get(pool).expect("a catalog").types().iter();
        types.flat_map(|own| own.offerings.iter().map(|offering| offering.price.dollars_per_hour())).collect()
    }

    fn capacity(overlaid: &Overlaid, pool: &str, name: &str, resource: &str) -> Option<Quantity> {
        overlaid.catalogs.get(pool)?.get(name)?.capacity.get(resource)
    }

    #[test]
    fn without_overlays_catalogs_are_shared() {
        let (catalogs, pools) = market();
        let none = catalogs.overlaid(&pools, []);
        let elsewhere = overlay("o", &json!({"requirements": on(labels::ZONE, "nowhere"), "price": "1"}));
        let unmet = catalogs.overlaid(&pools, [&elsewhere]);
        for out in [none, unmet] {
            for pool in ["a", "b"] {
                assert!(Arc::ptr_eq(catalogs.get(pool).expect("there"), out.catalogs.get(pool).expect("there")));
            }
        }
    }

    #[test]
    fn requirements_are_held_against_offering_type_and_pool() {
        for (requirements, a, b) in [
            (json!([]), [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]),
            (on(labels::CAPACITY_TYPE, "spot"), [4.0, 1.0, 2.0, 1.0], [4.0, 1.0, 2.0, 1.0]),
            (on(labels::INSTANCE_TYPE, "large"), [1.0, 1.0, 2.0, 1.0], [1.0, 1.0, 2.0, 1.0]),
            (on(labels::NODE_POOL, "a"), [1.0, 1.0, 1.0, 1.0], [4.0, 2.0, 2.0, 1.0]),
            (on("team", "red"), [4.0, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]),
            (json!([{"key": "team", "operator": "DoesNotExist"}]), [1.0, 1.0, 1.0, 1.0], [4.0, 2.0, 2.0, 1.0]),
            (on("karpenter.kwok.sh/kwoknodeclass", "other"), [4.0, 2.0, 2.0, 1.0], [4.0, 2.0, 2.0, 1.0]),
        ] {
            let out = applied(&[overlay("o", &json!({"requirements": requirements, "price": "1"}))]);
            assert_eq!((prices(&out, "a"), prices(&out, "b")), (a.to_vec(), b.to_vec()), "{requirements}");
        }
    }

    #[test]
    fn the_heaviest_decides_each_price_and_each_resource() {
        let heavy = json!({"requirements": on(labels::INSTANCE_TYPE, "large"), "priceAdjustment": "-50%",
            "capacity": {"example.com/fuse": "1"}, "weight": 10});
        let light = json!({"requirements": [], "priceAdjustment": "+1",
            "capacity": {"example.com/fuse": "2", "hugepages-2Mi": "1Gi"}});
        let (heavy, light) = (overlay("heavy", &heavy), overlay("light", &light));
        let out = applied(&[light.clone(), heavy.clone()]);
        assert_eq!(prices(&out, "a"), [2.0, 1.0, 3.0, 2.0]);
        let units = |name, resource| capacity(&out, "a", name, resource).map(Quantity::units_floor);
        assert_eq!((units("large", "example.com/fuse"), units("small", "example.com/fuse")), (Some(1), Some(2)));
        let memory = out.catalogs.get("a").expect("there").get("small").expect("there").allocatable().get("memory");
        assert_eq!(memory, Some(Quantity::from_bytes(7 << 30)), "pages are taken from the memory");
        assert!(out.faults.is_empty());
        let other = applied(&[heavy, light]);
        assert_eq!(prices(&other, "a"), prices(&out, "a"), "whatever the order");
    }

    #[test]
    fn of_two_of_one_weight_the_first_by_name_is_not_applied_to_anything() {
        let all = json!({"requirements": [], "price": "1", "capacity": {"example.com/fuse": "1"}});
        let spot = json!({"requirements": on(labels::CAPACITY_TYPE, "spot"), "price": "1"});
        let fuses = json!({"requirements": on(labels::NODE_POOL, "b"), "capacity": {"example.com/fuse": "2"}});
        let other = json!({"requirements": on(labels::NODE_POOL, "b"), "capacity": {"example.com/lamp": "2"}});
        let names = ["z-all", "y-spot", "x-fuses", "w-other"];
        let overlays: Vec<_> = names.into_iter().zip([all, spot, fuses, other]).map(|(n, s)| overlay(n, &s)).collect();
        let out = applied(&overlays);
        let faults: Vec<String> = out.faults.iter().map(|(name, fault)| format!("{name}: {fault}")).collect();
        assert_eq!(
            faults,
            [
                "x-fuses: NodeOverlay z-all of the same weight sets example.com/fuse of large in NodePool b too",
                "y-spot: NodeOverlay z-all of the same weight sets the price of spot large in z in NodePool a too",
            ]
        );
        assert_eq!(capacity(&out, "b", "large", "example.com/fuse"), Some(Quantity::from_units(1)));
        assert_eq!(capacity(&out, "b", "large", "example.com/lamp"), Some(Quantity::from_units(2)));
    }

    #[test]
    fn what_is_not_valid_is_named_and_changes_nothing() {
        let out = applied(&[overlay("o", &json!({"price": "dear", "capacity": {"example.com/fuse": "1"}}))]);
        assert_eq!(out.faults["o"].to_string(), "spec.price: \"dear\" is not a number such as 0.05");
        assert_eq!(capacity(&out, "a", "large", "example.com/fuse"), None);
    }

    #[test]
    fn what_cannot_be_bought_still_cannot() {
        let (catalogs, pools) = market();
        let key = catalogs.get("a").expect("there").types()[0].offerings[0].key("large");
        let dear = overlay("o", &json!({"price": "9"}));
        let out = catalogs.without(&[key]).overlaid(&pools, [&dear]);
        let catalog = out.catalogs.get("a").expect("there");
        assert!(!catalog.is_available("large", 0) && catalog.is_available("large", 1));
    }
}
