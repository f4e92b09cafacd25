use karpenter_core::{
    api::{NodePool, NodeSelectorRequirement, Operator},
    labels as core_labels,
};
use serde_json::{Map, Value, json};

use super::{
    ConvertError, Converter, Pool, invalid, name_of,
    read::{list_or_empty, or_empty, read, read_noting},
};
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
/// The fields of what is wanted.
const FIELDS: [&str; 13] = [
    "annotations",
    "consolidation",
    "kubeletConfiguration",
    "labels",
    "limits",
    "provider",
    "providerRef",
    "requirements",
    "startupTaints",
    "taints",
    "ttlSecondsAfterEmpty",
    "ttlSecondsUntilExpired",
    "weight",
];
/// A label that there is no more.
const INSTANCE_PODS: &str = "karpenter.k8s.aws/instance-pods";

impl Converter {
    pub(super) fn provisioner(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let object = name_of(manifest);
        let meta = &manifest["metadata"];
        let spec = &self.known_spec(&object, &manifest["spec"]);
        let name = meta["name"].as_str().unwrap_or("");
        let (mut pool, unknown): (NodePool, _) =
            read_noting(&object, "", &pool_of(&object, meta, spec)?).map_err(as_written)?;
        for field in &unknown {
            self.note_unknown(&object, &field_then(field));
        }
        pool.metadata.finalizers = read(&object, "metadata.finalizers", &list_or_empty(&meta["finalizers"]))?;
        let requirements = &mut pool.spec.template.spec.requirements;
        let count = requirements.len();
        requirements.retain(|requirement| requirement.key != INSTANCE_PODS);
        if requirements.len() != count {
            self.note(&object, format!("there is no label {INSTANCE_PODS} any more; what asked for it is left out"));
        }
        if !self.skips_defaults {
            add_defaults(&mut pool);
        }
        let class = &mut pool.spec.template.spec.node_class_ref;
        spec["providerRef"]["name"].as_str().unwrap_or("").clone_into(&mut class.name);
        let inline = match &spec["provider"] {
            Value::Null => None,
            provider => Some(self.inline_provider(name, provider)?),
        };
        let kubelet = self.kubelet(&object, "spec.kubeletConfiguration", &spec["kubeletConfiguration"])?;
        self.pools.push(Pool { object, now: pool, kubelet, is_of_today: false, inline });
        Ok(())
    }

    /// What is wanted, without fields that a provisioner does not have.
    fn known_spec(&mut self, object: &str, spec: &Value) -> Value {
        let known = self.known(object, "spec", spec, &FIELDS);
        for (key, fields) in [
            ("consolidation", &["enabled"][..]),
            ("limits", &["resources"]),
            ("providerRef", &["apiVersion", "kind", "name"]),
        ] {
            self.known(object, &format!("spec.{key}"), &known[key], fields);
        }
        known
    }
}

/// The error with the field as it is called in a provisioner.
fn as_written(error: ConvertError) -> ConvertError {
    let ConvertError::Invalid(mut error) = error else { return error };
    error.field = field_then(&error.field);
    ConvertError::Invalid(error)
}

/// How a field of a pool is called in a provisioner.
fn field_then(field: &str) -> String {
    for (now, then) in [
        ("spec.template.metadata.", "spec."),
        ("spec.template.spec.", "spec."),
        ("spec.limits", "spec.limits.resources"),
    ] {
        if let Some(rest) = field.strip_prefix(now) {
            return format!("{then}{rest}");
        }
    }
    field.to_owned()
}

/// How long after something happened, of a number of seconds.
fn seconds(object: &str, spec: &Value, key: &str) -> Result<String, ConvertError> {
    match &spec[key] {
        Value::Null => Ok("Never".to_owned()),
        value => value
            .as_u64()
            .map(|seconds| format!("{seconds}s"))
            .ok_or_else(|| invalid(object, format!("spec.{key}"), format!("{value} is not a number of seconds"))),
    }
}

fn is_consolidated(object: &str, spec: &Value) -> Result<bool, ConvertError> {
    match &spec["consolidation"]["enabled"] {
        Value::Null => Ok(false),
        Value::Bool(enabled) => Ok(*enabled),
        other => Err(invalid(object, "spec.consolidation.enabled", format!("{other} is neither true nor false"))),
    }
}

/// The pool as it is written today.
fn pool_of(object: &str, meta: &Value, spec: &Value) -> Result<Value, ConvertError> {
    // What is of another type is handed on as it is, and the reader of pools says so.
    let rename = |map: &Value| match map {
        Value::Object(map) => map.iter().map(|(key, value)| (renamed(key).to_owned(), value.clone())).collect(),
        other => or_empty(other),
    };
    let mut requirements = list_or_empty(&spec["requirements"]);
    for requirement in requirements.as_array_mut().into_iter().flatten() {
        if let Some(key) = requirement["key"].as_str() {
            requirement["key"] = renamed(key).into();
        }
    }
    let limits = match &spec["limits"] {
        limits @ (Value::Object(_) | Value::Null) => &limits["resources"],
        other => other,
    };
    let mut template = Map::new();
    template.insert("requirements".to_owned(), requirements);
    template.insert("nodeClassRef".to_owned(), json!({"group": GROUP, "kind": KIND, "name": ""}));
    template.insert("expireAfter".to_owned(), seconds(object, spec, "ttlSecondsUntilExpired")?.into());
    for key in ["taints", "startupTaints"] {
        template.insert(key.to_owned(), list_or_empty(&spec[key]));
    }
    let (policy, after) = if is_consolidated(object, spec)? {
        ("WhenEmptyOrUnderutilized", "0s".to_owned())
    } else {
        ("WhenEmpty", seconds(object, spec, "ttlSecondsAfterEmpty")?)
    };
    let mut out = json!({
        "metadata": {"name": meta["name"], "labels": rename(&meta["labels"]), "annotations": rename(&meta["annotations"])},
        "spec": {
            "template": {
                "metadata": {"labels": rename(&spec["labels"]), "annotations": rename(&spec["annotations"])},
                "spec": template,
            },
            "disruption": {"consolidationPolicy": policy, "consolidateAfter": after},
            "limits": limits,
        },
    });
    if !spec["weight"].is_null() {
        out["spec"]["weight"] = spec["weight"].clone();
    }
    Ok(out)
}

fn renamed(key: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == key).map_or(key, |(_, new)| new)
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
