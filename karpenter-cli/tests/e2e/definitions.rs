//! What our custom resource definitions accept and reject.

use std::{fs, path::Path};

use karpenter_core::api::{NodeClaim, NodeOverlay, NodePool};
use kube::{
    api::{GetParams, PostParams},
    core::Request,
};
use serde_json::Value;

use crate::plane::Plane;

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../karpenter-kube/tests/manifests");

/// The documents of each manifest in a folder, with its name and its text.
fn manifests(folder: &str) -> Vec<(String, String, Vec<Value>)> {
    let entries = fs::read_dir(Path::new(MANIFESTS).join(folder)).expect("a folder");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).expect("a text");
        let documents = text.split("\n---").map(|part| serde_saphyr::from_str(part).expect("a manifest")).collect();
        (path.file_name().expect("a name").to_string_lossy().into_owned(), text, documents)
    };
    files.into_iter().map(read).collect()
}

/// Creates an object, or replaces the one of its name, and then its status; the error of the API server if it refuses.
async fn write(plane: &Plane, document: &Value) -> Result<(), String> {
    let (plural, name) = (plural(document), document["metadata"]["name"].as_str().expect("a name"));
    let path = format!("/apis/{}/{plural}", document["apiVersion"].as_str().expect("a version"));
    let existing =
        plane.client.request::<Value>(Request::new(&path).get(name, &GetParams::default()).expect("a request")).await;
    let mut object = document.clone();
    if let Ok(existing) = &existing {
        object["metadata"]["resourceVersion"] = existing["metadata"]["resourceVersion"].clone();
    }
    let request = Request::new(&path);
    let body = |object: &Value| serde_json::to_vec(object).expect("JSON");
    let request = match existing {
        Ok(_) => request.replace(name, &PostParams::default(), body(&object)),
        Err(_) => request.create(&PostParams::default(), body(&object)),
    };
    let stored = plane.client.request::<Value>(request.expect("a request")).await.map_err(|error| error.to_string())?;
    if document.get("status").is_some() {
        object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        let request = Request::new(&path).replace_subresource("status", name, &PostParams::default(), body(&object));
        plane.client.request::<Value>(request.expect("a request")).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn plural(document: &Value) -> &'static str {
    match document["kind"].as_str() {
        Some("NodePool") => "nodepools",
        Some("NodeClaim") => "nodeclaims",
        Some("NodeOverlay") => "nodeoverlays",
        Some("KWOKNodeClass") => "kwoknodeclasses",
        Some("EC2NodeClass") => "ec2nodeclasses",
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_are_accepted_and_rejected_as_by_karpenter() {
    let Some(plane) = Plane::start("definitions").await else { return };
    for (file, _, documents) in manifests("accepted") {
        for document in &documents {
            assert_eq!(write(&plane, document).await, Ok(()), "{file}");
        }
    }
    for (file, text, documents) in manifests("rejected") {
        let expected = text.lines().find_map(|line| line.strip_prefix("# expect: ")).expect("what is expected");
        let (last, before) = documents.split_last().expect("a document");
        for document in before {
            assert_eq!(write(&plane, document).await, Ok(()), "{file}");
        }
        let error = write(&plane, last).await.expect_err(&file);
        assert!(error.contains(expected), "{file}: {error}");
    }
}

#[test]
fn what_is_accepted_can_be_read() {
    for (file, _, documents) in manifests("accepted") {
        for document in documents {
            let read = match plural(&document) {
                "nodepools" => serde_json::from_value::<NodePool>(document).map(drop),
                "nodeclaims" => serde_json::from_value::<NodeClaim>(document).map(drop),
                "nodeoverlays" => serde_json::from_value::<NodeOverlay>(document).map(drop),
                _ => Ok(()),
            };
            assert!(read.is_ok(), "{file}: {read:?}");
        }
    }
}
