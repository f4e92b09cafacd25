use std::{sync::Arc, time::Duration};

use karpenter_core::{
    api::{NodeSelectorRequirement, Operator},
    labels,
};
use karpenter_fake::Conformance;

use crate::world::{World, pool};

#[tokio::test]
async fn the_provider_does_what_the_engine_may_expect() {
    for kinds in [&[labels::ON_DEMAND][..], &[labels::SPOT], &[labels::SPOT, labels::ON_DEMAND]] {
        let world = World::new();
        let kinds = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, kinds.iter().copied());
        let kit = Conformance::new(Arc::new(world.provider.clone()), pool().require(kinds));
        let clock = world.aws.clock().clone();
        let report = kit
            .run(|| {
                clock.advance(Duration::from_secs(5));
                std::future::ready(())
            })
            .await;
        assert!(report.is_passed(), "{report}");
        assert_eq!(world.machines(), 0);
    }
}
