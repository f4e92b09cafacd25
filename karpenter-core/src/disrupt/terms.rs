//! What the nodes that a consolidation makes may become, so that it saves money whichever of them is bought.

use std::collections::BTreeSet;

use super::{
    Candidate,
    balance::Balance,
    scene::{Scene, Trial, cheapest_offering, open_offerings},
};
use crate::{Catalog, InstanceType, Offering, Price, Requirement, api::ObjectKey, labels, schedule::PlannedClaim};

/// Prices that differ by less, in dollars an hour, are the same.
const TOLERANCE_PER_HOUR: f64 = 1e-9;

/// How many times as much as at best a node may cost for the sake of more zones to buy it in.
const MOST_FOR_ALL_ZONES: f64 = 1.1;

/// How many instance types Karpenter asks for where one spot node replaces another.
const KARPENTER_SPOT_TYPES: usize = 15;

/// Whether spot nodes are replaced by spot nodes to save money.
///
/// A provider launches spot nodes not as the cheapest type, but as one of those of which the cloud has most. If a spot node
/// were replaced whenever there is a cheaper type, it would become one of ever fewer and scarcer types, which the cloud takes
/// back again and again. Spot nodes whose pods have room elsewhere, or that are replaced by other capacity, are none of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum SpotToSpot {
    /// Never, as Karpenter does by default.
    Never,
    /// Where there are fewer spot nodes afterwards, or each new one keeps a choice among so many types that save money; then it
    /// names the cheapest so many, or as many as `minValues` asks for. After it was launched as one of them, there are no longer
    /// so many that are cheaper, and it stays. A spot node that takes pods of other nodes counts as one that comes for them.
    ///
    /// With 15 types this is Karpenter's rule with the feature gate `SpotToSpotConsolidation`: one spot node becomes another
    /// only with 15 cheaper types, and several become one with any number.
    Flexible {
        /// How many types.
        min_types: usize,
    },
    /// As any other nodes.
    Always,
}

impl Default for SpotToSpot {
    /// Karpenter's rule with its feature gate: without it, spot nodes would never become smaller.
    fn default() -> Self {
        Self::Flexible { min_types: KARPENTER_SPOT_TYPES }
    }
}

/// What the replacements of a command must be like.
pub(super) struct Terms<'t, 's> {
    pub(super) scene: &'t Scene<'s>,
    pub(super) spot_to_spot: SpotToSpot,
    pub(super) balance: &'t Balance,
}

/// What a claim must be like.
struct Term<'t> {
    claim: &'t PlannedClaim,
    catalog: &'t Catalog,
    /// The capacity type by which it is bought cheapest.
    capacity_type: &'t str,
    /// Whether it may be bought by any that it names: one that asks for several cannot be bound to one.
    keeps_capacity_types: bool,
    /// What each type must cost less than, wherever it is bought.
    limit_per_hour: f64,
    /// How many types it must be able to choose from.
    min_types: usize,
    /// The zones where it is to be bought, if not wherever the claim allows.
    zones: Option<Requirement>,
}

impl Terms<'_, '_> {
    /// Whether what is saved is worth the disruption for pools that ask for it, and each replacement has enough types to choose
    /// from with which the nodes cost less.
    pub(super) fn allow(&self, candidates: &[&Candidate], trial: &Trial) -> bool {
        self.balance.approves(candidates, trial.savings_per_hour) && self.leave_choice(candidates, trial)
    }

    /// Whether it makes a difference to these nodes if fewer come than go.
    pub(super) fn favour_fewer(&self, candidates: &[&Candidate]) -> bool {
        let has_spot = candidates.iter().any(|candidate| candidate.is_spot());
        matches!(self.spot_to_spot, SpotToSpot::Flexible { .. }) && candidates.len() > 1 && has_spot
    }

    /// Whether each replacement has enough types to choose from with which the nodes cost less.
    pub(super) fn leave_choice(&self, candidates: &[&Candidate], trial: &Trial) -> bool {
        let is_met = |term: &Term<'_>| term.is_met() || term.by_zones().iter().any(Term::is_met);
        self.of(candidates, trial).is_some_and(|terms| terms.iter().all(is_met))
    }

    /// The same with replacements that name no other types, and are bound to the capacity type by which they are bought, and to
    /// zones if they are too dear in others; `None` if that is not allowed.
    pub(super) fn settle(&self, candidates: &[&Candidate], mut trial: Trial) -> Option<Trial> {
        let before = trial.plan.hourly_cost().dollars_per_hour();
        let terms = self.of(candidates, &trial)?;
        let mut claims: Vec<PlannedClaim> = Vec::new();
        for (index, term) in terms.iter().enumerate() {
            let alike = index.checked_sub(1).filter(|&previous| term.is_like(&terms[previous]));
            let settled = match alike {
                Some(previous) => PlannedClaim { pods: term.claim.pods.clone(), ..claims[previous].clone() },
                None => term.best_settled()?,
            };
            claims.push(settled);
        }
        trial.plan.claims = claims;
        trial.savings_per_hour += before - trial.plan.hourly_cost().dollars_per_hour();
        self.balance.approves(candidates, trial.savings_per_hour).then_some(trial)
    }

