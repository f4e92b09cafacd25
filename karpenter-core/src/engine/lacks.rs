//! What nodes have less than they were promised.

use std::collections::BTreeMap;

use crate::{Quantity, ResourceName, Timestamp, api::Node};

/// The most instance types of all pools of which it is remembered what their nodes lack; far more than are in use.
const MAX_KNOWN: usize = 10_000;

/// What a node has of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    /// By how much it has less than it was promised.
    amount: Quantity,
    /// What it has. The next nodes are not expected to have less, even if they are promised less by now: perhaps the provider has
    /// learned the same.
    had: Quantity,
}

impl Lack {
    pub(super) fn new(promised: Quantity, has: Quantity) -> Self {
        Self { amount: promised.saturating_sub(has).max(Quantity::ZERO), had: has }
    }

    /// How much less a node is expected to have than it is promised.
    pub(super) fn of(self, promised: Quantity) -> Quantity {
        self.amount.min(promised.saturating_sub(self.had)).max(Quantity::ZERO)
    }
}

/// The last node of an instance type that became ready, and what it lacked.
#[derive(Clone, Debug, Default)]
struct Known {
    /// When it was made, and its name.
    last: (Option<Timestamp>, String),
    lacks: BTreeMap<ResourceName, Lack>,
}

/// What the last node of each pool and instance type lacked.
#[derive(Clone, Debug, Default)]
pub(super) struct Lacks(BTreeMap<(String, String), Known>);

impl Lacks {
    /// Takes in what a node has. That is of no account if a later one is known. One that has what it was promised says nothing of
    /// those that were promised more, say because its node class was changed since. Gives back what was not lacking before, or
    /// `None` if nothing has changed.
    pub(super) fn take_in(
        &mut self,
        (pool, instance_type): (&str, &str),
        node: &Node,
        has: impl IntoIterator<Item = (ResourceName, Lack)>,
    ) -> Option<Vec<(ResourceName, Lack)>> {
        let of = (pool.to_owned(), instance_type.to_owned());
        if self.0.len() >= MAX_KNOWN && !self.0.contains_key(&of) {
            return None;
        }
        let known = self.0.entry(of).or_default();
        let meta = &node.metadata;
        let last = (meta.creation_timestamp, meta.name.clone());
        if last < known.last {
            return None;
        }
        known.last = last;
        let (mut news, mut is_changed) = (Vec::new(), false);
        for (resource, lack) in has {
            let before = known.lacks.get(&resource).copied();
            if lack.amount != Quantity::ZERO {
                known.lacks.insert(resource.clone(), lack);
                is_changed |= before != Some(lack);
                news.extend(before.is_none().then_some((resource, lack)));
            } else if before.is_some_and(|before| lack.had >= before.amount.saturating_add(before.had)) {
                known.lacks.remove(&resource);
                is_changed = true;
            }
        }
        is_changed.then_some(news)
    }

    /// What nodes of a pool and an instance type lack of a resource.
    pub(super) fn get(&self, pool: &str, instance_type: &str) -> Option<&BTreeMap<ResourceName, Lack>> {
        self.0.get(&(pool.to_owned(), instance_type.to_owned())).map(|known| &known.lacks)
    }

    /// Forgets all of pools that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(&String) -> bool) {
        self.0.retain(|(pool, _), _| is_there(pool));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(count: i64) -> Quantity {
        Quantity::from_units(count)
    }

    fn node(name: &str, made: i64) -> Node {
        let mut node = Node::default();
        node.metadata.name = name.to_owned();
        node.metadata.creation_timestamp = Some(Timestamp::from_millis(made));
        node
    }

    /// What the next node is expected to have that is promised 16.
    fn expected(lacks: &Lacks) -> Quantity {
        let lack = lacks.get("p", "t").and_then(|of| of.get(&ResourceName::from("memory")).copied());
        units(16).saturating_sub(lack.map_or(Quantity::ZERO, |lack| lack.of(units(16))))
    }

    #[test]
    fn the_last_node_counts_unless_it_was_promised_less() {
        let mut lacks = Lacks::default();
        let steps = [
            ("first", 10, (16, 12), 12, "it lacks something"),
            ("first", 10, (16, 12), 12, "the same again"),
            ("older", 5, (16, 8), 12, "a later one is known"),
            ("third", 20, (16, 15), 15, "it lacks less"),
            ("fourth", 30, (15, 15), 15, "it has all, and was promised less"),
            ("fifth", 40, (16, 16), 16, "it has all"),
            ("third", 20, (16, 15), 16, "a later one is known"),
        ];
        for (name, made, (promised, has), expect, why) in steps {
            let has = [(ResourceName::from("memory"), Lack::new(units(promised), units(has)))];
            lacks.take_in(("p", "t"), &node(name, made), has);
            assert_eq!(expected(&lacks), units(expect), "{name}: {why}");
        }
    }

    #[test]
    fn what_was_lacking_before_is_no_news() {
        let mut lacks = Lacks::default();
        let mut take_in = |made, has| {
            let has = [(ResourceName::from("memory"), Lack::new(units(16), units(has)))];
            lacks.take_in(("p", "t"), &node("n", made), has).map(|news| news.len())
        };
        let found = [take_in(1, 12), take_in(2, 12), take_in(3, 13), take_in(4, 16), take_in(5, 12)];
        assert_eq!(found, [Some(1), None, Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn pools_that_are_gone_are_forgotten() {
        let mut lacks = Lacks::default();
        let lack = || [(ResourceName::from("memory"), Lack::new(units(16), units(12)))];
        lacks.take_in(("p", "t"), &node("n", 1), lack());
        lacks.take_in(("q", "t"), &node("n", 1), lack());
        lacks.retain(|pool| pool == "q");
        assert_eq!((lacks.get("p", "t").is_some(), lacks.get("q", "t").is_some()), (false, true));
    }

    #[test]
    fn nodes_are_not_expected_to_have_less_than_the_last_one_had() {
        let lack = Lack::new(units(12), units(10));
        for (promised, has) in [(16, 14), (12, 10), (11, 10), (10, 10), (8, 8)] {
            assert_eq!(units(promised).saturating_sub(lack.of(units(promised))), units(has));
        }
    }
}
