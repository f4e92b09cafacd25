//! A random cluster and what it runs.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use karpenter_core::{
    Catalog,
    api::{
        ConditionStatus, DaemonSet, NodePool, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget,
        StorageClass,
    },
    engine::EngineOptions,
    provider::RepairPolicy,
};
use karpenter_fake::{
    FakeCloud, generated_types,
    sim::{Live, Rng, Workload, World, WorldOptions},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The condition that calls for node repair.
pub(crate) const SICK: &str = "Sick";
pub(crate) const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];

/// The classes of volumes, and the zones in which they are made; none means all.
const CLASSES: [(&str, &[&str]); 2] = [("anywhere", &[]), ("some-zones", &["test-zone-b", "test-zone-c"])];

/// A cluster, and what the trouble may change of it.
pub(crate) struct Setting {
    pub(crate) live: Live,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) pools: Vec<String>,
    pub(crate) workloads: Vec<Workload>,
    /// Types of which machines have less memory than is said.
    pub(crate) liars: BTreeSet<String>,
    /// Nodes that are not ready though their machines run.
    pub(crate) unready: BTreeSet<String>,
    made: usize,
}

pub(crate) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the API has it")
}

pub(crate) fn one_of<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.index(choices.len())]
}

/// Whether something happens that happens so many times in a hundred.
pub(crate) fn percent(rng: &mut Rng, percent: u32) -> bool {
    rng.chance(percent * 10_000)
}

fn seconds(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_secs(from + rng.below(to - from))
}

impl Setting {
    pub(crate) fn new(seed: u64, rng: &mut Rng) -> Self {
        let catalog = catalog(rng);
        let (launch_delay, termination_delay) = (seconds(rng, 15, 120), seconds(rng, 1, 90));
        let cloud = FakeCloud::new(catalog.clone()).launch_delay(launch_delay).termination_delay(termination_delay);
        let mut options = WorldOptions::default();
        if percent(rng, 50) {
            options.lost_calls_ppm = u32::try_from(rng.below(200_000)).expect("small");
            options.slow_calls_ppm = u32::try_from(rng.below(100_000)).expect("small");
        }
        let world = World::with(seed, Arc::new(cloud), options);
        let mut engine = EngineOptions::default();
        engine.repair_policies.push(RepairPolicy::new(SICK, ConditionStatus::True, seconds(rng, 30, 300)));
        let live = Live::with(world, engine);
        let mut setting = Self {
            live,
            catalog,
            pools: Vec::new(),
            workloads: Vec::new(),
            liars: BTreeSet::new(),
            unready: BTreeSet::new(),
            made: 0,
        };
        for index in 0..=rng.index(3) {
            setting.add_pool(index, rng);
        }
        for (name, zones) in CLASSES {
            let class = storage_class(name, zones);
            setting.live.world_mut().api_mut().create(class).expect("new");
        }
        for index in 0..rng.index(3) {
            let daemon = daemonset(index, rng);
            setting.live.world_mut().api_mut().create(daemon).expect("new");
        }
        for _ in 0..2 + rng.index(4) {
            setting.add_workload(rng);
        }
        setting
    }

    fn add_pool(&mut self, index: usize, rng: &mut Rng) {
        let name = format!("pool-{index}");
        let kinds = one_of(rng, &[&["on-demand"][..], &["spot"], &["spot", "on-demand"], &["spot", "on-demand"]]);
        let after = one_of(rng, &["0s", "0s", "30s", "2m"]);
        let mut spec = json!({
            "template": {"metadata": {"labels": {"team": name}}, "spec": {
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": kinds}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "expireAfter": one_of(rng, &["720h", "720h", "25m"]),
            }},
            "disruption": {"consolidateAfter": after, "budgets": [{"nodes": one_of(rng, &["10%", "50%", "100%", "2"])}]},
        });
        if percent(rng, 30) {
            spec["weight"] = json!(1 + rng.below(3));
        }
        let template = &mut spec["template"]["spec"];
        if percent(rng, 30) {
            template["terminationGracePeriod"] = json!(one_of(rng, &["1m", "5m"]));
        }
        if percent(rng, 20) && index > 0 {
            template["taints"] = json!([{"key": "special", "value": "yes", "effect": "NoSchedule"}]);
        }
        if percent(rng, 20) {
            template["startupTaints"] = json!([{"key": "starting", "effect": "NoSchedule"}]);
        }
        if percent(rng, 15) {
            spec["limits"] = json!({"cpu": (8 + rng.below(40)).to_string()});
        } else if percent(rng, 8) && index > 0 {
            spec["replicas"] = json!(rng.below(3));
        }
        let pool: NodePool = read(json!({"metadata": {"name": name}, "spec": spec}));
        self.live.world_mut().api_mut().create(pool).expect("new");
        self.pools.push(name);
    }

