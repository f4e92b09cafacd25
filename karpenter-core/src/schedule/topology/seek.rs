//! What the rules of a class mean for its nodes, as things stand.

use std::{collections::BTreeSet, rc::Rc, sync::Arc};

use super::{Member, Portion, Rules, Spread, Term, allot::Allotter, domains::Reach, quota::Rule, settle::pins};
use crate::{NodeAlternatives, Requirement, Requirements, reason::TopologyObstacle, schedule::class::Classes};

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

/// Which pods count as near, of those that others must share a node with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// Those that run; those that are planned if none does.
    Standing,
    /// Those that are planned, though others run.
    Planned,
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
struct Draft {
    extra: Requirements,
    /// Domains that pods to be near to were given for the sake of these: those may be given others too.
    gathered: Requirements,
    one_of: Vec<Arc<str>>,
    needs_one_domain: bool,
    counted: Vec<(Term, CountedRule)>,
    apart: BTreeSet<Arc<str>>,
    place: Place,
    causes: Vec<TopologyObstacle>,
}

impl Draft {
    /// All pods get the same value of a label, or none, so that others can keep away from them or they from others.
    fn keep_apart(&mut self, key: &Arc<str>) {
        self.choose_one(key);
        self.apart.insert(key.clone());
    }

    fn choose_one(&mut self, key: &Arc<str>) {
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

    /// Whether pods of a class, whose nodes are like `extra`, can reach some of these domains.
    fn reaches_some(
        &mut self,
        class: usize,
        key: &Arc<str>,
        extra: &Requirements,
        domains: &BTreeSet<Arc<str>>,
    ) -> bool {
        let wanted = self.base.classes.node_wanted(class).narrowed(extra);
        self.reach_over(class, wanted, key).keys().any(|cell| domains.contains(&cell[0]))
    }

    /// Whether some node that pods of a class can reach has a label.
    pub(super) fn reaches(&mut self, class: usize, key: &Arc<str>) -> bool {
        !self.reach_over(class, self.base.classes.node_wanted(class), key).is_empty()
    }

    /// The domains of a label that pods of a class can reach if their nodes are to be like this.
    fn reach_over(&mut self, class: usize, wanted: NodeAlternatives, key: &Arc<str>) -> Rc<Reach> {
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

    /// Goes to domains that have the pods to be near to, or founds a domain where that is allowed.
    fn stay_near(
        &mut self,
        (class, level): (usize, usize),
        near: &[Term],
        company: Company,
        draft: &mut Draft,
    ) -> Result<(), TopologyObstacle> {
        let runs = self.runs(near);
        let is_own = self.is_company(class, near);
        let is_together = (!runs || company == Company::Planned) && near.iter().any(Term::is_by_host);
        if is_together {
            draft.place = Place::NodeOf { terms: near.to_vec(), starts_alone: is_own && !runs };
        }
        for term in near.iter().filter(|term| !is_together || !term.is_by_host()) {
            let mut domains = self.domains_with(near, &term.key);
            if is_together && (runs || domains.is_empty() && !is_own) {
                // Whoever they join has a domain where nodes have the label; where they have not nobody is near.
                draft.extra.add(&term.key, Requirement::EXISTS);
                continue;
            }
            if domains.is_empty() && !runs && is_own && !self.has_begun(near) {
                draft.choose_one(&term.key);
                draft.needs_one_domain = true;
                continue;
            }
            // One that is found to be full leaves the choice of another.
            domains.retain(|domain| self.most(class, level, &pin(&term.key, domain)) > 0);
            if domains.is_empty() && !runs {
                domains.insert(self.gather((class, level), near, &term.key, &draft.extra)?);
            } else if !self.reaches_some(class, &term.key, &draft.extra, &domains) {
                // Pods to come are as near as those that run.
                domains.extend(self.gather((class, level), near, &term.key, &draft.extra).ok());
            }
            if let Some(domain) = domains.first().filter(|_| domains.len() == 1 && !runs) {
                draft.gathered.add_all(&pin(&term.key, domain));
            }
            if domains.is_empty() {
                return Err(TopologyObstacle::Affinity { key: term.key.to_string(), domains: Vec::new() });
            }
            let names = domains.iter().map(ToString::to_string).collect();
            draft.causes.push(TopologyObstacle::Affinity { key: term.key.to_string(), domains: names });
            draft.extra.add(&term.key, Requirement::one_of(domains));
        }
        Ok(())
    }

    /// Whether some of the pods run that all terms select. On a node with none of the labels they are near to nobody.
    fn runs(&self, near: &[Term]) -> bool {
        let Classes { standing, selectors, .. } = &self.base.classes;
        let places = self.base.snapshot.places().iter().enumerate();
        let mut labelled = places.filter(|(_, place)| near.iter().any(|term| place.labels.contains_key(&*term.key)));
        labelled.any(|(index, _)| standing.has_company(selectors, index, near))
    }

    /// Whether pods must share a node with others of which some run, so that they may also go where further ones will be.
    pub(super) fn may_share_nodes_to_come(&self, rules: &Rules) -> bool {
        rules.near.iter().any(Term::is_by_host) && self.runs(&rules.near)
    }

    /// The domains that have pods which all terms select: pods that run and are not to move, and pods that are allotted to a domain.
    pub(super) fn domains_with(&self, terms: &[Term], key: &Arc<str>) -> BTreeSet<Arc<str>> {
        let selectors = &self.base.classes.selectors;
        let places = self.base.snapshot.places().iter().enumerate();
        let running = places
            .filter(|(index, _)| self.base.classes.standing.has_company(selectors, *index, terms))
            .filter_map(|(_, place)| place.labels.get(&**key).map(|domain| Arc::from(domain.as_str())));
        running.chain(self.whereabouts.with_company(selectors, terms, key).cloned()).collect()
    }

    /// Whether pods have a node that all terms select and that must be near others themselves. The kube-scheduler lets
    /// only the first of such pods begin alone; others that are selected can be bound later than it.
    fn has_begun(&self, near: &[Term]) -> bool {
        let has_begun = |class| !self.neighbourhood(class).hard().near.is_empty() && self.is_company(class, near);
        let portions = self.out.portions.iter().filter(|portion| portion.units > 0);
        portions.flat_map(|portion| &portion.members).any(|member| has_begun(member.class))
    }

    /// Whether all terms select a pod of each unit of a portion, if it has any units.
    pub(super) fn has_company(&self, portion: &Portion, terms: &[Term]) -> bool {
        portion.units > 0 && portion.members.iter().any(|member| self.is_company(member.class, terms))
    }

    /// Whether all terms select the pods of a class.
    pub(super) fn is_company(&self, class: usize, terms: &[Term]) -> bool {
        self.base.classes.selectors.all_select(terms, self.neighbourhood(class).selected_by)
    }

    /// Settles pods to be near to in a domain that a class can reach, and gives back the domain: pods that share a node, or
    /// one of those that do not.
    ///
    /// # Errors
    /// Such pods are nowhere yet, or only where the class cannot go.
    fn gather(
        &mut self,
        (class, level): (usize, usize),
        near: &[Term],
        key: &Arc<str>,
        extra: &Requirements,
    ) -> Result<Arc<str>, TopologyObstacle> {
        let keys = std::slice::from_ref(key);
        let own = self.reach_over(class, self.base.classes.node_wanted(class).narrowed(extra), key);
        let is_required = self.neighbourhood(class).hard().near == near;
        let mut out_of_reach = BTreeSet::new();
        for index in 0..self.out.portions.len() {
            let portion = &self.out.portions[index];
            let is_own = portion.members.iter().any(|member| member.class == class);
            if is_own || !self.has_company(portion, near) {
                continue;
            }
            let (host, host_level, pins) = portion.key.clone();
            let pins_to = |domain: &Arc<str>| {
                let mut pins = pins.clone();
                pins.add(key, Requirement::one_of([domain.clone()]));
                pins
            };
            let count = portion.units;
            let requests = Member::requests(&portion.members, &self.base.classes);
            let there = portion.constraint(&self.base.classes);
            let theirs = if is_required {
                self.domains.reach(&there, &requests, keys)
            } else {
                self.domains.reach_of_heaviest(&there, &requests, keys)
            };
            let common = theirs.iter().filter(|(cell, _)| own.contains_key(*cell));
            let untried = common.filter(|(cell, _)| {
                self.most(host, host_level, &pins_to(&cell[0])) > 0 && self.most(class, level, &pin(key, &cell[0])) > 0
            });
            if let Some((cell, _)) = untried.min_by_key(|(_, charge)| charge.mean(count)) {
                let domain = cell[0].clone();
                self.pin_one(index, &pins_to(&domain));
                return Ok(domain);
            }
            out_of_reach.extend(theirs.keys().map(|cell| cell[0].to_string()));
        }
        Err(TopologyObstacle::Affinity { key: key.to_string(), domains: out_of_reach.into_iter().collect() })
    }

    /// Gives one unit of a portion these domains.
    fn pin_one(&mut self, index: usize, pins: &Requirements) {
        let taken = self.split_one(index);
        let portion = &mut self.out.portions[taken];
        portion.wanted = portion.wanted.narrowed(pins);
        portion.key.2.clone_from(pins);
        (portion.followers, portion.is_awaited, portion.latitude) = (0, true, None);
        for Member { class, count, .. } in portion.members.clone() {
            self.note(class, pins, count, &Rules::default());
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

/// Nodes of a domain.
fn pin(key: &Arc<str>, domain: &Arc<str>) -> Requirements {
    pins(std::slice::from_ref(key), std::slice::from_ref(domain))
}
