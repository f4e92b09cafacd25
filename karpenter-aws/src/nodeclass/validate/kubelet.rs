//! The rules for the settings of a kubelet.

use std::collections::BTreeMap;

use karpenter_core::Quantity;
use serde_json::{Map, Value};

use crate::nodeclass::{AmiFamily, KubeletSettings};

/// The settings that every family knows.
const MANAGED: [&str; 12] = [
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];
/// What can be evicted for.
const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];
/// What can be reserved.
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// The settings of Kubernetes 1.36 (KubeletConfiguration v1beta1), by what they are.
const SWITCHES: &str = "enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers enableContentionProfiling \
    cgroupsPerQOS singleProcessOOMKill runOnce cpuCFSQuota serializeImagePulls mergeDefaultEvictionSettings \
    enableControllerAttachDetach protectKernelDefaults makeIPTablesUtilChains failSwapOn kernelMemcgNotification \
    enableSystemLogHandler enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler seccompDefault registerNode \
    localStorageCapacityIsolation failCgroupV1";
const NUMBERS: &str = "port readOnlyPort registryPullQPS registryBurst eventRecordQPS eventBurst healthzPort oomScoreAdj \
    nodeLeaseDurationSeconds imageGCHighThresholdPercent imageGCLowThresholdPercent nodeStatusMaxImages kubeAPIQPS \
    kubeAPIBurst maxParallelImagePulls evictionMaxPodGracePeriod podsPerCore iptablesMasqueradeBit iptablesDropBit \
    containerLogMaxFiles containerLogMaxWorkers";
/// Numbers of 64 bits; all others have 32.
const LONG_NUMBERS: &str = "maxOpenFiles podPidsLimit";
const TEXTS: &str = "staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile tlsMinVersion \
    imagePullCredentialsVerificationPolicy healthzBindAddress clusterDomain kubeletCgroups systemCgroups cgroupRoot \
    cgroupDriver cpuManagerPolicy memoryManagerPolicy topologyManagerPolicy topologyManagerScope hairpinMode podCIDR \
    resolvConf contentType containerLogMaxSize configMapAndSecretChangeDetectionStrategy reservedSystemCPUs \
    showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup volumePluginDir providerID memoryReservationPolicy \
    containerRuntimeEndpoint imageServiceEndpoint apiVersion kind";
const DURATIONS: &str = "syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout \
    nodeStatusUpdateFrequency nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod \
    cpuManagerReconcilePeriod runtimeRequestTimeout cpuCFSQuotaPeriod evictionPressureTransitionPeriod \
    containerLogMonitorInterval shutdownGracePeriod shutdownGracePeriodCriticalPods";
const TEXT_LISTS: &str = "tlsCipherSuites preloadedImagesVerificationAllowlist clusterDNS enforceNodeAllocatable \
    allowedUnsafeSysctls";
const TEXT_MAPS: &str = "cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard evictionSoft \
    evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved";
/// Settings whose parts are not looked at.
const OBJECTS: &str =
    "staticPodURLHeader authentication authorization memorySwap logging crashLoopBackOff tracing userNamespaces";
const LISTS: &str = "tlsCurvePreferences shutdownGracePeriodByPodPriority reservedMemory registerWithTaints";

/// The broken rules.
pub(super) fn broken_rules(kubelet: &Map<String, Value>) -> Vec<String> {
    let mut broken = Broken { kubelet, rules: Vec::new() };
    broken.types();
    broken.owned();
    broken.evictions();
    broken.reservations();
    broken.numbers();
    broken.rules
}

struct Broken<'k> {
    kubelet: &'k Map<String, Value>,
    rules: Vec<String>,
}

