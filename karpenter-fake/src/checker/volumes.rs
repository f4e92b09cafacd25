//! Volumes (the filters `VolumeBinding`, `VolumeZone`, `NodeVolumeLimits` and `VolumeRestrictions`).

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    ResourceList,
    api::{
        EphemeralVolume, NodeSelectorRequirement, NodeSelectorTerm, ObjectKey, Operator, PersistentVolume,
        PersistentVolumeClaim, Pod, StorageClass, Volume, VolumeBindingMode,
    },
    cluster::Storage,
    labels,
};

use super::{PlannedNode, Violation, filters::holds, violation::VolumeObstacle};

/// Storage drivers that took over from what was built into Kubernetes, by the old names of provisioners.
const MIGRATED_DRIVERS: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// The labels that tell in which zones a volume is, or in which a node.
const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
/// On a class that is marked as the one of claims that name none.
const DEFAULT_MARKS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

type Labels = BTreeMap<String, String>;

/// A claim that a pod mounts, and where it lets the pod go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount<'a> {
    pub(super) claim: ObjectKey,
    pub(super) rule: MountRule<'a>,
}

/// Which nodes can mount a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MountRule<'a> {
    /// All.
    Everywhere,
    /// None.
    Nowhere(VolumeObstacle),
    /// Those that meet a term of the volume's node affinity.
    NearVolume(Vec<VolumeTerm<'a>>),
    /// Those in which the class makes volumes: alternatives of labels with their values.
    InTopology(Vec<Vec<(&'a str, &'a [String])>>),
    /// The one for which a volume is being made, if it meets another rule too.
    OnNode(&'a str, Box<Self>),
    /// Those in one of the zones that the labels of the volume tell, if they meet another rule too.
    InZones(BTreeSet<&'a str>, Box<Self>),
}

/// A term of the node affinity of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VolumeTerm<'a> {
    expressions: Vec<&'a NodeSelectorRequirement>,
    fields: &'a [NodeSelectorRequirement],
    /// Whether it says nothing but on which host the volume is, and the volume is let go.
    is_void: bool,
}

impl<'a> VolumeTerm<'a> {
    /// Volumes in the file system of a host do not hold their pods there: when the host goes, so does what they hold.
    fn new(term: &'a NodeSelectorTerm, is_on_node: bool) -> Self {
        let is_kept = |e: &&NodeSelectorRequirement| !is_on_node || e.key != labels::HOSTNAME;
        let expressions: Vec<_> = term.match_expressions.iter().filter(is_kept).collect();
        let fields = if is_on_node { &[] } else { &term.match_fields[..] };
        Self { is_void: is_on_node && expressions.is_empty(), expressions, fields }
    }

    fn is_met(&self, name: &str, labels: &Labels) -> bool {
        self.is_met_by_name(name) && self.expressions.iter().all(|e| holds(e, labels.get(&e.key).map(String::as_str)))
    }

    /// What the labels of a node of this name must be like, if there is such a node.
    fn wanted(&self, name: &str) -> Option<Vec<NodeSelectorRequirement>> {
        self.is_met_by_name(name).then(|| self.expressions.iter().map(|&e| e.clone()).collect())
    }

    /// Whether the term can be met, as far as the name of the node goes.
    fn is_met_by_name(&self, name: &str) -> bool {
        let field = |key: &str| (key == "metadata.name").then_some(name);
        let says_something = !self.expressions.is_empty() || !self.fields.is_empty();
        (says_something || self.is_void) && self.fields.iter().all(|e| holds(e, field(&e.key)))
    }
}

impl<'a> MountRule<'a> {
    fn of_claim(claim: &'a PersistentVolumeClaim, storage: &'a Storage) -> Self {
        if claim.metadata.deletion_timestamp.is_some() || claim.status.phase == "Lost" {
            return Self::Nowhere(VolumeObstacle::ClaimGone);
        }
        if claim.spec.volume_name.is_empty() {
            return Self::of_unbound(claim, storage);
        }
        if !claim.is_fully_bound() {
            return Self::Nowhere(VolumeObstacle::HalfBound);
        }
        let Some(volume) = storage.volume(&claim.spec.volume_name) else {
            return Self::Nowhere(VolumeObstacle::VolumeMissing);
        };
        Self::of_volume(volume)
    }

    fn of_volume(volume: &'a PersistentVolume) -> Self {
        let is_on_node = volume.spec.local.is_some() || volume.spec.host_path.is_some();
        let required = volume.spec.node_affinity.required.iter().flat_map(|selector| &selector.node_selector_terms);
        let terms: Vec<_> = required.map(|term| VolumeTerm::new(term, is_on_node)).collect();
        let near = if terms.is_empty() { Self::Everywhere } else { Self::NearVolume(terms) };
        match zones(&volume.metadata.labels) {
            Some(zones) => Self::InZones(zones, Box::new(near)),
            None => near,
        }
    }

    fn of_unbound(claim: &PersistentVolumeClaim, storage: &'a Storage) -> Self {
        let Some(class) = class_of(claim, storage) else {
            return Self::Nowhere(VolumeObstacle::NoClass);
        };
        if class.volume_binding_mode == VolumeBindingMode::Immediate {
            return Self::Nowhere(VolumeObstacle::NotBoundYet);
        }
        if matches!(class.provisioner.as_str(), "" | "kubernetes.io/no-provisioner") {
            let offers: Vec<_> = storage.volumes().filter(|v| is_offer(v, claim, &class.metadata.name)).collect();
            if !offers.is_empty() && !offers.iter().any(|v| v.spec.local.is_some() || v.spec.host_path.is_some()) {
                return Self::of_offers(&offers);
            }
        }
        let mut alternatives = Vec::new();
        for term in &class.allowed_topologies {
            let labels = term.match_label_expressions.iter();
            alternatives.push(labels.map(|e| (e.key.as_str(), &e.values[..])).collect());
        }
        if alternatives.is_empty() { Self::Everywhere } else { Self::InTopology(alternatives) }
    }

    /// Where one of these volumes can be bound.
    fn of_offers(offers: &[&'a PersistentVolume]) -> Self {
        let mut all = Vec::new();
        for offer in offers {
            let required = offer.spec.node_affinity.required.iter().flat_map(|selector| &selector.node_selector_terms);
            let mut terms = required.map(|term| VolumeTerm::new(term, false)).peekable();
            if terms.peek().is_none() {
                return Self::Everywhere;
            }
            all.extend(terms);
        }
        Self::NearVolume(all)
    }

    /// What the labels of a node of this name must be like, one way or another; `None` if any will do.
    pub(super) fn alternatives(&self, name: &str) -> Option<Vec<Vec<NodeSelectorRequirement>>> {
        let is_one_of = |(key, values): &(&str, &[String])| NodeSelectorRequirement::new(*key, Operator::In, *values);
        match self {
            Self::Everywhere => None,
            Self::Nowhere(_) => Some(Vec::new()),
            Self::NearVolume(terms) => Some(terms.iter().filter_map(|term| term.wanted(name)).collect()),
            Self::InTopology(alternatives) => {
                let some = alternatives.iter().filter(|all| !all.is_empty());
                Some(some.map(|all| all.iter().map(is_one_of).collect()).collect())
            }
            Self::OnNode(node, rule) => {
                if *node == name {
                    rule.alternatives(name)
                } else {
                    Some(Vec::new())
                }
            }
            Self::InZones(zones, rule) => {
                let mut all = rule.alternatives(name).unwrap_or_else(|| vec![Vec::new()]);
                let is_in = NodeSelectorRequirement::new(ZONE_LABELS[0], Operator::In, zones.iter().copied());
                for alternative in &mut all {
                    alternative.push(is_in.clone());
                }
                Some(all)
            }
        }
    }

    /// What keeps the claim from being mounted on a node of this name and these labels.
    pub(super) fn obstacle(&self, name: &str, labels: &Labels) -> Option<VolumeObstacle> {
        let is_one_of = |(key, values): &(&str, &[String])| labels.get(*key).is_some_and(|v| values.contains(v));
        match self {
            Self::Everywhere => None,
            Self::Nowhere(obstacle) => Some(*obstacle),
            Self::NearVolume(terms) => {
                let is_met = terms.iter().any(|term| term.is_met(name, labels));
                (!is_met).then_some(VolumeObstacle::NodeAffinity)
            }
            Self::InTopology(alternatives) => {
                // An alternative without labels is met by no node.
                let is_met = alternatives.iter().any(|all| !all.is_empty() && all.iter().all(is_one_of));
                (!is_met).then_some(VolumeObstacle::Topology)
            }
            Self::OnNode(node, _) if *node != name => Some(VolumeObstacle::OtherNode),
            Self::OnNode(_, rule) => rule.obstacle(name, labels),
            Self::InZones(zones, rule) => {
                let zone = ZONE_LABELS.iter().find_map(|key| labels.get(*key));
                let is_there = zone.is_some_and(|zone| zones.contains(zone.as_str()));
                if is_there { rule.obstacle(name, labels) } else { Some(VolumeObstacle::OtherZone) }
            }
        }
    }
}

/// The zones that the labels of a volume tell, two underscores between several; a label with an empty one says nothing. Where
/// both labels tell some, those of both. A region has its zones, and not all catalogs tell it.
fn zones(labels: &Labels) -> Option<BTreeSet<&str>> {
    let told = ZONE_LABELS.iter().filter_map(|key| labels.get(*key));
    let sets = told.map(|zones| zones.split("__").map(str::trim).collect::<BTreeSet<&str>>());
    sets.filter(|zones| !zones.contains("")).reduce(|a, b| &a & &b)
}

/// The class of a claim. One that names none gets the newest of those that are marked as the default, of equals the first by
/// name, as the API server gives it; an empty name asks for no class.
fn class_of<'a>(claim: &PersistentVolumeClaim, storage: &'a Storage) -> Option<&'a StorageClass> {
    if let Some(name) = claim.class_name() {
        return storage.class(name);
    }
    let is_marked = |class: &StorageClass| {
        DEFAULT_MARKS.iter().any(|mark| class.metadata.annotations.get(*mark).is_some_and(|value| value == "true"))
    };
    let mut defaults: Vec<_> = storage.classes().filter(|class| is_marked(class)).collect();
    defaults.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    defaults.into_iter().rev().max_by_key(|class| class.metadata.creation_timestamp)
}

