use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    Catalog, InstanceType, PlannedClaim, Price,
    api::{NodePool, Pod, PodSpec},
};

use super::{
    Checker, Violation,
    filters::{Amounts, add, requests},
    options::{Candidate, Options, allocatable},
    places::shortage,
    pools::unready,
    ports::clash,
    reservations::only_reserved,
    topology::Faces,
    volumes::{Mount, mounts, rivals},
};

/// What makes it pointless to look at a claim any further is the error.
type Checked = Result<(), Box<Violation>>;

impl<'a> Checker<'a> {
    pub(super) fn check_claims(&mut self) {
        for (index, claim) in self.plan.claims().iter().enumerate() {
            if let Err(violation) = self.check_claim(index, claim) {
                self.violations.push(*violation);
            }
        }
    }

    fn check_claim(&mut self, index: usize, claim: &'a PlannedClaim) -> Checked {
        let unknown = || Box::new(Violation::UnknownPool { claim: index, pool: claim.node_pool.clone() });
        let pool = self.snapshot.pool(&claim.node_pool).ok_or_else(unknown)?;
        if let Some(why) = unready(pool) {
            return Err(Box::new(Violation::PoolNotReady { claim: index, pool: pool.name().to_owned(), why }));
        }
        if claim.pods.is_empty() {
            return Err(Box::new(Violation::NoPods { claim: index }));
        }
        let catalog = self.catalogs.get(pool.name()).ok_or_else(|| no_offering(index))?;
        let mut types = Vec::new();
        for name in claim.instance_types.iter() {
            let unknown = || Box::new(Violation::UnknownType { claim: index, instance_type: name.clone() });
            types.push(catalog.get(name).ok_or_else(unknown)?);
        }
        self.check_types(index, pool, &types);
        let nodes = candidates(index, claim, pool, catalog, &types);
        self.reserved.extend(only_reserved(catalog, &nodes).filter(|_| !nodes.is_empty()).map(|ids| (index, ids)));
        if !self.interest.is_none() {
            let faces = Faces::of_claim(index, &nodes, &self.interest);
            self.faces.extend(faces.map(|faces| (index, faces)));
        }
        self.check_price(index, claim, &nodes)?;
        self.check_nodes(index, claim, pool, &nodes)
    }

    fn check_types(&mut self, claim: usize, pool: &NodePool, types: &[&InstanceType]) {
        if types.len() > self.max_instance_types {
            self.violations.push(Violation::TooManyTypes { claim, count: types.len() });
        }
        if !self.keeps_min_values {
            return;
        }
        for requirement in &pool.spec.template.spec.requirements {
            let Some(min_values) = requirement.min_values else { continue };
            let values: BTreeSet<&str> = types.iter().flat_map(|t| t.values_of(&requirement.key)).collect();
            if values.len() < min_values as usize {
                let (key, count) = (requirement.key.clone(), values.len());
                self.violations.push(Violation::MinValues { claim, key, count, min_values });
            }
        }
    }

