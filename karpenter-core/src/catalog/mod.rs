//! What can be bought: instance types, their offerings and prices.
//!
//! A provider hands out a [`Catalog`] for each pool, because what a machine can hold depends on the node class of the
//! pool. The catalog also defines which labels are well known: those that its types and offerings name.

mod catalogs;
mod overlay;
mod table;
#[cfg(test)]
mod tests;
mod validate;
mod wire;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

pub use catalogs::Catalogs;
use fixedbitset::FixedBitSet;
pub use overlay::{Overlaid, OverlayFault, OverlayTarget};
pub(crate) use table::Table;
pub use validate::{CatalogError, LabelPart};

pub use crate::price::Price;
use crate::{
    Quantity, Requirement, Requirements, ResourceList, ResourceName,
    api::{FieldError, NodePool, NodeSelectorRequirement, Operator},
    labels,
};

/// The end of the key of the label that names a capacity reservation.
const RESERVATION_SUFFIX: &str = "reservation-id";

/// A kind of machine.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct InstanceType {
    /// The name, unique among those that a pool may use.
    pub name: String,
    /// The labels that its nodes have. A key that is not named is a label that they lack, but for
    /// `node.kubernetes.io/instance-type`, which is the name in a [`Catalog`].
    pub requirements: Requirements,
    /// All that the machine has.
    pub capacity: ResourceList,
    /// What is kept for the system.
    pub overhead: Overhead,
    /// Where and how it can be bought.
    pub offerings: Vec<Offering>,
    /// The pools that may use it; `None` means all of them.
    pub node_pools: Option<Vec<String>>,
}

/// What a machine keeps for the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overhead {
    /// For the kubelet and the container runtime.
    pub kube_reserved: ResourceList,
    /// For the operating system.
    pub system_reserved: ResourceList,
    /// What must stay free lest the kubelet evict pods.
    pub eviction_threshold: ResourceList,
}

/// A way to buy an instance type: usually a zone and a capacity type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Offering {
    /// The labels that nodes bought this way have, on top of those of the type.
    pub requirements: Requirements,
    /// What it costs. Zero for what cannot be bought means that nobody knows; see [`known_price`](Self::known_price).
    pub price: Price,
    /// Whether it can be bought now.
    pub available: bool,
    /// How many are left of the reservation that this offering draws on; `None` if it draws on none.
    pub reservation_capacity: Option<u32>,
    /// The chance, from 0 to 1, that the cloud takes such a machine back within an hour.
    pub interruption: Option<f64>,
}

/// Names offerings to those who may not buy them for a while: all of a type in a zone for a capacity type.
///
/// Offerings that differ in other labels only, such as the reservation that they draw on, share a key, and whoever avoids one
/// of them avoids all. Where one of them may be sold out while another is not, either the catalog says of it that it is not
/// [available](Offering::available) or that nothing is left of its [reservation](Offering::reservation_capacity), or the
/// provider makes types or capacity types of their own of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferingKey {
    /// The name of the instance type.
    pub instance_type: String,
    /// The zone; empty if the offering names none or several.
    pub zone: String,
    /// The capacity type; empty if the offering names none or several.
    pub capacity_type: String,
}

impl fmt::Display for OfferingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in {}", self.capacity_type, self.instance_type, self.zone)
    }
}

impl InstanceType {
    /// A type of this name that runs Linux on `amd64`, with this capacity and up to 110 pods, and no offerings yet. See
    /// [`Self::label`] for another architecture.
    pub fn named<N: Into<ResourceName>>(
        name: impl Into<String>,
        capacity: impl IntoIterator<Item = (N, Quantity)>,
    ) -> Self {
        let name = name.into();
        let mut requirements = Requirements::new();
        requirements.add(labels::INSTANCE_TYPE, Requirement::one_of([name.as_str()]));
        requirements.add(labels::ARCH, Requirement::one_of(["amd64"]));
        requirements.add(labels::OS, Requirement::one_of(["linux"]));
        let mut all = ResourceList::from_iter([(ResourceName::Pods, Quantity::from_units(110))]);
        for (resource, quantity) in capacity {
            all.insert(resource.into(), quantity);
        }
        Self { name, requirements, capacity: all, ..Self::default() }
    }

