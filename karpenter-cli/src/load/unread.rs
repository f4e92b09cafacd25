//! Fields of pods, workloads and budgets of pods that bear on no plan.
//!
//! An API server refuses fields that there are not, so that they are in no dump. In what somebody writes by hand a misspelt one
//! would make other pods than those that are meant.

use serde::de::DeserializeOwned;

use super::{documents::Object, parse_noting};

/// The names of the fields of pods and workloads of Kubernetes 1.35 that are not read, wherever they are.
const NOT_READ: &[&str] = &[
    "activeDeadlineSeconds",
    "apiVersion",
    "args",
    "automountServiceAccountToken",
    "backoffLimit",
    "backoffLimitPerIndex",
    "claims",
    "command",
    "completionMode",
    "dataSource",
    "dataSourceRef",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "env",
    "envFrom",
    "ephemeralContainers",
    "hostAliases",
    "hostIPC",
    "hostPID",
    "hostUsers",
    "hostname",
    "hostnameOverride",
    "image",
    "imagePullPolicy",
    "imagePullSecrets",
    "kind",
    "lifecycle",
    "livenessProbe",
    "managedBy",
    "manualSelector",
    "maxFailedIndexes",
    "minReadySeconds",
    "name",
    "os",
    "paused",
    "persistentVolumeClaimRetentionPolicy",
    "podFailurePolicy",
    "podManagementPolicy",
    "podReplacementPolicy",
    "preemptionPolicy",
    "priorityClassName",
    "progressDeadlineSeconds",
    "readinessGates",
    "readinessProbe",
    "resizePolicy",
    "resourceClaimName",
    "resourceClaimTemplateName",
    "restartPolicy",
    "restartPolicyRules",
    "revisionHistoryLimit",
    "runtimeClassName",
    "securityContext",
    "selector",
    "serviceAccount",
    "serviceAccountName",
    "serviceName",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "startupProbe",
    "stdin",
    "stdinOnce",
    "strategy",
    "subdomain",
    "successPolicy",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tolerationSeconds",
    "ttlSecondsAfterFinished",
    "tty",
    "updateStrategy",
    "volumeAttributesClassName",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
    "workloadRef",
];

/// The same of meta data.
const NOT_READ_OF_METADATA: &[&str] = &["deletionGracePeriodSeconds", "generateName", "managedFields", "selfLink"];

/// The fields of an object that there are not, but for those of its status. One that cannot be read says so elsewhere.
pub(super) fn unknown<T: DeserializeOwned>(object: &Object<'_>) -> Vec<String> {
    let Ok((_, mut fields)) = parse_noting::<T>(object.raw) else { return Vec::new() };
    fields.retain(|field| {
        let (path, name) = field.rsplit_once('.').unwrap_or(("", field));
        let is_of_metadata = path == "metadata" || path.ends_with(".metadata");
        let not_read = if is_of_metadata { NOT_READ_OF_METADATA } else { NOT_READ };
        let is_of_volume = field.contains("volumes[") || field.contains("].status.");
        (is_of_metadata || field.starts_with("spec.")) && !is_of_volume && !not_read.contains(&name)
    });
    fields
}
