//! Required affinity (the filter `InterPodAffinity`), in the order of binding that is kindest to the plan.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::api::PodAffinityTerm;

use super::{
    scene::{Scene, World},
    selector::{Census, Namespaces, PodSelector},
};
use crate::checker::Violation;

/// Pods whose terms say the same: a series that lives together.
pub(super) struct NearRule<'a> {
    topology_keys: Vec<&'a str>,
    /// The new pods that have these terms.
    members: Vec<usize>,
    /// The pods that all of the terms select, in order; only they are company.
    company: Vec<usize>,
}

impl NearRule<'_> {
    fn has_running_company(&self, world: &World<'_, '_>) -> bool {
        let is_near = |actor| self.topology_keys.iter().any(|key| world.domain_of(actor, key).is_some());
        self.company.iter().any(|&actor| !world.actor(actor).is_new && is_near(actor))
    }
}

/// The rules of new pods. A running pod that is going is no company.
pub(super) fn rules<'a>(scene: &Scene<'a>, namespaces: &Namespaces<'a>, census: &Census<'_>) -> Vec<NearRule<'a>> {
    let mut members: BTreeMap<Vec<(&str, PodSelector<'_>)>, Vec<usize>> = BTreeMap::new();
    for (i, actor) in scene.new_actors() {
        let term =
            |term: &'a PodAffinityTerm| (term.topology_key.as_str(), PodSelector::of_term(actor.pod, term, namespaces));
        let mut terms: Vec<_> = actor.pod.spec.affinity.pod_affinity.required.iter().map(term).collect();
        terms.sort();
        if !terms.is_empty() {
            members.entry(terms).or_default().push(i);
        }
    }
    let rule = |(terms, members): (Vec<(&'a str, PodSelector<'_>)>, _)| {
        let selected = terms.iter().map(|(_, selector)| census.selected_by(selector).into_iter().collect());
        let company: BTreeSet<usize> = selected.reduce(|a: BTreeSet<_>, b| &a & &b).unwrap_or_default();
        let counts = |i: &usize| scene.actors[*i].is_new || !scene.actors[*i].pod.is_terminating();
        let company = company.into_iter().filter(counts).collect();
        NearRule { topology_keys: terms.into_iter().map(|(key, _)| key).collect(), members, company }
    };
    members.into_iter().map(rule).collect()
}

/// Whoever finds no company in any order of binding.
pub(super) fn check(rules: &[NearRule<'_>], world: &World<'_, '_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut binding = Binding::new(rules, world);
    for (i, rule) in rules.iter().enumerate() {
        for &member in &rule.members {
            let mut keys = rule.topology_keys.iter();
            match keys.find(|key| world.domain_of(member, key).is_none()) {
                Some(key) => violations.push(world.lacks_label(member, key)),
                None => binding.wait(i, member),
            }
        }
    }
    binding.bind_who_finds_company();
    binding.start_series();
    violations.extend(binding.lonely());
    violations
}

/// A rule, and the domains of a node, one a term.
type Cohort<'s> = (usize, Vec<&'s str>);

/// Who is bound so far. A pod more never leaves another without company, so what counts is only who can be bound.
#[derive(Clone)]
struct Binding<'r, 's, 'a> {
    rules: &'r [NearRule<'a>],
    world: &'r World<'s, 'a>,
    /// The rules for whose members a pod is company.
    company_of: BTreeMap<usize, Vec<usize>>,
    /// For each rule, the domains of topology keys in which there is company.
    company: Vec<BTreeSet<(&'a str, &'s str)>>,
    /// The members of a rule that are not bound yet, by their domains.
    waiting: BTreeMap<Cohort<'s>, Vec<usize>>,
    /// The rules of which nobody can be the first: company runs somewhere, or started a series of its own.
    begun: BTreeSet<usize>,
}

