//! When a provider is asked what can be bought.

use std::sync::Arc;

use karpenter_core::{
    Catalog, InstanceType, Offering, Price, Quantity, Requirement,
    api::{NodeClaim, NodePool},
    engine::{Action, ActionId, ActionResult, Engine, EngineOptions, Event, Metric, Object},
    labels,
};

use crate::world::{at, small_and_large};

/// An engine that was told of one pool.
struct Shop {
    engine: Engine,
    pool: NodePool,
}

impl Shop {
    fn new() -> Self {
        let mut shop = Self { engine: Engine::new(EngineOptions::default()), pool: NodePool::named("general") };
        shop.change(0, |_| {});
        shop.engine.observe(Event::Synced, at(0));
        shop
    }

    fn change(&mut self, second: i64, change: impl FnOnce(&mut NodePool)) {
        change(&mut self.pool);
        self.pool.metadata.resource_version = second.to_string();
        self.engine.observe(Event::Applied(Object::NodePool(Arc::new(self.pool.clone()))), at(second));
    }

    /// The question for a catalog that is asked then, and the node class that it names.
    fn asks(&mut self, second: i64) -> Option<(ActionId, String)> {
        let class = |pool: &NodePool| pool.spec.template.spec.node_class_ref.name.clone();
        let requests = self.engine.tick(at(second)).into_iter();
        requests.fold(None, |found, request| match &request.action {
            Action::Catalog(pool) => Some((request.id, class(pool))),
            _ => found,
        })
    }

    fn answer(&mut self, id: ActionId, second: i64) {
        self.answer_with(id, second, small_and_large());
    }

    fn answer_with(&mut self, id: ActionId, second: i64, types: Vec<InstanceType>) {
        let catalog = Catalog::new(types).expect("a catalog");
        let result = ActionResult::Catalog(Ok(Arc::new(catalog)));
        self.engine.observe(Event::Done { id, result }, at(second));
    }
}

#[test]
fn a_pool_that_changes_while_its_catalog_is_asked_for_is_asked_for_anew() {
    let mut shop = Shop::new();
    let (first, _) = shop.asks(0).expect("asked");
    shop.change(1, |pool| pool.spec.template.spec.node_class_ref.name = "other".to_owned());
    assert_eq!(shop.asks(1), None, "one question at a time");
    shop.answer(first, 2);
    assert_eq!(shop.engine.next_wake(), Some(at(2)));
    let (second, class) = shop.asks(2).expect("asked");
    assert_eq!(class, "other");
    shop.answer(second, 3);
    assert_eq!((3..=62).find(|second| shop.asks(*second).is_some()), None);
    assert!(shop.asks(63).is_some());
}

#[test]
fn what_is_written_into_the_status_of_a_pool_asks_for_no_catalog() {
    let mut shop = Shop::new();
    let (first, _) = shop.asks(0).expect("asked");
    shop.answer(first, 0);
    for second in 1..60 {
        shop.change(second, |pool| pool.status.nodes = u32::try_from(second).ok());
        assert_eq!(shop.asks(second), None, "{second}");
    }
    let changes: [fn(&mut NodePool); 2] = [
        |pool| pool.spec.weight = Some(7),
        |pool| drop(pool.metadata.annotations.insert("of".to_owned(), "its own".to_owned())),
    ];
    for (second, change) in (60..).zip(changes) {
        shop.change(second, change);
        let (id, _) = shop.asks(second).expect("asked");
        shop.answer(id, second);
    }
}

#[test]
fn a_pool_costs_what_the_reservations_of_its_machines_cost() {
    const RESERVATION: &str = "example.com/reservation-id";
    let reserved = |id: &str, dollars: f64| {
        let mut offering = Offering::new("reserved", "a", Price::per_hour(dollars).expect("a price"));
        offering.requirements.add(RESERVATION, Requirement::one_of([id]));
        offering
    };
    let mut own = InstanceType::named("small", [("cpu", Quantity::from_units(2))]);
    own.offerings.extend([reserved("r1", 0.25), reserved("r2", 0.5)]);
    let mut shop = Shop::new();
    let (id, _) = shop.asks(0).expect("asked");
    shop.answer_with(id, 0, vec![own]);
    shop.asks(1);
    for (name, pool, reservation) in [("a", "general", "r1"), ("b", "general", "r2"), ("c", "another", "r2")] {
        let mut claim = NodeClaim::named(name);
        for (key, value) in [
            (labels::NODE_POOL, pool),
            (labels::INSTANCE_TYPE, "small"),
            (labels::ZONE, "a"),
            (labels::CAPACITY_TYPE, "reserved"),
            (RESERVATION, reservation),
        ] {
            claim.metadata.labels.insert(key.to_owned(), value.to_owned());
        }
        shop.engine.observe(Event::Applied(Object::NodeClaim(Arc::new(claim))), at(1));
    }
    let levels = shop.engine.levels().into_iter().filter(|(metric, ..)| *metric == Metric::PoolCost);
    let costs: Vec<_> = levels.map(|(_, of, dollars)| (of[0].1.clone(), dollars)).collect();
    assert_eq!(costs, [("general".to_owned(), 0.75)]);
}