    /// Adds an offering at an hourly price.
    pub fn offering(mut self, capacity_type: &str, zone: &str, price: Price) -> Self {
        self.offerings.push(Offering::new(capacity_type, zone, price));
        self
    }

    /// Gives its nodes a label, in place of what was said of it before.
    ///
    /// ```
    /// use karpenter_core::{InstanceType, Quantity, labels};
    ///
    /// let small = InstanceType::named("small", [("cpu", Quantity::from_units(2))]).label(labels::ARCH, "arm64");
    /// assert_eq!(small.requirements.get(labels::ARCH).unwrap().values().collect::<Vec<_>>(), ["arm64"]);
    /// ```
    pub fn label(mut self, key: &str, value: &str) -> Self {
        let others = self.requirements.iter().filter(|(other, _)| *other != labels::normalized(key));
        let mut all = Requirements::new();
        others.for_each(|(other, requirement)| all.add(other, requirement.clone()));
        all.add(key, Requirement::one_of([value]));
        self.requirements = all;
        self
    }

    /// The labels of a node of one of its offerings: of each label what the offering says, or else the type, with the first value
    /// that is `wanted` where there are several. What a type says of reservations is what all its offerings have together, so that
    /// only the offering tells which one a node has.
    pub fn node_labels(&self, offering: &Offering, wanted: &Requirements) -> BTreeMap<String, String> {
        let of_type = self.requirements.iter().filter(|(key, _)| !key.ends_with(RESERVATION_SUFFIX));
        let mut out = BTreeMap::new();
        for (key, offered) in of_type.chain(offering.requirements.iter()) {
            let both = wanted.get(key).map_or_else(|| offered.clone(), |wanted| offered.intersection(wanted));
            out.extend(both.any_value().map(|value| (key.to_owned(), value.to_string())));
        }
        out
    }

    /// The values that its nodes may have of a label: those that the type names, or else those that its offerings do.
    pub fn values_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let of_type = self.requirements.get(key);
        let of_offerings = self.offerings.iter().filter_map(|offering| offering.requirements.get(key));
        of_type.into_iter().chain(of_offerings.filter(move |_| of_type.is_none())).flat_map(Requirement::values)
    }

    /// Whether a pool of this name may use it.
    pub fn is_for(&self, pool: &str) -> bool {
        self.node_pools.as_ref().is_none_or(|names| names.iter().any(|name| name == pool))
    }

    /// What pods may have of the machine: capacity less overhead, and less the memory that is set aside for huge pages.
    pub fn allocatable(&self) -> ResourceList {
        let mut out = self.capacity.clone();
        for part in [&self.overhead.kube_reserved, &self.overhead.system_reserved, &self.overhead.eviction_threshold] {
            for (name, quantity) in part.iter() {
                if let Some(capacity) = out.get(name.as_str()) {
                    out.insert(name.clone(), capacity.saturating_sub(quantity));
                }
            }
        }
        let huge_pages = self.capacity.iter().filter(|(name, _)| name.is_huge_pages());
        let huge_pages = huge_pages.fold(Quantity::ZERO, |sum, (_, q)| sum.saturating_add(q));
        if let Some(memory) = out.get("memory").filter(|_| !huge_pages.is_zero()) {
            out.insert(ResourceName::Memory, memory.saturating_sub(huge_pages).max(Quantity::ZERO));
        }
        out
    }
}

impl Offering {
    fn is_same_but_for_availability(&self, other: &Self) -> bool {
        let Self { requirements, price, available: _, reservation_capacity, interruption } = self;
        (requirements, price) == (&other.requirements, &other.price)
            && (reservation_capacity, interruption) == (&other.reservation_capacity, &other.interruption)
    }

