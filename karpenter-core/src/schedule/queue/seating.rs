//! From the nodes of a queue to a plan.

use std::{collections::BTreeSet, sync::Arc};

use indexmap::IndexMap;

use super::{Guest, Kind, Queue};
use crate::{
    FxBuild, Requirement, Requirements,
    schedule::{
        lot::Lots,
        problem::{Course, Problem, SpotTypes},
        search::{Search, Stranding, add_units},
        solve::Found,
        topology::{Allotment, Blocked, Nodes, Portion, Term, labels_of_rules},
    },
};

/// Portions, by index, and how many units of each a node has.
type Seated = Vec<(usize, i64)>;

impl<'a> Problem<'a> {
    /// The plan in which each pod is where a queue has it, on the cheapest machines that take them, or what a search finds for the
    /// same pods in the same domains; `None` if neither is better than another plan.
    pub(super) fn seated(&self, queue: &Queue<'_, 'a>, other: &Found) -> Option<Found> {
        let labels = labels_of_rules(&self.base);
        let (allotment, nodes) = allotted(queue, &labels);
        let course = Course { spot_types: SpotTypes::Any, ..self.course.clone() };
        let problem = Problem::of_lots(self.base.clone(), Lots::new(&self.base, allotment), course);
        let search = problem.search_of(queue, nodes)?;
        let planned = search.planned();
        let found = Some(Found::of(search)).filter(|found| self.prefers_queued(found, other))?;
        if queue.has_company_on_hosts() || queue.is_open_ended(&labels) || self.is_stopped() {
            return Some(found);
        }
        let repacked = Some(problem.first_search()).filter(|search| search.planned() == planned);
        let repacked = repacked.map(|search| Found::of(search.or_better()));
        let is_better = |repacked: &Found| self.prefers_queued(repacked, &found);
        Some(repacked.filter(is_better).unwrap_or(found))
    }

    /// The search that has made the nodes of a queue, if all can be had.
    fn search_of(&self, queue: &Queue<'_, '_>, nodes: Vec<Seated>) -> Option<Search<'_, 'a>> {
        let mut search = Search::new(self, Stranding::USUAL);
        for (node, seated) in queue.fleet.nodes.iter().zip(nodes).filter(|(_, seated)| !seated.is_empty()) {
            let mut units = Vec::new();
            for (portion, count) in seated {
                add_units(&mut units, self.lots.of_portion(portion)?, count);
            }
            match &node.kind {
                Kind::Place(place, _) => units.iter().for_each(|&(lot, count)| search.seat_at(*place, lot, count)),
                Kind::Draft(draft) => {
                    let candidates = self.candidates.iter().filter(|candidate| candidate.pool == draft.pool);
                    let roomy = candidates.filter(|candidate| draft.may_be(candidate.row));
                    search.buy_one(roomy, &units).then_some(())?;
                }
            }
        }
        Some(search)
    }
}

impl Queue<'_, '_> {
    /// Whether pods that rules keep near to others or away from them are on nodes without the label of a rule: they might come to
    /// others that have it.
    fn is_open_ended(&self, labels: &[BTreeSet<Arc<str>>]) -> bool {
        let mut nodes = self.fleet.nodes.iter().enumerate();
        nodes.any(|(index, node)| {
            let mut keys = node.guests.iter().flat_map(|guest| &labels[guest.class]);
            keys.any(|key| self.fleet.domains(index, key).is_empty())
        })
    }

    /// Whether pods are where others are on whose node they must be.
    fn has_company_on_hosts(&self) -> bool {
        let is_so = |guest: &Guest| {
            let rules = self.base.classes.neighbourhood(guest.class).rules_at(guest.level);
            rules.near.iter().any(Term::is_by_host)
        };
        self.fleet.nodes.iter().flat_map(|node| &node.guests).any(is_so)
    }
}

/// The pods of all nodes as portions, and those of each node; all others have no place. Pods that rules keep near to others or away
/// from them ask for the domains in which they are.
fn allotted(queue: &Queue<'_, '_>, labels: &[BTreeSet<Arc<str>>]) -> (Allotment, Vec<Seated>) {
    let (base, fleet) = (queue.base, &queue.fleet);
    let mut left: Vec<usize> = base.classes.list.iter().map(|class| class.pods.len()).collect();
    let mut portions: IndexMap<Guest, usize, FxBuild> = IndexMap::default();
    let mut nodes = Vec::with_capacity(fleet.nodes.len());
    for (index, node) in fleet.nodes.iter().enumerate() {
        let mut seated = Seated::new();
        for guest in &node.guests {
            let mut pins = Requirements::new();
            let domains = labels[guest.class].iter().map(|key| (key, fleet.domains(index, key)));
            for (key, domains) in domains.filter(|(_, domains)| !domains.is_empty()) {
                pins.add(key, Requirement::one_of(domains));
            }
            let entry = portions.entry(Guest { wanted: guest.wanted.narrowed(&pins), ..guest.clone() });
            add_units(&mut seated, entry.index(), 1);
            *entry.or_default() += 1;
            left[guest.class] -= 1;
        }
        nodes.push(seated);
    }
    let portion = |(guest, units): (Guest, usize)| {
        let Guest { class, level, wanted } = guest;
        Portion::of_pods((class, level, Requirements::new()), units, wanted, false)
    };
    let blocked = left.into_iter().enumerate().filter(|(_, count)| *count > 0);
    let blocked = blocked
        .map(|(class, count)| Blocked { class, count, obstacle: queue.obstacles.get(&class).cloned() })
        .collect();
    (Allotment { portions: portions.into_iter().map(portion).collect(), blocked }, nodes)
}
