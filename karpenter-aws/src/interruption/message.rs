//! Messages of EventBridge, as they are in the queue.

use karpenter_core::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};

/// What a message says of which instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What happens.
    pub kind: Kind,
    /// To which instances.
    pub instance_ids: Vec<String>,
    /// Since when it is known.
    pub time: Timestamp,
}

/// What happens to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// EC2 takes a spot instance back, in two minutes.
    SpotInterrupted,
    /// EC2 takes an instance of an interruptible reservation back.
    CapacityReservationInterrupted,
    /// EC2 may take a spot instance back soon.
    RebalanceRecommendation,
    /// AWS will do something to the machine.
    ScheduledChange,
    /// It is being stopped, or is.
    InstanceStopped,
    /// It is being terminated, or is.
    InstanceTerminated,
    /// Nothing that nodes need to know.
    NoOp,
}

impl Kind {
    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "spot_interrupted",
            Self::CapacityReservationInterrupted => "capacity_reservation_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceTerminated => "instance_terminated",
            Self::NoOp => "no_op",
        }
    }

    /// Whether pods must leave the instance.
    pub const fn drains(self) -> bool {
        !matches!(self, Self::RebalanceRecommendation | Self::NoOp)
    }
}

/// Why a text is no message. It says nothing to anybody, however often it is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message of EventBridge: {message}")]
pub struct MessageError {
    /// What is wrong with it.
    pub message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Envelope {
    version: String,
    source: String,
    detail_type: String,
    time: Option<Timestamp>,
    detail: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OfInstance {
    instance_id: String,
    #[serde(default)]
    state: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Health {
    service: String,
    event_type_category: String,
    affected_entities: Vec<Entity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entity {
    entity_value: String,
}

/// Reads the body of a message. One of a version, source or type that nobody here knows is [`Kind::NoOp`].
///
/// # Errors
/// It is not JSON, or what it says of an instance cannot be read.
pub fn parse(body: &str) -> Result<Message, MessageError> {
    let envelope = if body.is_empty() { Envelope::default() } else { read(serde_json::from_str(body))? };
    let time = envelope.time.unwrap_or(Timestamp::from_millis(0));
    let (kind, instance_ids) = match (&*envelope.version, &*envelope.source, &*envelope.detail_type) {
        ("0", "aws.health", "AWS Health Event") => scheduled_change(detail(envelope.detail)?),
        ("0", "aws.ec2", detail_type) => of_ec2(detail_type, envelope.detail)?,
        _ => (Kind::NoOp, Vec::new()),
    };
    Ok(Message { kind, instance_ids, time })
}

fn of_ec2(detail_type: &str, value: serde_json::Value) -> Result<(Kind, Vec<String>), MessageError> {
    let kind = match detail_type {
        "EC2 Spot Instance Interruption Warning" => Kind::SpotInterrupted,
        "EC2 Instance Rebalance Recommendation" => Kind::RebalanceRecommendation,
        "EC2 Capacity Reservation Instance Interruption Warning" => Kind::CapacityReservationInterrupted,
        "EC2 Instance State-change Notification" => {
            let found: OfInstance = detail(value)?;
            return Ok(match found.state.to_ascii_lowercase().as_str() {
                "stopping" | "stopped" => (Kind::InstanceStopped, vec![found.instance_id]),
                "shutting-down" | "terminated" => (Kind::InstanceTerminated, vec![found.instance_id]),
                _ => (Kind::NoOp, Vec::new()),
            });
        }
        _ => return Ok((Kind::NoOp, Vec::new())),
    };
    let found: OfInstance = detail(value)?;
    Ok((kind, vec![found.instance_id]))
}

fn scheduled_change(health: Health) -> (Kind, Vec<String>) {
    if health.service != "EC2" || health.event_type_category != "scheduledChange" {
        return (Kind::NoOp, Vec::new());
    }
    (Kind::ScheduledChange, health.affected_entities.into_iter().map(|entity| entity.entity_value).collect())
}

fn detail<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, MessageError> {
    read(serde_json::from_value(value))
}

fn read<T>(result: Result<T, serde_json::Error>) -> Result<T, MessageError> {
    result.map_err(|error| MessageError { message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(source: &str, detail_type: &str, detail: &str) -> String {
        format!(
            r#"{{"version":"0","account":"1","source":"{source}","detail-type":"{detail_type}",
            "time":"2026-01-01T00:00:05Z","detail":{detail}}}"#
        )
    }

    fn parsed(source: &str, detail_type: &str, detail: &str) -> (Kind, Vec<String>) {
        let found = parse(&message(source, detail_type, detail)).expect("valid");
        assert_eq!(Ok(found.time), "2026-01-01T00:00:05Z".parse());
        (found.kind, found.instance_ids)
    }

    #[test]
    fn warnings_name_an_instance() {
        for (detail_type, kind, drains) in [
            ("EC2 Spot Instance Interruption Warning", Kind::SpotInterrupted, true),
            ("EC2 Instance Rebalance Recommendation", Kind::RebalanceRecommendation, false),
            ("EC2 Capacity Reservation Instance Interruption Warning", Kind::CapacityReservationInterrupted, true),
        ] {
            let found = parsed("aws.ec2", detail_type, r#"{"instance-id":"i-1","instance-action":"terminate"}"#);
            assert_eq!(found, (kind, vec!["i-1".to_owned()]));
            assert_eq!(kind.drains(), drains);
        }
    }

    #[test]
    fn states_on_the_way_out_count_however_they_are_spelled() {
        for (state, kind) in [
            ("stopping", Kind::InstanceStopped),
            ("Stopped", Kind::InstanceStopped),
            ("shutting-down", Kind::InstanceTerminated),
            ("TERMINATED", Kind::InstanceTerminated),
            ("pending", Kind::NoOp),
            ("running", Kind::NoOp),
        ] {
            let detail = format!(r#"{{"instance-id":"i-1","state":"{state}"}}"#);
            let (found, ids) = parsed("aws.ec2", "EC2 Instance State-change Notification", &detail);
            assert_eq!((found, ids.is_empty()), (kind, kind == Kind::NoOp), "{state}");
        }
    }

    #[test]
    fn a_scheduled_change_names_all_instances_that_it_affects() {
        let detail = |service: &str, category: &str| {
            format!(
                r#"{{"service":"{service}","eventTypeCategory":"{category}",
                "affectedEntities":[{{"entityValue":"i-1"}},{{"entityValue":"i-2"}}]}}"#
            )
        };
        let found = parsed("aws.health", "AWS Health Event", &detail("EC2", "scheduledChange"));
        assert_eq!(found, (Kind::ScheduledChange, vec!["i-1".to_owned(), "i-2".to_owned()]));
        for (service, category) in [("EBS", "scheduledChange"), ("EC2", "issue")] {
            assert_eq!(parsed("aws.health", "AWS Health Event", &detail(service, category)).0, Kind::NoOp);
        }
    }

    #[test]
    fn what_nobody_knows_is_nothing_to_do() {
        let of = |body: &str| parse(body).map(|message| message.kind);
        assert_eq!(of(""), Ok(Kind::NoOp));
        assert_eq!(of("{}"), Ok(Kind::NoOp));
        assert_eq!(of(&message("aws.s3", "EC2 Spot Instance Interruption Warning", "{}")), Ok(Kind::NoOp));
        assert_eq!(of(&message("aws.ec2", "EC2 Something Else", "{}")), Ok(Kind::NoOp));
        let newer = message("aws.ec2", "EC2 Spot Instance Interruption Warning", "{}").replace(r#""0""#, r#""1""#);
        assert_eq!(of(&newer), Ok(Kind::NoOp));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let warning = |detail: &str| message("aws.ec2", "EC2 Spot Instance Interruption Warning", detail);
        for body in ["nonsense".to_owned(), "[1]".to_owned(), warning("{}"), warning(r#"{"instance-id":1}"#)] {
            assert!(parse(&body).is_err(), "{body}");
        }
    }
}
