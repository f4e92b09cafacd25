//! What changes, and what goes wrong.

use std::time::Duration;

use karpenter_core::{
    OfferingKey, Timestamp,
    api::{ConditionStatus, Node, NodeClaim, NodePool, ObjectKey, Pod},
    labels,
    provider::ProviderId,
};
use karpenter_fake::{cloud::offerings_of, sim::Rng};

use crate::setting::{SICK, Setting, one_of, percent};

/// The condition of a node by which its kubelet says that it works.
const READY: &str = "Ready";

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    Scale,
    AddWorkload,
    DeleteWorkload,
    /// The engine is stopped, and another one starts.
    Crash,
    /// Decisions are stopped before their end for some time.
    Hurry,
    /// A part of all offerings is sold out for a while.
    Shortage,
    Interrupt,
    KillInSilence,
    Kill,
    Reprice,
    Throttle,
    LoseWatch,
    /// A node becomes sick, and maybe well again.
    Sicken,
    Heal,
    /// The kubelet of a node has trouble, and no longer once nodes become well.
    Unready,
    /// Machines of a type have less memory than is said.
    Lie,
    /// A pool asks for something else, so that its nodes drift.
    ChangePool,
    /// Somebody deletes a node, a claim or a pod.
    DeleteNode,
    DeleteClaim,
    DeletePod,
    TaintByHand,
}

/// Things that happen in every cluster.
const CHANGES: [Trouble; 6] =
    [Trouble::Scale, Trouble::Scale, Trouble::Scale, Trouble::AddWorkload, Trouble::DeleteWorkload, Trouble::Reprice];
/// Things that happen in unlucky ones.
const FAULTS: [Trouble; 14] = [
    Trouble::Shortage,
    Trouble::Shortage,
    Trouble::Interrupt,
    Trouble::KillInSilence,
    Trouble::Kill,
    Trouble::Throttle,
    Trouble::LoseWatch,
    Trouble::Sicken,
    Trouble::Heal,
    Trouble::Unready,
    Trouble::Lie,
    Trouble::ChangePool,
    Trouble::DeleteNode,
    Trouble::DeleteClaim,
];

/// What may happen to the engine.
#[derive(Clone, Copy)]
pub(crate) struct Engine {
    pub(crate) crashes: bool,
    pub(crate) hurries: bool,
}

/// What happens, and when: as often as the seed is unlucky.
pub(crate) fn plan(rng: &mut Rng, [from, to]: [Timestamp; 2], engine: Engine) -> Vec<(Timestamp, Trouble)> {
    let span = to.since(from);
    let at = |rng: &mut Rng| from + rng.duration(&(Duration::ZERO..=span));
    let mut out: Vec<(Timestamp, Trouble)> = Vec::new();
    for _ in 0..4 + rng.below(12) {
        out.push((at(rng), one_of(rng, &CHANGES)));
    }
    // A quarter of all clouds is healthy.
    let faults = rng.below(4) * rng.below(12);
    for _ in 0..faults {
        out.push((at(rng), one_of(rng, &FAULTS)));
    }
    if percent(rng, 30) {
        out.push((at(rng), one_of(rng, &[Trouble::DeletePod, Trouble::TaintByHand])));
    }
    let own = [(engine.crashes, Trouble::Crash), (engine.hurries, Trouble::Hurry)];
    for (_, trouble) in own.into_iter().filter(|(happens, _)| *happens) {
        for _ in 0..=rng.below(3) {
            out.push((at(rng), trouble));
        }
    }
    out
}

impl Trouble {
    pub(crate) fn happen(self, setting: &mut Setting, rng: &mut Rng) {
        match self {
            Self::Scale => scale(setting, rng),
            Self::AddWorkload => setting.add_workload(rng),
            Self::DeleteWorkload if setting.workloads.len() > 1 => {
                let workload = setting.workloads.swap_remove(rng.index(setting.workloads.len()));
                setting.live.world_mut().delete_workload(&workload.key);
            }
            Self::DeleteWorkload => {}
            Self::Crash => setting.live.crash(),
            Self::Hurry => {
                let decisions = rng.index(300);
                setting.live.hurry(decisions, one_of(rng, &[0, 3, 20, 100, 500]));
            }
            Self::LoseWatch => {
                let duration = Duration::from_secs(5 + rng.below(120));
                setting.live.world_mut().lose_watch(duration);
            }
            Self::Shortage | Self::Reprice | Self::Throttle | Self::Lie => self.trouble_market(setting, rng),
            Self::Interrupt | Self::Kill | Self::KillInSilence => self.trouble_machine(setting, rng),
            Self::ChangePool => change_pool(setting, rng),
            Self::Heal => heal(setting),
            Self::Sicken
            | Self::Unready
            | Self::DeleteNode
            | Self::DeleteClaim
            | Self::DeletePod
            | Self::TaintByHand => self.trouble_object(setting, rng),
        }
    }

