use std::sync::Arc;

use smallvec::SmallVec;

/// A set of label values: a few named ones, or all but a few, within bounds if there are any.
///
/// A bounded set has those values that are whole numbers within the bounds. Label values cannot begin with a minus
/// sign, so numbers begin at zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ValueSet {
    Only(Values),
    AllBut { excluded: Values, bounds: Option<Bounds> },
}

/// Label values in their order, each once. Most sets have one, which needs no room of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Values(SmallVec<[Arc<str>; 1]>);

impl Values {
    const EMPTY: Self = Self(SmallVec::new_const());

    fn contains(&self, value: &str) -> bool {
        self.0.binary_search_by(|own| (**own).cmp(value)).is_ok()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<Arc<str>> for Values {
    fn from_iter<I: IntoIterator<Item = Arc<str>>>(values: I) -> Self {
        let mut values: SmallVec<_> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        Self(values)
    }
}

/// An inclusive range of whole numbers, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Bounds {
    pub(super) min: i64,
    pub(super) max: i64,
}

impl Bounds {
    fn intersection(self, other: Self) -> Option<Self> {
        let (min, max) = (self.min.max(other.min), self.max.min(other.max));
        (min <= max).then_some(Self { min, max })
    }

    fn contains(self, value: &str) -> bool {
        // As in Kubernetes, a number may be written with leading zeros.
        value.bytes().next().is_some_and(|b| b.is_ascii_digit())
            && value.parse().is_ok_and(|n: i64| (self.min..=self.max).contains(&n))
    }
}

impl ValueSet {
    pub(super) const EMPTY: Self = Self::Only(Values::EMPTY);
    pub(super) const ALL: Self = Self::AllBut { excluded: Values::EMPTY, bounds: None };

    /// The whole numbers from `min` to `max`.
    pub(super) fn range(min: i64, max: i64) -> Self {
        let min = min.max(0);
        if min > max {
            return Self::EMPTY;
        }
        Self::AllBut { excluded: Values::EMPTY, bounds: Some(Bounds { min, max }) }
    }

    pub(super) fn contains(&self, value: &str) -> bool {
        match self {
            Self::Only(values) => values.contains(value),
            Self::AllBut { excluded, bounds } => !excluded.contains(value) && bounds.is_none_or(|b| b.contains(value)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        // A number has endlessly many spellings with leading zeros, so no exclusions exhaust a range.
        matches!(self, Self::Only(values) if values.is_empty())
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Only(values), any) | (any, Self::Only(values)) => {
                Self::Only(values.iter().filter(|v| any.contains(v)).cloned().collect())
            }
            (Self::AllBut { excluded: a, bounds: x }, Self::AllBut { excluded: b, bounds: y }) => {
                let bounds = match (x, y) {
                    (Some(x), Some(y)) => match x.intersection(*y) {
                        Some(bounds) => Some(bounds),
                        None => return Self::EMPTY,
                    },
                    (bounds, None) | (None, bounds) => *bounds,
                };
                let outside = |v: &&Arc<str>| bounds.is_none_or(|b| b.contains(v));
                Self::AllBut { excluded: a.iter().chain(b.iter()).filter(outside).cloned().collect(), bounds }
            }
        }
    }

    pub(super) fn intersects(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Only(values), any) | (any, Self::Only(values)) => values.iter().any(|v| any.contains(v)),
            (Self::AllBut { bounds: Some(x), .. }, Self::AllBut { bounds: Some(y), .. }) => {
                x.intersection(*y).is_some()
            }
            _ => true,
        }
    }

    /// The first value in a fixed order, if there is one.
    pub(super) fn any(&self) -> Option<Arc<str>> {
        match self {
            Self::Only(values) => values.iter().next().cloned(),
            Self::AllBut { excluded, bounds } => {
                let Bounds { min, max } = bounds.unwrap_or(Bounds { min: 0, max: i64::MAX });
                // One number more than there are exclusions, first as usual, then with zeros before it.
                let last = min.saturating_add(i64::try_from(excluded.len()).unwrap_or(i64::MAX)).min(max);
                let spell = |zeros: usize| (min..=last).map(move |n| format!("{}{n}", "0".repeat(zeros)));
                (0..=excluded.len()).flat_map(spell).find(|v| !excluded.contains(v.as_str())).map(Arc::from)
            }
        }
    }

    /// How many values there are; `None` for endlessly many.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Self::Only(values) => Some(values.len()),
            Self::AllBut { .. } => None,
        }
    }
}
