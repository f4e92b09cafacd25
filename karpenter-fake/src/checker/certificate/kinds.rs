//! The kinds of nodes that a proof must cover, with what it says of them.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    Catalog, Offering, Requirements, ResourceName,
    api::NodePool,
    cluster::Place,
    schedule::{Certificate, PoolShares, Worth},
};

use super::{
    super::{
        Checker, PlannedNode,
        filters::{Amounts, add, amounts_of, fits, untolerated},
        options::{Candidate, Expressions, Options, add_aliases, allocatable},
        pools::{is_open, takes, unready},
    },
    CertificateError, Group, WHOLE,
    labels::{NEW, is_sure, some_value_holds},
};

/// How a price is split, in millionths by resource.
type Shares = BTreeMap<String, u32>;

/// A kind of node.
#[derive(PartialEq)]
pub(super) struct Kind<'c> {
    /// What a node costs, in billionths of a dollar an hour.
    pub(super) price: i128,
    /// What it leaves to pods.
    pub(super) room: Amounts,
    /// How its price is split; not at all if the certificate does not say.
    pub(super) shares: Option<&'c Shares>,
    /// Whether it takes a pod of each group, alone.
    pub(super) admits: Vec<bool>,
}

/// Reads a certificate beside a snapshot.
struct Reader<'r, 'a> {
    checker: &'r Checker<'a>,
    groups: &'r [Group<'a>],
    certificate: &'r Certificate,
    capacity: BTreeMap<String, u32>,
}

/// All kinds of nodes, and what places and reservations are worth together.
pub(super) fn kinds<'r>(
    checker: &'r Checker<'_>,
    groups: &'r [Group<'_>],
    certificate: &'r Certificate,
) -> Result<(Vec<Kind<'r>>, i128), CertificateError> {
    let reader = Reader { checker, groups, certificate, capacity: checker.reservation_capacity() };
    let worth = reader.worth()?;
    let mut shares = reader.shares()?;
    let mut out: Vec<Kind<'r>> = reader.open_places().map(|place| reader.of_place(place)).collect();
    let snapshot = checker.snapshot;
    for pool in snapshot.pools().iter().filter(|pool| unready(pool).is_none()) {
        let Some(catalog) = checker.catalogs.get(pool.name()) else { continue };
        let kinds = reader.of_pool(pool, catalog, &shares.remove(pool.name()).unwrap_or_default());
        if !reader.is_closed(pool, &kinds) {
            out.extend(kinds);
        }
    }
    match shares.pop_first() {
        Some((node_pool, _)) => Err(CertificateError::UnknownPool { node_pool: node_pool.to_owned() }),
        None => Ok((out, worth)),
    }
}

impl<'r, 'a> Reader<'r, 'a> {
    /// The worth of all places and of all that is left of reservations.
    fn worth(&self) -> Result<i128, CertificateError> {
        let mut sum = 0;
        for (name, worth) in &self.certificate.places {
            let count = self.open_places().filter(|place| place.name == *name).count();
            if count == 0 {
                return Err(CertificateError::UnknownPlace { place: name.clone() });
            }
            sum += self.checked(worth, &format!("place {name}"))? * count as i128;
        }
        for (name, worth) in &self.certificate.reservations {
            let unknown = || CertificateError::UnknownReservation { reservation: name.clone() };
            let capacity = self.capacity.get(name).ok_or_else(unknown)?;
            sum += self.checked(worth, &format!("reservation {name}"))? * i128::from(*capacity);
        }
        Ok(sum)
    }

    fn checked(&self, worth: &Worth, of: &str) -> Result<i128, CertificateError> {
        let nano_dollars_per_hour = worth.worth_nano_dollars_per_hour;
        if nano_dollars_per_hour < 0 {
            return Err(CertificateError::NegativeWorth { of: of.to_owned(), nano_dollars_per_hour });
        }
        self.check_shares(&worth.shares_ppm, of)?;
        Ok(nano_dollars_per_hour.into())
    }

