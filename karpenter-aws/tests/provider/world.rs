use std::sync::Arc;

use karpenter_aws::{
    ec2::{
        instance::{Ec2Instance, InstanceState},
        reservation::CapacityReservation,
    },
    mem::{DISCOVERY, MemoryAws},
    nodeclass::{
        AmiSelectorTerm, CapacityReservationSelectorTerm, Ec2NodeClass, SecurityGroupSelectorTerm, SubnetSelectorTerm,
    },
    provider::{ClusterAccess, Ec2Provider, ProviderOptions},
};
use karpenter_core::{
    api::{NodeClaim, NodePool, NodeSelectorRequirement, Operator},
    labels,
    provider::Launched,
};

use crate::cluster::{Cluster, Machines};

pub(crate) struct World {
    pub(crate) aws: MemoryAws,
    pub(crate) provider: Ec2Provider,
}

pub(crate) fn class() -> Ec2NodeClass {
    let tags = std::collections::BTreeMap::from([(DISCOVERY.to_owned(), "test".to_owned())]);
    let mut class = Ec2NodeClass::named("default");
    "class-uid".clone_into(&mut class.metadata.uid);
    "node".clone_into(&mut class.spec.role);
    class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias("al2023@latest")];
    class.spec.subnet_selector_terms = vec![SubnetSelectorTerm { tags: tags.clone(), ..Default::default() }];
    class.spec.security_group_selector_terms = vec![SecurityGroupSelectorTerm { tags, ..Default::default() }];
    class
}

pub(crate) fn pool() -> NodePool {
    let mut pool = NodePool::named("general");
    pool.spec.template.spec.node_class_ref = class().reference();
    pool
}

pub(crate) fn options() -> ProviderOptions {
    let cluster = ClusterAccess {
        endpoint: "https://test.example".to_owned(),
        ca_bundle: "Y2E=".to_owned(),
        version: "1.31".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        dns_address: None,
    };
    ProviderOptions::new("test", "us-west-2", cluster)
}

pub(crate) fn claim(uid: &str, requirements: &[(&str, &[&str])]) -> NodeClaim {
    let mut claim = NodeClaim::named(format!("general-{uid}"));
    uid.clone_into(&mut claim.metadata.uid);
    claim.metadata.labels.insert(labels::NODE_POOL.to_owned(), "general".to_owned());
    claim.spec.node_class_ref = class().reference();
    for (key, values) in requirements {
        claim.spec.requirements.push(NodeSelectorRequirement::new(*key, Operator::In, values.iter().copied()));
    }
    claim
}

pub(crate) fn label<'l>(launched: &'l Launched, key: &str) -> &'l str {
    launched.instance.labels.get(key).map_or("", String::as_str)
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(class())
    }

    pub(crate) fn with(class: Ec2NodeClass) -> Self {
        Self::of(options(), class)
    }

    pub(crate) fn of(options: ProviderOptions, class: Ec2NodeClass) -> Self {
        let aws = MemoryAws::small();
        let provider = Ec2Provider::new(Arc::new(aws.clone()), Arc::new(aws.clock().clone()), options);
        provider.apply_class(class);
        Self { aws, provider }
    }

    /// The class draws on the reservation `cr-1`, of so many `m5.xlarge` in `us-west-2b` unless `change` says otherwise.
    pub(crate) fn reserving(count: u32, change: impl FnOnce(&mut CapacityReservation)) -> Self {
        let mut class = class();
        class.spec.capacity_reservation_selector_terms =
            vec![CapacityReservationSelectorTerm { id: "cr-1".to_owned(), ..Default::default() }];
        let mut reservation = CapacityReservation {
            id: "cr-1".to_owned(),
            instance_type: "m5.xlarge".to_owned(),
            zone: "us-west-2b".to_owned(),
            available_count: count,
            total_count: count,
            match_criteria: "targeted".to_owned(),
            state: "active".to_owned(),
            ..CapacityReservation::default()
        };
        change(&mut reservation);
        let world = Self::with(class);
        world.aws.with(|state| state.reservations.push(reservation));
        world
    }

    /// Another process takes over.
    pub(crate) fn restart(&mut self) {
        let (aws, clock) = (Arc::new(self.aws.clone()), Arc::new(self.aws.clock().clone()));
        self.provider = Ec2Provider::new(aws, clock, options());
        self.provider.apply_class(class());
    }

    pub(crate) fn machines(&self) -> usize {
        there(&self.aws).len()
    }
}

/// The machines that are not on their way out.
fn there(aws: &MemoryAws) -> Vec<Ec2Instance> {
    aws.with(|state| state.instances.values().filter(|machine| !machine.state.is_ending()).cloned().collect())
}

impl Machines for MemoryAws {
    async fn there(&self) -> Vec<Ec2Instance> {
        there(self)
    }
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::of(World::new())
    }

    pub(crate) fn of(World { aws, provider }: World) -> Self {
        let clock = aws.clock().clone();
        Self::with(aws, clock, provider, pool())
    }

    /// The machines that are not on their way out.
    pub(crate) fn machines(&self) -> Vec<String> {
        there(&self.aws).into_iter().map(|machine| machine.id).collect()
    }

    /// The machine is gone, without anybody having asked for it.
    pub(crate) fn kill(&self, id: &str) {
        self.aws.with(|state| {
            if let Some(machine) = state.instances.get_mut(id) {
                machine.state = InstanceState::Terminated;
            }
        });
    }
}
