mod matching;
mod problem;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

pub use problem::VolumeProblem;

use crate::{
    NodeAlternatives, Requirement, Requirements,
    api::{
        CsiNode, NodeSelectorTerm, ObjectKey, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass,
        TopologySelectorTerm, Volume, VolumeBindingMode, driver_of,
    },
    labels,
    requirements::MAX_PRODUCT,
};

/// The labels that tell the zones of a volume.
const ZONE_LABELS: [&str; 2] = [labels::ZONE, "failure-domain.beta.kubernetes.io/zone"];
/// The most alternatives that the volumes of a pod may come to. Volumes of one topology come to as many as it has
/// zones; five volumes with four terms each, on labels that have nothing to do with each other, come to 4^5 = 1024.
const MAX_ALTERNATIVES: usize = 1024;

/// The volumes of a cluster, the claims on them, and the classes of which further ones can be made.
///
/// ```
/// use karpenter_core::{Snapshot, api::{Pod, StorageClass}};
///
/// let class: StorageClass = serde_json::from_str(
///     r#"{"metadata": {"name": "ssd"}, "provisioner": "disks", "volumeBindingMode": "WaitForFirstConsumer",
///         "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]}"#,
/// )?;
/// let pod: Pod = serde_json::from_str(
///     r#"{"metadata": {"name": "db"}, "spec": {"volumes": [
///         {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "ssd"}}}}]}}"#,
/// )?;
/// let snapshot = Snapshot::builder().storage_classes([class]).build()?;
/// let needs = snapshot.storage().needs_of(&pod)?;
/// assert_eq!(needs.alternatives[0].to_string(), "zone In [a, b]");
/// assert_eq!(needs.attachments[0].volume, "default/db-data");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    pub(super) claims: BTreeMap<ObjectKey, PersistentVolumeClaim>,
    pub(super) volumes: BTreeMap<String, PersistentVolume>,
    pub(super) classes: BTreeMap<String, StorageClass>,
    pub(super) csi_nodes: BTreeMap<String, CsiNode>,
    /// The nodes that are there and stay for which volumes of claims are being made.
    pub(super) selected_nodes: BTreeMap<ObjectKey, String>,
}

/// What a node must be like for the volumes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct VolumeNeeds {
    /// The node must meet one of these, each of which some node can meet; none of them means that any node will do.
    ///
    /// They are about the node alone: they do not count as the pod's own node affinity, such as where it is spread.
    pub alternatives: Vec<Requirements>,
    /// The volumes that a driver attaches to the node, in order, each once.
    pub attachments: Vec<Attachment>,
}

/// A volume that a storage driver attaches to a node, however many pods of the node mount it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Attachment {
    /// The name of the driver, to which limits apply.
    pub driver: String,
    /// The driver's name for the volume, or the namespace and name of the claim while it has no volume.
    pub volume: String,
}

impl VolumeNeeds {
    /// Whether a node of this name with these labels will do, if it can attach the volumes.
    pub fn admit_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.alternatives.is_empty() || NodeAlternatives::any_admits(&self.alternatives, name, labels)
    }
}

impl Storage {
    /// The claim of this namespace and name.
    pub fn claim(&self, key: &ObjectKey) -> Option<&PersistentVolumeClaim> {
        self.claims.get(key)
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.volumes.get(name)
    }

    /// All volumes, in the order of their names.
    pub fn volumes(&self) -> impl Iterator<Item = &PersistentVolume> {
        self.volumes.values()
    }

    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<&StorageClass> {
        self.classes.get(name)
    }

    /// All classes, in the order of their names.
    pub fn classes(&self) -> impl Iterator<Item = &StorageClass> {
        self.classes.values()
    }

    /// The node for which a volume of this claim is being made. One that is gone or on its way out does not count: whoever makes
    /// the volume will find that out, and another will be selected.
    pub fn selected_node(&self, claim: &ObjectKey) -> Option<&str> {
        self.selected_nodes.get(claim).map(String::as_str)
    }

    /// The most volumes that each driver can attach to the node of this name; drivers without a limit are left out.
    pub fn limits_of(&self, node: &str) -> BTreeMap<String, u32> {
        self.csi_nodes.get(node).map(CsiNode::volume_limits).unwrap_or_default()
    }

