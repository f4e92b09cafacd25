//! Volumes that there are, for claims that have none: the kube-scheduler binds a claim to one of them on the node of its pod.

use std::collections::BTreeSet;

use super::{Storage, nodes_of};
use crate::{
    Quantity, Requirements,
    api::{PersistentVolume, PersistentVolumeClaim, StorageClass},
};

impl Storage {
    /// The alternatives for a node on which one of the volumes that there are can be bound to a claim; nothing if a node may be
    /// all that is missing: no volume suits the claim, or some are in the file systems of nodes, where each node that comes
    /// may get one from a provisioner of its own.
    pub(super) fn nodes_with_volumes_for(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Option<Vec<Requirements>> {
        let volumes = self.volumes_for(claim, &class.metadata.name);
        if volumes.is_empty() || volumes.iter().any(|volume| volume.is_on_node()) {
            return None;
        }
        let of_each: Option<Vec<_>> = volumes.into_iter().map(|volume| nodes_of(volume, false)).collect();
        let distinct: BTreeSet<Requirements> = of_each?.into_iter().flatten().collect();
        Some(distinct.into_iter().collect())
    }

    /// The volumes that a claim can be bound to: the one that is kept for it, or all that suit it.
    fn volumes_for(&self, claim: &PersistentVolumeClaim, class: &str) -> Vec<&PersistentVolume> {
        let large_enough = || self.volumes.values().filter(|volume| is_enough(volume, claim));
        if let Some(kept) = large_enough().find(|volume| volume.is_kept_for(claim)) {
            return vec![kept];
        }
        let suits = |volume: &&PersistentVolume| {
            let is_selected = claim.spec.selector.as_ref().is_none_or(|s| s.matches(&volume.metadata.labels));
            let has_modes = claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode));
            volume.is_available() && volume.class_name() == class && is_selected && has_modes
        };
        large_enough().filter(suits).collect()
    }
}

/// Whether a volume is as large as a claim asks for, and is mounted in the same way.
fn is_enough(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted: Quantity = claim.spec.resources.requests.get("storage").unwrap_or_default();
    let is_block = |mode: &Option<String>| mode.as_deref() == Some("Block");
    let is_alike = is_block(&volume.spec.volume_mode) == is_block(&claim.spec.volume_mode);
    volume.storage() >= wanted && is_alike && !volume.is_terminating()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ResourceList, Snapshot, Timestamp, api::Pod};

    /// Where a class says that its volumes may be.
    const ANYWHERE: &str = "zone In [z]";

    fn read<T: serde::de::DeserializeOwned>(json: serde_json::Value) -> T {
        serde_json::from_value(json).expect("an object")
    }

    /// A volume of 10 GiB in a zone that has its name.
    fn offer(name: &str) -> PersistentVolume {
        let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]});
        read(json!({"metadata": {"name": name, "labels": {"tier": name}}, "spec": {
            "storageClassName": "s", "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}))
    }

    fn claim() -> PersistentVolumeClaim {
        read(json!({"metadata": {"name": "c", "uid": "1"}, "spec": {
            "storageClassName": "s", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}}))
    }

    /// Where a pod with the claim can go, given these volumes.
    fn nodes(claim: PersistentVolumeClaim, offers: Vec<PersistentVolume>, provisioner: &str) -> String {
        let topology = json!({"matchLabelExpressions": [{"key": "zone", "values": ["z"]}]});
        let class: StorageClass = read(json!({"metadata": {"name": "s"}, "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [topology]}));
        let pod: Pod = read(json!({"metadata": {"name": "p"}, "spec": {
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}));
        let builder = Snapshot::builder().storage_classes([class]).volume_claims([claim]).volumes(offers);
        let snapshot = builder.build().expect("valid");
        let needs = snapshot.storage().needs_of(&pod).expect("it can be mounted");
        needs.alternatives.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn claims_of_classes_that_make_no_volumes_go_where_there_are_some() {
        let mut everywhere = offer("a");
        everywhere.spec.node_affinity.required = None;
        let mut local = offer("a");
        local.spec.local = Some(read(json!({"path": "/disk"})));
        for (offers, expected) in [
            (vec![], ANYWHERE),
            (vec![offer("b"), offer("a")], "zone In [a]; zone In [b]"),
            (vec![everywhere, offer("b")], ANYWHERE),
            (vec![local, offer("b")], ANYWHERE),
        ] {
            for provisioner in ["kubernetes.io/no-provisioner", ""] {
                assert_eq!(nodes(claim(), offers.clone(), provisioner), expected, "{offers:?}");
            }
            assert_eq!(nodes(claim(), offers, "disks"), ANYWHERE);
        }
    }

    #[test]
    fn only_volumes_that_suit_a_claim_count() {
        let kept = |name: &str, uid: &str| read(json!({"namespace": "default", "name": name, "uid": uid}));
        let changes: [fn(&mut PersistentVolume); 6] = [
            |v| v.spec.capacity = ResourceList::from_iter([("storage", Quantity::from_units(1))]),
            |v| v.spec.access_modes.truncate(0),
            |v| v.spec.storage_class_name.clear(),
            |v| v.spec.volume_mode = Some("Block".to_owned()),
            |v| v.status.phase = "Released".to_owned(),
            |v| v.metadata.deletion_timestamp = Some(Timestamp::default()),
        ];
        for change in changes {
            let mut volume = offer("a");
            change(&mut volume);
            assert_eq!(nodes(claim(), vec![volume.clone()], ""), ANYWHERE, "{volume:?}");
            assert_eq!(nodes(claim(), vec![volume, offer("b")], ""), "zone In [b]");
        }
        for (name, uid, expected) in [("c", "1", "zone In [a]"), ("c", "2", ANYWHERE), ("d", "", ANYWHERE)] {
            let mut volume = offer("a");
            volume.spec.claim_ref = Some(kept(name, uid));
            assert_eq!(nodes(claim(), vec![volume], ""), expected, "{name} {uid}");
        }
        let mut selecting = claim();
        selecting.spec.selector = Some(read(json!({"matchLabels": {"tier": "b"}})));
        assert_eq!(nodes(selecting, vec![offer("a"), offer("b")], ""), "zone In [b]");
    }

    #[test]
    fn a_volume_that_is_kept_for_a_claim_is_the_only_one() {
        let mut kept = offer("b");
        kept.spec.claim_ref = Some(read(json!({"namespace": "default", "name": "c"})));
        assert_eq!(nodes(claim(), vec![offer("a"), kept], ""), "zone In [b]");
    }
}
