//! Rounds of a controller over the fake cloud: what is planned is launched, joins and takes its pods, and then there is
//! nothing left to plan.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use karpenter::{
    Catalog, InstanceType, Plan, Planner, PlannerOptions, Price, Quantity, Timestamp,
    api::{NodePool, NodeSelectorRequirement, ObjectKey, Operator, Pod},
    driver::{Action, Driver, Outcome},
    fake::{FakeCloud, FakeCluster, check},
    provider::ProviderErrorKind,
    strategies,
};
use proptest::prelude::*;

const LAUNCH_DELAY: Duration = Duration::from_secs(30);

struct World {
    cloud: Arc<FakeCloud>,
    driver: Driver,
    planner: Planner,
    cluster: FakeCluster,
}

impl World {
    fn new(types: Vec<InstanceType>, pools: Vec<NodePool>, options: PlannerOptions) -> Self {
        let catalog = Arc::new(Catalog::new(types).expect("a valid catalog"));
        let cloud = Arc::new(FakeCloud::new(catalog).launch_delay(LAUNCH_DELAY));
        let (driver, planner) = (Driver::new(cloud.clone()), Planner::new(options));
        Self { cloud, driver, planner, cluster: FakeCluster::new(pools) }
    }

    /// Plans, and launches what was planned.
    async fn provision(&mut self) -> (Plan, Vec<Outcome>) {
        let now = self.cloud.now();
        let snapshot = self.cluster.snapshot().expect("a valid snapshot");
        let catalogs = self.driver.catalogs(snapshot.pools(), now).await.catalogs;
        let plan = self.planner.plan(&snapshot, &catalogs);
        assert_eq!(check(&snapshot, &catalogs, &plan), [], "a plan is valid");
        let mut outcomes = Vec::new();
        for launch in Driver::launches(&plan, &snapshot, |pool| self.cluster.identify(pool)) {
            self.cluster.launch(&launch);
            let outcome = self.driver.execute(Action::Launch(Box::new(launch.claim))).await;
            self.driver.observe(&outcome, now);
            self.cluster.observe(&outcome);
            outcomes.push(outcome);
        }
        (plan, outcomes)
    }

