//! The plan that Karpenter's queue leads to: pod by pod, the largest first, each with all that it wishes for as long as some node
//! grants it.
//!
//! The search divides classes among domains before it packs them. Where wishes, spreads over several labels, weights and room that
//! there is meet, pods that come one by one may cost less, or more of them may find a place. Karpenter takes them in this order
//! (`pkg/controllers/provisioning/scheduling` of sigs.k8s.io/karpenter): each goes to the first node that takes it, of nodes in
//! the making to that with the fewest pods, or to a new one of the heaviest pool; if none takes it, it gives up one wish after the
//! other.

mod draft;
mod seating;
mod stock;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use draft::Draft;
use stock::Stock;

use super::{
    PreferencePolicy, StopFlag,
    amounts::{Amounts, fits, take},
    class::Constraint,
    first_fit::LimitUse,
    occupancy::Occupancy,
    problem::{Base, OpenPlace, Problem, Tolerance, Trials},
    solve::Found,
    topology::{self, Grants, Ledger, Manners, Member, Named, Nodes, Rules},
};
use crate::{NodeAlternatives, Requirements, cluster::Place, reason::TopologyObstacle};

/// The most pairs of pods and nodes, if each pod had one of its own: some tenths of a second.
const MAX_PAIRS: usize = 1_000_000;
/// A label with more values counts as often as so many go into them: each pod looks at all of each node.
const FEW_DOMAINS: usize = 4;

/// Pods that come one by one, and the nodes that they have.
struct Queue<'q, 'a> {
    base: &'q Base<'a>,
    ledger: Ledger<'q, 'a>,
    fleet: Fleet<'q, 'a>,
    /// What pods of each class ask for, one step after the other, of those that came.
    steps: BTreeMap<usize, Rc<Vec<Step>>>,
    /// The drafts, by index among all nodes, in the order in which they are asked.
    order: Vec<usize>,
    /// The rules that are in the way of pods without a place, by class.
    obstacles: BTreeMap<usize, TopologyObstacle>,
}

/// What a pod asks for at one step.
struct Step {
    level: usize,
    /// What its node must be like, by one alternative each.
    alternatives: Vec<Constraint>,
    rules: Rules,
    manners: Manners,
    tolerance: Tolerance,
}

/// All nodes: the places, in their order, and the drafts.
struct Fleet<'q, 'a> {
    base: &'q Base<'a>,
    nodes: Vec<Node>,
    stock: Stock,
}

struct Node {
    kind: Kind,
    occupancy: Occupancy,
    guests: Vec<Guest>,
}

enum Kind {
    /// A place that exists, by its index among the open ones, with the room that it has left.
    Place(usize, Amounts),
    /// A node in the making.
    Draft(Draft),
}

/// A pod on a node.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Guest {
    class: usize,
    level: usize,
    /// What it asks of the node, its domains included.
    wanted: NodeAlternatives,
}

impl Problem<'_> {
    /// The plan of the queue, or a better one in which its pods are in the same domains, where little is planned and the plan leaves
    /// fewer pods than another or costs less. Where it leaves more, those come alone that have a place in the other plan.
    pub(super) fn queued(&self, other: &Found) -> Option<Found> {
        if !self.may_queue() {
            return None;
        }
        let counts = self.left_by_class(&other.plan);
        let (all, placed) = (vec![0; counts.len()], counts);
        let has_left = placed.iter().any(|&left| left > 0);
        let goes = std::iter::once(all).chain(has_left.then_some(placed));
        goes.fold(None, |best, aside| {
            let queue = |limit_use| Queue::new(&self.base, limit_use).run(&aside, self.course.stop.as_ref());
            self.limit_uses().filter_map(queue).fold(best, |best, queue| {
                let better = self.seated(&queue, best.as_ref().unwrap_or(other));
                better.or(best)
            })
        })
    }

    /// Whether there is time for pods to come one by one, and it is known in which domains nodes may be.
    fn may_queue(&self) -> bool {
        let base = &self.base;
        let pods: usize = base.classes.list.iter().map(|class| class.pods.len()).sum();
        let pairs = pods.saturating_mul(pods.saturating_add(base.places.len()));
        self.course.trials == Trials::All
            && self.is_small()
            && pairs.saturating_mul(topology::most_domains(base).div_ceil(FEW_DOMAINS)) <= MAX_PAIRS
            && (base.preferences != PreferencePolicy::Weigh || !base.classes.have_wishes())
            && base.options.min_spot_types.is_none()
            && !topology::has_endless_domains(base)
    }
}

