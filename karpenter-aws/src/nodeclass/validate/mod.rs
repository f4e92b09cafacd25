//! The rules of the API server for classes, and those that are checked once a class is there.

mod kubelet;
mod terms;

use std::collections::BTreeSet;

use karpenter_core::{Quantity, api::FieldError};

use super::{Alias, AmiFamily, BlockDevice, Ec2NodeClass, InterfaceType};

const MAX_DISKS: usize = 50;
const MAX_INTERFACES: usize = 150;
/// The units of sizes of volumes, and how many of them there may be.
const MOST_OF_UNIT: [(&str, u32); 4] = [("G", 64_000), ("Gi", 59_000), ("T", 64), ("Ti", 58)];
/// Tags that the provider sets itself.
const OWN_TAGS: [&str; 4] =
    ["eks:eks-cluster-name", "karpenter.sh/nodepool", "karpenter.sh/nodeclaim", "karpenter.k8s.aws/ec2nodeclass"];

/// Why no nodes are made of a class until it is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In one word, for the condition `ValidationSucceeded`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Ec2NodeClass {
    /// Checks the rules that the definition of the kind has the API server check.
    ///
    /// # Errors
    /// All broken rules, with the paths of their fields.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut broken = Broken(Vec::new());
        broken.terms(&self.spec);
        broken.family(self);
        broken.identity(self);
        broken.tags(self);
        broken.disks(self);
        broken.interfaces(self);
        broken.numbers(self);
        if broken.0.is_empty() { Ok(()) } else { Err(broken.0) }
    }

    /// Checks what a class says that only a provider can check: the settings of the kubelet, whether nodes of its family
    /// can be told them, and its tags. `None` if nothing is wrong. Expressions in CEL are wrong unless they are evaluated.
    pub fn refusal(&self, evaluates_expressions: bool) -> Option<Refusal> {
        let refusal = |reason, message: String| Some(Refusal { reason, message });
        let broken = kubelet::broken_rules(&self.spec.kubelet.0);
        if !broken.is_empty() {
            return refusal("InvalidKubeletConfiguration", broken.join("; "));
        }
        let settings = match self.spec.kubelet.settings() {
            Ok(settings) => settings,
            Err(error) => return refusal("InvalidKubeletConfiguration", error.to_string()),
        };
        if settings.has_expressions() && !evaluates_expressions {
            let message = "spec.kubelet has expressions in CEL, which are not evaluated".to_owned();
            return refusal("KubeletExpressionsDisabled", message);
        }
        if let Err(error) = settings.expressions() {
            return refusal("KubeletExpressionInvalid", error.to_string());
        }
        let family = match self.ami_family() {
            Ok(family) => family,
            Err(error) => return refusal("UnsupportedAlias", error.to_string()),
        };
        let unknown = kubelet::unknown_to(family, &self.spec.kubelet.0, &settings);
        if !unknown.is_empty() {
            return refusal("UnsupportedKubeletConfiguration", unknown.join("; "));
        }
        let own: Vec<_> = self.spec.tags.keys().filter(|key| is_own_tag(key)).map(String::as_str).collect();
        let message = || format!("tags that the provider sets itself: {}", own.join(", "));
        if own.is_empty() { None } else { refusal("TagValidationFailed", message()) }
    }
}

fn is_own_tag(key: &str) -> bool {
    OWN_TAGS.contains(&key) || key.starts_with("kubernetes.io/cluster")
}

fn is_volume_size(size: Quantity) -> bool {
    let text = size.to_string();
    let count = |unit: &str| text.strip_suffix(unit)?.parse::<u32>().ok();
    MOST_OF_UNIT.iter().any(|(unit, most)| count(unit).is_some_and(|count| (1..=*most).contains(&count)))
}

struct Broken(Vec<FieldError>);

impl Broken {
    fn check(&mut self, holds: bool, field: &str, message: impl Into<String>) {
        if !holds {
            self.0.push(FieldError::new(field, message));
        }
    }

    fn family(&mut self, class: &Ec2NodeClass) {
        let alias: Option<Alias> = class.alias().ok().flatten();
        match (class.spec.ami_family, alias) {
            (Some(family), Some(alias)) => {
                let is_that = family == alias.family || family == AmiFamily::Custom;
                self.check(is_that, "spec.amiFamily", format!("{family} is neither {} nor Custom", alias.family));
            }
            (None, None) => {
                let has_alias = class.spec.ami_selector_terms.iter().any(|term| !term.alias.is_empty());
                self.check(has_alias, "spec.amiFamily", "must be written where no alias is");
            }
            _ => {}
        }
    }

