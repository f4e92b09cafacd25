//! An API server in memory.

mod eviction;
mod kind;
mod store;
mod watch;

use std::{sync::Arc, time::Duration};

use karpenter_core::{
    Snapshot, SnapshotError, Timestamp,
    api::{Node, NodeClaim, ObjectKey, Pod},
    engine::{Event, Object, Refusal},
};

pub(crate) use eviction::{is_ready, selects};
pub use kind::ApiObject;
use kind::Stores;
use watch::Watch;

/// How long a pod may take to end if it does not say.
const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// The API server of a cluster, in memory: objects with uids, versions, generations and finalizers, the eviction of pods,
/// and a watch that tells of every change in order.
///
/// Writes are optimistic: one that names a `resourceVersion` fails with [`Refusal::Conflict`] if the object has another
/// by now, and one that names none overwrites. A write that changes nothing is told to nobody.
///
/// ```
/// use karpenter_core::{api::NodePool, engine::Refusal};
/// use karpenter_fake::sim::ApiServer;
///
/// let mut api = ApiServer::default();
/// let pool = api.create(NodePool::named("general"))?;
/// let mut changed = NodePool::clone(&pool);
/// changed.metadata.annotations.insert("team".into(), "web".into());
/// assert_eq!(api.update(changed.clone())?.metadata.resource_version, "2");
/// assert_eq!(api.update(changed), Err(Refusal::Conflict));
/// # Ok::<(), Refusal>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ApiServer {
    now: Timestamp,
    /// The version of the last write.
    version: u64,
    /// How many objects there ever were.
    made: u64,
    stores: Stores,
    watch: Watch,
    /// What the controllers of the cluster have not seen yet, in order.
    changes: Vec<Change>,
    /// Whether there are such controllers.
    is_followed: bool,
}

/// What became of an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// As it was; `None` if it is new.
    pub(crate) before: Option<Object>,
    /// As it is; `None` if it is gone.
    pub(crate) after: Option<Object>,
}

impl ApiServer {
    /// Sets the time; it never goes back.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// The time that was set last.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Takes in a new object and gives it a uid, a version and a time of creation.
    ///
    /// # Errors
    /// [`Refusal::AlreadyExists`], or [`Refusal::Invalid`] if it has no name.
    pub fn create<T: ApiObject>(&mut self, mut object: T) -> Result<Arc<T>, Refusal> {
        let key = object.key();
        if key.name.is_empty() {
            return Err(Refusal::Invalid("metadata.name: must not be empty".to_owned()));
        }
        if T::store(&self.stores).get(&key).is_some() {
            return Err(Refusal::AlreadyExists);
        }
        self.made += 1;
        let uid = format!("{:08x}-0000-4000-8000-{:012x}", self.made, self.made);
        let meta = object.metadata_mut();
        meta.namespace.clone_from(&key.namespace);
        meta.uid = uid;
        meta.generation = Some(1);
        meta.creation_timestamp = Some(self.now);
        meta.deletion_timestamp = None;
        Ok(self.put(key, None, object))
    }

    /// The object of this namespace and name; the namespace is empty for kinds that have none.
    pub fn get<T: ApiObject>(&self, key: &ObjectKey) -> Option<&Arc<T>> {
        T::store(&self.stores).get(key)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.get(&cluster_key(name))
    }

    /// The node claim of this name.
    pub fn claim(&self, name: &str) -> Option<&Arc<NodeClaim>> {
        self.get(&cluster_key(name))
    }

    /// The objects of a kind, in the order of namespace and name.
    pub fn list<T: ApiObject>(&self) -> impl ExactSizeIterator<Item = &Arc<T>> {
        T::store(&self.stores).values()
    }

    /// Writes an object anew: all of it but what the server itself keeps, such as the times of creation and deletion.
    /// One that is being deleted and has no finalizer left is gone.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], also if another object has the name; [`Refusal::Conflict`] if the object names a version
    /// that is not the last; [`Refusal::Invalid`] for a new finalizer on an object that is being deleted.
    pub fn update<T: ApiObject>(&mut self, object: T) -> Result<Arc<T>, Refusal> {
        let key = object.key();
        let before = self.find::<T>(&key, &object.metadata().uid)?;
        self.replace(key, before, object)
    }

    /// Writes an object anew that was found at its key.
    fn replace<T: ApiObject>(&mut self, key: ObjectKey, before: Arc<T>, mut object: T) -> Result<Arc<T>, Refusal> {
        let (old, new) = (before.metadata(), object.metadata_mut());
        if !new.resource_version.is_empty() && new.resource_version != old.resource_version {
            return Err(Refusal::Conflict);
        }
        let is_leaving = old.deletion_timestamp.is_some();
        if is_leaving && new.finalizers.iter().any(|f| !old.finalizers.contains(f)) {
            let message = "metadata.finalizers: no new finalizers can be added if the object is being deleted";
            return Err(Refusal::Invalid(message.to_owned()));
        }
        new.namespace.clone_from(&key.namespace);
        new.uid.clone_from(&old.uid);
        new.creation_timestamp = old.creation_timestamp;
        new.deletion_timestamp = old.deletion_timestamp;
        new.generation = old.generation;
        new.resource_version.clone_from(&old.resource_version);
        if object == *before {
            return Ok(before);
        }
        if !object.asks_the_same(&before) {
            object.metadata_mut().generation = before.metadata().generation.map(|g| g + 1);
        }
        // A pod that is being deleted waits for its kubelet, not for finalizers alone.
        let waits = before.metadata().finalizers.is_empty() || !object.metadata().finalizers.is_empty();
        if is_leaving && !waits {
            return Ok(self.remove(&key, before));
        }
        Ok(self.put(key, Some(before), object))
    }

