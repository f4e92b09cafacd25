//! What pods prefer, and which of it is still asked for at each step of giving up.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Rules, Spread, Term};
use crate::Requirements;

/// The weight of what pods prefer without one: the most that the Kubernetes API allows.
pub(super) const FULL_WEIGHT: i32 = 100;

/// So many of the heaviest weighed wishes of a pod are kept in every combination; the lighter ones are kept together.
const MAX_FREE_WISHES: usize = 4;

/// What a pod prefers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wish {
    /// Pods to be near to.
    Near(Term),
    /// Pods to keep away from.
    Away(Term),
    /// What the node should be like.
    Node(Requirements),
    /// A spread that may be broken.
    Spread(Spread),
}

/// All that a pod prefers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Wishes {
    /// In the order in which Karpenter gives them up.
    list: Vec<Wish>,
    /// What may be kept of them, the least given up first and at last nothing, if they are weighed.
    steps: Vec<Step>,
    /// Their weights, in the order of the list, if they are weighed.
    weights: Vec<u64>,
}

/// Wishes that are kept together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Step {
    /// The weight of all others.
    unmet_weight: u64,
    /// By index, in order.
    kept: Vec<usize>,
}

/// Which steps the pods of each class try, one after the other: all in order, unless something else is said of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::schedule) struct Ladders(pub(in crate::schedule) BTreeMap<usize, Vec<usize>>);

impl Wishes {
    /// Wishes with their weights, given up in this order.
    pub(super) fn in_order(weighted: Vec<(Wish, i32)>) -> Self {
        Self { list: weighted.into_iter().map(|(wish, _)| wish).collect(), ..Self::default() }
    }

    /// Wishes with their weights, of which some can be kept and others given up.
    pub(super) fn weighed(weighted: Vec<(Wish, i32)>) -> Self {
        let clamped = |weight: i32| u64::from(weight.clamp(1, FULL_WEIGHT).unsigned_abs());
        let weights: Vec<u64> = weighted.iter().map(|(_, weight)| clamped(*weight)).collect();
        let list = weighted.into_iter().map(|(wish, _)| wish).collect();
        Self { list, steps: steps(&weights), weights }
    }

    /// How many steps there are; at the last nothing is kept.
    pub(super) const fn levels(&self) -> usize {
        if self.steps.is_empty() { 1 + self.list.len() } else { self.steps.len() }
    }

    /// Adds what is kept at a step to the rules of a pod.
    pub(super) fn add_to(&self, rules: &mut Rules, level: usize) {
        let in_order = || self.kept_in_order(level);
        let kept = self.steps.get(level).map_or_else(in_order, |step| step.kept.clone());
        for index in kept {
            rules.wishes_for_nodes |= match &self.list[index] {
                Wish::Away(term) | Wish::Spread(Spread { term, .. }) => term.is_by_host(),
                Wish::Near(_) | Wish::Node(_) => false,
            };
            match self.list[index].clone() {
                Wish::Near(term) => rules.near.push(term),
                Wish::Away(term) => rules.shuns.push(term),
                Wish::Node(wanted) => match &mut rules.node {
                    Some(all) => all.add_all(&wanted),
                    none => *none = Some(wanted),
                },
                Wish::Spread(spread) => rules.spreads.push(spread),
            }
        }
    }

    /// What Karpenter keeps once so many wishes are given up. Of the nodes wished for only the heaviest wish counts.
    fn kept_in_order(&self, given_up: usize) -> Vec<usize> {
        let mut has_node = false;
        let is_kept = |index: &usize| match self.list[*index] {
            Wish::Node(_) => !std::mem::replace(&mut has_node, true),
            _ => true,
        };
        (given_up..self.list.len()).filter(is_kept).collect()
    }

    /// The weight of what is not kept at each step.
    pub(super) fn unmet_weights(&self) -> Vec<u64> {
        self.steps.iter().map(|step| step.unmet_weight).collect()
    }

