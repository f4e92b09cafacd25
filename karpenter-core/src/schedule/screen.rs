//! Which pods planning can handle, so that nothing that changes a decision is ignored.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Reason, Snapshot,
    api::{NamedDisk, ObjectKey, Pod, Volume},
};

/// Whether planning can handle the pod; if not, why not.
pub(super) fn check(pod: &Pod) -> Result<(), Reason> {
    pod.validate().map_err(Reason::Invalid)?;
    if pod.spec.resource_claims.is_empty() {
        return Ok(());
    }
    Err(Reason::Unsupported { field: "spec.resourceClaims".to_owned() })
}

/// The pods that name a disk which another pod names too. The kube-scheduler keeps such pods on nodes of their own unless both
/// only read it.
pub(super) fn sharing_disks(snapshot: &Snapshot, pods: &[(usize, &Pod)]) -> BTreeMap<ObjectKey, Reason> {
    let mut out = BTreeMap::new();
    if pods.iter().all(|(_, pod)| named_disks(pod).next().is_none()) {
        return out;
    }
    let mut mounts: BTreeMap<_, Mounts<'_>> = BTreeMap::new();
    for pod in snapshot.pods().iter().filter(|pod| !pod.is_finished()) {
        for (_, disk) in named_disks(pod) {
            mounts.entry(disk.name).or_default().add(pod, disk);
        }
    }
    for (_, pod) in pods {
        let mut disks = named_disks(pod);
        let shared = disks.find(|(_, disk)| mounts.get(&disk.name).is_some_and(|of| of.have_rival(pod, *disk)));
        if let Some((index, disk)) = shared {
            let field = format!("spec.volumes[{index}].{}", disk.name.0);
            out.insert(pod.key(), Reason::Unsupported { field });
        }
    }
    out
}

fn named_disks(pod: &Pod) -> impl Iterator<Item = (usize, NamedDisk<'_>)> {
    pod.spec.volumes.iter().map(Volume::named_disk).enumerate().filter_map(|(index, disk)| Some((index, disk?)))
}

/// The pods that name one disk.
#[derive(Default)]
struct Mounts<'p> {
    all: BTreeSet<(&'p str, &'p str)>,
    writers: BTreeSet<(&'p str, &'p str)>,
}

impl<'p> Mounts<'p> {
    fn add(&mut self, pod: &'p Pod, disk: NamedDisk<'p>) {
        self.all.insert(pod.sort_key());
        if !disk.is_read_only {
            self.writers.insert(pod.sort_key());
        }
    }

    /// Whether another pod must not share a node with one that mounts the disk so.
    fn have_rival(&self, pod: &Pod, disk: NamedDisk<'_>) -> bool {
        let pods = if disk.is_read_only { &self.writers } else { &self.all };
        pods.len() > usize::from(pods.contains(&pod.sort_key()))
    }
}
