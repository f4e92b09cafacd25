//! What the engine has asked for and not heard of yet.

use std::{collections::BTreeMap, time::Duration};

use indexmap::IndexMap;

use super::{Action, ActionId, Request};
use crate::{FxBuild, Timestamp, api::ObjectKey, provider::ProviderId};

/// An object that was written is left alone until it is told how it is now. If that takes longer than this, it is looked at
/// again: watches lag behind by a second or two, and a write that changed nothing is told by nobody.
pub(super) const SETTLE: Duration = Duration::from_secs(10);
/// An action of which nothing was heard for this long is taken for lost. Calls of clouds time out after a minute or so, and
/// shells repeat them a few times.
pub(super) const LOST_AFTER: Duration = Duration::from_mins(10);

/// An object that the engine writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Pool(String),
    Overlay(String),
    Claim(String),
    Node(String),
}

/// What an action is for, to know what its result means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Create { claim: String },
    Write(Target),
    Delete(Target),
    Evict { pod: ObjectKey, uid: String, is_forced: bool },
    Launch { claim: String, uid: String },
    Terminate(ProviderId),
    Get(ProviderId),
    List,
    Catalog { pool: String },
    Drift { claim: String, uid: String },
    Events,
}

/// Requests on their way out, and actions under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    last: u64,
    ready: Vec<Request>,
    /// At most one for each object and each chore, and those evictions that are under way.
    flying: BTreeMap<ActionId, (Purpose, Timestamp)>,
    busy: IndexMap<Target, Busy, FxBuild>,
}

/// An object that was written, or of which a write was refused.
#[derive(Clone, Debug)]
struct Busy {
    /// The version of it that the write was made from.
    version: String,
    action: ActionId,
    /// When it is written again, even if nothing is heard of it.
    until: Timestamp,
    /// Whether somebody wanted to write it in the meantime.
    is_missed: bool,
}

impl Outbox {
    /// Asks for an action.
    pub(super) fn send(&mut self, action: Action, purpose: Option<Purpose>, now: Timestamp) -> ActionId {
        self.last += 1;
        let id = ActionId(self.last);
        self.ready.push(Request { id, action });
        if let Some(purpose) = purpose {
            self.flying.insert(id, (purpose, now));
        }
        id
    }

    /// Asks for a write to an object, or for its deletion; it is busy from now on.
    pub(super) fn write(&mut self, action: Action, target: Target, version: &str, now: Timestamp) {
        let is_deletion = matches!(action, Action::DeleteClaim { .. } | Action::DeleteNode { .. });
        let purpose = if is_deletion { Purpose::Delete } else { Purpose::Write };
        let action = self.send(action, Some(purpose(target.clone())), now);
        self.busy
            .insert(target, Busy { version: version.to_owned(), action, until: now + LOST_AFTER, is_missed: false });
    }

    /// When an object is looked at again if nothing is heard of it, if a write to it is under way, has not been told yet, or was
    /// refused a short while ago.
    pub(super) fn settles(&self, target: &Target, version: &str, now: Timestamp) -> Option<Timestamp> {
        let busy = self.busy.get(target)?;
        let is_flying = self.flying.contains_key(&busy.action);
        (is_flying || busy.version == version && now < busy.until).then_some(busy.until)
    }

    /// Whether the last write to an object was made from this version of it.
    pub(super) fn was_written_from(&self, target: &Target, version: &str) -> bool {
        self.busy.get(target).is_some_and(|busy| busy.version == version)
    }

    /// Takes down that somebody wants to write an object that settles.
    pub(super) fn miss(&mut self, target: &Target) {
        if let Some(busy) = self.busy.get_mut(target) {
            busy.is_missed = true;
        }
    }

    /// Whether somebody wanted to write an object since it was written last.
    pub(super) fn is_missed(&self, target: &Target) -> bool {
        self.busy.get(target).is_some_and(|busy| busy.is_missed)
    }

    /// Whether it is not known yet whether a claim was made.
    pub(super) fn is_creating(&self, name: &str) -> bool {
        self.flying.values().any(|(purpose, _)| matches!(purpose, Purpose::Create { claim } if claim == name))
    }

    /// What an action was for, which is over now. If it was a write, its object is left alone until then, or until it changes.
    pub(super) fn done(&mut self, id: ActionId, until: Timestamp) -> Option<Purpose> {
        let (purpose, _) = self.flying.remove(&id)?;
        if let Purpose::Write(target) | Purpose::Delete(target) = &purpose
            && let Some(busy) = self.busy.get_mut(target).filter(|busy| busy.action == id)
        {
            busy.until = until;
        }
        Some(purpose)
    }

    /// Hears no more of a machine that is gone: its name is that of another one.
    pub(super) fn forget_machine(&mut self, machine: &ProviderId) {
        let is_of = |purpose: &Purpose| matches!(purpose, Purpose::Terminate(id) | Purpose::Get(id) if id == machine);
        self.flying.retain(|_, (purpose, _)| !is_of(purpose));
    }

    /// Forgets what is known of an object that is gone.
    pub(super) fn forget(&mut self, target: &Target) {
        self.busy.swap_remove(target);
    }

    /// The actions that are taken for lost.
    pub(super) fn lost(&mut self, now: Timestamp) -> Vec<Purpose> {
        let mut out = Vec::new();
        while let Some(first) = self.flying.first_entry()
            && first.get().1 + LOST_AFTER <= now
        {
            out.push(first.remove().0);
        }
        out
    }

    /// When the first action is taken for lost.
    pub(super) fn next_loss(&self) -> Option<Timestamp> {
        self.flying.first_key_value().map(|(_, (_, since))| *since + LOST_AFTER)
    }

    /// The requests that nobody has seen yet.
    pub(super) fn take(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.ready)
    }
}