    /// The same if they were given up in Karpenter's order.
    pub(super) fn unmet_weights_in_order(&self) -> Vec<u64> {
        (0..=self.list.len()).map(|level| unmet_weight(&self.weights, &self.kept_in_order(level))).collect()
    }
}

/// What may be kept of wishes of these weights.
fn steps(weights: &[u64]) -> Vec<Step> {
    let mut heaviest_first: Vec<usize> = (0..weights.len()).collect();
    heaviest_first.sort_by_key(|&index| Reverse(weights[index]));
    let (free, lighter) = heaviest_first.split_at(weights.len().min(MAX_FREE_WISHES));
    let mut steps: Vec<Step> = Vec::new();
    for combination in 0..1_usize << free.len() {
        let chosen = free.iter().enumerate().filter(|(bit, _)| combination >> bit & 1 == 1).map(|(_, index)| *index);
        for others in [lighter, &[]] {
            let mut kept: Vec<usize> = chosen.clone().chain(others.iter().copied()).collect();
            kept.sort_unstable();
            steps.push(Step { unmet_weight: unmet_weight(weights, &kept), kept });
        }
    }
    steps.sort();
    steps.dedup();
    steps
}

fn unmet_weight(weights: &[u64], kept: &[usize]) -> u64 {
    weights.iter().enumerate().filter(|(index, _)| !kept.contains(index)).map(|(_, weight)| weight).sum()
}

impl Ladders {
    /// The steps of a class that has so many.
    pub(super) fn of(&self, class: usize, levels: usize) -> Vec<usize> {
        self.0.get(&class).cloned().unwrap_or_else(|| (0..levels).collect())
    }

    /// The first step of a class.
    pub(super) fn first(&self, class: usize) -> usize {
        self.0.get(&class).and_then(|steps| steps.first().copied()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(weights: &[u64]) -> Vec<Vec<usize>> {
        steps(weights).into_iter().map(|step| step.kept).collect()
    }

    #[test]
    fn the_least_weight_is_given_up_first() {
        assert_eq!(kept(&[]), [[0; 0]]);
        assert_eq!(kept(&[7]), [vec![0], vec![]]);
        assert_eq!(kept(&[1, 100]), [vec![0, 1], vec![1], vec![0], vec![]]);
        assert_eq!(kept(&[100, 100]), [vec![0, 1], vec![0], vec![1], vec![]]);
        let three = [vec![0, 1, 2], vec![0, 2], vec![0, 1], vec![0], vec![1, 2], vec![2], vec![1], vec![]];
        assert_eq!(kept(&[100, 20, 30]), three);
    }

    #[test]
    fn of_preferred_nodes_only_one_is_met_in_karpenters_order() {
        let wishes = [100, 30, 20].map(|weight| (Wish::Node(Requirements::new()), weight));
        let weighed = Wishes::weighed(wishes.to_vec());
        assert_eq!(weighed.unmet_weights_in_order(), [50, 120, 130, 150]);
        assert_eq!(weighed.unmet_weights(), [0, 20, 30, 50, 100, 120, 130, 150]);
        assert_eq!(Wishes::in_order(wishes.to_vec()).levels(), 4);
    }

    #[test]
    fn weights_are_those_of_the_kubernetes_api() {
        let wishes = [0, -7, 1000].map(|weight| (Wish::Node(Requirements::new()), weight));
        assert_eq!(Wishes::weighed(wishes.to_vec()).unmet_weights(), [0, 1, 1, 2, 100, 101, 101, 102]);
    }

    #[test]
    fn many_wishes_have_few_steps() {
        for count in 0..40 {
            let weights: Vec<u64> = (0..count).map(|n| 1 + n % 100).collect();
            let steps = steps(&weights);
            assert!(steps.len() <= 2 << MAX_FREE_WISHES, "{count}");
            assert_eq!(steps[0].unmet_weight, 0, "{count}");
            assert!(steps.last().is_some_and(|last| last.kept.is_empty()), "{count}");
        }
    }
}
