//! Carries out what the engine asks for.

use std::{pin::Pin, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use karpenter_core::{
    CloudProvider, Timestamp,
    api::{Node, NodeClaim},
    engine::{Action, ActionId, ActionResult, Note, Refusal, Request},
    lifecycle::launch_deadline,
    provider::{ProviderError, ProviderErrorKind},
};
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::{
    sync::{Semaphore, mpsc::Sender, watch},
    task::JoinSet,
};

use crate::{
    clock,
    lease::Term,
    metrics::{Metrics, provider_error},
    mirror::Mirror,
    write::Writer,
};

/// What came of an action.
pub(crate) type Outcome = (ActionId, ActionResult);

/// How long the API server may take for a call.
const API_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;

/// How many calls are made. What is more waits, and there is never much of it: the engine asks for one write of an object at a
/// time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallLimits {
    /// Writes to the API server, evictions included, a second. 200 by default, as Karpenter's `kube-client-qps`.
    pub writes_per_second: usize,
    /// So many of them at once. 300 by default, as Karpenter's `kube-client-burst`.
    pub writes_at_once: usize,
    /// Calls of the provider that are under way at a time: so many that buy machines, so many that ask about drift, and so many
    /// others, which wait for neither.
    pub provider_calls: usize,
    /// Notes that wait to be written; others are dropped.
    pub notes: usize,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { writes_per_second: 200, writes_at_once: 300, provider_calls: 64, notes: 256 }
    }
}

/// Lets so many calls through at once, and as many again after a while: none once another replica may act, whatever waits.
#[derive(Clone)]
struct Lane {
    leads: watch::Receiver<Term>,
    permits: Arc<Semaphore>,
    /// For how long a call keeps others out, even if it ends sooner.
    hold: Duration,
}

impl Lane {
    fn new(at_once: usize, per_second: Option<usize>, leads: &watch::Receiver<Term>) -> Self {
        let at_once = at_once.max(1);
        let hold =
            per_second.map_or(Duration::ZERO, |calls| Duration::from_secs_f64(at_once as f64 / calls.max(1) as f64));
        Self { leads: leads.clone(), permits: Arc::new(Semaphore::new(at_once)), hold }
    }

    async fn pass<T>(self, call: impl Future<Output = T>, then: impl AsyncFnOnce(T)) {
        let _permit = self.permits.acquire_owned().await;
        // A process that was stopped may wake after others have begun to act, before it hears that its lease was lost.
        if !self.leads.borrow().is_on() {
            return;
        }
        let free = tokio::time::Instant::now() + self.hold;
        then(call.await).await;
        tokio::time::sleep_until(free).await;
    }
}

/// Queues of calls.
pub(crate) struct Carrier {
    writer: Writer,
    recorder: Recorder,
    provider: Arc<dyn CloudProvider>,
    metrics: Arc<Metrics>,
    outcomes: Sender<Outcome>,
    writes: Lane,
    /// Buying takes long where little is to be had, and drift is asked about for all machines at once. What must not wait, such
    /// as warnings of interruptions, passes both.
    launches: Lane,
    drifts: Lane,
    other_calls: Lane,
    notes: Arc<Semaphore>,
    leads: watch::Receiver<Term>,
    tasks: JoinSet<()>,
}

type Call = Pin<Box<dyn Future<Output = ActionResult> + Send>>;

impl Carrier {
    pub(crate) fn new(
        client: &Client,
        identity: &str,
        provider: Arc<dyn CloudProvider>,
        metrics: Arc<Metrics>,
        limits: &CallLimits,
        leads: &watch::Receiver<Term>,
        outcomes: Sender<Outcome>,
    ) -> Self {
        let reporter = Reporter { controller: "karpenter".to_owned(), instance: Some(identity.to_owned()) };
        Self {
            writer: Writer::new(client.clone()),
            recorder: Recorder::new(client.clone(), reporter),
            provider,
            metrics,
            outcomes,
            writes: Lane::new(limits.writes_at_once, Some(limits.writes_per_second), leads),
            launches: Lane::new(limits.provider_calls, None, leads),
            drifts: Lane::new(limits.provider_calls, None, leads),
            other_calls: Lane::new(limits.provider_calls, None, leads),
            notes: Arc::new(Semaphore::new(limits.notes)),
            leads: leads.clone(),
            tasks: JoinSet::new(),
        }
    }

