use std::sync::Arc;

use super::{
    Container, ContainerPort, FieldError, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta,
    Operator, Pod, PodSpec, PodStatus, Toleration,
};
use crate::{Quantity, ResourceName};

/// Writes pending pods in code.
///
/// A text that is not a quantity is reported by [`SnapshotBuilder::build`](crate::SnapshotBuilder::build).
///
/// ```
/// use karpenter_core::{api::Pod, Snapshot};
///
/// let web = Pod::named("web").cpu("500m").memory("1Gi").replicas(40);
/// let snapshot = Snapshot::builder().pods(web).build()?;
/// assert_eq!(snapshot.pending().len(), 40);
/// # Ok::<(), karpenter_core::SnapshotError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PodBuilder {
    pod: Pod,
    replicas: Option<u32>,
    error: Option<FieldError>,
}

/// Pods that come together, or the mistake in how they were written.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    pub(crate) pods: Vec<Arc<Pod>>,
    pub(crate) error: Option<FieldError>,
}

impl PodBuilder {
    pub(crate) fn new(name: String) -> Self {
        let container = Container { name: "main".to_owned(), ..Container::default() };
        let pod = Pod {
            metadata: ObjectMeta { namespace: "default".to_owned(), ..ObjectMeta::named(name) },
            spec: PodSpec { containers: vec![container], ..PodSpec::default() },
            status: PodStatus::unschedulable(),
        };
        Self { pod, replicas: None, error: None }
    }

    /// Puts the pods into this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.pod.metadata.namespace = namespace.into();
        self
    }

    /// Adds a label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.pod.metadata.labels.insert(key.into(), value.into());
        self
    }

    /// Asks for CPU, such as `500m`.
    pub fn cpu(self, quantity: &str) -> Self {
        self.request("cpu", quantity)
    }

    /// Asks for memory, such as `1Gi`.
    pub fn memory(self, quantity: &str) -> Self {
        self.request("memory", quantity)
    }

    /// Asks for any resource, such as `nvidia.com/gpu`.
    pub fn request(mut self, resource: &str, quantity: &str) -> Self {
        match quantity.parse::<Quantity>() {
            Ok(quantity) => {
                self.pod.spec.containers[0].resources.requests.insert(ResourceName::from(resource), quantity);
            }
            Err(error) => {
                let field = format!("spec.containers[0].resources.requests.{resource}");
                self.error.get_or_insert(FieldError::new(field, error.to_string()));
            }
        }
        self
    }

    /// Takes a TCP port of its node, on all addresses.
    pub fn host_port(mut self, port: u16) -> Self {
        let port = ContainerPort { container_port: port, host_port: port, ..ContainerPort::default() };
        self.pod.spec.containers[0].ports.push(port);
        self
    }

    /// Asks for a node with this label.
    pub fn node_selector(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.pod.spec.node_selector.insert(key.into(), value.into());
        self
    }

    /// Adds an alternative to the required node affinity: a node must meet all requirements of one alternative.
    pub fn node_affinity(mut self, requirements: impl IntoIterator<Item = NodeSelectorRequirement>) -> Self {
        let term = NodeSelectorTerm { match_expressions: requirements.into_iter().collect(), match_fields: Vec::new() };
        let required = self.pod.spec.affinity.node_affinity.required.get_or_insert_with(NodeSelector::default);
        required.node_selector_terms.push(term);
        self
    }

    /// Asks for a node whose label `key` has one of `values`, as a further alternative.
    pub fn node_label_in<V: Into<String>>(self, key: &str, values: impl IntoIterator<Item = V>) -> Self {
        self.node_affinity([NodeSelectorRequirement::new(key, Operator::In, values)])
    }

    /// Tolerates some taints.
    pub fn toleration(mut self, toleration: Toleration) -> Self {
        self.pod.spec.tolerations.push(toleration);
        self
    }

    /// Makes `count` pods, named after this one with `-0`, `-1` and so on.
    pub fn replicas(mut self, count: u32) -> Self {
        self.replicas = Some(count);
        self
    }
}

impl From<PodBuilder> for Workload {
    fn from(builder: PodBuilder) -> Self {
        let PodBuilder { pod, replicas, error } = builder;
        let error = error.map(|e| e.of(format!("Pod {}", pod.key())));
        let numbered = |i| {
            let mut copy = pod.clone();
            copy.metadata.name = format!("{}-{i}", pod.metadata.name);
            copy
        };
        let pods = match replicas {
            Some(count) => (0..count).map(numbered).map(Arc::new).collect(),
            None => vec![Arc::new(pod)],
        };
        Self { pods, error }
    }
}

impl From<Pod> for Workload {
    fn from(pod: Pod) -> Self {
        Self::from(vec![pod])
    }
}

impl From<Vec<Pod>> for Workload {
    fn from(pods: Vec<Pod>) -> Self {
        Self::from(pods.into_iter().map(Arc::new).collect::<Vec<_>>())
    }
}

impl From<Vec<Arc<Pod>>> for Workload {
    fn from(pods: Vec<Arc<Pod>>) -> Self {
        Self { pods, error: None }
    }
}

impl Workload {
    /// The pods, or the mistake in how they were written.
    pub fn into_pods(self) -> Result<Vec<Pod>, FieldError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.pods.into_iter().map(Arc::unwrap_or_clone).collect()),
        }
    }
}
