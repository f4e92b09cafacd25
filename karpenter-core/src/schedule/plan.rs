use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    Price, Reason, Requirement, Requirements, ResourceList,
    api::{NodeClaim, NodePool, ObjectKey, ObjectMeta, OwnerReference},
    labels,
    reason::Obstacle,
};

/// What should be done for the pods of a snapshot: nodes to make, room to use, and pods for which there is neither.
///
/// Every pending pod is in exactly one of the three.
///
/// It is written as `karpenter plan -o json` writes it, with reasons and warnings as sentences:
///
/// ```
/// use karpenter_core::{api::Pod, Catalogs, Planner, Snapshot};
///
/// let snapshot = Snapshot::builder().pods(Pod::named("web").cpu("500m")).build()?;
/// let plan = Planner::default().plan(&snapshot, &Catalogs::default());
/// let document = serde_json::to_value(&plan)?;
/// assert_eq!(document["errors"]["default/web"], "there is no node pool");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a plan does nothing by itself"]
#[non_exhaustive]
pub struct Plan {
    pub(crate) claims: Vec<PlannedClaim>,
    pub(crate) existing: BTreeMap<String, Vec<ObjectKey>>,
    pub(crate) unplaced: BTreeMap<ObjectKey, Reason>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) is_complete: bool,
    /// Whether it holds only if no node is made in domains that its own nodes keep out of.
    pub(crate) closes_domains: bool,
}

/// A node to make.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PlannedClaim {
    /// The pool that it is made from.
    pub node_pool: String,
    /// The pods that it is made for, by namespace and name.
    pub pods: Vec<ObjectKey>,
    /// The instance types that will do, cheapest first; any of them may be bought that has an offering as required. A claim that is
    /// bound to a reservation names others after them, so that its types have as many values as `minValues` asks for.
    pub instance_types: Arc<[String]>,
    /// What the cheapest of them costs.
    pub cheapest_price: Price,
    /// What its pods and daemons need.
    pub requests: ResourceList,
    /// What its labels must be like: the pool's requirements, narrowed as far as its pods need.
    pub requirements: Requirements,
    /// Labels that only the requirements name and no offering settles, with the values that the node will have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Something about the input that bears on the plan and that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// No node was planned in a pool.
    PoolSkipped {
        /// The name of the pool.
        pool: String,
        /// Why.
        obstacle: Obstacle,
    },
}

/// Where a pod is in a plan.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer<'p> {
    /// On a node to make.
    NewClaim(&'p PlannedClaim),
    /// In room that there is.
    Existing {
        /// The name of the node, or of the claim while it has none.
        place: &'p str,
    },
    /// Nowhere.
    Unplaced(&'p Reason),
    /// The plan is not about this pod.
    NotPending,
}

impl Plan {
    /// The nodes to make.
    pub fn claims(&self) -> &[PlannedClaim] {
        &self.claims
    }

    /// The pods that go into room that there is, by the name of the node, or of the claim while it has none.
    pub fn existing(&self) -> &BTreeMap<String, Vec<ObjectKey>> {
        &self.existing
    }

    /// The pods that have no place, and why.
    pub fn unplaced(&self) -> &BTreeMap<ObjectKey, Reason> {
        &self.unplaced
    }

    /// What somebody should look at.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Whether planning went to its end, as opposed to being stopped.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What the new nodes cost together, each bought as cheaply as it can be.
    pub fn hourly_cost(&self) -> Price {
        self.claims.iter().map(|c| c.cheapest_price).sum()
    }

    /// Where the pod `namespace/name` is in this plan; `namespace/` may be left out for `default`.
    pub fn why(&self, pod: &str) -> Answer<'_> {
        let Ok(key) = pod.parse::<ObjectKey>();
        if let Some(reason) = self.unplaced.get(&key) {
            return Answer::Unplaced(reason);
        }
        if let Some(claim) = self.claims.iter().find(|c| c.pods.binary_search(&key).is_ok()) {
            return Answer::NewClaim(claim);
        }
        let place = self.existing.iter().find(|(_, pods)| pods.binary_search(&key).is_ok());
        place.map_or(Answer::NotPending, |(place, _)| Answer::Existing { place })
    }
}

