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

/// Claims by their names, or by those of their machines.
type Named<'c> = IndexMap<&'c str, &'c Arc<NodeClaim>, FxBuild>;

/// Nodes with their claims, and claims that have no node yet.
///
/// A claim without a provider id may become anything that it allows, so it is no place for further pods. It is a place for
/// those to whom it was promised. A claim is no place if its machine is that of a later claim, or its name that of a node of
/// another machine.
pub(super) fn join(nodes: Vec<Arc<Node>>, claims: &[Arc<NodeClaim>], promised: &BTreeSet<&str>) -> Vec<Site> {
    let (mut by_id, mut further) = by_machine(claims);
    let of_machines: Vec<_> = nodes.iter().map(|node| take_claim_of(node, &mut by_id, &mut further)).collect();
    let is_expected = |claim: &&Arc<NodeClaim>| {
        is_unlaunched(claim) && claim.metadata.deletion_timestamp.is_none() && promised.contains(claim.name())
    };
    let without_node = by_id.into_values().chain(claims.iter().filter(is_expected));
    let mut without_node: Named<'_> = without_node.map(|claim| (claim.name(), claim)).collect();
    let site = |node, claim: Option<&Arc<NodeClaim>>| Site { node, claim: claim.cloned(), pods: Vec::new() };
    let mut sites = Vec::with_capacity(nodes.len());
    for (node, claim) in nodes.into_iter().zip(of_machines) {
        // A node may be there, under the name of its claim, before it is known whose it is, or before it says which machine it is.
        let namesake = without_node.swap_remove(node.metadata.name.as_str());
        let namesake = namesake.filter(|claim| !is_unlaunched(claim) && node.spec.provider_id.is_empty());
        let claim = claim.or_else(|| tenancy::claim_of(&node, namesake));
        sites.push(site(Some(node), claim));
    }
    sites.extend(without_node.into_values().map(|claim| site(None, Some(claim))));
    sites
}

/// For the id of each machine the claim whose it is, and the other claims that name some machine: few are named by several claims,
/// and most often none is.
fn by_machine(claims: &[Arc<NodeClaim>]) -> (Named<'_>, Vec<&Arc<NodeClaim>>) {
    let (mut by_id, mut further) = (Named::default(), Vec::new());
    for claim in claims.iter().filter(|claim| !is_unlaunched(claim)) {
        let Some(other) = by_id.insert(claim.status.provider_id.as_str(), claim) else { continue };
        let tenant = tenancy::tenant([claim, other]).unwrap_or(claim);
        further.push(if Arc::ptr_eq(tenant, claim) { other } else { claim });
        by_id.insert(claim.status.provider_id.as_str(), tenant);
    }
    (by_id, further)
}

/// Takes the claim of a node from those that no node was found for yet.
fn take_claim_of<'c>(
    node: &Node,
    by_id: &mut Named<'c>,
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
