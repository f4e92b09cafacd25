//! How many values of a label the instance types of a claim have, where its pool asks for several.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;
use indexmap::IndexSet;
use smallvec::SmallVec;

use crate::{FxBuild, InstanceType};

/// The values that instance types or their offerings name for a label with `minValues`; each counts, whichever of them a node will
/// have.
pub(super) struct Variety {
    pub(super) key: String,
    pub(super) min_values: u32,
    /// Of each type the numbers of its values.
    of_types: Vec<SmallVec<[u32; 1]>>,
    value_count: usize,
}

impl Variety {
    pub(super) fn new(key: &str, min_values: u32, types: &[InstanceType]) -> Self {
        let mut values: IndexSet<&str, FxBuild> = IndexSet::default();
        let mut of_types = Vec::with_capacity(types.len());
        for instance_type in types {
            let number = |value| u32::try_from(values.insert_full(value).0).expect("a catalog has fewer values");
            let of_type: BTreeSet<u32> = instance_type.values_of(key).map(number).collect();
            of_types.push(of_type.into_iter().collect());
        }
        Self { key: key.to_owned(), min_values, of_types, value_count: values.len() }
    }

    /// How many values the types of these indices have, or `enough` as soon as they have so many.
    pub(super) fn count(&self, types: impl IntoIterator<Item = usize>, enough: usize) -> usize {
        self.count_of(types, |_| true, enough)
    }

    /// The same of those that are meant, which is asked of types alone that bring a value.
    pub(super) fn count_of(
        &self,
        types: impl IntoIterator<Item = usize>,
        is_meant: impl Fn(usize) -> bool,
        enough: usize,
    ) -> usize {
        let mut seen = self.seen();
        let mut count = 0;
        for type_index in types {
            if self.brings(&seen, type_index) && is_meant(type_index) {
                count += self.add(&mut seen, type_index);
            }
            if count >= enough {
                return enough;
            }
        }
        count
    }

    /// The types that are the first to bring a value, until there are enough.
    pub(super) fn first_with_each(&self, types: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let (mut seen, mut count, mut out) = (self.seen(), 0, Vec::new());
        for type_index in types {
            let new = self.add(&mut seen, type_index);
            out.extend((new > 0).then_some(type_index));
            count += new;
            if count >= self.min_values as usize {
                break;
            }
        }
        out
    }

    fn seen(&self) -> FixedBitSet {
        FixedBitSet::with_capacity(self.value_count)
    }

    /// Whether a type has a value that has not been seen.
    fn brings(&self, seen: &FixedBitSet, type_index: usize) -> bool {
        self.of_types[type_index].iter().any(|&value| !seen.contains(value as usize))
    }

    /// How many values a type has that have not been seen; now they have.
    fn add(&self, seen: &mut FixedBitSet, type_index: usize) -> usize {
        self.of_types[type_index].iter().filter(|&&value| !seen.put(value as usize)).count()
    }
}