impl<'q, 'a> Queue<'q, 'a> {
    fn new(base: &'q Base<'a>, limit_use: LimitUse) -> Self {
        let node = |(index, place): (usize, &OpenPlace<'_>)| Node {
            kind: Kind::Place(index, place.room.clone()),
            occupancy: place.occupancy.clone(),
            guests: Vec::new(),
        };
        Self {
            base,
            ledger: Ledger::new(base),
            fleet: Fleet {
                base,
                nodes: base.places.iter().enumerate().map(node).collect(),
                stock: Stock::new(base, limit_use),
            },
            steps: BTreeMap::new(),
            order: Vec::new(),
            obstacles: BTreeMap::new(),
        }
    }

    /// Has all pods come, and those that found no place once more for as long as some find one. `None` if it is stopped.
    ///
    /// Of each class so many pods stay aside.
    fn run(mut self, aside: &[usize], stop: Option<&StopFlag>) -> Option<Self> {
        let mut waiting = self.in_order(aside);
        loop {
            let before = waiting.len();
            let mut in_vain = BTreeSet::new();
            let mut left = Vec::new();
            for class in waiting {
                if stop.is_some_and(StopFlag::is_stopped) {
                    return None;
                }
                if in_vain.contains(&class) || !self.seat(class) {
                    in_vain.insert(class);
                    left.push(class);
                }
            }
            if left.is_empty() || left.len() == before {
                for class in in_vain {
                    let obstacle = self.ledger.obstacle(class, &self.fleet);
                    self.obstacles.extend(obstacle.map(|obstacle| (class, obstacle)));
                }
                return Some(self);
            }
            waiting = left;
        }
    }

    /// The class of each pod, in the order of the queue: the largest first, of equals the oldest.
    fn in_order(&self, aside: &[usize]) -> Vec<usize> {
        let pods = self.base.snapshot.pods();
        let classes = self.base.classes.list.iter().zip(aside).enumerate();
        let mut order: Vec<_> = classes
            .flat_map(|(class, (of_class, aside))| {
                let coming = of_class.pods.iter().take(of_class.pods.len() - aside);
                coming.map(move |&pod| (class, &of_class.requests, &pods[pod]))
            })
            .map(|(class, requests, pod)| {
                let metadata = &pod.metadata;
                ((Reverse(requests), metadata.creation_timestamp, &metadata.uid, pod.key()), class)
            })
            .collect();
        order.sort();
        order.into_iter().map(|(_, class)| class).collect()
    }

    /// Finds a place for a pod of a class, and says whether there is one.
    fn seat(&mut self, class: usize) -> bool {
        let base = self.base;
        let steps = self.steps.entry(class).or_insert_with(|| Rc::new(steps(base, class))).clone();
        steps.iter().any(|step| self.seat_by(class, step))
    }

    fn seat_by(&mut self, class: usize, step: &Step) -> bool {
        let Some(grants) = self.ledger.grants(class, &step.rules, &self.fleet) else { return false };
        let nodes = &self.fleet.nodes;
        self.order.sort_by_key(|&draft| nodes[draft].guests.len());
        let is_granted = |node: usize| grants.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node));
        let known = (0..self.base.places.len()).chain(self.order.iter().copied()).filter(|&node| is_granted(node));
        for index in known.collect::<Vec<_>>() {
            if let Some(wanted) = self.fleet.take_by_any(index, (class, step), &grants) {
                self.note(class, step, index, wanted);
                return true;
            }
        }
        grants.nodes.is_none() && self.start(class, step, &grants)
    }

    /// Adds a pod to a new draft, in the heaviest pool that it can be in. Of pools of equal weight Karpenter asks the last by name
    /// first.
    fn start(&mut self, class: usize, step: &Step, grants: &Grants) -> bool {
        let base = self.base;
        let mut pools: Vec<usize> = (0..base.pools.len()).collect();
        pools.sort_by_key(|&pool| Reverse((base.pools[pool].source.weight(), base.pools[pool].source.name())));
        for pool in pools {
            let Some(draft) = Draft::new(base, pool, &self.fleet.stock) else { continue };
            let node = Node { kind: Kind::Draft(draft), occupancy: Occupancy::default(), guests: Vec::new() };
            let index = self.fleet.nodes.len();
            self.fleet.nodes.push(node);
            if let Some(wanted) = self.fleet.take_by_any(index, (class, step), grants) {
                self.order.push(index);
                self.note(class, step, index, wanted);
                return true;
            }
            self.fleet.nodes.pop();
        }
        false
    }

    fn note(&mut self, class: usize, step: &Step, node: usize, wanted: NodeAlternatives) {
        let of_class = &self.base.classes.list[class];
        let occupancy = &mut self.fleet.nodes[node].occupancy;
        occupancy.add_of(&of_class.host_ports, &step.manners, (self.base.classes.volumes(class), 1));
        if let Kind::Draft(draft) = &mut self.fleet.nodes[node].kind {
            draft.draw(self.base, &mut self.fleet.stock);
        }
        self.fleet.nodes[node].guests.push(Guest { class, level: step.level, wanted });
        self.ledger.add((class, node), &step.rules, &self.fleet);
    }
}

