//! What the core is built from: few crates, and none that acts.

use std::{collections::BTreeSet, process::Command};

/// The most packages in the tree of the core with default features, itself included.
const MAX_PACKAGES: usize = 25;

/// Crates that bring IO, a clock, a runtime, threads, randomness or global state, and what to do without them.
const BANNED: [(&str, &str); 24] = [
    ("anyhow", "errors of a library are typed values"),
    ("async-std", "the core is runtime-neutral; the shell brings the runtime"),
    ("chrono", "time is jiff at the edges and Timestamp in the core"),
    ("crossbeam-utils", "the core starts no threads"),
    ("getrandom", "randomness comes from a seed argument"),
    ("hyper", "the core does no IO"),
    ("k8s-openapi", "the core has its own slim views of Kubernetes' objects"),
    ("kube", "only karpenter-kube talks to an API server"),
    ("lazy_static", "the core has no globals"),
    ("libc", "the core makes no system calls"),
    ("log", "decisions are explained by values, not by log lines"),
    ("mio", "the core does no IO"),
    ("once_cell", "the core has no globals"),
    ("parking_lot", "the core shares nothing between threads"),
    ("rand", "randomness comes from a seed argument"),
    ("rayon", "threads only behind a feature that is off by default"),
    ("regex", "nothing in the core's input is a regular expression"),
    ("reqwest", "the core does no IO"),
    ("serde_json", "the shells choose the format; the core has serde's traits only"),
    ("serde_yaml", "the shells choose the format; the core has serde's traits only"),
    ("smol", "the core is runtime-neutral; the shell brings the runtime"),
    ("time", "time is jiff at the edges and Timestamp in the core"),
    ("tokio", "the core is runtime-neutral; the shell brings the runtime"),
    ("tracing", "decisions are explained by values, not by log lines"),
];

#[test]
fn the_core_is_built_from_few_crates_none_of_which_acts() {
    let packages = packages();
    assert!(packages.contains("serde"), "the tree was not read: {packages:?}");
    for (name, instead) in BANNED {
        assert!(!packages.contains(name), "karpenter-core is built from {name}, but {instead}");
    }
    assert!(
        packages.len() <= MAX_PACKAGES,
        "karpenter-core is built from {} packages, {MAX_PACKAGES} at most: {packages:?}\n\
         Do without the newest dependency, trim its default features, or put it behind a feature.",
        packages.len()
    );
}

/// The names of all packages that go into the library with default features on this platform, as cargo resolves them.
#[expect(clippy::disallowed_methods, reason = "this test asks cargo, which no part of the core does")]
fn packages() -> BTreeSet<String> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal,build", "--prefix", "none"])
        .args(["--format", "{p}", "--manifest-path", manifest])
        .output()
        .expect("cargo runs: it runs this test");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("the names of crates are UTF-8");
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}
