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

use karpenter_core::api::{Converted, NodePool};
use serde_json::Value;

use crate::nodeclass::{Ec2NodeClass, GROUP, KIND, KubeletConfiguration};

/// What stands for the role of nodes, where older manifests did not have to name one.
pub const ROLE_PLACEHOLDER: &str = "$KARPENTER_NODE_ROLE";
/// What stands for an image that today's kinds cannot select.
pub const IMAGE_PLACEHOLDER: &str = "ami-placeholder";

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
    /// A manifest is not of the form of its kind.
    #[error("{object}: {message}")]
    Invalid {
        /// The object, such as `Provisioner default`.
        object: String,
        /// What is wrong with it.
        message: String,
    },
    /// The node template is a launch template of the user's, of which nothing is known.
    #[error("AWSNodeTemplate {name}: spec.launchTemplate has no place in an EC2NodeClass: write down what it says")]
    LaunchTemplate {
        /// The name of the node template.
        name: String,
    },
    /// There is nothing to convert.
    #[error("no Provisioner, AWSNodeTemplate, NodePool or EC2NodeClass among the manifests")]
    Nothing,
}

/// Converts manifests; those of other kinds are skipped. With `defaults`, a provisioner gets the requirements that
/// Karpenter's webhook added to it.
///
/// # Errors
/// A manifest cannot be read or converted, or there is none.
pub fn convert(manifests: &[Value], defaults: bool) -> Result<Conversion, ConvertError> {
    let mut work = Work { defaults, ..Work::default() };
    for manifest in manifests {
        work.read(manifest)?;
    }
    if work.pools.is_empty() && work.out.classes.is_empty() {
        return Err(ConvertError::Nothing);
    }
    work.hand_over_kubelets();
    work.out.pools = work.pools.into_iter().map(|(pool, _)| pool).collect();
    Ok(work.out)
}

#[derive(Default)]
struct Work {
    defaults: bool,
    /// With the settings of the kubelet that a pool of an older version has.
    pools: Vec<(NodePool, Option<KubeletConfiguration>)>,
    out: Conversion,
}

impl Work {
    fn read(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        match manifest["kind"].as_str() {
            Some("Provisioner") => self.provisioner(manifest),
            Some("AWSNodeTemplate") => self.node_template(manifest),
            Some("NodePool") => self.node_pool(manifest),
            Some(KIND) => self.node_class(manifest),
            _ => Ok(()),
        }
    }

    fn note(&mut self, object: &str, message: impl Into<String>) {
        self.out.notes.push(Note { object: object.to_owned(), message: message.into() });
    }

    fn node_pool(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let object = name_of(manifest);
        let is_old = manifest["apiVersion"].as_str() != Some("karpenter.sh/v1");
        let kubelet = &manifest["spec"]["template"]["spec"]["kubelet"];
        let kubelet = if is_old || !kubelet.is_null() { Some(read(&object, or_empty(kubelet))?) } else { None };
        let converted: Converted<NodePool> = read(&object, manifest.clone())?;
        for change in &converted.changes {
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

fn name_of(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    format!("{} {}", text(&manifest["kind"]), text(&manifest["metadata"]["name"]))
}

fn read<T: serde::de::DeserializeOwned>(object: &str, value: Value) -> Result<T, ConvertError> {
    serde_json::from_value(value)
        .map_err(|error| ConvertError::Invalid { object: object.to_owned(), message: error.to_string() })
}

/// A value, or an empty object if there is none.
fn or_empty(value: &Value) -> Value {
    if value.is_null() { Value::Object(serde_json::Map::new()) } else { value.clone() }
}

#[cfg(test)]
mod tests;
