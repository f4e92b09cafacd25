//! A controller in a page, through a day of a web shop: customers come, a spot machine is taken back, the cloud runs out of
//! machines, the nodes get a new image, and at night nobody is there. The cloud, the cluster and the clock are in memory, so that
//! a day takes seconds; the engine and what it does are those of a real controller.
//!
//!     cargo run --release --example controller
//!
//! The same engine on a real cluster, with nodes that kwok plays, until it is interrupted:
//!
//!     cargo run --release --example controller --features kwok -- --kubeconfig ~/.kube/config

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

use karpenter::{
    Timestamp,
    api::{NillableDuration, Node, NodePool, NodeSelectorRequirement, ObjectKey, Operator, Pod},
    engine::{Action, ActionResult, Engine, EngineOptions, Event},
    fake::{
        FakeCloud,
        cloud::{Bill, offerings_of},
        generated_catalog,
        sim::{Account, Books, Exchange, Workload, World, WorldOptions},
    },
    labels,
    provider::ProviderId,
};

/// Something that happens at some time of the day.
enum Happens {
    /// As many pods of the shop and of its checkout are wanted.
    Customers(u32, u32),
    /// The cloud takes a spot machine back in two minutes.
    Interruption,
    /// For so long it sells nothing.
    SoldOut(Duration),
    /// New nodes have another image, and so must all.
    NewImage,
}

/// Hours and minutes, and what happens then.
const DAY: [(u64, u64, &str, Happens); 9] = [
    (6, 30, "the first customers", Happens::Customers(12, 2)),
    (8, 0, "the morning", Happens::Customers(60, 6)),
    (10, 0, "a spot machine is taken back", Happens::Interruption),
    (12, 5, "the cloud has nothing for a minute", Happens::SoldOut(Duration::from_mins(1))),
    (12, 5, "lunch", Happens::Customers(120, 12)),
    (14, 0, "the afternoon", Happens::Customers(70, 6)),
    (15, 0, "a new image for all nodes", Happens::NewImage),
    (21, 0, "the evening", Happens::Customers(24, 3)),
    (23, 30, "nobody is left", Happens::Customers(0, 0)),
];

struct Controller {
    engine: Engine,
    world: World,
    books: Books,
    pool: NodePool,
    /// Whether the cloud refused what it was asked for last.
    is_refused: bool,
    /// Whether it says what it does.
    talks: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {}
        ["--kubeconfig", file] => return work_on(file),
        _ => return Err("usage: controller [--kubeconfig FILE]".into()),
    }
    let shop = live_through_a_day(true)?;
    let kept = live_through_a_day(false)?;
    account(&shop, kept.world.bill());
    Ok(())
}

