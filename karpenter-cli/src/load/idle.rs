//! Kinds that bear on no plan for certain.

use super::{documents::Object, objects::group_of};

/// The kinds by their groups. What changes pods on their way into a cluster, makes pods or says how many there are is not among
/// them: LimitRange and ResourceQuota, webhooks that mutate, CronJob, HorizontalPodAutoscaler, PriorityClass.
const IDLE: &[(&str, &[&str])] = &[
    ("", &["ConfigMap", "Endpoints", "Event", "Secret", "Service", "ServiceAccount"]),
    ("admissionregistration.k8s.io", &["ValidatingWebhookConfiguration"]),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("coordination.k8s.io", &["Lease"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    ("events.k8s.io", &["Event"]),
    ("monitoring.coreos.com", &["PodMonitor", "PrometheusRule", "ServiceMonitor"]),
    ("networking.k8s.io", &["Ingress", "IngressClass", "NetworkPolicy"]),
    ("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
];

/// Whether an object is of such a kind. A group that is not written is taken for the right one.
pub(super) fn is_idle(object: &Object<'_>) -> bool {
    let is_of = |group: &str| object.api_version.is_empty() || group_of(&object.api_version) == group;
    IDLE.iter().any(|(group, kinds)| kinds.contains(&object.kind.as_str()) && is_of(group))
}