    fn wait(&mut self, duration: Duration) {
        self.cloud.set_now(self.cloud.now() + duration);
        self.cluster.sync(&self.cloud);
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn unplaced(plan: &Plan) -> BTreeSet<ObjectKey> {
    plan.unplaced().keys().cloned().collect()
}

proptest! {
    #[test]
    fn what_is_planned_comes_true_and_planning_again_changes_nothing(mut problem in strategies::plain_problem(12)) {
        // What is left of a limit depends on which of the types of a claim was bought, and a machine that was bought has
        // room for pods that would have left its claim too few types. It has none of the labels that its pool leaves open,
        // and no daemon that asks for one, with which a plan reckons as Karpenter does.
        for pool in &mut problem.pools {
            pool.spec.limits = karpenter::ResourceList::new();
            let is_open = |r: &NodeSelectorRequirement| r.key == strategies::TEAM && r.operator != Operator::In;
            pool.spec.template.spec.requirements.retain(|r| r.min_values.is_none() && !is_open(r));
        }
        problem.pods.retain(|pod| pod.spec.node_name.is_empty());
        run(async {
            let mut world = World::new(problem.types, problem.pools, PlannerOptions::default());
            world.cluster.add_pods(problem.pods).expect("valid pods");
            problem.daemonsets.into_iter().for_each(|d| world.cluster.add_daemonset(d));

            let (plan, outcomes) = world.provision().await;
            prop_assert!(outcomes.iter().all(|o| matches!(o, Outcome::Launched(_))), "{outcomes:?}");
            let dearer = world.cloud.hourly_cost().dollars_per_hour() - plan.hourly_cost().dollars_per_hour();
            prop_assert!(dearer.abs() < 1e-9, "the bill is {dearer} above the plan");
            let left = unplaced(&plan);

            // While the machines are on their way there is nothing to add.
            let (again, _) = world.provision().await;
            prop_assert_eq!((again.claims(), unplaced(&again)), (&[][..], left.clone()));

            world.wait(LAUNCH_DELAY);
            world.cluster.schedule();
            let is_unbound = |(key, pod): (&ObjectKey, &Pod)| pod.spec.node_name.is_empty().then(|| key.clone());
            let unbound: BTreeSet<_> = world.cluster.pods().iter().filter_map(is_unbound).collect();
            prop_assert_eq!(&unbound, &left, "the pods that were planned are bound");
            let (after, _) = world.provision().await;
            prop_assert_eq!((after.claims(), after.existing().len(), unplaced(&after)), (&[][..], 0, left));
            Ok(())
        })?;
    }
}

fn machine(name: &str, cents: i32) -> InstanceType {
    let capacity = [("cpu", Quantity::from_units(4)), ("memory", Quantity::from_bytes(16 << 30))];
    let price = Price::per_hour(f64::from(cents) / 100.0).expect("not below zero");
    InstanceType::named(name, capacity).offering("on-demand", "a", price).offering("on-demand", "b", price)
}

/// Two machines at 10 and 20 cents, claims that name one type, and a pod.
fn two_machines() -> World {
    let mut options = PlannerOptions::default();
    options.max_instance_types = 1;
    let types = vec![machine("cheap", 10), machine("dear", 20)];
    let mut world = World::new(types, vec![NodePool::named("general")], options);
    world.cluster.add_pods(Pod::named("web").cpu("1")).expect("a valid pod");
    world
}

fn bought(outcomes: &[Outcome]) -> Option<&str> {
    match outcomes {
        [Outcome::Launched(claim)] => claim.metadata.labels.get("node.kubernetes.io/instance-type").map(String::as_str),
        _ => None,
    }
}

#[test]
fn what_is_sold_out_is_avoided_for_a_while() {
    run(async {
        let mut world = two_machines();
        let sold_out = machine("cheap", 10).offerings.iter().map(|o| o.key("cheap")).collect::<Vec<_>>();
        for key in &sold_out {
            world.cloud.exhaust(key.clone());
        }

        let (_, outcomes) = world.provision().await;
        assert!(matches!(outcomes[..], [Outcome::LaunchFailed { .. }]), "{outcomes:?}");
        assert_eq!(world.driver.avoided(world.cloud.now()), sold_out);
        let (_, outcomes) = world.provision().await;
        assert_eq!(bought(&outcomes), Some("dear"));

        // Three minutes later the cheap machines are looked at again.
        world.cluster.add_pods(Pod::named("late").cpu("4")).expect("a valid pod");
        for key in &sold_out {
            world.cloud.restore(key);
        }
        world.wait(Duration::from_mins(3));
        assert_eq!(world.driver.avoided(world.cloud.now()), []);
        let (_, outcomes) = world.provision().await;
        assert_eq!(bought(&outcomes), Some("cheap"));
    });
}

#[test]
fn an_outage_poisons_nothing() {
    run(async {
        let mut world = two_machines();
        let snapshot = world.cluster.snapshot().expect("a valid snapshot");
        world.cloud.set_outage(Some(ProviderErrorKind::Unavailable));
        let report = world.driver.catalogs(snapshot.pools(), Timestamp::default()).await;
        assert_eq!(report.failures["general"].kind, ProviderErrorKind::Unavailable);
        // Nothing is known of the pool, which is not the same as nothing to buy.
        let plan = world.planner.plan(&snapshot, &report.catalogs);
        assert_eq!(
            plan.why("web").to_string(),
            "without a place: pool general: not ready: the provider gave no catalog for it: fake: catalog: injected outage \
             (Unavailable) (Unavailable)"
        );
        world.cloud.set_outage(None);
        let (_, outcomes) = world.provision().await;
        assert_eq!(bought(&outcomes), Some("cheap"));
    });
}

#[test]
fn a_machine_that_is_terminated_is_gone() {
    run(async {
        let mut world = two_machines();
        let (_, outcomes) = world.provision().await;
        let [Outcome::Launched(claim)] = &outcomes[..] else { panic!("{outcomes:?}") };
        let id = karpenter::provider::ProviderId::new(claim.status.provider_id.clone());
        for _ in 0..2 {
            let outcome = world.driver.execute(Action::Terminate(id.clone())).await;
            assert!(matches!(outcome, Outcome::Terminating { .. }), "{outcome:?}");
        }
        assert_eq!(world.cloud.hourly_cost(), Price::ZERO);
    });
}
