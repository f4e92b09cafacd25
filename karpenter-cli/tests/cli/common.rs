//! Runs the built command on small files.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

pub(crate) const POOL: &str = r#"{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"general"},"spec":{"template":{"spec":{
  "nodeClassRef":{"group":"karpenter.kwok.sh","kind":"KWOKNodeClass","name":"default"},"requirements":[
  {"key":"karpenter.sh/capacity-type","operator":"In","values":["on-demand"]}]}}}}"#;

pub(crate) const CATALOG: &str = r#"[{"name":"m-4x","capacity":{"cpu":"4","memory":"16Gi","pods":"110"},
  "requirements":[{"key":"node.kubernetes.io/instance-type","operator":"In","values":["m-4x"]}],
  "offerings":[{"price":0.2,"requirements":[
    {"key":"karpenter.sh/capacity-type","operator":"In","values":["on-demand"]},
    {"key":"topology.kubernetes.io/zone","operator":"In","values":["zone-a"]}]}]}]"#;

/// What the command did.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A folder with the files of one test.
pub(crate) struct Files(PathBuf);

impl Files {
    /// A new folder that has this catalog in it; `test` must be unique.
    pub(crate) fn new(test: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
        fs::create_dir_all(&folder).unwrap();
        let files = Self(folder);
        files.write("types.json", CATALOG);
        files
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        self.write_bytes(name, text.as_bytes());
    }

    pub(crate) fn write_bytes(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    /// Runs `karpenter` in the folder, with the arguments in one text.
    pub(crate) fn run(&self, arguments: &str) -> Ran {
        self.run_with(arguments, "")
    }

    pub(crate) fn run_with(&self, arguments: &str, input: &str) -> Ran {
        let mut child = Command::new(env!("CARGO_BIN_EXE_karpenter"))
            .args(arguments.split_whitespace())
            .current_dir(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The command may end before it has read its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Plans for a cluster and gives back the JSON document.
    pub(crate) fn plan(&self, cluster: &str) -> serde_json::Value {
        self.write("cluster.json", cluster);
        self.json("plan --cluster cluster.json --catalog types.json -o json")
    }

    /// The JSON document of a command. Only `explain` has no room for warnings in it.
    pub(crate) fn json(&self, arguments: &str) -> serde_json::Value {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments}: {}", ran.err);
        assert!(ran.err.is_empty() || arguments.starts_with("explain"), "{arguments}: {}", ran.err);
        serde_json::from_str(&ran.out).unwrap()
    }
}

/// A pending pod that the kube-scheduler refused.
pub(crate) fn pod(name: &str, cpu: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"default"}},
        "spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}","memory":"2Gi"}}}}}}]}},
        "status":{{"phase":"Pending","conditions":[{{"type":"PodScheduled","status":"False","reason":"Unschedulable"}}]}}}}"#
    )
}

/// A node with 2 cores that no pool made.
pub(crate) fn node(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}","labels":{{"kubernetes.io/hostname":"{name}"}}}},
        "spec":{{"providerID":"id://{name}"}},
        "status":{{"capacity":{{"cpu":"2","memory":"8Gi","pods":"10"}},"allocatable":{{"cpu":"2","memory":"8Gi","pods":"10"}},
        "conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
    )
}

/// What `kubectl get -o json` prints.
pub(crate) fn list(items: &[&str]) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"List","metadata":{{"resourceVersion":""}},"items":[{}]}}"#, items.join(","))
}
