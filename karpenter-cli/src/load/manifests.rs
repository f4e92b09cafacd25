//! Manifests as a scenario puts them into its cluster.

use std::sync::Arc;

use karpenter_core::{api::FieldError, engine::Object};
use karpenter_fake::sim::{Workload, WorkloadKind, scenario::Manifest};

use super::{
    changes::{Accepted, ChangeReader},
    documents::for_each_object,
    objects::{Kind, key_of},
    workload,
};
use crate::Error;

/// Reads manifests: pools, daemonsets, budgets, volumes and namespaces as they are; Deployments and StatefulSets as what
/// makes pods.
///
/// # Errors
/// The text is not JSON or YAML or holds nothing; an object bears on no plan or cannot be read. A Job is an error too: a
/// manifest does not say how long its pods run.
pub fn manifests(text: &str, file: &str) -> Result<Vec<Manifest>, Error> {
    let mut reader = ChangeReader::default();
    reader.start(file);
    let mut workloads = Vec::new();
    for_each_object(text, file, &mut |object, position| {
        if !workload::is_workload(object) {
            return reader.take(object, position, file, Accepted::Everything);
        }
        let wrong = |error: FieldError| Error::Object {
            file: file.to_owned(),
            error: error.of(format!("{} ({position})", object.kind)),
        };
        let key = key_of(object, Some(Kind::Pod)).map_err(wrong)?;
        let kind = match object.kind.as_str() {
            "Deployment" | "ReplicaSet" => WorkloadKind::Deployment,
            "StatefulSet" => WorkloadKind::StatefulSet,
            _ => return Err(wrong(FieldError::new("kind", "it does not say how long its pods run: use add-job"))),
        };
        let (read, template) = workload::read_template(object, key).map_err(wrong)?;
        workloads.push(Manifest::Workload(Box::new(Workload::new(read.key, kind, read.replicas, template))));
        Ok(())
    })?;
    let mut out = Vec::new();
    let cluster = reader.finish().cluster;
    let mut add = |object| out.push(Manifest::Object(object));
    cluster.namespaces.into_iter().for_each(|one| add(Object::Namespace(Arc::new(one))));
    cluster.pools.into_iter().for_each(|one| add(Object::NodePool(Arc::new(one))));
    cluster.overlays.into_iter().for_each(|one| add(Object::NodeOverlay(Arc::new(one))));
    cluster.daemonsets.into_iter().for_each(|one| add(Object::DaemonSet(Arc::new(one))));
    cluster.budgets.into_iter().for_each(|one| add(Object::PodDisruptionBudget(Arc::new(one))));
    cluster.storage_classes.into_iter().for_each(|one| add(Object::StorageClass(Arc::new(one))));
    cluster.volumes.into_iter().for_each(|one| add(Object::PersistentVolume(Arc::new(one))));
    cluster.volume_claims.into_iter().for_each(|one| add(Object::PersistentVolumeClaim(Arc::new(one))));
    cluster.csi_nodes.into_iter().for_each(|one| add(Object::CsiNode(Arc::new(one))));
    cluster.pods.into_iter().for_each(|one| add(Object::Pod(one)));
    cluster.claims.into_iter().for_each(|one| add(Object::NodeClaim(Arc::new(one))));
    cluster.nodes.into_iter().for_each(|one| add(Object::Node(Arc::new(one))));
    out.append(&mut workloads);
    Ok(out)
}
