//! A scenario is carried out.

use std::{sync::Arc, time::Duration};

use karpenter_core::{
    Catalog, Catalogs, Price, Snapshot, Timestamp,
    api::{
        LabelSelector, NillableDuration, Node, NodeClaim, NodeOverlay, NodePool, ObjectKey, Pod, PodDisruptionBudget,
    },
    engine::Object,
    labels,
    provider::ProviderId,
};

use super::{
    Command, Doomed, Fault, Manifests, NodeChoice, OfferingPattern, PriceChange, Protection, Scenario, ScenarioError,
    ScenarioErrorKind, Statement, Subject, expect, transcript::Transcript,
};
use crate::{
    FakeCloud, generated_catalog,
    sim::{ApiObject, Books, Breach, Exchange, Live, Workload, World, WorldOptions, api_server::cluster_key},
};

/// How long machines take to come and to go.
const LAUNCH_DELAY: Duration = Duration::from_secs(40);
const TERMINATION_DELAY: Duration = Duration::from_secs(30);
/// There are at most about this many samples.
const MAX_SAMPLES: u32 = 1_000;
const MIN_SAMPLE_PERIOD: Duration = Duration::from_mins(1);

/// What a scenario needs from outside: files, and words for people.
pub trait Stage {
    /// The objects of manifests.
    ///
    /// # Errors
    /// One line that says what is wrong and where.
    fn manifests(&mut self, manifests: &Manifests, scenario: &str) -> Result<Vec<Manifest>, String>;

    /// The catalog of a file, as it is named in the scenario.
    ///
    /// # Errors
    /// One line that says what is wrong and where.
    fn catalog(&mut self, file: &str) -> Result<Arc<Catalog>, String>;

    /// Why something is as it is, on as many lines as it takes.
    fn explain(&mut self, question: &Question<'_>) -> String;
}

/// An object that a scenario puts into its cluster.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Manifest {
    /// An object that is kept as it is.
    Object(Object),
    /// Something that makes pods.
    Workload(Box<Workload>),
}

/// A question about the cluster as it is.
#[derive(Debug)]
#[non_exhaustive]
pub struct Question<'q> {
    /// What is asked about; it is in the cluster.
    pub subject: Asked<'q>,
    /// The cluster.
    pub snapshot: &'q Snapshot,
    /// What its pools can buy.
    pub catalogs: &'q Catalogs,
    /// How the engine works.
    pub options: &'q karpenter_core::engine::EngineOptions,
    /// The time.
    pub now: Timestamp,
}

