//! What happened, as text.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use karpenter_core::{
    Catalog, Quantity, Timestamp,
    api::{Node, ObjectKey, Pod},
    cluster::pod_requests,
    engine::{Action, ActionId, ActionResult, Event, Note, Object, ObjectRef, Request},
    labels,
    provider::{CreateError, Launched},
};

use super::expect::is_in_service;
use crate::sim::{
    Books, Exchange, Live, World,
    books::{disruption, words_for},
};

/// The longest line about something that happened, in characters.
const MAX_CHARS: usize = 240;

/// Notes that say what the transcript says with what came of a launch, of an eviction or of a command, and who goes where, which
/// it says once they are there.
const TOLD_OTHERWISE: [&str; 6] =
    ["Launched", "LaunchFailed", "InsufficientCapacityError", "Disrupted", "Evicted", "Nominated"];

/// Writes down what happens, as it happens.
#[derive(Debug)]
pub(super) struct Transcript {
    text: String,
    start: Timestamp,
    /// Whether the last line is text of the scenario for its readers.
    is_remark: bool,
    catalog: Option<Arc<Catalog>>,
    /// The claims and pods that actions are about.
    asked: BTreeMap<ActionId, Subject>,
    nodes: BTreeMap<String, Stage>,
    /// The owners and the nodes of pods; the nodes are empty while there is none.
    pods: BTreeMap<ObjectKey, (String, String)>,
    /// Notes that were written already.
    noted: BTreeSet<String>,
    /// Calls that failed and have not succeeded since.
    failing: BTreeSet<&'static str>,
    /// Things that happen to many, not written yet.
    tallies: Vec<Tally>,
}

#[derive(Debug)]
enum Subject {
    Claim(String),
    Eviction(ObjectKey),
    Other(&'static str),
}

/// How far a node has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Joined,
    Ready,
    Leaving,
}

/// The same thing that happened to several within a short time.
#[derive(Debug)]
struct Tally {
    /// When it happened first, and last.
    first_at: Timestamp,
    at: Timestamp,
    what: What,
    count: usize,
    nodes: BTreeSet<String>,
}

