//! Which pods planning can handle, so that nothing that changes a decision is ignored.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::{
    FxBuild, Reason, Snapshot,
    api::{LabelSelector, ObjectKey, Pod, PodAffinity, PodSpec},
};

/// Checks pods before they are planned.
pub(super) struct Screen<'s> {
    repelling: Vec<Repelling<'s>>,
    /// The verdict on pods with these labels in this namespace.
    repelled: IndexMap<(&'s str, &'s BTreeMap<String, String>), Option<String>, FxBuild>,
}

/// A running pod whose required anti-affinity keeps others away.
struct Repelling<'s> {
    pod: ObjectKey,
    /// `None` means all namespaces.
    namespaces: Option<Vec<&'s str>>,
    selector: &'s LabelSelector,
}

impl<'s> Screen<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let mut repelling: Vec<Repelling<'s>> = Vec::new();
        let running = snapshot.pods().values().filter(|p| !p.spec.node_name.is_empty() && !p.is_finished());
        for pod in running {
            for term in &pod.spec.affinity.pod_anti_affinity.required {
                let Some(selector) = &term.label_selector else { continue };
                let namespaces = match (&term.namespace_selector, term.namespaces.as_slice()) {
                    (Some(_), _) => None,
                    (None, []) => Some(vec![pod.namespace()]),
                    (None, named) => Some(named.iter().map(String::as_str).collect()),
                };
                // The selectors of equal pods are equal; one of them is enough.
                if !repelling.iter().any(|r| r.namespaces == namespaces && r.selector == selector) {
                    repelling.push(Repelling { pod: pod.key(), namespaces, selector });
                }
            }
        }
        Self { repelling, repelled: IndexMap::default() }
    }

    /// Whether planning can handle the pod; if not, why not.
    pub(super) fn check(&mut self, pod: &'s Pod) -> Result<(), Reason> {
        pod.validate().map_err(Reason::Invalid)?;
        if let Some(field) = unsupported_field(&pod.spec) {
            return Err(Reason::Unsupported { field: field.to_owned() });
        }
        if self.repelling.is_empty() {
            return Ok(());
        }
        let repelling = &self.repelling;
        let verdict = self.repelled.entry((pod.namespace(), &pod.metadata.labels)).or_insert_with(|| {
            let keeps_away = |r: &&Repelling<'_>| {
                let is_in_reach = r.namespaces.as_ref().is_none_or(|names| names.contains(&pod.namespace()));
                is_in_reach && r.selector.matches(&pod.metadata.labels)
            };
            let repelling = repelling.iter().find(keeps_away)?;
            Some(format!("required podAntiAffinity of the running pod {}", repelling.pod))
        });
        verdict.clone().map_or(Ok(()), |field| Err(Reason::Unsupported { field }))
    }
}

/// The first field that the kube-scheduler reads and planning does not.
fn unsupported_field(spec: &PodSpec) -> Option<&'static str> {
    let is_set = |affinity: &PodAffinity| *affinity != PodAffinity::default();
    let has_claim = spec.volumes.iter().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
    let checks = [
        (!spec.topology_spread_constraints.is_empty(), "spec.topologySpreadConstraints"),
        (is_set(&spec.affinity.pod_affinity), "spec.affinity.podAffinity"),
        (is_set(&spec.affinity.pod_anti_affinity), "spec.affinity.podAntiAffinity"),
        (
            !spec.affinity.node_affinity.preferred.is_empty(),
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        ),
        (has_claim, "spec.volumes[] with a claim"),
        (!spec.resource_claims.is_empty(), "spec.resourceClaims"),
    ];
    checks.into_iter().find(|(is_used, _)| *is_used).map(|(_, field)| field)
}
