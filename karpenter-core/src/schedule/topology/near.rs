//! Where pods go that must be near to others.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Member, Portion, Rules, Term,
    allot::Allotter,
    offers::Reach,
    seek::{Draft, Place},
    settle::pins,
};
use crate::{Requirement, Requirements, reason::TopologyObstacle, schedule::class::Classes};

/// Which pods count as near, of those that others must share a node with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// Those that run; those that are planned if none does.
    Standing,
    /// Those, and some that are planned in one more domain.
    Further,
    /// Those that are planned, though others run.
    Planned,
}

impl Allotter<'_, '_> {
    /// Goes to domains that have the pods to be near to, or founds a domain where that is allowed.
    pub(super) fn stay_near(
        &mut self,
        who: (usize, usize),
        near: &[Term],
        company: Company,
        draft: &mut Draft,
    ) -> Result<(), TopologyObstacle> {
        let runs = self.runs(near);
        let is_own = self.is_company(who.0, near);
        let is_together = (!runs || company == Company::Planned) && near.iter().any(Term::is_by_host);
        if is_together {
            draft.place = Place::NodeOf { terms: near.to_vec(), starts_alone: is_own && !runs };
        }
        for Term { key, .. } in near.iter().filter(|term| !is_together || !term.is_by_host()) {
            let domains = self.domains_with(near, key);
            if is_together && (runs || domains.is_empty() && !is_own) {
                // Whoever they join has a domain where nodes have the label; where they have not nobody is near.
                draft.extra.add(key, Requirement::EXISTS);
            } else if domains.is_empty() && !runs && is_own && !self.has_begun(near) {
                draft.choose_one(key);
                draft.needs_one_domain = true;
            } else {
                let domains = self.domains_to_join(who, near, key, (domains, runs, company), draft)?;
                let names = domains.iter().map(ToString::to_string).collect();
                draft.causes.push(TopologyObstacle::Affinity { key: key.to_string(), domains: names });
                draft.extra.add(key, Requirement::one_of(domains));
            }
        }
        Ok(())
    }

    /// The domains that have pods to be near to, of which some run or none, and one to which some that are planned can come.
    fn domains_to_join(
        &mut self,
        (class, level): (usize, usize),
        near: &[Term],
        key: &Arc<str>,
        (mut domains, runs, company): (BTreeSet<Arc<str>>, bool, Company),
        draft: &mut Draft,
    ) -> Result<BTreeSet<Arc<str>>, TopologyObstacle> {
        // One that is found to be full leaves the choice of another.
        domains.retain(|domain| self.most(class, level, &pin(key, domain)) > 0);
        if domains.is_empty() && !runs {
            domains.insert(self.gather((class, level), near, key, &draft.extra)?);
        } else if company == Company::Further {
            let mut extra = draft.extra.clone();
            extra.add(key, Requirement::none_of(domains.iter().cloned()));
            domains.extend(self.gather((class, level), near, key, &extra).ok());
        } else if !self.reaches_some(class, key, &draft.extra, &domains) {
            // Pods to come are as near as those that run.
            domains.extend(self.gather((class, level), near, key, &draft.extra).ok());
        }
        if let Some(domain) = domains.first().filter(|_| domains.len() == 1 && !runs) {
            draft.gathered.add_all(&pin(key, domain));
        }
        if domains.is_empty() {
            return Err(TopologyObstacle::Affinity { key: key.to_string(), domains: Vec::new() });
        }
        Ok(domains)
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

    /// Whether some of the pods run that all terms select. On a node with none of the labels they are near to nobody.
    pub(super) fn runs(&self, near: &[Term]) -> bool {
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
        let own = self.reach_over(class, self.base.classes.node_wanted(class).narrowed(extra), key);
        let is_required = self.neighbourhood(class).hard().near == near;
        let mut out_of_reach = BTreeSet::new();
        for index in 0..self.out.portions.len() {
            let portion = &self.out.portions[index];
            let is_own = portion.members.iter().any(|member| member.class == class);
            if is_own || !self.has_company(portion, near) {
                continue;
            }
            let ((host, host_level, pins), count) = (portion.key.clone(), portion.units);
            let theirs = self.reach_of(index, key, is_required);
            let in_domain = |domain: &Arc<str>| {
                let mut pins = pins.clone();
                pins.add_all(&pin(key, domain));
                pins
            };
            let common = theirs.iter().filter(|(cell, _)| own.contains_key(*cell));
            let untried = common.filter(|(cell, _)| {
                self.most(host, host_level, &in_domain(&cell[0])) > 0
                    && self.most(class, level, &pin(key, &cell[0])) > 0
            });
            if let Some((cell, _)) = untried.min_by_key(|(_, charge)| charge.mean(count)) {
                let domain = cell[0].clone();
                self.pin_one(index, &in_domain(&domain));
                return Ok(domain);
            }
            out_of_reach.extend(theirs.keys().map(|cell| cell[0].to_string()));
        }
        Err(TopologyObstacle::Affinity { key: key.to_string(), domains: out_of_reach.into_iter().collect() })
    }

    /// The domains that the pods of a portion can reach, or those on nodes of the heaviest pools that take them.
    fn reach_of(&mut self, index: usize, key: &Arc<str>, on_any_pool: bool) -> Arc<Reach> {
        let portion = &self.out.portions[index];
        let requests = Member::requests(&portion.members, &self.base.classes);
        let there = portion.constraint(&self.base.classes);
        let keys = std::slice::from_ref(key);
        if on_any_pool {
            self.domains.reach(&there, &requests, keys)
        } else {
            self.domains.reach_of_heaviest(&there, &requests, keys)
        }
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

/// Nodes of a domain.
fn pin(key: &Arc<str>, domain: &Arc<str>) -> Requirements {
    pins(std::slice::from_ref(key), std::slice::from_ref(domain))
}
