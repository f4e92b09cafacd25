//! Names of machines that are used again.

use super::{Engine, Work};
use crate::{
    api::{Node, NodeClaim},
    cluster::tenancy,
    provider::ProviderId,
};

impl Engine {
    /// A machine of this name was bought for the claim of this uid. Providers use a name again only for a machine that came after
    /// the last one was gone: whoever had that one has none any more, and what was asked of it and not answered yet is over.
    pub(super) fn move_in(&mut self, id: &ProviderId, uid: &str) {
        self.outbox.forget_machine(id);
        self.ends.forget_machine(id);
        let naming = self.store.claims_naming(id.as_str()).filter(|claim| claim.metadata.uid != uid).cloned();
        for claim in naming.collect::<Vec<_>>() {
            self.lives.of(&claim).is_succeeded = true;
            self.agenda.add(Work::Claim(claim.name().to_owned()));
        }
        for name in self.lives.claims_of(id) {
            if let Some(life) = self.lives.named(&name) {
                life.machine = None;
            }
            self.agenda.add(Work::Claim(name));
        }
        for node in self.store.nodes_on(id.as_str()) {
            self.agenda.add(Work::Node(node.metadata.name.clone()));
        }
    }

    /// Whether the machine of a claim is gone, because another claim has one of the same name.
    pub(super) fn is_succeeded(&self, claim: &NodeClaim) -> bool {
        let is_known = self.lives.get(claim.name(), &claim.metadata.uid).is_some_and(|life| life.is_succeeded);
        let tenant = || self.store.claim_of_machine(&claim.status.provider_id);
        is_known || tenant().is_some_and(|tenant| tenant.metadata.uid != claim.metadata.uid)
    }

    /// Whether the machine of a node is gone, because a claim that the node does not belong to has one of the same name.
    pub(super) fn is_left_behind(&self, node: &Node) -> bool {
        if let Some(claim) = self.store.claim_of(node) {
            return self.is_succeeded(claim);
        }
        let id = &node.spec.provider_id;
        let is_used = || self.lives.buyer_of(id).is_some() || self.store.claim_of_machine(id).is_some();
        tenancy::is_claimed(node) && is_used()
    }
}