/// Whether a volume can be bound to a claim of this class, as far as the node does not matter.
fn is_offer(volume: &PersistentVolume, claim: &PersistentVolumeClaim, class: &str) -> bool {
    let spec = &volume.spec;
    let size = |list: &ResourceList| list.get("storage").unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() || size(&spec.capacity) < size(&claim.spec.resources.requests) {
        return false;
    }
    if let Some(kept) = &spec.claim_ref {
        let key = claim.key();
        return kept.namespace == key.namespace
            && kept.name == key.name
            && (kept.uid.is_empty() || kept.uid == claim.metadata.uid);
    }
    volume.class_name() == class
        && (volume.status.phase.is_empty() || volume.status.phase == "Available")
        && claim.spec.access_modes.iter().all(|mode| spec.access_modes.contains(mode))
        && claim.spec.selector.iter().all(|selector| selector.matches(&volume.metadata.labels))
}

/// The claims that a pod mounts, in the order of its volumes.
pub(super) fn mounts<'a>(pod: &Pod, storage: &'a Storage) -> Vec<Mount<'a>> {
    let mount = |(claim, volume): (ObjectKey, &Volume)| {
        let mut rule = match (storage.claim(&claim), &volume.ephemeral) {
            (Some(found), _) => MountRule::of_claim(found, storage),
            // The claim of an ephemeral volume is made once the pod is there.
            (None, Some(ephemeral)) => MountRule::of_unbound(&to_come(&claim, ephemeral), storage),
            (None, None) => MountRule::Nowhere(VolumeObstacle::ClaimMissing),
        };
        if let Some(node) = storage.selected_node(&claim) {
            rule = MountRule::OnNode(node, Box::new(rule));
        }
        Mount { claim, rule }
    };
    claims_of(pod).map(mount).collect()
}