    fn identity(&mut self, class: &Ec2NodeClass) {
        let has_role = !class.spec.role.is_empty();
        let profile = class.spec.instance_profile.as_deref();
        self.check(profile != Some(""), "spec.instanceProfile", "must not be empty");
        self.check(has_role != profile.is_some(), "spec", "exactly one of role and instanceProfile must be written");
    }

    fn tags(&mut self, class: &Ec2NodeClass) {
        for key in class.spec.tags.keys() {
            self.check(!key.is_empty(), "spec.tags", "a key is empty");
            self.check(!is_own_tag(key), "spec.tags", format!("{key} is set by the provider itself"));
        }
    }

    fn disks(&mut self, class: &Ec2NodeClass) {
        let disks = &class.spec.block_device_mappings;
        let field = "spec.blockDeviceMappings";
        self.check(disks.len() <= MAX_DISKS, field, format!("more than {MAX_DISKS}"));
        let roots = disks.iter().filter(|disk| disk.root_volume).count();
        self.check(roots <= 1, field, "more than one has rootVolume");
        for (at, ebs) in disks.iter().enumerate().filter_map(|(at, disk)| Some((at, disk.ebs.as_ref()?))) {
            self.volume(ebs, &format!("{field}[{at}].ebs"));
        }
    }

    fn volume(&mut self, ebs: &BlockDevice, field: &str) {
        let has_snapshot = ebs.snapshot_id.as_ref().is_some_and(|id| !id.is_empty());
        let is_sized = ebs.snapshot_id.is_some() || ebs.volume_size.is_some();
        self.check(is_sized, field, "one of snapshotID and volumeSize must be written");
        if let Some(rate) = ebs.volume_initialization_rate {
            self.check(has_snapshot, field, "volumeInitializationRate needs a snapshotID");
            self.check((100..=300).contains(&rate), field, "volumeInitializationRate is not from 100 to 300");
        }
        if let Some(size) = ebs.volume_size {
            let rule = "up to 64000G, 59000Gi, 64T or 58Ti";
            self.check(is_volume_size(size), field, format!("volumeSize {size} is not a whole number {rule}"));
        }
    }

    fn interfaces(&mut self, class: &Ec2NodeClass) {
        let interfaces = class.spec.network_interfaces.as_deref().unwrap_or_default();
        let field = "spec.networkInterfaces";
        self.check(interfaces.len() <= MAX_INTERFACES, field, format!("more than {MAX_INTERFACES}"));
        let is_first = |(card, device, kind)| (card, device, kind) == (0, 0, InterfaceType::Interface);
        let all = || interfaces.iter().map(|i| (i.network_card_index, i.device_index, i.interface_type));
        let has_first = interfaces.is_empty() || all().any(is_first);
        self.check(has_first, field, "device 0 of card 0 must be of the type interface");
        let places: BTreeSet<_> = all().map(|(card, device, _)| (card, device)).collect();
        self.check(places.len() == interfaces.len(), field, "two are the same device of a card");
        let efa_only = || all().filter(|(_, _, kind)| *kind == InterfaceType::EfaOnly);
        let cards: BTreeSet<_> = efa_only().map(|(card, _, _)| card).collect();
        self.check(cards.len() == efa_only().count(), field, "a card has more than one of the type efa-only");
    }

    fn numbers(&mut self, class: &Ec2NodeClass) {
        let spec = &class.spec;
        let hops = spec.metadata_options.as_ref().map(|options| options.http_put_response_hop_limit);
        let is_between = |value: Option<i32>, min, max| value.is_none_or(|value| (min..=max).contains(&value));
        let field = "spec.metadataOptions.httpPutResponseHopLimit";
        self.check(hops.is_none_or(|hops| (1..=64).contains(&hops)), field, "is not from 1 to 64");
        let Some(tracking) = spec.connection_tracking else { return };
        let field = "spec.connectionTracking";
        let tcp = tracking.tcp_established_timeout_secs;
        let (stream, udp) = (tracking.udp_stream_timeout_secs, tracking.udp_timeout_secs);
        self.check(tcp.or(stream).or(udp).is_some(), field, "one of its fields must be written");
        self.check(is_between(tcp, 60, 432_000), field, "tcpEstablishedTimeout is not from 60 to 432000");
        self.check(is_between(stream, 60, 180), field, "udpStreamTimeout is not from 60 to 180");
        self.check(is_between(udp, 30, 60), field, "udpTimeout is not from 30 to 60");
    }
}

#[cfg(test)]
mod tests;
