//! What the rules of a class mean for its nodes, as things stand.

use std::{collections::BTreeSet, sync::Arc};

use super::{Rules, Spread, Term, allot::Allotter, near::Company, offers::Reach, quota::Rule};
use crate::{NodeAlternatives, Requirement, Requirements, reason::TopologyObstacle};

/// What the pods of a class ask of their nodes and domains.
pub(super) struct Seek {
    pub(super) wanted: NodeAlternatives,
    /// Labels of which all pods get the same value, to be chosen.
    pub(super) one_of: Vec<Arc<str>>,
    /// Whether pods that find no place with the others find none at all.
    pub(super) needs_one_domain: bool,
    /// Rules that count the pods themselves, so that they must be divided.
    pub(super) counted: Vec<(Term, CountedRule)>,
    /// The labels over which the pods must be spread: only nodes with all of them are counted.
    pub(super) spread_keys: Vec<Arc<str>>,
    /// Labels that only keep pods apart: on a node that lacks one, nobody is near by it.
    pub(super) apart: BTreeSet<Arc<str>>,
    /// What their nodes are like in any case.
    pub(super) pins: Requirements,
    pub(super) place: Place,
    /// The rules that took domains away.
    pub(super) causes: Vec<TopologyObstacle>,
}

impl Seek {
    /// The same on nodes that lack one of the labels which only keep pods apart, for each such label, and on nodes that lack
    /// all of them.
    pub(super) fn without_labels(&self) -> impl Iterator<Item = Self> {
        let each = self.apart.iter().map(|key| BTreeSet::from([key.clone()]));
        let all = (self.apart.len() > 1).then(|| self.apart.clone());
        each.chain(all).map(|keys| self.without(&keys))
    }

    fn without(&self, keys: &BTreeSet<Arc<str>>) -> Self {
        let mut pins = self.pins.clone();
        for key in keys {
            pins.add(key, Requirement::ABSENT);
        }
        Self {
            wanted: self.wanted.narrowed(&pins),
            one_of: self.one_of.iter().filter(|key| !keys.contains(*key)).cloned().collect(),
            needs_one_domain: self.needs_one_domain,
            counted: self.counted.iter().filter(|(term, _)| !keys.contains(&term.key)).cloned().collect(),
            spread_keys: self.spread_keys.clone(),
            apart: BTreeSet::new(),
            pins,
            place: self.place.clone(),
            causes: self.causes.clone(),
        }
    }

    /// Whether a pod more in one domain may allow one more in another.
    pub(super) fn is_spread(&self) -> bool {
        self.counted.iter().any(|(_, rule)| matches!(rule, CountedRule::Spread(_)))
    }
}

/// How pods find their nodes.
#[derive(Clone)]
pub(super) enum Place {
    /// Each by itself.
    Shared,
    /// On the node of pods that are yet to come.
    NodeOf {
        /// The pods.
        terms: Vec<Term>,
        /// Whether they are such pods themselves, so that the first may go anywhere.
        starts_alone: bool,
    },
}

/// A rule that counts pods by domain.
#[derive(Clone)]
pub(super) enum CountedRule {
    Spread(Spread),
    /// No two in a domain.
    Alone,
}

impl CountedRule {
    pub(super) const fn limit(&self) -> Rule {
        match self {
            Self::Spread(spread) => Rule::Spread { max_skew: spread.max_skew, min_domains: spread.min_domains },
            Self::Alone => Rule::Alone,
        }
    }
}

/// A [`Seek`] in the making.
pub(super) struct Draft {
    pub(super) extra: Requirements,
    /// Domains that pods to be near to were given for the sake of these: those may be given others too.
    pub(super) gathered: Requirements,
    pub(super) one_of: Vec<Arc<str>>,
    pub(super) needs_one_domain: bool,
    counted: Vec<(Term, CountedRule)>,
    apart: BTreeSet<Arc<str>>,
    pub(super) place: Place,
    pub(super) causes: Vec<TopologyObstacle>,
}

impl Draft {
    /// All pods get the same value of a label, or none, so that others can keep away from them or they from others.
    fn keep_apart(&mut self, key: &Arc<str>) {
        self.choose_one(key);
        self.apart.insert(key.clone());
    }

