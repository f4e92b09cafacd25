//! Many small calls as a few large ones.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt, future::Shared};

use crate::clock::{BoxFuture, Clock};

/// How long a batch waits for company.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// It leaves when nobody came for this long,
    pub(crate) idle: Duration,
    /// or after this long,
    pub(crate) longest: Duration,
    /// or when it has so many items.
    pub(crate) items: usize,
}

/// Collects items that belong together and hands them to one call.
///
/// Every caller polls the same future, so that a batch goes on if some of them give up.
pub(crate) struct Batcher<K, I, O> {
    clock: Arc<dyn Clock>,
    window: Window,
    /// The batches that wait for company. At most one for each key, and gone when it leaves.
    open: Arc<Mutex<BTreeMap<K, Open<I, O>>>>,
    run: Run<K, I, O>,
}

/// What a batch does with its items: one result for each, in their order.
type Run<K, I, O> = Arc<dyn Fn(K, Batch<I>) -> BoxFuture<Vec<O>> + Send + Sync>;

/// What leaves together.
pub(crate) struct Batch<I> {
    /// In the order in which they came.
    pub(crate) items: Vec<I>,
    /// How long the first of them waited for the others.
    pub(crate) waited: Duration,
}

struct Open<I, O> {
    items: Arc<Mutex<Vec<I>>>,
    result: Shared<BoxFuture<Arc<Vec<O>>>>,
}

impl<K, I, O> Batcher<K, I, O>
where
    K: Clone + Ord + Send + Sync + 'static,
    I: Send + 'static,
    O: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        window: Window,
        run: impl Fn(K, Batch<I>) -> BoxFuture<Vec<O>> + Send + Sync + 'static,
    ) -> Self {
        Self { clock, window, open: Arc::default(), run: Arc::new(run) }
    }

    /// Adds an item to a batch of this key and waits for what comes of it; `None` if the call left it out.
    pub(crate) async fn submit(&self, key: K, item: I) -> Option<O> {
        let (result, place) = {
            let mut open = lock(&self.open);
            let is_full = open.get(&key).is_some_and(|batch| lock(&batch.items).len() >= self.window.items);
            if is_full {
                open.remove(&key);
            }
            let batch = open.entry(key.clone()).or_insert_with(|| self.start(key));
            let mut items = lock(&batch.items);
            items.push(item);
            (batch.result.clone(), items.len() - 1)
        };
        result.await.get(place).cloned()
    }

    fn start(&self, key: K) -> Open<I, O> {
        let items: Arc<Mutex<Vec<I>>> = Arc::default();
        let (clock, window, run) = (self.clock.clone(), self.window, self.run.clone());
        let (own, open) = (items.clone(), self.open.clone());
        let result: BoxFuture<Arc<Vec<O>>> = Box::pin(async move {
            let (began, mut waited) = (clock.now(), Duration::ZERO);
            loop {
                let before = lock(&own).len();
                clock.sleep(window.idle).await;
                waited += window.idle;
                let count = lock(&own).len();
                if count == before || count >= window.items || waited >= window.longest {
                    break;
                }
            }
            let items = {
                let mut open = lock(&open);
                if open.get(&key).is_some_and(|batch| Arc::ptr_eq(&batch.items, &own)) {
                    open.remove(&key);
                }
                std::mem::take(&mut *lock(&own))
            };
            let waited = clock.now().since(began);
            Arc::new(run(key, Batch { items, waited }).await)
        });
        Open { items, result: result.shared() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::ManualClock;

    const WINDOW: Window = Window { idle: Duration::from_millis(35), longest: Duration::from_secs(1), items: 3 };

    type Log = Arc<Mutex<Vec<(char, Vec<u32>)>>>;

    fn batcher(log: &Log) -> Batcher<char, u32, u32> {
        let log = log.clone();
        Batcher::new(Arc::new(ManualClock::default()), WINDOW, move |key, batch: Batch<u32>| {
            log.lock().unwrap().push((key, batch.items.clone()));
            Box::pin(async move { batch.items.into_iter().map(|i| i * 10).collect() })
        })
    }

    #[tokio::test]
    async fn items_of_one_key_go_together_and_get_their_own_results() {
        let log = Arc::default();
        let batcher = batcher(&log);
        let submit = |key, item| batcher.submit(key, item);
        let results = futures_util::future::join_all([submit('a', 1), submit('b', 2), submit('a', 3)]).await;
        assert_eq!(results, [Some(10), Some(20), Some(30)]);
        assert_eq!(*log.lock().unwrap(), [('a', vec![1, 3]), ('b', vec![2])]);
    }

    #[tokio::test]
    async fn a_full_batch_takes_no_more() {
        let log = Arc::default();
        let batcher = batcher(&log);
        let results = futures_util::future::join_all((0..7).map(|i| batcher.submit('a', i))).await;
        assert_eq!(results, (0..7).map(|i| Some(i * 10)).collect::<Vec<_>>());
        assert_eq!(log.lock().unwrap().iter().map(|(_, items)| items.len()).collect::<Vec<_>>(), [3, 3, 1]);
    }

    #[tokio::test]
    async fn a_batch_goes_on_if_the_first_of_its_callers_gives_up() {
        let log = Arc::default();
        let batcher = batcher(&log);
        let mut first = Box::pin(batcher.submit('a', 1));
        let mut second = Box::pin(batcher.submit('a', 2));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(second.await, Some(20));
        assert_eq!(*log.lock().unwrap(), [('a', vec![1, 2])]);
    }
}
