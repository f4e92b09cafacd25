//! A plain cluster of objects, in which commands come true.

use std::collections::BTreeMap;

use karpenter::{
    Catalogs, InstanceType, Offering, Plan, PlannedClaim, Price, Requirement, Requirements, Snapshot,
    api::{Condition, ConditionStatus, Node, NodeClaim, NodePool, ObjectKey, Pod, PodDisruptionBudget, Workload},
    disrupt::{Command, Disruptor, DisruptorOptions},
    labels,
    schedule::StopFlag,
    strategies::RandomProblem,
};

pub(crate) const RESERVATION: &str = "example.com/reservation-id";
pub(crate) const ZONE: &str = "zone-a";
pub(crate) const NOW: &str = "2026-01-01T00:00:00Z";

/// The objects of a cluster, and what its machines cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) objects: RandomProblem,
    pub(crate) budgets: Vec<PodDisruptionBudget>,
    pub(crate) options: DisruptorOptions,
    /// What the machines cost, in dollars an hour, by the names of their nodes.
    prices: BTreeMap<String, f64>,
    made: usize,
}

/// On one thread a flag that counts stops a search at the same point each time.
pub(crate) fn on_threads<T: Send>(count: usize, run: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(count).build().expect("threads can be started").install(run)
}

impl World {
    /// One pool, from which all nodes may go at once, and these types.
    pub(crate) fn of(types: impl IntoIterator<Item = InstanceType>) -> Self {
        let mut world = Self::default();
        world.objects.pools = vec![open_pool("general")];
        world.objects.types = types.into_iter().collect();
        world
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let objects = &self.objects;
        let mut builder = Snapshot::builder()
            .pools(objects.pools.clone())
            .nodes(objects.nodes.clone())
            .claims(objects.claims.clone())
            .pods(objects.pods.clone())
            .volume_claims(objects.volume_claims.clone())
            .volumes(objects.volumes.clone())
            .storage_classes(objects.storage_classes.clone())
            .csi_nodes(objects.csi_nodes.clone());
        for daemonset in &objects.daemonsets {
            builder = builder.daemonset(daemonset.clone());
        }
        for budget in &self.budgets {
            builder = builder.budget(budget.clone());
        }
        builder.build().expect("objects have names of their own")
    }

    pub(crate) fn catalogs(&self) -> Catalogs {
        self.objects.catalogs().expect("a valid catalog")
    }

    pub(crate) fn commands(&self) -> Vec<Command> {
        self.commands_until(&StopFlag::default())
    }

    /// What is found before a flag is set.
    pub(crate) fn commands_until(&self, stop: &StopFlag) -> Vec<Command> {
        let now = NOW.parse().expect("a time");
        Disruptor::new(self.options.clone()).stopped_by(stop).commands(&self.snapshot(), &self.catalogs(), now)
    }

    /// What all machines cost, in dollars an hour.
    pub(crate) fn bill(&self) -> f64 {
        self.prices.values().sum()
    }

    pub(crate) fn pool(&mut self) -> &mut NodePool {
        &mut self.objects.pools[0]
    }

    pub(crate) fn pods_on(&self, node: &str) -> Vec<&Pod> {
        self.objects.pods.iter().filter(|pod| pod.spec.node_name == node).collect()
    }

    /// A node of the first pool, of this type, with a pod for each of the requests for cpu.
    pub(crate) fn node(&mut self, name: &str, instance_type: &str, cpu: &[&str]) {
        let mut pods = Vec::new();
        for (index, cpu) in cpu.iter().enumerate() {
            let pod = Pod::named(format!("{name}-{index}")).label("app", "web").cpu(cpu);
            pods.extend(Workload::from(pod).into_pods().expect("valid quantities"));
        }
        let keys = pods.iter().map(Pod::key).collect();
        self.objects.pods.extend(pods);
        let mut requirements = Requirements::new();
        requirements.add(labels::ZONE, Requirement::one_of([ZONE]));
        let pool = self.objects.pools[0].name().to_owned();
        let claim = PlannedClaim::new(pool, keys, [instance_type], Price::ZERO, requirements);
        let offering = self.type_named(instance_type).offerings[0].clone();
        self.join(name, &claim, instance_type, &offering);
    }

    /// Carries out a plan.
    pub(crate) fn provision(&mut self, plan: &Plan) {
        for claim in plan.claims() {
            self.launch(claim);
        }
        self.bind_all(plan.existing());
    }

    /// Makes the replacements, takes the nodes away, and lets their pods go where the command says.
    pub(crate) fn carry_out(&mut self, command: &Command) {
        let without = self.without(&command.candidates);
        let made = self.made;
        *self = Self { made, ..without };
        for claim in &command.replacements {
            self.launch(claim);
        }
        self.bind_all(&command.existing);
    }

    /// Makes the replacements, each by one of the offerings that it may be bought by, and takes the nodes away. Their pods wait.
    pub(crate) fn replace(&mut self, command: &Command, pick: usize) {
        let made = self.made;
        *self = Self { made, ..self.without(&command.candidates) };
        for claim in &command.replacements {
            let offers = self.offers(claim);
            let (source, offering) = offers[pick % offers.len()].clone();
            let mut claim = claim.clone();
            claim.pods.clear();
            self.buy(&claim, &source, &offering);
        }
    }

    /// The world without these nodes, whose pods wait.
    pub(crate) fn without(&self, nodes: &[String]) -> Self {
        let mut world = self.clone();
        let is_gone = |name: &String| nodes.contains(name);
        for node in nodes {
            world.give_back(node);
        }
        world.objects.nodes.retain(|node| !is_gone(&node.metadata.name));
        world.objects.claims.retain(|claim| !is_gone(&claim.status.node_name));
        world.prices.retain(|name, _| !is_gone(name));
        for pod in world.objects.pods.iter_mut().filter(|pod| is_gone(&pod.spec.node_name)) {
            unbind(pod);
        }
        world
    }

