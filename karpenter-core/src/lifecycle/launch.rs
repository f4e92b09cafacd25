//! Buying the machine of a claim, and what to do when that fails.

use std::time::Duration;

use crate::{
    Backoff, Timestamp,
    api::{
        ConditionStatus, NodeClaim,
        conditions::{LAUNCHED, set_condition},
    },
    catalog::OfferingKey,
    provider::{CreateError, Launched, ProviderErrorKind},
};

/// The waits between attempts: about ten of them come before the claim is given up after five minutes.
const BACKOFF: Backoff = Backoff { shortest: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// What to do about a machine that was not bought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LaunchReaction {
    /// Delete the claim, avoid these offerings for a while, and plan its pods anew at once.
    Avoid(Vec<OfferingKey>),
    /// Delete the claim, and make no other of this node class for a while, which is longer each time.
    BlockClass(String),
    /// Delete the claim; another one for the same pods would fare no better until something changes.
    GiveUp,
    /// Ask again after this long.
    Retry(Duration),
}

/// The claim with what was bought written into it.
///
/// Labels that the claim has already keep their values; see [`Launched::hydrate`].
pub fn launched(claim: &NodeClaim, machine: &Launched, now: Timestamp) -> NodeClaim {
    let mut out = claim.clone();
    machine.hydrate(&mut out);
    let (conditions, generation) = (&mut out.status.conditions, claim.metadata.generation);
    set_condition(conditions, generation, LAUNCHED, ConditionStatus::True, LAUNCHED, "", now);
    out
}

/// How long to wait before the next attempt, after so many that failed: one second, doubled each time, one minute at most.
///
/// ```
/// use karpenter_core::lifecycle::launch_backoff;
///
/// let waits: Vec<u64> = [1, 2, 3, 7, 100].map(|attempts| launch_backoff(attempts).as_secs()).to_vec();
/// assert_eq!(waits, [1, 2, 4, 60, 60]);
/// ```
pub fn launch_backoff(failed_attempts: u32) -> Duration {
    BACKOFF.after(failed_attempts)
}

/// What to do about a machine that was not bought in the last of so many attempts.
///
/// A provider that names no offering without capacity is asked again, because there is nothing to avoid.
pub(crate) fn react_to_launch_error(error: &CreateError, failed_attempts: u32) -> LaunchReaction {
    match error {
        CreateError::InsufficientCapacity { offerings } if !offerings.is_empty() => {
            LaunchReaction::Avoid(offerings.clone())
        }
        CreateError::NodeClassNotReady { class, .. } => LaunchReaction::BlockClass(class.clone()),
        CreateError::NothingCompatible { .. } => LaunchReaction::GiveUp,
        // People must act first, which takes longer than a second.
        CreateError::Provider(error) if error.kind == ProviderErrorKind::Unauthorized => {
            LaunchReaction::Retry(BACKOFF.longest)
        }
        CreateError::Provider(_) | CreateError::InsufficientCapacity { .. } => {
            LaunchReaction::Retry(launch_backoff(failed_attempts))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ProviderError;

    #[test]
    fn each_kind_of_error_has_its_reaction() {
        let key = OfferingKey { instance_type: "m".to_owned(), zone: "a".to_owned(), capacity_type: "spot".to_owned() };
        let provider = |kind| CreateError::Provider(ProviderError::new("fake", "create", kind, "no"));
        let class = || "default".to_owned();
        for (error, attempts, expected) in [
            (
                CreateError::InsufficientCapacity { offerings: vec![key.clone()] },
                1,
                LaunchReaction::Avoid(vec![key.clone()]),
            ),
            (
                CreateError::InsufficientCapacity { offerings: Vec::new() },
                2,
                LaunchReaction::Retry(Duration::from_secs(2)),
            ),
            (
                CreateError::NodeClassNotReady { class: class(), message: String::new() },
                1,
                LaunchReaction::BlockClass(class()),
            ),
            (CreateError::NothingCompatible { message: String::new() }, 1, LaunchReaction::GiveUp),
            (provider(ProviderErrorKind::Unauthorized), 1, LaunchReaction::Retry(BACKOFF.longest)),
            (provider(ProviderErrorKind::Throttled), 3, LaunchReaction::Retry(Duration::from_secs(4))),
            (provider(ProviderErrorKind::Other), 40, LaunchReaction::Retry(BACKOFF.longest)),
        ] {
            assert_eq!(react_to_launch_error(&error, attempts), expected, "{error}");
        }
    }
}