/// What happened to several.
#[derive(Debug, PartialEq, Eq)]
enum What {
    /// `bound` or `evicted`, and whose pods.
    Pods(&'static str, String),
    /// What cannot be done for pods, whose they are, and why.
    Failed { what: &'static str, whose: String, why: String },
    /// Why claims were not launched.
    Refused { why: String },
}

/// How long the same thing is counted before it is written.
const MAX_TALLY: Duration = Duration::from_secs(5);

impl Tally {
    fn text(&self) -> String {
        let Self { what, count, nodes, .. } = self;
        let place = match (nodes.len(), nodes.first()) {
            (1, Some(node)) => format!(" on {node}"),
            (0, _) => String::new(),
            (many, _) => format!(" on {many} nodes"),
        };
        match what {
            What::Pods(verb, whose) => format!("{verb} {} of {whose}{place}", number_of(*count, "pod")),
            What::Failed { what, whose, why } => format!("{what}: {} of {whose}: {why}", number_of(*count, "pod")),
            What::Refused { why } => format!("not launched: {}: {why}", number_of(*count, "claim")),
        }
    }
}

fn number_of(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Transcript {
    pub(super) fn new(start: Timestamp) -> Self {
        Self {
            text: String::new(),
            start,
            is_remark: false,
            catalog: None,
            asked: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            noted: BTreeSet::new(),
            failing: BTreeSet::new(),
            tallies: Vec::new(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn know_prices(&mut self, catalog: Arc<Catalog>) {
        self.catalog = Some(catalog);
    }

    /// A command as it was written.
    pub(super) fn command(&mut self, text: &str) {
        let is_remark = text.starts_with('#');
        if is_remark && !self.is_remark && !self.text.is_empty() {
            self.text.push('\n');
        }
        self.is_remark = is_remark;
        self.text += text;
        self.text.push('\n');
    }

    /// Lines that stand below a command.
    pub(super) fn block(&mut self, text: &str) {
        for line in text.lines() {
            let _ = writeln!(self.text, "    {line}");
        }
    }

    /// Something that happened.
    pub(super) fn line(&mut self, at: Timestamp, what: &str) {
        self.settle();
        self.write(at, what);
    }

    fn write(&mut self, at: Timestamp, what: &str) {
        let clock = clock(at, self.start);
        let mut shown: String = what.chars().take(MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
        if what.chars().count() > MAX_CHARS {
            shown += "...";
        }
        let _ = writeln!(self.text, "    {clock}  {shown}");
    }

    /// Writes what was only counted.
    pub(super) fn settle(&mut self) {
        let mut tallies = std::mem::take(&mut self.tallies);
        tallies.sort_by_key(|tally| tally.at);
        for tally in tallies {
            self.write(tally.at, &tally.text());
        }
    }

    fn tally(&mut self, at: Timestamp, what: What, node: &str) {
        if self.tallies.first().is_some_and(|tally| at.since(tally.first_at) > MAX_TALLY) {
            self.settle();
        }
        let index = self.tallies.iter().position(|tally| tally.what == what).unwrap_or_else(|| {
            self.tallies.push(Tally { first_at: at, at, what, count: 0, nodes: BTreeSet::new() });
            self.tallies.len() - 1
        });
        let tally = &mut self.tallies[index];
        tally.at = at;
        tally.count += 1;
        if !node.is_empty() {
            tally.nodes.insert(node.to_owned());
        }
    }

    /// Something happened to a pod, of which the owner and the node are known if it was told before.
    fn tally_pod(&mut self, at: Timestamp, verb: &'static str, pod: &ObjectKey) {
        let (owner, node) = self.pods.get(pod).cloned().unwrap_or_else(|| (pod.name.clone(), String::new()));
        self.tally(at, What::Pods(verb, format!("{}/{owner}", pod.namespace)), &node);
    }

    pub(super) fn observe(&mut self, at: Timestamp, exchange: Exchange<'_>) {
        match exchange {
            Exchange::Told(Event::Applied(Object::Node(node))) => self.node(at, node),
            Exchange::Told(Event::Applied(Object::Pod(pod))) => self.pod(at, pod),
            Exchange::Told(Event::Deleted(ObjectRef::Node(node))) => {
                if self.nodes.remove(node).is_some() {
                    self.line(at, &format!("gone: {node}"));
                }
            }
            Exchange::Told(Event::Deleted(ObjectRef::Pod(pod))) => {
                self.pods.remove(pod);
            }
            Exchange::Told(Event::Done { id, result }) => self.done(at, *id, result),
            Exchange::Told(_) => {}
            Exchange::Asked(requests) => requests.iter().for_each(|request| self.request(at, request)),
            Exchange::Restarted => {
                self.asked.clear();
                self.line(at, "the engine is stopped, and another one starts");
            }
        }
    }

    fn request(&mut self, at: Timestamp, request: &Request) {
        let subject = match &request.action {
            Action::Launch(claim) => Subject::Claim(claim.name().to_owned()),
            Action::Evict { pod, .. } => Subject::Eviction(pod.clone()),
            Action::Note(note) => return self.note(at, note),
            Action::Terminate(_) => Subject::Other("terminate"),
            Action::Catalog(_) => Subject::Other("catalog"),
            Action::List => Subject::Other("list"),
            Action::Get(_) => Subject::Other("get"),
            Action::NextEvents(_) => Subject::Other("next events"),
            _ => return,
        };
        self.asked.insert(request.id, subject);
    }

    fn note(&mut self, at: Timestamp, note: &Note) {
        if TOLD_OTHERWISE.contains(&&*note.reason) {
            return;
        }
        let object = match &note.object {
            ObjectRef::NodeClaim(name) | ObjectRef::Node(name) | ObjectRef::NodePool(name) => name.clone(),
            ObjectRef::Pod(key) => key.to_string(),
            other => format!("{other:?}"),
        };
        if !self.noted.insert(format!("{object} {} {}", note.reason, note.message)) {
            return;
        }
        match (&note.object, disruption(note)) {
            (_, Some((disrupted, reason))) => self.line(at, &format!("disrupts: {disrupted}, {reason}")),
            (ObjectRef::Pod(key), None) if matches!(&*note.reason, "FailedScheduling" | "FailedDraining") => {
                let what = if note.reason == "FailedDraining" { "not evicted" } else { "without a place" };
                let owner = self.pods.get(key).map_or(&key.name, |(owner, _)| owner);
                let whose = format!("{}/{owner}", key.namespace);
                self.tally(at, What::Failed { what, whose, why: note.message.clone() }, "");
            }
            _ => self.line(at, &format!("{object}: {}: {}", note.reason, note.message)),
        }
    }

    fn done(&mut self, at: Timestamp, id: ActionId, result: &ActionResult) {
        let subject = self.asked.remove(&id);
        match (subject, result) {
            (Some(Subject::Claim(claim)), ActionResult::Launched(Ok(launched))) => {
                let text = format!("launched: {claim}, {}", self.machine(launched));
                self.line(at, &text);
            }
            (Some(Subject::Claim(_)), ActionResult::Launched(Err(error))) => {
                self.tally(at, What::Refused { why: briefly(error) }, "");
            }
            (Some(Subject::Eviction(pod)), ActionResult::Written) => self.tally_pod(at, "evicted", &pod),
            (Some(Subject::Other(call)), result) => match failure(result) {
                Some(error) if self.failing.insert(call) => self.line(at, &format!("{call} failed: {error}")),
                Some(_) => {}
                None => {
                    if self.failing.remove(call) {
                        self.line(at, &format!("{call} succeeds again"));
                    }
                }
            },
            _ => {}
        }
    }

    fn machine(&self, launched: &Launched) -> String {
        let labels = &launched.instance.labels;
        let label = |key: &str| labels.get(key).map_or("", String::as_str);
        let offered = self.catalog.as_ref().and_then(|catalog| catalog.get(label(labels::INSTANCE_TYPE)));
        let is_it = |o: &&karpenter_core::Offering| {
            o.label(labels::ZONE) == label(labels::ZONE)
                && o.label(labels::CAPACITY_TYPE) == label(labels::CAPACITY_TYPE)
        };
        let price =
            offered.and_then(|t| t.offerings.iter().find(is_it)).map(|offering| format!(", {}", offering.price));
        format!("{}{}", words_for(labels), price.unwrap_or_default())
    }

    fn node(&mut self, at: Timestamp, node: &Node) {
        let name = &node.metadata.name;
        let is_leaving = node.metadata.deletion_timestamp.is_some();
        let is_ready = node.metadata.labels.contains_key(labels::INITIALIZED);
        let now = match (is_leaving, is_ready) {
            (true, _) => Stage::Leaving,
            (false, true) => Stage::Ready,
            (false, false) => Stage::Joined,
        };
        let before = self.nodes.insert(name.clone(), now);
        if before == Some(now) || (before.is_some() && now == Stage::Joined) {
            return;
        }
        let text = match now {
            Stage::Joined => format!("joined: {name}"),
            Stage::Ready => format!("ready: {name}, {}", words_for(&node.metadata.labels)),
            Stage::Leaving => format!("leaves: {name}"),
        };
        self.line(at, &text);
    }

    fn pod(&mut self, at: Timestamp, pod: &Pod) {
        if pod.is_terminating() {
            return;
        }
        let (key, node) = (pod.key(), &pod.spec.node_name);
        let owner = pod.metadata.owner_references.first().map_or(&pod.metadata.name, |owner| &owner.name);
        let before = self.pods.insert(key.clone(), (owner.clone(), node.clone()));
        let is_news = !node.is_empty() && before.is_none_or(|(_, before)| before != *node);
        if is_news && !pod.is_daemon() {
            self.tally_pod(at, "bound", &key);
        }
    }

    /// The nodes and pods that there are.
    pub(super) fn show(&mut self, world: &World) {
        let api = world.api();
        let mut cpu: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
        for pod in api.list::<Pod>().filter(|pod| !pod.spec.node_name.is_empty() && !pod.is_finished()) {
            let entry = cpu.entry(&pod.spec.node_name).or_default();
            entry.0 += usize::from(!pod.is_daemon());
            entry.1 += pod_requests(pod).get("cpu").map_or(0.0, Quantity::as_f64);
        }
        let mut out = String::new();
        for node in api.list::<Node>() {
            let (pods, asked) = cpu.get(node.metadata.name.as_str()).copied().unwrap_or_default();
            let has = node.status.allocatable.get("cpu").map_or(0.0, Quantity::as_f64);
            let pool = node.metadata.labels.get(labels::NODE_POOL).map_or("no pool", String::as_str);
            let state = if is_in_service(node) { "" } else { ", not in service" };
            let share = if has > 0.0 { asked / has * 100.0 } else { 0.0 };
            let _ = writeln!(
                out,
                "{}: pool {pool}, {}, {}, {share:.0} % of its CPU{state}",
                node.metadata.name,
                words_for(&node.metadata.labels),
                number_of(pods, "pod"),
            );
        }
        let nodes = number_of(api.list::<Node>().len(), "node");
        let (cost, waiting) = (world.cloud().hourly_cost(), number_of(world.pods_without_node(), "pod"));
        let _ = writeln!(out, "{nodes}, {cost}; without a node: {waiting}");
        self.block(&out);
    }

    /// What it came to.
    pub(super) fn account(&mut self, live: &Live, books: &Books, breaches: usize) {
        let (account, counts) = (live.account(), books.counts());
        let (bill, floor) = (account.bill.micro_dollars(), books.lower_bound_micro_dollars());
        let disrupted: Vec<String> =
            counts.disrupted.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let disrupted = if disrupted.is_empty() { "none".to_owned() } else { disrupted.join(", ") };
        let dollars = |micro: i64| format!("${:.2}", micro as f64 / 1e6);
        let above = if floor > 0 {
            format!("; the bill is {:.1} % above", (bill as f64 / floor as f64 - 1.0) * 100.0)
        } else {
            String::new()
        };
        let types = types_of_nodes(live.world());
        let types: Vec<String> = types.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let types = if types.is_empty() { String::new() } else { format!(": {}", types.join(", ")) };
        let _ = write!(
            self.text,
            "\naccount after {}\n  pods         {} run, {} wait; {} evicted\n  nodes        {}{types}\n  \
             machines     {} launched, {} refused for lack of capacity, {:.1} machine hours\n  disrupted    {disrupted}\n  \
             bill         {} by the cloud's own meter\n  lower bound  {}{above}\n  rules broken {breaches}\n",
            span(account.at.since(self.start)),
            account.pods_running,
            account.pods_waiting,
            counts.evicted,
            account.nodes,
            counts.launched,
            counts.refused,
            account.bill.machine_seconds() as f64 / 3600.0,
            dollars(bill),
            dollars(floor),
        );
    }
}

/// How many nodes there are of each instance type.
fn types_of_nodes(world: &World) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for node in world.api().list::<Node>() {
        let name = node.metadata.labels.get(labels::INSTANCE_TYPE).map_or("of no type", String::as_str);
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// The time of day, after the number of the day if it is not the first.
fn clock(at: Timestamp, start: Timestamp) -> String {
    const DAY_SECONDS: i64 = 86_400;
    let (seconds, first) = (at.as_millis().div_euclid(1000), start.as_millis().div_euclid(1000));
    let day = seconds.div_euclid(DAY_SECONDS) - first.div_euclid(DAY_SECONDS);
    let of_day = seconds.rem_euclid(DAY_SECONDS);
    let time = format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60);
    if day == 0 { time } else { format!("day {} {time}", day + 1) }
}

fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let words: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if words.is_empty() { "0s".to_owned() } else { words.join("") }
}

/// An error on a short line: of many offerings the first is named.
fn briefly(error: &CreateError) -> String {
    match error {
        CreateError::InsufficientCapacity { offerings } if offerings.len() > 1 => {
            format!("no capacity for {} and {} more", offerings[0], offerings.len() - 1)
        }
        other => other.to_string(),
    }
}

fn failure(result: &ActionResult) -> Option<String> {
    match result {
        ActionResult::Terminated(Err(error))
        | ActionResult::Found(Err(error))
        | ActionResult::Listed(Err(error))
        | ActionResult::Catalog(Err(error))
        | ActionResult::Events(Err(error)) => Some(error.to_string()),
        _ => None,
    }
}
