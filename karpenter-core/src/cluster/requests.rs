use crate::{
    Quantity, ResourceList, ResourceName,
    api::{Container, Pod, PodSpec, Resources},
};

/// What a pod takes of a node, by the kube-scheduler's rules: the sum of its containers and sidecars, or the peak while
/// its init containers run ([KEP-753]), or its pod-level resources where they are set ([KEP-2837]); the runtime class's
/// overhead; and one of `pods`.
///
/// While a running pod is resized, the larger of what it asks for and what it has counts ([KEP-1287]); what it has alone if its
/// node can never give it what it asks for.
///
/// [KEP-753]: https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/753-sidecar-containers
/// [KEP-2837]: https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2837-pod-level-resource-spec
/// [KEP-1287]: https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1287-in-place-update-pod-resources
pub fn pod_requests(pod: &Pod) -> ResourceList {
    let of_container = |container: &Container| {
        let mut has = ResourceList::new();
        for status in pod.status.all_container_statuses().filter(|s| s.name == container.name) {
            has.maximum(&status.allocated_resources);
            has.maximum(&status.resources.requests);
        }
        let asked = || with_limits(&container.resources);
        if has.is_empty() {
            return asked();
        }
        if !pod.is_resize_infeasible() {
            has.maximum(&asked());
        }
        has
    };
    total(&pod.spec, of_container)
}

/// What a pod of a daemonset will take of a node.
pub fn daemon_requests(spec: &PodSpec) -> ResourceList {
    total(spec, |container| with_limits(&container.resources))
}

/// Requests, and limits of those resources for which no request is written: the API server's default.
fn with_limits(resources: &Resources) -> ResourceList {
    let mut out = at_least_zero(&resources.requests);
    for (name, quantity) in resources.limits.iter() {
        if out.get(name.as_str()).is_none() {
            out.insert(name.clone(), quantity.max(Quantity::ZERO));
        }
    }
    out
}

/// What is below zero, which no API server takes, must not make room on a node.
fn at_least_zero(list: &ResourceList) -> ResourceList {
    let mut out = ResourceList::new();
    out.maximum(list);
    out
}

fn total(spec: &PodSpec, of_container: impl Fn(&Container) -> ResourceList) -> ResourceList {
    let mut sum = ResourceList::new();
    for container in &spec.containers {
        sum.add(&of_container(container));
    }
    let (mut sidecars, mut peak) = (ResourceList::new(), ResourceList::new());
    for container in &spec.init_containers {
        let own = of_container(container);
        if container.is_sidecar() {
            sum.add(&own);
            sidecars.add(&own);
            peak.maximum(&sidecars);
        } else {
            let mut now = own;
            now.add(&sidecars);
            peak.maximum(&now);
        }
    }
    sum.maximum(&peak);
    let is_pod_level =
        |name: &ResourceName| matches!(name, ResourceName::Cpu | ResourceName::Memory) || name.is_huge_pages();
    for (name, quantity) in at_least_zero(&spec.resources.requests).iter().filter(|(name, _)| is_pod_level(name)) {
        sum.insert(name.clone(), quantity);
    }
    for (name, quantity) in at_least_zero(&spec.resources.limits).iter().filter(|(name, _)| is_pod_level(name)) {
        if sum.get(name.as_str()).is_none() {
            sum.insert(name.clone(), quantity);
        }
    }
    sum.add(&at_least_zero(&spec.overhead));
    sum.insert(ResourceName::Pods, Quantity::from_units(1));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(spec: &str) -> String {
        let pod: Pod = serde_json::from_str(&format!(r#"{{"metadata":{{"name":"p"}},{spec}}}"#)).expect(spec);
        pod_requests(&pod).to_string()
    }

    #[test]
    fn containers_add_up_and_init_containers_peak() {
        let c = |cpu: &str, more: &str| format!(r#"{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}{more}}}"#);
        let sidecar = r#","restartPolicy":"Always""#;
        for (containers, init, expected) in [
            (vec![c("1", ""), c("500m", "")], vec![], "1500m"),
            (vec![c("1", "")], vec![c("2", ""), c("3", "")], "3"),
            // A sidecar runs beside the containers and beside the init containers after it, not those before.
            (vec![c("1", "")], vec![c("1", sidecar), c("2", "")], "3"),
            (vec![c("1", "")], vec![c("2", ""), c("1", sidecar)], "2"),
            (vec![c("3", "")], vec![c("1", sidecar), c("2", "")], "4"),
        ] {
            let spec =
                format!(r#""spec":{{"containers":[{}],"initContainers":[{}]}}"#, containers.join(","), init.join(","));
            assert_eq!(requests(&spec), format!("cpu {expected}, pods 1"), "{spec}");
        }
    }

    #[test]
    fn what_is_below_zero_makes_no_room() {
        let c = |resources: &str| format!(r#"{{"name":"a","resources":{resources}}}"#);
        let one = c(r#"{"requests":{"cpu":"1"}}"#);
        for (containers, more, expected) in [
            (c(r#"{"requests":{"cpu":"-8"}}"#), "", "cpu 0, pods 1"),
            (format!("{one},{}", c(r#"{"limits":{"cpu":"-8"}}"#)), "", "cpu 1, pods 1"),
            (one.clone(), r#","overhead":{"cpu":"-8"}"#, "cpu 1, pods 1"),
            (one.clone(), r#","resources":{"requests":{"cpu":"-8"}}"#, "cpu 0, pods 1"),
            (String::new(), r#","resources":{"limits":{"cpu":"-8"}}"#, "cpu 0, pods 1"),
        ] {
            let spec = format!(r#""spec":{{"containers":[{containers}]{more}}}"#);
            assert_eq!(requests(&spec), expected, "{spec}");
        }
    }

    #[test]
    fn limits_overhead_pod_level_and_resizes_count() {
        for (spec, expected) in [
            (
                r#""spec":{"containers":[{"resources":{"limits":{"cpu":"1"}}}],"overhead":{"cpu":"100m"}}"#,
                "cpu 1100m, pods 1",
            ),
            (
                r#""spec":{"containers":[{"resources":{"requests":{"cpu":"1","x/y":"1"}}}],"resources":{"requests":{"cpu":"3","x/y":"9"}}}"#,
                "cpu 3, pods 1, x/y 1",
            ),
            (
                r#""spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}}]},"status":{"containerStatuses":[{"name":"a","allocatedResources":{"cpu":"2"}}]}"#,
                "cpu 2, pods 1",
            ),
            (
                r#""spec":{"containers":[],"initContainers":[{"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}}]},"status":{"initContainerStatuses":[{"name":"s","resources":{"requests":{"cpu":"3"}}}]}"#,
                "cpu 3, pods 1",
            ),
            (
                r#""spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"99"}}}]},"status":{"conditions":[{"type":"PodResizePending","status":"True","reason":"Deferred"}],"containerStatuses":[{"name":"a","allocatedResources":{"cpu":"2"}}]}"#,
                "cpu 99, pods 1",
            ),
            (
                r#""spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"99"}}}]},"status":{"conditions":[{"type":"PodResizePending","status":"True","reason":"Infeasible"}],"containerStatuses":[{"name":"a","allocatedResources":{"cpu":"1"},"resources":{"requests":{"cpu":"2"}}}]}"#,
                "cpu 2, pods 1",
            ),
            (
                r#""spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"99"}}}]},"status":{"conditions":[{"type":"PodResizePending","status":"True","reason":"Infeasible"}]}"#,
                "cpu 99, pods 1",
            ),
        ] {
            assert_eq!(requests(spec), expected, "{spec}");
        }
    }
}
