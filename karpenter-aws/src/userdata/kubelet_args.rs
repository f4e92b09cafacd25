use std::collections::BTreeMap;

use super::Bootstrap;

impl Bootstrap<'_> {
    /// The arguments of the kubelet, for families whose nodes are told by a script.
    pub(super) fn kubelet_args(&self) -> String {
        let settings = &self.settings;
        let number = |name: &str, value: Option<i64>| value.map(|value| format!("--{name}={value}"));
        let percent = |value: Option<i32>| value.map(i64::from);
        let args = [
            self.node_labels_arg(),
            Some(format!(
                "--register-with-taints=\"{}\"",
                self.taints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            )),
            number("max-pods", settings.max_pods_count().map(i64::from)),
            number("pods-per-core", settings.pods_per_core.map(i64::from)),
            list("system-reserved", &settings.system_reserved, '='),
            list("kube-reserved", &settings.kube_reserved, '='),
            list("eviction-hard", &settings.eviction_hard, '<'),
            list("eviction-soft", &settings.eviction_soft, '<'),
            list("eviction-soft-grace-period", &settings.eviction_soft_grace_period, '='),
            number("eviction-max-pod-grace-period", settings.eviction_max_pod_grace_period.map(i64::from)),
            number("image-gc-high-threshold", percent(settings.image_gc_high_threshold_percent)),
            number("image-gc-low-threshold", percent(settings.image_gc_low_threshold_percent)),
            settings.cpu_cfs_quota.map(|quota| format!("--cpu-cfs-quota={quota}")),
        ];
        args.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// The argument that gives the node its labels; `None` if there are none.
    pub(super) fn node_labels_arg(&self) -> Option<String> {
        list("node-labels", &self.labels, '=')
    }
}

fn list(name: &str, map: &BTreeMap<String, String>, separator: char) -> Option<String> {
    let entries: Vec<_> = map.iter().map(|(key, value)| format!("{key}{separator}{value}")).collect();
    (!entries.is_empty()).then(|| format!("--{name}=\"{}\"", entries.join(",")))
}
