//! What becomes of what the engine asks for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karpenter_core::{
    Catalog, InstanceType, OfferingKey, Requirements,
    api::{NodeClaim, conditions::DISRUPTION_REASON},
    engine::{Action, ActionResult, Refusal},
    labels,
    provider::{
        CreateError, Deletion, Instance, Launched, ProviderError, ProviderErrorKind, ProviderEvents, ProviderId,
    },
};

use super::{Machine, World};

impl World {
    pub(super) fn act(&mut self, action: Action) -> ActionResult {
        match action {
            Action::CreateClaim(_) if self.cannot_create_claims => {
                return ActionResult::Refused(Refusal::Invalid("forbidden".to_owned()));
            }
            Action::CreateClaim(claim) => {
                let mut claim = *claim;
                self.uids += 1;
                claim.metadata.uid = format!("uid-{}", self.uids);
                claim.metadata.creation_timestamp = Some(self.now);
                self.put_claim(claim);
            }
            Action::UpdateClaim(claim) => return self.update_claim(*claim),
            Action::DeleteClaim { name, uid } => {
                if let Some(refusal) = &self.deletion_refusal {
                    return ActionResult::Refused(refusal.clone());
                }
                let Some(mut claim) = self.claims.get(&name).filter(|c| c.metadata.uid == uid).cloned() else {
                    return ActionResult::Refused(Refusal::NotFound);
                };
                claim.metadata.deletion_timestamp.get_or_insert(self.now);
                self.put_claim(claim);
            }
            Action::UpdateNode(node) if self.contested_node_writes > 0 => {
                self.contested_node_writes -= 1;
                let theirs = self.nodes[&node.metadata.name].clone();
                self.put_node(theirs);
                for request in self.engine.tick(self.now) {
                    self.carry_out(request);
                }
                return ActionResult::Refused(Refusal::Conflict);
            }
            Action::UpdateNode(_) if self.node_refusal.is_some() => {
                return ActionResult::Refused(self.node_refusal.clone().expect("there is one"));
            }
            Action::UpdateNode(node) => {
                let known = self.nodes.get(&node.metadata.name).map(|n| n.metadata.resource_version.clone());
                if known.as_ref() != Some(&node.metadata.resource_version) {
                    return ActionResult::Refused(Refusal::Conflict);
                }
                self.put_node(*node);
            }
            Action::DeleteNode { name, .. } => {
                let Some(mut node) = self.nodes.get(&name).cloned() else {
                    return ActionResult::Refused(Refusal::NotFound);
                };
                node.metadata.deletion_timestamp.get_or_insert(self.now);
                self.put_node(node);
            }
            Action::UpdatePool(pool) => self.put_pool(*pool),
            Action::UpdateOverlay(overlay) => self.put_overlay(*overlay),
            Action::Evict { pod, .. } if self.held.contains(&pod) => {
                return ActionResult::Refused(Refusal::TooManyRequests("held".to_owned()));
            }
            Action::Evict { pod, .. } if self.ends_pods_at_once => {
                self.end_pod(&pod, Duration::ZERO);
                self.collect_pods();
            }
            Action::Evict { pod, .. } => {
                let asked = self.pods.get(&pod).and_then(|pod| pod.spec.termination_grace_period_seconds);
                self.end_pod(&pod, Duration::from_secs(asked.unwrap_or(2)));
            }
            Action::DeletePod { pod, grace_period, .. } => self.end_pod(&pod, grace_period),
            other => return self.act_of_cloud(&other),
        }
        ActionResult::Written
    }

    fn act_of_cloud(&mut self, action: &Action) -> ActionResult {
        match action {
            Action::Launch(claim) => ActionResult::Launched(self.launch(claim)),
            Action::Terminate(id) => {
                let is_gone = self.machines.remove(id.as_str()).is_none();
                let is_over = is_gone || self.reuses_ids;
                ActionResult::Terminated(Ok(if is_over { Deletion::Gone } else { Deletion::Started }))
            }
            Action::Get(id) => ActionResult::Found(Ok(self.machines.get(id.as_str()).map(|m| m.instance.clone()))),
            Action::List => ActionResult::Listed(Ok(self.machines.values().map(|m| m.instance.clone()).collect())),
            Action::Catalog(_) => ActionResult::Catalog(self.catalog()),
            Action::Drift(_) => ActionResult::Drift(Ok(None)),
            Action::NextEvents(cursor) => {
                let events = std::mem::take(&mut self.provider_events);
                ActionResult::Events(Ok(ProviderEvents::new(events, *cursor)))
            }
            _ => ActionResult::Written,
        }
    }

