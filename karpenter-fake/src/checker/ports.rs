//! Ports of a node that pods take for themselves (the filter `NodePorts`).

use karpenter_core::api::PodSpec;

use super::{PlannedNode, Violation};

/// Address, protocol and number.
pub(super) type Port = (String, String, u16);

/// The first port that two pods of a node both want, of which at least one is new there.
pub(super) fn clash<'p>(
    node: PlannedNode,
    new: impl Iterator<Item = &'p PodSpec>,
    there: impl Iterator<Item = &'p PodSpec>,
) -> Option<Violation> {
    let mut taken: Vec<Port> = there.flat_map(ports).collect();
    for spec in new {
        let wanted = ports(spec);
        if let Some((ip, protocol, port)) = wanted.iter().find(|port| taken.iter().any(|other| is_same(port, other))) {
            return Some(Violation::HostPort { node, port: format!("{ip}:{port}/{protocol}") });
        }
        taken.extend(wanted);
    }
    None
}

/// The ports that the containers and sidecars of a pod take.
pub(crate) fn ports(spec: &PodSpec) -> Vec<Port> {
    let mut out = Vec::new();
    let sidecars = spec.init_containers.iter().filter(|c| c.restart_policy == "Always");
    for port in spec.containers.iter().chain(sidecars).flat_map(|c| &c.ports) {
        let number = if spec.host_network && port.host_port == 0 { port.container_port } else { port.host_port };
        if number != 0 {
            let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
            let ip = if matches!(port.host_ip.as_str(), "" | "::") { "0.0.0.0" } else { &port.host_ip };
            out.push((ip.to_owned(), protocol.to_owned(), number));
        }
    }
    out
}

pub(crate) fn is_same(a: &Port, b: &Port) -> bool {
    let everywhere = "0.0.0.0";
    a.1 == b.1 && a.2 == b.2 && (a.0 == b.0 || a.0 == everywhere || b.0 == everywhere)
}
