//! Which of the offerings that a claim allows are asked for.

use std::collections::BTreeSet;

use karpenter_core::{
    Catalog, InstanceType, Offering, Price, Requirements, ResourceList,
    api::{NodeClaim, NodeSelectorRequirement},
    labels,
};

use crate::instance_type::{NITRO_SANDBOX, labels as own};

/// The most instance types of one request, as many as Karpenter asks for.
pub(crate) const MAX_TYPES: usize = 60;
/// Resources of machines that nobody gets by chance.
const EXOTIC: [&str; 5] =
    ["aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "amd.com/gpu", "nvidia.com/gpu", "habana.ai/gaudi"];
/// On a claim, as an annotation: the least numbers of values were given up already.
pub(crate) const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";

/// Labels of machines, and all values that they can have.
const KNOWN_VALUES: [(&str, &[&str]); 2] = [
    (own::TENANCY, &["default", "dedicated"]),
    (labels::CAPACITY_TYPE, &[labels::SPOT, labels::ON_DEMAND, labels::RESERVED]),
];

/// An instance type and those of its offerings that are still in question.
#[derive(Clone, Debug)]
pub(crate) struct Pick<'c> {
    pub(crate) instance_type: &'c InstanceType,
    pub(crate) offerings: Vec<&'c Offering>,
}

impl Pick<'_> {
    fn cheapest(&self) -> Option<Price> {
        self.offerings.iter().map(|offering| offering.price).min()
    }

    fn of_kind(&self, capacity_type: &str) -> impl Iterator<Item = &Offering> {
        self.offerings.iter().copied().filter(move |offering| offering.label(labels::CAPACITY_TYPE) == capacity_type)
    }
}

/// What the labels of a claim's node must be like.
pub(crate) struct Wanted {
    pub(crate) requirements: Requirements,
    requests: ResourceList,
    min_values: Vec<NodeSelectorRequirement>,
}

impl Wanted {
    pub(crate) fn of_claim(claim: &NodeClaim) -> Self {
        let is_relaxed = claim.metadata.annotations.get(MIN_VALUES_RELAXED).is_some_and(|value| value == "true");
        let counted = claim.spec.requirements.iter().filter(|r| r.min_values.is_some() && !is_relaxed);
        let requests = claim.spec.resources.requests.iter().filter(|(name, _)| name.as_str() != NITRO_SANDBOX);
        Self {
            requirements: claim.spec.requirements.iter().collect(),
            requests: requests.map(|(name, quantity)| (name.clone(), quantity)).collect(),
            min_values: counted.cloned().collect(),
        }
    }

    /// All offerings that meet the requirements, on types that have room for the requests, whether available or not.
    pub(crate) fn allowed<'c>(&self, catalog: &'c Catalog) -> Vec<Pick<'c>> {
        let pick = |instance_type: &'c InstanceType| {
            let meets = |o: &&Offering| catalog.unmet(instance_type, o, &self.requirements).is_none();
            let offerings: Vec<_> = instance_type.offerings.iter().filter(meets).collect();
            let is_allowed = !offerings.is_empty() && self.requests.fits(&instance_type.allocatable());
            is_allowed.then_some(Pick { instance_type, offerings })
        };
        catalog.types().iter().filter_map(pick).collect()
    }

    /// The requirement that no offering can ever meet, or else the one that rules most out, in words.
    pub(crate) fn explain(&self, catalog: &Catalog) -> String {
        let is_unknown = |(key, values): &&(&str, &[&str])| {
            self.requirements.get(key).is_some_and(|wanted| !values.iter().any(|value| wanted.admits(Some(value))))
        };
        if let Some((key, values)) = KNOWN_VALUES.iter().find(is_unknown) {
            return format!("{key} admits none of the values that there are: {}", values.join(", "));
        }
        let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
        let mut total = 0;
        for instance_type in catalog.types() {
            for offering in &instance_type.offerings {
                total += 1;
                if let Some((key, _)) = catalog.unmet(instance_type, offering, &self.requirements) {
                    *counts.entry(key).or_default() += 1;
                }
            }
        }
        match counts.into_iter().max_by_key(|(_, count)| *count) {
            Some((key, count)) => format!("{key} rules out {count} of {total} offerings"),
            None if total == 0 => "there are no offerings".to_owned(),
            None => format!("no instance type has room for {}", self.requests),
        }
    }

    fn allows(&self, capacity_type: &str) -> bool {
        self.requirements.get(labels::CAPACITY_TYPE).is_none_or(|wanted| wanted.admits(Some(capacity_type)))
    }

    /// Whether there is a choice to be kept wide.
    const fn counts_values(&self) -> bool {
        !self.min_values.is_empty()
    }
}

