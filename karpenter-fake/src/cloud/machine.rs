use std::{collections::BTreeMap, sync::Arc};

use karpenter_core::{
    OfferingKey, Price, Quantity, ResourceList, Timestamp,
    api::{Condition, ConditionStatus, Node, ObjectMeta, Taint},
    labels,
    provider::{Instance, Launched, ProviderId},
};

/// A machine that was sold.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) id: ProviderId,
    pub(super) node_name: String,
    pub(super) claim_uid: String,
    pub(super) offering: OfferingKey,
    pub(super) price: Price,
    /// Since when it costs that.
    pub(super) priced_since: Timestamp,
    /// The labels that the node registers with.
    pub(super) labels: Arc<BTreeMap<String, String>>,
    pub(super) taints: Vec<Taint>,
    pub(super) capacity: ResourceList,
    pub(super) allocatable: ResourceList,
    /// Memory that was promised and is not there.
    pub(super) withheld_bytes: i64,
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "only the simulated cluster asks for it"))]
    pub(super) startup_taints: Vec<Taint>,
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "only the simulated cluster asks for it"))]
    pub(super) launched_at: Timestamp,
    /// When its node is there.
    pub(super) ready_at: Timestamp,
    /// Whether its deletion was asked for.
    pub(super) is_terminating: bool,
    /// When it is gone, if that is known.
    pub(super) gone_at: Option<Timestamp>,
}

impl Machine {
    pub(super) fn instance(&self) -> Instance {
        let mut instance = Instance::new(self.id.clone(), &self.claim_uid, self.labels.clone());
        instance.is_terminating = self.is_terminating;
        instance
    }

    pub(super) fn launched(&self) -> Launched {
        Launched::new(self.instance(), self.capacity.clone(), self.allocatable.clone())
    }

    pub(super) fn node(&self) -> Node {
        let mut node = Node::default();
        node.metadata = ObjectMeta::named(&self.node_name);
        node.metadata.labels = BTreeMap::clone(&self.labels);
        node.metadata.labels.insert(labels::HOSTNAME.to_owned(), self.node_name.clone());
        node.metadata.creation_timestamp = Some(self.ready_at);
        self.id.as_str().clone_into(&mut node.spec.provider_id);
        node.spec.taints.clone_from(&self.taints);
        node.status.capacity = self.capacity.clone();
        node.status.allocatable = self.allocatable.clone();
        let withheld = ResourceList::from_iter([("memory", Quantity::from_bytes(self.withheld_bytes))]);
        if self.withheld_bytes > 0 {
            node.status.capacity.subtract(&withheld);
            node.status.allocatable.subtract(&withheld);
        }
        let mut ready = Condition::default();
        "Ready".clone_into(&mut ready.r#type);
        ready.status = ConditionStatus::True;
        "KubeletReady".clone_into(&mut ready.reason);
        ready.last_transition_time = Some(self.ready_at);
        node.status.conditions.push(ready);
        node
    }
}
