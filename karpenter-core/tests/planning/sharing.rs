//! Snapshots that share with earlier ones what has not changed.

use std::sync::Arc;

use karpenter_core::{
    Snapshot, SnapshotBuilder, Timestamp,
    api::{Node, NodeClaim, ObjectKey, Pod},
    strategies::{self, RandomProblem},
};
use proptest::prelude::*;

/// The objects of a cluster that come and go, as an API server gives them: shared.
#[derive(Clone)]
struct Objects {
    nodes: Vec<Arc<Node>>,
    claims: Vec<Arc<NodeClaim>>,
    pods: Vec<Arc<Pod>>,
}

impl Objects {
    fn of(problem: &RandomProblem) -> Self {
        Self {
            nodes: problem.nodes.iter().cloned().map(Arc::new).collect(),
            claims: problem.claims.iter().cloned().map(Arc::new).collect(),
            pods: problem.pods.iter().cloned().map(Arc::new).collect(),
        }
    }

    /// The cluster some time later: of each kind of object one is gone, and one is another.
    fn later(mut self, gone: usize, changed: usize) -> Self {
        fn one<T>(list: &mut Vec<T>, gone: usize) -> Option<T> {
            (!list.is_empty()).then(|| list.remove(gone % list.len()))
        }
        one(&mut self.nodes, gone);
        one(&mut self.pods, gone);
        if let Some(node) = one(&mut self.nodes, changed) {
            let mut node = Node::clone(&node);
            node.metadata.labels.insert("changed".to_owned(), "yes".to_owned());
            self.nodes.push(Arc::new(node));
        }
        if let Some(claim) = one(&mut self.claims, changed) {
            let mut claim = NodeClaim::clone(&claim);
            claim.metadata.deletion_timestamp = Some(Timestamp::from_millis(1));
            self.claims.push(Arc::new(claim));
        }
        if let Some(pod) = one(&mut self.pods, changed) {
            let mut pod = Pod::clone(&pod);
            pod.spec.node_name.clear();
            self.pods.push(Arc::new(pod));
        }
        self
    }

    fn builder(&self, problem: &RandomProblem) -> SnapshotBuilder {
        let mut builder = Snapshot::builder()
            .pools(problem.pools.clone())
            .nodes(self.nodes.iter().cloned())
            .claims(self.claims.iter().cloned())
            .pods(self.pods.clone())
            .volume_claims(problem.volume_claims.clone())
            .volumes(problem.volumes.clone())
            .storage_classes(problem.storage_classes.clone())
            .csi_nodes(problem.csi_nodes.clone());
        for daemonset in &problem.daemonsets {
            builder = builder.daemonset(daemonset.clone());
        }
        builder
    }
}

fn built(builder: SnapshotBuilder) -> Snapshot {
    builder.build().expect("generated objects have names of their own")
}

proptest! {
    #[test]
    fn what_is_shared_is_what_would_be_made(problem in strategies::problem(12), gone in 0..12_usize, changed in 0..12_usize) {
        let before = Objects::of(&problem);
        let earlier = built(before.builder(&problem));
        let after = before.clone().later(gone, changed);
        let alone = built(after.builder(&problem));
        let sharing = built(after.builder(&problem).sharing_with(&earlier));
        prop_assert_eq!(sharing.places(), alone.places());
        let keys = |snapshot: &Snapshot| snapshot.pending().map(Pod::key).collect::<Vec<ObjectKey>>();
        prop_assert_eq!(keys(&sharing), keys(&alone));

        let again = built(before.builder(&problem).sharing_with(&earlier));
        prop_assert!(again.places().iter().zip(earlier.places()).all(|(a, b)| Arc::ptr_eq(a, b)));
    }

    #[test]
    fn daemons_that_are_expected_are_not_shared_by_clusters_with_others(problem in strategies::problem(6)) {
        let objects = Objects::of(&problem);
        let mut fewer = problem.clone();
        fewer.daemonsets.clear();
        let earlier = built(objects.builder(&fewer));
        let sharing = built(objects.builder(&problem).sharing_with(&earlier));
        let alone = built(objects.builder(&problem));
        prop_assert_eq!(sharing.places(), alone.places());
    }
}
