//! The node classes of a cluster: the provider is told of them, and they are told what it found.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::ObjectReference;
use karpenter_core::api::Condition;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
    runtime::{
        WatchStreamExt as _,
        events::{Event, EventType, Recorder, Reporter},
        watcher,
    },
};
use serde_json::{Value, json};

use crate::{
    nodeclass::{Ec2NodeClass, Ec2NodeClassStatus, GROUP, KIND},
    provider::Ec2Provider,
};

/// Keeps a class until nothing is left of what was made for it.
const FINALIZER: &str = "karpenter.k8s.aws/termination";
/// How often it is looked at what selectors select; the provider asks AWS less often.
const PERIOD: Duration = Duration::from_secs(10);
/// How often what nobody needs is deleted.
const UPKEEP: Duration = Duration::from_mins(1);
/// How often the control plane is asked for its version.
const VERSION: Duration = Duration::from_mins(5);
/// How many classes are looked at at a time.
const AT_A_TIME: usize = 10;

/// Watches node classes for a provider.
///
/// What happens to classes is heard whatever AWS does: one that does not answer for a class keeps no other.
pub struct NodeClasses {
    tender: Arc<Tender>,
    known: BTreeMap<String, Arc<Ec2NodeClass>>,
    /// Those that were not told since the last list began.
    unlisted: BTreeSet<String>,
    /// By the names of classes that go, what was said last of the claims that they wait for.
    told: BTreeMap<String, String>,
    /// The names of those that are to be looked at, each once, in the order in which it became so.
    waiting: VecDeque<String>,
    /// The names of those that are looked at now.
    under_way: BTreeSet<String>,
}

impl fmt::Debug for NodeClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeClasses")
            .field("known", &self.known.keys())
            .field("waiting", &self.waiting)
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

/// All node classes of a cluster, as they are now, and by name why others cannot be read.
///
/// # Errors
/// The API server does not list them.
pub async fn node_classes(client: &Client) -> Result<(Vec<Ec2NodeClass>, BTreeMap<String, String>), kube::Error> {
    let (mut read_well, mut faults) = (Vec::new(), BTreeMap::new());
    for object in classes(client.clone()).list(&ListParams::default()).await?.items {
        match read(&object) {
            Ok(class) => read_well.push(class),
            Err(error) => drop(faults.insert(object.name_any(), error)),
        }
    }
    Ok((read_well, faults))
}

/// What was looked at, and what was said last of the claims that it waits for.
type Tended = (String, Option<String>);

/// Brings classes to what they should be.
struct Tender {
    client: Client,
    provider: Ec2Provider,
    recorder: Recorder,
}

impl NodeClasses {
    /// For a provider and the cluster of a client.
    pub fn new(client: Client, provider: Ec2Provider) -> Self {
        let recorder = Recorder::new(client.clone(), Reporter { controller: "karpenter".to_owned(), instance: None });
        Self {
            tender: Arc::new(Tender { client, provider, recorder }),
            known: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            told: BTreeMap::new(),
            waiting: VecDeque::new(),
            under_way: BTreeSet::new(),
        }
    }

    /// Works until it is dropped. Statuses and finalizers are written, and things of AWS deleted, only while `may_write`
    /// says so: of several replicas one does.
    pub async fn run(self, may_write: impl Fn() -> bool + Send + Sync) {
        let tender = Arc::clone(&self.tender);
        tokio::select! {
            () = self.attend(&may_write) => {}
            () = tender.keep_up(&may_write) => {}
            () = tender.follow_version() => {}
        }
    }