    /// An available offering at an hourly price.
    pub fn new(capacity_type: &str, zone: &str, price: Price) -> Self {
        let mut requirements = Requirements::new();
        requirements.add(labels::CAPACITY_TYPE, Requirement::one_of([capacity_type]));
        requirements.add(labels::ZONE, Requirement::one_of([zone]));
        Self { requirements, price, available: true, reservation_capacity: None, interruption: None }
    }

    /// What a machine that was bought this way costs, as far as it is known: a provider keeps an offering without a price, as
    /// machines may run that were bought so, but nobody can buy it.
    pub fn known_price(&self) -> Option<Price> {
        let is_told = self.available || self.price > Price::ZERO || self.reservation_capacity.is_some();
        is_told.then_some(self.price)
    }

    /// The only value of a label, or an empty text: there may be none, or several.
    pub fn label(&self, key: &str) -> &str {
        let only = self.requirements.get(key).filter(|requirement| requirement.value_count() == Some(1));
        only.and_then(|requirement| requirement.values().next()).unwrap_or("")
    }

    /// The key of this offering of `instance_type`, which it may share with others.
    pub fn key(&self, instance_type: &str) -> OfferingKey {
        OfferingKey {
            instance_type: instance_type.to_owned(),
            zone: self.label(labels::ZONE).to_owned(),
            capacity_type: self.label(labels::CAPACITY_TYPE).to_owned(),
        }
    }
}

/// Instance types, compiled for search. Cheap to clone.
///
/// ```
/// use karpenter_core::{Catalog, InstanceType, Price, Quantity};
///
/// let small = InstanceType::named("small", [("cpu", Quantity::from_units(2)), ("memory", Quantity::from_bytes(8 << 30))])
///     .offering("on-demand", "zone-a", Price::per_hour(0.10).unwrap());
/// let catalog = Catalog::new(vec![small])?;
/// assert_eq!(catalog.get("small").unwrap().offerings.len(), 1);
/// # Ok::<(), karpenter_core::CatalogError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Catalog {
    types: Arc<[InstanceType]>,
    table: Arc<Table>,
    available: FixedBitSet,
}

