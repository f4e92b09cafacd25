//! Pods as the search packs them.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
};

use indexmap::{IndexMap, IndexSet};

use super::{
    amounts::Amounts,
    class::Constraint,
    problem::{Base, Tolerance},
    reconsider::Settled,
    search::number,
    topology::{Allotment, Counted, Lessons, Manners, Member, Portion, PortionKey, Subject},
    volumes::Volumes,
};
use crate::{FxBuild, ResourceList, cluster::HostPort, reason::TopologyObstacle};

/// What lots ask of a node, their neighbours and volumes apart: no node is better for one lot of a shape than for another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// What a unit asks for.
    pub(super) requests: Amounts,
    /// The index of its [`Constraint`].
    pub(super) constraint: usize,
    /// The ports of its node that each unit takes for itself.
    pub(super) host_ports: Vec<HostPort>,
    /// How many pods a unit has.
    pub(super) unit_size: usize,
    /// How many nodes they need because a node takes only a few of them, whatever room it has, in powers of two; 0 if
    /// rules do not limit them.
    pub(super) spread_class: u32,
    /// Whether all units are pods with a wish that they can still give up.
    is_wish: bool,
}

/// Units of pods that ask the same of a node. A unit is one pod, or several that must share a node.
#[derive(Clone, Debug)]
pub(super) struct Lot {
    /// The indices of the pods in the snapshot, unit by unit.
    pub(super) pods: Vec<usize>,
    /// How many pods a unit has.
    pub(super) unit_size: usize,
    /// What a unit asks for.
    pub(super) requests: Amounts,
    pub(super) request_list: ResourceList,
    /// The index of its [`Constraint`].
    pub(super) constraint: usize,
    /// The ports of its node that each unit takes for itself.
    pub(super) host_ports: Vec<HostPort>,
    /// The index of its [`Shape`].
    pub(super) shape: usize,
    pub(super) manners: Manners,
    /// The volumes of a unit.
    pub(super) volumes: Volumes,
    /// The classes of its pods, by index.
    pub(super) classes: BTreeSet<usize>,
    /// Whether all units are pods with a wish that they can still give up.
    pub(super) is_wish: bool,
    /// How many pods elsewhere need each unit to find a node.
    pub(super) followers: usize,
    /// Whether other pods go where these go, to be near to them.
    pub(super) is_awaited: bool,
    /// The portions that it is made of, with their units, in the order of the pods.
    origins: Origins,
}

/// Portions, by index, and how many units are theirs.
type Origins = Vec<(usize, usize)>;

/// What a lot is, its pods apart: units that agree in it are one lot.
#[derive(PartialEq, Eq, Hash)]
struct Kind {
    unit_size: usize,
    requests: ResourceList,
    constraint: usize,
    host_ports: Vec<HostPort>,
    manners: Manners,
    volumes: Volumes,
    /// Whether it is pods with wishes, where that makes a difference.
    is_wish: bool,
}

/// All lots, and the pods that are in none.
pub(super) struct Lots {
    pub(super) list: Vec<Lot>,
    pub(super) shapes: Vec<Shape>,
    /// The lots of each shape, in their order.
    pub(super) of_shapes: Vec<Vec<usize>>,
    /// How many nodes rules ask for that let a node have only a few of some pods, by shape; 0 without such rules.
    pub(super) nodes_for_loners: Vec<usize>,
    pub(super) constraints: Vec<Constraint>,
    /// Pods that were given no domain, with the lot without pods that tells what they ask for.
    pub(super) blocked: Vec<(usize, Vec<usize>, Option<TopologyObstacle>)>,
    portions: Vec<Portion>,
}

impl Lot {
    /// How many units there are.
    pub(super) const fn units(&self) -> usize {
        self.pods.len() / self.unit_size
    }

    /// Whether a node takes a unit whatever else is there, if it has room.
    pub(super) fn needs_only_room(&self) -> bool {
        self.host_ports.is_empty() && self.manners.is_free() && self.volumes.is_empty()
    }

    fn shape(&self, spread_class: u32) -> Shape {
        Shape {
            requests: self.requests.clone(),
            constraint: self.constraint,
            host_ports: self.host_ports.clone(),
            unit_size: self.unit_size,
            spread_class,
            is_wish: self.is_wish,
        }
    }
}

impl Shape {
    /// Whether the pods go where they go so willingly. That a taint asks to be avoided is the last of their wishes: they
    /// give up all others before.
    pub(super) const fn bears(&self, tolerance: Tolerance) -> bool {
        matches!(tolerance, Tolerance::Full) || !self.is_wish
    }
}

