use serde_json::{Map, Value, json};

use super::{
    Bootstrap, UserDataError,
    mime::{NODE_CONFIG, Part, SHELL_SCRIPT, archive, is_archive, parts},
};

impl Bootstrap<'_> {
    /// Amazon Linux 2023: what the user wrote, then a configuration for `nodeadm`, which takes the last word of several.
    pub(super) fn nodeadm(&self) -> Result<String, UserDataError> {
        let config = self.node_config()?;
        let mut all = match self.custom {
            Some(text) if is_archive(text) => parts(text)?,
            Some(text) if is_yaml(text) => vec![Part::new(NODE_CONFIG, text)],
            Some(text) => vec![Part::new(SHELL_SCRIPT, text)],
            None => Vec::new(),
        };
        all.push(Part::new(NODE_CONFIG, config));
        Ok(archive(&all))
    }

    fn node_config(&self) -> Result<String, UserDataError> {
        let cidr = self.cluster.service_cidr.as_deref().filter(|cidr| !cidr.is_empty());
        let mut cluster = Map::new();
        for (key, value) in [
            ("name", Some(&*self.cluster.name)),
            ("apiServerEndpoint", Some(&*self.cluster.endpoint)),
            ("certificateAuthority", self.cluster.ca_bundle.as_deref()),
            ("cidr", Some(cidr.ok_or(UserDataError::NoServiceCidr)?)),
        ] {
            cluster.extend(value.map(|value| (key.to_owned(), Value::from(value))));
        }
        let mut kubelet = Map::from_iter([("config".to_owned(), self.kubelet_config())]);
        kubelet.extend(self.node_labels_arg().map(|arg| ("flags".to_owned(), Value::from(vec![arg]))));
        let mut spec = Map::from_iter([("cluster".to_owned(), Value::Object(cluster))]);
        if self.is_raid0 {
            spec.insert("instance".to_owned(), json!({"localStorage": {"strategy": "RAID0"}}));
        }
        spec.insert("kubelet".to_owned(), Value::Object(kubelet));
        let mut config = json!({"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec});
        // Maps of JSON keep the order in which they were made if any crate of the build asks for it.
        config.sort_all_objects();
        let text =
            serde_saphyr::to_string_with_options(&config, serde_saphyr::ser_options! { prefer_block_scalars: false })
                .map_err(|error| UserDataError::Unwritable { message: error.to_string() })?;
        Ok(format!("# Karpenter Generated NodeConfig\n{text}"))
    }

    /// All that the class says to the kubelet, and the taints of the node.
    fn kubelet_config(&self) -> Value {
        let taint = |taint: &karpenter_core::api::Taint| {
            let mut out = Map::from_iter([
                ("key".to_owned(), Value::from(taint.key.as_str())),
                ("effect".to_owned(), Value::from(taint.effect.name())),
            ]);
            if !taint.value.is_empty() {
                out.insert("value".to_owned(), Value::from(taint.value.as_str()));
            }
            Value::Object(out)
        };
        let mut config = self.kubelet.0.clone();
        config.insert("registerWithTaints".to_owned(), self.taints.iter().map(taint).collect());
        Value::Object(config)
    }
}

/// Whether a text is a map in YAML, or several, or nothing but comments.
fn is_yaml(text: &str) -> bool {
    serde_saphyr::from_multiple::<Option<Map<String, Value>>>(text).is_ok()
}
