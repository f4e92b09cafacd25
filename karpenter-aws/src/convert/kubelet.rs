//! Settings of the kubelet, which belonged to pools once and belong to their classes now.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::api::NodePool;
use serde_json::Value;

use super::{
    Class, ConvertError, Converter, Note, Pool, invalid,
    names::{free, referred},
    read::read,
};
use crate::nodeclass::{Ec2NodeClass, KIND, KubeletConfiguration};

/// Where version 1.0 kept the kubelet that a pool of `v1beta1` has. It counted more than that of the class.
const ANNOTATION: &str = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";
/// A setting that there is no more: kubelets know one runtime.
const CONTAINER_RUNTIME: &str = "containerRuntime";
const PODS_PER_CORE: &str = "podsPerCore";
/// Quantities, which could be numbers and are texts now.
const RESERVED: [&str; 2] = ["kubeReserved", "systemReserved"];

impl Converter {
    /// The settings of the kubelet at a path of an object, if they are written.
    pub(super) fn kubelet(
        &mut self,
        object: &str,
        path: &str,
        value: &Value,
    ) -> Result<Option<KubeletConfiguration>, ConvertError> {
        if value.is_null() {
            return Ok(None);
        }
        let mut kubelet: KubeletConfiguration = read(object, path, value)?;
        if kubelet.0.remove(CONTAINER_RUNTIME).is_some() {
            self.note(object, format!("{path}.{CONTAINER_RUNTIME} is left out: nodes have containerd"));
        }
        for field in RESERVED {
            let amounts = kubelet.0.get_mut(field).and_then(Value::as_object_mut).map(serde_json::Map::values_mut);
            for amount in amounts.into_iter().flatten().filter(|amount| amount.is_number()) {
                *amount = amount.to_string().into();
            }
        }
        Ok(Some(kubelet))
    }

    /// The settings in the annotation of a pool, which is taken from it.
    pub(super) fn annotated_kubelet(
        &mut self,
        object: &str,
        pool: &mut NodePool,
    ) -> Result<Option<KubeletConfiguration>, ConvertError> {
        let Some(text) = pool.metadata.annotations.remove(ANNOTATION) else { return Ok(None) };
        let path = format!("metadata.annotations[{ANNOTATION}]");
        let value: Value =
            serde_json::from_str(&text).map_err(|error| invalid(object, path.clone(), error.to_string()))?;
        self.kubelet(object, &path, &value)
    }

    /// Settings of the kubelet go to the class of their pool. A class whose pools do not agree is copied for those that
    /// differ from the first. It stays as it is if it has settings itself, or a pool of today that has none.
    pub(super) fn hand_over_kubelets(&mut self) {
        let mut taken = self.class_names();
        let mut settled = self.settled_classes();
        let of_class = |class: &Class| (class.now.name().to_owned(), class.now.spec.kubelet.clone());
        let own: BTreeMap<_, _> = self.classes.iter().map(of_class).collect();
        let Self { pools, classes, notes, .. } = self;
        for Pool { object, now: pool, kubelet, .. } in pools {
            let reference = &mut pool.spec.template.spec.node_class_ref;
            let mut note = |message| notes.push(Note { object: object.clone(), message });
            let kubelet = kubelet.take();
            let Some(class) = referred(classes, reference) else {
                if kubelet.is_some_and(|kubelet| !kubelet.is_empty()) {
                    let (kind, name) = (&reference.kind, &reference.name);
                    note(format!("settings of the kubelet belong to {kind} {name} now, which is not here"));
                }
                continue;
            };
            let wanted = match kubelet {
                Some(kubelet) => heeded(kubelet, class, &mut note),
                None => own[class.name()].clone(),
            };
            if settled.insert(class.name().to_owned()) {
                class.spec.kubelet = wanted;
            } else if class.spec.kubelet != wanted {
                let (name, free) = (class.name(), free(&taken, &format!("{}-{}", class.name(), pool.metadata.name)));
                note(format!("its kubelet differs from that of {KIND} {name}, so it has a class of its own, {free}"));
                let copy = copy_of(class, free, wanted);
                taken.insert(copy.name().to_owned());
                *reference = copy.reference();
                classes.push(Class { object: object.clone(), now: copy });
            }
        }
    }

    /// The classes whose settings are what they are.
    fn settled_classes(&self) -> BTreeSet<String> {
        let with_kubelet = self.classes.iter().map(|class| &class.now).filter(|class| !class.spec.kubelet.is_empty());
        let unchanged = self.pools.iter().filter(|pool| pool.is_of_today && pool.kubelet.is_none());
        let named = unchanged.map(|pool| &pool.now.spec.template.spec.node_class_ref);
        let named = named.filter(|reference| reference.kind == KIND).map(|reference| reference.name.clone());
        with_kubelet.map(|class| class.name().to_owned()).chain(named).collect()
    }
}

fn copy_of(class: &Ec2NodeClass, name: String, kubelet: KubeletConfiguration) -> Ec2NodeClass {
    let mut copy = class.clone();
    copy.metadata.name = name;
    copy.spec.kubelet = kubelet;
    copy
}

/// The settings that nodes of the class heed: a class with others would not be ready.
fn heeded(
    mut kubelet: KubeletConfiguration,
    class: &Ec2NodeClass,
    note: &mut impl FnMut(String),
) -> KubeletConfiguration {
    let Some(family) = class.ami_family().ok().filter(|family| !family.honours_pods_per_core()) else { return kubelet };
    if kubelet.0.remove(PODS_PER_CORE).is_some() {
        note(format!("{PODS_PER_CORE} of its kubelet is left out: nodes of the family {family} do not heed it"));
    }
    kubelet
}