impl PlannedClaim {
    /// The claim to create for this node. `pool` is the pool that it names; `name` and `uid` must be new.
    pub fn to_node_claim(&self, pool: &NodePool, name: impl Into<String>, uid: impl Into<String>) -> NodeClaim {
        let template = &pool.spec.template;
        let class = &template.spec.node_class_ref;
        let mut claim = NodeClaim::named(name);
        claim.metadata = ObjectMeta {
            uid: uid.into(),
            labels: template.metadata.labels.clone(),
            annotations: template.metadata.annotations.clone(),
            owner_references: vec![OwnerReference {
                api_version: pool.api_version.clone(),
                kind: pool.kind.clone(),
                name: pool.metadata.name.clone(),
                uid: pool.metadata.uid.clone(),
                controller: None,
                block_owner_deletion: Some(true),
            }],
            ..claim.metadata
        };
        claim.metadata.annotations.extend(pool.hash_annotations());
        claim.metadata.labels.extend(self.labels.clone());
        claim.metadata.labels.insert(labels::NODE_POOL.to_owned(), self.node_pool.clone());
        claim.metadata.labels.insert(class.label_key(), class.name.clone());
        let mut requirements = self.requirements.clone();
        let types = self.instance_types.iter().map(String::as_str);
        requirements.add(labels::INSTANCE_TYPE, Requirement::one_of(types));
        claim.spec.requirements = requirements.to_expressions();
        claim.spec.resources.requests = self.requests.clone();
        claim.spec.node_class_ref = class.clone();
        claim.spec.taints.clone_from(&template.spec.taints);
        claim.spec.startup_taints.clone_from(&template.spec.startup_taints);
        claim.spec.expire_after = template.spec.expire_after.clone();
        claim.spec.termination_grace_period.clone_from(&template.spec.termination_grace_period);
        claim
    }
}

impl PlannedClaim {
    /// The labels that its node will have whatever it becomes, as far as the claim and its pool tell.
    pub(crate) fn known_labels(&self, pool: &NodePool) -> BTreeMap<String, String> {
        let mut out = pool.spec.template.metadata.labels.clone();
        out.extend(self.labels.clone());
        out.insert(labels::NODE_POOL.to_owned(), self.node_pool.clone());
        self.requirements.settle(&mut out);
        out
    }
}

impl Plan {
    /// A plan of these parts, such as the decision of another engine that is to be checked or shown. It is complete and
    /// has no warnings.
    ///
    /// The pods of every claim and place are put into the order that [`Plan::why`] relies on; nothing else is checked.
    pub fn from_parts(
        claims: Vec<PlannedClaim>,
        existing: BTreeMap<String, Vec<ObjectKey>>,
        unplaced: BTreeMap<ObjectKey, Reason>,
    ) -> Self {
        let mut plan = Self { claims, existing, unplaced, is_complete: true, ..Self::default() };
        plan.claims.iter_mut().for_each(|claim| claim.pods.sort());
        plan.existing.values_mut().for_each(|pods| pods.sort());
        plan
    }
}

impl PlannedClaim {
    /// A node of `node_pool` for these pods, of any of these types, cheapest first. Its requests and labels are empty.
    pub fn new<T: Into<String>>(
        node_pool: impl Into<String>,
        pods: Vec<ObjectKey>,
        instance_types: impl IntoIterator<Item = T>,
        cheapest_price: Price,
        requirements: Requirements,
    ) -> Self {
        Self {
            node_pool: node_pool.into(),
            pods,
            instance_types: instance_types.into_iter().map(Into::into).collect(),
            cheapest_price,
            requests: ResourceList::new(),
            requirements,
            labels: BTreeMap::new(),
        }
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let warnings: Vec<String> = self.warnings.iter().map(ToString::to_string).collect();
        let mut out = serializer.serialize_struct("Plan", 6)?;
        out.serialize_field("complete", &self.is_complete)?;
        out.serialize_field("newNodeClaims", &self.claims)?;
        out.serialize_field("existingNodes", &self.existing)?;
        out.serialize_field("errors", &self.unplaced)?;
        out.serialize_field("warnings", &warnings)?;
        out.serialize_field("hourlyCost", &self.hourly_cost())?;
        out.end()
    }
}

impl fmt::Display for PlannedClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.instance_types.first().map_or("nothing", String::as_str))?;
        match self.instance_types.len().saturating_sub(1) {
            0 => {}
            1 => f.write_str(" or one other type")?,
            others => write!(f, " or {others} other types")?,
        }
        let s = if self.pods.len() == 1 { "" } else { "s" };
        write!(f, " of pool {} at {} for {} pod{s}", self.node_pool, self.cheapest_price, self.pods.len())
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolSkipped { pool, obstacle } => write!(f, "NodePool {pool}: left out: {obstacle}"),
        }
    }
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewClaim(claim) => write!(f, "on a new node: {claim}"),
            Self::Existing { place } => write!(f, "on {place}, which has room"),
            Self::Unplaced(reason) => write!(f, "without a place: {reason}"),
            Self::NotPending => f.write_str("not a pending pod"),
        }
    }
}
