//! Manifests that an API server accepts and rejects (`karpenter-kube/tests/manifests`) are accepted and rejected here.

use std::path::Path;

use karpenter_aws::nodeclass::Ec2NodeClass;

/// The classes of a folder by the names of their files: each that can be read, and else why not.
fn classes(folder: &str) -> Vec<(String, Result<Ec2NodeClass, String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../karpenter-kube/tests/manifests").join(folder);
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("a text");
        let class = serde_saphyr::from_str(&text).map_err(|error| error.to_string());
        (path.display().to_string(), class)
    };
    let mut files: Vec<_> =
        files.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("ec2-"))).collect();
    files.sort();
    assert!(files.len() > 10, "{files:?}");
    files.iter().map(|path| read(path)).collect()
}

#[test]
fn what_an_api_server_accepts_breaks_no_rule() {
    for (file, class) in classes("accepted") {
        let class = class.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(class.validate(), Ok(()), "{file}");
    }
}

#[test]
fn what_an_api_server_rejects_cannot_be_read_or_breaks_a_rule() {
    for (file, class) in classes("rejected") {
        assert!(class.is_err() || class.is_ok_and(|class| class.validate().is_err()), "{file}");
    }
}
