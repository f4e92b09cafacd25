//! The linear program of a plan's pods: who asks for what, and which kinds of nodes there are.

use indexmap::{IndexMap, IndexSet};

use super::{
    kinds::{Kind, Supply},
    weights::Ties,
};
use crate::{
    FxBuild, Requirements,
    schedule::{
        Plan,
        amounts::{Amounts, fits},
        class::Constraint,
        problem::Base,
    },
};

/// Pods that ask for the same amounts and may be on the same kinds of nodes.
pub(super) struct Group {
    /// The index of what each asks for.
    pub(super) request: usize,
    /// The index of the constraint.
    pub(super) constraint: usize,
    /// How many there are.
    pub(super) count: usize,
    /// Whether nothing but the node decides where they may be, as far as weights go.
    pub(super) is_free: bool,
}

/// All that the bound is about, or a part of it with which the others share no kind of node.
pub(super) struct Program {
    /// What pods ask for, each once.
    pub(super) requests: Vec<Amounts>,
    pub(super) groups: Vec<Group>,
    /// How many constraints some kind tells apart.
    pub(super) constraint_count: usize,
    pub(super) kinds: Vec<Kind>,
}

/// The programs of the pods that a plan places. Where each team has its own pools, each has a program, which is much less work
/// than one of all pods and all pools.
pub(super) fn all(base: &Base<'_>, plan: &Plan) -> Vec<Program> {
    let demand = Demand::new(base, plan);
    let supply = Supply::new(base, &demand.constraints, &demand.requests, &demand.groups);
    demand.parts(supply.parts()).into_iter().map(|part| Program::new(&supply, part)).collect()
}

impl Program {
    fn new(supply: &Supply<'_, '_>, Part { constraints, requests, groups }: Part) -> Self {
        let kinds = supply.kinds(&constraints, &requests);
        let mut program = Self { requests, groups, constraint_count: constraints.len(), kinds };
        program.merge_constraints();
        program.beat();
        program
    }

    /// What all pods together ask for.
    pub(super) fn demand(&self) -> Vec<f64> {
        let mut out = vec![0.0; self.requests.first().map_or(0, Amounts::len)];
        for group in &self.groups {
            let request = &self.requests[group.request];
            out.iter_mut().zip(request).for_each(|(sum, &amount)| *sum += amount as f64 * group.count as f64);
        }
        out
    }