    /// Begins to carry out what was asked for; the outcomes come by the channel.
    pub(crate) fn begin(&mut self, requests: Vec<Request>, mirror: &Mirror) {
        while self.tasks.try_join_next().is_some() {}
        for Request { id, action } in requests {
            match action {
                Action::Note(note) => self.note(note, mirror),
                action => {
                    let (call, lane) = self.call(action, mirror);
                    let (lane, outcomes) = (lane.clone(), self.outcomes.clone());
                    // Nobody is left to be told if the controller has stopped.
                    let tell = async move |result| drop(outcomes.send((id, result)).await);
                    self.tasks.spawn(async move { lane.pass(call, tell).await });
                }
            }
        }
    }

    /// Waits until all that was begun is done, or so long.
    pub(crate) async fn finish(&mut self, patience: Duration) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!(calls = self.tasks.len(), "calls that take too long are given up");
            self.tasks.abort_all();
        }
    }

    /// What carries an action out, and where it queues.
    fn call(&self, action: Action, mirror: &Mirror) -> (Call, &Lane) {
        match self.cluster_call(action, mirror) {
            Ok(call) => (call, &self.writes),
            Err(Action::Launch(claim)) => (self.launch(claim), &self.launches),
            Err(action @ Action::Drift(_)) => (self.provider_call(action), &self.drifts),
            Err(action) => (self.provider_call(action), &self.other_calls),
        }
    }

    /// A launch may have waited for so long that its claim was given up meanwhile: nobody wants the machine any more.
    fn launch(&self, claim: Box<NodeClaim>) -> Call {
        let (deadline, provider) = (launch_deadline(&claim), Arc::clone(&self.provider));
        let call = self.provider_call(Action::Launch(claim));
        Box::pin(async move { unless_late(deadline, provider.name(), call).await })
    }

    /// A call of the API server; an action of another kind is given back.
    fn cluster_call(&self, action: Action, mirror: &Mirror) -> Result<Call, Action> {
        let (writer, what) = (self.writer.clone(), summary(&action));
        let call: Call = match action {
            Action::CreateClaim(claim) => Box::pin(async move { writer.create_claim(&claim).await }),
            Action::UpdateClaim(after) => match mirror.claim(&after) {
                Some(before) => Box::pin(async move { writer.update_claim(&before, &after).await }),
                None => changed(),
            },
            Action::UpdateNode(after) => match mirror.node(&after) {
                Some(before) => Box::pin(async move { writer.update_node(&before, &after).await }),
                None => changed(),
            },
            Action::UpdatePool(after) => match mirror.pool(&after) {
                Some(before) => Box::pin(async move { writer.update_pool(&before, &after).await }),
                None => changed(),
            },
            Action::UpdateOverlay(after) => match mirror.overlay(&after) {
                Some(before) => Box::pin(async move { writer.update_overlay(&before, &after).await }),
                None => changed(),
            },
            Action::DeleteClaim { name, uid } => Box::pin(async move { writer.delete::<NodeClaim>(&name, &uid).await }),
            Action::DeleteNode { name, uid } => Box::pin(async move { writer.delete::<Node>(&name, &uid).await }),
            Action::Evict { pod, uid } => Box::pin(async move { writer.evict(&pod, &uid).await }),
            Action::DeletePod { pod, uid, grace_period } => {
                Box::pin(async move { writer.delete_pod(&pod, &uid, grace_period).await })
            }
            other => return Err(other),
        };
        Ok(Box::pin(async move {
            let late = |_| ActionResult::Refused(Refusal::Unavailable(format!("no answer in {API_TIMEOUT:?}")));
            let result = tokio::time::timeout(API_TIMEOUT, call).await.unwrap_or_else(late);
            // All else is answered by looking again.
            if let ActionResult::Refused(refusal @ (Refusal::Invalid(_) | Refusal::Unavailable(_))) = &result {
                tracing::warn!(what, %refusal, "a write failed");
            }
            result
        }))
    }

    fn provider_call(&self, action: Action) -> Call {
        let (provider, metrics) = (Arc::clone(&self.provider), Arc::clone(&self.metrics));
        Box::pin(async move {
            let start = std::time::Instant::now();
            let method = action.provider_method().unwrap_or_default();
            let result = action.call(&*provider).await;
            let result = result.unwrap_or_else(|other| panic!("an action that no provider carries out: {other:?}"));
            metrics.provider_called(provider.name(), method, start.elapsed(), &result);
            if let Some(error) = provider_error(&result) {
                tracing::warn!(provider = provider.name(), method, %error, "a call of the provider failed");
            }
            result
        })
    }

    /// Tells people. Notes are worth less than what they are about: where too many wait, some are dropped and counted.
    fn note(&mut self, note: Note, mirror: &Mirror) {
        let reference = mirror.reference(&note.object);
        self.note_on(reference, note);
    }

    /// The same of an object that events of the cluster name so.
    pub(crate) fn note_on(&mut self, reference: ObjectReference, note: Note) {
        let Note { object, is_warning, reason, mut message } = note;
        if is_warning {
            tracing::warn!(object = ?object, %reason, message, "noted");
        } else {
            tracing::info!(object = ?object, %reason, message, "noted");
        }
        let Ok(permit) = Arc::clone(&self.notes).try_acquire_owned() else {
            self.metrics.note_dropped();
            return;
        };
        if message.len() > MAX_NOTE {
            message.truncate(message.floor_char_boundary(MAX_NOTE));
        }
        let type_ = if is_warning { EventType::Warning } else { EventType::Normal };
        let (reason, action) = (reason.to_string(), reason.into_owned());
        let event = Event { type_, reason, note: Some(message), action, secondary: None };
        let (recorder, leads) = (self.recorder.clone(), self.leads.clone());
        self.tasks.spawn(async move {
            let _permit = permit;
            if !leads.borrow().is_on() {
                return;
            }
            match tokio::time::timeout(API_TIMEOUT, recorder.publish(&event, &reference)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "an event was not written"),
                Err(_) => tracing::debug!("an event was not written in time"),
            }
        });
    }
}

