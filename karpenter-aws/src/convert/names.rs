//! Objects of one name: which of them counts, and which names are free.

use std::collections::{BTreeMap, BTreeSet};

use super::{Class, Converter};
use crate::nodeclass::{Ec2NodeClass, KIND};

/// The kinds that have another name now.
const SUCCESSORS: [(&str, &str); 2] = [("Provisioner", "NodePool"), ("AWSNodeTemplate", KIND)];

impl Converter {
    /// Leaves out what the manifests have in today's kind too, as clusters do in the middle of a migration: there the old
    /// objects stay until those that were made of them have taken over.
    pub(super) fn leave_out_older(&mut self) {
        let newer = |object: &String| {
            let (kind, name) = object.split_once(' ')?;
            let (_, successor) = SUCCESSORS.iter().find(|(old, _)| *old == kind)?;
            let newer = format!("{successor} {name}");
            self.seen.contains(&newer).then(|| (object.clone(), newer))
        };
        let older: BTreeMap<String, String> = self.seen.iter().filter_map(newer).collect();
        self.pools.retain(|pool| !older.contains_key(&pool.object));
        self.classes.retain(|class| !older.contains_key(&class.object));
        self.notes.retain(|note| !older.contains_key(&note.object));
        for (object, newer) in older {
            self.note(&object, format!("is left out, because {newer} is among the manifests and counts"));
        }
    }

    /// Gives classes to the provisioners that say themselves what is AWS's: of their names, or such that are free.
    pub(super) fn place_inline_classes(&mut self) {
        let mut taken = self.class_names();
        for pool in &mut self.pools {
            let Some(mut class) = pool.inline.take() else { continue };
            let name = free(&taken, class.name());
            if name != class.name() {
                let wanted = class.name();
                let message = format!("spec.provider becomes {KIND} {name}, because {KIND} {wanted} is another");
                self.notes.push(super::Note { object: pool.object.clone(), message });
            }
            pool.now.spec.template.spec.node_class_ref.name.clone_from(&name);
            class.metadata.name.clone_from(&name);
            taken.insert(name);
            self.classes.push(Class { object: pool.object.clone(), now: class });
        }
    }

    /// The names that classes have, and those by which pools name classes that are not among the manifests.
    pub(super) fn class_names(&self) -> BTreeSet<String> {
        let referring = self.pools.iter().filter(|pool| pool.inline.is_none());
        let named = referring.map(|pool| &pool.now.spec.template.spec.node_class_ref);
        let named = named.filter(|reference| reference.kind == KIND).map(|reference| reference.name.clone());
        self.classes.iter().map(|class| class.now.name().to_owned()).chain(named).collect()
    }
}

/// The name, with a number behind it if it is taken.
pub(super) fn free(taken: &BTreeSet<String>, wanted: &str) -> String {
    let mut name = wanted.to_owned();
    let mut number = 1;
    while taken.contains(&name) {
        number += 1;
        name = format!("{wanted}-{number}");
    }
    name
}

/// The class that a reference names.
pub(super) fn referred<'c>(
    classes: &'c mut [Class],
    reference: &karpenter_core::api::NodeClassRef,
) -> Option<&'c mut Ec2NodeClass> {
    classes.iter_mut().map(|class| &mut class.now).find(|class| class.reference() == *reference)
}
