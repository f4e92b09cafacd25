//! The nodes that a claim may become.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    Catalog, InstanceType, Offering, Requirements,
    api::{NodePool, NodeSelectorRequirement, Operator},
    labels,
};

use super::{
    filters::{Amounts, amounts_of, holds},
    violation::PlannedNode,
};

/// The most nodes that one offering is tried as, where requirements leave labels open.
const MAX_VARIANTS: usize = 16;
/// The end of the key of the label that names a capacity reservation.
const RESERVATION_SUFFIX: &str = "reservation-id";
/// A number that no bound is likely to name.
const FAR_NUMBER: i64 = 1_000_003;
/// Names under which the kubelet sets labels a second time.
const ALIASES: [(&str, &str); 6] = [
    ("failure-domain.beta.kubernetes.io/zone", labels::ZONE),
    ("topology.ebs.csi.aws.com/zone", labels::ZONE),
    ("failure-domain.beta.kubernetes.io/region", labels::REGION),
    ("beta.kubernetes.io/arch", labels::ARCH),
    ("beta.kubernetes.io/os", labels::OS),
    ("beta.kubernetes.io/instance-type", labels::INSTANCE_TYPE),
];

type Labels = BTreeMap<String, String>;
/// What is said of each label.
pub(super) type Expressions = BTreeMap<String, Vec<NodeSelectorRequirement>>;

/// A node with all its labels.
pub(super) struct Candidate<'c> {
    pub(super) instance_type: &'c InstanceType,
    pub(super) offering: &'c Offering,
    pub(super) labels: Labels,
}

impl Candidate<'_> {
    pub(super) fn node(&self, claim: usize) -> PlannedNode {
        let key = self.offering.key(&self.instance_type.name);
        let (zone, capacity_type) = (key.zone, key.capacity_type);
        PlannedNode::New { claim, instance_type: key.instance_type, zone, capacity_type }
    }

    /// Whether it draws on a capacity reservation.
    pub(super) fn is_reserved(&self) -> bool {
        self.offering.reservation_capacity.is_some() || self.offering.label(labels::CAPACITY_TYPE) == labels::RESERVED
    }

    /// Whether it draws on a capacity reservation of which nothing is left.
    pub(super) fn is_used_up(&self) -> bool {
        self.is_reserved() && self.offering.reservation_capacity.unwrap_or(0) == 0
    }
}

/// What is known of all nodes of a claim, whichever offering is bought.
pub(super) struct Options<'c> {
    catalog: &'c Catalog,
    well_known: BTreeSet<&'c str>,
    /// What the pool and the claim say of labels.
    wanted: Expressions,
    /// The labels that every node of the pool has.
    fixed: BTreeSet<String>,
    hostname: String,
}

impl<'c> Options<'c> {
    /// `of_claim` are the labels that the claim settles beside those of the pool.
    pub(super) fn new(
        pool: &NodePool,
        catalog: &'c Catalog,
        requirements: &Requirements,
        of_claim: &Labels,
        hostname: String,
    ) -> Self {
        let template = &pool.spec.template;
        let class = &template.spec.node_class_ref;
        let class_key = format!("{}/{}", class.group, class.kind.to_lowercase());
        let mut own = template.metadata.labels.clone();
        own.extend(of_claim.clone());
        own.insert(labels::NODE_POOL.to_owned(), pool.name().to_owned());
        own.insert(class_key, class.name.clone());
        own.insert(labels::REGISTERED.to_owned(), "true".to_owned());
        own.insert(labels::INITIALIZED.to_owned(), "true".to_owned());
        let mut wanted = Expressions::new();
        let claimed = requirements.to_expressions();
        for expression in template.spec.requirements.iter().chain(&claimed) {
            wanted.entry(stable(&expression.key)).or_default().push(expression.clone());
        }
        for (key, value) in &own {
            let is = NodeSelectorRequirement::new(key, Operator::In, [value]);
            wanted.entry(stable(key)).or_default().push(is);
        }
        wanted.remove(labels::HOSTNAME);
        let of_types = catalog.types().iter().map(|t| &t.requirements);
        let of_offerings = catalog.types().iter().flat_map(|t| &t.offerings).map(|o| &o.requirements);
        let well_known = of_types.chain(of_offerings).flat_map(Requirements::iter).map(|(key, _)| key).collect();
        Self { catalog, well_known, wanted, fixed: own.keys().map(|key| stable(key)).collect(), hostname }
    }

