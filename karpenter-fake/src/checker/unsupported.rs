use karpenter_core::api::PodSpec;

/// The path of a field that the pod uses and the engine does not handle, if there is one.
pub(super) fn unsupported_field(spec: &PodSpec) -> Option<&'static str> {
    [
        ("spec.volumes", has_claims(spec)),
        ("spec.resourceClaims", !spec.resource_claims.is_empty()),
    ]
    .into_iter()
    .find_map(|(field, is_used)| is_used.then_some(field))
}

/// Whether the pod mounts volumes that have claims.
pub(crate) fn has_claims(spec: &PodSpec) -> bool {
    spec.volumes.iter().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
}
