use std::collections::BTreeMap;

use karpenter_core::Quantity;
use serde_json::{Value, json};

use super::{
    Class, ConvertError, Converter, IMAGE_PLACEHOLDER, ROLE_PLACEHOLDER, name_of,
    read::{list_or_empty, or_empty, read},
    selector::Selector,
};
use crate::nodeclass::{AmiFamily, AmiSelectorTerm, Ec2NodeClass, Ec2NodeClassSpec};

/// The fields of all kinds that mean the same today.
const HANDED_ON: [&str; 7] =
    ["blockDeviceMappings", "context", "detailedMonitoring", "instanceProfile", "metadataOptions", "tags", "userData"];
/// Those of `v1beta1` that do beside them.
const HANDED_ON_BETA: [&str; 6] = [
    "amiSelectorTerms",
    "associatePublicIPAddress",
    "instanceStorePolicy",
    "role",
    "securityGroupSelectorTerms",
    "subnetSelectorTerms",
];
/// The other fields of node templates, and those that only inline ones have.
const OF_TEMPLATE: [&str; 5] =
    ["amiFamily", "amiSelector", "launchTemplate", "securityGroupSelector", "subnetSelector"];
const OF_INLINE: [&str; 2] = ["apiVersion", "kind"];
const GIB: i64 = 1 << 30;

impl Converter {
    pub(super) fn node_template(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let object = name_of(manifest);
        let name = manifest["metadata"]["name"].as_str().unwrap_or("");
        let mut class = self.class_of_template(&object, name, "spec", &manifest["spec"])?;
        let meta = &manifest["metadata"];
        class.metadata.labels = read(&object, "metadata.labels", &or_empty(&meta["labels"]))?;
        class.metadata.annotations = read(&object, "metadata.annotations", &or_empty(&meta["annotations"]))?;
        class.metadata.finalizers = read(&object, "metadata.finalizers", &list_or_empty(&meta["finalizers"]))?;
        self.classes.push(Class { object, now: class });
        Ok(())
    }

    /// What a provisioner says of AWS itself, as a class of its name.
    pub(super) fn inline_provider(&mut self, name: &str, provider: &Value) -> Result<Ec2NodeClass, ConvertError> {
        self.class_of_template(&format!("Provisioner {name}"), name, "spec.provider", provider)
    }

    /// The class of what is written at a path of an object.
    fn class_of_template(
        &mut self,
        object: &str,
        name: &str,
        path: &str,
        old: &Value,
    ) -> Result<Ec2NodeClass, ConvertError> {
        if !old["launchTemplate"].is_null() {
            return Err(ConvertError::LaunchTemplate { object: object.to_owned() });
        }
        let of_inline = if path == "spec" { &[][..] } else { &OF_INLINE };
        let old = &self.known(object, path, old, &[&HANDED_ON[..], &OF_TEMPLATE, of_inline].concat());
        let mut class = Ec2NodeClass::named(name);
        class.spec = self.common(object, path, old, &HANDED_ON)?;
        class.spec.subnet_selector_terms = self.selector(object, path, old, "subnetSelector")?.subnets();
        class.spec.security_group_selector_terms =
            self.selector(object, path, old, "securityGroupSelector")?.security_groups();
        if !old["amiSelector"].is_null() {
            class.spec.ami_selector_terms = self.selector(object, path, old, "amiSelector")?.images();
        }
        self.settle_images(object, path, &mut class.spec, &old["amiFamily"])?;
        if class.spec.instance_profile.is_none() {
            ROLE_PLACEHOLDER.clone_into(&mut class.spec.role);
            self.note(
                object,
                format!("no instance profile is written: put the role of nodes where {ROLE_PLACEHOLDER} is"),
            );
        }
        Ok(class)
    }

    fn selector(&mut self, object: &str, path: &str, old: &Value, key: &str) -> Result<Selector, ConvertError> {
        let field = format!("{path}.{key}");
        let map: BTreeMap<String, String> = read(object, &field, &or_empty(&old[key]))?;
        let selector = Selector::read(&map);
        if !selector.left_out().is_empty() {
            let keys = selector.left_out().join(", ");
            self.note(object, format!("{field}: ids stand alone now, so {keys} is left out"));
        }
        Ok(selector)
    }

