//! Offerings as the rows of a table with one column a label, so that a requirement is evaluated once for each distinct
//! value of a label and not once for each offering.

use std::ops::Range;

use fixedbitset::FixedBitSet;
use indexmap::IndexMap;

use super::{InstanceType, Price};
use crate::{
    FxBuild, Requirement, Requirements,
    labels::{self, Interner, Symbol},
};

/// One offering of one type.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The index of the type in the catalog.
    pub(crate) type_index: usize,
    pub(crate) price: Price,
    /// Whether the price is known.
    pub(crate) has_price: bool,
    /// The chance that a node is taken back within an hour.
    pub(crate) interruption: f64,
    /// Whether it draws on a capacity reservation.
    pub(crate) is_reserved: bool,
    is_available: bool,
}

/// The offerings of a catalog, in the order of the names of their types.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    rows: Vec<Row>,
    /// Where the rows of each type begin, and the end.
    starts: Vec<usize>,
    keys: Interner,
    columns: Vec<Column>,
    reservation_label: Option<String>,
    has_interruptions: bool,
}

/// What each row has for one label.
#[derive(Clone, Debug, Default)]
struct Column {
    /// The distinct entries of the column.
    states: IndexMap<Requirement, (), FxBuild>,
    /// The number of the entry of each row.
    cells: Vec<u32>,
}

impl Column {
    /// The number of an entry, new if it was not seen before.
    fn number(&mut self, requirement: &Requirement) -> u32 {
        let known = self.states.get_index_of(requirement);
        let state = known.unwrap_or_else(|| self.states.insert_full(requirement.clone(), ()).0);
        u32::try_from(state).expect("fewer than 2^32 label values")
    }
}

impl Table {
    pub(crate) fn new(types: &[InstanceType], reservation_label: Option<String>) -> Self {
        let mut starts = vec![0];
        let mut rows = Vec::new();
        for (type_index, instance_type) in types.iter().enumerate() {
            rows.extend(instance_type.offerings.iter().map(|o| Row {
                type_index,
                price: o.price,
                has_price: o.known_price().is_some(),
                interruption: o.interruption.unwrap_or(0.0),
                is_reserved: o.reservation_capacity.is_some() || o.label(labels::CAPACITY_TYPE) == labels::RESERVED,
                is_available: o.available,
            }));
            starts.push(rows.len());
        }
        let has_interruptions = rows.iter().any(|row| row.interruption > 0.0);
        let (keys, columns) = (Interner::default(), Vec::new());
        let mut table = Self { rows, starts, keys, columns, reservation_label, has_interruptions };
        for (index, instance_type) in types.iter().enumerate() {
            table.fill(index, instance_type);
        }
        table
    }

    fn fill(&mut self, index: usize, instance_type: &InstanceType) {
        let rows = self.rows_of(index);
        for (key, requirement) in instance_type.requirements.iter() {
            // A type names the reservations of all its offerings; a node has the one that it was bought from.
            if self.reservation_label.as_deref() != Some(key) {
                self.set(rows.clone(), key, requirement);
            }
        }
        for (row, offering) in rows.zip(&instance_type.offerings) {
            for (key, requirement) in offering.requirements.iter() {
                self.set(row..row + 1, key, requirement);
            }
        }
    }

