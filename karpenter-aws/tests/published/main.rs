//! Labels and allocatable of all instance types against the table that AWS publishes.
//!
//! The table, and the facts that EC2 does not tell, are in `$SHARED/data` (`../shared/data` beside the repository if it
//! is not set). What EC2 says is `target/moto-instance-types.json`, which `dump.py` writes. Without them there is
//! nothing to compare; with `KARPENTER_MOTO=required` it is a failure if EC2 says nothing.

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
        let types: Option<Vec<InstanceTypeInfo>> = json(&target.join("moto-instance-types.json"));
        let is_required = std::env::var_os("KARPENTER_MOTO").is_some_and(|word| word == "required");
        assert!(types.is_some() || !is_required, "what EC2 says is not there");
        let types = types?;
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

/// Where EC2's own answer is not what the table was made from: beginnings of names, the label or resource, what the
/// table has, and what is computed. docs/src/aws-instance-types.md says why.
const KNOWN_DIFFERENCES: [(&str, &str, &str, &str); 17] = [
    ("c9g.", labels::CPU_CLOCK_SPEED_MHZ, "2800", "3300"),
    ("c9gd.", labels::CPU_CLOCK_SPEED_MHZ, "2800", "3300"),
    ("g7.2xlarge", labels::NETWORK_BANDWIDTH, "60000", "40000"),
    ("g7.4xlarge", labels::NETWORK_BANDWIDTH, "60000", "80000"),
    ("g7.8xlarge", labels::NETWORK_BANDWIDTH, "80000", "100000"),
    ("i7i.", labels::CPU_CLOCK_SPEED_MHZ, "2400", "3200"),
    ("i7ie.", labels::CPU_CLOCK_SPEED_MHZ, "3600", "3200"),
    ("i7ie.48xlarge", "memory", "1446437Mi", "1450210Mi"),
    ("i7ie.48xlarge", "pods", "737", "394"),
    ("i7ie.metal-48xl", "memory", "1446437Mi", "1450210Mi"),
    ("i7ie.metal-48xl", "pods", "737", "394"),
    ("i8ge.48xlarge", "memory", "1441527Mi", "1447995Mi"),
    ("i8ge.48xlarge", "pods", "1178", "590"),
    ("i8ge.metal-48xl", "memory", "1441527Mi", "1447995Mi"),
    ("i8ge.metal-48xl", "pods", "1178", "590"),
    ("m9g.", labels::CPU_CLOCK_SPEED_MHZ, "2800", "3300"),
    ("m9gd.", labels::CPU_CLOCK_SPEED_MHZ, "2800", "3300"),
];

/// What differs, with the value of the table and the computed one.
type Differences = BTreeMap<String, (String, String)>;

fn differing<K: Ord + ToString, V: PartialEq + ToString>(
    table: &BTreeMap<K, V>,
    found: &BTreeMap<K, V>,
) -> Differences {
    let keys: BTreeSet<&K> = table.keys().chain(found.keys()).collect();
    let text = |value: Option<&V>| value.map(ToString::to_string).unwrap_or_default();
    let unlike = keys.into_iter().filter(|key| table.get(key) != found.get(key));
    unlike.map(|key| (key.to_string(), (text(table.get(key)), text(found.get(key))))).collect()
}

/// The known difference that this is, if it is one.
fn known(name: &str, key: &str, table: &str, found: &str) -> Option<usize> {
    let is_this = |(start, of, a, b): &(&str, &str, &str, &str)| {
        name.starts_with(start) && key == *of && table == *a && found == *b
    };
    KNOWN_DIFFERENCES.iter().position(is_this)
}

#[test]
fn labels_and_allocatable_are_those_that_aws_publishes() {
    let Some(data) = Data::read() else { return };
    let compared = data.compared(data.facts());
    let mut seen = BTreeSet::new();
    let (mut unlike, mut unlike_allocatable, mut unlike_speed) = (0, 0, 0);
    for (row, found) in &compared {
        let mut all = differing(&resources_of(&row.resources), &resources_of(&found.allocatable()));
        unlike_allocatable += usize::from(!all.is_empty());
        all.extend(differing(&row.labels, &labels_of(found)));
        for (key, (table, computed)) in &all {
            let known = known(&row.name, key, table, computed);
            assert!(known.is_some(), "{}: {key} is {table} in the table, and {computed}", row.name);
            seen.extend(known);
        }
        unlike += usize::from(!all.is_empty());
        unlike_speed += usize::from(all.keys().eq([labels::CPU_CLOCK_SPEED_MHZ]));
    }
    let count = compared.len();
    let (alike, speed) = (count - unlike, count - unlike + unlike_speed);
    eprintln!(
        "of {count} types {alike} alike, {speed} but for speed, {} in what pods have",
        count - unlike_allocatable
    );
    assert!(speed >= 1345 && count >= 1349, "only {count} types are known, and {speed} are alike");
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
