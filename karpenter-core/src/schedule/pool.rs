//! A node pool against its catalog: which offerings its nodes can be bought by, and what they leave to pods.

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use fixedbitset::FixedBitSet;
use indexmap::{IndexMap, IndexSet};

use super::{
    amounts::{Amounts, Axes, take},
    class::Constraint,
    flexibility::by_room,
    limit::{Limit, limits_of},
    shelf::{Answers, Shelf},
    variety::Variety,
};
use crate::{
    Catalog, Catalogs, FxBuild, NodeAlternatives, Price, Requirement, Requirements, ResourceList, ResourceName,
    Snapshot,
    api::{NodePool, Taint, tolerates_all},
    catalog::Table,
    cluster::HostPort,
    labels,
    provider::NO_CATALOG,
    reason::Obstacle,
    requirements::is_unique_to_node,
};

/// Of so many pod constraints it is remembered how they meet a pool.
const MAX_MEETINGS: usize = 1000;

/// Of so many sets of constraints it is remembered which offerings they leave worth a look.
const MAX_SELECTIONS: usize = 100;

/// Stands for the values of a label that have no end, as one more domain; no label can have it as its value.
pub(super) const UNNAMED: &str = "(any other)";

/// A pool in which nodes can be made.
pub(super) struct Pool<'a> {
    pub(super) source: &'a NodePool,
    pub(super) catalog: &'a Catalog,
    pub(super) compiled: Arc<Compiled>,
    /// The offerings that meet the requirements and can be bought now.
    pub(super) open_rows: FixedBitSet,
    pub(super) limits: Vec<Limit>,
}

/// What is the same in each problem with the same pool, catalog, daemonsets and resources.
#[derive(Default)]
pub(super) struct Compiled {
    /// What its nodes' labels must be like, where offerings or pods have a say in it.
    pub(super) requirements: Requirements,
    /// The labels that all its nodes have, whatever the offering.
    fixed: BTreeMap<String, String>,
    /// The offerings that meet the requirements, whether or not they can be bought now.
    pub(super) rows: FixedBitSet,
    /// Those of them that can be bought now, as far as reservations are not used up.
    buyable_rows: FixedBitSet,
    /// The distinct amounts of room that its nodes leave to pods.
    pub(super) variants: Vec<Variant>,
    /// The index of the variant of each row; only those of `rows` mean anything.
    pub(super) variant_of_row: Vec<u32>,
    /// Those of its offerings that draw on reservations.
    pub(super) reserved_rows: Vec<usize>,
    /// What a claim requires that was not planned for a reservation and must not use one up.
    pub(super) unreserved: Requirements,
    /// The offerings that meet that.
    pub(super) unreserved_rows: FixedBitSet,
    /// The labels of which the types of a claim must name several values.
    pub(super) varieties: Vec<Variety>,
    /// Where there are such labels, the instance types of its offerings by index, the roomiest first: these are left when nodes fill up.
    types_by_room: Vec<usize>,
    /// The labels of which some of its offerings leave a choice of values.
    pub(super) unsettled: Vec<String>,
    /// See [`flexibility`](super::flexibility).
    pub(super) spot_rows: Answers<(), [usize]>,
    /// How the alternatives of constraints meet it.
    meetings: Answers<NodeAlternatives, [AlternativeRows]>,
    /// The offerings that are worth a look, by what tells them apart.
    pub(super) selections: Answers<Selection, [usize]>,
}

/// What tells which offerings are worth a look.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Selection {
    /// For each way in which pods may want a node the offerings that meet it.
    pub(super) met: Vec<FixedBitSet>,
    /// What an interruption costs, to the bit.
    pub(super) interruption_cost: u64,
    /// Whether small machines may be all that is left.
    pub(super) is_limited: bool,
}

impl Deref for Pool<'_> {
    type Target = Compiled;

    fn deref(&self) -> &Compiled {
        &self.compiled
    }
}

