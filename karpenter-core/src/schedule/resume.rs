//! A plan on top of another: pods go where the other plan has them, as far as they still can, and further pods find room beside
//! them or get nodes of their own.
//!
//! A plan for all pods at once is another plan, and may be dearer.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use super::{
    Plan, PlannedClaim,
    candidate::Candidate,
    problem::{Problem, Tolerance},
    search::{Search, Seats, Stranding},
};
use crate::{FxBuild, Snapshot, api::ObjectKey};

/// How many pods of each class, by index.
type Crowd = BTreeMap<usize, usize>;

/// To which classes and lots pods belong.
struct Register<'p> {
    snapshot: &'p Snapshot,
    /// The class of each pod, by index.
    class_of: IndexMap<usize, usize, FxBuild>,
    lots_of_class: Vec<BTreeSet<usize>>,
}

impl Problem<'_> {
    /// The plan on top of an earlier one.
    pub(super) fn solve_on_top_of(&self, earlier: &Plan) -> Plan {
        let mut search = Search::new(self, Stranding::USUAL);
        search.resume(earlier);
        search.into_plan()
    }
}

impl<'p> Search<'p, '_> {
    /// Puts pods where the earlier plan has them, and all others in room that there is, on its nodes, or on new ones.
    fn resume(&mut self, earlier: &Plan) {
        let problem = self.problem;
        let register = Register::new(problem);
        for (index, place) in problem.base.places.iter().enumerate() {
            let pods = earlier.existing.get(&place.source.name).map(Vec::as_slice).unwrap_or_default();
            let mut crowd = register.crowd(pods);
            for lot in register.lots(&crowd) {
                let units = take_units(problem, &mut crowd, lot, self.remaining(lot));
                self.use_place_for(index, lot, units);
            }
        }
        for claim in &earlier.claims {
            self.make_again(claim, &register.crowd(&claim.pods), &register);
        }
        for stage in self.stages() {
            self.begin(&stage);
            for lot in 0..problem.lots.list.len() {
                while self.remaining(lot) > 0 && self.squeeze_in(lot) {}
            }
            self.make_nodes(&stage.tier, stage.tolerance);
        }
    }

    /// Makes the node of a claim for its pods, as the cheapest that the claim allows and that takes them all. If there is none they
    /// are left.
    fn make_again(&mut self, claim: &PlannedClaim, crowd: &Crowd, register: &Register<'_>) {
        let is_open =
            |candidate: &&Candidate| self.is_to_be_had(candidate) && is_allowed(self.problem, claim, candidate);
        let mut candidates: Vec<&'p Candidate> = self.problem.candidates.iter().filter(is_open).collect();
        candidates.sort_by(|a, b| a.price.total_cmp(&b.price));
        let filled = |candidate: &&'p Candidate| {
            let guests = self.guests(candidate, crowd.clone(), register)?;
            Some((*candidate, self.fill_with(candidate, &guests, Tolerance::Full)?.guests))
        };
        if let Some((candidate, guests)) = candidates.iter().find_map(filled) {
            self.make(candidate, &guests, 1);
        }
    }

    /// The pods as guests of a candidate, if it takes all of them.
    fn guests(&self, candidate: &Candidate, mut crowd: Crowd, register: &Register<'_>) -> Option<Vec<Seats>> {
        let mut out = Vec::new();
        for lot in register.lots(&crowd) {
            let Some(guest) = candidate.guest(self.problem.lot(lot).shape) else { continue };
            if guest.tolerance == Tolerance::Full {
                let units = take_units(self.problem, &mut crowd, lot, self.remaining(lot));
                out.extend((units > 0).then(|| guest.seats(lot, units)));
            }
        }
        (!out.is_empty() && crowd.values().all(|&count| count == 0)).then_some(out)
    }
}

impl<'p> Register<'p> {
    fn new(problem: &'p Problem<'_>) -> Self {
        let classes = problem.base.classes.list.iter().enumerate();
        let class_of = classes.flat_map(|(class, list)| list.pods.iter().map(move |&pod| (pod, class))).collect();
        let mut lots_of_class = vec![BTreeSet::new(); problem.base.classes.list.len()];
        for (index, lot) in problem.lots.list.iter().enumerate() {
            for &class in &lot.classes {
                lots_of_class[class].insert(index);
            }
        }
        Self { snapshot: problem.base.snapshot, class_of, lots_of_class }
    }

    /// The pods that are waiting among some, by class.
    fn crowd(&self, pods: &[ObjectKey]) -> Crowd {
        let mut out = Crowd::new();
        for pod in pods.iter().filter_map(|pod| self.snapshot.pod_index(pod)) {
            if let Some(&class) = self.class_of.get(&pod) {
                *out.entry(class).or_default() += 1;
            }
        }
        out
    }