    /// Starts a workload that was not there before.
    pub(crate) fn add_workload(&mut self, rng: &mut Rng) {
        let name = format!("app-{}", self.made);
        self.made += 1;
        let app = json!({"matchLabels": {"app": name}});
        let mut spec = pod_spec(rng);
        rules_of_neighbours(&mut spec, &app, rng);
        let replicas = 1 + u32::try_from(rng.below(12)).expect("small");
        let mut meta = json!({"name": name, "labels": {"app": name}});
        if percent(rng, 5) {
            meta["annotations"] = json!({"karpenter.sh/do-not-disrupt": one_of(rng, &["true", "10m"])});
        }
        let is_alone = percent(rng, 20) && self.mount(&name, &mut spec, rng);
        let kind = if is_alone { 0 } else { rng.below(10) };
        let replicas = if is_alone { 1 } else { replicas };
        let pod = karpenter_core::api::Pod::named(&name).label("app", &name);
        let workload = match kind {
            0..7 => Workload::deployment(&name, replicas, pod),
            7 => Workload::stateful_set(&name, replicas, pod),
            _ => Workload::job(&name, replicas, seconds(rng, 60, 1500), pod),
        };
        let mut workload = workload.expect("well written");
        let pod: karpenter_core::api::Pod = read(json!({"metadata": meta, "spec": spec}));
        workload.template.metadata.annotations = pod.metadata.annotations;
        workload.template.spec = pod.spec;
        if percent(rng, 40) {
            let rule = one_of(rng, &["maxUnavailable", "minAvailable"]);
            let value = if rule == "maxUnavailable" { json!(1 + rng.below(2)) } else { json!("50%") };
            let budget: PodDisruptionBudget =
                read(json!({"metadata": {"name": name}, "spec": {"selector": app, rule: value}}));
            self.live.world_mut().api_mut().create(budget).expect("new");
        }
        self.live.world_mut().apply(workload.clone());
        self.workloads.push(workload);
    }

    /// Gives the pods of an app volumes; says whether it is one that only one pod can mount.
    fn mount(&mut self, name: &str, spec: &mut Value, rng: &mut Rng) -> bool {
        let (class, _) = one_of(rng, &CLASSES);
        let kind = rng.below(3);
        if kind == 0 {
            let template = json!({"volumeClaimTemplate": {"spec": {"storageClassName": class}}});
            spec["volumes"] = json!([{"name": "scratch", "ephemeral": template}]);
            return false;
        }
        let api = self.live.world_mut().api_mut();
        let mut claim: PersistentVolumeClaim = read(
            json!({"metadata": {"name": name}, "spec": {"storageClassName": class}, "status": {"phase": "Pending"}}),
        );
        if kind == 1 {
            let volume = volume_in(one_of(rng, &ZONES), name);
            claim.spec.volume_name.clone_from(&volume.metadata.name);
            claim.metadata.annotations.insert("pv.kubernetes.io/bind-completed".to_owned(), "yes".to_owned());
            "Bound".clone_into(&mut claim.status.phase);
            api.create(volume).expect("new");
        }
        api.create(claim).expect("new");
        spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
        true
    }

