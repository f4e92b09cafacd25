use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use karpenter_core::{
    OfferingKey, Timestamp, labels,
    provider::{ProviderError, ProviderEvent, ProviderId},
};

use super::message::{Kind, Message, parse};
use crate::{
    api::{ApiError, AwsApi},
    ec2::queue::QueueMessage,
    provider::Ec2Provider,
};

/// EC2 takes spot machines back so long after it said so.
const SPOT_NOTICE: Duration = Duration::from_mins(2);
/// The most messages that wait for the engine. More are left in the queue, which shows them again.
const MAX_WAITING: usize = 1000;

/// Reads the queue of what happens to machines and tells it to the engine, as events of the provider.
///
/// A message stays in the queue until the engine has read what it says: one that was received and not deleted is received
/// again by whoever comes next. To be told twice of a machine does no harm.
pub struct InterruptionQueue {
    api: Arc<dyn AwsApi>,
    provider: Ec2Provider,
    name: String,
    url: Option<String>,
    /// Messages by their ids: what they are deleted by, and the number of the event after which they may be.
    waiting: BTreeMap<String, (String, u64)>,
}

impl fmt::Debug for InterruptionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterruptionQueue")
            .field("name", &self.name)
            .field("url", &self.url)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl InterruptionQueue {
    /// Reads the queue of this name and tells `provider`.
    pub fn new(api: Arc<dyn AwsApi>, provider: Ec2Provider, name: impl Into<String>) -> Self {
        Self { api, provider, name: name.into(), url: None, waiting: BTreeMap::new() }
    }

    /// Waits for messages, which may take 20 seconds, and tells what they say. To be called again and again.
    ///
    /// What the messages say is given back too, for those who count or show it; one that cannot be read is deleted.
    ///
    /// # Errors
    /// The queue did not answer, or something that is needed to know whose a machine is. What was not told comes again.
    pub async fn poll(&mut self) -> Result<Vec<Message>, ProviderError> {
        // Machines that another process bought are no strangers.
        self.provider.learn_machines().await?;
        self.receive().await.map_err(|error| error.to_error("next_events"))
    }

    async fn receive(&mut self) -> Result<Vec<Message>, ApiError> {
        let url = match &self.url {
            Some(url) => url.clone(),
            None => self.url.insert(self.api.get_queue_url(&self.name).await?).clone(),
        };
        let deleted = self.delete_read(&url).await;
        let received = match self.api.receive_messages(&url).await {
            Err(error) if error.is_not_found() => {
                // It may be made anew, with another address.
                self.url = None;
                return Err(error);
            }
            answer => answer?,
        };
        let (mut out, mut outcome) = (Vec::new(), deleted);
        for message in received {
            if let Some(known) = self.waiting.get_mut(&message.id) {
                known.0 = message.receipt;
                continue;
            }
            // One that cannot be deleted keeps no other from being heard: there may be two minutes left.
            let (said, done) = self.take_in(&url, message).await;
            out.extend(said);
            outcome = outcome.and(done);
        }
        outcome.map(|()| out)
    }

    /// Deletes the messages that the engine has read. One that cannot be deleted is tried again, and keeps no other.
    async fn delete_read(&mut self, url: &str) -> Result<(), ApiError> {
        let read = self.provider.events_read();
        let done: Vec<String> =
            self.waiting.iter().filter(|(_, (_, event))| *event <= read).map(|(id, _)| id.clone()).collect();
        let mut outcome = Ok(());
        for id in done {
            let Some((receipt, _)) = self.waiting.get(&id) else { continue };
            match self.delete(url, receipt).await {
                Ok(()) => drop(self.waiting.remove(&id)),
                refused => outcome = refused,
            }
        }
        outcome
    }

    /// What a message says, if it can be read, and whether it could be deleted where the engine has nothing to read of it.
    async fn take_in(&mut self, url: &str, received: QueueMessage) -> (Option<Message>, Result<(), ApiError>) {
        let parsed = received.body.as_deref().map(parse);
        let Some(Ok(message)) = parsed else {
            return (None, self.delete(url, &received.receipt).await);
        };
        let told = message.instance_ids.iter().filter_map(|instance| self.tell(&message, instance));
        let done = match told.max() {
            Some(event) if self.waiting.len() < MAX_WAITING => {
                self.waiting.insert(received.id, (received.receipt, event));
                Ok(())
            }
            Some(_) => Ok(()),
            None => self.delete(url, &received.receipt).await,
        };
        self.provider.received(&message);
        (Some(message), done)
    }

    async fn delete(&self, url: &str, receipt: &str) -> Result<(), ApiError> {
        self.api.delete_message(url, receipt).await?;
        self.provider.deleted_message();
        Ok(())
    }

    /// Tells of one machine, if it is one of this cluster. Returns the number of the event that makes the engine act.
    fn tell(&self, message: &Message, instance: &str) -> Option<u64> {
        let zone = self.provider.zone_of(instance)?;
        self.note_shortage(message.kind, instance, &zone);
        let id = crate::provider::provider_id(&zone, instance);
        self.provider.tell(notice(message.kind, id.clone()));
        message.kind.drains().then(|| self.provider.tell(event(message, id)))
    }

    /// What was taken back is not to be had for a while. EC2 is not asked what it was: many machines may be taken back at
    /// once, and an answer that does not come would cost their pods the time that they have.
    fn note_shortage(&self, kind: Kind, instance: &str, zone: &str) {
        let Some(machine) = self.provider.kind_of(instance) else { return };
        match (kind, machine.reservation) {
            (Kind::SpotInterrupted, _) => {
                let (instance_type, zone) = (machine.instance_type, zone.to_owned());
                self.provider.avoid(OfferingKey { instance_type, zone, capacity_type: labels::SPOT.to_owned() });
            }
            (Kind::CapacityReservationInterrupted, Some(reservation)) => {
                self.provider.exhaust_reservation(&reservation);
            }
            _ => {}
        }
    }
}

fn notice(kind: Kind, id: ProviderId) -> ProviderEvent {
    let (is_warning, reason, what) = match kind {
        Kind::SpotInterrupted => (true, "SpotInterrupted", "EC2 takes it back in two minutes"),
        Kind::CapacityReservationInterrupted => {
            (true, "CapacityReservationInstanceInterrupted", "EC2 takes it back for its reservation")
        }
        Kind::RebalanceRecommendation => (false, "SpotRebalanceRecommendation", "EC2 may take it back soon"),
        Kind::ScheduledChange => (true, "InstanceUnhealthy", "AWS will change something about it"),
        Kind::InstanceStopped => (true, "InstanceStopping", "it is being stopped, or is"),
        Kind::InstanceTerminated | Kind::NoOp => (true, "InstanceTerminating", "it is being terminated, or is"),
    };
    let message = format!("{}: {what}", id.as_str());
    ProviderEvent::Notice { id, is_warning, reason: reason.into(), message }
}

fn event(message: &Message, id: ProviderId) -> ProviderEvent {
    let at: Timestamp = message.time;
    match message.kind {
        Kind::SpotInterrupted => ProviderEvent::Interruption { id, at: at + SPOT_NOTICE },
        _ => ProviderEvent::Ending { id, at },
    }
}
