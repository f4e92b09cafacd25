//! What is counted and measured, by Karpenter's names.

use std::collections::BTreeMap;

use karpenter_core::{
    Catalog, OfferingKey, Price, Timestamp,
    provider::{Measurement, Meter},
};

use super::{Ec2Provider, Inner, State};
use crate::{
    batch::Batch,
    ec2::fleet::FleetError,
    interruption::{Ailment, message::Message},
};

const RECEIVED: &str = "karpenter_interruption_received_messages_total";
const DELETED: &str = "karpenter_interruption_deleted_messages_total";
const IN_QUEUE: &str = "karpenter_interruption_message_queue_duration_seconds";
const UNHEALTHY: &str = "karpenter_interruption_instance_status_unhealthy_total";
const LAUNCH_FAILURES: &str = "karpenter_cloudprovider_instance_launch_failures_total";
const TERMINATION_FAILURES: &str = "karpenter_cloudprovider_instance_termination_failures_total";
const BATCH_SIZE: &str = "karpenter_cloudprovider_batcher_batch_size";
const BATCH_TIME: &str = "karpenter_cloudprovider_batcher_batch_time_seconds";
const USER_DATA: &str = "karpenter_ec2nodeclasses_userdata_bytes";
const TYPE_CPU: &str = "karpenter_cloudprovider_instance_type_cpu_cores";
const TYPE_MEMORY: &str = "karpenter_cloudprovider_instance_type_memory_bytes";
const OFFERING_AVAILABLE: &str = "karpenter_cloudprovider_instance_type_offering_available";
const OFFERING_PRICE: &str = "karpenter_cloudprovider_instance_type_offering_price_estimate";

/// Bounds of times in the queue, in seconds.
const QUEUE_SECONDS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Bounds of the times that batches wait, in seconds.
const BATCH_SECONDS: [f64; 7] = [0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0];
/// Bounds of the sizes of batches.
const BATCH_SIZES: [f64; 9] = [1.0, 2.0, 4.0, 5.0, 10.0, 25.0, 50.0, 100.0, 500.0];
const MIB: f64 = 1_048_576.0;

impl Ec2Provider {
    /// A message of the queue was read; how long it was on its way counts from the time that it says, if it says one.
    pub(crate) fn received(&self, message: &Message) {
        let waited = self.0.clock.now().since(message.time);
        let mut state = self.0.lock();
        state.meter.count(RECEIVED, vec![("message_type", message.kind.as_str().to_owned())]);
        if message.time > Timestamp::from_millis(0) {
            state.meter.observe(IN_QUEUE, Vec::new(), &QUEUE_SECONDS, waited.as_secs_f64());
        }
    }

    /// A message was deleted from the queue.
    pub(crate) fn deleted_message(&self) {
        self.0.lock().meter.count(DELETED, Vec::new());
    }

    /// A machine of the cluster is not well.
    pub(crate) fn unhealthy(&self, ailment: Ailment) {
        self.0.lock().meter.count(UNHEALTHY, vec![("category", ailment.as_str().to_owned())]);
    }
}

impl Inner {
    /// What was counted so far, and what can be bought now.
    pub(crate) fn measurements(&self) -> Vec<Measurement> {
        let now = self.clock.now();
        let state = self.lock();
        let mut meter = state.meter.clone();
        state.measure_classes(&mut meter, now);
        for info in state.market.infos() {
            let labels = || vec![("instance_type", info.instance_type.clone())];
            #[expect(clippy::cast_precision_loss, reason = "the memory of a machine is far below 2^52 MiB")]
            let memory_mib = info.memory_info.size_mib as f64;
            meter.set(TYPE_CPU, labels(), info.vcpu_info.default_vcpus.into());
            meter.set(TYPE_MEMORY, labels(), memory_mib * MIB);
        }
        measure_offerings(&mut meter, state.market.catalogs());
        let mut out = meter.measurements();
        out.append(&mut self.api.measurements());
        out
    }
}

/// An offering is available if it is so for one class.
fn measure_offerings<'c>(meter: &mut Meter, catalogs: impl Iterator<Item = &'c Catalog>) {
    let mut all: BTreeMap<OfferingKey, (bool, Option<Price>)> = BTreeMap::new();
    for own in catalogs.flat_map(Catalog::types) {
        for offering in &own.offerings {
            let (is_available, price) = all.entry(offering.key(&own.name)).or_default();
            *is_available |= offering.available;
            *price = price.iter().copied().chain(offering.known_price()).min();
        }
    }
    for (key, (is_available, price)) in all {
        let labels =
            vec![("instance_type", key.instance_type), ("capacity_type", key.capacity_type), ("zone", key.zone)];
        meter.set(OFFERING_AVAILABLE, labels.clone(), f64::from(u8::from(is_available)));
        if let Some(price) = price {
            meter.set(OFFERING_PRICE, labels, price.dollars_per_hour());
        }
    }
}

impl State {
    /// A fleet could not have something.
    pub(crate) fn note_launch_failure(&mut self, error: &FleetError, capacity_type: &str) {
        let subnets = self.resolved.values().flat_map(|resolved| &resolved.class.status.subnets);
        let zone_id = subnets.into_iter().find(|subnet| subnet.zone == error.choice.zone).map(|s| s.zone_id.clone());
        let labels = vec![
            ("zone", error.choice.zone.clone()),
            ("zone_id", zone_id.unwrap_or_default()),
            ("capacity_type", capacity_type.to_owned()),
            ("reason", error.failure().as_str().to_owned()),
        ];
        self.meter.count(LAUNCH_FAILURES, labels);
    }

    /// A machine could not be given back.
    pub(crate) fn note_termination_failure(&mut self) {
        self.meter.count(TERMINATION_FAILURES, Vec::new());
    }

    /// A batch left.
    pub(crate) fn note_batch<I>(&mut self, batcher: &str, batch: &Batch<I>) {
        let labels = || vec![("batcher", batcher.to_owned())];
        let size = u32::try_from(batch.items.len()).unwrap_or(u32::MAX);
        self.meter.observe(BATCH_SIZE, labels(), &BATCH_SIZES, size.into());
        self.meter.observe(BATCH_TIME, labels(), &BATCH_SECONDS, batch.waited.as_secs_f64());
    }

    /// The user data of machines of a class, in base64.
    pub(crate) fn note_user_data(&mut self, class: &str, base64: &str) {
        let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
        let bytes = u32::try_from(base64.len() / 4 * 3 - padding).unwrap_or(u32::MAX);
        self.meter.set(USER_DATA, vec![("nodeclass", class.to_owned())], bytes.into());
    }

    /// There is no such class any more.
    pub(crate) fn forget_user_data(&mut self, class: &str) {
        self.meter.retain(USER_DATA, |labels| labels.iter().all(|(_, value)| value != class));
    }
}