impl Catalog {
    /// Compiles a list of types.
    ///
    /// # Errors
    /// Two types of one name, or a type that breaks a rule.
    pub fn new(mut types: Vec<InstanceType>) -> Result<Self, CatalogError> {
        types.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = types.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(CatalogError::Duplicate { name: pair[0].name.clone() });
        }
        for instance_type in &mut types {
            instance_type.validate()?;
            if instance_type.requirements.get(labels::INSTANCE_TYPE).is_none() {
                let name = Requirement::one_of([instance_type.name.as_str()]);
                instance_type.requirements.add(labels::INSTANCE_TYPE, name);
            }
            instance_type.offerings.sort_by(|a, b| (&a.requirements, a.price).cmp(&(&b.requirements, b.price)));
        }
        Ok(Self::of_sorted(types))
    }

    /// Compiles types that break no rule, in the order of their names and with their offerings in order.
    fn of_sorted(types: Vec<InstanceType>) -> Self {
        let reservation_label = types.iter().find_map(InstanceType::reservation_label).map(str::to_owned);
        let table = Table::new(&types, reservation_label);
        let available = table.available();
        Self { types: types.into(), table: Arc::new(table), available }
    }

    /// The types in the order of their names, each with its offerings in the order of their labels.
    pub fn types(&self) -> &[InstanceType] {
        &self.types
    }

    /// The types with what can be bought now: an offering may be sold out by what is known of its type, or in this catalog.
    pub fn current_types(&self) -> impl Iterator<Item = InstanceType> {
        self.types.iter().enumerate().map(|(index, source)| {
            let mut out = source.clone();
            for (row, offering) in self.table.rows_of(index).zip(&mut out.offerings) {
                offering.available = self.available.contains(row);
            }
            out
        })
    }

    /// What of it a pool of this name may use.
    pub fn of_pool(self: &Arc<Self>, pool: &str) -> Arc<Self> {
        if self.types.iter().all(|one| one.is_for(pool)) {
            return self.clone();
        }
        Arc::new(Self::of_sorted(self.current_types().filter(|one| one.is_for(pool)).collect()))
    }

    /// The type of this name.
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        self.types.binary_search_by(|t| t.name.as_str().cmp(name)).ok().map(|i| &self.types[i])
    }

    /// Whether some type or offering names this label, so that its value is known before a node is bought.
    pub fn is_well_known(&self, key: &str) -> bool {
        self.table.is_well_known(key)
    }

    /// Checks that a pool asks for no label which the provider would give if there were one: a name that it does not know, in a
    /// domain of which it tells, is misspelt, and taken for a label of the pool's own it would let any machine pass. Of the capacity
    /// types that it names there must be as many as it asks for: those of Karpenter, and those of this catalog.
    ///
    /// # Errors
    /// The first of the pool's requirements that asks for such a label, or for too many capacity types.
    pub fn check_labels(&self, pool: &NodePool) -> Result<(), FieldError> {
        let is_asked =
            |own: &NodeSelectorRequirement| !matches!(own.operator, Operator::NotIn | Operator::DoesNotExist);
        let is_misspelt =
            |key: &str| labels::is_of_provider(key) && !self.is_well_known(key) && self.table.has_domain_of(key);
        let requirements = || pool.spec.template.spec.requirements.iter().enumerate();
        if let Some((index, own)) = requirements().find(|(_, own)| is_asked(own) && is_misspelt(&own.key)) {
            let field = format!("spec.template.spec.requirements[{index}].key");
            return Err(FieldError::new(field, format!("no instance type has a label {:?}", own.key)));
        }
        requirements().try_for_each(|(index, own)| self.check_capacity_types(index, own))
    }

    /// Checks that there are as many of the capacity types that a pool names as it asks for.
    fn check_capacity_types(&self, index: usize, own: &NodeSelectorRequirement) -> Result<(), FieldError> {
        if own.operator != Operator::In || own.key != labels::CAPACITY_TYPE {
            return Ok(());
        }
        let mut known: BTreeSet<&str> = [labels::ON_DEMAND, labels::SPOT, labels::RESERVED].into();
        let states = self.table.all_states(labels::CAPACITY_TYPE);
        known.extend(states.flat_map(Requirement::values));
        let count = own.values.iter().filter(|value| known.contains(value.as_str())).count();
        if count >= own.min_values.unwrap_or(1) as usize {
            return Ok(());
        }
        let known: Vec<&str> = known.into_iter().collect();
        let message = format!("only {count} of {:?} are capacity types; there are {}", own.values, known.join(", "));
        Err(FieldError::new(format!("spec.template.spec.requirements[{index}].values"), message))
    }

    /// The key of the label that names a capacity reservation, if there is one.
    pub fn reservation_label(&self) -> Option<&str> {
        self.table.reservation_label()
    }

    /// The same catalog, in which these offerings cannot be bought now.
    pub fn without<'k>(&self, offerings: impl IntoIterator<Item = &'k OfferingKey>) -> Self {
        let mut out = self.clone();
        for key in offerings {
            let Ok(index) = self.types.binary_search_by(|t| t.name.cmp(&key.instance_type)) else { continue };
            for (row, offering) in self.table.rows_of(index).zip(&self.types[index].offerings) {
                if offering.key(&key.instance_type) == *key {
                    out.available.set(row, false);
                }
            }
        }
        out
    }

    /// Whether it is the same catalog, in which the same can be bought now. What is shared is not compared.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let are_same = |a: &[InstanceType], b: &[InstanceType]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same_but_for_availability(b))
        };
        self.available == other.available
            && (Arc::ptr_eq(&self.types, &other.types) || are_same(&self.types, &other.types))
    }

    /// Whether an offering, by its place in the list of its type, can be bought now.
    pub fn is_available(&self, instance_type: &str, offering: usize) -> bool {
        let index = self.types.binary_search_by(|t| t.name.as_str().cmp(instance_type));
        index.is_ok_and(|i| self.table.rows_of(i).nth(offering).is_some_and(|row| self.available.contains(row)))
    }

    /// The first of these requirements that a node of an offering of a type cannot meet.
    ///
    /// What the offering says of a label comes before what the type says. A label of which neither says anything is one that
    /// the node lacks, if it [is well known](Self::is_well_known); others may come from its NodePool or its NodeClaim. What a
    /// type says of the [label of reservations](Self::reservation_label) is what all its offerings have together, so that only
    /// that of the offering counts.
    pub fn unmet<'r>(
        &self,
        instance_type: &InstanceType,
        offering: &Offering,
        requirements: &'r Requirements,
    ) -> Option<(&'r str, &'r Requirement)> {
        let is_of_offering = |key: &str| self.reservation_label().is_some_and(|label| label == key);
        let of_type = |key: &str| instance_type.requirements.get(key).filter(|_| !is_of_offering(key));
        let meets = |key: &str, wanted: &Requirement| match offering.requirements.get(key).or_else(|| of_type(key)) {
            Some(offered) => offered.intersects(wanted),
            None if self.is_well_known(key) => wanted.admits_absence(),
            None => !wanted.is_none(),
        };
        requirements.iter().find(|(key, wanted)| !meets(key, wanted))
    }

    /// The offerings of a type of the catalog that can be bought now.
    pub(crate) fn open_offerings<'c>(&'c self, source: &'c InstanceType) -> impl Iterator<Item = &'c Offering> + Clone {
        let index = self.types.binary_search_by(|own| own.name.cmp(&source.name));
        let rows = index.map_or(0..0, |index| self.table.rows_of(index));
        rows.zip(&source.offerings).filter(|(row, _)| self.available.contains(*row)).map(|(_, offering)| offering)
    }

    /// The first offering of the type, zone and capacity type that these labels name, whether or not it can be bought now. Of
    /// those that draw on reservations, that of the reservation that they name comes first.
    pub(crate) fn offering_of(&self, own: &BTreeMap<String, String>) -> Option<&Offering> {
        let label = |key: &str| own.get(key).map(String::as_str);
        let instance_type = self.get(label(labels::INSTANCE_TYPE)?)?;
        let (zone, capacity_type) = (label(labels::ZONE)?, label(labels::CAPACITY_TYPE)?);
        let admits = |offering: &Offering, key: &str, value: Option<&str>| {
            offering.requirements.get(key).is_none_or(|requirement| requirement.admits(value))
        };
        let is_alike = |offering: &&Offering| {
            admits(offering, labels::ZONE, Some(zone)) && admits(offering, labels::CAPACITY_TYPE, Some(capacity_type))
        };
        let is_same =
            |offering: &&Offering| self.reservation_label().is_none_or(|key| admits(offering, key, label(key)));
        let mut alike = instance_type.offerings.iter().filter(is_alike);
        alike.clone().find(is_same).or_else(|| alike.next())
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn available(&self) -> &FixedBitSet {
        &self.available
    }
}

impl InstanceType {
    /// Whether it is the same, with offerings that may be available here and not there.
    fn is_same_but_for_availability(&self, other: &Self) -> bool {
        let Self { name, requirements, capacity, overhead, offerings, node_pools } = self;
        (name, requirements, capacity) == (&other.name, &other.requirements, &other.capacity)
            && (overhead, node_pools) == (&other.overhead, &other.node_pools)
            && offerings.len() == other.offerings.len()
            && offerings.iter().zip(&other.offerings).all(|(a, b)| a.is_same_but_for_availability(b))
    }

    fn reservation_label(&self) -> Option<&str> {
        let all = self.offerings.iter().map(|o| &o.requirements).chain([&self.requirements]);
        all.flat_map(Requirements::iter).map(|(key, _)| key).find(|key| key.ends_with(RESERVATION_SUFFIX))
    }
}
