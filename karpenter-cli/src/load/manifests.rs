//! Manifests as a scenario puts them into its cluster.

use std::sync::Arc;

use karpenter_core::{api::FieldError, engine::Object};
use karpenter_fake::sim::{Workload, WorkloadKind, scenario::Manifest};

use super::{
    LoadWarning,
    changes::{Accepted, ChangeReader},
    documents::for_each_object,
    objects::{Cluster, Kind, key_of},
    workload,
};
use crate::Error;

/// What is said of a misspelt field, which would make another cluster than the one that is meant.
const NO_SUCH_FIELD: &str = "there is no such field";

/// Reads manifests: pools, daemonsets, budgets, volumes and namespaces as they are; Deployments and StatefulSets as what
/// makes pods. Kinds that bear on nothing, such as a Service, are passed over.
///
/// # Errors
/// The text is not JSON or YAML or holds nothing; an object bears on no plan, cannot be read or has a field that there is not.
/// A Job is an error too: a manifest does not say how long its pods run.
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
        if let Some(field) = workload::unknown_fields(object).first() {
            return Err(wrong(FieldError::new(field, NO_SUCH_FIELD)));
        }
        let mut workload = Workload::new(read.key, kind, read.replicas, template.pods);
        workload.claim_templates = template.claims;
        workloads.push(Manifest::Workload(Box::new(workload)));
        Ok(())
    })?
    .check()?;
    let cluster = reader.finish()?.cluster;
    cluster.warnings.iter().find_map(unknown_field).map_or(Ok(()), Err)?;
    let mut out = objects(cluster);
    out.append(&mut workloads);
    Ok(out)
}

fn unknown_field(warning: &LoadWarning) -> Option<Error> {
    let LoadWarning::UnknownField { file, object, field, .. } = warning else { return None };
    Some(Error::Object { file: file.clone(), error: FieldError::new(field, NO_SUCH_FIELD).of(object) })
}

fn objects(cluster: Cluster) -> Vec<Manifest> {
    let mut out = Vec::new();
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
    out
}