    /// A claim may count on what is reserved for its price, or not.
    fn check_price(&mut self, index: usize, claim: &PlannedClaim, nodes: &[Candidate<'_>]) -> Checked {
        if nodes.is_empty() {
            return Err(no_offering(index));
        }
        let open = lowest_prices(nodes.iter().filter(|node| !node.is_reserved()));
        let all = lowest_prices(nodes.iter().filter(|node| node.offering.reservation_capacity != Some(0)));
        let lowest = |prices: &BTreeMap<&str, Price>| prices.values().min().copied();
        let (Some(cheapest), claimed) = (lowest(&open).or(lowest(&all)), claim.cheapest_price) else { return Ok(()) };
        if claimed != cheapest && Some(claimed) != lowest(&all) {
            self.violations.push(Violation::Price { claim: index, claimed, cheapest });
        }
        let lowest_prices = if lowest(&open) == Some(claimed) { open } else { all };
        let in_order = claim.instance_types.iter().filter_map(|t| lowest_prices.get_key_value(t.as_str()));
        for pair in in_order.collect::<Vec<_>>().windows(2).filter(|pair| pair[0].1 > pair[1].1).take(1) {
            let (dearer, cheaper) = ((*pair[0].0).to_owned(), (*pair[1].0).to_owned());
            self.violations.push(Violation::TypeOrder { claim: index, dearer, cheaper });
        }
        Ok(())
    }

    /// Whichever offering is bought, the pods fit onto the node.
    fn check_nodes(&self, index: usize, claim: &'a PlannedClaim, pool: &NodePool, nodes: &[Candidate<'_>]) -> Checked {
        let pods = self.pods(&claim.pods);
        let mut wanted = Amounts::new();
        for pod in &pods {
            add(&mut wanted, &requests(pod));
        }
        if let Some(found) = nodes.first().and_then(|node| rivals(&node.node(index), &[], &pods)) {
            return Err(Box::new(found));
        }
        let kinds = self.kinds(&pods);
        let taints = &pool.spec.template.spec.taints;
        let mut room: Option<(&str, Amounts)> = None;
        for node in nodes {
            let name = hostname(index);
            for (pod, mounts) in &kinds {
                Self::misplacement(pod, mounts, &node.node(index), &name, &node.labels, taints)
                    .map_or(Ok(()), |v| Err(Box::new(v)))?;
            }
            if room.as_ref().is_none_or(|(of, _)| *of != node.instance_type.name) {
                room = Some((&node.instance_type.name, allocatable(node.instance_type)));
            }
            let Some((_, room)) = &room else { continue };
            let running = BTreeSet::new();
            let daemons: Vec<_> = self.daemons.coming(&name, &node.labels, taints, &running).collect();
            let mut used = wanted.clone();
            for (_, requests) in &daemons {
                add(&mut used, requests);
            }
            shortage(node.node(index), &used, room).map_or(Ok(()), |v| Err(Box::new(v)))?;
            let there = daemons.iter().map(|(daemonset, _)| &daemonset.spec.template.spec);
            clash(node.node(index), pods.iter().map(|pod| &pod.spec), there).map_or(Ok(()), |v| Err(Box::new(v)))?;
        }
        Ok(())
    }

    /// One pod of each kind, as far as the choice of a node goes, with what it mounts.
    fn kinds<'p>(&self, pods: &[&'p Pod]) -> Vec<(&'p Pod, Vec<Mount<'a>>)> {
        let like = |a: &PodSpec, b: &PodSpec| {
            a.node_selector == b.node_selector
                && a.affinity.node_affinity.required == b.affinity.node_affinity.required
                && a.tolerations == b.tolerations
        };
        let mount_alike = |a: &[Mount<'_>], b: &[Mount<'_>]| a.iter().map(|m| &m.rule).eq(b.iter().map(|m| &m.rule));
        let mut out: Vec<(&Pod, Vec<Mount<'_>>)> = Vec::new();
        for pod in pods {
            let mounts = mounts(pod, self.snapshot.storage());
            let is_like = |(other, of_other): &(&Pod, Vec<Mount<'_>>)| {
                like(&other.spec, &pod.spec) && mount_alike(of_other, &mounts)
            };
            if !out.iter().any(is_like) {
                out.push((pod, mounts));
            }
        }
        out
    }
}

/// What the cheapest node of each type costs.
fn lowest_prices<'n>(nodes: impl Iterator<Item = &'n Candidate<'n>>) -> BTreeMap<&'n str, Price> {
    let mut out: BTreeMap<&str, Price> = BTreeMap::new();
    for node in nodes {
        let price = out.entry(&node.instance_type.name).or_insert(node.offering.price);
        *price = (*price).min(node.offering.price);
    }
    out
}

fn no_offering(claim: usize) -> Box<Violation> {
    Box::new(Violation::NoOffering { claim })
}

/// All nodes that a claim may become.
fn candidates<'c>(
    index: usize,
    claim: &PlannedClaim,
    pool: &NodePool,
    catalog: &'c Catalog,
    types: &[&'c InstanceType],
) -> Vec<Candidate<'c>> {
    let options = Options::new(pool, catalog, &claim.requirements, &claim.labels, hostname(index));
    types.iter().flat_map(|instance_type| options.of_type(instance_type)).collect()
}

/// A name that no other node has.
pub(super) fn hostname(claim: usize) -> String {
    format!("new-claim-{claim}")
}
