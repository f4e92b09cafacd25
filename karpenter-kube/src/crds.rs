//! The custom resource definitions of our kinds.

/// The definitions of NodePool, NodeClaim, NodeOverlay and the node classes of kwok and of EC2, in YAML as `kubectl apply`
/// takes them: by the names of their files. Objects that Karpenter's definitions accept are accepted and stored alike.
pub const CUSTOM_RESOURCE_DEFINITIONS: [(&str, &str); 5] = [
    ("karpenter.sh_nodepools.yaml", include_str!("../crds/karpenter.sh_nodepools.yaml")),
    ("karpenter.sh_nodeclaims.yaml", include_str!("../crds/karpenter.sh_nodeclaims.yaml")),
    ("karpenter.sh_nodeoverlays.yaml", include_str!("../crds/karpenter.sh_nodeoverlays.yaml")),
    ("karpenter.kwok.sh_kwoknodeclasses.yaml", include_str!("../crds/karpenter.kwok.sh_kwoknodeclasses.yaml")),
    ("karpenter.k8s.aws_ec2nodeclasses.yaml", include_str!("../crds/karpenter.k8s.aws_ec2nodeclasses.yaml")),
];