    async fn attend(mut self, may_write: &(impl Fn() -> bool + Send + Sync)) {
        let mut events = watcher(self.tender.classes(), watcher::Config::default()).default_backoff().boxed();
        let mut period = tokio::time::interval(PERIOD);
        let mut tending = FuturesUnordered::new();
        loop {
            tokio::select! {
                event = events.next() => match event {
                    None => return,
                    Some(Err(error)) => tracing::warn!(error = %error, "the watch of node classes was lost"),
                    Some(Ok(event)) => if let Some(name) = self.hear(event) { self.wait(name) },
                },
                Some(tended) = tending.next() => self.take_in(tended),
                _ = period.tick() => for name in self.known.keys().cloned().collect::<Vec<_>>() { self.wait(name) },
            }
            if may_write() {
                tending.extend(std::iter::from_fn(|| self.next()));
            } else {
                self.waiting.clear();
            }
        }
    }

    fn wait(&mut self, name: String) {
        if !self.waiting.contains(&name) {
            self.waiting.push_back(name);
        }
    }

    /// Begins to look at a class, unless there are enough under way.
    fn next(&mut self) -> Option<BoxFuture<'static, Tended>> {
        if self.under_way.len() >= AT_A_TIME {
            return None;
        }
        let at = self.waiting.iter().position(|name| !self.under_way.contains(name))?;
        let name = self.waiting.remove(at)?;
        let class = self.known.get(&name)?.clone();
        self.under_way.insert(name.clone());
        let (told, tender) = (self.told.get(&name).cloned(), Arc::clone(&self.tender));
        Some(async move { (name, tender.tend(&class, told).await) }.boxed())
    }

    fn take_in(&mut self, (name, told): Tended) {
        self.under_way.remove(&name);
        if let Some(told) = told.filter(|_| self.known.contains_key(&name)) {
            self.told.insert(name, told);
        }
    }

    /// Takes in what happened. Gives back the name of the class that is to be looked at.
    fn hear(&mut self, event: watcher::Event<DynamicObject>) -> Option<String> {
        match event {
            watcher::Event::Init => {
                self.unlisted = self.known.keys().cloned().collect();
                None
            }
            // What went while nobody watched is told by nobody else.
            watcher::Event::InitDone => {
                for name in std::mem::take(&mut self.unlisted) {
                    self.forget(&name);
                }
                self.tender.provider.know_all_classes();
                None
            }
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                let name = object.name_any();
                self.unlisted.remove(&name);
                match read(&object) {
                    Ok(class) => {
                        self.tender.provider.apply_class(class.clone());
                        self.known.insert(name.clone(), Arc::new(class));
                        Some(name)
                    }
                    Err(error) => {
                        tracing::error!(class = name, error = %error, "a node class cannot be read: it stays what it was");
                        None
                    }
                }
            }
            watcher::Event::Delete(object) => {
                self.forget(&object.name_any());
                None
            }
        }
    }

    fn forget(&mut self, name: &str) {
        self.tender.provider.remove_class(name);
        self.known.remove(name);
        self.told.remove(name);
        self.waiting.retain(|waiting| waiting != name);
    }
}

impl Tender {
    /// Deletes now and then what nobody needs.
    async fn keep_up(&self, may_write: impl Fn() -> bool) {
        let mut upkeep = tokio::time::interval(UPKEEP);
        loop {
            upkeep.tick().await;
            if may_write()
                && let Err(error) = self.provider.upkeep().await
            {
                tracing::warn!(error = %error, "what nobody needs could not be deleted");
            }
        }
    }

    async fn follow_version(&self) {
        let mut version = tokio::time::interval(VERSION);
        loop {
            version.tick().await;
            self.ask_version().await;
        }
    }

    /// The provider finds images for the version that the control plane has by now. If that is not known it stays.
    async fn ask_version(&self) {
        match self.client.apiserver_version().await {
            Ok(info) => {
                let minor = info.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
                if let Err(error) = self.provider.set_kubernetes_version(&format!("{}.{minor}", info.major)) {
                    tracing::error!(error = %error, "images are looked for as for the version of before");
                }
            }
            Err(error) => tracing::warn!(error = %error, "the control plane did not say its version"),
        }
    }