    /// What the node of a pod must be like for its volumes.
    ///
    /// The node must suit every volume: one of the terms of a volume's node affinity in the zones of its labels, or one
    /// of the allowed topologies of the class of which a volume will be made. If volumes of the class are made by hand, it
    /// must suit one of those that could be bound to the claim. If a volume is being made for a node, it must be that one. An
    /// expression of `matchFields` is kept under a key that is no label; [`VolumeNeeds::admit_node`] knows it. The affinity of
    /// volumes in the file system of a node to the name of its host is dropped, so that the pod can leave that node, as Karpenter
    /// does; the kube-scheduler does not.
    ///
    /// A claim for an ephemeral volume need not exist yet. It will be as its template says.
    ///
    /// # Errors
    /// The first claim for which the kube-scheduler would find no node.
    pub fn needs_of(&self, pod: &Pod) -> Result<VolumeNeeds, VolumeProblem> {
        let mut narrowings: Vec<(ObjectKey, Vec<Requirements>)> = Vec::new();
        for (key, claim) in self.claims_of(pod) {
            let claim = claim.ok_or_else(|| VolumeProblem::ClaimMissing { claim: key.clone() })?;
            if narrowings.iter().all(|(earlier, _)| *earlier != key) {
                narrowings.extend(self.nodes_for(&key, &claim)?.map(|nodes| (key, nodes)));
            }
        }
        let alternatives = combine(&narrowings)?;
        let terms = pod.spec.affinity.node_affinity.required.as_ref().map_or(1, |own| own.node_selector_terms.len());
        if alternatives.len() > 1 && alternatives.len().saturating_mul(terms) > MAX_PRODUCT {
            let claims = narrowings.into_iter().map(|(claim, _)| claim).collect();
            return Err(VolumeProblem::TooManyTerms { claims, max: MAX_PRODUCT });
        }
        Ok(VolumeNeeds { alternatives, attachments: self.attachments_of(pod).into_iter().collect() })
    }