/// What of the available offerings to ask for, in the order of upstream's filters.
pub(crate) fn narrow<'c>(wanted: &Wanted, picks: Vec<Pick<'c>>) -> Vec<Pick<'c>> {
    let mut picks = picks;
    if wanted.allows(labels::RESERVED) {
        picks = one_kind_of_reservation(picks);
        picks = one_capacity_block(picks);
        picks = fullest_reservations(picks);
    }
    if !wanted.counts_values() {
        picks = without_exotic(picks);
        if wanted.allows(labels::SPOT) && wanted.allows(labels::ON_DEMAND) {
            picks = without_dear_spot(picks);
        }
    }
    truncate(wanted, picks)
}

/// How a reservation is bought: only machines of one kind go into one request. In the order of preference.
fn reservation_kind(offering: &Offering) -> Option<(bool, bool)> {
    let is_reserved = offering.label(labels::CAPACITY_TYPE) == labels::RESERVED;
    is_reserved.then(|| {
        (offering.label(own::RESERVATION_INTERRUPTIBLE) == "true", offering.label(own::RESERVATION_TYPE) != "default")
    })
}

/// Keeps the reservations of the kind that has the cheapest one, and nothing else; all if there are no reservations.
fn one_kind_of_reservation(picks: Vec<Pick<'_>>) -> Vec<Pick<'_>> {
    let all = picks.iter().flat_map(|pick| &pick.offerings);
    let kinds = all.filter_map(|offering| Some((offering.price, reservation_kind(offering)?)));
    let Some((_, kind)) = kinds.min() else { return picks };
    keep_offerings(picks, |_, offering| reservation_kind(offering) == Some(kind))
}

/// Keeps the cheapest capacity block alone, if blocks are what is left.
fn one_capacity_block(picks: Vec<Pick<'_>>) -> Vec<Pick<'_>> {
    let first = picks.iter().flat_map(|pick| &pick.offerings).next();
    let is_block = first.is_some_and(|offering| offering.label(own::RESERVATION_TYPE) == "capacity-block");
    let all = picks.iter().flat_map(|pick| pick.offerings.iter().map(move |o| (o.price, &pick.instance_type.name, *o)));
    let cheapest = all.min_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1))).map(|(_, _, offering)| offering);
    match cheapest.filter(|_| is_block) {
        Some(cheapest) => keep_offerings(picks, |_, offering| std::ptr::eq(offering, cheapest)),
        None => picks,
    }
}

/// Keeps, of each type and zone, the reservation with most machines left, if there are reservations.
fn fullest_reservations(picks: Vec<Pick<'_>>) -> Vec<Pick<'_>> {
    let is_reserved = |offering: &Offering| reservation_kind(offering).is_some();
    if !picks.iter().flat_map(|pick| &pick.offerings).any(|offering| is_reserved(offering)) {
        return picks;
    }
    let fullest = |pick: &Pick<'_>, offering: &Offering| {
        let rank = |o: &Offering| {
            (o.reservation_capacity.unwrap_or(0), std::cmp::Reverse(o.label(own::RESERVATION_ID).to_owned()))
        };
        let rivals = pick.offerings.iter().filter(|o| o.label(labels::ZONE) == offering.label(labels::ZONE));
        rivals.filter(|o| is_reserved(o)).all(|rival| rank(rival) <= rank(offering))
    };
    keep_offerings(picks, |pick, offering| is_reserved(offering) && fullest(pick, offering))
}

/// Leaves out bare metal and accelerators if anything else is left.
fn without_exotic(picks: Vec<Pick<'_>>) -> Vec<Pick<'_>> {
    let is_exotic = |pick: &Pick<'_>| {
        let size = pick.instance_type.requirements.get(own::SIZE).and_then(|size| size.values().next()).unwrap_or("");
        let has = |resource: &str| pick.instance_type.capacity.get(resource).is_some_and(|q| !q.is_zero());
        size.contains("metal") || EXOTIC.into_iter().any(has)
    };
    let (exotic, plain): (Vec<_>, Vec<_>) = picks.into_iter().partition(is_exotic);
    if plain.is_empty() { exotic } else { plain }
}