    /// The terms of all replacements, among which what the command saves is divided: each may cost so much more than it does at
    /// best. `None` if a spot node must not come for another, or a replacement cannot be bought.
    fn of<'t>(&'t self, candidates: &[&Candidate], trial: &'t Trial) -> Option<Vec<Term<'t>>> {
        let claims = &trial.plan.claims;
        let share = trial.savings_per_hour / claims.len().max(1) as f64;
        let terms: Option<Vec<Term<'t>>> = claims.iter().map(|claim| Term::new(self.scene, claim, share)).collect();
        let mut terms = terms?;
        let spot = candidates.iter().filter(|candidate| candidate.is_spot()).count();
        if self.spot_to_spot == SpotToSpot::Always || spot == 0 || !terms.iter().any(Term::is_spot) {
            return Some(terms);
        }
        let others = candidates.iter().filter(|candidate| !candidate.is_spot());
        let others: BTreeSet<usize> = others.flat_map(|candidate| candidate.pods.iter().copied()).collect();
        let pod_index = |pod: &ObjectKey| self.scene.snapshot.pod_index(pod);
        let is_of_other =
            |pod: &ObjectKey| !others.is_empty() && pod_index(pod).is_some_and(|pod| others.contains(&pod));
        let of_spot = |term: &&mut Term<'_>| term.is_spot() && !term.claim.pods.iter().any(is_of_other);
        let of_spot: Vec<&mut Term<'_>> = terms.iter_mut().filter(of_spot).collect();
        match self.spot_to_spot {
            SpotToSpot::Never if !of_spot.is_empty() => return None,
            SpotToSpot::Flexible { min_types } if of_spot.len() >= spot => {
                for term in of_spot {
                    term.min_types = min_types.max(1);
                }
            }
            _ => {}
        }
        Some(terms)
    }
}

impl<'t> Term<'t> {
    fn new(scene: &'t Scene<'_>, claim: &'t PlannedClaim, share: f64) -> Option<Self> {
        let catalog = scene.catalogs.get(&claim.node_pool)?;
        let first = catalog.get(claim.instance_types.first()?)?;
        let cheapest = cheapest_offering(catalog, first, claim)?;
        let limit_per_hour = claim.cheapest_price.dollars_per_hour() + share - TOLERANCE_PER_HOUR;
        Some(Self {
            claim,
            catalog,
            capacity_type: cheapest.label(labels::CAPACITY_TYPE),
            keeps_capacity_types: asks_for_several(claim, labels::CAPACITY_TYPE),
            limit_per_hour,
            min_types: 1,
            zones: None,
        })
    }

    /// The same bound to the zones in which the cheapest type costs less than the limit, and to the one in which it costs least. None
    /// if the claim asks for several zones.
    fn by_zones(&self) -> Vec<Self> {
        let first = self.claim.instance_types.first().and_then(|name| self.catalog.get(name));
        let Some(first) = first.filter(|_| !asks_for_several(self.claim, labels::ZONE)) else { return Vec::new() };
        let zone = |offering: &'t Offering| Some(offering.label(labels::ZONE)).filter(|zone| !zone.is_empty());
        let is_cheap = |offering: &&Offering| offering.price.dollars_per_hour() < self.limit_per_hour;
        let cheap: BTreeSet<&str> = self.offerings(first).filter(is_cheap).filter_map(zone).collect();
        let cheapest = self.offerings(first).min_by_key(|offering| offering.price).and_then(zone);
        let all = [cheap, cheapest.into_iter().collect()].into_iter().filter(|zones| !zones.is_empty());
        all.map(|zones| Self { zones: Some(Requirement::one_of(zones)), ..*self }).collect()
    }

    /// Whether there are types enough, with as many values as the claim asks for.
    fn is_met(&self) -> bool {
        let has_values = || self.prefix_for_min_values(self.all().map(|(source, _)| source)).is_some();
        self.all().take(self.min_types).count() == self.min_types && has_values()
    }

    fn is_spot(&self) -> bool {
        self.capacity_type == labels::SPOT
    }

    fn is_reserved(&self) -> bool {
        self.capacity_type == labels::RESERVED
    }

