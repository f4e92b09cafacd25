use std::sync::Arc;

use karpenter_core::{
    api::{Node, Pod},
    engine::Object,
};

use super::{Breach, Change, Invariants, Room};
use crate::sim::ApiServer;

/// The objects of a cluster at one moment with what was counted of them step by step, to be
/// [looked at anew](Inspection::breaches). The objects are shared with the world, which may go on meanwhile.
#[derive(Clone, Debug)]
pub struct Inspection {
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
    counted: Invariants,
}

impl Inspection {
    pub(super) fn new(counted: &Invariants, api: &ApiServer) -> Self {
        let counted =
            Invariants { nodes: counted.nodes.clone(), healthy: counted.healthy.clone(), ..Invariants::default() };
        Self { nodes: api.list().cloned().collect(), pods: api.list().cloned().collect(), counted }
    }

    /// Looks at all nodes and bound pods: whether those of each node fit it, and whether what was counted step by step is
    /// right.
    pub fn breaches(self) -> Vec<Breach> {
        let Self { nodes, pods, counted } = self;
        let mut anew = Invariants::default();
        for node in nodes {
            anew.observe(&Change { before: None, after: Some(Object::Node(node)) });
        }
        for pod in pods {
            anew.count_healthy(None, Some(&pod));
            // Labels and taints may have changed since it was bound; nobody takes it away for that.
            if !pod.is_finished() && !pod.spec.node_name.is_empty() {
                anew.count(&pod);
            }
        }
        let taken = |room: Option<&Room>| {
            let all = room.into_iter().flat_map(|room| &room.taken).filter(|(_, amount)| **amount != 0);
            all.map(|(name, amount)| (name.clone(), *amount)).collect::<Vec<_>>()
        };
        let is_same = |(name, room): &(&String, &Room)| taken(counted.nodes.get(*name)) == taken(Some(room));
        let wrong = anew.nodes.iter().filter(|node| !is_same(node)).map(|(name, _)| name.clone());
        let wrong = wrong.chain((anew.healthy != counted.healthy).then(|| "the cluster".to_owned()));
        let wrong: Vec<Breach> = wrong.map(|node| Breach::Miscounted { node }).collect();
        anew.breaches.into_iter().chain(wrong).collect()
    }
}