/// Makes a call of a provider, if it is not too late for it.
async fn unless_late(deadline: Option<Timestamp>, provider: &str, call: Call) -> ActionResult {
    if deadline.is_none_or(|deadline| clock::now() < deadline) {
        return call.await;
    }
    let message = "it waited for others until its claim was given up";
    let error = ProviderError::new(provider, "create", ProviderErrorKind::Unavailable, message);
    ActionResult::Launched(Err(error.into()))
}

/// The object is not what the action was made from.
fn changed() -> Call {
    Box::pin(async { ActionResult::Refused(Refusal::Conflict) })
}

/// What is asked of the API server, for people.
fn summary(action: &Action) -> String {
    match action {
        Action::CreateClaim(claim) => format!("create NodeClaim {}", claim.name()),
        Action::UpdateClaim(claim) => format!("update NodeClaim {}", claim.name()),
        Action::UpdateNode(node) => format!("update Node {}", node.metadata.name),
        Action::UpdatePool(pool) => format!("update NodePool {}", pool.name()),
        Action::UpdateOverlay(overlay) => format!("update NodeOverlay {}", overlay.metadata.name),
        Action::DeleteClaim { name, .. } => format!("delete NodeClaim {name}"),
        Action::DeleteNode { name, .. } => format!("delete Node {name}"),
        Action::Evict { pod, .. } => format!("evict Pod {pod}"),
        Action::DeletePod { pod, .. } => format!("delete Pod {pod}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In which second each of ten calls is made.
    async fn passed(term: Term) -> Vec<u64> {
        let (_leading, leads) = watch::channel(term);
        let lane = Lane::new(4, Some(2), &leads);
        let start = tokio::time::Instant::now();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..10 {
            let (lane, sender) = (lane.clone(), sender.clone());
            tokio::spawn(
                lane.pass(async move { start.elapsed() }, async move |at| sender.send(at).expect("a listener")),
            );
        }
        drop(sender);
        let mut seconds = Vec::new();
        while let Some(at) = receiver.recv().await {
            seconds.push(at.as_secs());
        }
        seconds
    }

    #[tokio::test]
    async fn no_machine_is_bought_for_a_claim_that_was_given_up_meanwhile() {
        let (past, future) = (clock::now(), clock::now() + Duration::from_mins(1));
        for (deadline, is_made) in [(Some(past), false), (Some(future), true), (None, true)] {
            let call: Call = Box::pin(async { ActionResult::Written });
            let result = unless_late(deadline, "test", call).await;
            assert_eq!(matches!(result, ActionResult::Written), is_made, "{deadline:?}");
            assert_eq!(matches!(result, ActionResult::Launched(Err(_))), !is_made, "{deadline:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_lets_no_more_calls_through_than_it_should() {
        assert_eq!(passed(Term::Always).await, [0, 0, 0, 0, 2, 2, 2, 2, 4, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_are_not_made_once_the_lease_has_run_out_though_nobody_says_so() {
        let end = tokio::time::Instant::now() + Duration::from_secs(3);
        assert_eq!(passed(Term::Until(end)).await, [0, 0, 0, 0, 2, 2, 2, 2]);
        assert_eq!(passed(Term::Never).await, Vec::<u64>::new());
    }
}
