//! What the labels of a node that is still to be bought may become.

use std::collections::BTreeMap;

use karpenter_core::{
    api::{NodeSelectorRequirement, NodeSelectorTerm, Operator, PodSpec},
    labels,
};

use super::super::{
    filters::{holds, misfit},
    options::{Expressions, add_aliases, stable, values},
    volumes::Mount,
};

/// The name of a node that nobody has named yet.
pub(super) const NEW: &str = "new";

/// Sets of expressions of which one must hold.
type Alternatives = Vec<Vec<NodeSelectorRequirement>>;

/// All that a pod and its volumes say of a node's labels: of each member one alternative must hold.
pub(super) struct Wanted(Vec<Alternatives>);

impl Wanted {
    pub(super) fn new(spec: &PodSpec, mounts: &[Mount<'_>]) -> Self {
        let is = |(key, value)| NodeSelectorRequirement::new(key, Operator::In, [value]);
        let mut out = vec![vec![spec.node_selector.iter().map(is).collect()]];
        if let Some(required) = &spec.affinity.node_affinity.required {
            out.push(required.node_selector_terms.iter().filter_map(alternative).collect());
        }
        out.extend(mounts.iter().filter_map(|mount| mount.rule.alternatives(NEW)));
        for expression in out.iter_mut().flatten().flatten() {
            expression.key = stable(&expression.key);
        }
        Self(out)
    }

    /// The keys of the labels that decide.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flatten().flatten().map(|expression| expression.key.as_str())
    }

    /// Whether a node of which this is said can have such labels.
    pub(super) fn is_possible(&self, said: &Expressions) -> bool {
        can_hold(said, &self.0, &mut Vec::new())
    }
}

/// A term without expressions is met by no node.
fn alternative(term: &NodeSelectorTerm) -> Option<Vec<NodeSelectorRequirement>> {
    let is_empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
    let field = |key: &str| (key == "metadata.name").then_some(NEW);
    let is_possible = !is_empty && term.match_fields.iter().all(|e| holds(e, field(&e.key)));
    is_possible.then(|| term.match_expressions.clone())
}

fn can_hold<'w>(
    said: &'w Expressions,
    wanted: &'w [Alternatives],
    chosen: &mut Vec<&'w NodeSelectorRequirement>,
) -> bool {
    let Some((first, others)) = wanted.split_first() else { return true };
    first.iter().any(|alternative| {
        let before = chosen.len();
        chosen.extend(alternative);
        let can_meet = |key: &String| {
            let mut of_pods = chosen.iter().copied().filter(|e| e.key == *key);
            match said.get(key) {
                Some(own) => some_value_holds(&own.iter().chain(of_pods).collect::<Vec<_>>()),
                None => of_pods.all(|e| holds(e, None)),
            }
        };
        let is_met = alternative.iter().all(|e| can_meet(&e.key)) && can_hold(said, others, chosen);
        chosen.truncate(before);
        is_met
    })
}

/// Whether a label can have a value, or be absent, so that all these hold.
///
/// Beside the values that are named, some value that is not named stands for all others, and so do the numbers next to
/// each bound: as many as there are values to keep away from, and one more.
pub(super) fn some_value_holds(expressions: &[&NodeSelectorRequirement]) -> bool {
    let all_hold = |value: Option<&str>| expressions.iter().all(|e| holds(e, value));
    let named = || expressions.iter().flat_map(|e| &e.values);
    let reach = i64::try_from(named().count()).unwrap_or(i64::MAX);
    let near = |bound: i64| (0..=reach).flat_map(move |n| [bound.saturating_sub(n), bound.saturating_add(n)]);
    all_hold(None)
        || all_hold(Some("a value that nobody names"))
        || named().any(|value| all_hold(Some(value)))
        || named().filter_map(|v| v.parse().ok()).flat_map(near).any(|n| all_hold(Some(&n.to_string())))
}

/// Whether a daemon runs on a node of which this is said, whatever becomes of labels that are still open.
pub(super) fn is_sure(daemon: &PodSpec, said: &Expressions) -> bool {
    let Some(required) = &daemon.affinity.node_affinity.required else { return is_sure_alone(daemon, said) };
    // Labels that are still open in one term do not matter where another one holds.
    required.node_selector_terms.iter().any(|term| {
        let mut alone = daemon.clone();
        alone.affinity.node_affinity.required.get_or_insert_default().node_selector_terms = vec![term.clone()];
        is_sure_alone(&alone, said)
    })
}

/// The same for a daemon with at most one term.
fn is_sure_alone(daemon: &PodSpec, said: &Expressions) -> bool {
    let wanted = Wanted::new(daemon, &[]);
    let mut labels = BTreeMap::from([(labels::HOSTNAME.to_owned(), NEW.to_owned())]);
    for key in wanted.keys().filter(|key| *key != labels::HOSTNAME) {
        let Some(own) = said.get(key) else { continue };
        let is_closed = own.iter().any(|e| matches!(e.operator, Operator::In | Operator::DoesNotExist));
        match (is_closed, values(own).as_slice()) {
            (true, [state]) => labels.extend(state.iter().map(|value| (key.to_owned(), value.clone()))),
            _ => return false,
        }
    }
    add_aliases(&mut labels);
    misfit(daemon, NEW, &labels).is_none()
}