    fn check_shares(&self, shares: &Shares, of: &str) -> Result<(), CertificateError> {
        let of = of.to_owned();
        let is_asked_for = |name: &str| self.groups.iter().any(|g| g.requests.contains_key(&ResourceName::from(name)));
        if let Some(resource) = shares.keys().find(|name| !is_asked_for(name)) {
            return Err(CertificateError::UnknownResource { of, resource: resource.clone() });
        }
        let sum_ppm = shares.values().map(|&share| u64::from(share)).sum();
        if i128::from(sum_ppm) > WHOLE { Err(CertificateError::TooLargeShares { of, sum_ppm }) } else { Ok(()) }
    }

    /// The shares of types, by the names of pool and type.
    fn shares(&self) -> Result<BTreeMap<&'r str, BTreeMap<&'r str, &'r Shares>>, CertificateError> {
        let mut out: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for PoolShares { node_pool, instance_types, shares_ppm, .. } in &self.certificate.node_pools {
            self.check_shares(shares_ppm, &format!("node pool {node_pool}"))?;
            let unknown = || CertificateError::UnknownPool { node_pool: node_pool.clone() };
            let catalog = self.checker.catalogs.get(node_pool).ok_or_else(unknown)?;
            for name in instance_types {
                let of_pool = out.entry(node_pool.as_str()).or_default();
                let (node_pool, instance_type) = (node_pool.clone(), name.clone());
                if catalog.get(name).is_none() {
                    return Err(CertificateError::UnknownType { node_pool, instance_type });
                }
                if of_pool.insert(name.as_str(), shares_ppm).is_some() {
                    return Err(CertificateError::RepeatedType { node_pool, instance_type });
                }
            }
        }
        Ok(out)
    }

    fn open_places(&self) -> impl Iterator<Item = &'r Place> + use<'r, 'a> {
        self.checker.snapshot.places().iter().map(AsRef::as_ref).filter(|place: &&Place| place.is_open())
    }

    fn of_place(&self, place: &Place) -> Kind<'r> {
        let mut labels = place.labels.clone();
        add_aliases(&mut labels);
        let node = PlannedNode::Existing(place.name.clone());
        let admits = |group: &Group<'_>| {
            Checker::misplacement(group.pod, &group.mounts, &node, &place.name, &labels, &place.taints).is_none()
        };
        let (_, used) = self.checker.load(place, &labels);
        let worth = self.certificate.places.get(&place.name);
        Kind {
            price: worth.map_or(0, |worth| worth.worth_nano_dollars_per_hour.into()),
            shares: worth.map(|worth| &worth.shares_ppm),
            admits: self.groups.iter().map(admits).collect(),
            room: less(amounts_of(&place.allocatable), used),
        }
        .within_room(self.groups)
    }

    /// What the available offerings of a pool's types become, each once.
    fn of_pool(&self, pool: &NodePool, catalog: &'a Catalog, shares: &BTreeMap<&str, &'r Shares>) -> Vec<Kind<'r>> {
        let taints = &pool.spec.template.spec.taints;
        let options = Options::new(pool, catalog, &Requirements::new(), &BTreeMap::new(), NEW.to_owned());
        let tolerates: Vec<bool> =
            self.groups.iter().map(|g| untolerated(&g.pod.spec, taints, false).is_none()).collect();
        let daemons =
            self.checker.daemons.0.iter().filter(|(d, _)| untolerated(&d.spec.template.spec, taints, false).is_none());
        let daemons: Vec<_> = daemons.collect();
        let keys: BTreeSet<&str> = self.groups.iter().flat_map(|group| group.wanted.keys()).collect();
        let mut known: BTreeMap<String, Vec<bool>> = BTreeMap::new();
        let mut out = Vec::new();
        for instance_type in catalog.types() {
            let mut of_type: Vec<Kind<'r>> = Vec::new();
            for offering in options.available(instance_type) {
                let said = options.said(instance_type, offering);
                let is_possible = said.values().all(|own| some_value_holds(&own.iter().collect::<Vec<_>>()));
                let node = Candidate { instance_type, offering, labels: BTreeMap::new() };
                let mut used = Amounts::new();
                for (_, requests) in daemons.iter().filter(|(daemon, _)| is_sure(&daemon.spec.template.spec, &said)) {
                    add(&mut used, requests);
                }
                let room = allocatable(instance_type);
                let is_used_up = node.is_used_up() || self.is_used_up(catalog, offering);
                if !is_possible || is_used_up || !fits(&used, &room) {
                    continue;
                }
                let told: Expressions = said.into_iter().filter(|(key, _)| keys.contains(key.as_str())).collect();
                let admits = known.entry(format!("{told:?}")).or_insert_with(|| {
                    let admits =
                        |(group, tolerates): (&Group<'_>, &bool)| *tolerates && group.wanted.is_possible(&told);
                    self.groups.iter().zip(&tolerates).map(admits).collect()
                });
                let worth = self.worth_of(catalog, offering);
                let kind = Kind {
                    price: i128::from(offering.price.nano_dollars_per_hour())
                        + worth.map_or(0, |worth| worth.worth_nano_dollars_per_hour.into()),
                    shares: worth.map_or_else(|| shares.get(&*instance_type.name).copied(), |w| Some(&w.shares_ppm)),
                    admits: admits.clone(),
                    room: less(room, used),
                };
                of_type.push(kind.within_room(self.groups));
            }
            out.append(&mut cheapest(of_type));
        }
        out
    }

    /// Whether nothing is left of the reservation that an offering draws on, as another offering may say.
    fn is_used_up(&self, catalog: &Catalog, offering: &Offering) -> bool {
        let name = catalog.reservation_label().map_or("", |key| offering.label(key));
        self.capacity.get(name) == Some(&0)
    }

    /// What the certificate says of the reservation that an offering draws on, if that has a name.
    fn worth_of(&self, catalog: &Catalog, offering: &Offering) -> Option<&'r Worth> {
        self.certificate.reservations.get(offering.label(catalog.reservation_label()?))
    }

    /// Whether one heavier pool without limits takes each pod that a pool takes, so that no node is made of it.
    fn is_closed(&self, pool: &NodePool, kinds: &[Kind<'_>]) -> bool {
        let heavier = self.checker.snapshot.pools().iter().filter(|p| p.weight() > pool.weight() && is_open(p));
        let admitted = self.groups.iter().enumerate().filter(|(index, _)| kinds.iter().any(|kind| kind.admits[*index]));
        let admitted: Vec<&Group<'_>> = admitted.map(|(_, group)| group).collect();
        admitted.iter().all(|group| group.is_free)
            && heavier.into_iter().any(|heavier| {
                let rooms: Vec<_> = self.checker.rooms(heavier).into_iter().filter(|room| !room.is_reserved).collect();
                admitted.iter().all(|group| takes(heavier, &rooms, group.pod))
            })
    }
}

impl Kind<'_> {
    /// Admits only pods that fit as the only one.
    fn within_room(mut self, groups: &[Group<'_>]) -> Self {
        let fits = groups.iter().map(|group| fits(&group.requests, &self.room));
        self.admits.iter_mut().zip(fits).for_each(|(admits, fits)| *admits &= fits);
        self
    }
}

/// Of nodes that differ in nothing but their price, the cheapest.
fn cheapest(kinds: Vec<Kind<'_>>) -> Vec<Kind<'_>> {
    let mut out: Vec<Kind<'_>> = Vec::new();
    for kind in kinds {
        let is_same = |other: &&mut Kind<'_>| {
            other.room == kind.room && other.admits == kind.admits && other.shares == kind.shares
        };
        match out.iter_mut().find(is_same) {
            Some(same) => same.price = same.price.min(kind.price),
            None => out.push(kind),
        }
    }
    out
}

fn less(mut room: Amounts, used: Amounts) -> Amounts {
    add(&mut room, &used.into_iter().map(|(name, amount)| (name, -amount)).collect());
    room
}
