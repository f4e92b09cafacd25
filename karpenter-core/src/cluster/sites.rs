//! What places are made from.

use std::{collections::BTreeSet, sync::Arc};

use indexmap::IndexMap;

use super::{Place, place::is_going, tenancy};
use crate::{
    FxBuild,
    api::{Node, NodeClaim},
};

/// What a place is made from: a node, a claim or both, and the indices of the pods that are there or promised to it.
pub(super) struct Site {
    pub(super) node: Option<Arc<Node>>,
    pub(super) claim: Option<Arc<NodeClaim>>,
    pub(super) pods: Vec<usize>,
}

impl Site {
    pub(super) fn name(&self) -> &str {
        let of_claim = || self.claim.as_ref().map_or("", |claim| claim.name());
        self.node.as_ref().map_or_else(of_claim, |node| &node.metadata.name)
    }

    pub(super) fn is_deleting(&self) -> bool {
        is_going(self.node.as_deref(), self.claim.as_deref())
    }

    /// Whether a place is made from the same node and claim.
    pub(super) fn is_of(&self, place: &Place) -> bool {
        fn are_same<T: PartialEq>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
            one.zip(other).map_or(one.is_none() && other.is_none(), |(a, b)| Arc::ptr_eq(a, b) || a == b)
        }
        are_same(self.node.as_ref(), place.node.as_ref()) && are_same(self.claim.as_ref(), place.node_claim.as_ref())
    }
}

/// Nodes with their claims, and claims that have no node yet.
///
/// A claim without a provider id may become anything that it allows, so it is no place for further pods. It is a place for
/// those to whom it was promised. A claim is no place if its machine is that of a later claim, or its name that of a node of
/// another machine.
pub(super) fn join(nodes: Vec<Arc<Node>>, claims: &[Arc<NodeClaim>], promised: &BTreeSet<&str>) -> Vec<Site> {
    let launched = claims.iter().filter(|claim| !is_unlaunched(claim));
    // Few names of machines are those of several claims, and most often none is.
    let (mut by_id, mut further) = (IndexMap::<&str, &Arc<NodeClaim>, FxBuild>::default(), Vec::new());
    for claim in launched {
        further.extend(by_id.insert(claim.status.provider_id.as_str(), claim));
    }
    let shared: BTreeSet<&str> = further.iter().map(|claim| claim.status.provider_id.as_str()).collect();
    let site = |node, claim: Option<&Arc<NodeClaim>>| Site { node, claim: claim.cloned(), pods: Vec::new() };
    let mut sites = Vec::with_capacity(nodes.len());
    // A node may be there, under the name of its claim, before it is known whose it is.
    let is_node = |name: &str| nodes.binary_search_by(|node| node.metadata.name.as_str().cmp(name)).is_ok();
    let is_expected = |claim: &&Arc<NodeClaim>| {
        is_unlaunched(claim) && claim.metadata.deletion_timestamp.is_none() && promised.contains(claim.name())
    };
    let expected = claims.iter().filter(is_expected).filter(|claim| !is_node(claim.name()));
    sites.extend(expected.map(|claim| site(None, Some(claim))));
    let of_machines: Vec<_> = nodes.iter().map(|node| take_claim_of(node, &mut by_id, &mut further)).collect();
    let left = by_id.into_values().chain(further).filter(|claim| is_tenant(claim, claims, &shared));
    let mut left: IndexMap<&str, &Arc<NodeClaim>, FxBuild> = left.map(|claim| (claim.name(), claim)).collect();
    for (node, claim) in nodes.into_iter().zip(of_machines) {
        let namesake = left.swap_remove(node.metadata.name.as_str());
        // A node may not say yet which machine it is.
        let namesake = namesake.filter(|_| node.spec.provider_id.is_empty());
        let claim = claim.or_else(|| tenancy::claim_of(&node, namesake));
        sites.push(site(Some(node), claim));
    }
    sites.extend(left.into_values().map(|claim| site(None, Some(claim))));
    sites
}

/// Whether the machine of a claim is its own, where some machines are shared.
fn is_tenant(claim: &Arc<NodeClaim>, claims: &[Arc<NodeClaim>], shared: &BTreeSet<&str>) -> bool {
    let id = claim.status.provider_id.as_str();
    let of_machine = claims.iter().filter(|other| other.status.provider_id == id);
    !shared.contains(id) || tenancy::tenant(of_machine).is_some_and(|tenant| Arc::ptr_eq(tenant, claim))
}

/// Takes the claim of a node from those that no node was found for yet.
fn take_claim_of<'c>(
    node: &Node,
    by_id: &mut IndexMap<&str, &'c Arc<NodeClaim>, FxBuild>,
    further: &mut Vec<&'c Arc<NodeClaim>>,
) -> Option<&'c Arc<NodeClaim>> {
    let id = node.spec.provider_id.as_str();
    let rest = further.iter().filter(|claim| claim.status.provider_id == id);
    let claim = tenancy::claim_of(node, by_id.get(id).into_iter().chain(rest).copied())?;
    match further.iter().position(|other| Arc::ptr_eq(other, claim)) {
        Some(index) => drop(further.remove(index)),
        None => drop(by_id.swap_remove(id)),
    }
    Some(claim)
}

pub(super) fn is_unlaunched(claim: &NodeClaim) -> bool {
    claim.status.provider_id.is_empty()
}

/// The position of each site, by the name of its node, or by that of its claim where no node has that name.
pub(super) fn index_of(sites: &[Site]) -> IndexMap<&str, usize, FxBuild> {
    let mut out = IndexMap::with_capacity_and_hasher(sites.len() * 2, FxBuild::default());
    out.extend(sites.iter().enumerate().filter_map(|(i, site)| Some((site.claim.as_ref()?.name(), i))));
    out.extend(sites.iter().enumerate().map(|(i, site)| (site.name(), i)));
    out
}
