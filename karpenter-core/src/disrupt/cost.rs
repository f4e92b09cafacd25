//! What it costs to move pods and to take nodes away: numbers without a unit, which only order choices. A pod of no
//! particular importance costs 1.

use crate::{
    Catalog, Price, Timestamp,
    api::{NodeClaim, Pod},
    cluster::Place,
    labels,
};

/// What taking a node away costs beside its pods.
pub const NODE_COST: f64 = 1.0;
/// The largest eviction cost, and the smallest with its sign turned.
const MAX_EVICTION_COST: f64 = 10.0;
/// So much of `controller.kubernetes.io/pod-deletion-cost` counts as one pod.
const DELETION_COST_OF_ONE_POD: f64 = 134_217_728.0;
/// So much priority counts as one pod.
const PRIORITY_OF_ONE_POD: f64 = 33_554_432.0;

/// What evicting a pod costs, from -10 to 10: 1, and more or less by its deletion cost
/// (<https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost>) and its priority.
///
/// ```
/// use karpenter_core::{api::Pod, disrupt::eviction_cost};
///
/// let mut pod = Pod::default();
/// assert_eq!(eviction_cost(&pod), 1.0);
/// pod.spec.priority = Some(1_000_000_000);
/// assert_eq!(eviction_cost(&pod), 10.0);
/// ```
pub fn eviction_cost(pod: &Pod) -> f64 {
    let deletion_cost: Option<i32> =
        pod.metadata.annotations.get(labels::POD_DELETION_COST).and_then(|text| text.parse().ok());
    let by_deletion_cost = f64::from(deletion_cost.unwrap_or(0)) / DELETION_COST_OF_ONE_POD;
    let by_priority = f64::from(pod.spec.priority.unwrap_or(0)) / PRIORITY_OF_ONE_POD;
    (1.0 + by_deletion_cost + by_priority).clamp(-MAX_EVICTION_COST, MAX_EVICTION_COST)
}

/// What moving these pods off a node costs, the node itself included. Pods that cost less than nothing cost nothing.
pub(super) fn rescheduling_cost<'p>(pods: impl IntoIterator<Item = &'p Pod>) -> f64 {
    rescheduling_cost_by(pods.into_iter().map(eviction_cost))
}

/// The same by what the eviction of each pod costs.
pub(super) fn rescheduling_cost_by(evictions: impl Iterator<Item = f64>) -> f64 {
    evictions.fold(NODE_COST, |cost, eviction| cost + eviction.max(0.0))
}

/// What disturbing a node costs: the evictions of all its pods, times the part of its life that is left.
pub(crate) fn disruption_cost<'p>(pods: impl IntoIterator<Item = &'p Pod>, claim: &NodeClaim, now: Timestamp) -> f64 {
    disruption_cost_by(pods.into_iter().map(eviction_cost), claim, now)
}

/// The same by what the eviction of each pod costs.
pub(super) fn disruption_cost_by(evictions: impl Iterator<Item = f64>, claim: &NodeClaim, now: Timestamp) -> f64 {
    // A sum of floats starts at -0, which would be printed.
    evictions.fold(0.0, |sum, eviction| sum + eviction) * lifetime_remaining(claim, now)
}

/// The part of its life that a claim has left, from 0 to 1; 1 if it never expires.
fn lifetime_remaining(claim: &NodeClaim, now: Timestamp) -> f64 {
    let Some(life) = claim.spec.expire_after.duration() else { return 1.0 };
    let Some(created) = claim.metadata.creation_timestamp else { return 1.0 };
    let left = life.saturating_sub(now.since(created));
    if left.is_zero() { 0.0 } else { left.as_secs_f64() / life.as_secs_f64() }
}