    /// The nodes that come of the available offerings of a type.
    pub(super) fn of_type(&self, instance_type: &'c InstanceType) -> Vec<Candidate<'c>> {
        let variants = |offering| {
            let labels = self.variants(instance_type, offering).into_iter();
            labels.map(move |labels| Candidate { instance_type, offering, labels })
        };
        self.available(instance_type).flat_map(variants).collect()
    }

    /// The offerings of a type that can be bought now.
    pub(super) fn available(&self, instance_type: &'c InstanceType) -> impl Iterator<Item = &'c Offering> {
        let offerings = instance_type.offerings.iter().enumerate();
        offerings.filter(|(i, _)| self.catalog.is_available(&instance_type.name, *i)).map(|(_, offering)| offering)
    }

    /// All that is said of the labels of a node bought so.
    pub(super) fn said(&self, instance_type: &InstanceType, offering: &Offering) -> Expressions {
        let mut said = Expressions::new();
        for (key, requirement) in instance_type.requirements.iter().filter(|(k, _)| !k.ends_with(RESERVATION_SUFFIX)) {
            said.insert(key.to_owned(), requirement.to_expressions(key));
        }
        for (key, requirement) in offering.requirements.iter() {
            said.insert(key.to_owned(), requirement.to_expressions(key));
        }
        for (key, expressions) in &self.wanted {
            let is_lacking = !said.contains_key(key) && self.well_known.contains(key.as_str());
            let entry = said.entry(key.clone()).or_default();
            if is_lacking && !self.fixed.contains(key) {
                entry.push(NodeSelectorRequirement::new(key, Operator::DoesNotExist, Vec::<String>::new()));
            }
            entry.extend(expressions.iter().cloned());
        }
        let is = NodeSelectorRequirement::new(labels::HOSTNAME, Operator::In, [&self.hostname]);
        said.insert(labels::HOSTNAME.to_owned(), vec![is]);
        said
    }

    /// All that the labels of a node bought so may be, up to a bound.
    fn variants(&self, instance_type: &InstanceType, offering: &Offering) -> Vec<Labels> {
        let mut out = vec![Labels::new()];
        for (key, expressions) in self.said(instance_type, offering) {
            let values = values(&expressions);
            // Most labels leave no choice.
            if let [only] = &values[..] {
                for labels in &mut out {
                    labels.extend(only.clone().map(|value| (key.clone(), value)));
                }
                continue;
            }
            out =
                out.iter().flat_map(|labels| values.iter().map(|value| with(labels, &key, value.as_deref()))).collect();
            out.truncate(MAX_VARIANTS);
        }
        out.iter_mut().for_each(add_aliases);
        out
    }
}

fn with(labels: &Labels, key: &str, value: Option<&str>) -> Labels {
    let mut labels = labels.clone();
    labels.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    labels
}

pub(super) fn stable(key: &str) -> String {
    let alias = ALIASES.iter().find(|(old, _)| *old == key);
    alias.map_or(key, |(_, new)| new).to_owned()
}

/// Sets the old names of labels as the kubelet does.
pub(super) fn add_aliases(labels: &mut Labels) {
    for (old, new) in ALIASES {
        if let Some(value) = labels.get(new).cloned() {
            labels.entry(old.to_owned()).or_insert(value);
        }
    }
}

/// The values that a node may have for a label of which all this is said; `None` is a node without the label.
pub(super) fn values(expressions: &[NodeSelectorRequirement]) -> Vec<Option<String>> {
    let fits = |value: Option<&str>| expressions.iter().all(|e| holds(e, value));
    if let Some(named) = expressions.iter().find(|e| e.operator == Operator::In) {
        return named.values.iter().filter(|v| fits(Some(v))).cloned().map(Some).collect();
    }
    let bounds = expressions.iter().filter(|e| !matches!(e.operator, Operator::NotIn)).flat_map(|e| &e.values);
    let near = bounds.filter_map(|v| v.parse::<i64>().ok()).flat_map(|n| [n.saturating_sub(1), n, n.saturating_add(1)]);
    let mut some = [FAR_NUMBER].into_iter().chain(near).map(|n| n.to_string());
    let absent = fits(None).then_some(None);
    absent.into_iter().chain(some.find(|v| fits(Some(v))).map(Some)).collect()
}

/// What pods may have of a machine: its capacity less what the system keeps, and less the memory for huge pages.
pub(super) fn allocatable(instance_type: &InstanceType) -> Amounts {
    let mut out = amounts_of(&instance_type.capacity);
    let overhead = &instance_type.overhead;
    for part in [&overhead.kube_reserved, &overhead.system_reserved, &overhead.eviction_threshold] {
        for (name, amount) in amounts_of(part) {
            out.entry(name).and_modify(|left| *left -= amount);
        }
    }
    let huge_pages: i64 = out.iter().filter(|(name, _)| name.as_str().starts_with("hugepages-")).map(|(_, n)| n).sum();
    if let Some(memory) = out.get_mut(&karpenter_core::ResourceName::Memory) {
        *memory = (*memory - huge_pages).max(0);
    }
    out
}