    pub(super) fn choose_one(&mut self, key: &Arc<str>) {
        if !self.one_of.contains(key) {
            self.one_of.push(key.clone());
        }
    }
}

impl Allotter<'_, '_> {
    /// Reads the rules of a class against what is settled.
    ///
    /// # Errors
    /// Pods that it must be near to are nowhere yet.
    pub(super) fn seek(
        &mut self,
        (class, level): (usize, usize),
        rules: &Rules,
        company: Company,
    ) -> Result<Seek, TopologyObstacle> {
        let mut draft = Draft {
            extra: rules.node.clone().unwrap_or_default(),
            gathered: Requirements::new(),
            one_of: Vec::new(),
            needs_one_domain: false,
            counted: Vec::new(),
            apart: BTreeSet::new(),
            place: Place::Shared,
            causes: Vec::new(),
        };
        self.avoid_barred(class, &mut draft);
        self.keep_away(class, rules, &mut draft);
        // Nodes without the label of a spread that is only wished for are counted all the same.
        let spread_keys = self.spread_keys(class);
        self.spread(class, rules, &spread_keys, &mut draft);
        if !rules.near.is_empty() {
            self.stay_near((class, level), &rules.near, company, &mut draft)?;
        }
        let Draft { extra, gathered: pins, one_of, needs_one_domain, counted, mut apart, place, causes } = draft;
        apart.retain(|key| rules.near.iter().all(|term| term.key != *key));
        let counted_keys: BTreeSet<_> = counted.iter().map(|(term, _)| &term.key).collect();
        let one_of = one_of.into_iter().filter(|key| needs_one_domain || !counted_keys.contains(key)).collect();
        let wanted = self.base.classes.node_wanted(class).narrowed(&extra);
        Ok(Seek { wanted, one_of, needs_one_domain, counted, spread_keys, apart, pins, place, causes })
    }

    /// Keeps out of domains from which others keep these pods away.
    fn avoid_barred(&self, class: usize, draft: &mut Draft) {
        let selected_by = self.neighbourhood(class).selected_by;
        for (key, domain) in self.whereabouts.barred_to(&self.base.classes.selectors, selected_by) {
            draft.extra.add(key, Requirement::none_of([domain.clone()]));
            let known = draft.causes.iter_mut().find_map(|cause| match cause {
                TopologyObstacle::Repelled { key: known, domains } if **known == **key => Some(domains),
                _ => None,
            });
            match known {
                Some(domains) => domains.push(domain.to_string()),
                None => draft
                    .causes
                    .push(TopologyObstacle::Repelled { key: key.to_string(), domains: vec![domain.to_string()] }),
            }
        }
    }

    /// Keeps out of domains that have pods to keep away from.
    fn keep_away(&mut self, class: usize, rules: &Rules, draft: &mut Draft) {
        let base = self.base;
        let (selectors, selected_by) = (&base.classes.selectors, self.neighbourhood(class).selected_by);
        for (term, is_hard) in rules.away.iter().map(|t| (t, true)).chain(rules.shuns.iter().map(|t| (t, false))) {
            if term.is_by_host() {
                continue;
            }
            if !self.reaches(class, &term.key) {
                // On nodes without the label nobody is near. A claim that leaves its value open gives its pods the same.
                if base.pools.iter().any(|pool| pool.is_endless(&term.key)) {
                    draft.extra.add(&term.key, Requirement::ABSENT);
                    draft
                        .causes
                        .push(TopologyObstacle::AntiAffinity { key: term.key.to_string(), domains: Vec::new() });
                }
                continue;
            }
            let taken = self.domains_with(std::slice::from_ref(term), &term.key);
            if !taken.is_empty() {
                draft.extra.add(&term.key, Requirement::none_of(taken.iter().cloned()));
                let domains = taken.iter().map(ToString::to_string).collect();
                draft.causes.push(TopologyObstacle::AntiAffinity { key: term.key.to_string(), domains });
            }
            if selectors.selects(term.selector, selected_by) {
                draft.counted.push((term.clone(), CountedRule::Alone));
                draft.apart.insert(term.key.clone());
            } else if is_hard && self.is_selected_elsewhere(class, term) {
                // The pods to keep away from are left the other domains.
                draft.keep_apart(&term.key);
            }
        }
        // Those that are divided later and keep away from these pods must know where these are.
        for (other, index) in self.relations.keepers_from(selectors, selected_by) {
            let term = &self.neighbourhood(other).hard().away[index];
            if other != class && self.left[other] > 0 && self.reaches(class, &term.key) {
                draft.keep_apart(&term.key);
            }
        }
    }

