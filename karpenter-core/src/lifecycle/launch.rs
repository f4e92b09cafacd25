//! Buying the machine of a claim, and what to do when that fails.

use std::time::Duration;

use crate::{
    Timestamp,
    api::{
        ConditionStatus, NodeClaim,
        conditions::{LAUNCHED, set_condition},
    },
    catalog::OfferingKey,
    provider::{CreateError, Launched, ProviderErrorKind},
};

/// The wait before the second attempt; it doubles with each further one.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
/// The longest wait between attempts: about ten of them come before the claim is given up after five minutes.
const MAX_BACKOFF: Duration = Duration::from_mins(1);
/// Two to the power of this many of the shortest waits is more than the longest.
const MAX_DOUBLINGS: u32 = 6;

/// What to do about a machine that was not bought.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchReaction {
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
    backoff_after(failed_attempts, MIN_BACKOFF, MAX_BACKOFF)
}

/// The shortest wait, doubled with each attempt that failed after the first one, up to the longest.
pub(crate) fn backoff_after(failed_attempts: u32, shortest: Duration, longest: Duration) -> Duration {
    let doublings = failed_attempts.saturating_sub(1).min(MAX_DOUBLINGS);
    (shortest * 2_u32.pow(doublings)).min(longest)
}

/// What to do about a machine that was not bought in the last of so many attempts.
///
/// A provider that names no offering without capacity is asked again, because there is nothing to avoid.
pub fn react_to_launch_error(error: &CreateError, failed_attempts: u32) -> LaunchReaction {
    match error {
        CreateError::InsufficientCapacity { offerings } if !offerings.is_empty() => {
            LaunchReaction::Avoid(offerings.clone())
        }
        CreateError::NodeClassNotReady { class, .. } => LaunchReaction::BlockClass(class.clone()),
        CreateError::NothingCompatible { .. } => LaunchReaction::GiveUp,
        // People must act first, which takes longer than a second.
        CreateError::Provider(error) if error.kind == ProviderErrorKind::Unauthorized => {
            LaunchReaction::Retry(MAX_BACKOFF)
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
            (provider(ProviderErrorKind::Unauthorized), 1, LaunchReaction::Retry(MAX_BACKOFF)),
            (provider(ProviderErrorKind::Throttled), 3, LaunchReaction::Retry(Duration::from_secs(4))),
            (provider(ProviderErrorKind::Other), 40, LaunchReaction::Retry(MAX_BACKOFF)),
        ] {
            assert_eq!(react_to_launch_error(&error, attempts), expected, "{error}");
        }
    }
}