/// Leaves out spot machines that are dearer than the cheapest on-demand machine, if there is one.
fn without_dear_spot(picks: Vec<Pick<'_>>) -> Vec<Pick<'_>> {
    let on_demand = picks.iter().flat_map(|pick| pick.of_kind(labels::ON_DEMAND)).map(|offering| offering.price).min();
    let has_spot = picks.iter().any(|pick| pick.of_kind(labels::SPOT).next().is_some());
    let Some(limit) = on_demand.filter(|_| has_spot) else { return picks };
    keep_offerings(picks, |_, offering| {
        offering.label(labels::CAPACITY_TYPE) != labels::SPOT || offering.price <= limit
    })
}

/// Keeps the cheapest types, and of dearer ones those without which a least number of values is not reached.
fn truncate<'c>(wanted: &Wanted, mut picks: Vec<Pick<'c>>) -> Vec<Pick<'c>> {
    picks.sort_by(|a, b| (a.cheapest(), &a.instance_type.name).cmp(&(b.cheapest(), &b.instance_type.name)));
    if picks.len() <= MAX_TYPES {
        return picks;
    }
    let mut needed: Vec<usize> = Vec::new();
    for counted in &wanted.min_values {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let least = counted.min_values.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        for (at, pick) in picks.iter().enumerate() {
            let before = seen.len();
            let allowed = wanted.requirements.get(&counted.key);
            let values = pick.instance_type.values_of(&counted.key);
            seen.extend(values.filter(|value| allowed.is_none_or(|allowed| allowed.admits(Some(value)))));
            if seen.len() > before && before < least {
                needed.push(at);
            }
        }
    }
    needed.sort_unstable();
    needed.dedup();
    needed.truncate(MAX_TYPES);
    let spare = (0..picks.len()).filter(|at| !needed.contains(at)).take(MAX_TYPES - needed.len());
    let kept: BTreeSet<usize> = needed.iter().copied().chain(spare).collect();
    picks.into_iter().enumerate().filter(|(at, _)| kept.contains(at)).map(|(_, pick)| pick).collect()
}

/// The picks with those of their offerings that are kept; one without offerings goes.
pub(crate) fn keep_offerings<'c>(
    picks: Vec<Pick<'c>>,
    keeps: impl Fn(&Pick<'c>, &'c Offering) -> bool,
) -> Vec<Pick<'c>> {
    let narrowed = picks.into_iter().map(|pick| {
        let offerings = pick.offerings.iter().copied().filter(|offering| keeps(&pick, offering)).collect();
        Pick { instance_type: pick.instance_type, offerings }
    });
    narrowed.filter(|pick| !pick.offerings.is_empty()).collect()
}

/// So many instance types are few to fall back on.
const FEW_TYPES: usize = 5;

