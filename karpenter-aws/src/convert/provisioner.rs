use karpenter_core::{
    api::{NodePool, NodeSelectorRequirement, Operator},
    labels as core_labels,
};
use serde_json::{Map, Value, json};

use super::{ConvertError, Work, name_of, or_empty, read};
use crate::{
    instance_type::labels,
    nodeclass::{GROUP, KIND},
};

/// Keys that have other names now.
const RENAMED: [(&str, &str); 3] = [
    ("karpenter.sh/provisioner-name", core_labels::NODE_POOL),
    ("karpenter.sh/do-not-consolidate", core_labels::DO_NOT_DISRUPT),
    ("karpenter.sh/do-not-evict", core_labels::DO_NOT_DISRUPT),
];
/// A label that there is no more.
const INSTANCE_PODS: &str = "karpenter.k8s.aws/instance-pods";

impl Work {
    pub(super) fn provisioner(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let object = name_of(manifest);
        let (meta, spec) = (&manifest["metadata"], &manifest["spec"]);
        let name = meta["name"].as_str().unwrap_or("");
        let mut pool: NodePool = read(&object, pool_of(meta, spec))?;
        pool.metadata.finalizers = read(&object, list_or_empty(&meta["finalizers"]))?;
        let requirements = &mut pool.spec.template.spec.requirements;
        let count = requirements.len();
        requirements.retain(|requirement| requirement.key != INSTANCE_PODS);
        if requirements.len() != count {
            self.note(&object, format!("there is no label {INSTANCE_PODS} any more; what asked for it is left out"));
        }
        if self.defaults {
            add_defaults(&mut pool);
        }
        let class = &mut pool.spec.template.spec.node_class_ref;
        spec["providerRef"]["name"].as_str().unwrap_or("").clone_into(&mut class.name);
        if !spec["provider"].is_null() {
            name.clone_into(&mut class.name);
            self.inline_provider(name, &spec["provider"])?;
        }
        let kubelet = read(&object, or_empty(&spec["kubeletConfiguration"]))?;
        self.pools.push((pool, Some(kubelet)));
        Ok(())
    }
}

/// The pool as it is written today.
fn pool_of(meta: &Value, spec: &Value) -> Value {
    let rename = |map: &Value| -> Value {
        let entries = map.as_object().into_iter().flatten();
        Value::Object(entries.map(|(key, value)| (renamed(key).to_owned(), value.clone())).collect())
    };
    let requirements = spec["requirements"].as_array().into_iter().flatten().map(|requirement| {
        let mut requirement = requirement.clone();
        if let Some(key) = requirement["key"].as_str() {
            requirement["key"] = renamed(key).into();
        }
        requirement
    });
    let seconds = |value: &Value, none: &str| value.as_u64().map_or(none.to_owned(), |secs| format!("{secs}s"));
    let mut template = Map::new();
    template.insert("requirements".to_owned(), requirements.collect());
    template.insert("nodeClassRef".to_owned(), json!({"group": GROUP, "kind": KIND, "name": ""}));
    template.insert("expireAfter".to_owned(), seconds(&spec["ttlSecondsUntilExpired"], "Never").into());
    for key in ["taints", "startupTaints"] {
        template.insert(key.to_owned(), list_or_empty(&spec[key]));
    }
    let (policy, after) = if spec["consolidation"]["enabled"].as_bool() == Some(true) {
        ("WhenEmptyOrUnderutilized", "0s".to_owned())
    } else {
        ("WhenEmpty", seconds(&spec["ttlSecondsAfterEmpty"], "Never"))
    };
    let mut out = json!({
        "metadata": {"name": meta["name"], "labels": rename(&meta["labels"]), "annotations": rename(&meta["annotations"])},
        "spec": {
            "template": {
                "metadata": {"labels": rename(&spec["labels"]), "annotations": rename(&spec["annotations"])},
                "spec": template,
            },
            "disruption": {"consolidationPolicy": policy, "consolidateAfter": after},
            "limits": spec["limits"]["resources"],
        },
    });
    if !spec["weight"].is_null() {
        out["spec"]["weight"] = spec["weight"].clone();
    }
    out
}

fn renamed(key: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == key).map_or(key, |(_, new)| new)
}

fn list_or_empty(value: &Value) -> Value {
    if value.is_null() { Value::Array(Vec::new()) } else { value.clone() }
}

/// What Karpenter's webhook added where a provisioner did not say it.
fn add_defaults(pool: &mut NodePool) {
    let template = &mut pool.spec.template;
    let said = |key: &str| {
        template.metadata.labels.contains_key(key) || template.spec.requirements.iter().any(|r| r.key == key)
    };
    let mut defaults = Vec::new();
    for (key, value) in
        [(core_labels::OS, "linux"), (core_labels::ARCH, "amd64"), (core_labels::CAPACITY_TYPE, core_labels::ON_DEMAND)]
    {
        if !said(key) {
            defaults.push(NodeSelectorRequirement::new(key, Operator::In, [value]));
        }
    }
    if ![core_labels::INSTANCE_TYPE, labels::FAMILY, labels::CATEGORY, labels::GENERATION].into_iter().any(said) {
        defaults.push(NodeSelectorRequirement::new(labels::CATEGORY, Operator::In, ["c", "m", "r"]));
        defaults.push(NodeSelectorRequirement::new(labels::GENERATION, Operator::Gt, ["2"]));
    }
    template.spec.requirements.extend(defaults);
}
