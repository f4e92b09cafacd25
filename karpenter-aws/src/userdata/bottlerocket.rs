use std::collections::BTreeMap;

use toml::{Table, Value};

use super::{Bootstrap, UserData, UserDataError};
use crate::nodeclass::{AmiFamily, Ec2NodeClass, LATEST};

/// The settings of Kubernetes that Bottlerocket knows.
const KNOWN: [&str; 49] = [
    "allowed-unsafe-sysctls",
    "api-server",
    "cloud-provider",
    "cluster-certificate",
    "cluster-dns-ip",
    "cluster-domain",
    "cluster-name",
    "container-log-max-files",
    "container-log-max-size",
    "container-log-max-workers",
    "container-log-monitor-interval",
    "cpu-cfs-quota-enforced",
    "cpu-manager-policy",
    "cpu-manager-policy-options",
    "cpu-manager-reconcile-period",
    "credential-providers",
    "device-ownership-from-security-context",
    "event-burst",
    "event-qps",
    "eviction-hard",
    "eviction-max-pod-grace-period",
    "eviction-soft",
    "eviction-soft-grace-period",
    "hostname-override-source",
    "ids-per-pod",
    "image-gc-high-threshold-percent",
    "image-gc-low-threshold-percent",
    "kube-api-burst",
    "kube-api-qps",
    "kube-reserved",
    "log-level",
    "max-pods",
    "memory-manager-policy",
    "memory-manager-reserved-memory",
    "node-labels",
    "node-taints",
    "pod-pids-limit",
    "registry-burst",
    "registry-qps",
    "seccomp-default",
    "server-tls-bootstrap",
    "shutdown-grace-period",
    "shutdown-grace-period-for-critical-pods",
    "single-process-oom-kill",
    "static-pods",
    "system-reserved",
    "topology-manager-policy",
    "topology-manager-policy-options",
    "topology-manager-scope",
];
/// The first version whose command `bind` knows by itself which directories to move.
const FIRST_WITH_DEFAULT_BIND: (u32, u32) = (1, 46);

impl Ec2NodeClass {
    /// What nodes are not told of the user's settings, because Bottlerocket does not know it. Nothing for other families, and for
    /// what is no TOML, of which there is no user data at all.
    pub fn ignored_settings(&self) -> Vec<String> {
        if self.ami_family().ok() != Some(AmiFamily::Bottlerocket) {
            return Vec::new();
        }
        let all: Table = self.spec.user_data.as_deref().unwrap_or_default().parse().unwrap_or_default();
        let kubernetes = all.get("settings").and_then(|settings| settings.get("kubernetes")).and_then(Value::as_table);
        let unknown = kubernetes.into_iter().flat_map(Table::keys).filter(|key| !KNOWN.contains(&key.as_str()));
        let unknown = unknown.map(|key| format!("settings.kubernetes.{key}"));
        all.keys().filter(|key| *key != "settings").cloned().chain(unknown).collect()
    }
}

impl Bootstrap<'_> {
    /// Bottlerocket: the settings of the user, in which those that the node must have replace the user's.
    pub(super) fn bottlerocket(&self) -> Result<UserData, UserDataError> {
        let text = self.custom.unwrap_or_default();
        let mut all: Table = text.parse().map_err(|error: toml::de::Error| toml_error(error.message()))?;
        let settings = table(&mut all, "settings")?;
        let kubernetes = table(settings, "kubernetes")?;
        kubernetes.retain(|key, _| KNOWN.contains(&key));
        self.set_kubernetes(kubernetes)?;
        if self.is_raid0 {
            let commands = table(settings, "bootstrap-commands")?;
            commands.insert("000-mount-instance-storage".to_owned(), self.mount_command());
        }
        let settings = Table::from_iter([("settings".to_owned(), Value::Table(std::mem::take(settings)))]);
        let text =
            toml::to_string(&settings).map_err(|error| UserDataError::Unwritable { message: error.to_string() })?;
        Ok(UserData { text })
    }

    fn set_kubernetes(&self, kubernetes: &mut Table) -> Result<(), UserDataError> {
        let settings = &self.settings;
        let dns = settings.cluster_dns.first();
        let text = |value: &String| Value::String(value.clone());
        let number = |value: Option<i64>| value.map(Value::Integer);
        let percent = |value: Option<i32>| value.map(|percent| Value::String(percent.to_string()));
        for (key, value) in [
            ("api-server", Some(text(&self.cluster.endpoint))),
            ("cluster-name", Some(text(&self.cluster.name))),
            ("cluster-certificate", self.cluster.ca_bundle.as_ref().map(text)),
            ("cluster-dns-ip", dns.map(text)),
            ("max-pods", number(settings.max_pods_count().map(i64::from))),
            ("system-reserved", map(&settings.system_reserved)),
            ("kube-reserved", map(&settings.kube_reserved)),
            ("eviction-hard", map(&settings.eviction_hard)),
            ("eviction-soft", map(&settings.eviction_soft)),
            ("eviction-soft-grace-period", map(&settings.eviction_soft_grace_period)),
            ("eviction-max-pod-grace-period", number(settings.eviction_max_pod_grace_period.map(i64::from))),
            ("image-gc-high-threshold-percent", percent(settings.image_gc_high_threshold_percent)),
            ("image-gc-low-threshold-percent", percent(settings.image_gc_low_threshold_percent)),
            ("cpu-cfs-quota-enforced", settings.cpu_cfs_quota.map(Value::Boolean)),
        ] {
            kubernetes.extend(value.map(|value| (key.to_owned(), value)));
        }
        if self.cluster.ca_bundle.is_none() {
            kubernetes.remove("cluster-certificate");
        }
        let labels = table(kubernetes, "node-labels")?;
        labels.extend(self.labels.iter().map(|(key, value)| (key.clone(), text(value))));
        kubernetes.insert("node-taints".to_owned(), self.taint_table());
        Ok(())
    }

    fn taint_table(&self) -> Value {
        let mut out: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for taint in &self.taints {
            let text = format!("{}:{}", taint.value, taint.effect.name());
            out.entry(&taint.key).or_default().push(Value::String(text));
        }
        Value::Table(out.into_iter().map(|(key, taints)| (key.to_owned(), Value::Array(taints))).collect())
    }

    fn mount_command(&self) -> Value {
        let words = |words: &[&str]| Value::Array(words.iter().map(|word| Value::String((*word).to_owned())).collect());
        let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
        if !self.bottlerocket_version.as_deref().is_some_and(binds_by_default) {
            bind.extend(["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]);
        }
        let commands = Value::Array(vec![words(&["apiclient", "ephemeral-storage", "init"]), words(&bind)]);
        Value::Table(Table::from_iter([
            ("commands".to_owned(), commands),
            ("mode".to_owned(), Value::String("always".to_owned())),
            ("essential".to_owned(), Value::Boolean(true)),
        ]))
    }
}

fn toml_error(message: &str) -> UserDataError {
    UserDataError::Toml { message: message.to_owned() }
}

/// The table of a key, an empty one if there is none.
fn table<'t>(parent: &'t mut Table, key: &str) -> Result<&'t mut Table, UserDataError> {
    let entry = parent.entry(key).or_insert_with(|| Value::Table(Table::new()));
    entry.as_table_mut().ok_or_else(|| toml_error(&format!("{key} is no table")))
}

