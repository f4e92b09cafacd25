//! What the volumes of pending pods ask of nodes, in such a form that pods which ask the same are equal.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexSet;

use crate::{
    FxBuild, Requirements, Snapshot,
    api::{ObjectKey, Pod},
    cluster::{Attachment, Place, VolumeNeeds, VolumeProblem},
};

/// What the volumes of a pod ask of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Volumes {
    /// The node must meet one of these; none of them means that any node will do.
    pub(super) alternatives: Vec<Requirements>,
    /// By driver, how many volumes only this pod mounts.
    own: BTreeMap<String, i64>,
    /// The volumes that other pods mount too.
    shared: Vec<Attachment>,
}

/// The volumes of pending pods.
#[derive(Debug, Default)]
pub(super) struct AllVolumes {
    kinds: IndexSet<Volumes, FxBuild>,
    by_pod: BTreeMap<ObjectKey, usize>,
}

impl AllVolumes {
    /// Reads the volumes of pods; gives back what is wrong with those of which something is.
    pub(super) fn new<'s>(
        snapshot: &'s Snapshot,
        pods: impl Iterator<Item = &'s Pod>,
    ) -> (Self, BTreeMap<ObjectKey, VolumeProblem>) {
        let mut needs = Vec::new();
        let pods: Vec<&Pod> = pods.filter(|pod| !pod.spec.volumes.is_empty()).collect();
        let mut problems = taken_claims(snapshot, &pods);
        for pod in pods {
            let key = pod.key();
            match snapshot.storage().needs_of(pod) {
                Err(problem) => drop(problems.insert(key, problem)),
                Ok(found) if !problems.contains_key(&key) => needs.push((key, found)),
                Ok(_) => {}
            }
        }
        let limited: BTreeSet<&str> =
            snapshot.places().iter().flat_map(|place| place.volume_limits.keys()).map(String::as_str).collect();
        let mut mounts: BTreeMap<&Attachment, usize> = BTreeMap::new();
        let attached = snapshot.places().iter().flat_map(|place| &place.attached);
        for attachment in needs.iter().flat_map(|(_, needs)| &needs.attachments).chain(attached) {
            *mounts.entry(attachment).or_default() += 1;
        }
        let mut out = Self::default();
        out.kinds.insert(Volumes::default());
        for (key, needs) in &needs {
            let (kind, _) = out.kinds.insert_full(Volumes::new(needs, &limited, |a| mounts[a] > 1));
            out.by_pod.insert(key.clone(), kind);
        }
        (out, problems)
    }

    /// The number of what the volumes of a pod ask for.
    pub(super) fn of(&self, pod: &Pod) -> usize {
        if pod.spec.volumes.is_empty() { 0 } else { self.by_pod.get(&pod.key()).copied().unwrap_or(0) }
    }

    pub(super) fn kind(&self, number: usize) -> &Volumes {
        &self.kinds[number]
    }
}

/// The pods that mount what is for one pod at a time and another has: one on a node that is not about to leave it, or the first
/// by name of those that wait.
fn taken_claims(snapshot: &Snapshot, pods: &[&Pod]) -> BTreeMap<ObjectKey, VolumeProblem> {
    let storage = snapshot.storage();
    let mut problems = BTreeMap::new();
    if !storage.has_exclusive_claims() {
        return problems;
    }
    let mut holders: BTreeMap<ObjectKey, ObjectKey> = BTreeMap::new();
    let staying = snapshot.places().iter().filter(|place| !place.is_deleting).flat_map(|place| place.staying());
    for pod in staying {
        holders.extend(storage.exclusive_claims_of(pod).map(|claim| (claim, pod.key())));
    }
    let mut waiting: Vec<(ObjectKey, &Pod)> = pods.iter().map(|pod| (pod.key(), *pod)).collect();
    waiting.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    for (key, pod) in waiting {
        let claims: Vec<ObjectKey> = storage.exclusive_claims_of(pod).collect();
        let taken = claims.iter().find_map(|claim| holders.get_key_value(claim)).filter(|(_, holder)| **holder != key);
        if let Some((claim, holder)) = taken {
            problems.insert(key, VolumeProblem::TakenByPod { claim: claim.clone(), pod: holder.clone() });
        } else {
            holders.extend(claims.into_iter().map(|claim| (claim, key.clone())));
        }
    }
    problems
}

impl Volumes {
    /// Whether every node can take them.
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }

    /// Drivers that no node limits are left out.
    fn new(needs: &VolumeNeeds, limited: &BTreeSet<&str>, is_shared: impl Fn(&Attachment) -> bool) -> Self {
        let mut out = Self { alternatives: needs.alternatives.clone(), ..Self::default() };
        for attachment in needs.attachments.iter().filter(|a| limited.contains(a.driver.as_str())) {
            if is_shared(attachment) {
                out.shared.push(attachment.clone());
            } else {
                *out.own.entry(attachment.driver.clone()).or_default() += 1;
            }
        }
        out
    }

    /// Adds the volumes of `count` further pods of a unit.
    pub(super) fn add(&mut self, other: &Self, count: i64) {
        for (driver, own) in &other.own {
            *self.own.entry(driver.clone()).or_default() += own * count;
        }
        for attachment in &other.shared {
            if !self.shared.contains(attachment) {
                self.shared.push(attachment.clone());
            }
        }
    }
}

/// What is attached to a node that exists, and how much may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Attached {
    volumes: BTreeSet<Attachment>,
    /// By driver, how many more there may be.
    left: BTreeMap<String, i64>,
}

impl Attached {
    pub(super) fn at_place(place: &Place) -> Self {
        let count = |driver: &str| place.attached.iter().filter(|a| a.driver == driver).count();
        let left = |(driver, limit): (&String, &u32)| {
            let used = i64::try_from(count(driver)).unwrap_or(i64::MAX);
            (driver.clone(), i64::from(*limit) - used)
        };
        Self { volumes: place.attached.clone(), left: place.volume_limits.iter().map(left).collect() }
    }

    /// How many units with such volumes the node can take.
    pub(super) fn most(&self, volumes: &Volumes) -> i64 {
        if volumes.is_empty() {
            return i64::MAX;
        }
        let mut most = i64::MAX;
        for (driver, &left) in &self.left {
            let own = volumes.own.get(driver).copied().unwrap_or(0);
            let new = self.new_volumes(volumes).filter(|a| a.driver == *driver).count();
            let left = left - i64::try_from(new).unwrap_or(i64::MAX);
            if left < 0 && (new > 0 || own > 0) {
                return 0;
            }
            if own > 0 {
                most = most.min(left / own);
            }
        }
        most
    }

    /// Adds units with such volumes.
    pub(super) fn add(&mut self, volumes: &Volumes, count: i64) {
        if volumes.is_empty() {
            return;
        }
        let new: Vec<Attachment> = self.new_volumes(volumes).cloned().collect();
        for (driver, left) in &mut self.left {
            let shared = new.iter().filter(|a| a.driver == *driver).count();
            *left -= volumes.own.get(driver).copied().unwrap_or(0) * count + i64::try_from(shared).unwrap_or(i64::MAX);
        }
        self.volumes.extend(new);
    }

    fn new_volumes<'v>(&'v self, volumes: &'v Volumes) -> impl Iterator<Item = &'v Attachment> {
        volumes.shared.iter().filter(|a| !self.volumes.contains(*a))
    }
}