/// What a node costs by its labels: the price of the first offering of its type in its zone and of its capacity type,
/// whether or not it can be bought now. Of the offerings that draw on reservations, that of the node's own reservation
/// comes first.
///
/// `None` if the catalog does not say.
pub fn price_of(place: &Place, catalog: &Catalog) -> Option<Price> {
    catalog.offering_of(&place.labels)?.known_price()
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the expected values are worked out by the same steps")]
mod tests {
    use super::*;
    use crate::{InstanceType, Offering, Snapshot, api::Node};

    fn pod(json: &str) -> Pod {
        serde_json::from_str(json).expect(json)
    }

    fn with_cost(deletion_cost: &str, priority: &str) -> Pod {
        pod(&format!(
            r#"{{"metadata":{{"name":"p","annotations":{{"controller.kubernetes.io/pod-deletion-cost":"{deletion_cost}"}}}},"spec":{{"containers":[],"priority":{priority}}}}}"#
        ))
    }

    #[test]
    fn evictions_cost_by_deletion_cost_and_priority() {
        for (deletion_cost, priority, expected) in [
            ("", "null", 1.0),
            ("0", "0", 1.0),
            ("134217728", "0", 2.0),
            ("-134217728", "0", 0.0),
            ("2147483647", "0", 10.0),
            ("-2147483648", "0", -10.0),
            ("0", "33554432", 2.0),
            ("0", "-67108864", -1.0),
            ("0", "1000000000", 10.0),
            ("0", "-2147483648", -10.0),
            ("134217728", "-33554432", 1.0),
            ("much", "33554432", 2.0),
            ("NaN", "0", 1.0),
        ] {
            assert_eq!(eviction_cost(&with_cost(deletion_cost, priority)), expected, "{deletion_cost} {priority}");
        }
    }

    #[test]
    fn cheap_pods_do_not_make_a_node_cheaper_than_an_empty_one() {
        let (plain, cheap) = (with_cost("0", "0"), with_cost("-2147483648", "0"));
        for (pods, rescheduling, disruption) in [
            (vec![], 1.0, 0.0),
            (vec![&plain], 2.0, 1.0),
            (vec![&cheap], 1.0, -10.0),
            (vec![&plain, &cheap, &plain], 3.0, -8.0),
        ] {
            let mut claim = NodeClaim::named("c");
            claim.spec.expire_after = "Never".parse().expect("a duration");
            assert_eq!(rescheduling_cost(pods.iter().copied()), rescheduling);
            assert_eq!(disruption_cost(pods.iter().copied(), &claim, Timestamp::default()), disruption);
        }
    }

    #[test]
    fn what_is_about_to_expire_costs_little() {
        let claim = |expire_after: &str, created: &str| -> NodeClaim {
            let json = format!(
                r#"{{"metadata":{{"name":"c"{created}}},"spec":{{"expireAfter":"{expire_after}","nodeClassRef":{{}},"requirements":[]}}}}"#
            );
            serde_json::from_str(&json).expect("a claim")
        };
        let created = r#","creationTimestamp":"2026-01-01T00:00:00Z""#;
        let now = "2026-01-01T06:00:00Z".parse().expect("a time");
        for (expire_after, created, expected) in [
            ("24h", created, 0.75),
            ("6h", created, 0.0),
            ("1h", created, 0.0),
            ("0s", created, 0.0),
            ("Never", created, 1.0),
            ("24h", "", 1.0),
            ("24h", r#","creationTimestamp":"2026-01-02T00:00:00Z""#, 1.0),
        ] {
            assert_eq!(lifetime_remaining(&claim(expire_after, created), now), expected, "{expire_after} {created}");
            let plain = with_cost("0", "0");
            assert_eq!(disruption_cost([&plain, &plain], &claim(expire_after, created), now), 2.0 * expected);
        }
    }

    #[test]
    fn a_node_costs_what_its_offering_costs_even_if_nobody_can_buy_it() {
        let price = |cents: f64| Price::per_hour(cents / 100.0).expect("a price");
        let reserved = |id: &str, cents: f64| {
            let mut offering = Offering::new("reserved", "a", price(cents));
            offering.requirements.add("example.com/reservation-id", crate::Requirement::one_of([id]));
            offering
        };
        let mut small = InstanceType::named("small", [("cpu", crate::Quantity::from_units(2))])
            .offering("spot", "a", price(3.0))
            .offering("spot", "b", price(4.0))
            .offering("spot", "b", price(5.0))
            .offering("on-demand", "a", price(10.0));
        small.offerings[1].available = false;
        small.offerings.extend([reserved("r1", 1.0), reserved("r2", 2.0)]);
        let catalog = Catalog::new(vec![small]).expect("valid");
        for (instance_type, zone, capacity_type, reservation, expected) in [
            ("small", "a", "spot", "", Some(3.0)),
            ("small", "b", "spot", "", Some(4.0)),
            ("small", "a", "on-demand", "", Some(10.0)),
            ("small", "b", "on-demand", "", None),
            ("small", "a", "reserved", "r2", Some(2.0)),
            ("small", "a", "reserved", "", Some(1.0)),
            ("small", "", "spot", "", None),
            ("small", "a", "", "", None),
            ("large", "a", "spot", "", None),
            ("", "a", "spot", "", None),
        ] {
            let mut node = Node::default();
            node.metadata.name = "n".to_owned();
            for (key, value) in [
                (labels::INSTANCE_TYPE, instance_type),
                (labels::ZONE, zone),
                (labels::CAPACITY_TYPE, capacity_type),
                ("example.com/reservation-id", reservation),
            ] {
                if !value.is_empty() {
                    node.metadata.labels.insert(key.to_owned(), value.to_owned());
                }
            }
            let snapshot = Snapshot::builder().node(node).build().expect("valid");
            let found = price_of(&snapshot.places()[0], &catalog);
            assert_eq!(found, expected.map(price), "{instance_type} {zone} {capacity_type} {reservation}");
        }
    }
}
