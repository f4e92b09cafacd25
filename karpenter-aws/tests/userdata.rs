//! User data of each family, held against texts that were written by hand: `tests/golden/NAME` has a class, and what an
//! instance of it is told.

use std::{collections::BTreeSet, path::Path};

use karpenter_aws::{
    nodeclass::Ec2NodeClass,
    userdata::{Bootstrap, Cluster},
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

fn golden(name: &str, file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).join(file);
    std::fs::read_to_string(path).expect("a file")
}

fn class(name: &str) -> Ec2NodeClass {
    serde_saphyr::from_str(&golden(name, "class.yaml")).expect("a class")
}

/// What an instance of the class is told, and what the golden file says that it is.
fn told(name: &str) -> (String, String) {
    let (class, claim, cluster) = (class(name), claim(), cluster());
    let bootstrap = Bootstrap::new(&class, &claim, &cluster, "spot", 58).expect("a class that can be read");
    (bootstrap.user_data().expect("user data").text, golden(name, "userdata.txt"))
}

#[test]
fn user_data_is_what_the_golden_files_say() {
    let folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")).expect("a folder");
    let names: BTreeSet<String> =
        folders.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    assert!(names.len() >= 12, "{names:?}");
    for name in &names {
        let (actual, expected) = told(name);
        assert_eq!(actual, expected, "{name}");
    }
}

#[test]
fn settings_that_bottlerocket_does_not_know_are_left_out_and_named() {
    let mut class = class("bottlerocket-merged");
    assert_eq!(class.ignored_settings(), ["settings.kubernetes.colour"]);
    class.spec.user_data = Some("[setings.kubernetes]\nmax-pods = 3".to_owned());
    assert_eq!(class.ignored_settings(), ["setings"]);
    class.spec.user_data = Some("no TOML".to_owned());
    assert!(class.ignored_settings().is_empty());
}