    /// No pool keeps nodes that no pod needs.
    pub(crate) fn end_replicas(&mut self) {
        for name in &self.pools {
            let key = karpenter_core::api::ObjectKey::new("", name);
            self.live.world_mut().api_mut().modify::<NodePool>(&key, |pool| {
                pool.spec.replicas = pool.spec.replicas.map(|_| 0);
            });
        }
    }
}

/// A class of which volumes are made for the first pod that mounts them, everywhere or in some zones.
fn storage_class(name: &str, zones: &[&str]) -> StorageClass {
    let mut class = json!({"metadata": {"name": name}, "provisioner": "disks.example.com",
        "volumeBindingMode": "WaitForFirstConsumer"});
    if !zones.is_empty() {
        class["allowedTopologies"] =
            json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": zones}]}]);
    }
    read(class)
}

/// A volume that somebody made for an app.
fn volume_in(zone: &str, name: &str) -> PersistentVolume {
    let term =
        json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]});
    read(json!({"metadata": {"name": format!("pv-{name}")}, "spec": {
        "csi": {"driver": "disks.example.com", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}))
}

/// Some of the generated types, with at least one that all pods fit.
fn catalog(rng: &mut Rng) -> Arc<Catalog> {
    let fits_all = ["m-8x-amd64-linux", "s-4x-amd64-linux"];
    let is_taken = |rng: &mut Rng, name: &str| fits_all.contains(&name) || percent(rng, 12);
    let types: Vec<_> = generated_types().into_iter().filter(|own| is_taken(rng, &own.name)).collect();
    Arc::new(Catalog::new(types).expect("a part of a catalog"))
}

fn daemonset(index: usize, rng: &mut Rng) -> DaemonSet {
    let requests = json!({"cpu": one_of(rng, &["50m", "150m"]), "memory": "64Mi"});
    let name = format!("daemon-{index}");
    let mut pod = json!({"metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}});
    if percent(rng, 50) {
        pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        pod["spec"]["priority"] = json!(2_000_001_000);
    }
    read(json!({"metadata": {"name": name, "namespace": "kube-system"}, "spec": {"template": pod}}))
}

fn pod_spec(rng: &mut Rng) -> Value {
    let requests = json!({
        "cpu": one_of(rng, &["100m", "250m", "500m", "1", "2"]),
        "memory": one_of(rng, &["128Mi", "512Mi", "1Gi", "3Gi"]),
    });
    let mut spec = json!({"containers": [{"name": "main", "resources": {"requests": requests}}]});
    if percent(rng, 30) {
        spec["terminationGracePeriodSeconds"] = json!(one_of(rng, &[0, 5, 60, 120]));
    }
    if percent(rng, 15) {
        spec["priority"] = json!(one_of(rng, &[-10, 100, 2_000_000_000]));
    }
    if percent(rng, 40) {
        spec["tolerations"] = json!([{"key": "special", "operator": "Exists"}]);
    }
    if percent(rng, 15) {
        spec["nodeSelector"] = json!({"topology.kubernetes.io/zone": one_of(rng, &ZONES)});
    }
    if percent(rng, 4) {
        spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8000 + rng.below(2)}]);
    }
    spec
}

/// Spread or anti-affinity, for some.
fn rules_of_neighbours(spec: &mut Value, app: &Value, rng: &mut Rng) {
    let key = one_of(rng, &["topology.kubernetes.io/zone", "kubernetes.io/hostname"]);
    match rng.below(8) {
        0 | 1 => {
            let when = one_of(rng, &["DoNotSchedule", "ScheduleAnyway"]);
            let rule = json!({"maxSkew": 1 + rng.below(2), "topologyKey": key, "whenUnsatisfiable": when,
                "labelSelector": app});
            spec["topologySpreadConstraints"] = json!([rule]);
        }
        2 => {
            let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": app});
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        }
        3 => {
            let term = json!({"topologyKey": key, "labelSelector": app});
            spec["affinity"] = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 50, "podAffinityTerm": term}]}});
        }
        _ => {}
    }
}
