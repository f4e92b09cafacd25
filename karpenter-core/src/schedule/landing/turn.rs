//! Pods and nodes that come in one order of many.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Ground, Unit, Units, doors::Doorway, family::Family, fleet::Fleet, scattered, scores::Scores};
use crate::schedule::problem::Problem;

/// In how many waves nodes come that are not ready all at once.
const WAVES: usize = 6;
/// Before the last of these, one in so many of the pods that have no node is tried again: the others wait, because they were
/// tried shortly before.
const ONE_TRIED_OF: u64 = 2;
/// With fewer nodes the kube-scheduler looks at all; with more at a share of them, the smaller the more there are.
const FEW_NODES: usize = 100;
/// So many nodes are looked at at a time.
const BLOCK: usize = 64;

/// What lands where. Nodes are known by their positions: the places, then the new nodes in the order in which they come.
struct Turn<'p, 'a> {
    problem: &'p Problem<'a>,
    fleet: Fleet,
    doors: Vec<Doorway>,
    families: Vec<Family<'p>>,
    /// The domains of the nodes, by the number of the label.
    domains: Vec<Vec<u32>>,
    scores: Scores<'p>,
    /// The nodes that got pods which may keep others away, in the order of time.
    settled: Vec<usize>,
}

impl<'p, 'a> Ground<'p, 'a> {
    /// Lets all units come in one order and gives back those that find no node; each turn has another order. In every second
    /// turn nodes are ready all at once, in the others in waves.
    pub(in crate::schedule) fn land(&self, turn: u64) -> Units {
        let mut units = self.units.clone();
        units.sort_by_cached_key(|unit| (scattered(unit.lot, unit.number, turn), unit.lot, unit.number));
        let place_count = self.problem.base.places.len();
        let mut order: Vec<usize> = (0..self.fleet.len()).collect();
        order[place_count..].sort_by_cached_key(|&node| scattered(usize::MAX, node, turn));
        let waves = if turn.is_multiple_of(2) { 1 } else { WAVES };
        self.begin(&order).land_all(units, turn, waves)
    }

    /// Nodes in an order, before anything lands.
    fn begin(&self, order: &[usize]) -> Turn<'p, 'a> {
        Turn {
            problem: self.problem,
            fleet: self.fleet.in_order(order),
            doors: self.doors.in_order(order),
            families: self.families.clone(),
            domains: self.domains.values().map(|domains| domains.in_order(order)).collect(),
            scores: self.scores.clone(),
            settled: Vec::new(),
        }
    }
}

impl Turn<'_, '_> {
    /// Binds units as nodes come: first to the places that there are, then to the new nodes in so many waves. In the end they
    /// look at all again, because a spread may allow domains that it did not allow before.
    fn land_all(mut self, mut units: Vec<Unit>, turn: u64, waves: usize) -> Units {
        let (place_count, count) = (self.problem.base.places.len(), self.fleet.len());
        let size = (count - place_count).div_ceil(waves).max(1);
        self.bind(&mut units, 0..place_count);
        for (wave, come) in (1..).zip((place_count + size..count).step_by(size)) {
            let chance = |unit: &Unit| scattered(unit.lot, unit.number, turn.wrapping_add(wave << 16));
            let (mut tried, waiting) = units.into_iter().partition(|unit| chance(unit).is_multiple_of(ONE_TRIED_OF));
            self.bind(&mut tried, place_count..come);
            units = waiting;
            units.append(&mut tried);
        }
        self.bind(&mut units, place_count..count);
        loop {
            let before = units.len();
            if units.iter().any(|unit| unit.family.is_some()) {
                self.bind(&mut units, 0..count);
            }
            if units.len() == before {
                break;
            }
        }
        let mut left = Units::new();
        for unit in units {
            *left.entry(unit.lot).or_default() += 1;
        }
        left
    }

    /// Binds units one after the other, each to the best of the first nodes of these that will do, beginning where the last
    /// search ended. Those that find none remain.
    fn bind(&mut self, units: &mut Vec<Unit>, nodes: Range<usize>) {
        if nodes.is_empty() {
            return;
        }
        let (mut start, mut favourites) = (nodes.start, Favourites::default());
        units.retain(|unit| {
            let best = self.best(unit, &nodes, &mut start, &mut favourites);
            if let Some(node) = best {
                self.land(unit, node);
            }
            best.is_none()
        });
    }

    fn land(&mut self, unit: &Unit, node: usize) {
        let lot = self.problem.lot(unit.lot);
        self.fleet.add(node, lot, 1);
        self.scores.land(node);
        if !lot.needs_only_room() {
            self.settled.push(node);
        }
        if let Some(family) = unit.family {
            let family = &mut self.families[family];
            family.land(self.domains[family.key][node]);
        }
    }

    /// The best node for a unit; the next search starts where this one ends.
    fn best(
        &mut self,
        unit: &Unit,
        nodes: &Range<usize>,
        start: &mut usize,
        favourites: &mut Favourites,
    ) -> Option<usize> {
        let open = self.doors[unit.door].open(&self.settled, self.problem, &self.fleet);
        let mut sight = Sight { marks: self.scores.of(unit.asked, &self.fleet), open, domains: None };
        let Some(family) = unit.family.map(|family| &self.families[family]) else {
            return sight.best(nodes, start);
        };
        let domains = &self.domains[family.key];
        if family.is_wish() {
            *start = sight.look(nodes, *start, |first, marks| {
                for (offset, &mark) in marks.iter().enumerate().filter(|(_, mark)| **mark > 0) {
                    favourites.add(domains[first + offset], mark, first + offset);
                }
            });
            return favourites.take_best(family);
        }
        let open_domains = family.open_domains();
        sight.domains = Some((domains, &open_domains));
        sight.best(nodes, start)
    }
}

