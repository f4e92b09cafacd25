//! The values of options.

use std::time::Duration;

use karpenter_core::disrupt::SpotToSpot;

/// The most threads that can be asked for.
const MAX_THREADS: usize = 1024;

/// Reads how many threads there shall be.
pub(super) fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=MAX_THREADS).contains(threads));
    threads.ok_or_else(|| format!("a number from 1 to {MAX_THREADS} is expected"))
}

/// Reads a share of a bill: 0 and 0.1 are shares, -1 and NaN are not.
pub(super) fn share(text: &str) -> Result<f64, String> {
    not_negative(text).ok_or_else(|| "a number of at least 0 is expected, such as 0.06".to_owned())
}

/// Reads a rule for spot nodes that become other spot nodes.
pub(super) fn spot_to_spot(text: &str) -> Result<SpotToSpot, String> {
    match text {
        "never" => Ok(SpotToSpot::Never),
        "always" => Ok(SpotToSpot::Always),
        number => {
            let min_types = number.parse().ok().filter(|&min_types| min_types > 0);
            let min_types = min_types.ok_or("`never`, `always` or a number of types such as 15 is expected")?;
            Ok(SpotToSpot::Flexible { min_types })
        }
    }
}

/// Reads an amount of money.
pub(super) fn dollars(text: &str) -> Result<f64, String> {
    not_negative(text).ok_or_else(|| "dollars of at least 0 are expected, such as 0.05".to_owned())
}

/// Reads a share of the pods of a workload: more than none, and at most all of them.
pub(super) fn workload_share(text: &str) -> Result<f64, String> {
    let share = not_negative(text).filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "a number above 0 and up to 1 is expected, such as 0.25".to_owned())
}

/// Reads a time in seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let time = not_negative(text).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "seconds of at least 0 are expected, such as 0.5".to_owned())
}

fn not_negative(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}