    /// Buys as cheaply as the claim allows.
    fn launch(&mut self, claim: &PlannedClaim) {
        let cheapest = self.offers(claim).into_iter().min_by_key(|(_, offering)| offering.price);
        let (source, offering) = cheapest.expect("what a claim asks for is for sale");
        assert_eq!(offering.price, claim.cheapest_price, "{claim}");
        self.buy(claim, &source, &offering);
    }

    /// By what a claim may be bought: the names of types with their offerings.
    fn offers(&self, claim: &PlannedClaim) -> Vec<(String, Offering)> {
        let is_asked = |offering: &Offering| {
            offering.available
                && offering.reservation_capacity != Some(0)
                && offering.requirements.iter().all(|(key, own)| {
                    let asked = claim.requirements.get(key);
                    asked.is_none_or(|asked| own.values().any(|value| asked.admits(Some(value))))
                })
        };
        let types = claim.instance_types.iter().map(|name| self.type_named(name));
        let offers =
            types.flat_map(|t| t.offerings.iter().filter(|o| is_asked(o)).map(|o| (t.name.clone(), o.clone())));
        offers.collect()
    }

    fn buy(&mut self, claim: &PlannedClaim, source: &str, offering: &Offering) {
        self.made += 1;
        self.take(offering);
        self.join(&format!("made-{:04}", self.made), claim, source, offering);
    }

    fn join(&mut self, name: &str, planned: &PlannedClaim, source: &str, offering: &Offering) {
        let source = self.type_named(source).clone();
        let pool = self.objects.pools.iter().find(|pool| pool.name() == planned.node_pool).expect("a known pool");
        let mut claim = planned.to_node_claim(pool, name, format!("uid-{name}"));
        for (key, own) in source.requirements.iter().chain(offering.requirements.iter()) {
            let asked = planned.requirements.get(key);
            let value = own.values().find(|value| asked.is_none_or(|asked| asked.admits(Some(value))));
            let value = value.expect("an offering that the claim asks for").to_owned();
            claim.metadata.labels.entry(key.to_owned()).or_insert(value);
        }
        claim.status.provider_id = format!("machine-{name}");
        name.clone_into(&mut claim.status.node_name);
        claim.status.capacity = source.capacity.clone();
        claim.status.allocatable = source.allocatable();
        self.objects.nodes.push(node_of(&claim));
        self.objects.claims.push(claim);
        self.prices.insert(name.to_owned(), offering.price.dollars_per_hour());
        self.bind(&planned.pods, name);
    }

    fn bind_all(&mut self, found: &BTreeMap<String, Vec<ObjectKey>>) {
        for (node, pods) in found {
            self.bind(pods, node);
        }
    }

    fn bind(&mut self, keys: &[ObjectKey], node: &str) {
        for pod in self.objects.pods.iter_mut().filter(|pod| keys.contains(&pod.key())) {
            node.clone_into(&mut pod.spec.node_name);
            pod.status.conditions.clear();
            "Running".clone_into(&mut pod.status.phase);
        }
    }

    fn type_named(&self, name: &str) -> &InstanceType {
        self.objects.types.iter().find(|t| t.name == name).expect("a known type")
    }

    /// A machine less is left of the reservation of an offering.
    fn take(&mut self, offering: &Offering) {
        let id = offering.label(RESERVATION).to_owned();
        self.reserve(&id, |left| left - 1);
    }

    fn give_back(&mut self, node: &str) {
        let node = self.objects.nodes.iter().find(|n| n.metadata.name == node).expect("a known node");
        let id = node.metadata.labels.get(RESERVATION).cloned().unwrap_or_default();
        self.reserve(&id, |left| left + 1);
    }

    fn reserve(&mut self, id: &str, change: impl Fn(u32) -> u32) {
        let offerings = self.objects.types.iter_mut().flat_map(|t| &mut t.offerings);
        for offering in offerings.filter(|o| !id.is_empty() && o.label(RESERVATION) == id) {
            offering.reservation_capacity = offering.reservation_capacity.map(&change);
        }
    }
}

/// Makes a pod anew, that waits for a node.
pub(crate) fn unbind(pod: &mut Pod) {
    pod.spec.node_name.clear();
    pod.status = Workload::from(Pod::named("waiting")).into_pods().expect("a valid pod")[0].status.clone();
}

fn node_of(claim: &NodeClaim) -> Node {
    let mut node = Node::default();
    claim.name().clone_into(&mut node.metadata.name);
    node.metadata.labels.clone_from(&claim.metadata.labels);
    for (key, value) in [(labels::HOSTNAME, claim.name()), (labels::REGISTERED, "true"), (labels::INITIALIZED, "true")]
    {
        node.metadata.labels.insert(key.to_owned(), value.to_owned());
    }
    node.spec.provider_id.clone_from(&claim.status.provider_id);
    node.spec.taints.clone_from(&claim.spec.taints);
    node.status.capacity = claim.status.capacity.clone();
    node.status.allocatable = claim.status.allocatable.clone();
    node
}

/// A pool from which all nodes may go at once.
pub(crate) fn open_pool(name: &str) -> NodePool {
    let mut pool = NodePool::named(name);
    pool.spec.disruption.budgets.clear();
    pool
}

pub(crate) fn condition(kind: &str) -> Condition {
    let mut condition = Condition::default();
    kind.clone_into(&mut condition.r#type);
    condition.status = ConditionStatus::True;
    condition
}
