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

/// The same for a function that takes about a microsecond: few items are not worth another thread.
#[cfg(feature = "rayon")]
pub(crate) fn map_quickly<T: Sync, R: Send>(items: &[T], function: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};

    const LEAST: usize = 8;
    if items.len() < 2 * LEAST {
        items.iter().map(function).collect()
    } else {
        items.par_iter().with_min_len(LEAST).map(function).collect()
    }
}

/// The same for a function that takes about a microsecond.
#[cfg(not(feature = "rayon"))]
pub(crate) fn map_quickly<T, R>(items: &[T], function: impl Fn(&T) -> R) -> Vec<R> {
    map(items, function)
}

/// What a function gives that divides its work among threads many times: once it is among them, they need not be woken each time.
#[cfg(feature = "rayon")]
pub(crate) fn among_threads<R: Send>(function: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| function())
}

/// What a function gives.
#[cfg(not(feature = "rayon"))]
pub(crate) fn among_threads<R>(function: impl FnOnce() -> R) -> R {
    function()
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