impl Lots {
    pub(super) fn new(base: &Base<'_>, allotment: Allotment) -> Self {
        let mut constraints: IndexSet<Constraint, FxBuild> = IndexSet::default();
        let mut kinds: IndexMap<Kind, Vec<(usize, Vec<usize>)>, FxBuild> = IndexMap::default();
        let mut next: Vec<usize> = vec![0; base.classes.list.len()];
        for (index, portion) in allotment.portions.iter().enumerate().filter(|(_, p)| p.units > 0) {
            let mut pods = Vec::with_capacity(portion.units * portion.size());
            for _ in 0..portion.units {
                for member in &portion.members {
                    let from = next[member.class];
                    next[member.class] += member.count;
                    pods.extend_from_slice(&base.classes.list[member.class].pods[from..next[member.class]]);
                }
            }
            kinds.entry(kind(base, portion, &mut constraints)).or_default().push((index, pods));
        }
        let mut blocked = Vec::new();
        for entry in &allotment.blocked {
            let pods = &base.classes.list[entry.class].pods[next[entry.class]..];
            next[entry.class] += entry.count;
            let kind = kinds.entry(alone(base, entry.class, &mut constraints));
            let index = kind.index();
            kind.or_default();
            blocked.push((index, pods[..entry.count].to_vec(), entry.obstacle.clone()));
        }
        let lot = |(kind, parts): (Kind, _)| kind.lot(base, parts, &allotment.portions);
        let mut list: Vec<Lot> = kinds.into_iter().map(lot).collect();
        let needs = NodeNeeds::new(&list);
        let (shapes, of_shapes) = shapes(&mut list, &needs);
        let most = |lots: &Vec<usize>| lots.iter().map(|&lot| number(needs.of(&list[lot]))).max().unwrap_or(0);
        let nodes_for_loners = of_shapes.iter().map(most).collect();
        Self {
            list,
            shapes,
            of_shapes,
            nodes_for_loners,
            constraints: constraints.into_iter().collect(),
            blocked,
            portions: allotment.portions,
        }
    }

    /// The classes that share a lot with this one, which is one of them if it has a lot.
    pub(super) fn packed_with(&self, class: usize) -> impl Iterator<Item = usize> {
        let with_it = self.list.iter().filter(move |lot| lot.classes.contains(&class));
        with_it.flat_map(|lot| lot.classes.iter().copied())
    }

    /// How many units there are.
    pub(super) fn units(&self) -> usize {
        self.list.iter().map(Lot::units).sum()
    }

    /// The portions of a lot, with how many units of it are theirs.
    pub(super) fn origins_of(&self, lot: &Lot) -> impl Iterator<Item = (&Portion, usize)> {
        lot.origins.iter().map(|&(index, units)| (&self.portions[index], units))
    }

    /// Whether other pods may depend on some of its pods, or the other way round.
    pub(super) fn is_tentative(&self, lot: &Lot) -> bool {
        self.origins_of(lot).any(|(portion, _)| portion.is_tentative)
    }

    /// The portion of each unit of a lot, one after the other.
    pub(super) fn portions_of(&self, lot: &Lot) -> impl Iterator<Item = &Portion> {
        lot.origins.iter().flat_map(|&(index, units)| std::iter::repeat_n(&self.portions[index], units))
    }

    /// The lot that has a portion.
    pub(super) fn of_portion(&self, portion: usize) -> Option<usize> {
        self.list.iter().position(|lot| lot.origins.iter().any(|&(index, _)| index == portion))
    }

    /// How many pods are in the units that a search planned.
    pub(super) fn pod_count(&self, planned: &[usize]) -> usize {
        self.list.iter().zip(planned).map(|(lot, units)| lot.unit_size * units).sum()
    }

    /// Classes with how many of their pods are in the units that a search planned; a class may come more than once.
    pub(super) fn planned_of_classes(&self, planned: &[usize]) -> impl Iterator<Item = (usize, usize)> {
        self.planned_portions(planned).flat_map(|(_, portion, here, _)| {
            portion.members.iter().map(move |member| (member.class, member.count * here))
        })
    }

    /// How many wishes are given up for the units that a search planned, if they are given up one at each step.
    pub(super) fn given_up(&self, planned: &[usize]) -> usize {
        let wishes = |portion: &Portion| portion.members.iter().map(|m| m.level * m.count).sum::<usize>();
        self.planned_portions(planned).map(|(_, portion, here, _)| here * wishes(portion)).sum()
    }

    /// The planned pods, by their indices in the snapshot, with the step at which each gives up its wishes.
    pub(super) fn levels(&self, planned: &[usize]) -> impl Iterator<Item = (usize, usize)> {
        self.list.iter().zip(planned).flat_map(|(lot, &planned)| {
            let members = self.portions_of(lot).take(planned).flat_map(|portion| &portion.members);
            let levels = members.flat_map(|member| std::iter::repeat_n(member.level, member.count));
            lot.pods.iter().copied().zip(levels)
        })
    }