/// An instance type with a set of daemons on it.
pub(super) struct Variant {
    pub(super) type_index: usize,
    /// What is left to pods beside the daemons.
    pub(super) room: Amounts,
    /// The same beside those daemons alone that come whatever else a claim says of its labels, and rounded up.
    pub(super) most_room: Amounts,
    pub(super) daemon_requests: ResourceList,
    /// The ports that the daemons take.
    pub(super) host_ports: Vec<HostPort>,
    /// Whether the system and the daemons need more of something than there is, so that no pod goes there.
    pub(super) is_overdrawn: bool,
}

/// How one alternative of a constraint meets a pool.
pub(super) struct AlternativeRows {
    /// The rows of the pool that meet it.
    pub(super) rows: FixedBitSet,
    /// What it adds to the requirements of a claim.
    pub(super) narrowing: Requirements,
    /// Whether rows alone do not tell if two alternatives go together, because a label has no value yet.
    pub(super) is_open_ended: bool,
}

/// A daemonset as planning sees it.
pub(super) struct Daemon {
    pub(super) constraint: Constraint,
    pub(super) requests: ResourceList,
    pub(super) host_ports: Vec<HostPort>,
}

impl<'a> Pool<'a> {
    /// Compiles a pool, or says why no node can be made of it.
    pub(super) fn new(
        source: &'a NodePool,
        snapshot: &Snapshot,
        catalogs: &'a Catalogs,
        daemons: &[Daemon],
        axes: &Axes,
        shelf: Option<&Shelf>,
    ) -> Result<Self, Box<Obstacle>> {
        let catalog = Self::ready_catalog(source, catalogs)?;
        let compile = || Self::compiled(source, catalog, snapshot, daemons, axes).compiled;
        let pool = match shelf {
            Some(shelf) => {
                let compiled = shelf.pool(source, catalog, snapshot.daemonsets(), axes, compile);
                Self::of(compiled, source, catalog, snapshot)
            }
            None => Self::compiled(source, catalog, snapshot, daemons, axes),
        };
        if pool.rows.is_clear() { Err(Box::new(Obstacle::NoInstanceTypes)) } else { Ok(pool) }
    }

    /// The catalog of a pool of which nodes may be made, or why none may be made.
    pub(super) fn ready_catalog(source: &NodePool, catalogs: &'a Catalogs) -> Result<&'a Catalog, Box<Obstacle>> {
        if source.is_static() && source.metadata.deletion_timestamp.is_none() {
            return Err(Box::new(Obstacle::Static));
        }
        if let Some(message) = source.not_ready() {
            return Err(Box::new(Obstacle::NotReady { message }));
        }
        source.validate_for_provisioning().map_err(|error| Obstacle::NotReady { message: error.to_string() })?;
        let Some(catalog) = catalogs.get(source.name()) else {
            let message = catalogs.why_missing(source.name()).unwrap_or(NO_CATALOG).to_owned();
            return Err(Box::new(Obstacle::NotReady { message }));
        };
        catalog.check_labels(source).map_err(|error| Obstacle::NotReady { message: error.to_string() })?;
        Ok(catalog)
    }

    /// Compiles a pool against a catalog, whether or not nodes may be made of it.
    pub(super) fn compiled(
        source: &'a NodePool,
        catalog: &'a Catalog,
        snapshot: &Snapshot,
        daemons: &[Daemon],
        axes: &Axes,
    ) -> Self {
        let requirements: Requirements = source.spec.template.spec.requirements.iter().collect();
        let variety = |(key, r): (&str, &Requirement)| Some(Variety::new(key, r.min_values()?, catalog.types()));
        let compiled = Compiled {
            varieties: requirements.iter().filter_map(variety).collect(),
            requirements,
            fixed: fixed_labels(source),
            spot_rows: Answers::up_to(1),
            meetings: Answers::up_to(MAX_MEETINGS),
            selections: Answers::up_to(MAX_SELECTIONS),
            ..Compiled::default()
        };
        let mut pool = Self::of(Arc::new(compiled), source, catalog, snapshot);
        pool.select_rows();
        pool.group_by_room(daemons, axes);
        if pool.has_min_values() {
            let rows = by_room(&pool, pool.rows.ones().collect());
            let types: IndexSet<usize, FxBuild> = rows.into_iter().map(|row| pool.variant(row).type_index).collect();
            pool.own().types_by_room = types.into_iter().collect();
        }
        pool.open_rows.clone_from(&pool.compiled.buyable_rows);
        pool
    }

    fn of(compiled: Arc<Compiled>, source: &'a NodePool, catalog: &'a Catalog, snapshot: &Snapshot) -> Self {
        let open_rows = compiled.buyable_rows.clone();
        Self { source, catalog, compiled, open_rows, limits: limits_of(source, snapshot, catalog) }
    }

    /// What is being compiled.
    fn own(&mut self) -> &mut Compiled {
        Arc::get_mut(&mut self.compiled).expect("nobody else has a pool that is being compiled")
    }

    pub(super) fn table(&self) -> &'a Table {
        self.catalog.table()
    }