/// The claim that is made by a template.
fn to_come(key: &ObjectKey, volume: &EphemeralVolume) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.namespace.clone_from(&key.namespace);
    claim.metadata.name.clone_from(&key.name);
    claim.spec = volume.volume_claim_template.spec.clone();
    claim
}

fn claims_of(pod: &Pod) -> impl Iterator<Item = (ObjectKey, &Volume)> {
    pod.spec.volumes.iter().filter_map(|volume| {
        let own = volume.ephemeral.is_some().then(|| format!("{}-{}", pod.metadata.name, volume.name));
        let named = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        Some((ObjectKey::new(pod.namespace(), named.or(own)?), volume))
    })
}

/// A volume by its driver and what the driver calls it.
type Attached = (String, String);

/// The driver that makes volumes for a provisioner.
fn migrated(provisioner: &str) -> &str {
    MIGRATED_DRIVERS.iter().find(|(old, _)| *old == provisioner).map_or(provisioner, |(_, driver)| driver)
}

/// What a volume is called by each of the drivers that took over, in the notation from before; at most one has a name for it.
macro_rules! old_notation {
    ($source:expr) => {
        [
            (
                "aws-ebs",
                $source.aws_elastic_block_store.as_ref().map(|ebs| ebs.volume_id.rsplit('/').next().unwrap_or("")),
            ),
            ("azure-disk", $source.azure_disk.as_ref().map(|disk| disk.disk_uri.as_str())),
            ("azure-file", $source.azure_file.as_ref().map(|file| file.share_name.as_str())),
            ("cinder", $source.cinder.as_ref().map(|volume| volume.volume_id.as_str())),
            ("gce-pd", $source.gce_persistent_disk.as_ref().map(|disk| disk.pd_name.as_str())),
            ("portworx-volume", $source.portworx_volume.as_ref().map(|volume| volume.volume_id.as_str())),
            ("vsphere-volume", $source.vsphere_volume.as_ref().map(|disk| disk.volume_path.as_str())),
        ]
    };
}