    /// The claims of a pod that are for one pod at a time; see [`PersistentVolumeClaim::is_for_one_pod`].
    pub(crate) fn exclusive_claims_of<'s>(&'s self, pod: &'s Pod) -> impl Iterator<Item = ObjectKey> {
        self.claims_of(pod).filter_map(|(key, claim)| claim.filter(|claim| claim.is_for_one_pod()).map(|_| key))
    }

    /// Whether some claim is for one pod at a time.
    pub(crate) fn has_exclusive_claims(&self) -> bool {
        self.claims.values().any(PersistentVolumeClaim::is_for_one_pod)
    }

    /// The volumes that drivers attach to the node of a pod: those of its claims, and disks that it names itself. Claims and
    /// classes that do not exist are passed over.
    pub fn attachments_of(&self, pod: &Pod) -> BTreeSet<Attachment> {
        let found = self.claims_of(pod).filter_map(|(key, claim)| Some((key, claim?)));
        let of_claims = found.filter_map(|(key, claim)| self.attachment(&key, &claim));
        let named = pod.spec.volumes.iter().filter_map(Volume::attached);
        let named = named.map(|(driver, volume)| Attachment { driver: driver.to_owned(), volume });
        of_claims.chain(named).collect()
    }

    /// The claims that a pod mounts, in the order in which it names them.
    fn claims_of<'s>(
        &'s self,
        pod: &'s Pod,
    ) -> impl Iterator<Item = (ObjectKey, Option<Cow<'s, PersistentVolumeClaim>>)> {
        pod.spec.volumes.iter().filter_map(move |volume| {
            let key = claim_key(pod, volume)?;
            let will_be = || {
                let template = &volume.ephemeral.as_ref()?.volume_claim_template;
                let mut metadata = template.metadata.clone();
                metadata.name.clone_from(&key.name);
                metadata.namespace.clone_from(&key.namespace);
                let claim =
                    PersistentVolumeClaim { metadata, spec: template.spec.clone(), ..PersistentVolumeClaim::default() };
                Some(Cow::Owned(claim))
            };
            let claim = self.claims.get(&key).map(Cow::Borrowed).or_else(will_be);
            Some((key, claim))
        })
    }

    /// The alternatives for a node that is to mount the volume of a claim; `None` means any node.
    fn nodes_for(
        &self,
        key: &ObjectKey,
        claim: &PersistentVolumeClaim,
    ) -> Result<Option<Vec<Requirements>>, VolumeProblem> {
        if claim.is_terminating() {
            return Err(VolumeProblem::ClaimDeleting { claim: key.clone() });
        }
        if claim.is_lost() {
            return Err(VolumeProblem::ClaimLost { claim: key.clone() });
        }
        if claim.spec.volume_name.is_empty() {
            let class = self.class_of(claim)?.ok_or_else(|| VolumeProblem::NoClass { claim: key.clone() })?;
            return self.nodes_for_unbound(key, claim, class);
        }
        let (is_bound, claim, volume) = (claim.is_fully_bound(), key.clone(), claim.spec.volume_name.clone());
        match self.volumes.get(&volume) {
            None => Err(VolumeProblem::VolumeMissing { claim, volume }),
            Some(found) if found.is_terminating() => Err(VolumeProblem::VolumeDeleting { claim, volume }),
            Some(_) if !is_bound => Err(VolumeProblem::NotFullyBound { claim, volume }),
            Some(found) => Ok(nodes_of(found, found.is_on_node())),
        }
    }

    /// The alternatives for a node on which a claim of a class gets a volume; `None` means any node.
    fn nodes_for_unbound(
        &self,
        key: &ObjectKey,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Result<Option<Vec<Requirements>>, VolumeProblem> {
        if class.volume_binding_mode == VolumeBindingMode::Immediate {
            let (claim, class) = (key.clone(), class.metadata.name.clone());
            return Err(VolumeProblem::BindsImmediately { claim, class });
        }
        let found = if class.makes_volumes() { None } else { self.nodes_with_volumes_for(claim, class) };
        let nodes = found.or_else(|| topologies_of(class));
        let Some(selected) = self.selected_node(key) else { return Ok(nodes) };
        let anywhere = NodeAlternatives::any();
        let alternatives = nodes.as_deref().unwrap_or(anywhere.alternatives());
        Ok(Some(NodeAlternatives::of_node(selected).and(alternatives).alternatives().to_vec()))
    }

    /// The class of a claim, the default one if it names none; `None` if it asks for none or there is no default.
    fn class_of(&self, claim: &PersistentVolumeClaim) -> Result<Option<&StorageClass>, VolumeProblem> {
        match claim.class_name() {
            None => Ok(self.default_class()),
            Some("") => Ok(None),
            Some(name) => {
                let missing = || VolumeProblem::ClassMissing { claim: claim.key(), class: name.to_owned() };
                self.classes.get(name).map(Some).ok_or_else(missing)
            }
        }
    }

    /// The newest of the classes that are marked as the default one, of several the first by name, as the API server
    /// chooses.
    fn default_class(&self) -> Option<&StorageClass> {
        // Of equals `max_by_key` takes the last.
        let defaults = self.classes.values().rev().filter(|c| c.is_default());
        defaults.max_by_key(|c| c.metadata.creation_timestamp)
    }

    /// What is attached to the node that mounts the volume of a claim, if a driver does it.
    fn attachment(&self, key: &ObjectKey, claim: &PersistentVolumeClaim) -> Option<Attachment> {
        let Some(volume) = self.volumes.get(&claim.spec.volume_name) else {
            // As the kube-scheduler, also for a volume that is named and does not exist.
            let driver = driver_of(&self.class_of(claim).ok()??.provisioner);
            return (!driver.is_empty()).then(|| Attachment { driver: driver.to_owned(), volume: key.to_string() });
        };
        let (driver, handle) = volume.spec.attached()?;
        let volume = if handle.is_empty() { key.to_string() } else { handle };
        Some(Attachment { driver: driver.to_owned(), volume })
    }
}

/// The claim behind a volume, if there is one.
fn claim_key(pod: &Pod, volume: &Volume) -> Option<ObjectKey> {
    Some(ObjectKey::new(pod.namespace(), pod.claim_name_of(volume)?))
}

