//! Manifests of older versions of Karpenter on AWS, as they are written today.
//!
//! Reads `Provisioner` (`karpenter.sh/v1alpha5`), `AWSNodeTemplate` (`karpenter.k8s.aws/v1alpha1`), and `NodePool` and
//! `EC2NodeClass` of `v1beta1` and `v1`. What they did stays as it was where today's kinds can say it; what cannot be
//! told from the manifests, and what somebody should look at, is a note.
//!
//! The settings of the kubelet belong to the node class now, so all manifests of a cluster are converted together.

mod provisioner;
mod selector;
mod template;

use std::collections::BTreeSet;

use karpenter_core::api::{Change, Converted, Difference, FieldError, NodePool, NodePoolStatus, ObjectMeta};
use serde_json::Value;

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
    /// There is nothing to convert.
    #[error("no Provisioner, AWSNodeTemplate, NodePool or EC2NodeClass among the manifests")]
    Nothing,
}

/// Reads manifests one after the other. Provisioners get the requirements that Karpenter's webhook added to them.
#[derive(Clone, Debug, Default)]
pub struct Converter {
    /// Whether provisioners stay without what Karpenter's webhook added to them.
    skips_defaults: bool,
    /// With the settings of the kubelet that a pool of an older version has.
    pools: Vec<(NodePool, Option<KubeletConfiguration>)>,
    out: Conversion,
}

impl Converter {
    /// Takes provisioners by their words: without the requirements that Karpenter's webhook added where nothing was said.
    pub fn without_defaults() -> Self {
        Self { skips_defaults: true, ..Self::default() }
    }

    /// Reads a manifest; one of another kind is skipped.
    ///
    /// # Errors
    /// It is not of the form of its kind, or cannot be said today.
    pub fn add(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let group = manifest["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
        match (group, manifest["kind"].as_str()) {
            (Some("karpenter.sh"), Some("Provisioner")) => self.provisioner(named(manifest)?),
            (Some("karpenter.sh"), Some("NodePool")) => self.node_pool(named(manifest)?),
            (Some(GROUP), Some("AWSNodeTemplate")) => self.node_template(named(manifest)?),
            (Some(GROUP), Some(KIND)) => self.node_class(named(manifest)?),
            _ => Ok(()),
        }
    }

    /// All that was read, as it is written today.
    ///
    /// # Errors
    /// There was nothing to convert.
    pub fn finish(mut self) -> Result<Conversion, ConvertError> {
        if self.pools.is_empty() && self.out.classes.is_empty() {
            return Err(ConvertError::Nothing);
        }
        self.hand_over_kubelets();
        self.out.pools = self.pools.into_iter().map(|(pool, _)| pool).collect();
        for pool in &mut self.out.pools {
            pool.metadata = written(&pool.metadata);
            pool.status = NodePoolStatus::default();
        }
        for class in &mut self.out.classes {
            class.metadata = written(&class.metadata);
            class.status = Ec2NodeClassStatus::default();
        }
        Ok(self.out)
    }

    fn note(&mut self, object: &str, message: impl Into<String>) {
        self.out.notes.push(Note { object: object.to_owned(), message: message.into() });
    }

    fn node_pool(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let object = name_of(manifest);
        let is_old = manifest["apiVersion"].as_str() != Some("karpenter.sh/v1");
        let kubelet = &manifest["spec"]["template"]["spec"]["kubelet"];
        let path = "spec.template.spec.kubelet";
        let kubelet = if is_old || !kubelet.is_null() { Some(read(&object, path, or_empty(kubelet))?) } else { None };
        let converted: Converted<NodePool> = read(&object, "", manifest.clone())?;
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
        self.pools.push((pool, kubelet));
        Ok(())
    }

    /// Settings of the kubelet go to the class of their pool. A class whose pools do not agree is copied for those that
    /// differ from the first.
    fn hand_over_kubelets(&mut self) {
        let classes = &mut self.out.classes;
        let with_kubelet = classes.iter().filter(|class| !class.spec.kubelet.is_empty());
        let mut settled: BTreeSet<_> = with_kubelet.map(|class| class.name().to_owned()).collect();
        for (pool, kubelet) in &mut self.pools {
            let Some(kubelet) = kubelet.take() else { continue };
            let object = format!("NodePool {}", pool.name());
            let class_name = &mut pool.spec.template.spec.node_class_ref.name;
            let Some(class) = classes.iter_mut().find(|class| class.name() == class_name) else {
                if !kubelet.is_empty() {
                    let message =
                        format!("settings of the kubelet belong to {KIND} {class_name} now, which is not here");
                    self.out.notes.push(Note { object, message });
                }
                continue;
            };
            if settled.insert(class_name.clone()) {
                class.spec.kubelet = kubelet;
            } else if class.spec.kubelet != kubelet {
                let message =
                    format!("its kubelet differs from that of {KIND} {class_name}, so it has a class of its own");
                self.out.notes.push(Note { object, message });
                let mut copy = class.clone();
                copy.metadata.name = format!("{class_name}-{}", pool.metadata.name);
                copy.spec.kubelet = kubelet;
                class_name.clone_from(&copy.metadata.name);
                classes.push(copy);
            }
        }
    }
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

/// Reads what is at a path of an object; the path is empty for all of it.
fn read<T: serde::de::DeserializeOwned>(object: &str, path: &str, value: Value) -> Result<T, ConvertError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        let field = match (path, inner.as_str()) {
            (path, ".") => path.to_owned(),
            ("", inner) => inner.to_owned(),
            (path, inner) => format!("{path}.{inner}"),
        };
        invalid(object, field, error.inner().to_string())
    })
}

fn invalid(object: &str, field: impl Into<String>, message: impl Into<String>) -> ConvertError {
    ConvertError::Invalid(FieldError::new(field, message).of(object))
}

/// A value, or an empty object if there is none.
fn or_empty(value: &Value) -> Value {
    if value.is_null() { Value::Object(serde_json::Map::new()) } else { value.clone() }
}

#[cfg(test)]
mod tests;
