//! Labels and allocatable of all instance types against the table that AWS publishes.
//!
//! The table, and the facts that EC2 does not tell, are in `$SHARED/data` (`../shared/data` beside the repository if it
//! is not set). What EC2 says is `target/moto-instance-types.json`, which `dump.py` writes. Without them there is
//! nothing to compare.

#![allow(clippy::print_stderr, reason = "what is skipped, and how many are alike, is said aloud")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use karpenter_aws::{
    ec2::InstanceTypeInfo,
    instance_type::{Facts, POD_ENI, TypeOptions, TypeSettings, labels},
    nodeclass::{AmiSelectorTerm, Ec2NodeClass, Subnet},
};
use karpenter_core::{InstanceType, Quantity, ResourceList, labels as core_labels};
use serde::Deserialize;

/// Labels that the table leaves out: they go by the class, or are written nowhere.
const NOT_IN_THE_TABLE: [&str; 5] =
    [core_labels::ZONE, core_labels::REGION, core_labels::CAPACITY_TYPE, labels::TENANCY, labels::NITRO_SANDBOX];

#[derive(Deserialize)]
struct Row {
    name: String,
    labels: BTreeMap<String, String>,
    resources: ResourceList,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Limits {
    branch_interface: u32,
    is_trunking_compatible: bool,
}

struct Data {
    table: Vec<Row>,
    types: BTreeMap<String, InstanceTypeInfo>,
    bandwidth: BTreeMap<String, u32>,
    limits: BTreeMap<String, Limits>,
}

impl Data {
    /// `None`, and a word about it, if something is not there.
    fn read() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let shared = std::env::var_os("SHARED").map_or_else(|| root.join("../shared"), PathBuf::from).join("data");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
        let types: Vec<InstanceTypeInfo> = json(&target.join("moto-instance-types.json"))?;
        Some(Self {
            table: json(&shared.join("aws-instance-types.json.gz"))?,
            types: types.into_iter().map(|info| (info.instance_type.clone(), info)).collect(),
            bandwidth: json(&shared.join("aws-bandwidth.json.gz"))?,
            limits: json(&shared.join("aws-eni-limits.json.gz"))?,
        })
    }

    /// The facts as a user would write them down.
    fn facts(&self) -> Facts {
        let with_branches = self.limits.iter().filter(|(_, limits)| limits.is_trunking_compatible);
        let mut facts = Facts::default();
        facts.network_bandwidth_mbps.clone_from(&self.bandwidth);
        facts.branch_interfaces = with_branches.map(|(name, limits)| (name.clone(), limits.branch_interface)).collect();
        facts
    }

    /// The rows of types that EC2 knows, and what is computed of these.
    fn compared(&self, facts: Facts) -> Vec<(&Row, InstanceType)> {
        let mut class = Ec2NodeClass::named("default");
        class.spec.ami_selector_terms = vec![AmiSelectorTerm::of_alias("al2023@latest")];
        class.status.subnets = vec![Subnet { id: "s".to_owned(), zone: "z".to_owned(), zone_id: String::new() }];
        let options = TypeOptions { facts: Arc::new(facts), ..TypeOptions::of_region("us-east-1") };
        let settings = TypeSettings::new(&class, &options).expect("a class with a subnet");
        let zones = BTreeSet::from(["z".to_owned()]);
        let resolved = |row: &Row| settings.instance_type(self.types.get(&row.name)?, &zones);
        self.table.iter().filter_map(|row| Some((row, resolved(row)?))).collect()
    }
}

