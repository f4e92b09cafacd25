//! Makes volumes for the first pod that mounts them, and the claims of ephemeral volumes (the ephemeral volume
//! controller, and a driver that makes and deletes volumes).

use karpenter_core::{
    api::{
        CsiVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectKey, Operator, OwnerReference,
        PersistentVolume, PersistentVolumeClaim, Pod, StorageClass,
    },
    engine::Object,
    labels,
};

use crate::sim::{
    ApiServer,
    api_server::{Change, cluster_key},
};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// Makes volumes. Which there are is in the objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks {
    made: u64,
}

impl Disks {
    /// Takes in a change of an object: claims come and go with the pods that they are ephemeral for, and volumes that were
    /// made go with their claims.
    pub(crate) fn observe(change: &Change, api: &mut ApiServer) {
        match (&change.before, &change.after) {
            (None, Some(Object::Pod(pod))) => {
                for claim in ephemeral_claims(pod) {
                    // A claim of this name that belongs to nobody is in the way, as in a real cluster.
                    let _ = api.create(claim);
                }
            }
            (Some(Object::Pod(pod)), None) => {
                for claim in ephemeral_claims(pod) {
                    let key = claim.key();
                    let is_own = |found: &PersistentVolumeClaim| {
                        found.metadata.owner_references.iter().any(|owner| owner.uid == pod.metadata.uid)
                    };
                    if api.get::<PersistentVolumeClaim>(&key).is_some_and(|found| is_own(found)) {
                        let _ = api.delete::<PersistentVolumeClaim>(&key, "");
                    }
                }
            }
            (Some(Object::PersistentVolumeClaim(claim)), None) => {
                let key = cluster_key(&claim.spec.volume_name);
                let was_made = |volume: &PersistentVolume| !volume.spec.storage_class_name.is_empty();
                if api.get::<PersistentVolume>(&key).is_some_and(|volume| was_made(volume)) {
                    let _ = api.delete::<PersistentVolume>(&key, "");
                }
            }
            _ => {}
        }
    }

    /// Whether a pod mounts volumes that are made only once it is known where it goes.
    pub(crate) fn are_to_be_made(pod: &Pod, api: &ApiServer) -> bool {
        claims_of(pod, api).any(|claim| claim.spec.volume_name.is_empty())
    }

    /// Makes the volumes that a pod lacks, in the zone of its node.
    pub(crate) fn make(&mut self, pod: &Pod, node: &str, api: &mut ApiServer) {
        let Some(zone) = api.node(node).and_then(|node| node.metadata.labels.get(labels::ZONE).cloned()) else {
            return;
        };
        let lacking: Vec<PersistentVolumeClaim> =
            claims_of(pod, api).filter(|claim| claim.spec.volume_name.is_empty()).cloned().collect();
        for claim in lacking {
            let class = claim.class_name().unwrap_or_default().to_owned();
            let Some(driver) = api.get::<StorageClass>(&cluster_key(&class)).map(|class| class.provisioner.clone())
            else {
                continue;
            };
            self.made += 1;
            let mut volume = PersistentVolume::default();
            volume.metadata.name = format!("pvc-{:06}", self.made);
            volume.spec.storage_class_name = class;
            let mut source = CsiVolumeSource::default();
            (source.driver, source.volume_handle) = (driver, volume.metadata.name.clone());
            volume.spec.csi = Some(source);
            let mut term = NodeSelectorTerm::default();
            term.match_expressions.push(NodeSelectorRequirement::new(labels::ZONE, Operator::In, [zone.clone()]));
            let mut terms = NodeSelector::default();
            terms.node_selector_terms.push(term);
            volume.spec.node_affinity.required = Some(terms);
            let name = volume.metadata.name.clone();
            if api.create(volume).is_ok() {
                api.modify::<PersistentVolumeClaim>(&claim.key(), |claim| {
                    claim.spec.volume_name = name;
                    claim.metadata.annotations.insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
                    "Bound".clone_into(&mut claim.status.phase);
                });
            }
        }
    }
}

/// The claims that a pod mounts, as far as there are any.
fn claims_of<'a>(pod: &Pod, api: &'a ApiServer) -> impl Iterator<Item = &'a PersistentVolumeClaim> {
    let names = pod.volume_claim_names().map(|name| ObjectKey::new(pod.namespace(), &name)).collect::<Vec<_>>();
    names.into_iter().filter_map(|key| api.get::<PersistentVolumeClaim>(&key).map(AsRef::as_ref))
}

/// The claims of the ephemeral volumes of a pod, as they are at first.
fn ephemeral_claims(pod: &Pod) -> Vec<PersistentVolumeClaim> {
    let claim = |volume: &karpenter_core::api::Volume| {
        let template = &volume.ephemeral.as_ref()?.volume_claim_template;
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata = template.metadata.clone();
        claim.metadata.name = format!("{}-{}", pod.metadata.name, volume.name);
        pod.namespace().clone_into(&mut claim.metadata.namespace);
        let mut owner = OwnerReference::default();
        "Pod".clone_into(&mut owner.kind);
        owner.name.clone_from(&pod.metadata.name);
        owner.uid.clone_from(&pod.metadata.uid);
        claim.metadata.owner_references = vec![owner];
        claim.spec = template.spec.clone();
        Some(claim)
    };
    pod.spec.volumes.iter().filter_map(claim).collect()
}