impl Fleet<'_, '_> {
    /// Adds a pod to a node if it may be there by any of its alternatives, and gives back what it asks of the node then.
    fn take_by_any(
        &mut self,
        index: usize,
        (class, step): (usize, &Step),
        grants: &Grants,
    ) -> Option<NodeAlternatives> {
        let base = self.base;
        let of_class = &base.classes.list[class];
        let node = &self.nodes[index];
        if node.occupancy.most_of(&of_class.host_ports, &step.manners, base.classes.volumes(class)) == 0 {
            return None;
        }
        step.alternatives.iter().find_map(|constraint| self.take(index, (class, constraint, step.tolerance), grants))
    }

    fn take(
        &mut self,
        index: usize,
        (class, constraint, most): (usize, &Constraint, Tolerance),
        grants: &Grants,
    ) -> Option<NodeAlternatives> {
        let (base, of_class) = (self.base, &self.base.classes.list[class]);
        let pinned = |pins| Constraint { wanted: constraint.wanted.narrowed(&pins), ..constraint.clone() };
        match &mut self.nodes[index].kind {
            Kind::Place(place, room) => {
                let source = base.places[*place].source;
                let is_welcome = constraint.tolerance_of(source).is_some_and(|tolerance| tolerance <= most);
                if !is_welcome || !fits(&of_class.requests, room) {
                    return None;
                }
                let pinned = pinned(grants.pins(|key| domain_of(source, key).into_iter().collect())?);
                take(room, &of_class.requests, 1);
                Some(pinned.wanted)
            }
            Kind::Draft(draft) => {
                if !draft.has_room(base, of_class) {
                    return None;
                }
                let admitting = draft.admitting(base, constraint, most)?;
                let pinned = pinned(grants.pins(|key| admitting.domains(base, key))?);
                *draft = admitting.admitting(base, &pinned, most)?.holding(base, of_class, &self.stock)?;
                Some(pinned.wanted)
            }
        }
    }
}

impl Nodes for Fleet<'_, '_> {
    fn domains(&self, node: usize, key: &str) -> Named {
        match &self.nodes[node].kind {
            Kind::Place(place, _) => domain_of(self.base.places[*place].source, key).into_iter().collect(),
            Kind::Draft(draft) => draft.domains(self.base, key).into_iter().collect(),
        }
    }
}

fn domain_of(place: &Place, key: &str) -> Option<Arc<str>> {
    place.labels.get(key).map(|domain| Arc::from(domain.as_str()))
}

/// What pods of a class ask for, one step after the other. That a taint asks to be avoided is the last wish that a pod gives up.
fn steps(base: &Base<'_>, class: usize) -> Vec<Step> {
    let classes = &base.classes;
    let (neighbourhood, own) = (classes.neighbourhood(class), classes.node_constraint(class));
    let last = neighbourhood.levels() - 1;
    let reluctant = base.has_taints_to_avoid().then_some((last, Tolerance::Reluctant));
    let levels = (0..=last).map(|level| (level, Tolerance::Full)).chain(reluctant);
    let step = |(level, tolerance)| {
        let rules = neighbourhood.rules_at(level);
        let wanted = rules.node.as_ref().map_or_else(|| own.wanted.clone(), |node| own.wanted.narrowed(node));
        let constraint = |alternative: &Requirements| Constraint {
            wanted: NodeAlternatives::any().narrowed(alternative),
            tolerations: own.tolerations.clone(),
        };
        let alternatives = wanted.alternatives().iter().map(constraint).collect();
        let manners = Manners::of(classes, &[Member { class, level, count: 1 }]);
        Step { level, alternatives, rules, manners, tolerance }
    };
    levels.map(step).collect()
}