    /// Whether some node that pods of a class can reach has a label.
    pub(super) fn reaches(&mut self, class: usize, key: &Arc<str>) -> bool {
        !self.reach_over(class, self.base.classes.node_wanted(class), key).is_empty()
    }

    /// The domains of a label that pods of a class can reach if their nodes are to be like this.
    pub(super) fn reach_over(&mut self, class: usize, wanted: NodeAlternatives, key: &Arc<str>) -> Arc<Reach> {
        let constraint = self.seeker(class, wanted);
        self.domains.reach(&constraint, &self.base.classes.list[class].requests, std::slice::from_ref(key))
    }

    /// Whether pods of another class are selected by a term.
    fn is_selected_elsewhere(&self, class: usize, term: &Term) -> bool {
        let own = self.base.classes.selectors.selects(term.selector, self.neighbourhood(class).selected_by);
        self.relations.selected(term.selector) > usize::from(own)
    }

    fn spread(&mut self, class: usize, rules: &Rules, spread_keys: &[Arc<str>], draft: &mut Draft) {
        let selected_by = self.neighbourhood(class).selected_by;
        for spread in rules.spreads.iter().filter(|spread| !spread.term.is_by_host()) {
            let key = &spread.term.key;
            draft.extra.add(key, Requirement::EXISTS);
            if self.base.classes.selectors.selects(spread.term.selector, selected_by) {
                draft.counted.push((spread.term.clone(), CountedRule::Spread(spread.clone())));
                continue;
            }
            // Pods that the rule does not count change nothing: they may go wherever it holds now.
            let counts = self.domains.counts(self.constraint(class), spread, spread_keys);
            let has_enough = counts.len() >= spread.min_domains;
            let floor = if has_enough { counts.values().min().copied().unwrap_or(0) } else { 0 };
            let is_crowded = |domain: &Arc<str>| counts[domain] > floor + spread.max_skew;
            let (crowded, open): (Vec<_>, Vec<_>) = counts.keys().cloned().partition(is_crowded);
            if !crowded.is_empty() {
                draft.extra.add(key, Requirement::none_of(crowded));
                draft.causes.push(TopologyObstacle::Spread {
                    key: key.to_string(),
                    max_skew: spread.max_skew,
                    counts: counts.iter().map(|(domain, count)| (domain.to_string(), *count)).collect(),
                    full: open.iter().map(ToString::to_string).collect(),
                    min_domains: Some(spread.min_domains).filter(|_| !has_enough),
                });
            }
        }
    }
}

/// The nodes that a rule which took domains away leaves.
pub(super) fn left_by(cause: &TopologyObstacle) -> Requirements {
    let mut out = Requirements::new();
    match cause {
        TopologyObstacle::Spread { key, counts, full, .. } => {
            let domains = counts.iter().map(|(domain, _)| domain.as_str());
            out.add(key, Requirement::none_of(domains.filter(|domain| full.iter().all(|open| open != domain))));
        }
        TopologyObstacle::AntiAffinity { key, domains } if domains.is_empty() => out.add(key, Requirement::ABSENT),
        TopologyObstacle::AntiAffinity { key, domains } | TopologyObstacle::Repelled { key, domains } => {
            out.add(key, Requirement::none_of(domains.iter().map(String::as_str)));
        }
        TopologyObstacle::Affinity { key, domains } => {
            out.add(key, Requirement::one_of(domains.iter().map(String::as_str)));
        }
        TopologyObstacle::OneNode | TopologyObstacle::NoLabel { .. } => {}
    }
    out
}
