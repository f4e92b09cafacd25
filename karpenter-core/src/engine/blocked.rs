//! What people are told of nodes that stay: of those that may not go, and of those that should.

use std::{collections::BTreeMap, time::Duration};

use super::{Engine, ObjectRef, provision::is_static};
use crate::{
    Snapshot, Timestamp,
    disrupt::{Candidates, Guard, Homeless, holdups, join},
};

/// How often it is told.
const BLOCKED_PERIOD: Duration = Duration::from_mins(5);

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Blocked {
    /// What was told last of each node and pool.
    told: BTreeMap<ObjectRef, String>,
    /// When next to tell.
    next: Option<Timestamp>,
    /// The drifted nodes whose pods had no other place in the last search that found nothing.
    pub(super) homeless: Homeless,
}

impl Engine {
    /// Tells people why nodes stay, where they were not told so before.
    pub(super) fn tell_blocked(&mut self, snapshot: &Snapshot, of: impl FnOnce() -> Candidates, now: Timestamp) {
        let Blocked { told, next, homeless } = &self.disruption.blocked;
        if next.is_some_and(|next| now < next) {
            return;
        }
        let candidates = of();
        let mut found = self.guarded(&candidates);
        for (node, pods) in homeless {
            let why = format!("it has drifted, and these pods have no other place: {}", join(pods, ", "));
            found.insert(ObjectRef::Node(node.clone()), why);
        }
        found.extend(self.held_up(snapshot, &candidates, now));
        let is_new = |(object, why): &(&ObjectRef, &String)| told.get(*object) != Some(*why);
        let news: Vec<(ObjectRef, String)> =
            found.iter().filter(is_new).map(|(object, why)| (object.clone(), why.clone())).collect();
        for (object, why) in news {
            self.note(object, false, "DisruptionBlocked", why, now);
        }
        self.disruption.blocked.told = found;
        self.disruption.blocked.next = Some(now + BLOCKED_PERIOD);
    }

    /// The nodes of claims that may not go, and why.
    fn guarded(&self, candidates: &Candidates) -> BTreeMap<ObjectRef, String> {
        let has_claim = |name: &str| self.store.nodes.get(name).is_some_and(|node| self.store.claim_of(node).is_some());
        let is_leaving = |guards: &[Guard]| guards.iter().any(|g| matches!(g, Guard::Leaving | Guard::Disrupted));
        let kept = candidates.kept().iter().filter(|node| has_claim(&node.name) && !is_leaving(&node.guards));
        kept.map(|node| {
            let guards: Vec<String> = node.guards.iter().map(ToString::to_string).collect();
            (ObjectRef::Node(node.name.clone()), guards.join("; "))
        })
        .collect()
    }

    /// The pools of which nodes should go that are held up, and why.
    fn held_up(&self, snapshot: &Snapshot, candidates: &Candidates, now: Timestamp) -> Vec<(ObjectRef, String)> {
        let is_left_alone = |pool: &str| !self.options.static_capacity && is_static(snapshot.pool(pool));
        let held = holdups(snapshot, candidates, now).into_iter().filter(|(pool, _)| !is_left_alone(pool));
        held.map(|(pool, why)| {
            let why: Vec<String> = why.iter().map(ToString::to_string).collect();
            (ObjectRef::NodePool(pool), why.join("; "))
        })
        .collect()
    }
}
