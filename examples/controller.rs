//! A controller in a page: pods arrive, nodes are launched, the cloud runs out of something, nodes come, pods bind.
//! The cloud, the cluster and the clock are in memory; everything else is what a real controller does.
//!
//!     cargo run --example controller

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::{error::Error, sync::Arc, time::Duration};

use karpenter::{
    CloudProvider, Planner, PlannerOptions, Timestamp,
    api::{NodePool, Pod, PodBuilder},
    driver::{Action, Driver, Outcome},
    fake::{FakeCloud, FakeCluster, check, cloud::offerings_of, generated_catalog},
    labels,
};

/// How much time passes from one round to the next.
const ROUND: Duration = Duration::from_secs(10);
/// An hour; the story ends long before.
const MAX_ROUNDS: u32 = 360;

struct Controller {
    cloud: Arc<FakeCloud>,
    driver: Driver,
    planner: Planner,
    cluster: FakeCluster,
}

/// Who arrives when, in seconds.
fn arrivals() -> Vec<(u64, &'static str, PodBuilder)> {
    let batch = Pod::named("batch").cpu("3").memory("4Gi").node_selector(labels::CAPACITY_TYPE, labels::SPOT);
    vec![
        (0, "web", Pod::named("web").cpu("500m").memory("1Gi").replicas(40)),
        (60, "batch, on spot machines only", batch.replicas(12)),
        (90, "cache", Pod::named("cache").cpu("250m").memory("7Gi").replicas(6)),
        (120, "trainer", Pod::named("trainer").cpu("4").memory("16Gi").request("nvidia.com/gpu", "1").replicas(2)),
    ]
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let catalog = generated_catalog();
    // A cloud that takes its time, and whose families c and s are sold out on the spot market.
    let cloud = Arc::new(FakeCloud::new(catalog.clone()).launch_delay(Duration::from_secs(35)));
    for offering in offerings_of(&catalog, labels::SPOT) {
        if offering.instance_type.starts_with(['c', 's']) {
            cloud.exhaust(offering);
        }
    }

    let mut cluster = FakeCluster::new([NodePool::named("general")]);
    cluster.add_daemons(Pod::named("logs").namespace("kube-system").cpu("100m").memory("200Mi"))?;
    let driver = Driver::new(cloud.clone());
    // Few types in a claim make the story short: a claim that names all of them is hardly ever refused.
    let mut options = PlannerOptions::default();
    options.max_instance_types = 3;
    let mut controller = Controller { cloud, driver, planner: Planner::new(options), cluster };

    let mut coming = arrivals().into_iter().peekable();
    for round in 0..MAX_ROUNDS {
        let now = Timestamp::default() + ROUND * round;
        controller.cloud.set_now(now);
        while let Some((_, name, pods)) = coming.next_if(|(at, ..)| Duration::from_secs(*at) <= ROUND * round) {
            controller.say(&format!("arrives: {name}"));
            controller.cluster.add_pods(pods)?;
        }
        controller.settle();
        controller.provision().await?;
        if coming.peek().is_none() && controller.cluster.unbound_count() == 0 {
            break;
        }
    }
    controller.account();
    Ok(())
}

impl Controller {
    fn say(&self, what: &str) {
        println!("{:>4} s  {what}", self.cloud.now().since(Timestamp::default()).as_secs());
    }

    /// What the cluster does by itself: nodes join, pods are bound.
    fn settle(&mut self) {
        for name in self.cluster.sync(&self.cloud).joined {
            let machine = &self.cluster.nodes()[&name].metadata.labels[labels::INSTANCE_TYPE];
            self.say(&format!("joined: {name}, a {machine}"));
        }
        let bound = self.cluster.schedule().len();
        if bound > 0 {
            self.say(&format!("bound: {bound} pods"));
        }
    }

    /// One round of the controller: look, plan, act, and take in what came of it.
    async fn provision(&mut self) -> Result<(), Box<dyn Error>> {
        let now = self.cloud.now();
        let snapshot = self.cluster.snapshot()?;
        if snapshot.pending().len() == 0 {
            return Ok(());
        }
        let catalogs = self.driver.catalogs(snapshot.pools(), now).await.catalogs;
        let plan = self.planner.plan(&snapshot, &catalogs);
        assert_eq!(check(&snapshot, &catalogs, &plan), [], "a plan is valid");
        for (pod, reason) in plan.unplaced() {
            self.say(&format!("no place for {pod}: {reason}"));
        }
        for launch in Driver::launches(&plan, &snapshot, |pool| self.cluster.identify(pool)) {
            self.cluster.launch(&launch);
            let outcome = self.driver.execute(Action::Launch(Box::new(launch.claim))).await;
            self.driver.observe(&outcome, now);
            self.cluster.observe(&outcome);
            match &outcome {
                Outcome::Launched(claim) => {
                    let labels = &claim.metadata.labels;
                    let (machine, zone) = (&labels[labels::INSTANCE_TYPE], &labels[labels::ZONE]);
                    let (how, pods) = (&labels[labels::CAPACITY_TYPE], launch.pods.len());
                    self.say(&format!("launched: {}, {how} {machine} in {zone} for {pods} pods", claim.name()));
                }
                Outcome::LaunchFailed { claim, .. } => {
                    let avoided = self.driver.avoided(now).len();
                    self.say(&format!("refused: {claim} for lack of capacity; {avoided} offerings are avoided now"));
                }
                other => self.say(&format!("unexpected: {other:?}")),
            }
        }
        Ok(())
    }

    fn account(&self) {
        let pods = self.cluster.pods().values();
        let daemons = pods.clone().filter(|pod| pod.is_daemon()).count();
        println!("\nthe cloud {} at the end:", self.cloud.name());
        println!("  pods             {} and {daemons} daemons", pods.len() - daemons);
        for (machine, count) in self.cloud.machine_counts() {
            println!("  {machine:<16} {count}");
        }
        println!("  bill             {}", self.cloud.hourly_cost());
        println!("  capacity errors  {}", self.cloud.capacity_errors());
    }
}