/// The alternatives for a node that is to mount a volume: those of its node affinity, whatever the name of the host if
/// `is_any_host`, in the zones that its labels name; `None` means any node.
fn nodes_of(volume: &PersistentVolume, is_any_host: bool) -> Option<Vec<Requirements>> {
    let zone = zone_of(volume);
    let Some(mut alternatives) = affinity_of(volume, is_any_host) else {
        return (!zone.is_empty()).then(|| vec![zone]);
    };
    for alternative in &mut alternatives {
        alternative.add_all(&zone);
    }
    Some(alternatives)
}

/// The alternatives of a volume's node affinity; `None` means any node.
fn affinity_of(volume: &PersistentVolume, is_any_host: bool) -> Option<Vec<Requirements>> {
    let terms = &volume.spec.node_affinity.required.as_ref()?.node_selector_terms;
    let read = |term: &NodeSelectorTerm| {
        let requirements = NodeAlternatives::of_term(term)?;
        if !is_any_host {
            return Some(requirements);
        }
        let mut term = term.clone();
        term.match_expressions.retain(|e| labels::normalized(&e.key) != labels::HOSTNAME);
        // What is left may be nothing, which any node meets.
        Some(NodeAlternatives::of_term(&term).unwrap_or_default())
    };
    unless_any(terms.len(), terms.iter().filter_map(read).collect())
}

/// The zones of a volume by its labels, as the filter `VolumeZone` of the kube-scheduler reads them: two underscores stand
/// between several, and a label with an empty one says nothing. Its region, which the zones imply, is not looked at: not every
/// catalog tells regions.
fn zone_of(volume: &PersistentVolume) -> Requirements {
    let mut out = Requirements::new();
    for zones in ZONE_LABELS.iter().filter_map(|key| volume.metadata.labels.get(*key)) {
        let zones = zones.split("__").map(str::trim);
        if zones.clone().all(|zone| !zone.is_empty()) {
            out.add(labels::ZONE, Requirement::one_of(zones));
        }
    }
    out
}

/// The alternatives for the node where a volume of a class is made; `None` means any node.
fn topologies_of(class: &StorageClass) -> Option<Vec<Requirements>> {
    let terms = &class.allowed_topologies;
    let read = |term: &TopologySelectorTerm| {
        let mut all = Requirements::new();
        for expression in &term.match_label_expressions {
            all.add(&expression.key, Requirement::one_of(expression.values.iter().map(String::as_str)));
        }
        // A term without expressions matches no node.
        (!all.is_empty()).then_some(all)
    };
    unless_any(terms.len(), terms.iter().filter_map(read).collect())
}

/// The alternatives, unless any node will do: no term was written, or one asks for nothing.
fn unless_any(term_count: usize, alternatives: Vec<Requirements>) -> Option<Vec<Requirements>> {
    (term_count > 0 && !alternatives.iter().any(Requirements::is_empty)).then_some(alternatives)
}

/// What suits all claims: one alternative of each, in every combination that some node can meet.
fn combine(narrowings: &[(ObjectKey, Vec<Requirements>)]) -> Result<Vec<Requirements>, VolumeProblem> {
    let claims = || narrowings.iter().map(|(claim, _)| claim.clone()).collect();
    let mut combined = Vec::new();
    for (i, (_, choices)) in narrowings.iter().enumerate() {
        // Claims of one class ask for the same, which once is enough.
        if narrowings[..i].iter().any(|(_, earlier)| earlier == choices) {
            continue;
        }
        let previous = if i == 0 { vec![Requirements::new()] } else { combined };
        let (mut next, mut seen) = (Vec::new(), BTreeSet::new());
        for (base, choice) in previous.iter().flat_map(|base| choices.iter().map(move |choice| (base, choice))) {
            let mut both = base.clone();
            both.add_all(choice);
            if both.contradiction().is_none() && seen.insert(both.clone()) {
                next.push(both);
            }
            if next.len() > MAX_ALTERNATIVES {
                return Err(VolumeProblem::TooManyAlternatives { claims: claims(), max: MAX_ALTERNATIVES });
            }
        }
        if next.is_empty() {
            return Err(VolumeProblem::Impossible { claims: claims() });
        }
        combined = next;
    }
    Ok(combined)
}
