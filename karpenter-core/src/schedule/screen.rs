//! Which pods planning can handle, so that nothing that changes a decision is ignored.

use crate::{Reason, api::Pod};

/// Whether planning can handle the pod; if not, why not.
pub(super) fn check(pod: &Pod) -> Result<(), Reason> {
    pod.validate().map_err(Reason::Invalid)?;
    if pod.spec.resource_claims.is_empty() {
        return Ok(());
    }
    Err(Reason::Unsupported { field: "spec.resourceClaims".to_owned() })
}
