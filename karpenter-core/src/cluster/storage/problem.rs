use crate::api::ObjectKey;

/// Why a pod's volumes keep it from every node, for now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeProblem {
    /// A claim that the pod mounts does not exist.
    #[error("volume claim {claim} does not exist")]
    ClaimMissing {
        /// The claim.
        claim: ObjectKey,
    },
    /// A claim is on its way out.
    #[error("volume claim {claim} is being deleted")]
    ClaimDeleting {
        /// The claim.
        claim: ObjectKey,
    },
    /// A claim is for one pod at a time, and another pod has it or comes first.
    #[error("volume claim {claim} is for one pod at a time, and pod {pod} has it")]
    TakenByPod {
        /// The claim.
        claim: ObjectKey,
        /// The other pod.
        pod: ObjectKey,
    },
    /// The volume that a claim was bound to is gone.
    #[error("volume claim {claim} has lost its volume")]
    ClaimLost {
        /// The claim.
        claim: ObjectKey,
    },
    /// A claim names a volume that does not exist.
    #[error("volume {volume} of volume claim {claim} does not exist")]
    VolumeMissing {
        /// The claim.
        claim: ObjectKey,
        /// The volume.
        volume: String,
    },
    /// A claim names a volume that is on its way out.
    #[error("volume {volume} of volume claim {claim} is being deleted")]
    VolumeDeleting {
        /// The claim.
        claim: ObjectKey,
        /// The volume.
        volume: String,
    },
    /// A claim names a volume, but the annotation `pv.kubernetes.io/bind-completed` does not say that it has it.
    #[error("volume claim {claim} is not fully bound to volume {volume}")]
    NotFullyBound {
        /// The claim.
        claim: ObjectKey,
        /// The volume.
        volume: String,
    },
    /// A claim has no volume, and no class of which one could be made.
    #[error("volume claim {claim} has no volume and no storage class")]
    NoClass {
        /// The claim.
        claim: ObjectKey,
    },
    /// The class of a claim without a volume does not exist.
    #[error("storage class {class} of volume claim {claim} does not exist")]
    ClassMissing {
        /// The claim.
        claim: ObjectKey,
        /// The class.
        class: String,
    },
    /// The class of a claim makes volumes at once, but the claim has none yet.
    #[error("volume claim {claim} has no volume, and storage class {class} does not wait for a pod to make one")]
    BindsImmediately {
        /// The claim.
        claim: ObjectKey,
        /// The class.
        class: String,
    },
    /// No node can mount all volumes.
    #[error("no node can mount the volumes of {}", listed(.claims))]
    Impossible {
        /// The claims whose volumes not every node can mount, in the order in which the pod names them.
        claims: Vec<ObjectKey>,
    },
    /// The volumes can be mounted by too many different kinds of nodes.
    #[error("more than {max} kinds of nodes can mount the volumes of {}", listed(.claims))]
    TooManyAlternatives {
        /// The claims whose volumes not every node can mount, in the order in which the pod names them.
        claims: Vec<ObjectKey>,
        /// The most that are handled.
        max: usize,
    },
    /// The terms of the pod's node affinity and what its volumes ask for come to too many alternatives together.
    #[error("the node affinity of the pod and the volumes of {} come to more than {max} kinds of nodes", listed(.claims))]
    TooManyTerms {
        /// The claims whose volumes not every node can mount, in the order in which the pod names them.
        claims: Vec<ObjectKey>,
        /// The most that are handled.
        max: usize,
    },
}

fn listed(claims: &[ObjectKey]) -> String {
    let texts: Vec<_> = claims.iter().map(ToString::to_string).collect();
    format!("volume claim{} {}", if texts.len() == 1 { "" } else { "s" }, texts.join(", "))
}