    pub(super) fn node_class(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let object = name_of(manifest);
        let is_old = manifest["apiVersion"].as_str() == Some("karpenter.k8s.aws/v1beta1");
        let mut class = Ec2NodeClass::named("");
        class.metadata = read(&object, "metadata", &or_empty(&manifest["metadata"]))?;
        let spec = &or_empty(&manifest["spec"]);
        if is_old {
            let fields = [&HANDED_ON[..], &HANDED_ON_BETA].concat();
            let spec = self.known(&object, "spec", spec, &[&fields[..], &["amiFamily"]].concat());
            class.spec = self.common(&object, "spec", &spec, &fields)?;
            self.settle_images(&object, "spec", &mut class.spec, &spec["amiFamily"])?;
        } else {
            class.spec = self.read(&object, "spec", spec)?;
        }
        self.classes.push(Class { object, now: class });
        Ok(())
    }

    /// The fields that have the same name and meaning. Answers of the metadata service went two hops where nothing was
    /// written.
    fn common(
        &mut self,
        object: &str,
        path: &str,
        old: &Value,
        fields: &[&str],
    ) -> Result<Ec2NodeClassSpec, ConvertError> {
        let mut spec = or_empty(old);
        if let Some(all) = spec.as_object_mut() {
            all.retain(|key, _| fields.contains(&key.as_str()));
            let options = all.entry("metadataOptions").or_insert(Value::Null);
            let mut written = or_empty(options);
            if let Some(written) = written.as_object_mut() {
                let hops = written.entry("httpPutResponseHopLimit").or_insert(Value::Null);
                if hops.is_null() {
                    *hops = json!(2);
                }
            }
            *options = written;
        }
        let mut spec: Ec2NodeClassSpec = self.read(object, path, &spec)?;
        let volumes = spec.block_device_mappings.iter_mut().filter_map(|disk| disk.ebs.as_mut());
        for size in volumes.filter_map(|ebs| ebs.volume_size.as_mut()) {
            *size = as_defined(*size);
        }
        Ok(spec)
    }

    /// A family without terms stood for its newest images. Families that there are no more are those that are told in the
    /// same way what to do.
    fn settle_images(
        &mut self,
        object: &str,
        path: &str,
        spec: &mut Ec2NodeClassSpec,
        family: &Value,
    ) -> Result<(), ConvertError> {
        let family: Option<String> = read(object, &format!("{path}.amiFamily"), family)?;
        let family = family.as_deref().unwrap_or("AL2");
        let known = AmiFamily::ALL.into_iter().find(|known| known.as_str() == family);
        let has_terms = !spec.ami_selector_terms.is_empty();
        match known {
            Some(AmiFamily::Custom) => spec.ami_family = Some(AmiFamily::Custom),
            Some(known) if has_terms => spec.ami_family = Some(known),
            Some(known) => {
                let alias = format!("{}@latest", known.as_str().to_ascii_lowercase());
                self.note(
                    object,
                    format!("nodes drift whenever there is an image newer than that of {alias}: name a version"),
                );
                spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias(alias)];
            }
            None if family == "Ubuntu" => self.settle_ubuntu(object, spec),
            None => {
                let meant = AmiFamily::ALL.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(family));
                let only = meant.map(|meant| format!(", only {meant}")).unwrap_or_default();
                self.note(
                    object,
                    format!("{path}.amiFamily: there is no family {family:?}{only}; it becomes {}", AmiFamily::Custom),
                );
                spec.ami_family = Some(AmiFamily::Custom);
            }
        }
        Ok(())
    }

    fn settle_ubuntu(&mut self, object: &str, spec: &mut Ec2NodeClassSpec) {
        spec.ami_family = Some(AmiFamily::Al2);
        if spec.block_device_mappings.is_empty() {
            let mut disks = AmiFamily::Al2.default_block_device_mappings();
            for disk in &mut disks {
                disk.device_name = Some("/dev/sda1".to_owned());
                disk.root_volume = true;
            }
            spec.block_device_mappings = disks;
        }
        if spec.ami_selector_terms.is_empty() {
            spec.ami_selector_terms = vec![AmiSelectorTerm::of_id(IMAGE_PLACEHOLDER)];
            self.note(object, "there is no family Ubuntu any more: select its images in spec.amiSelectorTerms");
        }
    }
}

/// A size in a unit that the definition of the kind takes. EC2 was asked for whole GiB, as many as hold it.
fn as_defined(size: Quantity) -> Quantity {
    let text = size.to_string();
    let is_large = size >= Quantity::from_units(1_000_000_000);
    if !is_large || ["G", "T", "Gi", "Ti"].iter().any(|unit| text.ends_with(unit)) {
        return size;
    }
    let bytes = size.units_ceil();
    let gib = bytes / GIB + i64::from(bytes % GIB != 0);
    gib.checked_mul(GIB).map_or(size, Quantity::from_bytes)
}
