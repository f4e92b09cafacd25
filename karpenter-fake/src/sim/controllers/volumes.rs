//! Attaches volumes to the nodes of the pods that mount them, and detaches them (the attach-detach controller).

use karpenter_core::{
    Timestamp,
    api::{ObjectKey, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment},
    engine::Object,
};

use super::Kubelets;
use crate::sim::{
    ApiServer, Rng, WorldOptions,
    api_server::{Change, cluster_key},
    timeline::Timeline,
    world::Happening,
};

/// Attaches and detaches. Which volume is attached where is in the objects.
#[derive(Clone, Debug)]
pub(crate) struct Attacher {
    rng: Rng,
}

impl Attacher {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng }
    }

    /// Takes in a change of a pod. One that is finished mounts nothing any more.
    pub(crate) fn observe(
        &mut self,
        change: &Change,
        now: Timestamp,
        api: &mut ApiServer,
        timeline: &mut Timeline<Happening>,
        options: &WorldOptions,
    ) {
        let bound = |object: &Option<Object>| match object {
            Some(Object::Pod(pod)) => Some(pod.clone()).filter(|pod| mounts(pod)),
            _ => None,
        };
        match (bound(&change.before), bound(&change.after)) {
            (None, Some(pod)) => {
                for volume in volumes_of(&pod, api) {
                    // It may be attached already for another pod.
                    let _ = api.create(VolumeAttachment::of(&volume, &pod.spec.node_name));
                }
            }
            (Some(pod), None) => {
                for volume in volumes_of(&pod, api) {
                    let at = now + self.rng.duration(&options.volume_detach_delay);
                    timeline.plan(at, Happening::VolumeFree { volume, node: pod.spec.node_name.clone() });
                }
            }
            _ => {}
        }
    }

    /// Detaches a volume from a node, unless another pod mounts it there.
    pub(crate) fn detach(volume: &str, node: &str, api: &mut ApiServer, kubelets: &Kubelets) {
        let pods = kubelets.pods_on(node).filter_map(|pod| api.get::<Pod>(pod)).filter(|pod| mounts(pod));
        if pods.flat_map(|pod| volumes_of(pod, api)).all(|mounted| mounted != volume) {
            let name = VolumeAttachment::of(volume, node).metadata.name;
            // It may have been detached for another pod already.
            let _ = api.delete::<VolumeAttachment>(&cluster_key(&name), "");
        }
    }
}

fn mounts(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && !pod.spec.volumes.is_empty() && !pod.is_finished()
}

/// The volumes that a pod mounts and that a driver attaches.
fn volumes_of(pod: &Pod, api: &ApiServer) -> Vec<String> {
    let claims = pod.volume_claim_names().map(|name| ObjectKey::new(pod.namespace(), &name));
    let bound = claims.filter_map(|key| api.get::<PersistentVolumeClaim>(&key));
    let volumes = bound.filter_map(|claim| api.get::<PersistentVolume>(&cluster_key(&claim.spec.volume_name)));
    volumes.filter(|volume| volume.spec.csi.is_some()).map(|volume| volume.metadata.name.clone()).collect()
}