    fn catalog(&self) -> Result<Arc<Catalog>, ProviderError> {
        if let Some(kind) = self.catalog_error {
            return Err(ProviderError::new("test", "catalog", kind, "no such key"));
        }
        match &self.class_fault {
            Some(why) => Err(ProviderError::new("test", "catalog", ProviderErrorKind::NodeClassNotReady, why)),
            None => Ok(Arc::new(Catalog::new(self.types.clone()).expect("valid"))),
        }
    }

    fn update_claim(&mut self, claim: NodeClaim) -> ActionResult {
        if self.contested_reasons > 0 && claim.status.is_true(DISRUPTION_REASON) {
            self.contested_reasons -= 1;
            let theirs = self.claims[claim.name()].clone();
            self.put_claim(theirs);
            return ActionResult::Refused(Refusal::Conflict);
        }
        let Some(known) = self.claims.get(claim.name()) else { return ActionResult::Refused(Refusal::NotFound) };
        if known.metadata.resource_version != claim.metadata.resource_version {
            return ActionResult::Refused(Refusal::Conflict);
        }
        if let Some(refusal) = self.machine_refusal.as_ref().filter(|_| !claim.status.provider_id.is_empty()) {
            return ActionResult::Refused(refusal.clone());
        }
        self.put_claim(claim);
        ActionResult::Written
    }

    fn launch(&mut self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        if !self.launch_errors.is_empty() {
            return Err(self.launch_errors.remove(0));
        }
        let known = self.machines.values().find(|m| m.instance.claim_uid == claim.metadata.uid);
        if let Some(machine) = known {
            return Ok(Self::launched(machine));
        }
        let asked: Requirements = claim.spec.requirements.iter().collect();
        let asked = asked.get(labels::INSTANCE_TYPE).expect("types");
        let has_room = |t: &&InstanceType| {
            let has = t.allocatable();
            claim
                .spec
                .resources
                .requests
                .iter()
                .all(|(name, wanted)| has.get(name.as_str()).is_some_and(|has| has >= wanted))
        };
        let meant = self.types.iter().filter(|t| asked.admits(Some(&t.name)));
        let mut types: Vec<InstanceType> = meant.filter(has_room).cloned().collect();
        types.sort_by_key(|t| t.offerings[0].price);
        let keys: Vec<OfferingKey> = types.iter().map(|t| t.offerings[0].key(&t.name)).collect();
        let Some(chosen) = types.into_iter().find(|t| !self.exhausted.contains(&t.offerings[0].key(&t.name))) else {
            return Err(CreateError::InsufficientCapacity { offerings: keys });
        };
        self.uids += 1;
        let id = self.free_id();
        let offering = &chosen.offerings[0];
        let labels = BTreeMap::from([
            (labels::INSTANCE_TYPE.to_owned(), chosen.name.clone()),
            (labels::ZONE.to_owned(), offering.label(labels::ZONE).to_owned()),
            (labels::CAPACITY_TYPE.to_owned(), offering.label(labels::CAPACITY_TYPE).to_owned()),
        ]);
        let instance = Instance::new(ProviderId::new(&id), &claim.metadata.uid, labels);
        let machine = Machine { instance, instance_type: chosen, launched: self.now };
        let launched = Self::launched(&machine);
        self.machines.insert(id, machine);
        self.bought += 1;
        Ok(launched)
    }

    fn free_id(&self) -> String {
        if !self.reuses_ids {
            return format!("machine-{}", self.uids);
        }
        let mut slots = (0..).map(|slot| format!("slot-{slot}"));
        slots.find(|slot| !self.machines.contains_key(slot)).expect("there is no last slot")
    }

    fn launched(machine: &Machine) -> Launched {
        let own = &machine.instance_type;
        Launched::new(machine.instance.clone(), own.capacity.clone(), own.allocatable())
    }
}
