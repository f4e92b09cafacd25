use std::{borrow::Cow, fmt};

use crate::api::{ContainerPort, PodSpec};

/// The address that stands for all addresses of a node.
const ANY_IPV4: &str = "0.0.0.0";
const ANY_IPV6: &str = "::";

/// What almost all ports have, which need no text of their own.
const KNOWN: [&str; 5] = [ANY_IPV4, ANY_IPV6, "TCP", "UDP", "SCTP"];

/// A port of a node that a pod takes for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct HostPort {
    /// The address on the node; `0.0.0.0` means all of them.
    pub ip: Cow<'static, str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Cow<'static, str>,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// The ports that a pod of this specification takes, its sidecars' among them, in order.
    pub fn of_pod(spec: &PodSpec) -> Vec<Self> {
        let or = |text: &str, default| if text.is_empty() { Cow::Borrowed(default) } else { read_text(text) };
        let sidecars = spec.init_containers.iter().filter(|c| c.is_sidecar());
        let ports = spec.containers.iter().chain(sidecars).flat_map(|c| &c.ports);
        let read = |p: &ContainerPort| {
            // The API server writes the port into such pods, but not into the templates of them.
            let port = if p.host_port == 0 && spec.host_network { p.container_port } else { p.host_port };
            let (ip, protocol) = (or(&p.host_ip, ANY_IPV4), or(&p.protocol, "TCP"));
            (port != 0).then_some(Self { ip, protocol, port })
        };
        let mut out: Vec<Self> = ports.filter_map(read).collect();
        out.sort();
        out.dedup();
        out
    }

    /// Whether two pods cannot have these two ports on one node.
    pub fn clashes_with(&self, other: &Self) -> bool {
        let is_any = |ip: &str| ip == ANY_IPV4 || ip == ANY_IPV6;
        let is_same_address = || self.ip == other.ip || is_any(&self.ip) || is_any(&other.ip);
        // Numbers first: they are cheap to compare, and most ports differ in them.
        self.port == other.port && self.protocol == other.protocol && is_same_address()
    }

    /// Whether any of the wanted ports clashes with one that is taken.
    pub(crate) fn any_clash(wanted: &[Self], taken: &[Self]) -> bool {
        wanted.iter().any(|a| taken.iter().any(|b| a.clashes_with(b)))
    }
}

/// A text that takes no memory if it is known.
fn read_text(text: &str) -> Cow<'static, str> {
    KNOWN
        .iter()
        .find(|known| **known == text)
        .map_or_else(|| Cow::Owned(text.to_owned()), |known| Cow::Borrowed(*known))
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.ip, self.port, self.protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_clash_by_address_protocol_and_number() {
        let port = |ip: &str, protocol: &str, port| HostPort { ip: read_text(ip), protocol: read_text(protocol), port };
        let web = port("10.0.0.1", "TCP", 80);
        assert!(web.clashes_with(&web));
        assert!(web.clashes_with(&port("0.0.0.0", "TCP", 80)) && port("::", "TCP", 80).clashes_with(&web));
        assert!(!web.clashes_with(&port("10.0.0.2", "TCP", 80)));
        assert!(!web.clashes_with(&port("0.0.0.0", "UDP", 80)));
        assert!(!web.clashes_with(&port("0.0.0.0", "TCP", 81)));
    }

    #[test]
    fn usual_ports_need_no_text_of_their_own() {
        let spec = r#"{"containers":[{"ports":[{"hostPort":1},{"hostPort":2,"hostIP":"::","protocol":"SCTP"}]}]}"#;
        let ports = HostPort::of_pod(&serde_json::from_str(spec).expect("valid"));
        assert!(ports.iter().all(|p| matches!((&p.ip, &p.protocol), (Cow::Borrowed(_), Cow::Borrowed(_)))));
    }

    #[test]
    fn only_host_ports_of_what_keeps_running_count() {
        let spec = r#"{"containers":[{"ports":[{"containerPort":1},{"containerPort":2,"hostPort":20}]}],
            "initContainers":[{"ports":[{"containerPort":3,"hostPort":30}]},
            {"restartPolicy":"Always","ports":[{"containerPort":4,"hostPort":40,"protocol":"UDP","hostIP":"10.0.0.1"}]}]}"#;
        let ports = HostPort::of_pod(&serde_json::from_str(spec).expect("valid"));
        assert_eq!(ports.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0.0.0.0:20/TCP", "10.0.0.1:40/UDP"]);
    }

    #[test]
    fn ports_of_a_pod_with_the_network_of_its_node_are_ports_of_the_node() {
        let spec = r#"{"hostNetwork":true,"containers":[{"ports":[{"containerPort":1},{"containerPort":2,"hostPort":20}]}],
            "initContainers":[{"restartPolicy":"Always","ports":[{"containerPort":3,"protocol":"UDP"}]}]}"#;
        let ports = HostPort::of_pod(&serde_json::from_str(spec).expect("valid"));
        let texts: Vec<_> = ports.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["0.0.0.0:1/TCP", "0.0.0.0:20/TCP", "0.0.0.0:3/UDP"]);
    }
}