/// What people should know if a claim that may be a spot machine becomes one on demand, of few instance types: so few may be
/// sold out together.
pub(crate) fn few_to_fall_back_on(wanted: &Wanted, picks: &[Pick<'_>], capacity_type: &str) -> Option<String> {
    let falls_back = capacity_type == labels::ON_DEMAND && wanted.allows(labels::SPOT);
    (falls_back && picks.len() < FEW_TYPES).then(|| {
        let count = picks.len();
        format!("Bought on demand and not as spot, of {count} instance types to choose from: allow {FEW_TYPES} or more")
    })
}

/// What the machine is bought as: from a reservation before spot, and spot before on-demand.
pub(crate) fn capacity_type(picks: &[Pick<'_>]) -> Option<&'static str> {
    let has = |kind: &&str| picks.iter().any(|pick| pick.of_kind(kind).next().is_some());
    [labels::RESERVED, labels::SPOT, labels::ON_DEMAND].into_iter().find(has)
}

#[cfg(test)]
mod tests {
    use karpenter_core::{Quantity, Requirement, api::Operator};

    use super::*;

    fn price(dollars: f64) -> Price {
        Price::per_hour(dollars).expect("a price")
    }

    fn machine(name: &str, on_demand: f64, spot: f64) -> InstanceType {
        let mut out = InstanceType::named(name, [("cpu", Quantity::from_units(2))])
            .offering(labels::ON_DEMAND, "a", price(on_demand))
            .offering(labels::SPOT, "a", price(spot));
        out.requirements.add(own::SIZE, Requirement::one_of([name.split('.').next_back().unwrap_or("")]));
        out.requirements.add("family", Requirement::one_of([name.split('.').next().unwrap_or("")]));
        out
    }

    fn reserved(mut of: InstanceType, id: &str, kind: &str, left: u32, dollars: f64) -> InstanceType {
        let mut offering = Offering::new(labels::RESERVED, "a", price(dollars));
        offering.requirements.add(own::RESERVATION_ID, Requirement::one_of([id]));
        offering.requirements.add(own::RESERVATION_TYPE, Requirement::one_of([kind]));
        offering.requirements.add(own::RESERVATION_INTERRUPTIBLE, Requirement::one_of(["false"]));
        offering.reservation_capacity = Some(left);
        of.offerings.push(offering);
        of
    }

    fn claim(requirements: &[(&str, &[&str])]) -> NodeClaim {
        let mut claim = NodeClaim::named("c");
        for (key, values) in requirements {
            claim.spec.requirements.push(NodeSelectorRequirement::new(*key, Operator::In, values.iter().copied()));
        }
        claim
    }

    /// The types, and how many offerings each has.
    fn kept(claim: &NodeClaim, types: Vec<InstanceType>) -> Vec<(String, usize)> {
        let catalog = Catalog::new(types).expect("a catalog");
        let wanted = Wanted::of_claim(claim);
        let picks = narrow(&wanted, wanted.allowed(&catalog));
        picks.into_iter().map(|pick| (pick.instance_type.name.clone(), pick.offerings.len())).collect()
    }

    fn names(kept: &[(String, usize)]) -> Vec<&str> {
        kept.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn bare_metal_is_for_those_who_have_nothing_else() {
        let types = || vec![machine("m5.large", 0.1, 0.05), machine("m5.metal", 4.0, 0.01)];
        assert_eq!(names(&kept(&claim(&[]), types())), ["m5.large"]);
        let metal = claim(&[(labels::INSTANCE_TYPE, &["m5.metal"])]);
        assert_eq!(names(&kept(&metal, types())), ["m5.metal"]);
        let mut wide = claim(&[("family", &["m5"])]);
        wide.spec.requirements[0].min_values = Some(1);
        assert_eq!(kept(&wide, types()).len(), 2, "the choice is kept wide");
    }

    #[test]
    fn spot_that_is_dearer_than_on_demand_is_left_out() {
        let types = || vec![machine("a.large", 0.1, 0.05), machine("b.large", 0.5, 0.2)];
        assert_eq!(kept(&claim(&[]), types()), [("a.large".to_owned(), 2), ("b.large".to_owned(), 1)]);
        let spot = claim(&[(labels::CAPACITY_TYPE, &[labels::SPOT])]);
        assert_eq!(kept(&spot, types()).len(), 2, "there is no on-demand to compare with");
    }

    #[test]
    fn of_reservations_the_fullest_of_the_cheapest_kind_is_taken() {
        let plain = || machine("a.large", 0.1, 0.05);
        let two = reserved(reserved(plain(), "cr-1", "default", 1, 1e-8), "cr-2", "default", 5, 1e-8);
        let found = kept(&claim(&[]), vec![two, machine("b.large", 0.01, 0.005)]);
        assert_eq!(found, [("a.large".to_owned(), 1)], "and nothing beside it");
        let blocks = reserved(reserved(plain(), "cr-1", "capacity-block", 9, 2e-8), "cr-2", "capacity-block", 1, 1e-8);
        let catalog = Catalog::new(vec![blocks]).expect("a catalog");
        let wanted = Wanted::of_claim(&claim(&[]));
        let picks = narrow(&wanted, wanted.allowed(&catalog));
        assert_eq!(picks[0].offerings[0].label(own::RESERVATION_ID), "cr-2", "the cheapest block");
        assert_eq!(capacity_type(&picks), Some(labels::RESERVED));
    }

    #[test]
    fn dear_types_stay_where_values_are_counted() {
        let mut types: Vec<_> =
            (0..80).map(|i| machine(&format!("a.{i}x"), 0.1 + f64::from(i) / 100.0, 0.05)).collect();
        types.push(machine("z.large", 9.0, 8.0));
        let free = kept(&claim(&[("family", &["a", "z"])]), types.clone());
        assert_eq!((free.len(), names(&free).contains(&"z.large")), (MAX_TYPES, false));
        let mut wide = claim(&[("family", &["a", "z"])]);
        wide.spec.requirements[0].min_values = Some(2);
        let counted = kept(&wide, types);
        assert_eq!((counted.len(), names(&counted).contains(&"z.large")), (MAX_TYPES, true));
    }

    #[test]
    fn a_type_must_have_room() {
        let mut large = claim(&[]);
        large.spec.resources.requests.insert("cpu".into(), Quantity::from_units(3));
        assert!(kept(&large, vec![machine("a.large", 0.1, 0.05)]).is_empty());
    }
}
