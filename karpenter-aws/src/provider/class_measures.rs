//! What is measured of the conditions of node classes, by Karpenter's names.

use karpenter_core::{
    Timestamp,
    api::{Condition, ConditionStatus},
    provider::Meter,
};

use super::State;
use crate::nodeclass::Ec2NodeClass;

const TRANSITIONS: &str = "operator_ec2nodeclass_status_condition_transitions_total";
const TRANSITION_TIME: &str = "operator_ec2nodeclass_status_condition_transition_seconds";
const CURRENT_TIME: &str = "operator_ec2nodeclass_status_condition_current_status_seconds";
const CONDITIONS: &str = "operator_ec2nodeclass_status_condition_count";
const TERMINATING_TIME: &str = "operator_ec2nodeclass_termination_current_time_seconds";
const TERMINATION_TIME: &str = "operator_ec2nodeclass_termination_duration_seconds";

/// Bounds of times in seconds, each twice the one before: up to two and a quarter hours.
const SECONDS: [f64; 15] =
    [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];

impl State {
    /// A class is not what it was: conditions that came, or are another way now, count.
    pub(crate) fn note_transitions(&mut self, old: &Ec2NodeClass, new: &Ec2NodeClass) {
        for condition in &new.status.conditions {
            let before = old.status.conditions.iter().find(|own| own.r#type == condition.r#type);
            if before.is_some_and(|before| before.status == condition.status) {
                continue;
            }
            let labels = vec![kind(condition), status(condition), ("reason", condition.reason.clone())];
            self.meter.count(TRANSITIONS, labels);
            let since = before.and_then(|before| Some((before, before.last_transition_time?)));
            if let (Some((before, since)), Some(until)) = (since, condition.last_transition_time) {
                let labels = vec![kind(before), status(before)];
                self.meter.observe(TRANSITION_TIME, labels, &SECONDS, until.since(since).as_secs_f64());
            }
        }
    }

    /// A class is gone.
    pub(crate) fn note_end(&mut self, class: &Ec2NodeClass, now: Timestamp) {
        if let Some(since) = class.metadata.deletion_timestamp {
            self.meter.observe(TERMINATION_TIME, Vec::new(), &SECONDS, now.since(since).as_secs_f64());
        }
    }

    /// How classes are now.
    pub(crate) fn measure_classes(&self, meter: &mut Meter, now: Timestamp) {
        for class in self.classes.values() {
            let named = || vec![("namespace", String::new()), ("name", class.name().to_owned())];
            if let Some(since) = class.metadata.deletion_timestamp {
                meter.set(TERMINATING_TIME, named(), now.since(since).as_secs_f64());
            }
            for condition in &class.status.conditions {
                let mut labels = named();
                labels.extend([kind(condition), status(condition), ("reason", condition.reason.clone())]);
                if let Some(since) = condition.last_transition_time {
                    meter.set(CURRENT_TIME, labels.clone(), now.since(since).as_secs_f64());
                }
                meter.set(CONDITIONS, labels, 1.0);
            }
        }
    }
}

fn kind(condition: &Condition) -> (&'static str, String) {
    ("type", condition.r#type.clone())
}

fn status(condition: &Condition) -> (&'static str, String) {
    let said = match condition.status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    };
    ("status", said.to_owned())
}