    /// The lots that have pods of these classes.
    fn lots(&self, crowd: &Crowd) -> BTreeSet<usize> {
        crowd.keys().flat_map(|&class| self.lots_of_class[class].iter().copied()).collect()
    }
}

/// Whether a claim may become a node of a candidate.
fn is_allowed(problem: &Problem<'_>, claim: &PlannedClaim, candidate: &Candidate) -> bool {
    let pool = &problem.base.pools[candidate.pool];
    let name = || &pool.catalog.types()[pool.variant(candidate.row).type_index].name;
    pool.source.name() == claim.node_pool
        && claim.instance_types.contains(name())
        && pool.can_settle(candidate.row, &claim.requirements)
}

/// Takes as many units of a lot from a crowd as it has, and says how many.
fn take_units(problem: &Problem<'_>, crowd: &mut Crowd, lot: usize, most: i64) -> i64 {
    let lot = problem.lot(lot);
    let count: usize = lot.classes.iter().filter_map(|class| crowd.get(class)).sum();
    let units = i64::try_from(count / lot.unit_size).unwrap_or(i64::MAX).min(most);
    let mut pods = usize::try_from(units).unwrap_or(0) * lot.unit_size;
    for class in &lot.classes {
        if let Some(count) = crowd.get_mut(class) {
            let taken = pods.min(*count);
            *count -= taken;
            pods -= taken;
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use crate::{
        Catalogs, InstanceType, Planner, Price, Quantity, Snapshot,
        api::{NodePool, Pod, PodBuilder},
        schedule::Plan,
    };

    /// Machines of 4 and 16 CPUs, and a cluster in which these pods wait.
    fn cluster(pods: impl IntoIterator<Item = PodBuilder>) -> (Snapshot, Catalogs) {
        let machine = |name: &str, cpu, dollars| {
            let price = Price::per_hour(dollars).expect("not below zero");
            InstanceType::named(name, [("cpu", Quantity::from_units(cpu))]).offering("on-demand", "a", price)
        };
        let builder = Snapshot::builder().pool(NodePool::named("general"));
        let snapshot = pods.into_iter().fold(builder, crate::SnapshotBuilder::pods).build().expect("valid");
        let types = vec![machine("small", 4, 0.2), machine("large", 16, 0.9)];
        let catalogs = Catalogs::shared(types, snapshot.pools()).expect("valid");
        (snapshot, catalogs)
    }

    fn pod(name: &str, cpu: &str) -> PodBuilder {
        Pod::named(name).cpu(cpu)
    }

    /// The cheapest type and the pods of each claim, in order.
    fn outline(plan: &Plan) -> Vec<(String, Vec<String>)> {
        assert!(plan.unplaced().is_empty(), "{:?}", plan.unplaced());
        let pods = |claim: &super::PlannedClaim| claim.pods.iter().map(|pod| pod.name.clone()).collect();
        let mut out: Vec<_> =
            plan.claims().iter().map(|claim| (claim.instance_types[0].clone(), pods(claim))).collect();
        out.sort();
        out
    }

    #[test]
    fn pods_stay_where_they_are_planned_and_others_come_beside_them() {
        let planner = Planner::default();
        let first = || [pod("a", "10"), pod("b", "3")];
        let (snapshot, catalogs) = cluster(first());
        let plan = planner.plan(&snapshot, &catalogs);
        let large = |pods: &[&str]| ("large".to_owned(), pods.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(outline(&plan), [large(&["a", "b"])]);
        assert_eq!(outline(&planner.plan_on_top_of(&plan, &snapshot, &catalogs)), [large(&["a", "b"])]);

        let with = |more: [PodBuilder; 1]| {
            let (snapshot, catalogs) = cluster(first().into_iter().chain(more));
            outline(&planner.plan_on_top_of(&plan, &snapshot, &catalogs))
        };
        assert_eq!(with([pod("c", "3")]), [large(&["a", "b", "c"])]);
        assert_eq!(with([pod("d", "3500m")]), [large(&["a", "b"]), ("small".to_owned(), vec!["d".to_owned()])]);
    }

    #[test]
    fn a_node_of_which_the_pods_are_gone_is_not_made() {
        let (planner, both) = (Planner::default(), [pod("a", "15"), pod("b", "4")]);
        let (snapshot, catalogs) = cluster(both);
        let plan = planner.plan(&snapshot, &catalogs);
        assert_eq!(plan.claims().len(), 2);
        let (snapshot, catalogs) = cluster([pod("b", "4")]);
        let left = planner.plan_on_top_of(&plan, &snapshot, &catalogs);
        assert_eq!(outline(&left), [("small".to_owned(), vec!["b".to_owned()])]);
    }
}
