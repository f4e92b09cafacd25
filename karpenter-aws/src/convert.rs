//! Manifests of older versions of Karpenter on AWS, as they are written today.
//!
//! Reads `Provisioner` (`karpenter.sh/v1alpha5`), `AWSNodeTemplate` (`karpenter.k8s.aws/v1alpha1`), and `NodePool` and
//! `EC2NodeClass` of `v1beta1` and `v1`. What they did stays as it was where today's kinds can say it; what cannot be
//! told from the manifests, what is no field, and what somebody should look at, is a note. What comes out is held to the
//! rules of its kinds; what breaks one is a note too.
//!
//! The settings of the kubelet belong to the node class now, so all manifests of a cluster are converted together.

mod check;
mod kubelet;
mod names;
mod provisioner;
mod read;
mod selector;
mod template;

use std::collections::BTreeSet;

use karpenter_core::api::{Change, Converted, Difference, FieldError, NodePool, NodePoolStatus, ObjectMeta};
use serde_json::Value;

use self::read::read_noting;
use crate::nodeclass::{Ec2NodeClass, Ec2NodeClassStatus, GROUP, KIND, KubeletConfiguration};

/// What stands for the role of nodes, where older manifests did not have to name one.
pub const ROLE_PLACEHOLDER: &str = "$KARPENTER_NODE_ROLE";
/// What stands for an image that today's kinds cannot select.
pub const IMAGE_PLACEHOLDER: &str = "ami-placeholder";
/// Where `kubectl apply` keeps what it sent: an object of an older version.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Manifests of today.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversion {
    /// The pools in the order of their manifests.
    pub pools: Vec<NodePool>,
    /// The classes in the order of their manifests; then those that pools need beside them.
    pub classes: Vec<Ec2NodeClass>,
    /// What somebody should look at.
    pub notes: Vec<Note>,
}

/// Something that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The object, such as `Provisioner default`.
    pub object: String,
    /// What, and why.
    pub message: String,
}

/// Why manifests cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// A manifest is not of the form of its kind: the object, the field and what is wrong with it.
    #[error("{0}")]
    Invalid(FieldError),
    /// The node template is a launch template of the user's, of which nothing is known.
    #[error("{object}: spec.launchTemplate: has no place in an EC2NodeClass: write down what it says")]
    LaunchTemplate {
        /// The object, such as `AWSNodeTemplate default`.
        object: String,
    },
    /// An object is given twice.
    #[error("{object}: metadata.name: the same object was given already")]
    Duplicate {
        /// The object, such as `AWSNodeTemplate default`.
        object: String,
    },
    /// There is nothing to convert.
    #[error("no Provisioner, AWSNodeTemplate, NodePool or EC2NodeClass among the manifests")]
    Nothing,
}

/// Reads manifests one after the other. Provisioners get the requirements that Karpenter's webhook added to them.
#[derive(Clone, Debug, Default)]
pub struct Converter {
    /// Whether provisioners stay without what Karpenter's webhook added to them.
    skips_defaults: bool,
    /// The objects that were read, such as `NodePool default`.
    seen: BTreeSet<String>,
    pools: Vec<Pool>,
    classes: Vec<Class>,
    notes: Vec<Note>,
}

/// A pool on its way.
#[derive(Clone, Debug)]
struct Pool {
    /// What it is made of, such as `Provisioner default`.
    object: String,
    now: NodePool,
    /// The settings of the kubelet, if it has some itself.
    kubelet: Option<KubeletConfiguration>,
    is_of_today: bool,
    /// The class of what a provisioner says of AWS itself.
    inline: Option<Ec2NodeClass>,
}

/// A class on its way.
#[derive(Clone, Debug)]
struct Class {
    /// What it is made of, such as `AWSNodeTemplate default`.
    object: String,
    now: Ec2NodeClass,
}

impl Converter {
    /// Takes provisioners by their words: without the requirements that Karpenter's webhook added where nothing was said.
    pub fn without_defaults() -> Self {
        Self { skips_defaults: true, ..Self::default() }
    }