    fn classes(&self) -> Api<DynamicObject> {
        classes(self.client.clone())
    }

    /// Brings a class to what it should be. What fails is tried again with the next period. Takes and gives back what was said
    /// last of the claims that the class waits for.
    async fn tend(&self, class: &Ec2NodeClass, mut told: Option<String>) -> Option<String> {
        let has_finalizer = class.metadata.finalizers.iter().any(|own| own == FINALIZER);
        let done = match (class.metadata.deletion_timestamp, has_finalizer) {
            (Some(_), false) => return told,
            (Some(_), true) => self.let_go(class, &mut told).boxed().await,
            (None, false) => self.write_finalizers(class, |all| all.push(FINALIZER.to_owned())).boxed().await,
            (None, true) => self.tell_found(class).boxed().await,
        };
        if let Err(error) = done {
            tracing::warn!(class = class.name(), error, "a node class could not be brought up to date");
        }
        told
    }

    /// Deletes what was made for a class that goes, once it has no claims any more.
    async fn let_go(&self, class: &Ec2NodeClass, told: &mut Option<String>) -> Result<(), String> {
        let claims = self.claims_of(class.name()).await.map_err(|error| error.to_string())?;
        if let Some(message) = waits_for(&claims) {
            // It is said once.
            if told.as_ref() != Some(&message) {
                self.say(class, message.clone()).await?;
                *told = Some(message);
            }
            return Ok(());
        }
        let done = self.provider.finalize_class(class.name(), &class.metadata.uid).await;
        done.map_err(|error| error.to_string())?;
        self.write_finalizers(class, |all| all.retain(|own| own != FINALIZER)).await
    }

    /// Says in an event what a class waits for.
    async fn say(&self, class: &Ec2NodeClass, message: String) -> Result<(), String> {
        let reason = "WaitingOnNodeClaimTermination".to_owned();
        let (action, note) = (reason.clone(), Some(message));
        let event = Event { type_: EventType::Normal, reason, note, action, secondary: None };
        let reference = ObjectReference {
            api_version: Some(format!("{GROUP}/v1")),
            kind: Some(KIND.to_owned()),
            name: Some(class.name().to_owned()),
            uid: Some(class.metadata.uid.clone()),
            ..ObjectReference::default()
        };
        self.recorder.publish(&event, &reference).await.map_err(|error| error.to_string())
    }

    /// The names of the claims of a class.
    async fn claims_of(&self, class: &str) -> Result<Vec<String>, kube::Error> {
        let kind = GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim");
        let claims: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "nodeclaims"));
        let all = claims.list(&ListParams::default()).await?;
        let is_of_class = |claim: &DynamicObject| {
            let reference = &claim.data["spec"]["nodeClassRef"];
            reference["group"] == GROUP && reference["name"] == class
        };
        Ok(all.items.iter().filter(|claim| is_of_class(claim)).map(ResourceExt::name_any).collect())
    }

    /// Names the version of the class that was looked at: another one is looked at again.
    async fn write_finalizers(
        &self,
        class: &Ec2NodeClass,
        change: impl FnOnce(&mut Vec<String>),
    ) -> Result<(), String> {
        let mut finalizers = class.metadata.finalizers.clone();
        change(&mut finalizers);
        let version = &class.metadata.resource_version;
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
        let written = self.classes().patch(class.name(), &PatchParams::default(), &Patch::Merge(patch)).await;
        written.map(drop).map_err(|error| error.to_string())
    }

    /// Writes what selectors found, if that is something else than what is written.
    async fn tell_found(&self, class: &Ec2NodeClass) -> Result<(), String> {
        let found = self.provider.resolve(class.name()).await.map_err(|error| error.to_string())?;
        let status = &found.class.status;
        if is_same(status, &class.status) {
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": class.metadata.resource_version}, "status": whole(status)});
        let written = self.classes().patch_status(class.name(), &PatchParams::default(), &Patch::Merge(patch)).await;
        written.map(drop).map_err(|error| error.to_string())
    }
}

