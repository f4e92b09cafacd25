use karpenter_core::api::PodSpec;

/// The path of a field that the pod uses and the engine does not handle, if there is one.
pub(crate) fn unsupported_field(spec: &PodSpec) -> Option<&'static str> {
    let affinity = &spec.affinity;
    let (near, away) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
    let has_claim = spec.volumes.iter().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
    [
        ("spec.topologySpreadConstraints", !spec.topology_spread_constraints.is_empty()),
        ("spec.affinity.podAffinity", !near.required.is_empty() || !near.preferred.is_empty()),
        ("spec.affinity.podAntiAffinity", !away.required.is_empty() || !away.preferred.is_empty()),
        (
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
            !affinity.node_affinity.preferred.is_empty(),
        ),
        ("spec.volumes", has_claim),
        ("spec.resourceClaims", !spec.resource_claims.is_empty()),
    ]
    .into_iter()
    .find_map(|(field, is_used)| is_used.then_some(field))
}
