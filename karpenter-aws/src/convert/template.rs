use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    ConvertError, Converter, IMAGE_PLACEHOLDER, ROLE_PLACEHOLDER, name_of, or_empty, read, selector::Selector,
};
use crate::nodeclass::{AmiFamily, AmiSelectorTerm, Ec2NodeClass, Ec2NodeClassSpec};

impl Converter {
    pub(super) fn node_template(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let object = name_of(manifest);
        let name = manifest["metadata"]["name"].as_str().unwrap_or("");
        let mut class = self.class_of_template(&object, name, "spec", &manifest["spec"])?;
        class.metadata.labels = read(&object, "metadata.labels", or_empty(&manifest["metadata"]["labels"]))?;
        class.metadata.annotations =
            read(&object, "metadata.annotations", or_empty(&manifest["metadata"]["annotations"]))?;
        self.out.classes.push(class);
        Ok(())
    }

    /// What a provisioner said of AWS by itself is a class of its name now.
    pub(super) fn inline_provider(&mut self, name: &str, provider: &Value) -> Result<(), ConvertError> {
        let class = self.class_of_template(&format!("Provisioner {name}"), name, "spec.provider", provider)?;
        self.out.classes.push(class);
        Ok(())
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
        let selector = |key: &str| -> Result<Selector, ConvertError> {
            let map: BTreeMap<String, String> = read(object, &format!("{path}.{key}"), or_empty(&old[key]))?;
            Ok(Selector::read(&map))
        };
        let mut class = Ec2NodeClass::named(name);
        class.spec = common(object, path, old)?;
        class.spec.subnet_selector_terms = selector("subnetSelector")?.subnets();
        class.spec.security_group_selector_terms = selector("securityGroupSelector")?.security_groups();
        if !old["amiSelector"].is_null() {
            class.spec.ami_selector_terms = selector("amiSelector")?.images();
        }
        self.settle_images(object, &mut class.spec, old["amiFamily"].as_str().unwrap_or("AL2"));
        if class.spec.instance_profile.is_none() {
            ROLE_PLACEHOLDER.clone_into(&mut class.spec.role);
            self.note(
                object,
                format!("no instance profile is written: put the role of nodes where {ROLE_PLACEHOLDER} is"),
            );
        }
        Ok(class)
    }

    pub(super) fn node_class(&mut self, manifest: &Value) -> Result<(), ConvertError> {
        let object = name_of(manifest);
        let is_old = manifest["apiVersion"].as_str() == Some("karpenter.k8s.aws/v1beta1");
        let mut class = Ec2NodeClass::named("");
        class.metadata = read(&object, "metadata", or_empty(&manifest["metadata"]))?;
        if !is_old {
            class.spec = read(&object, "spec", or_empty(&manifest["spec"]))?;
            self.out.classes.push(class);
            return Ok(());
        }
        class.spec = common(&object, "spec", &manifest["spec"])?;
        self.settle_images(&object, &mut class.spec, manifest["spec"]["amiFamily"].as_str().unwrap_or("AL2"));
        self.out.classes.push(class);
        Ok(())
    }

    /// A family without terms stood for its newest images. Families that there are no more are those that are told in the
    /// same way what to do.
    fn settle_images(&mut self, object: &str, spec: &mut Ec2NodeClassSpec, family: &str) {
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
            None => spec.ami_family = Some(AmiFamily::Custom),
        }
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

/// The fields that have the same name and meaning. Answers of the metadata service went two hops where nothing was
/// written.
fn common(object: &str, path: &str, old: &Value) -> Result<Ec2NodeClassSpec, ConvertError> {
    let mut spec = or_empty(old);
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("amiFamily");
        let options = fields.entry("metadataOptions").or_insert(Value::Null);
        let mut written = or_empty(options);
        if let Some(written) = written.as_object_mut() {
            let hops = written.entry("httpPutResponseHopLimit").or_insert(Value::Null);
            if hops.is_null() {
                *hops = json!(2);
            }
        }
        *options = written;
    }
    read(object, path, spec)
}
