//! Commands that an engine was stopped in: what replaces what is in the cluster.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Engine,
    disruption::{Active, COMMAND_TIMEOUT, Outgoing},
};
use crate::{
    Timestamp,
    api::{NodeClaim, conditions::DISRUPTION_REASON},
    disrupt::Method,
    labels,
};

/// What the replacements of a command say in [`labels::REPLACES`]: how it was found, how many they are, and the claims of the
/// nodes that go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replaces {
    pub(super) method: Method,
    pub(super) replacements: usize,
    pub(super) claims: Vec<String>,
}

impl Replaces {
    /// Such as `Consolidation/1/general-a,general-b`.
    pub(super) fn text(&self) -> String {
        format!("{}/{}/{}", self.method.name(), self.replacements, self.claims.join(","))
    }

    /// Whether the text says that this claim goes.
    pub(super) fn names(text: &str, claim: &str) -> bool {
        text.rsplit('/').next().is_some_and(|claims| claims.split(',').any(|name| name == claim))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let (method, count, claims) = (parts.next()?, parts.next()?, parts.next()?);
        let claims = claims.split(',').map(str::to_owned).collect();
        Some(Self { method: method.parse().ok()?, replacements: count.parse().ok()?, claims })
    }
}

impl Engine {
    /// Goes on with commands of which all replacements are there and a node is still marked, so that nothing is bought twice.
    /// Where their pods go is planned anew.
    pub(super) fn recall(&mut self, now: Timestamp) {
        let mut by_text: BTreeMap<&str, Vec<&Arc<NodeClaim>>> = BTreeMap::new();
        for claim in self.store.claims.values() {
            if let Some(text) = claim.metadata.annotations.get(labels::REPLACES) {
                by_text.entry(text).or_default().push(claim);
            }
        }
        let recalled: Vec<Active> =
            by_text.into_iter().filter_map(|(text, claims)| self.recalled(text, &claims, now)).collect();
        for active in recalled {
            for outgoing in &active.candidates {
                self.mark(outgoing, active.method, now);
            }
            self.disruption.add(active);
            self.disruption.is_stirred = true;
            self.provisioner.hurry(now);
        }
    }

    fn recalled(&self, text: &str, replacements: &[&Arc<NodeClaim>], now: Timestamp) -> Option<Active> {
        let replaces = Replaces::parse(text)?;
        let stays = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_none();
        let since = replacements.iter().filter_map(|claim| claim.metadata.creation_timestamp).min().unwrap_or(now);
        let are_all_there =
            replacements.len() == replaces.replacements && replacements.iter().all(|claim| stays(claim));
        let is_known = |claim: &&Arc<NodeClaim>| {
            self.disruption.awaits(claim.name()) || self.disruption.has_given_up(claim.name())
        };
        if !are_all_there || replacements.iter().any(is_known) || since + COMMAND_TIMEOUT <= now {
            return None;
        }
        let mut is_marked = false;
        let mut candidates = Vec::new();
        for claim in replaces.claims.iter().filter_map(|name| self.store.claims.get(name)).filter(|claim| stays(claim))
        {
            let Some(node) = self.store.nodes_of(claim).next() else { continue };
            is_marked |= claim.status.is_true(DISRUPTION_REASON) || node.is_disrupted();
            candidates.push(Outgoing::of(claim, &node.metadata.name));
        }
        let replacements = replacements.iter().map(|claim| claim.name().to_owned()).collect();
        is_marked.then_some(Active { method: replaces.method, candidates, replacements, since, has_turns: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let claims = vec!["general-a".to_owned(), "general-b".to_owned()];
        for method in Method::ALL {
            let replaces = Replaces { method, replacements: 2, claims: claims.clone() };
            assert!(Replaces::names(&replaces.text(), "general-b") && !Replaces::names(&replaces.text(), "general"));
            assert_eq!(Replaces::parse(&replaces.text()), Some(replaces));
        }
        let replaces = Replaces { method: Method::Consolidation, replacements: 2, claims };
        assert_eq!(replaces.text(), "Consolidation/2/general-a,general-b");
        for text in ["", "Drift", "Drift/1", "Drift/one/a", "Whim/1/a"] {
            assert_eq!(Replaces::parse(text), None, "{text}");
        }
    }
}
