//! The services of a web shop.

use karpenter::{api::DaemonSet, fake::catalog::ZONES, labels};
use serde_json::{Value, json};

use super::{APP, Numbers, Problem, neighbours, pod, requests, spread};

/// What services have of memory for each core, in mebibytes.
const MIB_PER_CORE: [u64; 5] = [512, 1024, 2048, 4096, 8192];

/// `count` pods of Deployments from one to sixty replicas. Half of them are spread over zones, a tenth have one pod to a
/// node, a fifth select nodes; three daemonsets run everywhere.
pub(crate) fn problem(count: usize) -> Problem {
    let mut numbers = Numbers(7);
    let services = (0..).flat_map(move |service| replicas(service, &mut numbers));
    Problem::new(services.take(count), daemonsets())
}

/// The pods of one service.
fn replicas(service: usize, numbers: &mut Numbers) -> Vec<Value> {
    let app = format!("service-{service}");
    let cpu_milli = numbers.pick(&[50, 100, 100, 200, 250, 500, 500, 1000, 2000, 4000]);
    let requests = requests(cpu_milli, (cpu_milli * numbers.pick(&MIB_PER_CORE) / 1000).max(64));
    let spec = rules(&app, numbers);
    // Many small services and few large ones.
    let end = numbers.pick(&[4, 8, 16, 60]);
    let count = 1 + numbers.below(end);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true}]);
    let replica = |number| {
        let mut replica = pod(&format!("{app}-{number}"), &json!({APP: app}), &requests, spec.clone());
        replica["metadata"]["ownerReferences"] = owner.clone();
        replica
    };
    (0..count).map(replica).collect()
}

/// What a service asks of its nodes and of its neighbours there.
fn rules(app: &str, numbers: &mut Numbers) -> Value {
    let mut spec = json!({});
    if numbers.percent(50) {
        let policy = numbers.pick(&["DoNotSchedule", "ScheduleAnyway"]);
        spec["topologySpreadConstraints"] = json!([spread(labels::ZONE, policy, APP, app)]);
    } else if numbers.percent(10) {
        spec["nodeSelector"] = json!({labels::ZONE: numbers.pick(&ZONES)});
    }
    if numbers.percent(10) {
        let away = neighbours(labels::HOSTNAME, APP, app);
        spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}});
    }
    if numbers.percent(15) {
        let (key, value) = numbers.pick(&[(labels::ARCH, "amd64"), (labels::CAPACITY_TYPE, labels::ON_DEMAND)]);
        spec["nodeSelector"][key] = value.into();
    }
    spec
}

fn daemonsets() -> Vec<DaemonSet> {
    let daemonset = |(name, cpu_milli, memory_mib)| {
        let container = json!({"name": "main", "resources": {"requests": requests(cpu_milli, memory_mib)}});
        let spec = json!({"tolerations": [{"operator": "Exists"}], "containers": [container]});
        let metadata = json!({"name": name, "namespace": "kube-system", "uid": name});
        let daemonset = json!({"metadata": metadata, "spec": {"template": {"spec": spec}}});
        serde_json::from_value(daemonset).expect("the daemonset is written rightly")
    };
    [("network", 50, 64), ("proxy", 100, 64), ("node-agent", 200, 256)].map(daemonset).into()
}