impl<'r, 's, 'a> Binding<'r, 's, 'a> {
    /// Running pods are bound, and new ones without terms.
    fn new(rules: &'r [NearRule<'a>], world: &'r World<'s, 'a>) -> Self {
        let mut company_of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (i, rule) in rules.iter().enumerate() {
            for &actor in &rule.company {
                company_of.entry(actor).or_default().push(i);
            }
        }
        let needs_nobody = |&actor: &usize| {
            let actor = world.actor(actor);
            !actor.is_new || actor.pod.spec.affinity.pod_affinity.required.is_empty()
        };
        let bound: Vec<usize> = company_of.keys().copied().filter(needs_nobody).collect();
        let company = vec![BTreeSet::new(); rules.len()];
        let begun =
            rules.iter().enumerate().filter(|(_, rule)| rule.has_running_company(world)).map(|(i, _)| i).collect();
        let mut binding = Self { rules, world, company_of, company, waiting: BTreeMap::new(), begun };
        binding.bind(&bound);
        binding
    }

    fn wait(&mut self, rule: usize, member: usize) {
        let domain = |key: &&str| self.world.domain_of(member, key);
        let domains = self.rules[rule].topology_keys.iter().filter_map(domain).collect();
        self.waiting.entry((rule, domains)).or_default().push(member);
    }

    fn bind(&mut self, actors: &[usize]) {
        for actor in actors {
            for &rule in self.company_of.get(actor).into_iter().flatten() {
                for &key in &self.rules[rule].topology_keys {
                    self.company[rule].extend(self.world.domain_of(*actor, key).map(|domain| (key, domain)));
                }
            }
        }
    }

    fn bind_cohort(&mut self, cohort: &Cohort<'s>) {
        let members = self.waiting.remove(cohort).unwrap_or_default();
        self.bind(&members);
    }

    fn bind_who_finds_company(&mut self) {
        loop {
            let is_ready = |cohort: &&Cohort<'s>| self.lonely_key(cohort).is_none();
            let ready: Vec<Cohort<'s>> = self.waiting.keys().filter(is_ready).cloned().collect();
            if ready.is_empty() {
                return;
            }
            for cohort in &ready {
                self.bind_cohort(cohort);
            }
        }
    }

    /// A pod that its own terms select may be the first of its kind anywhere, as long as no pod is there that they select.
    /// Pods without terms can wait for it, and whoever finds company can; of those who start there is only one order.
    fn start_series(&mut self) {
        while let Some(cohort) = self.next_to_start() {
            self.start(&cohort);
        }
    }

    fn start(&mut self, cohort: &Cohort<'s>) {
        self.begun.extend(self.begins(cohort));
        self.bind_cohort(cohort);
        self.bind_who_finds_company();
    }

    /// The cohort that keeps no other from starting, with most pods that can be the first; if all keep others from it, the
    /// one after which the fewest wait.
    fn next_to_start(&self) -> Option<Cohort<'s>> {
        let can_start =
            |cohort: &&Cohort<'s>| !self.begun.contains(&cohort.0) && self.starters(cohort).next().is_some();
        let able: Vec<&Cohort<'s>> = self.waiting.keys().filter(can_start).collect();
        let rules: BTreeSet<usize> = able.iter().map(|(rule, _)| *rule).collect();
        let is_harmless =
            |cohort: &&&Cohort<'s>| self.begins(cohort).intersection(&rules).all(|rule| *rule == cohort.0);
        let harmless = able.iter().filter(is_harmless).max_by_key(|cohort| self.starters(cohort).count());
        let waiting_after = |cohort: &Cohort<'s>| {
            let mut after = self.clone();
            after.start(cohort);
            after.waiting.values().map(Vec::len).sum::<usize>()
        };
        harmless.or_else(|| able.iter().min_by_key(|cohort| waiting_after(cohort))).map(|cohort| (*cohort).clone())
    }

    /// The rules of which nobody can be the first any more, whichever pod of a cohort starts.
    fn begins(&self, cohort: &Cohort<'s>) -> BTreeSet<usize> {
        let of_starter = |starter| self.company_of[&starter].iter().copied().collect();
        self.starters(cohort).map(of_starter).reduce(|a: BTreeSet<usize>, b| &a & &b).unwrap_or_default()
    }

    /// The pods of a cohort that their own terms select.
    fn starters(&self, cohort: &Cohort<'s>) -> impl Iterator<Item = usize> {
        let company = &self.rules[cohort.0].company;
        self.waiting.get(cohort).into_iter().flatten().copied().filter(|member| company.binary_search(member).is_ok())
    }

    /// The first topology key by which a cohort has no company.
    fn lonely_key(&self, (rule, domains): &Cohort<'s>) -> Option<&'a str> {
        let keys = self.rules[*rule].topology_keys.iter().copied();
        let mut pairs = keys.zip(domains.iter().copied());
        pairs.find(|pair| !self.company[*rule].contains(pair)).map(|(key, _)| key)
    }

    /// One of each cohort that waits still.
    fn lonely(&self) -> impl Iterator<Item = Violation> {
        self.waiting.iter().filter_map(|(cohort, members)| {
            let (&member, key) = members.first().zip(self.lonely_key(cohort))?;
            let (pod, node) = (self.world.actor(member).key.clone(), self.world.node_of(member));
            Some(Violation::Affinity { pod, node, topology_key: key.to_owned() })
        })
    }
}
