use std::sync::Arc;

use karpenter_core::{
    api::{
        CsiNode, DaemonSet, Namespace, Node, NodeClaim, NodeOverlay, NodePool, ObjectKey, ObjectMeta, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass, VolumeAttachment,
    },
    engine::{Object, ObjectRef},
};

use super::store::Store;

/// All objects.
#[derive(Clone, Debug, Default)]
pub struct Stores {
    pools: Store<NodePool>,
    overlays: Store<NodeOverlay>,
    claims: Store<NodeClaim>,
    nodes: Store<Node>,
    pods: Store<Pod>,
    daemonsets: Store<DaemonSet>,
    budgets: Store<PodDisruptionBudget>,
    namespaces: Store<Namespace>,
    volume_claims: Store<PersistentVolumeClaim>,
    volumes: Store<PersistentVolume>,
    storage_classes: Store<StorageClass>,
    csi_nodes: Store<CsiNode>,
    attachments: Store<VolumeAttachment>,
}

/// A kind of object that the simulated API server keeps.
pub trait ApiObject: Clone + PartialEq + 'static {
    /// Whether objects of this kind live in namespaces.
    const IS_NAMESPACED: bool;

    /// Names, labels and the like.
    fn metadata(&self) -> &ObjectMeta;
    /// Names, labels and the like, to be changed.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;
    /// Whether both ask for the same; if not, the generation counts on.
    fn asks_the_same(&self, other: &Self) -> bool;
    /// The objects of this kind.
    fn store(stores: &Stores) -> &Store<Self>;
    /// The objects of this kind, to be changed.
    fn store_mut(stores: &mut Stores) -> &mut Store<Self>;
    /// As what it is told.
    fn into_object(this: Arc<Self>) -> Object;
    /// As what it is named.
    fn reference(key: ObjectKey) -> ObjectRef;

    /// The namespace and the name. The namespace is `default` if none is written.
    fn key(&self) -> ObjectKey {
        let meta = self.metadata();
        let namespace = match meta.namespace.as_str() {
            _ if !Self::IS_NAMESPACED => "",
            "" => "default",
            written => written,
        };
        ObjectKey::new(namespace, &meta.name)
    }
}

macro_rules! kinds {
    ($($kind:ident, $store:ident, $is_namespaced:literal, $name:expr, |$one:ident, $other:ident| $same:expr;)*) => {$(
        impl ApiObject for $kind {
            const IS_NAMESPACED: bool = $is_namespaced;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
            fn asks_the_same(&self, $other: &Self) -> bool {
                let $one = self;
                $same
            }
            fn store(stores: &Stores) -> &Store<Self> {
                &stores.$store
            }
            fn store_mut(stores: &mut Stores) -> &mut Store<Self> {
                &mut stores.$store
            }
            fn into_object(this: Arc<Self>) -> Object {
                Object::$kind(this)
            }
            fn reference(key: ObjectKey) -> ObjectRef {
                ObjectRef::$kind($name(key))
            }
        }
    )*};
}

fn name_of(key: ObjectKey) -> String {
    key.name
}

kinds! {
    NodePool, pools, false, name_of, |a, b| a.spec == b.spec;
    NodeOverlay, overlays, false, name_of, |a, b| a.spec == b.spec;
    NodeClaim, claims, false, name_of, |a, b| a.spec == b.spec;
    Node, nodes, false, name_of, |a, b| a.spec == b.spec;
    Pod, pods, true, std::convert::identity, |a, b| a.spec == b.spec;
    DaemonSet, daemonsets, true, std::convert::identity, |a, b| a.spec == b.spec;
    PodDisruptionBudget, budgets, true, std::convert::identity, |a, b| a.spec == b.spec;
    Namespace, namespaces, false, name_of, |_a, _b| true;
    PersistentVolumeClaim, volume_claims, true, std::convert::identity, |a, b| a.spec == b.spec;
    PersistentVolume, volumes, false, name_of, |a, b| a.spec == b.spec;
    StorageClass, storage_classes, false, name_of, |a, b| a.provisioner == b.provisioner;
    CsiNode, csi_nodes, false, name_of, |a, b| a.spec == b.spec;
    VolumeAttachment, attachments, false, name_of, |a, b| a.spec == b.spec;
}

impl Stores {
    /// Everything that there is, kind by kind: what others refer to comes first.
    pub(super) fn objects(&self) -> impl Iterator<Item = Object> {
        fn all<T: ApiObject>(store: &Store<T>) -> impl Iterator<Item = Object> {
            store.values().map(|object| T::into_object(object.clone()))
        }
        let policy =
            all(&self.namespaces).chain(all(&self.pools)).chain(all(&self.overlays)).chain(all(&self.daemonsets));
        let policy = policy.chain(all(&self.budgets));
        let storage = all(&self.storage_classes).chain(all(&self.volumes)).chain(all(&self.volume_claims));
        let machines =
            all(&self.claims).chain(all(&self.nodes)).chain(all(&self.csi_nodes)).chain(all(&self.attachments));
        policy.chain(storage).chain(machines).chain(all(&self.pods))
    }
}