/// A controller of a real cluster, in which the resources of `karpenter-kube/crds` are known.
#[cfg(feature = "kwok")]
#[tokio::main(flavor = "current_thread")]
async fn work_on(kubeconfig: &str) -> Result<(), Box<dyn Error>> {
    use karpenter::kube::{Client, Controller, ControllerOptions, KwokCloud, config};

    let client = Client::try_from(config(Some(kubeconfig.as_ref()), None).await?)?;
    let cloud = Arc::new(KwokCloud::new(client.clone(), generated_catalog()));
    let controller = Controller::new(client, cloud, ControllerOptions::default());
    println!("Looking after the cluster of {kubeconfig}; Ctrl-C ends it.");
    Ok(controller.run(async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await?)
}

#[cfg(not(feature = "kwok"))]
fn work_on(_kubeconfig: &str) -> Result<(), Box<dyn Error>> {
    Err("real clusters need another feature: cargo run --release --example controller --features kwok".into())
}

/// A day with consolidation, or without it and without a word.
fn live_through_a_day(consolidates: bool) -> Result<Controller, Box<dyn Error>> {
    let midnight: Timestamp = "2026-03-02T00:00:00Z".parse()?;
    let cloud = FakeCloud::new(generated_catalog())
        .launch_delay(Duration::from_secs(40))
        .termination_delay(Duration::from_secs(30));
    cloud.set_now(midnight);
    let kinds = NodeSelectorRequirement::new(labels::CAPACITY_TYPE, Operator::In, [labels::SPOT, labels::ON_DEMAND]);
    let mut pool = NodePool::named("shop").require(kinds);
    pool.spec.template.metadata.labels.insert("image".to_owned(), "v1".to_owned());
    let after = if consolidates { NillableDuration::from_secs(60) } else { NillableDuration::never() };
    pool.spec.disruption.consolidate_after = after;
    pool.spec.disruption.budgets[0].nodes = "30%".into();

    let mut world = World::with(7, Arc::new(cloud), WorldOptions::default());
    world.api_mut().create(pool.clone())?;
    let web = Pod::named("web").label("app", "web").cpu("500m").memory("1Gi");
    let checkout = Pod::named("checkout").label("app", "checkout").cpu("1").memory("2Gi");
    world.apply(Workload::deployment("web", 0, web)?);
    // Those who pay are not to wait for another machine.
    world.apply(Workload::deployment("checkout", 0, checkout.node_selector(labels::CAPACITY_TYPE, labels::ON_DEMAND))?);

    let (engine, books) = (Engine::new(EngineOptions::default()), Books::new(Duration::from_mins(5)));
    let mut controller = Controller { engine, world, books, pool, is_refused: false, talks: consolidates };
    for (hours, minutes, what, happens) in &DAY {
        controller.run_until(midnight + Duration::from_mins(hours * 60 + minutes));
        controller.stage(what, happens)?;
    }
    controller.run_until(midnight + Duration::from_hours(24));
    Ok(controller)
}

impl Controller {
    /// What a controller does: it tells the engine what became known, and carries out what the engine asks for.
    fn run_until(&mut self, until: Timestamp) {
        while self.world.now() < until {
            let next =
                self.engine.next_wake().map_or(until, |wake| wake.max(self.world.now() + Duration::from_millis(1)));
            let now = self.world.advance_to_news(next.min(until));
            for event in self.world.take_events() {
                self.tell(&event);
                self.engine.observe(event, now);
            }
            let requests = self.engine.tick(now);
            self.books.observe(Exchange::Asked(&requests));
            for request in requests {
                if let Action::Note(note) = &request.action
                    && ["DisruptionLaunching", "Interrupted"].contains(&&*note.reason)
                {
                    self.say(&note.message);
                }
                self.world.execute(request);
            }
            self.books.settle(&self.world);
        }
        self.say(&Account::of(&self.world).to_string()[22..]);
    }

    fn tell(&mut self, event: &Event) {
        self.books.observe(Exchange::Told(event));
        match event {
            Event::Done { result: ActionResult::Launched(Ok(launched)), .. } => {
                self.is_refused = false;
                let label = |key: &str| &launched.instance.labels[key];
                let (kind, machine, zone) =
                    (label(labels::CAPACITY_TYPE), label(labels::INSTANCE_TYPE), label(labels::ZONE));
                self.say(&format!("Launched {kind} {machine} in {zone}"));
            }
            Event::Done { result: ActionResult::Launched(Err(error)), .. } if !self.is_refused => {
                self.is_refused = true;
                self.say(&format!("Refused: {:.60}...", error.to_string()));
            }
            _ => {}
        }
    }

    /// Lets something happen.
    fn stage(&mut self, what: &str, happens: &Happens) -> Result<(), Box<dyn Error>> {
        self.say(&format!("== {what}"));
        let now = self.world.now();
        match happens {
            Happens::Customers(web, checkout) => {
                self.world.scale(&ObjectKey::new("default", "web"), *web);
                self.world.scale(&ObjectKey::new("default", "checkout"), *checkout);
            }
            Happens::Interruption => {
                let is_spot = |node: &&Arc<Node>| node.metadata.labels[labels::CAPACITY_TYPE] == labels::SPOT;
                let node = self.world.api().list::<Node>().find(is_spot).ok_or("no spot node")?;
                let machine = ProviderId::new(node.spec.provider_id.clone());
                self.world.cloud().interrupt(&machine, Duration::from_mins(2));
            }
            Happens::SoldOut(duration) => {
                let catalog = self.world.cloud().catalog_now();
                for capacity_type in [labels::SPOT, labels::ON_DEMAND] {
                    for offering in offerings_of(&catalog, capacity_type) {
                        self.world.cloud().exhaust_between(offering, now, now + *duration);
                    }
                }
            }
            Happens::NewImage => {
                self.pool.spec.template.metadata.labels.insert("image".to_owned(), "v2".to_owned());
                let spec = self.pool.spec.clone();
                self.world.api_mut().modify(&ObjectKey::new("", "shop"), |pool: &mut NodePool| pool.spec = spec);
            }
        }
        Ok(())
    }

    fn say(&self, what: &str) {
        if self.talks {
            println!("{}  {what}", &self.world.now().to_string()[11..16]);
        }
    }
}

/// What the day came to, machine by machine, beside the least it could have come to.
fn account(shop: &Controller, kept: Bill) {
    let mut machines: BTreeMap<String, Bill> = BTreeMap::new();
    for (offering, bill) in shop.world.cloud().invoice() {
        *machines.entry(format!("{} {}", offering.capacity_type, offering.instance_type)).or_default() += bill;
    }
    println!("\nthe account of the day:");
    for (machine, bill) in &machines {
        println!("  {machine:<28} {:>6.1} h  {:>7}", bill.machine_seconds() as f64 / 3600.0, bill.to_string());
    }
    let bill: Bill = machines.into_values().sum();
    assert_eq!(bill, shop.world.bill(), "the invoice is what the cloud's own meter says");
    let counts = shop.books.counts();
    let disrupted: u64 = counts.disrupted.values().sum();
    let most = shop.books.samples().iter().max_by_key(|sample| sample.nodes);
    let (nodes, pods) = most.map_or((0, 0), |sample| (sample.nodes, sample.pods_running));
    println!(
        "  {} machines bought, {} refused; {nodes} nodes at most, with {pods} pods",
        counts.launched, counts.refused
    );
    println!("  {} pods evicted, {disrupted} nodes replaced or given back", counts.evicted);
    println!("  the bill               {bill}");
    println!("  the lower bound        ${:.2}", shop.books.lower_bound_micro_dollars() as f64 / 1e6);
    println!("  never consolidating    {kept}");
}
