//! Zonal shifts: zones in which nothing is bought and nothing given back for a while.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_core::{Requirements, Timestamp, api::NodePool, labels, provider::ProviderError};

use super::{Ec2Provider, Inner, State, class::ClassError};
use crate::{
    api::ApiError,
    ec2::{network::Subnet, shift::ZonalShift},
    instance_type::labels as own,
};

/// What ARC said of zones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shifts {
    /// All shifts of the last answer.
    known: Vec<ZonalShift>,
    /// The names of zones by their ids, of all subnets that were ever found.
    names: BTreeMap<String, String>,
}

impl Shifts {
    pub(crate) fn learn_zones(&mut self, subnets: &[Subnet]) {
        self.names.extend(subnets.iter().map(|subnet| (subnet.zone_id.clone(), subnet.zone.clone())));
    }

    /// Whether there is a shift of a zone whose name is not known.
    fn lacks_names(&self) -> bool {
        self.known.iter().any(|shift| !self.names.contains_key(&shift.zone_id))
    }

    /// The ids of the zones that are left alone.
    fn ids(&self, now: Timestamp) -> BTreeSet<String> {
        self.known.iter().filter(|shift| shift.is_active(now)).map(|shift| shift.zone_id.clone()).collect()
    }

    /// Their names, of those that have any.
    pub(crate) fn zones(&self, now: Timestamp) -> BTreeSet<String> {
        self.ids(now).iter().filter_map(|id| self.names.get(id).cloned()).collect()
    }

    pub(crate) fn has(&self, zone: &str, now: Timestamp) -> bool {
        self.zones(now).contains(zone)
    }
}

/// What is new for a pool of a zone in which it may buy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShiftNews {
    /// The name of the pool.
    pub pool: String,
    /// The name of the zone.
    pub zone: String,
    /// The id of the zone.
    pub zone_id: String,
    /// Whether the shift is over; it begins otherwise.
    pub is_over: bool,
}

impl ShiftNews {
    /// One word.
    pub const fn reason(&self) -> &'static str {
        if self.is_over { "ZonalShiftCleared" } else { "ZonalShiftActive" }
    }

    /// A sentence.
    pub fn message(&self) -> String {
        let Self { zone, zone_id, .. } = self;
        if self.is_over {
            format!("The zonal shift away from {zone} ({zone_id}) is over: the pool buys there again")
        } else {
            format!("A zonal shift is away from {zone} ({zone_id}): the pool buys nothing there")
        }
    }
}

impl Ec2Provider {
    /// Asks ARC for the zonal shifts of the cluster that has this ARN, and leaves their zones alone: nothing is bought there,
    /// no machine there is given back or tagged, and one of which EC2 does not tell is not taken for gone. Gives back the
    /// ids of the zones. To be called every half minute; what was said last holds until it expires.
    ///
    /// # Errors
    /// ARC did not answer, or does not know the cluster; or EC2 does not say what its zones are called.
    pub async fn ask_for_shifts(&self, arn: &str) -> Result<BTreeSet<String>, ProviderError> {
        let found = self.0.api.get_managed_resource(arn).await.map_err(|error| error.to_error("zonal_shift"))?;
        let lacks_names = {
            let mut state = self.0.lock();
            state.shifts.known = found;
            state.shifts.lacks_names()
        };
        // Machines are known by the names of their zones. Before any class is known, nobody has found a subnet yet.
        if lacks_names {
            let subnets = self.0.api.describe_subnets(&[]).await.map_err(|error| error.to_error("zonal_shift"))?;
            self.0.lock().shifts.learn_zones(&subnets);
        }
        Ok(self.shifted_zone_ids())
    }

    /// The ids of the zones that are left alone now, as far as ARC said.
    pub fn shifted_zone_ids(&self) -> BTreeSet<String> {
        let now = self.0.clock.now();
        self.0.lock().shifts.ids(now)
    }

    /// What is new for pools since the shifted zones were those of `before`, by their ids, if they are those of `after` now.
    /// A pool hears of a zone if its requirements admit the zone's name and id, and its class has a subnet there.
    ///
    /// # Errors
    /// AWS did not say what a class finds: nothing should be told, and it be tried again.
    pub async fn shift_news(
        &self,
        pools: &[NodePool],
        before: &BTreeSet<String>,
        after: &BTreeSet<String>,
    ) -> Result<Vec<ShiftNews>, ProviderError> {
        let mut out = Vec::new();
        for pool in pools {
            let resolved = match self.0.resolve(&pool.spec.template.spec.node_class_ref.name).await {
                Ok(resolved) => resolved,
                Err(ClassError::Missing { .. }) => continue,
                Err(ClassError::Provider(error)) => return Err(error),
            };
            let template = &pool.spec.template;
            let mut requirements: Requirements = template.spec.requirements.iter().collect();
            requirements.add_all(&Requirements::of_labels(&template.metadata.labels));
            let zones: BTreeSet<(&str, &str)> =
                resolved.class.status.subnets.iter().map(|s| (s.zone_id.as_str(), s.zone.as_str())).collect();
            for (zone_id, zone) in zones {
                if before.contains(zone_id) != after.contains(zone_id) && admits(&requirements, zone, zone_id) {
                    let (pool, zone, zone_id) = (pool.name().to_owned(), zone.to_owned(), zone_id.to_owned());
                    out.push(ShiftNews { pool, is_over: before.contains(&zone_id), zone, zone_id });
                }
            }
        }
        Ok(out)
    }
}

fn admits(requirements: &Requirements, zone: &str, zone_id: &str) -> bool {
    let admits = |key: &str, value: &str| requirements.get(key).is_none_or(|own| own.admits(Some(value)));
    admits(labels::ZONE, zone) && admits(own::ZONE_ID, zone_id)
}

impl State {
    /// Whether EC2 may be silent about a machine that is there.
    pub(crate) fn may_be_unseen(&self, machine: &str, now: Timestamp) -> bool {
        let is_shifted = || self.owners.zone_of(machine).is_some_and(|zone| self.shifts.has(zone, now));
        self.owners.may_be_unseen(machine, now) || is_shifted()
    }
}

impl Inner {
    /// An error if a machine is in a zone that is left alone.
    pub(crate) fn not_in_shift(&self, zone: &str, operation: &str, machine: &str) -> Result<(), ApiError> {
        let now = self.clock.now();
        if self.lock().shifts.has(zone, now) {
            let message = format!("{machine} is in {zone}, which is left alone because of a zonal shift");
            return Err(ApiError::no_answer(operation, message));
        }
        Ok(())
    }
}