    /// Finds the kinds than which another is in no way worse: it takes the same pods, and each resource costs no more
    /// there. The best value for all pods together comes first, so whatever beats a kind has been looked at before it.
    fn beat(&mut self) {
        let demand = self.demand();
        let value = |kind: &Kind| {
            let amounts = demand.iter().zip(&kind.room).filter(|(_, room)| **room > 0);
            kind.least_price() * amounts.map(|(demand, &room)| demand / room as f64).sum::<f64>()
        };
        let unlimited = (0..self.kinds.len()).filter(|&kind| self.kinds[kind].capacity.is_none());
        let mut order: Vec<(f64, usize)> = unlimited.map(|kind| (value(&self.kinds[kind]), kind)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut best: Vec<usize> = Vec::new();
        for (_, kind) in order {
            match best.iter().find(|&&other| self.kinds[other].beats(&self.kinds[kind])) {
                Some(&other) => self.kinds[kind].beaten_by = Some(other),
                None => best.push(kind),
            }
        }
    }

    /// Makes one of constraints that no kind tells apart, and of groups that then ask the same.
    fn merge_constraints(&mut self) {
        let mut columns: IndexMap<Vec<u64>, usize, FxBuild> = IndexMap::default();
        let merged: Vec<usize> = (0..self.constraint_count)
            .map(|constraint| {
                let column = self.kinds.iter().flat_map(|kind| kind.column(constraint)).collect();
                let entry = columns.entry(column);
                let index = entry.index();
                entry.or_insert(constraint);
                index
            })
            .collect();
        for kind in &mut self.kinds {
            kind.keep_constraints(&columns.values().copied());
        }
        self.constraint_count = columns.len();
        let mut groups: IndexMap<(usize, usize), Group, FxBuild> = IndexMap::default();
        for group in self.groups.drain(..) {
            let group = Group { constraint: merged[group.constraint], ..group };
            let (constraint, request, count) = (group.constraint, group.request, group.count);
            groups.entry((constraint, request)).and_modify(|same| same.count += count).or_insert(group);
        }
        groups.sort_unstable_keys();
        self.groups = groups.into_values().collect();
    }
}

/// Constraints, by their numbers, with the groups of their pods, which number constraints and requests by these lists.
struct Part {
    constraints: Vec<usize>,
    requests: Vec<Amounts>,
    groups: Vec<Group>,
}

/// What the pods of a plan ask for.
struct Demand {
    requests: Vec<Amounts>,
    constraints: Vec<Constraint>,
    groups: Vec<Group>,
}

impl Demand {
    fn new(base: &Base<'_>, plan: &Plan) -> Self {
        let classes = &base.classes;
        let ties = Ties::new(base);
        let mut constraints: IndexMap<(usize, &[Requirements]), usize, FxBuild> = IndexMap::default();
        let mut requests: IndexSet<&Amounts, FxBuild> = IndexSet::default();
        let mut counts: IndexMap<(usize, usize, bool), usize, FxBuild> = IndexMap::default();
        for (index, class) in classes.list.iter().enumerate() {
            let count = placed(base, plan, &class.pods);
            if count == 0 {
                continue;
            }
            let entry = constraints.entry((class.constraint, &classes.volumes(index).alternatives));
            let constraint = entry.index();
            entry.or_insert(index);
            let (request, _) = requests.insert_full(&class.requests);
            *counts.entry((request, constraint, ties.is_free(base, &class.pods))).or_default() += count;
        }
        Self {
            requests: requests.into_iter().cloned().collect(),
            constraints: constraints.into_values().map(|class| classes.node_constraint(class)).collect(),
            groups: counts
                .into_iter()
                .map(|((request, constraint, is_free), count)| Group { request, constraint, count, is_free })
                .collect(),
        }
    }

    /// What pods of the constraints of each part ask for.
    fn parts(self, parts: Vec<Vec<usize>>) -> Vec<Part> {
        let mut place_of = vec![(0, 0); self.constraints.len()];
        for (part, constraints) in parts.iter().enumerate() {
            constraints.iter().enumerate().for_each(|(local, &constraint)| place_of[constraint] = (part, local));
        }
        let mut requests: Vec<IndexSet<usize, FxBuild>> = vec![IndexSet::default(); parts.len()];
        let mut groups: Vec<Vec<Group>> = parts.iter().map(|_| Vec::new()).collect();
        for group in self.groups {
            let (part, constraint) = place_of[group.constraint];
            let (request, _) = requests[part].insert_full(group.request);
            groups[part].push(Group { request, constraint, ..group });
        }
        let mut out = Vec::with_capacity(parts.len());
        for ((constraints, requests), groups) in parts.into_iter().zip(requests).zip(groups) {
            let requests = requests.into_iter().map(|request| self.requests[request].clone()).collect();
            out.push(Part { constraints, requests, groups });
        }
        out
    }
}

/// How many of these pods have a place in a plan.
fn placed(base: &Base<'_>, plan: &Plan, pods: &[usize]) -> usize {
    if plan.unplaced.is_empty() {
        return pods.len();
    }
    let is_placed = |pod: &&usize| !plan.unplaced.contains_key(&base.snapshot.pods()[**pod].key());
    pods.iter().filter(is_placed).count()
}

/// For each request whether a pod that asks for it fits into the room, as the only one there.
pub(super) fn fitting(requests: &[Amounts], room: &[i64]) -> Vec<bool> {
    requests.iter().map(|request| fits(request, room)).collect()
}