    fn trouble_market(self, setting: &mut Setting, rng: &mut Rng) {
        let (cloud, now) = (setting.live.world().cloud().clone(), setting.live.now());
        let until = now + Duration::from_secs(30 + rng.below(900));
        let kind = one_of(rng, &[labels::SPOT, labels::SPOT, labels::ON_DEMAND]);
        let offerings: Vec<OfferingKey> = offerings_of(&setting.catalog, kind);
        match self {
            Self::Shortage => {
                let part = one_of(rng, &[10, 50, 90, 100]);
                for offering in offerings {
                    if percent(rng, part) {
                        cloud.exhaust_between(offering, now, until);
                    }
                }
            }
            Self::Throttle => cloud.throttle(now, now + Duration::from_secs(5 + rng.below(180))),
            Self::Lie => {
                let types = setting.catalog.types();
                let name = &types[rng.index(types.len())].name;
                cloud.withhold_memory(name, 1 << (25 + rng.below(5)));
                setting.liars.insert(name.clone());
            }
            _ => {
                let key = &offerings[rng.index(offerings.len())];
                let price = setting.catalog.get(&key.instance_type).and_then(|own| {
                    own.offerings.iter().find(|offering| offering.key(&own.name) == *key).map(|offering| offering.price)
                });
                let factor = one_of(rng, &[0.5, 0.8, 1.25, 2.0]);
                let price = price.expect("it is of the catalog").dollars_per_hour() * factor;
                cloud.set_price(key, karpenter_core::Price::per_hour(price).expect("a price"));
            }
        }
    }

    fn trouble_machine(self, setting: &Setting, rng: &mut Rng) {
        let world = setting.live.world();
        let claims: Vec<&str> =
            world.api().list::<NodeClaim>().map(|claim| claim.status.provider_id.as_str()).collect();
        let machines: Vec<ProviderId> = claims.into_iter().filter(|id| !id.is_empty()).map(ProviderId::new).collect();
        if machines.is_empty() {
            return;
        }
        let machine = &machines[rng.index(machines.len())];
        match self {
            Self::Interrupt => drop(world.cloud().interrupt(machine, Duration::from_secs(20 + rng.below(600)))),
            _ => world.cloud().kill(machine, matches!(self, Self::Kill)),
        }
    }

    fn trouble_object(self, setting: &mut Setting, rng: &mut Rng) {
        let world = setting.live.world_mut();
        let nodes: Vec<String> = world.api().list::<Node>().map(|node| node.metadata.name.clone()).collect();
        let claims: Vec<String> = world.api().list::<NodeClaim>().map(|claim| claim.metadata.name.clone()).collect();
        let pods: Vec<ObjectKey> = world.api().list::<Pod>().map(|pod| pod.key()).collect();
        if nodes.is_empty() || claims.is_empty() || pods.is_empty() {
            return;
        }
        let node = ObjectKey::new("", &nodes[rng.index(nodes.len())]);
        match self {
            Self::Sicken => world.set_node_condition(&node.name, SICK, ConditionStatus::True),
            Self::Unready => {
                world.set_node_condition(&node.name, READY, ConditionStatus::False);
                setting.unready.insert(node.name);
            }
            Self::DeleteNode => drop(world.api_mut().delete::<Node>(&node, "")),
            Self::DeleteClaim => {
                let claim = ObjectKey::new("", &claims[rng.index(claims.len())]);
                drop(world.api_mut().delete::<NodeClaim>(&claim, ""));
            }
            Self::DeletePod => drop(world.api_mut().delete_pod(&pods[rng.index(pods.len())], "", None)),
            _ => {
                let taint =
                    karpenter_core::api::Taint::new("hands-off", "", karpenter_core::api::TaintEffect::NoSchedule);
                drop(world.api_mut().modify::<Node>(&node, |node| node.spec.taints.push(taint)));
            }
        }
    }
}

/// What was sold out is sold again, and there is time for decisions; nothing more goes wrong.
pub(crate) fn end(setting: &mut Setting) {
    heal(setting);
    setting.live.hurry(0, 0);
}

/// Nodes become well, those apart that lost their machine meanwhile.
fn heal(setting: &mut Setting) {
    let world = setting.live.world_mut();
    let nodes: Vec<_> = world.api().list::<Node>().cloned().collect();
    for node in nodes {
        let name = &node.metadata.name;
        world.set_node_condition(name, SICK, ConditionStatus::False);
        let is =
            |status: ConditionStatus| node.status.conditions.iter().any(|c| c.r#type == READY && c.status == status);
        if setting.unready.contains(name) && is(ConditionStatus::False) {
            world.set_node_condition(name, READY, ConditionStatus::True);
        }
    }
    setting.unready.clear();
}

fn scale(setting: &mut Setting, rng: &mut Rng) {
    let index = rng.index(setting.workloads.len());
    let workload = &mut setting.workloads[index];
    let is_mounted = workload.template.spec.volumes.iter().any(|volume| volume.persistent_volume_claim.is_some());
    let most = if is_mounted { 2 } else { one_of(rng, &[3, 10, 25]) };
    workload.replicas = u32::try_from(rng.below(most)).expect("small");
    setting.live.world_mut().scale(&workload.key, workload.replicas);
}

fn change_pool(setting: &mut Setting, rng: &mut Rng) {
    let pool = ObjectKey::new("", &setting.pools[rng.index(setting.pools.len())]);
    let value = format!("v{}", rng.below(100));
    setting.live.world_mut().api_mut().modify::<NodePool>(&pool, |pool| {
        pool.spec.template.metadata.labels.insert("version".to_owned(), value);
    });
}