fn json<T: serde::de::DeserializeOwned>(file: &Path) -> Option<T> {
    if !file.exists() {
        eprintln!("skipped: {} is not there", file.display());
        return None;
    }
    let is_packed = file.extension().is_some_and(|end| end == "gz");
    let bytes = if is_packed {
        Command::new("gzip").arg("-dc").arg(file).output().expect("gzip").stdout
    } else {
        std::fs::read(file).expect("a file that can be read")
    };
    Some(serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
}

/// The labels of a node of the type, as far as the table has them.
fn labels_of(found: &InstanceType) -> BTreeMap<String, String> {
    let own = found.requirements.iter().filter(|(key, _)| !NOT_IN_THE_TABLE.contains(key));
    own.filter_map(|(key, requirement)| Some((key.to_owned(), requirement.any_value()?.to_string()))).collect()
}

/// All that is more than nothing, but for branch interfaces: these are facts of their own.
fn resources_of(all: &ResourceList) -> BTreeMap<String, Quantity> {
    let some = all.iter().filter(|(name, quantity)| !quantity.is_zero() && name.as_str() != POD_ENI);
    some.map(|(name, quantity)| (name.to_string(), quantity)).collect()
}

/// Where EC2's own answer is not what the table was made from: beginnings of names, and the label or resource.
/// docs/src/aws-instance-types.md says why.
const KNOWN_DIFFERENCES: [(&str, &str); 16] = [
    ("c9g.", labels::CPU_CLOCK_SPEED_MHZ),
    ("c9gd.", labels::CPU_CLOCK_SPEED_MHZ),
    ("g7.2xlarge", labels::NETWORK_BANDWIDTH),
    ("g7.4xlarge", labels::NETWORK_BANDWIDTH),
    ("g7.8xlarge", labels::NETWORK_BANDWIDTH),
    ("i7i.", labels::CPU_CLOCK_SPEED_MHZ),
    ("i7ie.", labels::CPU_CLOCK_SPEED_MHZ),
    ("i7ie.48xlarge", "memory"),
    ("i7ie.48xlarge", "pods"),
    ("i7ie.metal-48xl", "memory"),
    ("i7ie.metal-48xl", "pods"),
    ("i8ge.48xlarge", "memory"),
    ("i8ge.48xlarge", "pods"),
    ("i8ge.metal-48xl", "memory"),
    ("i8ge.metal-48xl", "pods"),
    ("m9g", labels::CPU_CLOCK_SPEED_MHZ),
];

/// The known difference that this is, if it is one.
fn known(name: &str, key: &str) -> Option<usize> {
    KNOWN_DIFFERENCES.iter().position(|(start, of)| name.starts_with(start) && key == *of)
}

/// The keys that have not the same value in both.
fn differing<K: Ord + Clone, V: PartialEq>(a: &BTreeMap<K, V>, b: &BTreeMap<K, V>) -> Vec<K> {
    let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
    keys.into_iter().filter(|key| a.get(key) != b.get(key)).cloned().collect()
}

#[test]
fn labels_and_allocatable_are_those_that_aws_publishes() {
    let Some(data) = Data::read() else { return };
    let compared = data.compared(data.facts());
    let mut seen = BTreeSet::new();
    let (mut unlike, mut unlike_allocatable) = (0, 0);
    for (row, found) in &compared {
        let mut keys = differing(&resources_of(&found.allocatable()), &resources_of(&row.resources));
        unlike_allocatable += usize::from(!keys.is_empty());
        keys.extend(differing(&labels_of(found), &row.labels));
        for key in &keys {
            let known = known(&row.name, key);
            assert!(known.is_some(), "{}: {key} differs", row.name);
            seen.extend(known);
        }
        unlike += usize::from(!keys.is_empty());
    }
    let all = compared.len();
    eprintln!("of {all} types {} alike, {} in what pods have", all - unlike, all - unlike_allocatable);
    assert!(compared.len() >= 1349, "only {} types are known", compared.len());
    assert_eq!(seen.len(), KNOWN_DIFFERENCES.len(), "a difference that is no more");
}

/// The limits are newer than the table. Where the table has a number, it is that one.
#[test]
fn branch_interfaces_are_those_that_aws_publishes() {
    let Some(data) = Data::read() else { return };
    let compared = data.compared(data.facts());
    let of = |list: &ResourceList| list.get(POD_ENI).unwrap_or(Quantity::ZERO);
    for (row, found) in &compared {
        let expected = of(&row.resources);
        assert!(expected.is_zero() || expected == of(&found.capacity), "{}", row.name);
    }
}

/// Without facts, the bandwidth is what EC2 says. For few types that is not what the table says.
#[test]
fn bandwidth_is_that_which_aws_publishes_without_facts_too() {
    let Some(data) = Data::read() else { return };
    let compared = data.compared(Facts::default());
    let of = |(row, found): &(&Row, InstanceType)| {
        labels_of(found).get(labels::NETWORK_BANDWIDTH) == row.labels.get(labels::NETWORK_BANDWIDTH)
    };
    let unlike: Vec<_> = compared.iter().filter(|pair| !of(pair)).map(|(row, _)| row.name.as_str()).collect();
    let expected = [
        "g7.2xlarge",
        "g7.4xlarge",
        "g7.8xlarge",
        "i7i.12xlarge",
        "i7ie.48xlarge",
        "i7ie.metal-48xl",
        "i8g.12xlarge",
        "i8g.metal-48xl",
        "i8ge.48xlarge",
        "i8ge.metal-48xl",
    ];
    assert_eq!(unlike.into_iter().collect::<BTreeSet<_>>(), expected.into());
}
