//! The provider keeps its promises, and the engine buys from it until it has nothing more.

use std::{error::Error, sync::Arc, time::Duration};

use karpenter::{
    CloudProvider, Planner, Snapshot, Timestamp,
    api::{NodePool, Pod},
    driver::{Action, Driver, Outcome},
    fake::{Conformance, check},
    labels,
};
use outside::Broker;

#[tokio::test]
async fn the_broker_passes_the_conformance_kit() -> Result<(), Box<dyn Error>> {
    let broker = Arc::new(Broker::new(2)?);
    let pause = || tokio::time::sleep(Duration::from_millis(1));
    let report = Conformance::new(broker.clone(), NodePool::named("leased")).run(pause).await;
    assert!(report.is_passed(), "{report}");
    Ok(())
}

/// Rounds of plan, launch and observe, in each of which the launched nodes take their pods away.
#[tokio::test]
async fn nodes_are_launched_until_the_stock_is_used_up() -> Result<(), Box<dyn Error>> {
    let broker = Arc::new(Broker::new(1)?);
    let mut driver = Driver::new(broker.clone());
    let now = Timestamp::from_millis(0);
    let pods = Pod::named("web").cpu("1").memory("2Gi").node_selector(labels::ARCH, "arm64").replicas(60);
    let mut waiting = karpenter::api::Workload::from(pods).into_pods()?;
    let (mut uids, mut launched) = (0.., 0);
    for _ in 0..5 {
        let pool = NodePool::named("leased");
        let snapshot = Snapshot::builder().pool(pool).pods(waiting.clone()).build()?;
        let catalogs = driver.catalogs(snapshot.pools(), now).await.catalogs;
        let plan = Planner::default().plan(&snapshot, &catalogs);
        assert!(check(&snapshot, &catalogs, &plan).is_empty(), "a valid plan");
        let identify = |pool: &str| {
            let i = uids.next().expect("endless");
            (format!("{pool}-{i}"), format!("uid-{i}"))
        };
        for launch in Driver::launches(&plan, &snapshot, identify) {
            let outcome = driver.execute(Action::Launch(Box::new(launch.claim))).await;
            driver.observe(&outcome, now);
            if let Outcome::Launched(claim) = outcome {
                assert_eq!(claim.metadata.labels[labels::ARCH], "arm64");
                waiting.retain(|pod| !launch.pods.contains(&pod.key()));
                launched += 1;
            }
        }
    }
    assert_eq!(launched, 4, "one machine of each of two kinds in each of two halls");
    assert_eq!(broker.list().await?.len(), 4);
    assert!(!waiting.is_empty() && waiting.len() < 60, "40 cores are there, 60 are asked for");
    Ok(())
}