    fn set(&mut self, rows: Range<usize>, key: &str, requirement: &Requirement) {
        let Symbol(column) = self.keys.intern(key);
        if column as usize == self.columns.len() {
            let states = IndexMap::from_iter([(Requirement::ABSENT, ())]);
            self.columns.push(Column { states, cells: vec![0; self.rows.len()] });
        }
        let column = &mut self.columns[column as usize];
        // Neighbours in the order of names, such as the sizes of a family, agree in most labels.
        let before = rows.start.checked_sub(1).map(|row| column.cells[row]);
        let is_same = |state: &u32| column.states.get_index(*state as usize).is_some_and(|(s, ())| s == requirement);
        let state = before.filter(is_same).unwrap_or_else(|| column.number(requirement));
        column.cells[rows].fill(state);
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn rows_of(&self, type_index: usize) -> Range<usize> {
        self.starts[type_index]..self.starts[type_index + 1]
    }

    /// The rows that can be bought, with a bit for every row.
    pub(crate) fn available(&self) -> FixedBitSet {
        let mut out = FixedBitSet::with_capacity(self.rows.len());
        out.extend(self.rows.iter().enumerate().filter(|(_, r)| r.is_available).map(|(i, _)| i));
        out
    }

    pub(crate) fn is_well_known(&self, key: &str) -> bool {
        self.keys.get(labels::normalized(key)).is_some()
    }

    /// Whether some row names a label with the same prefix.
    pub(crate) fn has_domain_of(&self, key: &str) -> bool {
        let domain = labels::domain(key);
        self.keys.texts().any(|known| labels::domain(known) == domain)
    }

    pub(crate) fn reservation_label(&self) -> Option<&str> {
        self.reservation_label.as_deref()
    }

    /// Whether some offering gives a chance that its nodes are taken back.
    pub(crate) fn has_interruptions(&self) -> bool {
        self.has_interruptions
    }

    /// What the label `key` may be on a node bought by `row`; `None` if no row names it.
    pub(crate) fn cell(&self, row: usize, key: &str) -> Option<&Requirement> {
        let Symbol(column) = self.keys.get(key)?;
        let column = &self.columns[column as usize];
        column.states.get_index(column.cells[row] as usize).map(|(state, ())| state)
    }

    /// The numbers of the entries of the column `key`, row by row; `None` if no row names it.
    pub(crate) fn cells(&self, key: &str) -> Option<&[u32]> {
        let Symbol(column) = self.keys.get(key)?;
        Some(&self.columns[column as usize].cells)
    }

    /// Takes those rows out of `rows` whose label `key` does not meet `requirement`.
    ///
    /// A key that no row names takes nothing out.
    pub(crate) fn retain(&self, rows: &mut FixedBitSet, key: &str, requirement: &Requirement) {
        let Some(Symbol(column)) = self.keys.get(key) else { return };
        let column = &self.columns[column as usize];
        let meets: Vec<bool> = column.states.keys().map(|state| state.intersects(requirement)).collect();
        let misses: Vec<usize> = rows.ones().filter(|&row| !meets[column.cells[row] as usize]).collect();
        for row in misses {
            rows.set(row, false);
        }
    }

    /// Takes those rows out of `rows` that do not meet all requirements; gives back the first key that emptied them.
    pub(crate) fn retain_all<'r>(&self, rows: &mut FixedBitSet, requirements: &'r Requirements) -> Option<&'r str> {
        for (key, requirement) in requirements.iter() {
            let had_some = !rows.is_clear();
            self.retain(rows, key, requirement);
            if had_some && rows.is_clear() {
                return Some(key);
            }
        }
        None
    }

    /// The distinct entries of the column `key` among `rows`.
    pub(crate) fn states<'t>(&'t self, rows: &FixedBitSet, key: &str) -> Vec<&'t Requirement> {
        let Some(Symbol(column)) = self.keys.get(key) else { return Vec::new() };
        let column = &self.columns[column as usize];
        let mut seen = FixedBitSet::with_capacity(column.states.len());
        rows.ones().for_each(|row| seen.insert(column.cells[row] as usize));
        seen.ones().filter_map(|state| column.states.get_index(state)).map(|(state, ())| state).collect()
    }

    /// The distinct entries of the column `key`.
    pub(crate) fn all_states(&self, key: &str) -> impl Iterator<Item = &Requirement> {
        let column = self.keys.get(key).map(|Symbol(column)| &self.columns[column as usize]);
        column.into_iter().flat_map(|column| column.states.keys())
    }

    /// All labels that some row names.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.texts()
    }
}
