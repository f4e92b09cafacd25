use std::collections::BTreeMap;

/// One series of a metric, as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The name with its unit, such as `karpenter_cloudprovider_batcher_batch_size`. That of a count ends in `_total`.
    pub name: &'static str,
    /// The labels, in the same order for all series of a name.
    pub labels: Vec<(&'static str, String)>,
    /// What was measured.
    pub value: Measured,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Measured {
    /// How often something happened.
    Count(u64),
    /// How much there is of something, in the unit that the name says.
    Level(f64),
    /// How large values were.
    Histogram(Histogram),
}

/// How large values were, in the unit that the name says.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// How many values there were.
    pub count: u64,
    /// All of them together.
    pub sum: f64,
    /// Bounds from small to large, each with how many values were at most so large.
    pub at_most: Vec<(f64, u64)>,
}

/// Counts and measures: what a provider keeps to answer
/// [`CloudProvider::measurements`](super::CloudProvider::measurements).
///
/// ```
/// use karpenter_core::provider::{Measured, Meter};
///
/// let mut meter = Meter::default();
/// meter.count("karpenter_provider_calls_total", vec![("call", "buy".to_owned())]);
/// meter.count("karpenter_provider_calls_total", vec![("call", "buy".to_owned())]);
/// assert_eq!(meter.measurements()[0].value, Measured::Count(2));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meter(BTreeMap<(&'static str, Labels), Measured>);

type Labels = Vec<(&'static str, String)>;

impl Meter {
    /// Something happened once more.
    pub fn count(&mut self, name: &'static str, labels: Labels) {
        let value = self.0.entry((name, labels)).or_insert(Measured::Count(0));
        if let Measured::Count(count) = value {
            *count += 1;
        }
    }

    /// There is so much of something.
    pub fn set(&mut self, name: &'static str, labels: Labels, level: f64) {
        self.0.insert((name, labels), Measured::Level(level));
    }

    /// A value was so large. The bounds of a name are always the same.
    pub fn observe(&mut self, name: &'static str, labels: Labels, bounds: &[f64], value: f64) {
        let empty = || {
            let at_most = bounds.iter().map(|bound| (*bound, 0)).collect();
            Measured::Histogram(Histogram { at_most, ..Histogram::default() })
        };
        let measured = self.0.entry((name, labels)).or_insert_with(empty);
        if let Measured::Histogram(histogram) = measured {
            histogram.count += 1;
            histogram.sum += value;
            for (_, count) in histogram.at_most.iter_mut().filter(|(bound, _)| value <= *bound) {
                *count += 1;
            }
        }
    }

    /// Forgets the series of a name for which `keep` says so of their labels.
    pub fn retain(&mut self, name: &'static str, keep: impl Fn(&[(&'static str, String)]) -> bool) {
        self.0.retain(|(own, labels), _| *own != name || keep(labels));
    }

    /// All series, by name and labels.
    pub fn measurements(&self) -> Vec<Measurement> {
        let series = self.0.iter();
        series
            .map(|((name, labels), value)| Measurement { name, labels: labels.clone(), value: value.clone() })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_for_all_bounds_that_are_not_below_them() {
        let mut meter = Meter::default();
        for value in [1.0, 2.0, 9.0] {
            meter.observe("sizes", Vec::new(), &[1.0, 2.0, 4.0], value);
        }
        let expected = Histogram { count: 3, sum: 12.0, at_most: vec![(1.0, 1), (2.0, 2), (4.0, 2)] };
        assert_eq!(meter.measurements()[0].value, Measured::Histogram(expected));
    }

    #[test]
    fn series_of_a_name_are_forgotten_by_their_labels() {
        let mut meter = Meter::default();
        for class in ["a", "b"] {
            meter.set("bytes", vec![("class", class.to_owned())], 1.0);
        }
        meter.count("others_total", Vec::new());
        meter.retain("bytes", |labels| labels[0].1 != "a");
        let left: Vec<_> = meter.measurements().into_iter().map(|m| (m.name, m.labels)).collect();
        assert_eq!(left, [("bytes", vec![("class", "b".to_owned())]), ("others_total", Vec::new())]);
    }
}
