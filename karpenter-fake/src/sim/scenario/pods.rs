//! Pods that are written in a few words.

use std::{collections::BTreeSet, time::Duration};

use karpenter_core::{
    api::{DaemonSet, ObjectKey, Pod, PodBuilder},
    labels,
};

use super::{
    ScenarioErrorKind,
    words::{Words, Wrong},
};
use crate::sim::{Workload, WorkloadKind};

/// The most pods of one workload: more than any cluster runs.
pub(super) const MAX_PODS: u32 = 200_000;

const ATTRIBUTES: &str = "what a pod asks for, such as cpu=500m, memory=1Gi, nvidia.com/gpu=1, zone=, arch=, capacity-type=, \
    instance-type=, pool=, do-not-disrupt, or of `add-pods` kind=";

/// Reads `NAME COUNT ATTRIBUTES`, where `kind=KIND` is one of the attributes.
pub(super) fn workload(words: &mut Words<'_>) -> Result<Workload, Wrong> {
    let key = words.key()?;
    let count = words.count(MAX_PODS)?;
    let mut kind = None;
    let mut attributes = Vec::new();
    while let Some(word) = words.next() {
        let found = match word.strip_prefix("kind=") {
            Some("Deployment") => WorkloadKind::Deployment,
            Some("StatefulSet") => WorkloadKind::StatefulSet,
            Some(other) => return Err(Wrong::expected(other, "Deployment or StatefulSet")),
            None => {
                attributes.push(word);
                continue;
            }
        };
        if kind.replace(found).is_some() {
            return Err(Wrong::new(word, ScenarioErrorKind::Superfluous));
        }
    }
    read(attributes, &key, kind.unwrap_or(WorkloadKind::Deployment), count)
}

/// Reads `NAME COUNT DURATION ATTRIBUTES`.
pub(super) fn job(words: &mut Words<'_>) -> Result<Workload, Wrong> {
    let key = words.key()?;
    let count = words.count(MAX_PODS)?;
    let duration: Duration = words.duration()?;
    read(rest(words), &key, WorkloadKind::Job(duration), count)
}

/// Reads `NAME ATTRIBUTES`.
pub(super) fn daemons(words: &mut Words<'_>) -> Result<DaemonSet, Wrong> {
    let key = words.key()?;
    let workload = read(rest(words), &key, WorkloadKind::Deployment, 1)?;
    let mut daemons = DaemonSet::default();
    daemons.metadata.name = key.name;
    daemons.metadata.namespace = key.namespace;
    daemons.spec.template = workload.template;
    Ok(daemons)
}

fn rest<'t>(words: &mut Words<'t>) -> impl Iterator<Item = &'t str> {
    std::iter::from_fn(|| words.next())
}

fn read<'t>(
    attributes: impl IntoIterator<Item = &'t str>,
    key: &ObjectKey,
    kind: WorkloadKind,
    count: u32,
) -> Result<Workload, Wrong> {
    let mut pod = Pod::named(&key.name).namespace(&key.namespace).label("app", &key.name);
    let mut is_fixed = false;
    let mut seen = BTreeSet::new();
    for word in attributes {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        if !seen.insert(name) {
            return Err(Wrong::new(word, ScenarioErrorKind::Superfluous));
        }
        if word == "do-not-disrupt" {
            is_fixed = true;
        } else {
            pod = with_attribute(pod, word)?;
        }
    }
    let mut workload = Workload::of_pod(&key.name, kind, count, pod)
        .map_err(|error| Wrong::new(&key.name, ScenarioErrorKind::Pod(Box::new(error))))?;
    if is_fixed {
        workload.template.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    }
    Ok(workload)
}

fn with_attribute(pod: PodBuilder, word: &str) -> Result<PodBuilder, Wrong> {
    let wrong = || Wrong::expected(word, ATTRIBUTES);
    let (name, value) = word.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(wrong)?;
    let key = match name {
        "cpu" | "memory" => return Ok(pod.request(name, value)),
        resource if resource.contains('/') => return Ok(pod.request(resource, value)),
        "zone" => labels::ZONE,
        "arch" => labels::ARCH,
        "capacity-type" => labels::CAPACITY_TYPE,
        "instance-type" => labels::INSTANCE_TYPE,
        "pool" => labels::NODE_POOL,
        _ => return Err(wrong()),
    };
    Ok(pod.node_selector(key, value))
}