    /// Changes an object as it is now; `None` if there is none.
    pub fn modify<T: ApiObject>(&mut self, key: &ObjectKey, change: impl FnOnce(&mut T)) -> Option<Arc<T>> {
        let before = self.get::<T>(key)?.clone();
        let mut object = T::clone(&before);
        change(&mut object);
        self.replace(key.clone(), before, object).ok()
    }

    /// Deletes an object that is no pod, or marks it as being deleted if it has finalizers.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], also if a uid is given and is another.
    pub fn delete<T: ApiObject>(&mut self, key: &ObjectKey, uid: &str) -> Result<(), Refusal> {
        let before = self.find::<T>(key, uid)?;
        if before.metadata().finalizers.is_empty() {
            self.remove(key, before);
        } else if before.metadata().deletion_timestamp.is_none() {
            let mut object = T::clone(&before);
            object.metadata_mut().deletion_timestamp = Some(self.now);
            self.put(key.clone(), Some(before), object);
        }
        Ok(())
    }

    /// Asks a pod to end. It is gone at once if it has no node, has ended, or is given no time; else once its kubelet
    /// says so ([`ApiServer::confirm_end`]). Its `deletionTimestamp` is when its time is up; asking again can only make
    /// that sooner.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], also if a uid is given and is another.
    pub fn delete_pod(&mut self, key: &ObjectKey, uid: &str, grace_period: Option<Duration>) -> Result<(), Refusal> {
        let before = self.find::<Pod>(key, uid)?;
        let grace = grace_period.unwrap_or_else(|| grace_period_of(&before));
        if before.spec.node_name.is_empty() || before.is_finished() || grace.is_zero() {
            self.remove(key, before);
            return Ok(());
        }
        let due = self.now + grace;
        if before.metadata.deletion_timestamp.is_none_or(|earlier| due < earlier) {
            let mut pod = Pod::clone(&before);
            pod.metadata.deletion_timestamp = Some(due);
            self.put(key.clone(), Some(before), pod);
        }
        Ok(())
    }

    /// A kubelet says that this very pod has ended, or the pod is given up.
    pub fn confirm_end(&mut self, key: &ObjectKey, uid: &str) {
        if let Ok(pod) = self.find::<Pod>(key, uid) {
            self.remove(key, pod);
        }
    }

    /// Everything that there is, as one value.
    ///
    /// # Errors
    /// Never for objects that came in through [`ApiServer::create`].
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        fn all<T: ApiObject>(stores: &Stores) -> impl Iterator<Item = T> {
            T::store(stores).values().map(|object| T::clone(object))
        }
        let stores = &self.stores;
        let mut builder = Snapshot::builder()
            .pools(all(stores))
            .nodes(self.list::<Node>().cloned())
            .claims(self.list::<NodeClaim>().cloned())
            .namespaces(all(stores))
            .volume_claims(all(stores))
            .volumes(all(stores))
            .storage_classes(all(stores))
            .csi_nodes(all(stores))
            .pods(self.list::<Pod>().cloned().collect::<Vec<_>>());
        for daemonset in all(stores) {
            builder = builder.daemonset(daemonset);
        }
        for budget in all(stores) {
            builder = builder.budget(budget);
        }
        builder.build()
    }

    /// Starts the watch anew: what comes is [`Event::Relist`], everything that there is, [`Event::Synced`], and then every
    /// change.
    pub fn connect(&mut self) {
        self.watch.start(self.stores.objects());
    }

    /// Ends the watch. What was not read of it is lost.
    pub fn disconnect(&mut self) {
        self.watch.stop();
    }

    /// What the watch has to tell, in order. If that is more than a server keeps, everything is told anew.
    pub fn take_events(&mut self) -> Vec<Event> {
        if self.watch.is_overrun() {
            self.connect();
        }
        self.watch.take()
    }

    /// Keeps changes for the controllers of the cluster, who take them at every step.
    pub(crate) fn follow(&mut self) {
        self.is_followed = true;
    }

    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The object of a name, if it is the one that is meant. An empty uid means whichever there is.
    fn find<T: ApiObject>(&self, key: &ObjectKey, uid: &str) -> Result<Arc<T>, Refusal> {
        let found = self.get::<T>(key).ok_or(Refusal::NotFound)?;
        if !uid.is_empty() && found.metadata().uid != uid {
            return Err(Refusal::NotFound);
        }
        Ok(found.clone())
    }

    fn put<T: ApiObject>(&mut self, key: ObjectKey, before: Option<Arc<T>>, mut object: T) -> Arc<T> {
        self.version += 1;
        object.metadata_mut().resource_version = self.version.to_string();
        let object = Arc::new(object);
        let after = T::into_object(object.clone());
        self.watch.tell(|| Event::Applied(after.clone()));
        if self.is_followed {
            self.changes.push(Change { before: before.map(T::into_object), after: Some(after) });
        }
        T::store_mut(&mut self.stores).insert(key, object.clone());
        object
    }

    fn remove<T: ApiObject>(&mut self, key: &ObjectKey, before: Arc<T>) -> Arc<T> {
        self.version += 1;
        T::store_mut(&mut self.stores).remove(key);
        self.watch.tell(|| Event::Deleted(T::reference(key.clone())));
        if self.is_followed {
            self.changes.push(Change { before: Some(T::into_object(before.clone())), after: None });
        }
        before
    }
}

/// The key of an object that has no namespace.
pub(crate) fn cluster_key(name: &str) -> ObjectKey {
    ObjectKey::new("", name)
}

/// How long a pod may take to end.
pub(crate) fn grace_period_of(pod: &Pod) -> Duration {
    pod.spec.termination_grace_period_seconds.map_or(DEFAULT_GRACE_PERIOD, Duration::from_secs)
}

#[cfg(test)]
mod tests;
