//! Spread constraints that must hold (the filter `PodTopologySpread`), in the order of binding that is kindest to the
//! plan: a domain is held to a constraint as it is when the last pod that has the constraint comes to it, while all
//! other domains are as full as they end.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::api::{InclusionPolicy, NodeSelectorRequirement, Pod, Toleration, TopologySpreadConstraint};

use super::{
    domains::{Domains, OpenDomains},
    scene::{Scene, World, hard_keys, is_hard},
    selector::{Census, PodSelector},
};
use crate::checker::{
    Violation,
    filters::{misfit, untolerated},
};

/// Constraints that say the same, of pods that count the same nodes.
struct SpreadRule<'a> {
    terms: SpreadTerms<'a>,
    owners: Vec<Owner>,
    /// The pods that are counted, in order.
    counted: Vec<usize>,
}

/// What a constraint says.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SpreadTerms<'a> {
    topology_key: &'a str,
    max_skew: i64,
    min_domains: usize,
    /// Which nodes count, by its place among those of [`SpreadRules`].
    filter: usize,
    /// Which pods count.
    selector: PodSelector<'a>,
}

struct Owner {
    actor: usize,
    /// The domains that could be made for it.
    open: OpenDomains,
}

/// All rules of new pods.
pub(super) struct SpreadRules<'a> {
    filters: Vec<NodeFilter<'a>>,
    rules: Vec<SpreadRule<'a>>,
}

type Terms<'a> = Vec<(&'a [NodeSelectorRequirement], &'a [NodeSelectorRequirement])>;

/// Which nodes count for a constraint.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FilterKey<'a> {
    /// The labels that they have.
    keys: BTreeSet<&'a str>,
    /// The pod's node selector and node affinity, if they are to be honoured.
    affinity: Option<(&'a BTreeMap<String, String>, Option<Terms<'a>>)>,
    /// The pod's tolerations, if taints are to be honoured.
    tolerations: Option<&'a [Toleration]>,
}

impl<'a> FilterKey<'a> {
    fn new(pod: &'a Pod, constraint: &TopologySpreadConstraint) -> Self {
        let spec = &pod.spec;
        let honours_affinity = constraint.node_affinity_policy != Some(InclusionPolicy::Ignore);
        let honours_taints = constraint.node_taints_policy == Some(InclusionPolicy::Honor);
        let terms = spec.affinity.node_affinity.required.as_ref().map(|selector| {
            let terms = selector.node_selector_terms.iter();
            terms.map(|term| (&term.match_expressions[..], &term.match_fields[..])).collect()
        });
        Self {
            keys: hard_keys(spec),
            affinity: honours_affinity.then_some((&spec.node_selector, terms)),
            tolerations: honours_taints.then_some(&spec.tolerations),
        }
    }
}

struct NodeFilter<'a> {
    key: FilterKey<'a>,
    /// A pod that filters so.
    pod: &'a Pod,
}

impl NodeFilter<'_> {
    fn counts(&self, world: &World<'_, '_>, site: usize) -> bool {
        let (labels, node) = (world.labels(site), &world.scene.sites[site]);
        self.key.keys.iter().all(|key| labels.contains_key(*key))
            && (self.key.affinity.is_none() || misfit(&self.pod.spec, &node.name, labels).is_none())
            && (self.key.tolerations.is_none() || untolerated(&self.pod.spec, node.taints, false).is_none())
    }
}

impl<'a> SpreadTerms<'a> {
    fn new(owner: &'a Pod, constraint: &'a TopologySpreadConstraint, filter: usize) -> Self {
        Self {
            topology_key: &constraint.topology_key,
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint.min_domains.and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
            filter,
            selector: PodSelector::of_constraint(owner, constraint),
        }
    }
}

impl<'a> SpreadRules<'a> {
    pub(super) fn new(scene: &Scene<'a>, census: &Census<'_>, domains: &mut Domains<'_, 'a>) -> Self {
        let mut filters: BTreeMap<FilterKey<'a>, (usize, &'a Pod)> = BTreeMap::new();
        let mut owners: BTreeMap<SpreadTerms<'a>, Vec<Owner>> = BTreeMap::new();
        for (i, actor) in scene.new_actors() {
            for constraint in actor.pod.spec.topology_spread_constraints.iter().filter(|c| is_hard(c)) {
                let count = filters.len();
                let filter = filters.entry(FilterKey::new(actor.pod, constraint)).or_insert((count, actor.pod)).0;
                let open = domains.open_to(actor.pod, &constraint.topology_key);
                let terms = SpreadTerms::new(actor.pod, constraint, filter);
                owners.entry(terms).or_default().push(Owner { actor: i, open });
            }
        }
        let rule = |(terms, owners): (SpreadTerms<'a>, Vec<Owner>)| {
            let mut counted = census.selected_by(&terms.selector);
            counted.retain(|&i| !scene.actors[i].pod.is_terminating());
            SpreadRule { terms, owners, counted }
        };
        let rules = owners.into_iter().map(rule).collect();
        let mut filters: Vec<_> = filters.into_iter().collect();
        filters.sort_by_key(|(_, (index, _))| *index);
        let filters = filters.into_iter().map(|(key, (_, pod))| NodeFilter { key, pod }).collect();
        Self { filters, rules }
    }

    pub(super) fn check(&self, world: &World<'_, '_>) -> Vec<Violation> {
        let mut reaches: BTreeMap<(usize, &str), [Reach<'_>; 2]> = BTreeMap::new();
        let mut violations = Vec::new();
        for rule in &self.rules {
            let SpreadTerms { topology_key, filter, .. } = rule.terms;
            let lacking = rule.owners.iter().find(|owner| world.domain_of(owner.actor, topology_key).is_none());
            violations.extend(lacking.map(|owner| world.lacks_label(owner.actor, topology_key)));
            let reach = reaches.entry((filter, topology_key)).or_insert_with(|| {
                let filter = &self.filters[filter];
                [false, true].map(|with_all| Reach::new(filter, world, topology_key, with_all))
            });
            // Nodes that may not be there: the kinder case.
            let breaches = reach.each_ref().map(|reach| rule.breach(world, reach));
            if let [Some(violation), Some(_)] = breaches {
                violations.push(violation);
            }
        }
        violations
    }
}