    /// What a search teaches that planned only so many units of each lot; nothing if no other division would help. It is told
    /// whether limits of pools may have kept nodes from a lot.
    pub(super) fn lessons(
        &self,
        planned: &[usize],
        so_far: &Lessons,
        is_limited: impl Fn(&Lot) -> bool,
    ) -> Option<Lessons> {
        let mut bundles: BTreeMap<Subject, usize> = BTreeMap::new();
        for (_, portion, here, _) in self.planned_portions(planned) {
            if let Some(last) = portion.joined_last() {
                *bundles.entry(Subject::UnitsWith(last.class, last.level)).or_default() += here;
            }
        }
        let levels = LazyCell::new(|| self.levels_of_domains(planned));
        let mut found = BTreeMap::new();
        for (lot, portion, here, units) in self.planned_portions(planned) {
            if here < units && portion.is_tentative {
                let (subject, mut most) = portion.lesson(here, &bundles);
                if let Subject::Units(key) = &subject
                    && is_limited(lot)
                {
                    let known = so_far.most.get(&subject).copied().unwrap_or(units);
                    most = most.max(levels[&(key.0, key.1)].min(here.midpoint(known)));
                }
                found.insert(subject, most);
            }
        }
        if found.is_empty() {
            return None;
        }
        let mut lessons = so_far.clone();
        lessons.add(found);
        Some(lessons)
    }

    /// How many units of single pods of each class, at each step of its wishes, there would be in each of its domains if those
    /// that are planned were level: where limits leave nodes for so many in all, one domain must not take those of the others.
    fn levels_of_domains(&self, planned: &[usize]) -> BTreeMap<(usize, usize), usize> {
        let mut sums: BTreeMap<(usize, usize), (usize, usize)> = BTreeMap::new();
        for (_, portion, here, _) in self.planned_portions(planned).filter(|(_, portion, ..)| !portion.is_bundle()) {
            let (units, domains) = sums.entry((portion.key.0, portion.key.1)).or_default();
            *units += here;
            *domains += 1;
        }
        sums.into_iter().map(|(key, (units, domains))| (key, units / domains)).collect()
    }

    /// The pods that could be in another domain than they are planned in, and how many there are, the fewest first; and how many
    /// would be left if they were: one less, or none if they are not divided among domains or share nodes with others.
    pub(super) fn choices(&self, planned: &[usize]) -> Vec<(usize, Subject, usize)> {
        let has_domain = |portion: &&Portion| !portion.is_bundle() && !portion.key.2.is_empty();
        let portions: Vec<_> =
            self.planned_portions(planned).filter(|(_, p, here, _)| *here > 0 && has_domain(p)).collect();
        let mut domains: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (_, portion, ..) in &portions {
            *domains.entry((portion.key.0, portion.key.1)).or_default() += 1;
        }
        let choices = |(_, portion, here, _): &(&Lot, &Portion, usize, usize)| {
            let is_divided = domains[&(portion.key.0, portion.key.1)] > 1;
            let (here, key) = (*here, portion.key.clone());
            let none = (!is_divided && here > 1).then_some(0);
            none.into_iter().chain([here - 1]).map(move |most| (here, Subject::Units(key.clone()), most))
        };
        let mut out: Vec<_> = portions.iter().flat_map(choices).collect();
        let mut joined: BTreeMap<&PortionKey, usize> = BTreeMap::new();
        for (_, portion, here, _) in self.planned_portions(planned) {
            if let Some(key) = portion.joined_by.as_ref().filter(|key| !key.2.is_empty()) {
                *joined.entry(key).or_default() += here;
            }
        }
        let all_leave = |(key, here): (&PortionKey, usize)| (here, Subject::UnitsJoined(key.clone()), 0);
        out.extend(joined.into_iter().filter(|(_, here)| *here > 0).map(all_leave));
        out.sort();
        out
    }

    /// What the division comes to, whatever the search finds.
    pub(super) fn settled(&self) -> Settled {
        settled(&self.portions)
    }

    /// The portions of each lot, with how many of their units are planned and how many there are: the first of a lot are planned.
    fn planned_portions(&self, planned: &[usize]) -> impl Iterator<Item = (&Lot, &Portion, usize, usize)> {
        self.list.iter().zip(planned).flat_map(move |(lot, &planned)| {
            let mut left = planned;
            lot.origins.iter().map(move |&(index, units)| {
                let here = left.min(units);
                left -= here;
                (lot, &self.portions[index], here, units)
            })
        })
    }
}

