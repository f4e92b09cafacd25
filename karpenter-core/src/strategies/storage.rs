//! Volumes of pods, and what storage drivers can attach.

use proptest::{option, prelude::*, sample::select};

use super::ZONES;
use crate::{
    api::{
        CsiNode, CsiNodeDriver, CsiVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta,
        Operator, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, TopologySelectorLabelRequirement,
        TopologySelectorTerm, Volume, VolumeBindingMode, VolumeClaimSource, VolumeNodeResources,
    },
    labels,
};

const DRIVER: &str = "disk.example.com";
/// A class whose volumes can be made everywhere.
const EVERYWHERE: &str = "everywhere";
/// A class whose volumes can be made in two zones, each a term of its own.
const TWO_ZONES: &str = "two-zones";

/// The volume of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mounted {
    /// A claim that others may mount too, bound to a volume of this zone.
    Bound(&'static str),
    /// A claim of its own of this class, which has no volume yet.
    Own(&'static str),
    /// A claim that does not exist.
    Missing,
}

pub(super) fn mounted() -> impl Strategy<Value = Option<Mounted>> {
    let kinds = prop_oneof![
        6 => select(vec![EVERYWHERE, TWO_ZONES]).prop_map(Mounted::Own),
        3 => select(ZONES.to_vec()).prop_map(Mounted::Bound),
        1 => Just(Mounted::Missing),
    ];
    option::weighted(0.15, kinds)
}

/// All that has to do with the volumes of a problem.
#[derive(Clone, Debug, Default)]
pub(super) struct Disks {
    pub(super) volume_claims: Vec<PersistentVolumeClaim>,
    pub(super) volumes: Vec<PersistentVolume>,
    pub(super) storage_classes: Vec<StorageClass>,
    pub(super) csi_nodes: Vec<CsiNode>,
}

impl Disks {
    /// The volumes of these pods, which get their mounts, and the limits of nodes in their order.
    pub(super) fn new(pods: &mut [Pod], mounted: &[Option<Mounted>], limits: &[Option<u32>]) -> Self {
        let mut out = Self::default();
        for (pod, mounted) in pods.iter_mut().zip(mounted) {
            let Some(mounted) = mounted else { continue };
            let name = match mounted {
                Mounted::Bound(zone) => (*zone).to_owned(),
                Mounted::Own(_) => format!("{}-data", pod.metadata.name),
                Mounted::Missing => "missing".to_owned(),
            };
            let source = VolumeClaimSource { claim_name: name.clone() };
            let volume = Volume { name: "data".to_owned(), persistent_volume_claim: Some(source), ..Volume::default() };
            pod.spec.volumes.push(volume);
            match mounted {
                Mounted::Bound(zone) => out.add_bound(zone),
                Mounted::Own(class) => out.add_unbound(&name, class, pod),
                Mounted::Missing => {}
            }
        }
        let limited = limits.iter().enumerate().filter_map(|(i, limit)| Some(csi_node(i, (*limit)?)));
        out.csi_nodes.extend(limited);
        out
    }

    fn add_bound(&mut self, zone: &str) {
        if self.volumes.iter().any(|v| v.metadata.name == zone) {
            return;
        }
        self.volumes.push(volume(zone, zone));
        self.volume_claims.push(bound_claim(zone));
    }

    /// The claim of a running pod has a volume in the first zone; nobody looks where the pod is.
    fn add_unbound(&mut self, name: &str, class: &str, pod: &Pod) {
        if !pod.spec.node_name.is_empty() {
            self.volumes.push(volume(name, ZONES[0]));
            self.volume_claims.push(bound_claim(name));
            return;
        }
        let mut claim = PersistentVolumeClaim { metadata: named(name), ..PersistentVolumeClaim::default() };
        claim.spec.storage_class_name = Some(class.to_owned());
        self.volume_claims.push(claim);
        if !self.storage_classes.iter().any(|c| c.metadata.name == class) {
            self.storage_classes.push(storage_class(class));
        }
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { namespace: "default".to_owned(), ..ObjectMeta::named(name) }
}

fn volume(name: &str, zone: &str) -> PersistentVolume {
    let in_zone = NodeSelectorRequirement::new(labels::ZONE, Operator::In, [zone]);
    let term = NodeSelectorTerm { match_expressions: vec![in_zone], match_fields: Vec::new() };
    let mut volume = PersistentVolume { metadata: ObjectMeta::named(name), ..PersistentVolume::default() };
    volume.spec.node_affinity.required = Some(NodeSelector { node_selector_terms: vec![term] });
    volume.spec.csi = Some(CsiVolumeSource { driver: DRIVER.to_owned(), volume_handle: name.to_owned() });
    volume
}

fn bound_claim(name: &str) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim { metadata: named(name), ..PersistentVolumeClaim::default() };
    claim.metadata.annotations.insert("pv.kubernetes.io/bind-completed".to_owned(), "yes".to_owned());
    name.clone_into(&mut claim.spec.volume_name);
    "Bound".clone_into(&mut claim.status.phase);
    claim
}

fn storage_class(name: &str) -> StorageClass {
    let zones = if name == TWO_ZONES { &ZONES[..2] } else { &[] };
    let in_zone = |zone: &&str| TopologySelectorTerm {
        match_label_expressions: vec![TopologySelectorLabelRequirement {
            key: labels::ZONE.to_owned(),
            values: vec![(*zone).to_owned()],
        }],
    };
    StorageClass {
        metadata: ObjectMeta::named(name),
        provisioner: DRIVER.to_owned(),
        volume_binding_mode: VolumeBindingMode::WaitForFirstConsumer,
        allowed_topologies: zones.iter().map(in_zone).collect(),
    }
}

fn csi_node(number: usize, limit: u32) -> CsiNode {
    let allocatable = VolumeNodeResources { count: Some(limit) };
    let mut node = CsiNode { metadata: ObjectMeta::named(format!("node-{number}")), ..CsiNode::default() };
    node.spec.drivers.push(CsiNodeDriver { name: DRIVER.to_owned(), allocatable });
    node
}
