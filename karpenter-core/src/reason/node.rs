//! What is in the way on nodes that exist.

use std::fmt;

use super::{amount::at_least, pool::Asker, write_list};
use crate::{Quantity, Requirement, ResourceName, api::Taint, requirements::name_of_key};

/// How many nodes one obstacle shuts out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesShutOut {
    /// How many nodes, those on their way among them.
    pub node_count: usize,
    /// What is in the way.
    pub obstacle: NodeObstacle,
}

/// What keeps a pod from a node that exists, beside the pods that run there and those planned for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeObstacle {
    /// The pod does not tolerate a taint.
    Taint(Taint),
    /// A label is not as the pod wants it.
    Label {
        /// The key of the label; `field:metadata.name` is the name of the node.
        key: String,
        /// What the pod accepts.
        wanted: Requirement,
        /// On whose account.
        asker: Asker,
    },
    /// What the pod asks for contradicts itself.
    Combination,
    /// There is too little of a resource; the one of which least is left, measured by what the pod requests.
    Resource {
        /// The resource.
        resource: ResourceName,
        /// What is missing on the node that has most of it.
        missing: Quantity,
    },
    /// A port that the pod wants is taken.
    HostPort,
    /// Pods that are there keep it away, or it keeps away from them.
    Neighbours,
    /// It has as many pods of the same workload as a node may have.
    WorkloadShare,
    /// No more of its volumes can be attached.
    Volumes,
}

/// Writes why none of `node_count` nodes will do; nothing if there are none.
pub(super) fn write_all(f: &mut fmt::Formatter<'_>, node_count: usize, nodes: &[NodesShutOut]) -> fmt::Result {
    match (node_count, nodes) {
        (0, _) => Ok(()),
        (1, [only]) => write!(f, "the one node there is cannot take it: {}", only.obstacle),
        (n, _) => {
            write!(f, "none of the {n} nodes can take it: ")?;
            write_list(f, nodes)
        }
    }
}

impl fmt::Display for NodesShutOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.node_count, self.obstacle)
    }
}

impl fmt::Display for NodeObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taint(taint) => write!(f, "with taint {taint}"),
            Self::Label { key, wanted, asker } => write!(f, "without {} {wanted}{asker}", name_of_key(key)),
            Self::Combination => f.write_str("without labels that meet all requirements at once"),
            Self::Resource { resource, missing } => {
                write!(f, "short of {resource} (by at least {})", at_least(resource, *missing))
            }
            Self::HostPort => f.write_str("with its host port taken"),
            Self::Neighbours => f.write_str("barred by rules about neighbours"),
            Self::WorkloadShare => f.write_str("with their share of its workload"),
            Self::Volumes => f.write_str("without room for its volumes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reason, api::TaintEffect};

    #[test]
    fn nodes_are_counted_by_what_is_in_the_way() {
        let short = NodesShutOut {
            node_count: 6,
            obstacle: NodeObstacle::Resource { resource: ResourceName::Cpu, missing: Quantity::from_milli(500) },
        };
        let tainted = NodesShutOut {
            node_count: 3,
            obstacle: NodeObstacle::Taint(Taint::new("dedicated", "gpu", TaintEffect::NoSchedule)),
        };
        let text = |node_count, nodes| Reason::NoPlace { pools: Vec::new(), node_count, nodes }.to_string();
        assert_eq!(
            text(9, vec![short.clone(), tainted]),
            "none of the 9 nodes can take it: 6 short of cpu (by at least 500m), 3 with taint dedicated=gpu:NoSchedule"
        );
        assert_eq!(text(1, vec![short]), "the one node there is cannot take it: short of cpu (by at least 500m)");
        assert_eq!(text(0, Vec::new()), "");
    }
}