/// What a division comes to, if wishes are given up one at each step.
pub(super) fn settled(portions: &[Portion]) -> Settled {
    let mut out = Settled::new();
    for portion in portions {
        for &Member { class, level, count } in &portion.members {
            let (pods, wishes) = out.entry(class).or_default();
            *pods += count * portion.units;
            *wishes += count * portion.units * level;
        }
    }
    out
}

/// Finds the shapes of lots, and the lots of each.
fn shapes(lots: &mut [Lot], needs: &NodeNeeds) -> (Vec<Shape>, Vec<Vec<usize>>) {
    let mut shapes: IndexMap<Shape, Vec<usize>, FxBuild> = IndexMap::default();
    for (index, lot) in lots.iter_mut().enumerate() {
        let entry = shapes.entry(lot.shape(needs.class_of(lot)));
        lot.shape = entry.index();
        entry.or_default().push(index);
    }
    shapes.into_iter().unzip()
}

/// How many nodes rules ask for that let a node have only a few of some pods.
struct NodeNeeds(BTreeMap<Counted, i64>);

impl NodeNeeds {
    fn new(lots: &[Lot]) -> Self {
        let mut counted: BTreeMap<Counted, (i64, i64)> = BTreeMap::new();
        for lot in lots {
            let units = i64::try_from(lot.units()).unwrap_or(i64::MAX);
            for (whom, own, most) in lot.manners.own_limits() {
                let (count, least) = counted.entry(whom).or_insert((0, most));
                *count += own.saturating_mul(units);
                *least = most.min(*least);
            }
        }
        Self(counted.into_iter().map(|(whom, (count, most))| (whom, count / most.max(1))).collect())
    }

    /// Those of the rules of a lot; 0 without rules.
    fn of(&self, lot: &Lot) -> i64 {
        lot.manners.own_limits().map(|(whom, ..)| self.0[&whom].max(1)).max().unwrap_or(0)
    }

    /// The same in powers of two: one more than the logarithm.
    fn class_of(&self, lot: &Lot) -> u32 {
        self.of(lot).checked_ilog2().map_or(0, |log| log + 1)
    }
}

impl Kind {
    /// The lot of these portions, each with its pods. If not all units find nodes, those do that others are to be near to.
    fn lot(self, base: &Base<'_>, mut parts: Vec<(usize, Vec<usize>)>, portions: &[Portion]) -> Lot {
        parts.sort_by_key(|(index, _)| !portions[*index].is_awaited);
        let origins: Origins = parts.iter().map(|(index, _)| (*index, portions[*index].units)).collect();
        let pods: Vec<usize> = parts.into_iter().flat_map(|(_, pods)| pods).collect();
        let Self { unit_size, requests, constraint, host_ports, manners, volumes, .. } = self;
        let amounts = base.classes.axes.requests(&requests);
        let of_lot = || origins.iter().map(|(index, _)| &portions[*index]);
        Lot {
            pods,
            unit_size,
            requests: amounts,
            request_list: requests,
            constraint,
            host_ports,
            shape: 0,
            manners,
            volumes,
            classes: of_lot().flat_map(|portion| &portion.members).map(|member| member.class).collect(),
            is_wish: of_lot().all(|portion| portion.has_wishes(&base.classes)),
            followers: of_lot().map(|portion| portion.followers).max().unwrap_or(0),
            is_awaited: of_lot().any(|portion| portion.is_awaited),
            origins,
        }
    }
}

fn kind(base: &Base<'_>, portion: &Portion, constraints: &mut IndexSet<Constraint, FxBuild>) -> Kind {
    let classes = &base.classes;
    let mut kind = Kind {
        unit_size: portion.members.iter().map(|m| m.count).sum(),
        requests: ResourceList::new(),
        constraint: 0,
        host_ports: Vec::new(),
        manners: Manners::of(classes, &portion.members),
        volumes: Volumes::default(),
        is_wish: portion.has_wishes(classes) && base.has_taints_to_avoid(),
    };
    for &Member { class, count, .. } in &portion.members {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        kind.volumes.add(classes.volumes(class), count);
        let class = &classes.list[class];
        kind.requests.add(&class.request_list.times(count));
        kind.host_ports.extend_from_slice(&class.host_ports);
    }
    kind.constraint = constraints.insert_full(portion.constraint(classes)).0;
    kind
}

/// What single pods of a class ask for, whatever domain they might be given.
fn alone(base: &Base<'_>, class: usize, constraints: &mut IndexSet<Constraint, FxBuild>) -> Kind {
    let portion = Portion::alone(&base.classes, class);
    kind(base, &portion, constraints)
}