fn map(values: &BTreeMap<String, String>) -> Option<Value> {
    let table = values.iter().map(|(key, value)| (key.clone(), Value::String(value.clone())));
    (!values.is_empty()).then(|| Value::Table(table.collect()))
}

/// The version of Bottlerocket that a class asks for, as far as it can be told: by its alias, by the name of a term, by
/// the image that a term names by its id, or by any image that was found.
pub(super) fn version_of(class: &Ec2NodeClass) -> Option<String> {
    let terms = &class.spec.ami_selector_terms;
    let by_alias = class.alias().ok().flatten().filter(|alias| alias.family == AmiFamily::Bottlerocket);
    let by_name = || terms.iter().find_map(|term| version_in(&term.name));
    let is_bottlerocket = |name: &str| name.contains("bottlerocket");
    let amis = || class.status.amis.iter().filter(|ami| is_bottlerocket(&ami.name));
    let by_id = || {
        let ids = terms.iter().map(|term| term.id.as_str()).filter(|id| !id.is_empty());
        ids.into_iter().find_map(|id| amis().find(|ami| ami.id == id).and_then(|ami| version_in(&ami.name)))
    };
    let by_any = || amis().find_map(|ami| version_in(&ami.name));
    by_alias.map(|alias| alias.version).or_else(by_name).or_else(by_id).or_else(by_any)
}

/// The version in a name such as `bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a`.
fn version_in(name: &str) -> Option<String> {
    name.split('-').find(|part| part.starts_with('v') && part.contains('.')).map(str::to_owned)
}

fn binds_by_default(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    let number = (numbers.next().and_then(Result::ok), numbers.next().and_then(Result::ok));
    version == LATEST || matches!(number, (Some(major), Some(minor)) if (major, minor) >= FIRST_WITH_DEFAULT_BIND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodeclass::{Ami, AmiSelectorTerm};

    #[test]
    fn versions_from_1_46_on_know_which_directories_to_bind() {
        for (version, expected) in [
            ("latest", true),
            ("v1.46.0", true),
            ("1.46.1", true),
            ("2.0.0", true),
            ("1.45.9", false),
            ("nonsense", false),
        ] {
            assert_eq!(binds_by_default(version), expected, "{version}");
        }
    }

    #[test]
    fn the_version_is_looked_for_in_alias_names_and_images() {
        let named = |name: &str| AmiSelectorTerm { name: name.to_owned(), ..AmiSelectorTerm::default() };
        let ami = |id: &str, name: &str| Ami { id: id.to_owned(), name: name.to_owned(), ..Ami::default() };
        let image = "bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a";
        let other = "bottlerocket-aws-k8s-1.33-x86_64-v1.40.0-431fe75a";
        for (terms, amis, expected) in [
            (vec![AmiSelectorTerm::of_alias("bottlerocket@1.20.3")], vec![], Some("1.20.3")),
            (vec![named("bottlerocket*"), named(image)], vec![], Some("v1.46.0")),
            (vec![AmiSelectorTerm::of_id("ami-2")], vec![ami("ami-1", other), ami("ami-2", image)], Some("v1.46.0")),
            (vec![named("bottlerocket*")], vec![ami("ami-0", "mine-v9.9"), ami("ami-1", other)], Some("v1.40.0")),
            (vec![named("mine")], vec![ami("ami-0", "mine-v9.9")], None),
        ] {
            let mut class = Ec2NodeClass::named("default");
            class.spec.ami_selector_terms = terms;
            class.status.amis = amis;
            assert_eq!(version_of(&class).as_deref(), expected);
        }
    }
}
