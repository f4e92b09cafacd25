//! Checks of lower bounds: a proof is added up again in whole numbers, from the snapshot and the catalogs alone.

mod error;
mod kinds;
mod labels;

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{
    Catalogs, Plan, Price, Snapshot,
    api::{Pod, PodSpec},
    schedule::Certificate,
};

pub use error::CertificateError;
use kinds::{Kind, kinds};
use labels::Wanted;

use super::{
    Checker,
    filters::{Amounts, requests},
    pools::asks_only_for_a_node,
    ports::ports,
    topology,
    volumes::{Mount, mounts},
};

/// All of a price, in the unit of shares.
const WHOLE: i128 = 1_000_000;

/// What a certificate proves: that no plan which places the same pods costs less.
///
/// The rules of the proof are those of [`Certificate`]. `snapshot` and `catalogs` are those that the plan was made from;
/// daemons, room and who may be where are worked out anew. The search has no part in it.
///
/// # Errors
/// A certificate that claims more than it proves, that names what does not exist, or that splits a price into shares of
/// more than the whole.
///
/// ```
/// use karpenter_core::{Catalogs, Planner, Snapshot, api::{NodePool, Pod}};
/// use karpenter_fake::{check_certificate, generated_types};
///
/// let snapshot = Snapshot::builder()
///     .pool(NodePool::named("general"))
///     .pods(Pod::named("web").cpu("500m").memory("1Gi").replicas(20))
///     .build()?;
/// let catalogs = Catalogs::shared(generated_types(), snapshot.pools())?;
/// let planner = Planner::default();
/// let problem = planner.prepare(&snapshot, &catalogs);
/// let plan = problem.solve();
/// let proven = check_certificate(&snapshot, &catalogs, &plan, &problem.certify(&plan))?;
/// assert!(proven <= plan.hourly_cost());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_certificate(
    snapshot: &Snapshot,
    catalogs: &Catalogs,
    plan: &Plan,
    certificate: &Certificate,
) -> Result<Price, CertificateError> {
    let checker = Checker::new(snapshot, catalogs, plan);
    let groups = groups(&checker);
    let (kinds, worth) = kinds(&checker, &groups, certificate)?;
    let mut proven = -worth;
    for (index, group) in groups.iter().enumerate() {
        // A pod that nothing admits has no place in any plan; it adds nothing.
        let pays = kinds.iter().filter(|kind| kind.admits[index]).map(|kind| kind.pay(&group.requests));
        proven += pays.min().unwrap_or(0) * group.count;
    }
    let proven = price(proven);
    let claimed = certificate.lower_bound;
    if claimed > proven { Err(CertificateError::ClaimsTooMuch { claimed, proven }) } else { Ok(proven) }
}

fn price(nano_dollars_per_hour: i128) -> Price {
    Price::of_nano_dollars(i64::try_from(nano_dollars_per_hour.max(0)).unwrap_or(i64::MAX))
}

/// Placed pods that ask the same of a node.
struct Group<'a> {
    /// One of them.
    pod: &'a Pod,
    mounts: Vec<Mount<'a>>,
    wanted: Wanted,
    requests: Amounts,
    /// Whether nothing but the node decides where they may be, as far as weights go.
    is_free: bool,
    /// How many there are.
    count: i128,
}

/// The placed pods by what they ask of a node.
fn groups<'a>(checker: &Checker<'a>) -> Vec<Group<'a>> {
    let (plan, snapshot) = (checker.plan, checker.snapshot);
    let has_weights = snapshot.pools().windows(2).any(|pair| pair[0].weight() != pair[1].weight());
    let tied = if has_weights { topology::tied(snapshot, &checker.namespaces) } else { BTreeSet::new() };
    let placed = plan.claims().iter().map(|claim| &claim.pods).chain(plan.existing().values()).flatten();
    let mut out: BTreeMap<String, Group<'a>> = BTreeMap::new();
    for pod in checker.pods(placed.collect::<BTreeSet<_>>()) {
        let (requests, mounts) = (requests(pod), mounts(pod, snapshot.storage()));
        let is_free = has_weights && asks_only_for_a_node(&pod.spec) && !tied.contains(&pod.key());
        let PodSpec { node_selector, affinity, tolerations, .. } = &pod.spec;
        let rules: Vec<_> = mounts.iter().map(|mount| &mount.rule).collect();
        let ports = is_free.then(|| ports(&pod.spec));
        let asked = (&requests, node_selector, &affinity.node_affinity.required, tolerations, rules, ports);
        let group = out.entry(format!("{asked:?}")).or_insert_with(|| {
            let wanted = Wanted::new(&pod.spec, &mounts);
            Group { pod, mounts: mounts.clone(), wanted, requests, is_free, count: 0 }
        });
        group.count += 1;
    }
    out.into_values().collect()
}

impl Kind<'_> {
    /// What a pod pays on such a node, in billionths of a dollar an hour, each term rounded down.
    fn pay(&self, requests: &Amounts) -> i128 {
        let term = |(name, share): (&String, &u32)| {
            let name = name.as_str().into();
            let (request, room) = (*requests.get(&name)?, *self.room.get(&name)?);
            let portion = self.price.checked_mul((*share).into())?.checked_mul(request.into())?;
            // What cannot be worked out is not paid.
            (room > 0).then(|| portion / (i128::from(room) * WHOLE))
        };
        self.shares.into_iter().flatten().filter_map(term).sum()
    }
}
