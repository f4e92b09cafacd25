//! A real control plane, and replicas of the controller that work on it.

#![expect(clippy::print_stderr, reason = "a test that is skipped says so, and one that fails gives the log")]

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use karpenter_core::api::{Node, NodeClaim, Pod};
use karpenter_kube::CUSTOM_RESOURCE_DEFINITIONS;
use kube::{
    Api, Client, Config, Error, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{GroupVersionKind, TypeMeta},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::wire::Wire;

/// The binary of the control plane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok in one.
const BINARY: &str = "KARPENTER_CONTROLPLANE";

/// How often a control plane is started until it gets ready: the port that it finds free may be taken before it listens.
const STARTS: usize = 3;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_mins(5);

/// What is installed: of this, who the controller is and what it may do.
const INSTALLATION: &str = include_str!("../../../deploy/manifests/karpenter.yaml");
const NAMESPACE: &str = "kube-system";

/// An API server with all that belongs to it, in a folder of its own.
pub(crate) struct Plane {
    child: Child,
    folder: PathBuf,
    config: Kubeconfig,
    pub(crate) client: Client,
    /// What lies between the controllers and the API server.
    pub(crate) wire: Wire,
}

impl Plane {
    /// A new control plane that knows our kinds; `None`, and a line that says so, where there is no binary of it.
    pub(crate) async fn start(name: &str) -> Option<Self> {
        let Some(binary) = std::env::var_os(BINARY) else {
            eprintln!("{name}: skipped: {BINARY} does not name a control plane");
            return None;
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e").join(name);
        let (child, kubeconfig) =
            (0..STARTS).find_map(|_| start(&binary, &folder)).expect("the control plane gets ready");
        let config = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let admin = Config::from_custom_kubeconfig(config.clone(), &KubeConfigOptions::default()).await;
        let client = Client::try_from(admin.expect("a kubeconfig")).expect("a client");
        let wire =
            Wire::to(config.clusters[0].cluster.as_ref().and_then(|c| c.server.as_deref()).expect("a server")).await;
        let plane = Self { child, folder, config, client, wire };
        for (_, definition) in CUSTOM_RESOURCE_DEFINITIONS {
            plane.apply(definition).await;
        }
        plane
            .until("our kinds are served", async || {
                plane.try_list::<NodeClaim>("karpenter.sh/v1", "NodeClaim").await.is_ok()
            })
            .await;
        for manifest in INSTALLATION.split("\n---") {
            if ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
                .iter()
                .any(|kind| manifest.contains(&format!("\nkind: {kind}\n")))
            {
                plane.apply(manifest).await;
            }
        }
        plane.write_kubeconfig().await;
        Some(plane)
    }

    /// A kubeconfig by which controllers are the service account of the installation and nothing else, over the wire.
    async fn write_kubeconfig(&self) {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), NAMESPACE);
        let asked = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(3_600), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let made = accounts.create_token_request("karpenter", &PostParams::default(), &asked).await.expect("a token");
        let cluster = self.config.clusters[0].cluster.as_ref().expect("a cluster");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
            "clusters": [{"name": "c", "cluster": {
                "server": self.wire.server(),
                "certificate-authority-data": cluster.certificate_authority_data,
            }}],
            "users": [{"name": "u", "user": {"token": made.status.expect("a token").token}}],
        });
        fs::write(self.kubeconfig(), kubeconfig.to_string()).expect("a kubeconfig");
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.join("karpenter.kubeconfig")
    }

    /// Starts a controller.
    pub(crate) fn replica(&self, args: &[&str]) -> Replica {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
        command.arg("run").arg("--kubeconfig").arg(self.kubeconfig());
        command.env("METRICS_PORT", "0").env("HEALTH_PROBE_PORT", "0");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.join("karpenter.log"));
        let log = log.expect("a log");
        Replica(command.args(args).stderr(log).spawn().expect("the controller starts"))
    }

    /// A port that nobody listens on.
    pub(crate) async fn free_port() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("an address").port()
    }

    /// What a server on this machine answers.
    pub(crate) async fn get(port: u16, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a server");
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request that is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    /// What a command of ours answers about this cluster, as JSON.
    pub(crate) fn ask(&self, command: &[&str]) -> Value {
        let mut asked = Command::new(env!("CARGO_BIN_EXE_karpenter"));
        asked.args(command).arg("--kubeconfig").arg(self.kubeconfig()).args(["-o", "json"]);
        let done = asked.output().expect("the command runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).expect("JSON")
    }

    /// Applies manifests, as `kubectl apply --server-side` does.
    pub(crate) async fn apply(&self, manifests: &str) {
        for manifest in manifests.split("\n---") {
            let value: Value = serde_saphyr::from_str(manifest).expect("a manifest");
            let object: DynamicObject = serde_json::from_value(value).expect("a manifest");
            let params = PatchParams::apply("test").force();
            let api = self.dynamic(object.types.as_ref().expect("a kind"), object.metadata.namespace.as_deref());
            api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.expect("a manifest that is taken");
        }
    }

    pub(crate) async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let api =
            self.dynamic(&TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() }, namespace_of(kind));
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("an object that is there");
    }

    pub(crate) async fn delete(&self, api_version: &str, kind: &str, name: &str) {
        let api =
            self.dynamic(&TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() }, namespace_of(kind));
        api.delete(name, &kube::api::DeleteParams::default()).await.expect("an object that is there");
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        self.list("v1", "Pod").await
    }

    pub(crate) async fn claims(&self) -> Vec<NodeClaim> {
        self.list("karpenter.sh/v1", "NodeClaim").await
    }

    pub(crate) async fn nodes(&self) -> Vec<Node> {
        self.list("v1", "Node").await
    }

    /// All objects of a kind; a server that is too busy to answer is asked again.
    pub(crate) async fn list<T: DeserializeOwned>(&self, api_version: &str, kind: &str) -> Vec<T> {
        let start = Instant::now();
        loop {
            match self.try_list(api_version, kind).await {
                Ok(all) => return all,
                Err(error) => assert!(start.elapsed() < PATIENCE, "no list of each {kind}: {error}"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn try_list<T: DeserializeOwned>(&self, api_version: &str, kind: &str) -> Result<Vec<T>, Error> {
        let api =
            self.dynamic(&TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() }, namespace_of(kind));
        let all = api.list(&ListParams::default()).await?;
        let read = |object| serde_json::from_value(serde_json::to_value(object).expect("JSON")).expect("an object");
        Ok(all.items.into_iter().map(read).collect())
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let start = Instant::now();
        while !is_so().await {
            assert!(start.elapsed() < PATIENCE, "{what} is not so after {PATIENCE:?}; see {}", self.folder.display());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until so many pods run and none waits.
    pub(crate) async fn until_running(&self, count: usize) {
        let is_running = |pod: &Pod| pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none();
        self.until(&format!("{count} pods run"), async || {
            let pods = self.pods().await;
            pods.len() == count && pods.iter().all(is_running)
        })
        .await;
    }

    fn dynamic(&self, types: &TypeMeta, namespace: Option<&str>) -> Api<DynamicObject> {
        let kind = GroupVersionKind::try_from(types).expect("a kind");
        let plural = format!("{}s", types.kind.to_lowercase()).replace("classs", "classes");
        let is_namespaced = matches!(
            types.kind.as_str(),
            "Pod"
                | "Deployment"
                | "PodDisruptionBudget"
                | "Lease"
                | "PersistentVolumeClaim"
                | "ServiceAccount"
                | "Role"
                | "RoleBinding"
        );
        let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
        if is_namespaced {
            Api::namespaced_with(self.client.clone(), namespace.unwrap_or("default"), &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }
}

/// Where what is looked for is, if not in the default namespace.
fn namespace_of(kind: &str) -> Option<&'static str> {
    (kind == "Lease").then_some(NAMESPACE)
}

impl Drop for Plane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("karpenter.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the last of {}:", self.folder.join("karpenter.log").display());
            lines[lines.len().saturating_sub(40)..].iter().for_each(|line| eprintln!("{line}"));
        }
        end(&mut self.child);
    }
}

/// Starts a control plane in a new folder and waits for the line that says where its kubeconfig is; `None` if it ends before.
fn start(binary: &OsStr, folder: &Path) -> Option<(Child, PathBuf)> {
    if folder.exists() {
        fs::remove_dir_all(folder).expect("an old folder of ours");
    }
    fs::create_dir_all(folder).expect("a folder of ours");
    let log = fs::File::create(folder.join("controlplane.log")).expect("a log");
    let mut command = Command::new(binary);
    command.arg("--dir").arg(folder).args(["--timeout", "30m", "--authorization-mode", "RBAC"]);
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the control plane starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let Some(kubeconfig) = lines.find_map(|line| line.strip_prefix("ready ").map(PathBuf::from)) else {
        end(&mut child);
        return None;
    };
    Some((child, kubeconfig))
}

/// A controller, which ends with this.
pub(crate) struct Replica(Child);

impl Replica {
    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("a child");
        self.0.wait().expect("a child");
    }

    /// Asks it to end and waits for that.
    pub(crate) fn stop(&mut self) {
        end(&mut self.0);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

fn end(child: &mut Child) {
    if child.try_wait().is_ok_and(|ended| ended.is_none()) {
        Command::new("kill").arg(child.id().to_string()).status().expect("a signal");
    }
    child.wait().expect("a child");
}