/// What a class that goes waits for: five claims by their names; `None` if it waits for nothing.
fn waits_for(claims: &[String]) -> Option<String> {
    const NAMED: usize = 5;
    let named = claims.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match claims.len() {
        0 => None,
        count if count > NAMED => {
            Some(format!("Waiting on NodeClaim termination for {named} and {} other(s)", count - NAMED))
        }
        _ => Some(format!("Waiting on NodeClaim termination for {named}")),
    }
}

fn classes(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1", KIND);
    Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, "ec2nodeclasses"))
}

fn read(object: &DynamicObject) -> Result<Ec2NodeClass, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// A status as it is written: what is not there any more is taken away.
fn whole(status: &Ec2NodeClassStatus) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for field in ["subnets", "securityGroups", "amis", "capacityReservations", "instanceProfile"] {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    value
}

/// Whether two statuses say the same; since when conditions hold counts only where they changed.
fn is_same(one: &Ec2NodeClassStatus, other: &Ec2NodeClassStatus) -> bool {
    let without_times = |status: &Ec2NodeClassStatus| {
        let mut status = status.clone();
        status.conditions.iter_mut().for_each(|condition: &mut Condition| condition.last_transition_time = None);
        status
    };
    without_times(one) == without_times(other)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::{
        Router,
        http::{Method, Uri},
        routing::any,
    };

    use super::*;
    use crate::{
        mem::MemoryAws,
        provider::{ClusterAccess, ProviderOptions},
    };

    /// An API server with these classes that never answers a patch of the first one, nor watches. The other patches are kept.
    async fn api_server(names: &'static [&'static str]) -> (Client, Arc<Mutex<Vec<String>>>) {
        let patched = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&patched);
        let class = |name: &&str| json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {}});
        let handler = async move |method: Method, uri: Uri| {
            let is_list = method == Method::GET && uri.path().ends_with("/ec2nodeclasses");
            let name = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
            if is_list && !uri.query().unwrap_or_default().contains("watch") {
                let items: Vec<Value> = names.iter().map(class).collect();
                return json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string();
            }
            if method == Method::PATCH && name != names[0] {
                let answer = class(&name.as_str()).to_string();
                kept.lock().expect("no panic").push(name);
                return answer;
            }
            std::future::pending().await
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async { axum::serve(listener, Router::new().fallback(any(handler))).await });
        (Client::try_from(kube::Config::new(url.parse().expect("a URL"))).expect("a client"), patched)
    }

    #[tokio::test]
    async fn a_class_of_which_nothing_is_answered_keeps_no_other() {
        let (client, patched) = api_server(&["a", "b", "c"]).await;
        let aws = MemoryAws::small();
        let options = ProviderOptions::new("test", "us-west-2", ClusterAccess::default());
        let provider = Ec2Provider::new(Arc::new(aws.clone()), Arc::new(aws.clock().clone()), options);
        let running = tokio::spawn(NodeClasses::new(client, provider.clone()).run(|| true));
        let heard = async {
            while patched.lock().expect("no panic").len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), heard).await.expect("the others are looked at");
        assert_eq!(*patched.lock().expect("no panic"), ["b", "c"]);
        provider.resolve("c").await.expect("it is heard of");
        running.abort();
    }

    #[test]
    fn a_class_that_waits_names_five_claims() {
        let names: Vec<String> = (1..=7).map(|n| format!("c{n}")).collect();
        assert_eq!(waits_for(&[]), None);
        assert_eq!(waits_for(&names[..2]).as_deref(), Some("Waiting on NodeClaim termination for c1, c2"));
        let all = "Waiting on NodeClaim termination for c1, c2, c3, c4, c5 and 2 other(s)";
        assert_eq!(waits_for(&names).as_deref(), Some(all));
    }
}