    pub(super) fn taints(&self) -> &'a [Taint] {
        &self.source.spec.template.spec.taints
    }

    /// Whether an object with these labels belongs to the pool.
    pub(super) fn is_of(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.get(labels::NODE_POOL).is_some_and(|pool| pool == self.source.name())
    }

    /// Takes an offering off the market.
    pub(super) fn close(&mut self, row: usize) {
        self.open_rows.set(row, false);
    }

    fn select_rows(&mut self) {
        let table = self.table();
        let Compiled { fixed, requirements, .. } = self.own();
        for (key, value) in fixed.iter().filter(|(key, _)| table.is_well_known(key)) {
            requirements.add(key, Requirement::one_of([value.as_str()]));
        }
        let mut rows = FixedBitSet::with_capacity(table.rows().len());
        rows.insert_range(..);
        for (key, requirement) in self.demands() {
            table.retain(&mut rows, key, &requirement);
        }
        if self.contradiction().is_some() {
            rows.clear();
        }
        let mut buyable_rows = rows.clone();
        buyable_rows.intersect_with(self.catalog.available());
        let reserved_rows = rows.ones().filter(|&row| table.rows()[row].is_reserved).collect();
        let unreserved = unreserved(table);
        let mut unreserved_rows = rows.clone();
        table.retain_all(&mut unreserved_rows, &unreserved);
        let is_unsettled = |key: &&str| table.states(&rows, key).iter().any(|state| leaves_choice(state));
        let unsettled = table.keys().filter(is_unsettled).map(str::to_owned).collect();
        let own = self.own();
        (own.rows, own.buyable_rows, own.reserved_rows) = (rows, buyable_rows, reserved_rows);
        (own.unreserved, own.unreserved_rows, own.unsettled) = (unreserved, unreserved_rows, unsettled);
    }

    /// What each label of an offering must be like, the template's labels first.
    pub(super) fn demands(&self) -> impl Iterator<Item = (&str, Requirement)> {
        // A type that lacks the label gets it from the template.
        let of_label = |value: &String| Requirement::one_of([value.as_str()]).or_absent();
        let fixed = self.fixed.iter().map(move |(key, value)| (key.as_str(), of_label(value)));
        let required = self.requirements.iter().filter(|(key, _)| !self.is_fixed(key));
        fixed.chain(required.map(|(key, requirement)| (key, requirement.clone())))
    }

    /// A label of which the pool asks what no node can have.
    pub(super) fn contradiction(&self) -> Option<&str> {
        let is_refused = |(key, value): &(&String, &String)| {
            self.requirements.get(key).is_some_and(|requirement| !requirement.admits(Some(value)))
        };
        let of_requirements = self.requirements.contradiction();
        of_requirements.or_else(|| self.fixed.iter().find(is_refused).map(|(key, _)| key.as_str()))
    }

    /// Rows of one type differ in room if different daemons run on them.
    fn group_by_room(&mut self, daemons: &[Daemon], axes: &Axes) {
        let runs_on: Vec<(FixedBitSet, bool)> = daemons.iter().map(|daemon| self.rows_of_daemon(daemon)).collect();
        let mut variants: IndexMap<(usize, Vec<usize>), (), FxBuild> = IndexMap::default();
        let mut variant_of_row = vec![0; self.table().rows().len()];
        for row in self.rows.ones() {
            let here = (0..daemons.len()).filter(|&d| runs_on[d].0.contains(row)).collect();
            let (index, _) = variants.insert_full((self.table().rows()[row].type_index, here), ());
            variant_of_row[row] = u32::try_from(index).expect("fewer than 2^32 offerings");
        }
        let variant = |(type_index, here): (usize, Vec<usize>)| {
            let (mut daemon_requests, mut host_ports) = (ResourceList::new(), Vec::new());
            let allocatable = self.catalog.types()[type_index].allocatable();
            let (mut room, mut most_room) = (axes.room(&allocatable), axes.requests(&allocatable));
            for d in here {
                let requests = axes.requests(&daemons[d].requests);
                daemon_requests.add(&daemons[d].requests);
                host_ports.extend_from_slice(&daemons[d].host_ports);
                take(&mut room, &requests, 1);
                take(&mut most_room, &requests, i64::from(runs_on[d].1));
            }
            let is_overdrawn = room.iter().any(|&amount| amount < 0) || overdrawn(&allocatable).next().is_some();
            Variant { type_index, room, most_room, daemon_requests, host_ports, is_overdrawn }
        };
        let variants: Vec<Variant> = variants.into_keys().map(variant).collect();
        let is_useless = |row: &usize| variants[variant_of_row[*row] as usize].is_overdrawn;
        let useless: Vec<usize> = self.rows.ones().filter(is_useless).collect();
        let own = self.own();
        for row in useless {
            own.buyable_rows.set(row, false);
        }
        (own.variants, own.variant_of_row) = (variants, variant_of_row);
    }

    /// The rows on which a daemon may run, and whether it is sure to, whatever labels a claim settles.
    fn rows_of_daemon(&self, daemon: &Daemon) -> (FixedBitSet, bool) {
        let mut rows = FixedBitSet::with_capacity(self.table().rows().len());
        let mut is_sure = true;
        if tolerates_all(&daemon.constraint.tolerations, self.taints(), false).is_ok() {
            for alternative in self.alternatives(&daemon.constraint.wanted).iter() {
                rows.union_with(&alternative.rows);
                is_sure &= !alternative.is_open_ended;
            }
        }
        (rows, is_sure)
    }

    /// How each alternative meets the pool, in their order.
    pub(super) fn alternatives(&self, wanted: &NodeAlternatives) -> Arc<[AlternativeRows]> {
        let meet = || wanted.alternatives().iter().map(|all| self.alternative(all)).collect();
        self.meetings.get(wanted, NodeAlternatives::clone, meet)
    }

    fn alternative(&self, wanted: &Requirements) -> AlternativeRows {
        let table = self.table();
        let mut out = AlternativeRows { rows: self.rows.clone(), narrowing: Requirements::new(), is_open_ended: false };
        for (key, requirement) in wanted.iter() {
            if is_unique_to_node(key) || self.is_fixed(key) {
                if !self.admits_known(key, requirement) {
                    out.rows.clear();
                }
                continue;
            }
            let own = self.requirements.get(key);
            let both = own.map_or_else(|| requirement.clone(), |own| own.intersection(requirement));
            if table.is_well_known(key) {
                table.retain(&mut out.rows, key, &both);
                out.is_open_ended |= table.states(&out.rows, key).iter().any(|state| leaves_choice(state));
                out.narrowing.add(key, requirement.clone());
            } else if own.is_some() {
                // The node gets the label from the claim, with a value that all its pods accept.
                if both.is_none() {
                    out.rows.clear();
                }
                out.is_open_ended = true;
                out.narrowing.add(key, requirement.clone());
            } else if !requirement.admits_absence() {
                out.rows.clear();
            }
        }
        out
    }

    /// Whether a label that does not depend on the offering meets a requirement.
    pub(super) fn admits_known(&self, key: &str, requirement: &Requirement) -> bool {
        match self.fixed.get(key) {
            Some(value) => requirement.admits(Some(value)),
            None => !is_unique_to_node(key) || requirement.admits_fresh_value(),
        }
    }

    /// For each offering a number for what a label may be on its nodes; `None` if the label is the same on all nodes.
    pub(super) fn cells(&self, key: &str) -> Option<&'a [u32]> {
        if self.is_fixed(key) { None } else { self.table().cells(key) }
    }

    /// The values that a label may have on a node bought by `row` for pods that want `wanted` of it; none if there is
    /// no such label or its values have no end.
    pub(super) fn values(&self, row: usize, key: &str, wanted: Option<&Requirement>) -> Vec<Arc<str>> {
        let admits = |value: &Arc<str>| wanted.is_none_or(|wanted| wanted.admits(Some(value)));
        let open = self.left_open(row, key);
        open.iter().flat_map(Requirement::values).map(Arc::from).filter(admits).collect()
    }

    /// The same with [`UNNAMED`] if the values have no end.
    pub(super) fn domains(&self, row: usize, key: &str, wanted: Option<&Requirement>) -> Vec<Arc<str>> {
        let Some(open) = self.left_open(row, key) else { return Vec::new() };
        let open = wanted.map_or_else(|| open.clone(), |wanted| open.intersection(wanted));
        let unnamed = is_endless(&open).then_some(UNNAMED);
        open.values().chain(unnamed).map(Arc::from).collect()
    }

    /// What a node bought by `row` may have for a label, if anything speaks of it.
    fn left_open(&self, row: usize, key: &str) -> Option<Requirement> {
        if let Some(value) = self.fixed.get(key) {
            return Some(Requirement::one_of([value.as_str()]));
        }
        match (self.table().cell(row, key), self.requirements.get(key)) {
            (Some(cell), Some(own)) => Some(cell.intersection(own)),
            (one, other) => one.or(other).cloned(),
        }
    }

    /// Whether nodes may have one of endlessly many values of a label.
    pub(super) fn is_endless(&self, key: &str) -> bool {
        !self.is_fixed(key) && self.offered(key).iter().any(is_endless)
    }

    /// Whether the limits, as they are before planning, leave room for a node bought by `row`.
    pub(super) fn has_limits_left(&self, row: usize) -> bool {
        let type_index = self.table().rows()[row].type_index;
        self.limits.iter().all(|limit| limit.capacity_by_type[type_index] <= limit.left())
    }

    /// How many nodes the limits allow if each is of the largest type.
    pub(super) fn sure_nodes(&self) -> usize {
        let types = || self.open_rows.ones().map(|row| self.table().rows()[row].type_index);
        let of_limit = |limit: &Limit| {
            let largest = types().map(|t| limit.capacity_by_type[t]).max().unwrap_or(0);
            if largest > 0 { limit.left().max(0) / largest } else { i64::MAX }
        };
        let count = self.limits.iter().map(of_limit).min().unwrap_or(i64::MAX);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Whether all nodes of the pool have the same value of a label.
    pub(super) fn is_fixed(&self, key: &str) -> bool {
        self.fixed.contains_key(key)
    }

    /// What nodes can have for a label: a fixed value, what the requirements leave, or what offerings name.
    pub(super) fn offered(&self, key: &str) -> Vec<Requirement> {
        if let Some(value) = self.fixed.get(key) {
            return vec![Requirement::one_of([value.as_str()])];
        }
        if self.table().is_well_known(key) {
            return self.table().states(&self.rows, key).into_iter().cloned().collect();
        }
        vec![self.requirements.get(key).cloned().unwrap_or(Requirement::ABSENT)]
    }

    /// The labels that its catalog, its template or its requirements name; not all of them need be on its nodes.
    pub(super) fn known_keys(&self) -> impl Iterator<Item = &str> {
        let required = self.requirements.iter().map(|(key, _)| key);
        self.table().keys().chain(self.fixed.keys().map(String::as_str)).chain(required)
    }

    /// Whether the labels of a claim can meet `requirements` on a node bought by `row`, which has those of the template that its type
    /// lacks.
    pub(super) fn can_settle(&self, row: usize, requirements: &Requirements) -> bool {
        requirements.iter().all(|(key, requirement)| {
            let can_be =
                |state: &Requirement| state.intersects(requirement) || self.is_fixed(key) && state.admits_absence();
            !requirement.is_none() && self.table().cell(row, key).is_none_or(can_be)
        })
    }

    /// What the labels of a node must be like for pods by one more alternative, after those that settled them so far, if any did.
    pub(super) fn settled(&self, so_far: Option<&Requirements>, alternative: &AlternativeRows) -> Requirements {
        let mut out = so_far.unwrap_or(&self.requirements).clone();
        out.add_all(&alternative.narrowing);
        out
    }

    /// The first label with `minValues` of which those of its instance types that are meant, by index, have too few values, and how
    /// many they have.
    pub(super) fn lack(&self, is_meant: impl Fn(usize) -> bool) -> Option<(&Variety, usize)> {
        self.varieties.iter().find_map(|variety| {
            let enough = variety.min_values as usize;
            let count = variety.count_of(self.types_by_room.iter().copied(), &is_meant, enough);
            (count < enough).then_some((variety, count))
        })
    }

    /// Whether claims must keep several values of a label.
    pub(super) fn has_min_values(&self) -> bool {
        !self.varieties.is_empty()
    }

    /// The index of the instance type of this name.
    pub(super) fn type_named(&self, name: &str) -> Option<usize> {
        self.catalog.types().binary_search_by(|own| own.name.as_str().cmp(name)).ok()
    }

    /// What a node of a type with these labels costs, in dollars an hour, if an offering tells.
    pub(super) fn price_of(&self, type_index: usize, labels: &BTreeMap<String, String>) -> Option<f64> {
        let table = self.table();
        let is_it = |row: &usize| {
            table.keys().all(|key| match (table.cell(*row, key), labels.get(key)) {
                (Some(state), Some(value)) => state.admits(Some(value)),
                _ => true,
            })
        };
        let offerings = table.rows_of(type_index).filter(is_it).map(|row| &table.rows()[row]);
        let prices = offerings.filter(|offering| offering.has_price).map(|offering| offering.price);
        prices.min().map(Price::dollars_per_hour)
    }

    pub(super) fn variant(&self, row: usize) -> &Variant {
        &self.variants[self.variant_of_row[row] as usize]
    }
}