/// What is asked about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Asked<'q> {
    /// Where this pod is or will be.
    Pod(&'q Pod),
    /// What keeps the node of this name.
    Node(&'q str),
}

/// A scenario on its way.
#[derive(Debug)]
pub struct Play {
    scenario: Scenario,
    /// The manifests of each `apply`, in order.
    manifests: std::collections::VecDeque<Vec<Manifest>>,
    next: usize,
    live: Live,
    books: Books,
    transcript: Transcript,
    breaches: Vec<Breach>,
    failures: Vec<Failure>,
    known: expect::Known,
    keeps_nodes: bool,
}

/// A line of a scenario that did not come out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: line {line}: `{text}`: {message}")]
#[non_exhaustive]
pub struct Failure {
    /// The file.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// What is written there.
    pub text: String,
    /// What is the case instead.
    pub message: String,
}

impl Play {
    /// Reads all that the scenario names.
    ///
    /// # Errors
    /// A file or a block that cannot be read.
    pub fn new(scenario: Scenario, stage: &mut dyn Stage) -> Result<Self, ScenarioError> {
        let unreadable = |line: usize, word: &str, message: String| ScenarioError {
            file: scenario.file.to_string(),
            line,
            word: word.to_owned(),
            kind: ScenarioErrorKind::Unreadable(message),
        };
        let catalog = match &scenario.setup.catalog {
            Some((file, line)) => stage.catalog(file).map_err(|message| unreadable(*line, file, message))?,
            None => generated_catalog(),
        };
        let mut manifests = std::collections::VecDeque::new();
        for Statement { line, command, .. } in &scenario.statements {
            let Command::Apply(source) = command else { continue };
            let word = if let Manifests::File(file) = source { file } else { "apply" };
            let read = stage.manifests(source, &scenario.file).map_err(|message| unreadable(*line, word, message))?;
            manifests.push_back(read);
        }
        let cloud = FakeCloud::new(catalog).launch_delay(LAUNCH_DELAY).termination_delay(TERMINATION_DELAY);
        cloud.set_now(scenario.setup.start);
        let world = World::with(scenario.setup.seed, Arc::new(cloud), WorldOptions::default());
        let live = Live::with(world, scenario.setup.options.clone());
        let period = scenario.duration() / MAX_SAMPLES;
        let minutes = u32::try_from(period.as_secs() / 60).unwrap_or(u32::MAX);
        Ok(Self {
            manifests,
            next: 0,
            live,
            books: Books::new(MIN_SAMPLE_PERIOD.saturating_mul(minutes + 1)),
            transcript: Transcript::new(scenario.setup.start),
            breaches: Vec::new(),
            failures: Vec::new(),
            known: expect::Known::default(),
            keeps_nodes: false,
            scenario,
        })
    }

    /// The same scenario with nodes that are never taken away because they are empty or others are cheaper.
    pub fn without_consolidation(mut self) -> Self {
        self.keeps_nodes = true;
        self
    }

    /// Carries out all that is left of the scenario, and shows what passes between engine and world.
    pub fn run(&mut self, stage: &mut dyn Stage, watch: &mut dyn FnMut(Timestamp, Exchange<'_>)) {
        while let Some(statement) = self.scenario.statements.get(self.next).cloned() {
            self.next += 1;
            self.transcript.command(&statement.text);
            if let Err(message) = self.carry_out(&statement.command, stage, watch) {
                self.fail(&statement, message);
            }
            for breach in self.live.take_breaches() {
                self.transcript.line(self.live.now(), &format!("RULE BROKEN: {breach}"));
                self.breaches.push(breach);
            }
        }
        self.transcript.account(&self.live, &self.books, self.breaches.len());
    }

    /// What happened, as text.
    pub fn transcript(&self) -> &str {
        self.transcript.text()
    }

    /// What did not come out.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// The rules that were broken.
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }

    /// The cluster.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// What it came to.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    fn fail(&mut self, statement: &Statement, message: String) {
        self.transcript.line(self.live.now(), &format!("FAILED: {message}"));
        let (file, text) = (self.scenario.file.clone(), statement.text.lines().next().unwrap_or("").to_owned());
        self.failures.push(Failure { file, line: statement.line, text, message });
    }

    fn carry_out(
        &mut self,
        command: &Command,
        stage: &mut dyn Stage,
        watch: &mut dyn FnMut(Timestamp, Exchange<'_>),
    ) -> Result<(), String> {
        let now = self.live.now();
        match command {
            Command::Remark | Command::Setting => {}
            Command::Apply(_) => {
                for manifest in self.manifests.pop_front().unwrap_or_default() {
                    self.apply(manifest)?;
                }
            }
            Command::Run(workload) => self.apply_workload(Workload::clone(workload)),
            Command::RunDaemons(daemons) => self.put(karpenter_core::api::DaemonSet::clone(daemons))?,
            Command::Protect { workload, rule } => {
                let found = self.live.world().workload(workload).ok_or_else(|| absent("workload", workload))?;
                let budget = budget(workload, found, *rule).ok_or("its pods have no labels to tell them by")?;
                self.put(budget)?;
            }
            Command::Scale { workload, replicas } => {
                if !self.live.world_mut().scale(workload, *replicas) {
                    return Err(absent("workload", workload));
                }
            }
            Command::Delete(doomed) => self.delete(doomed)?,
            Command::Tick(duration) => self.pass(now + *duration, watch),
            Command::Until(moment) => {
                let until = moment.after(now);
                if until < now {
                    return Err(format!("it is {now} already"));
                }
                self.pass(until, watch);
            }
            Command::Fault(fault) => self.stage_fault(fault)?,
            Command::Crash => {
                self.live.crash();
                watch(now, Exchange::Restarted);
                self.transcript.observe(now, Exchange::Restarted);
            }
            Command::Explain(subject) => {
                let text = self.explain(subject, stage)?;
                self.transcript.block(&text);
            }
            Command::Expect(expectation) => {
                expect::check(expectation, &self.known, &self.live, &self.books, &self.breaches)?;
            }
            Command::Show => self.transcript.show(self.live.world()),
        }
        Ok(())
    }

    fn pass(&mut self, until: Timestamp, watch: &mut dyn FnMut(Timestamp, Exchange<'_>)) {
        let Self { live, books, transcript, .. } = self;
        transcript.know_prices(live.world().cloud().catalog_now());
        books.run_until(live, until, &mut |at, exchange| {
            transcript.observe(at, exchange);
            watch(at, exchange);
        });
        transcript.settle();
    }

    fn apply(&mut self, manifest: Manifest) -> Result<(), String> {
        match manifest {
            Manifest::Workload(workload) => {
                self.apply_workload(*workload);
                Ok(())
            }
            Manifest::Object(object) => match object {
                Object::NodePool(pool) => {
                    self.known.pools.insert(pool.name().to_owned());
                    self.put(self.merged(NodePool::clone(&pool)))
                }
                Object::NodeOverlay(one) => self.put(self.with_status(Arc::unwrap_or_clone(one))),
                Object::DaemonSet(one) => self.put(Arc::unwrap_or_clone(one)),
                Object::PodDisruptionBudget(one) => self.put(Arc::unwrap_or_clone(one)),
                Object::Namespace(one) => self.put(Arc::unwrap_or_clone(one)),
                Object::PersistentVolumeClaim(one) => self.put(Arc::unwrap_or_clone(one)),
                Object::PersistentVolume(one) => self.put(Arc::unwrap_or_clone(one)),
                Object::StorageClass(one) => self.put(Arc::unwrap_or_clone(one)),
                Object::CsiNode(one) => self.put(Arc::unwrap_or_clone(one)),
                Object::Pod(one) => self.put(Arc::unwrap_or_clone(one)),
                _ => Err("nodes and claims come from pools, not from manifests".to_owned()),
            },
        }
    }

    fn apply_workload(&mut self, workload: Workload) {
        self.known.workloads.insert(workload.key.clone());
        self.live.world_mut().apply(workload);
    }

    /// A pool as `kubectl apply` leaves it: what controllers have written stays.
    fn merged(&self, mut pool: NodePool) -> NodePool {
        if self.keeps_nodes {
            pool.spec.disruption.consolidate_after = NillableDuration::never();
        }
        if let Some(there) = self.live.world().api().get::<NodePool>(&pool.key()) {
            let mut annotations = there.metadata.annotations.clone();
            annotations.append(&mut pool.metadata.annotations);
            pool.metadata.annotations = annotations;
            pool.status = there.status.clone();
        }
        pool
    }

    /// An overlay as `kubectl apply` leaves it.
    fn with_status(&self, mut overlay: NodeOverlay) -> NodeOverlay {
        if let Some(there) = self.live.world().api().get::<NodeOverlay>(&overlay.key()) {
            overlay.status = there.status.clone();
        }
        overlay
    }

    fn put<T: ApiObject>(&mut self, mut object: T) -> Result<(), String> {
        let (key, api) = (object.key(), self.live.world_mut().api_mut());
        let written = match api.get::<T>(&key) {
            None => api.create(object).map(drop),
            Some(there) => {
                let meta = there.metadata();
                object.metadata_mut().finalizers.clone_from(&meta.finalizers);
                object.metadata_mut().resource_version.clear();
                object.metadata_mut().uid.clear();
                api.update(object).map(drop)
            }
        };
        written.map_err(|refusal| format!("{key}: {refusal}"))
    }

    fn delete(&mut self, doomed: &Doomed) -> Result<(), String> {
        let node = if let Doomed::Node(choice) = doomed { Some(self.choose(choice)?) } else { None };
        let world = self.live.world_mut();
        let api = world.api_mut();
        let deleted = match doomed {
            Doomed::Workload(key) => {
                return world.delete_workload(key).then_some(()).ok_or_else(|| absent("workload", key));
            }
            Doomed::Pod(key) => api.delete_pod(key, "", None),
            Doomed::Node(_) => {
                let name = node.map(|node| node.metadata.name.clone()).unwrap_or_default();
                api.delete::<Node>(&cluster_key(&name), "")
            }
            Doomed::NodeClaim(name) => api.delete::<NodeClaim>(&cluster_key(name), ""),
            Doomed::NodePool(name) => api.delete::<NodePool>(&cluster_key(name), ""),
            Doomed::Budget(key) => api.delete::<PodDisruptionBudget>(key, ""),
        };
        deleted.map_err(|refusal| refusal.to_string())
    }

    /// A node that a scenario names.
    fn choose(&self, choice: &NodeChoice) -> Result<Arc<Node>, String> {
        let api = self.live.world().api();
        match choice {
            NodeChoice::Named(name) => api.node(name).cloned().ok_or_else(|| format!("there is no node {name}")),
            NodeChoice::Any { capacity_type, pool } => {
                let has = |node: &Node, key: &str, wanted: &Option<String>| {
                    wanted.is_none() || node.metadata.labels.get(key) == wanted.as_ref()
                };
                let fits = |node: &&Arc<Node>| {
                    expect::is_in_service(node)
                        && has(node, labels::CAPACITY_TYPE, capacity_type)
                        && has(node, labels::NODE_POOL, pool)
                };
                api.list::<Node>().find(fits).cloned().ok_or_else(|| "there is no such node".to_owned())
            }
        }
    }

    fn stage_fault(&mut self, fault: &Fault) -> Result<(), String> {
        let now = self.live.now();
        let node = match fault {
            Fault::Interrupt { node, .. } | Fault::Kill { node, .. } | Fault::Unhealthy { node, .. } => {
                let node = self.choose(node)?;
                self.transcript.line(now, &format!("it is {}", node.metadata.name));
                Some(node)
            }
            _ => None,
        };
        let machine = ProviderId::new(node.as_ref().map_or("", |node| node.spec.provider_id.as_str()));
        let cloud = self.live.world().cloud().clone();
        match fault {
            Fault::SoldOut { offerings, duration } => {
                matching(&cloud.catalog_now(), offerings)?
                    .into_iter()
                    .for_each(|(key, _)| cloud.exhaust_between(key, now, now + *duration));
            }
            Fault::Price { offerings, change } => {
                for (key, price) in matching(&cloud.catalog_now(), offerings)? {
                    let price = match change {
                        PriceChange::To(price) => Some(*price),
                        PriceChange::Times(factor) => Price::per_hour(price.dollars_per_hour() * factor),
                    };
                    cloud.set_price(&key, price.ok_or("the price would be too high")?);
                }
            }
            Fault::Interrupt { notice, .. } => {
                cloud.interrupt(&machine, *notice).ok_or("its machine is gone already")?;
            }
            Fault::Kill { is_silent, .. } => cloud.kill(&machine, !is_silent),
            Fault::Unhealthy { condition, status, .. } => {
                let name = node.map(|node| node.metadata.name.clone()).unwrap_or_default();
                self.live.world_mut().set_node_condition(&name, condition, *status);
            }
            Fault::WithholdMemory { instance_type, memory_bytes } => {
                let catalog = cloud.catalog_now();
                catalog.get(instance_type).ok_or_else(|| format!("there is no instance type {instance_type}"))?;
                cloud.withhold_memory(instance_type, *memory_bytes);
            }
            Fault::LoseAnswers(count) => cloud.lose_answers(*count),
            Fault::Throttle(duration) => cloud.throttle(now, now + *duration),
            Fault::LoseWatch(duration) => self.live.world_mut().lose_watch(*duration),
        }
        Ok(())
    }

    fn explain(&self, subject: &Subject, stage: &mut dyn Stage) -> Result<String, String> {
        let world = self.live.world();
        let snapshot = world.snapshot().map_err(|error| error.to_string())?;
        let mut catalogs = Catalogs::new();
        for pool in snapshot.pools() {
            catalogs.insert(pool.name(), world.cloud().catalog_for(pool));
        }
        let node;
        let subject = match subject {
            Subject::Pod(key) => Asked::Pod(self.pod(key)?),
            Subject::Node(choice) => {
                node = self.choose(choice)?;
                Asked::Node(&node.metadata.name)
            }
        };
        let (options, now) = (&self.scenario.setup.options, self.live.now());
        Ok(stage.explain(&Question { subject, snapshot: &snapshot, catalogs: &catalogs, options, now }))
    }

    /// The pod of this name, or the first one whose name begins so.
    fn pod(&self, key: &ObjectKey) -> Result<&Pod, String> {
        let api = self.live.world().api();
        let starts = |pod: &&Arc<Pod>| pod.namespace() == key.namespace && pod.metadata.name.starts_with(&key.name);
        let found = api.get::<Pod>(key).or_else(|| api.list::<Pod>().find(starts));
        found.map(AsRef::as_ref).ok_or_else(|| absent("pod", key))
    }
}

fn absent(kind: &str, key: &ObjectKey) -> String {
    format!("there is no {kind} {key}")
}

fn matching(catalog: &Catalog, pattern: &OfferingPattern) -> Result<Vec<(karpenter_core::OfferingKey, Price)>, String> {
    let offerings = catalog.types().iter().flat_map(|t| t.offerings.iter().map(|o| (o.key(&t.name), o.price)));
    let found: Vec<_> = offerings.filter(|(key, _)| pattern.matches(key)).collect();
    if found.is_empty() { Err("the catalog has no such offering".to_owned()) } else { Ok(found) }
}

/// A budget for the pods of a workload, by all labels that they have, if they have any.
fn budget(key: &ObjectKey, workload: &Workload, rule: Protection) -> Option<PodDisruptionBudget> {
    let mut budget = PodDisruptionBudget::default();
    budget.metadata.name.clone_from(&key.name);
    budget.metadata.namespace.clone_from(&key.namespace);
    let labels = Some(workload.template.metadata.labels.clone()).filter(|labels| !labels.is_empty())?;
    budget.spec.selector = Some(LabelSelector::of_labels(labels));
    match rule {
        Protection::MinAvailable(least) => budget.spec.min_available = Some(least),
        Protection::MaxUnavailable(most) => budget.spec.max_unavailable = Some(most),
    }
    Some(budget)
}
