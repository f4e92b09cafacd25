//! Which pods belong to one workload, and how many of them a node may take at most.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::{FxBuild, Snapshot, api::Pod};

/// What a share may miss a whole number by and still be it, because most decimal fractions are not exact.
const ROUNDING: f64 = 1e-9;

/// The number of a workload.
pub(super) type WorkloadId = usize;

/// The workloads of the pending pods, if a node takes no more than a share of one.
#[derive(Clone, Debug, Default)]
pub(super) struct Workloads<'s> {
    /// The most of a workload that one node takes; `None` if there is no such rule.
    share: Option<f64>,
    by_controller: IndexMap<Controller<'s>, (), FxBuild>,
    /// How many pods each workload has, by its number.
    sizes: Vec<i64>,
    /// For each place how many pods of which workloads run there.
    on_places: Vec<BTreeMap<WorkloadId, i64>>,
}

/// The object that manages pods: its namespace, kind, name and identity.
type Controller<'s> = (&'s str, &'s str, &'s str, &'s str);

impl<'s> Workloads<'s> {
    /// The workloads with a controller of which pods are pending, with all their pods.
    pub(super) fn new(snapshot: &'s Snapshot, share: Option<f64>) -> Self {
        let mut out = Self { share: share.map(|share| share.max(0.0)).filter(|share| *share < 1.0), ..Self::default() };
        if out.share.is_none() {
            return out;
        }
        for controller in snapshot.pending().filter_map(controller) {
            let (index, _) = out.by_controller.insert_full(controller, ());
            out.sizes.resize(out.by_controller.len(), 0);
            out.sizes[index] += 1;
        }
        for place in snapshot.places() {
            let mut here = BTreeMap::new();
            for pod in place.staying() {
                if let Some(workload) = out.of_pod(pod) {
                    out.sizes[workload] += 1;
                    *here.entry(workload).or_insert(0) += 1;
                }
            }
            out.on_places.push(here);
        }
        out
    }

    /// The workload of a pod; `None` if it has no controller or there is no such rule.
    pub(super) fn of_pod(&self, pod: &'s Pod) -> Option<WorkloadId> {
        self.by_controller.get_index_of(&controller(pod)?)
    }

    /// Makes pods without a controller a workload of their own, of so many; `None` if there is no such rule.
    pub(super) fn add(&mut self, pod_count: usize) -> Option<WorkloadId> {
        self.share?;
        self.sizes.push(i64::try_from(pod_count).unwrap_or(i64::MAX));
        Some(self.sizes.len() - 1)
    }

    /// How many pods of a workload a node takes: its share, and at least one.
    #[expect(clippy::cast_possible_truncation, reason = "whole pods count, and no share is more than all of them")]
    pub(super) fn most(&self, workload: WorkloadId) -> i64 {
        let Some(share) = self.share else { return i64::MAX };
        ((self.sizes[workload] as f64 * share + ROUNDING) as i64).max(1)
    }

    /// How many pods of which workloads run in a place, by its index.
    pub(super) fn on_place(&self, place: usize) -> BTreeMap<WorkloadId, i64> {
        self.on_places.get(place).cloned().unwrap_or_default()
    }
}

fn controller(pod: &Pod) -> Option<Controller<'_>> {
    let owner = pod.metadata.controller()?;
    Some((pod.namespace(), &owner.kind, &owner.name, &owner.uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_down_and_leave_at_least_one() {
        let most = |share: f64, size: i64| {
            let workloads = Workloads { share: Some(share), sizes: vec![size], ..Workloads::default() };
            workloads.most(0)
        };
        let cases = [(0.25, 8), (0.25, 7), (0.25, 3), (0.29, 100), (0.0, 10), (-1.0, 10), (f64::NAN, 10)];
        assert_eq!(cases.map(|(share, size)| most(share, size)), [2, 1, 1, 29, 1, 1, 1]);
    }

    #[test]
    fn a_share_that_is_no_number_is_no_share() {
        let snapshot = Snapshot::builder().build().expect("valid");
        let share = |share: f64| Workloads::new(&snapshot, Some(share)).share;
        assert_eq!([-1.0, f64::NAN, 0.5, 1.0, f64::INFINITY].map(share), [Some(0.0), Some(0.0), Some(0.5), None, None]);
    }
}
