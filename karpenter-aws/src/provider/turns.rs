//! Questions that many ask at the same time, asked once.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Lets one caller at a time ask about each key. Those who wait meanwhile share the answer of whoever asks next.
///
/// What is asked should look first whether the answer is known by now.
pub(crate) struct Turns<K, T>(Mutex<BTreeMap<K, Arc<Turn<T>>>>);

struct Turn<T> {
    /// How many have begun to ask.
    begun: AtomicU64,
    /// The last answer, and the number of whoever asked.
    last: futures_util::lock::Mutex<Option<(u64, T)>>,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl<K: Clone + Ord, T: Clone> Turns<K, T> {
    /// What `ask` answers, or what it answered to somebody who began after this call.
    pub(crate) async fn take(&self, key: K, ask: impl Future<Output = T>) -> T {
        let turn = self.lock().entry(key.clone()).or_default().clone();
        let answer = turn.take(ask).await;
        let mut turns = self.lock();
        // Nobody else waits for it.
        if Arc::strong_count(&turn) == 2 {
            turns.remove(&key);
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Arc<Turn<T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Turn<T> {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), last: futures_util::lock::Mutex::new(None) }
    }
}

impl<T: Clone> Turn<T> {
    async fn take(&self, ask: impl Future<Output = T>) -> T {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(number, _)| begun < *number) {
            return answer.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = ask.await;
        *last = Some((number, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, future::join_all};

    use super::*;

    #[tokio::test]
    async fn of_many_who_ask_at_once_two_ask() {
        let (turns, asked) = (Turns::default(), AtomicU64::new(0));
        let ask = |key: &'static str| {
            let asked = &asked;
            let ask = async move {
                tokio::task::yield_now().await;
                asked.fetch_add(1, Ordering::SeqCst)
            };
            turns.take(key, ask)
        };
        let answers = join_all((0..100).map(|_| ask("a"))).await;
        assert_eq!(asked.load(Ordering::SeqCst), 2, "one, and one for those who came while it asked");
        assert_eq!((answers[0], answers[1], answers[99]), (0, 1, 1));
        assert_eq!(ask("a").await, 2, "who asks later asks anew");
        join_all(["b", "c"].map(ask)).await;
        assert_eq!(asked.load(Ordering::SeqCst), 5, "each key has turns of its own");
        assert!(turns.lock().is_empty());
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_turn_to_the_next() {
        let turns = Turns::default();
        assert!(turns.take((), std::future::pending::<u8>()).now_or_never().is_none());
        assert_eq!(turns.take((), std::future::ready(1)).await, 1);
    }
}
