use std::collections::BTreeMap;

use indexmap::IndexSet;

use super::{Requirement, Requirements};
use crate::{
    FxBuild,
    api::{NodeSelectorTerm, PodSpec},
};

/// The key under which a requirement on the name of a node is kept. A colon cannot occur in the key of a label.
const NODE_NAME_FIELD: &str = "field:metadata.name";

/// The most alternatives that several lists of them may come to together. One that a user writes may be as long as the API server
/// takes it.
pub(crate) const MAX_PRODUCT: usize = 10_000;

/// What a pod's node must be like: one of several sets of requirements.
///
/// The node selector and one term of the required node affinity must hold together; the terms are alternatives.
///
/// ```
/// use karpenter_core::{api::Pod, NodeAlternatives};
///
/// let pods = Pod::named("p").node_selector("arch", "arm64").node_label_in("zone", ["a"]).node_label_in("zone", ["b"]);
/// let pod = karpenter_core::api::Workload::from(pods).into_pods().unwrap().remove(0);
/// let wanted = NodeAlternatives::of_pod(&pod.spec);
/// assert_eq!(wanted.alternatives()[1].to_string(), "arch In [arm64], zone In [b]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeAlternatives(Vec<Requirements>);

impl NodeAlternatives {
    /// Reads the node selector and the required node affinity. Preferences are not looked at. In which order terms are written
    /// makes no difference.
    pub fn of_pod(spec: &PodSpec) -> Self {
        let selector = Requirements::of_labels(&spec.node_selector);
        let Some(required) = &spec.affinity.node_affinity.required else { return Self(vec![selector]) };
        let terms: Vec<Requirements> = required.node_selector_terms.iter().filter_map(Self::of_term).collect();
        let Self(mut alternatives) = Self(vec![selector]).and(&terms);
        alternatives.sort();
        Self(alternatives)
    }

    /// Any node.
    pub(crate) fn any() -> Self {
        Self(vec![Requirements::new()])
    }

    /// The node of this name.
    pub(crate) fn of_node(name: &str) -> Self {
        let mut named = Requirements::new();
        named.add(NODE_NAME_FIELD, Requirement::one_of([name]));
        Self(vec![named])
    }

    /// The same, with all of `extra` required too.
    pub(crate) fn narrowed(&self, extra: &Requirements) -> Self {
        self.and(std::slice::from_ref(extra))
    }

    /// What meets one of others too: each alternative with each of them, without those that contradict themselves.
    pub(crate) fn and(&self, others: &[Requirements]) -> Self {
        let both = |own: &Requirements, theirs: &Requirements| {
            let mut both = own.clone();
            both.add_all(theirs);
            both.contradiction().is_none().then_some(both)
        };
        let all = self.0.iter().flat_map(|own| others.iter().filter_map(move |theirs| both(own, theirs)));
        if self.0.len() * others.len() == 1 {
            return Self(all.collect());
        }
        let each_once: IndexSet<Requirements, FxBuild> = all.collect();
        Self(each_once.into_iter().collect())
    }

    /// Whether all nodes will do that meet others, as far as the requirements tell by themselves.
    pub(crate) fn include(&self, others: &Self) -> bool {
        let includes = |own: &Requirements, theirs: &Requirements| {
            let mut both = theirs.clone();
            both.add_all(own);
            both == *theirs
        };
        others.0.iter().all(|theirs| self.0.iter().any(|own| includes(own, theirs)))
    }

    /// What a term asks for; `None` for a term without expressions, which no node meets.
    pub(crate) fn of_term(term: &NodeSelectorTerm) -> Option<Requirements> {
        if term.match_expressions.is_empty() && term.match_fields.is_empty() {
            return None;
        }
        let mut all: Requirements = term.match_expressions.iter().collect();
        for field in &term.match_fields {
            all.add(NODE_NAME_FIELD, Requirement::from(field));
        }
        Some(all)
    }

    /// The alternatives, sorted, whatever the order in which the pod names them; none means that no node will do.
    pub fn alternatives(&self) -> &[Requirements] {
        &self.0
    }

    /// Whether no node will do, whatever it is like.
    pub(crate) fn is_unmeetable(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a node of this name with these labels will do.
    pub fn admit_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        Self::any_admits(&self.0, name, labels)
    }

    /// Whether a node of this name with these labels meets one of these alternatives.
    pub(crate) fn any_admits(all: &[Requirements], name: &str, labels: &BTreeMap<String, String>) -> bool {
        all.iter().any(|all| all.iter().all(|(key, requirement)| requirement.admits(node_value(key, name, labels))))
    }

    /// What a node of this name with these labels does not meet of the first alternative, if it does not meet it.
    pub(crate) fn first_refusal(&self, name: &str, labels: &BTreeMap<String, String>) -> Option<(&str, &Requirement)> {
        self.0.first()?.iter().find(|(key, requirement)| !requirement.admits(node_value(key, name, labels)))
    }
}

/// What a node of this name with these labels has for `key`.
pub(crate) fn node_value<'n>(key: &str, name: &'n str, labels: &'n BTreeMap<String, String>) -> Option<&'n str> {
    if key == NODE_NAME_FIELD { Some(name) } else { labels.get(key).map(String::as_str) }
}

/// What `key` is a key of, in words.
pub(crate) fn name_of_key(key: &str) -> String {
    if key == NODE_NAME_FIELD { "metadata.name".to_owned() } else { format!("label {key}") }
}

/// Whether `key` is a property that no two nodes share, such as the host name, and a new node can have any value of it.
pub(crate) fn is_unique_to_node(key: &str) -> bool {
    key == NODE_NAME_FIELD || key == crate::labels::HOSTNAME
}

impl Requirement {
    /// Whether a value that nobody has named yet is acceptable.
    pub(crate) fn admits_fresh_value(&self) -> bool {
        // No label can hold this character, so nothing names this value.
        self.admits(Some("\u{0}"))
    }
}