impl Broken<'_> {
    fn check(&mut self, holds: bool, rule: impl FnOnce() -> String) {
        if !holds {
            self.rules.push(format!("spec.kubelet{}", rule()));
        }
    }

    fn types(&mut self) {
        for (key, value) in self.kubelet.iter().filter(|(_, value)| !value.is_null()) {
            match has_its_type(key, value) {
                Some(fits) => self.check(fits, || format!(".{key}: {value} is not of its type")),
                None => self.check(false, || format!(".{key}: a kubelet does not know it")),
            }
        }
    }

    fn owned(&mut self) {
        let is_set = self.kubelet.contains_key("registerWithTaints");
        self.check(!is_set, || ".registerWithTaints: it is made from the taints of the claim".to_owned());
    }

    fn evictions(&mut self) {
        for field in ["evictionHard", "evictionSoft", "evictionMinimumReclaim", "evictionSoftGracePeriod"] {
            for (signal, text) in self.map(field) {
                self.check(SIGNALS.contains(&&*signal), || format!(".{field}: there is no signal {signal}"));
                if field == "evictionSoftGracePeriod" {
                    self.check(is_duration(&text), || format!(".{field}[{signal}]: {text:?} is no duration"));
                } else {
                    self.check(is_threshold(&text), || {
                        format!(".{field}[{signal}]: {text:?} is no percentage or quantity")
                    });
                }
            }
        }
        let (soft, grace) = (self.map("evictionSoft"), self.map("evictionSoftGracePeriod"));
        for signal in soft.keys().filter(|signal| !grace.contains_key(*signal)) {
            self.check(false, || format!(".evictionSoft[{signal}]: evictionSoftGracePeriod lacks it"));
        }
        for signal in grace.keys().filter(|signal| !soft.contains_key(*signal)) {
            self.check(false, || format!(".evictionSoftGracePeriod[{signal}]: evictionSoft lacks it"));
        }
    }

    fn reservations(&mut self) {
        for field in ["kubeReserved", "systemReserved"] {
            for (resource, text) in self.map(field) {
                self.check(RESERVABLE.contains(&&*resource), || format!(".{field}: {resource} cannot be reserved"));
                self.check(!text.starts_with('-'), || format!(".{field}[{resource}]: {text:?} is below zero"));
            }
        }
    }

    fn numbers(&mut self) {
        let of = |field: &str| self.kubelet.get(field).and_then(Value::as_i64);
        let (high, low) = (of("imageGCHighThresholdPercent"), of("imageGCLowThresholdPercent"));
        let percents = [("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)];
        let counts = ["podsPerCore", "evictionMaxPodGracePeriod", "maxPods"].map(|field| (field, of(field)));
        for (field, percent) in percents {
            self.check(percent.is_none_or(|p| (0..=100).contains(&p)), || format!(".{field}: not from 0 to 100"));
        }
        for (field, count) in counts {
            self.check(count.is_none_or(|count| count >= 0), || format!(".{field}: below zero"));
        }
        let is_ordered = high.zip(low).is_none_or(|(high, low)| high > low);
        self.check(is_ordered, || ": imageGCHighThresholdPercent is not above imageGCLowThresholdPercent".to_owned());
    }

    /// A map of texts; nothing if it is none.
    fn map(&self, field: &str) -> BTreeMap<String, String> {
        let entries = self.kubelet.get(field).and_then(Value::as_object);
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        entries.into_iter().flatten().filter_map(text).collect()
    }
}

/// Whether the value of a setting is of its type; `None` if there is no such setting.
fn has_its_type(key: &str, value: &Value) -> Option<bool> {
    let is = |names: &str| names.split_whitespace().any(|name| name == key);
    let is_short = |value: &Value| value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
    let fits = if is(SWITCHES) {
        value.is_boolean()
    } else if is(NUMBERS) {
        is_short(value)
    } else if is(LONG_NUMBERS) {
        value.is_i64()
    } else if is(TEXTS) {
        value.is_string()
    } else if is(DURATIONS) {
        value.as_str().is_some_and(is_duration)
    } else if is(TEXT_LISTS) {
        value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
    } else if is(TEXT_MAPS) {
        value.as_object().is_some_and(|items| items.values().all(Value::is_string))
    } else if is(OBJECTS) {
        value.is_object()
    } else if is(LISTS) {
        value.is_array()
    } else {
        match key {
            "maxPods" => value.is_string() || is_short(value),
            "featureGates" => value.as_object().is_some_and(|gates| gates.values().all(Value::is_boolean)),
            "memoryThrottlingFactor" => value.is_number(),
            _ => return None,
        }
    };
    Some(fits)
}

fn is_threshold(text: &str) -> bool {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().is_ok_and(|p| (0.0..=100.0).contains(&p)),
        None => text.parse::<Quantity>().is_ok_and(|quantity| !quantity.is_negative()),
    }
}

/// A duration as Go writes it: numbers with units, the whole not below zero.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let is_some = !rest.is_empty();
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - unit.len()];
        let found =
            ["ns", "us", "µs", "ms", "s", "m", "h"].into_iter().filter(|u| unit.starts_with(u)).max_by_key(|u| u.len());
        match found {
            Some(found) if number.parse::<f64>().is_ok() => rest = &unit[found.len()..],
            _ => return false,
        }
    }
    is_some
}

/// Settings that nodes of a family cannot be told.
pub(super) fn unknown_to(family: AmiFamily, kubelet: &Map<String, Value>, settings: &KubeletSettings) -> Vec<String> {
    if family.takes_any_kubelet_setting() || family == AmiFamily::Custom {
        return Vec::new();
    }
    let is_unknown = |key: &str| !MANAGED.contains(&key) || (key == "podsPerCore" && !family.honours_pods_per_core());
    let unknown: Vec<_> = kubelet.keys().map(String::as_str).filter(|key| is_unknown(key)).collect();
    let mut out = Vec::new();
    if !unknown.is_empty() {
        out.push(format!(
            "nodes of the family {family} cannot be told spec.kubelet.{}",
            unknown.join(", spec.kubelet.")
        ));
    }
    if settings.cluster_dns.len() > 1 {
        out.push(format!("nodes of the family {family} can be told one address in spec.kubelet.clusterDNS"));
    }
    out
}