/// The template's labels, and those that every node of the pool gets.
fn fixed_labels(pool: &NodePool) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (key, value) in &pool.spec.template.metadata.labels {
        out.insert(labels::normalized(key).to_owned(), value.clone());
    }
    let class = &pool.spec.template.spec.node_class_ref;
    out.insert(class.label_key(), class.name.clone());
    out.insert(labels::NODE_POOL.to_owned(), pool.name().to_owned());
    out.insert(labels::REGISTERED.to_owned(), "true".to_owned());
    out.insert(labels::INITIALIZED.to_owned(), "true".to_owned());
    out
}

/// Whether a label that is so may have one of endlessly many values.
fn is_endless(state: &Requirement) -> bool {
    state.value_count().is_none() && state.admits_some_value()
}

/// Whether a label that is so may have one value or another.
fn leaves_choice(state: &Requirement) -> bool {
    state.value_count().is_none_or(|count| count > 1)
}

/// What keeps a claim from using up a reservation.
fn unreserved(table: &Table) -> Requirements {
    let mut out = Requirements::new();
    if table.rows().iter().any(|row| row.is_reserved) {
        match table.reservation_label() {
            Some(key) => out.add(key, Requirement::ABSENT),
            None => out.add(labels::CAPACITY_TYPE, Requirement::none_of([labels::RESERVED])),
        }
    }
    out
}

/// For each of some pools, of which the heaviest come first, how many weights among them are heavier than its own.
pub(super) fn heavier_weights<'p>(pools: &'p [Pool<'_>]) -> impl Iterator<Item = usize> + 'p {
    let by_weight = pools.chunk_by(|a, b| a.source.weight() == b.source.weight()).enumerate();
    by_weight.flat_map(|(heavier, alike)| std::iter::repeat_n(heavier, alike.len()))
}

/// The resources of which a machine keeps more for the system than it has. It takes no pod, even one that asks for nothing of them,
/// as in Karpenter.
pub(super) fn overdrawn(allocatable: &ResourceList) -> impl Iterator<Item = &ResourceName> {
    allocatable.iter().filter(|(_, quantity)| quantity.is_negative()).map(|(name, _)| name)
}
