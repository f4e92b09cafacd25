//! Independent work, on several threads if the feature `rayon` is on. The results and their order are the same either way.

/// What a function makes of each item, in the order of the items.
#[cfg(feature = "rayon")]
pub(crate) fn map<T: Sync, R: Send>(items: &[T], function: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

    if items.len() < 2 { items.iter().map(function).collect() } else { items.par_iter().map(function).collect() }
}

/// What a function makes of each item, in the order of the items.
#[cfg(not(feature = "rayon"))]
pub(crate) fn map<T, R>(items: &[T], function: impl Fn(&T) -> R) -> Vec<R> {
    items.iter().map(function).collect()
}

/// What two functions give.
#[cfg(feature = "rayon")]
pub(crate) fn both<A: Send, B: Send>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B + Send) -> (A, B) {
    rayon::join(first, second)
}

/// What two functions give.
#[cfg(not(feature = "rayon"))]
pub(crate) fn both<A, B>(first: impl FnOnce() -> A, second: impl FnOnce() -> B) -> (A, B) {
    (first(), second())
}