    /// Reads a manifest; one of another kind is skipped.
    ///
    /// # Errors
    /// It is not of the form of its kind, was given already, or cannot be said today.
    pub fn add(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let group = manifest["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
        let convert = match (group, manifest["kind"].as_str()) {
            (Some("karpenter.sh"), Some("Provisioner")) => Self::provisioner,
            (Some("karpenter.sh"), Some("NodePool")) => Self::node_pool,
            (Some(GROUP), Some("AWSNodeTemplate")) => Self::node_template,
            (Some(GROUP), Some(KIND)) => Self::node_class,
            _ => return Ok(()),
        };
        let object = name_of(named(manifest)?);
        if !self.seen.insert(object.clone()) {
            return Err(ConvertError::Duplicate { object });
        }
        self.note_top(&object, manifest);
        convert(self, manifest)
    }

    /// All that was read, as it is written today.
    ///
    /// # Errors
    /// There was nothing to convert.
    pub fn finish(mut self) -> Result<Conversion, ConvertError> {
        if self.seen.is_empty() {
            return Err(ConvertError::Nothing);
        }
        self.leave_out_older();
        self.place_inline_classes();
        self.hand_over_kubelets();
        self.check();
        let pools = self.pools.into_iter().map(|Pool { now: mut pool, .. }| {
            pool.metadata = written(&pool.metadata);
            pool.status = NodePoolStatus::default();
            pool
        });
        let classes = self.classes.into_iter().map(|Class { now: mut class, .. }| {
            class.metadata = written(&class.metadata);
            class.status = Ec2NodeClassStatus::default();
            class
        });
        Ok(Conversion { pools: pools.collect(), classes: classes.collect(), notes: self.notes })
    }

    fn note(&mut self, object: &str, message: impl Into<String>) {
        self.notes.push(Note { object: object.to_owned(), message: message.into() });
    }

    fn node_pool(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let object = name_of(manifest);
        let is_of_today = manifest["apiVersion"].as_str() == Some("karpenter.sh/v1");
        let (converted, unknown): (Converted<NodePool>, _) = read_noting(&object, "", manifest)?;
        for field in unknown.iter().filter(|field| is_unknown(field)) {
            self.note_unknown(&object, field);
        }
        for change in converted.changes.iter().filter(|change| is_lost(change)) {
            self.note(&object, change.to_string());
        }
        let mut pool = converted.object;
        let class = &mut pool.spec.template.spec.node_class_ref;
        if class.group.is_empty() {
            GROUP.clone_into(&mut class.group);
        }
        if class.kind.is_empty() {
            KIND.clone_into(&mut class.kind);
        }
        let annotated = self.annotated_kubelet(&object, &mut pool)?;
        let kubelet = self.kubelet(&object, KUBELET, &manifest["spec"]["template"]["spec"]["kubelet"])?;
        let kubelet = if is_of_today { annotated.or(kubelet) } else { kubelet.or(annotated) };
        self.pools.push(Pool { object, now: pool, kubelet, is_of_today, inline: None });
        Ok(())
    }
}

/// Where pools of `v1beta1` have the settings of the kubelet.
const KUBELET: &str = "spec.template.spec.kubelet";

/// Whether a field of a pool that nothing was read from is none. The settings of the kubelet are read by themselves, that
/// there are no resources any more is a change, and of metadata a server writes more than is read.
fn is_unknown(field: &str) -> bool {
    let is_other = |path: &str| field.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']));
    field.starts_with("spec.") && !is_other(KUBELET) && !is_other("spec.template.spec.resources")
}

/// What users write of what an object carries: a server adds more.
fn written(found: &ObjectMeta) -> ObjectMeta {
    let mut meta = ObjectMeta::named(&found.name);
    meta.labels.clone_from(&found.labels);
    meta.annotations.clone_from(&found.annotations);
    meta.annotations.remove(LAST_APPLIED);
    meta.finalizers.clone_from(&found.finalizers);
    meta
}

/// Whether the field is not in what comes out. The settings of the kubelet are: in the class.
fn is_lost(change: &Change) -> bool {
    matches!(change.difference, Difference::Dropped | Difference::Overridden { .. })
}

fn name_of(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    format!("{} {}", text(&manifest["kind"]), text(&manifest["metadata"]["name"]))
}

/// The manifest, which has a name.
fn named(manifest: &Value) -> Result<&Value, ConvertError> {
    let message = match &manifest["metadata"]["name"] {
        Value::String(name) if !name.is_empty() => return Ok(manifest),
        Value::String(_) | Value::Null => "is missing",
        _ => "is not a text",
    };
    let kind = manifest["kind"].as_str().unwrap_or_default();
    Err(ConvertError::Invalid(FieldError::new("metadata.name", message).of(kind)))
}

fn invalid(object: &str, field: impl Into<String>, message: impl Into<String>) -> ConvertError {
    ConvertError::Invalid(FieldError::new(field, message).of(object))
}

#[cfg(test)]
mod tests;