/// The nodes that count, and their domains.
struct Reach<'s> {
    /// The domain of each node that counts.
    of_site: Vec<Option<&'s str>>,
    domains: BTreeSet<&'s str>,
}

impl<'s> Reach<'s> {
    /// Nodes that may not be there and take no new pods count only `with_all`.
    fn new(filter: &NodeFilter<'_>, world: &World<'s, '_>, topology_key: &str, with_all: bool) -> Self {
        let domain = |(i, site): (usize, &super::scene::Site<'_>)| {
            let is_there = with_all || !site.may_be_missing || site.has_new_pods;
            world.domain(i, topology_key).filter(|_| is_there && filter.counts(world, i))
        };
        let of_site: Vec<_> = world.scene.sites.iter().enumerate().map(domain).collect();
        Self { domains: of_site.iter().copied().flatten().collect(), of_site }
    }
}

/// How many counted pods a domain has.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Running pods.
    running: i64,
    /// Those, and the new ones that have the constraint themselves.
    at_last_owner: i64,
    /// All.
    at_the_end: i64,
}

impl SpreadRule<'_> {
    /// The fullest domain that breaks the constraint.
    fn breach(&self, world: &World<'_, '_>, reach: &Reach<'_>) -> Option<Violation> {
        let owners: BTreeSet<usize> = self.owners.iter().map(|owner| owner.actor).collect();
        let tallies = self.tallies(world, reach, &owners);
        let mut of_domain: BTreeMap<&str, Vec<&Owner>> = BTreeMap::new();
        for owner in &self.owners {
            if let Some(domain) = reach.of_site[world.actor(owner.actor).site] {
                of_domain.entry(domain).or_default().push(owner);
            }
        }
        let lowest = Lowest::of(&tallies);
        let mut worst: Option<(i64, i64, &Owner, &str)> = None;
        for (domain, owners) in of_domain {
            let tally = tallies.get(domain).copied().unwrap_or_default();
            let counts_itself = owners.iter().any(|owner| self.counted.binary_search(&owner.actor).is_ok());
            let count = if counts_itself { tally.at_last_owner } else { tally.running };
            // The last one may be whoever could have the fewest empty domains.
            let minimum = |owner: &Owner| self.minimum(domain, tally, owner, reach, &tallies, &lowest);
            let last = owners.into_iter().map(|owner| (minimum(owner), owner)).max_by_key(|(minimum, _)| *minimum);
            let Some((minimum, last)) = last else { continue };
            if count - minimum > self.terms.max_skew && worst.is_none_or(|(most, ..)| count > most) {
                worst = Some((count, minimum, last, domain));
            }
        }
        let (count, minimum, last, domain) = worst?;
        Some(Violation::Spread {
            pod: world.actor(last.actor).key.clone(),
            node: world.node_of(last.actor),
            topology_key: self.terms.topology_key.to_owned(),
            domain: domain.to_owned(),
            count,
            minimum,
            max_skew: self.terms.max_skew,
        })
    }

    fn tallies<'s>(
        &self,
        world: &World<'s, '_>,
        reach: &Reach<'s>,
        owners: &BTreeSet<usize>,
    ) -> BTreeMap<&'s str, Tally> {
        let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
        for &i in &self.counted {
            let actor = world.actor(i);
            let Some(domain) = reach.of_site[actor.site] else { continue };
            let tally = tallies.entry(domain).or_default();
            tally.at_the_end += 1;
            tally.running += i64::from(!actor.is_new);
            tally.at_last_owner += i64::from(!actor.is_new || owners.contains(&i));
        }
        tallies
    }

    /// The count of the emptiest domain when the last owner comes to `domain`.
    fn minimum(
        &self,
        domain: &str,
        tally: Tally,
        owner: &Owner,
        reach: &Reach<'_>,
        tallies: &BTreeMap<&str, Tally>,
        lowest: &Lowest<'_>,
    ) -> i64 {
        let to_open = owner.open.iter().filter(|open| !reach.domains.contains(open.as_str())).count();
        let domain_count = reach.domains.len() + to_open;
        let others_with_pods = tallies.len() - usize::from(tallies.contains_key(domain));
        if domain_count < self.terms.min_domains || domain_count > others_with_pods + 1 {
            return 0;
        }
        lowest.but(domain).map_or(tally.at_last_owner, |other| other.min(tally.at_last_owner))
    }
}

/// The two emptiest of the domains that have pods.
struct Lowest<'s>(Vec<(i64, &'s str)>);

impl<'s> Lowest<'s> {
    fn of(tallies: &BTreeMap<&'s str, Tally>) -> Self {
        let mut all: Vec<_> = tallies.iter().map(|(domain, tally)| (tally.at_the_end, *domain)).collect();
        all.sort_unstable();
        all.truncate(2);
        Self(all)
    }

    fn but(&self, domain: &str) -> Option<i64> {
        self.0.iter().find(|(_, other)| *other != domain).map(|(count, _)| *count)
    }
}