/// What a unit sees of the nodes.
struct Sight<'t> {
    /// One more than the score of each node, 0 for nodes without room.
    marks: &'t [u8],
    /// All bits for each node that is open to it, none for others.
    open: &'t [u8],
    /// The domain of each node, and all bits for domains that it may go to, none for others.
    domains: Option<(&'t [u32], &'t [u8])>,
}

impl Sight<'_> {
    /// The best of the first nodes that will do; of equals the first.
    fn best(&self, nodes: &Range<usize>, start: &mut usize) -> Option<usize> {
        let (mut best, mut found) = (0, None);
        *start = self.look(nodes, *start, |first, marks| {
            let most = marks.iter().copied().max().unwrap_or(0);
            if most > best {
                best = most;
                found = marks.iter().position(|&mark| mark == most).map(|offset| first + offset);
            }
        });
        found
    }

    /// Tells of the first nodes that will do, block by block: the first node of each and the marks of all, 0 for those that will
    /// not do. Gives back where the next search starts.
    fn look(&self, nodes: &Range<usize>, start: usize, mut tell: impl FnMut(usize, &[u8])) -> usize {
        let mut wanted = sample_size(nodes.len());
        for part in [start..nodes.end, nodes.start..start] {
            for first in part.clone().step_by(BLOCK) {
                let mut block = [0; BLOCK];
                let marks = &mut block[..BLOCK.min(part.end - first)];
                self.mark(first, marks);
                let count = marks.iter().map(|&mark| u8::from(mark > 0)).sum::<u8>() as usize;
                if count < wanted {
                    tell(first, marks);
                    wanted -= count;
                    continue;
                }
                let will_do = marks.iter().enumerate().filter(|(_, mark)| **mark > 0);
                let last = will_do.map(|(offset, _)| offset).nth(wanted - 1).expect("so many will do");
                tell(first, &marks[..=last]);
                let next = first + last + 1;
                return if next == nodes.end { nodes.start } else { next };
            }
        }
        start
    }

    /// The marks of a block of nodes.
    fn mark(&self, first: usize, marks: &mut [u8]) {
        let nodes = first..first + marks.len();
        for ((out, mark), open) in marks.iter_mut().zip(&self.marks[nodes.clone()]).zip(&self.open[nodes.clone()]) {
            *out = mark & open;
        }
        if let Some((domains, open)) = self.domains {
            for (out, &domain) in marks.iter_mut().zip(&domains[nodes]) {
                *out &= open[domain as usize];
            }
        }
    }
}

/// The best node of each domain, for a pod that prefers some domains to others.
#[derive(Default)]
struct Favourites(SmallVec<[(u32, u8, usize); 4]>);

impl Favourites {
    /// Keeps a node if it has the best score in its domain; of equals the first.
    fn add(&mut self, domain: u32, score: u8, node: usize) {
        match self.0.iter_mut().find(|(other, ..)| *other == domain) {
            Some(best) if best.1 < score => *best = (domain, score, node),
            Some(_) => {}
            None => self.0.push((domain, score, node)),
        }
    }

    /// The best of all, with what the preference of a family adds to the scores. None is left.
    fn take_best(&mut self, family: &Family<'_>) -> Option<usize> {
        let bonuses = family.bonuses(self.0.iter().map(|(domain, ..)| *domain));
        let scored = self.0.drain(..).zip(bonuses).map(|((_, score, node), bonus)| (i64::from(score) + bonus, node));
        scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, node)| node)
    }
}

/// How many nodes that will do the kube-scheduler compares, of so many that there are.
const fn sample_size(nodes: usize) -> usize {
    if nodes <= FEW_NODES {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125);
    let percent = if percent < 5 { 5 } else { percent };
    let size = nodes * percent / 100;
    if size < FEW_NODES { FEW_NODES } else { size }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn looking_at_blocks_is_looking_at_one_node_after_the_other(
            (marks, open, domains, start) in (1..400_usize).prop_flat_map(|count| {
                let open = vec(prop_oneof![Just(0), Just(u8::MAX)], count);
                (vec(prop_oneof![Just(0), 1..=201_u8], count), open, vec(0..3_u32, count), 0..count)
            }),
            first in 0..100_usize,
            open_domains in vec(prop_oneof![Just(0), Just(u8::MAX)], 3),
        ) {
            let nodes = first.min(start)..marks.len();
            let sight = Sight { marks: &marks, open: &open, domains: Some((&domains, &open_domains)) };
            let will_do = |node: &usize| {
                marks[*node] > 0 && open[*node] > 0 && open_domains[domains[*node] as usize] > 0
            };
            let seen: Vec<usize> =
                (start..nodes.end).chain(nodes.start..start).filter(will_do).take(sample_size(nodes.len())).collect();
            let is_cut = seen.len() == sample_size(nodes.len());
            let last = seen.last().filter(|_| is_cut);
            let next = last.map_or(start, |last| if last + 1 == nodes.end { nodes.start } else { last + 1 });
            let best = seen.iter().copied().reduce(|best, node| if marks[node] > marks[best] { node } else { best });

            let mut told = Vec::new();
            let ended = sight.look(&nodes, start, |first, marks| {
                told.extend((first..).zip(marks).filter(|(_, mark)| **mark > 0).map(|(node, _)| node));
            });
            prop_assert_eq!((told, ended), (seen, next));
            let mut turned = start;
            prop_assert_eq!((sight.best(&nodes, &mut turned), turned), (best, next));
        }
    }
}