fn attached_of_old(names: [(&str, Option<&str>); 7]) -> Option<Attached> {
    let (old_name, id) = names.into_iter().find_map(|(name, id)| Some((name, id?)))?;
    Some((migrated(&format!("kubernetes.io/{old_name}")).to_owned(), id.to_owned()))
}

/// The volumes of a pod that drivers attach to its node.
fn attached(pod: &Pod, storage: &Storage) -> Vec<Attached> {
    let of_claim = |key: ObjectKey| {
        let claim = storage.claim(&key)?;
        if claim.spec.volume_name.is_empty() {
            let class = class_of(claim, storage)?;
            return Some((migrated(&class.provisioner).to_owned(), key.to_string()));
        }
        let spec = &storage.volume(&claim.spec.volume_name)?.spec;
        if let Some(csi) = &spec.csi {
            let handle = if csi.volume_handle.is_empty() { &claim.spec.volume_name } else { &csi.volume_handle };
            return Some((csi.driver.clone(), handle.clone()));
        }
        attached_of_old(old_notation!(spec))
    };
    let named = pod.spec.volumes.iter().filter_map(|volume| attached_of_old(old_notation!(volume)));
    claims_of(pod).map(|(claim, _)| claim).filter_map(of_claim).chain(named).collect()
}

/// The first driver that cannot attach the volumes of all pods. A volume that several pods mount counts once.
pub(super) fn overload(
    node: &PlannedNode,
    limits: &BTreeMap<String, u32>,
    there: &[&Pod],
    new: &[&Pod],
    storage: &Storage,
) -> Option<Violation> {
    let all = |pods: &[&Pod]| pods.iter().flat_map(|pod| attached(pod, storage)).collect::<BTreeSet<Attached>>();
    if limits.is_empty() {
        return None;
    }
    let there = all(there);
    let new: BTreeSet<_> = all(new).difference(&there).cloned().collect();
    limits.iter().find_map(|(driver, &limit)| {
        let of_driver = |volumes: &BTreeSet<Attached>| volumes.iter().filter(|(d, _)| d == driver).count();
        let (attached, wanted) = (of_driver(&there), of_driver(&new));
        let is_over = wanted > 0 && attached + wanted > limit as usize;
        let (node, driver) = (node.clone(), driver.clone());
        is_over.then_some(Violation::VolumeLimit { node, driver, attached, wanted, limit })
    })
}

/// The first two pods of a node, of which one is new there, that must not both mount a disk which they name themselves (the
/// filter `VolumeRestrictions`).
pub(super) fn rivals(node: &PlannedNode, there: &[&Pod], new: &[&Pod]) -> Option<Violation> {
    for (i, pod) in new.iter().enumerate() {
        for other in there.iter().chain(&new[..i]) {
            let clash = |a: &Volume| other.spec.volumes.iter().any(|b| is_rival(a, b));
            if pod.spec.volumes.iter().any(clash) {
                return Some(Violation::SharedDisk { node: node.clone(), pod: pod.key(), other: other.key() });
            }
        }
    }
    None
}

fn is_rival(a: &Volume, b: &Volume) -> bool {
    let ebs = a.aws_elastic_block_store.as_ref().zip(b.aws_elastic_block_store.as_ref());
    let gce = a.gce_persistent_disk.as_ref().zip(b.gce_persistent_disk.as_ref());
    let iscsi = a.iscsi.as_ref().zip(b.iscsi.as_ref());
    let rbd = a.rbd.as_ref().zip(b.rbd.as_ref());
    let pool = |pool: &str| if pool.is_empty() { "rbd".to_owned() } else { pool.to_owned() };
    ebs.is_some_and(|(a, b)| a.volume_id == b.volume_id)
        || gce.is_some_and(|(a, b)| a.pd_name == b.pd_name && !(a.read_only && b.read_only))
        || iscsi.is_some_and(|(a, b)| a.iqn == b.iqn && !(a.read_only && b.read_only))
        || rbd
            .is_some_and(|(a, b)| pool(&a.pool) == pool(&b.pool) && a.image == b.image && !(a.read_only && b.read_only))
}