    fn is_like(&self, other: &Self) -> bool {
        let (own, others) = (self.claim, other.claim);
        own.node_pool == others.node_pool
            && own.instance_types == others.instance_types
            && own.requirements == others.requirements
            && own.requests == others.requests
            && own.labels == others.labels
            && self.min_types == other.min_types
            && self.limit_per_hour.total_cmp(&other.limit_per_hour).is_eq()
    }

    /// The types that cost less than the limit wherever they may be bought, in the order of the claim, with the least that each
    /// costs.
    fn all(&self) -> impl Iterator<Item = (&'t InstanceType, Price)> {
        let known = self.claim.instance_types.iter().filter_map(|name| self.catalog.get(name));
        known.filter_map(|source| {
            let prices = self.offerings(source).map(|offering| offering.price);
            let (least, most) = (prices.clone().min()?, prices.max()?);
            (most.dollars_per_hour() < self.limit_per_hour).then_some((source, least))
        })
    }

    fn offerings(&self, source: &'t InstanceType) -> impl Iterator<Item = &'t Offering> + Clone {
        let open = open_offerings(self.catalog, source, &self.claim.requirements);
        open.filter(|offering| {
            let is_there = |zones: &Requirement| zones.admits(Some(offering.label(labels::ZONE)));
            let is_meant = self.keeps_capacity_types || offering.label(labels::CAPACITY_TYPE) == self.capacity_type;
            is_meant && self.zones.as_ref().is_none_or(is_there)
        })
    }

    /// How many of some types, from the first on, have as many values of each label as the claim asks for; `None` if all of them
    /// have too few. A claim that is bound to a reservation names others for it, which it cannot become.
    fn prefix_for_min_values(&self, types: impl Iterator<Item = &'t InstanceType>) -> Option<usize> {
        let asked = self.claim.requirements.iter().filter(|_| !self.is_reserved());
        let asked = asked.filter_map(|(key, requirement)| Some((key, requirement.min_values()?, BTreeSet::new())));
        let mut missing: Vec<(&str, u32, BTreeSet<&str>)> = asked.collect();
        if missing.is_empty() {
            return Some(0);
        }
        let has_all = |source: &'t InstanceType| {
            missing.retain_mut(|(key, least, seen)| {
                seen.extend(source.values_of(key));
                seen.len() < *least as usize
            });
            missing.is_empty()
        };
        let last = types.map(has_all).position(|has_all| has_all)?;
        Some(last + 1)
    }

    /// The claim with the terms, bound to zones if it would be much dearer otherwise.
    fn best_settled(&self) -> Option<PlannedClaim> {
        let anywhere = self.settled();
        let most_per_hour = self.claim.cheapest_price.dollars_per_hour() * MOST_FOR_ALL_ZONES;
        let is_cheap = |claim: &PlannedClaim| claim.cheapest_price.dollars_per_hour() <= most_per_hour;
        if anywhere.as_ref().is_some_and(is_cheap) {
            return anywhere;
        }
        let by_zones = self.by_zones();
        let all = anywhere.into_iter().chain(by_zones.iter().filter_map(Self::settled));
        all.min_by_key(|claim| claim.cheapest_price)
    }

    /// The claim that names these types alone, and not more of them than it must if it must have several. A claim that is bound to
    /// a reservation still names what counts for `minValues` alone.
    fn settled(&self) -> Option<PlannedClaim> {
        let mut types: Vec<_> = self.all().collect();
        types.sort_by(|(a, own), (b, other)| (own, &a.name).cmp(&(other, &b.name)));
        let prefix = self.prefix_for_min_values(types.iter().map(|&(source, _)| source))?;
        if types.len() < self.min_types {
            return None;
        }
        if self.min_types > 1 {
            types.truncate(self.min_types.max(prefix));
        }
        let &(_, cheapest_price) = types.first()?;
        let mut claim = self.claim.clone();
        let is_unbuyable = |source: &InstanceType| self.offerings(source).next().is_none();
        let counts_alone = |name: &&String| self.is_reserved() && self.catalog.get(name).is_some_and(is_unbuyable);
        let others = self.claim.instance_types.iter().filter(counts_alone);
        claim.instance_types = types.iter().map(|(source, _)| &source.name).chain(others).cloned().collect();
        claim.cheapest_price = cheapest_price;
        if !self.capacity_type.is_empty() && !self.keeps_capacity_types {
            claim.requirements.add(labels::CAPACITY_TYPE, Requirement::one_of([self.capacity_type]));
        }
        if let Some(zones) = &self.zones {
            claim.requirements.add(labels::ZONE, zones.clone());
        }
        Some(claim)
    }
}

/// Whether a claim asks for several values of a label.
fn asks_for_several(claim: &PlannedClaim, key: &str) -> bool {
    claim.requirements.get(key).is_some_and(|asked| asked.min_values().is_some_and(|least| least > 1))
}
