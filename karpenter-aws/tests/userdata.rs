//! User data of each family, held against texts that were written by hand: `tests/golden/NAME` has a class, and what an
//! instance of it is told.

use std::{collections::BTreeSet, path::Path};

use karpenter_aws::{
    nodeclass::Ec2NodeClass,
    userdata::{Bootstrap, Cluster, UserData},
};
use karpenter_core::api::{NodeClaim, Taint, TaintEffect};

fn cluster() -> Cluster {
    Cluster {
        name: "prod".to_owned(),
        endpoint: "https://prod.example.com".to_owned(),
        ca_bundle: Some("Y2VydGlmaWNhdGU=".to_owned()),
        dns_ip: Some("10.100.0.10".to_owned()),
        service_cidr: Some("10.100.0.0/16".to_owned()),
    }
}

fn claim() -> NodeClaim {
    let mut claim = NodeClaim::named("general-x7k2p");
    let labels = [("karpenter.sh/nodepool", "general"), ("team", "web"), ("kubernetes.io/arch", "amd64")];
    claim.metadata.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    claim.spec.taints = vec![Taint::new("team", "web", TaintEffect::NoSchedule)];
    claim.spec.startup_taints = vec![Taint::new("example.com/agent", "", TaintEffect::NoExecute)];
    claim
}

/// What an instance of the class is told, and what the golden file says that it is.
fn told(name: &str) -> (UserData, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).expect("a file");
    let class: Ec2NodeClass = serde_saphyr::from_str(&read("class.yaml")).expect("a class");
    let (claim, cluster) = (claim(), cluster());
    let bootstrap = Bootstrap::new(&class, &claim, &cluster, "spot", 58).expect("a class that can be read");
    (bootstrap.user_data().expect("user data"), read("userdata.txt"))
}

#[test]
fn user_data_is_what_the_golden_files_say() {
    let folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")).expect("a folder");
    let names: BTreeSet<String> =
        folders.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    assert!(names.len() >= 12, "{names:?}");
    for name in &names {
        let (actual, expected) = told(name);
        assert_eq!(actual.text, expected, "{name}");
    }
}

#[test]
fn settings_that_bottlerocket_does_not_know_are_left_out_and_named() {
    let (actual, _) = told("bottlerocket-merged");
    assert_eq!(actual.ignored, ["colour"]);
}
