use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karpenter_core::{Timestamp, provider::ProviderEvent};

use super::{State, machines, network::tag_filters};
use crate::{
    api::{ApiError, AwsApi},
    ec2::{Filter, instance::Ec2Instance, reservation::CapacityReservation},
    nodeclass::{self, CapacityReservationSelectorTerm, InstanceMatchCriteria, ReservationState, ReservationType},
};

/// EC2 ends the machines of a block so long before the block itself.
const ENDED_BEFORE: Duration = Duration::from_mins(30);

/// The active reservations that any term selects, by their ids, without those whose end is past.
pub(crate) async fn find_reservations(
    api: &dyn AwsApi,
    terms: &[CapacityReservationSelectorTerm],
    now: Timestamp,
) -> Result<Vec<CapacityReservation>, ApiError> {
    let mut found: BTreeMap<String, CapacityReservation> = BTreeMap::new();
    for term in terms {
        let reservations = match api.describe_capacity_reservations(&ids(term), &filters(term)).await {
            Err(error) if error.is_not_found() => continue,
            answer => answer?,
        };
        found.extend(reservations.into_iter().map(|reservation| (reservation.id.clone(), reservation)));
    }
    let is_over = |r: &CapacityReservation| r.state != "active" || r.end.is_some_and(|end| end <= now);
    Ok(found.into_values().filter(|reservation| !is_over(reservation)).collect())
}

fn ids(term: &CapacityReservationSelectorTerm) -> Vec<String> {
    if term.id.is_empty() { Vec::new() } else { vec![term.id.clone()] }
}

fn filters(term: &CapacityReservationSelectorTerm) -> Vec<Filter> {
    let mut out = vec![Filter::new("state", ["active"])];
    if !term.id.is_empty() {
        return out;
    }
    out.extend(tag_filters(&term.tags));
    if !term.owner_id.is_empty() {
        out.push(Filter::new("owner-id", [term.owner_id.as_str()]));
    }
    let criteria = match term.instance_match_criteria {
        Some(InstanceMatchCriteria::Open) => "open",
        Some(InstanceMatchCriteria::Targeted) => "targeted",
        None => return out,
    };
    out.push(Filter::new("instance-match-criteria", [criteria]));
    out
}

/// A reservation as a class tells of it; `None` if EC2 calls its kind by a word that is not known.
pub(crate) fn to_status(found: &CapacityReservation, now: Timestamp) -> Option<nodeclass::CapacityReservation> {
    let instance_match_criteria = match found.match_criteria.as_str() {
        "open" => InstanceMatchCriteria::Open,
        "targeted" => InstanceMatchCriteria::Targeted,
        _ => return None,
    };
    let reservation_type = match found.reservation_type.as_deref() {
        None | Some("" | "default") => ReservationType::Default,
        Some("capacity-block") => ReservationType::CapacityBlock,
        Some(_) => return None,
    };
    let mut out = nodeclass::CapacityReservation {
        availability_zone: found.zone.clone(),
        end_time: found.end,
        id: found.id.clone(),
        instance_match_criteria,
        instance_type: found.instance_type.clone(),
        owner_id: found.owner_id.clone(),
        reservation_type,
        interruptible: found.interruptible.unwrap_or_default(),
        state: ReservationState::Active,
    };
    out.state = out.state_at(now);
    Some(out)
}

impl State {
    /// Tells the engine, once, of the machines whose block is about to end: EC2 ends them some time before the block.
    pub(crate) fn tell_of_ends(&mut self, machines: &[Ec2Instance], now: Timestamp) {
        let known = self.resolved.values().flat_map(|resolved| &resolved.class.status.capacity_reservations);
        let expiring = known.filter(|reservation| reservation.state_at(now) == ReservationState::Expiring);
        let ends: BTreeMap<&str, Timestamp> = expiring.filter_map(|r| Some((r.id.as_str(), r.end_time?))).collect();
        let mut out = Vec::new();
        for machine in machines.iter().filter(|machine| !machine.state.is_ending()) {
            let end = machine.reservation_id.as_deref().and_then(|id| ends.get(id));
            if let Some(end) = end.filter(|_| self.told_of_end.insert(machine.id.clone())) {
                let id = machines::provider_id(&machine.zone, &machine.id);
                let message = format!("{}: its capacity block ends at {end}", id.as_str());
                let (is_warning, reason) = (true, "CapacityBlockExpiring".into());
                out.push(ProviderEvent::Notice { id: id.clone(), is_warning, reason, message });
                out.push(ProviderEvent::Ending { id, at: *end - ENDED_BEFORE });
            }
        }
        self.told_of_end.retain(|told| machines.iter().any(|machine| machine.id == *told));
        for event in out {
            self.tell(event);
        }
    }
}

/// How many machines each reservation has left: what EC2 said last, and what happened since.
///
/// It errs on the side of too many: a launch that finds none left says so, and corrects it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remaining {
    /// How many are left, and when EC2 said so, by the ids of reservations.
    counts: BTreeMap<String, (u32, Timestamp)>,
    /// The reservations of machines that were given back and are not gone yet, by the ids of these.
    leaving: BTreeMap<String, String>,
}

impl Remaining {
    /// What EC2 says now.
    pub(crate) fn refresh(&mut self, found: &[CapacityReservation], now: Timestamp) {
        self.counts.extend(found.iter().map(|r| (r.id.clone(), (r.available_count, now))));
    }

    /// How many are left; none of a reservation that is not known.
    pub(crate) fn count(&self, id: &str) -> u32 {
        self.counts.get(id).map_or(0, |(count, _)| *count)
    }

    /// A machine was launched at that time. EC2 may have counted it since.
    pub(crate) fn launched(&mut self, id: &str, at: Timestamp) {
        if let Some((count, since)) = self.counts.get_mut(id)
            && *since <= at
        {
            *count = count.saturating_sub(1);
        }
    }

    /// A machine of a reservation was given back. It takes its slot until it is gone.
    pub(crate) fn given_back(&mut self, machine: &str, reservation: &str) {
        self.leaving.insert(machine.to_owned(), reservation.to_owned());
    }

    /// A machine is gone. One that was given back leaves its slot to others, once.
    pub(crate) fn gone(&mut self, machine: &str) {
        if let Some(reservation) = self.leaving.remove(machine)
            && let Some((count, _)) = self.counts.get_mut(&reservation)
        {
            *count += 1;
        }
    }

    /// Takes in all machines that there are: what is not among them is gone.
    pub(crate) fn learn(&mut self, machines: &[Ec2Instance]) {
        let is_there: BTreeSet<&str> = machines.iter().map(|machine| machine.id.as_str()).collect();
        let gone: Vec<String> =
            self.leaving.keys().filter(|machine| !is_there.contains(machine.as_str())).cloned().collect();
        for machine in gone {
            self.gone(&machine);
        }
    }

    /// There is none left.
    pub(crate) fn exhaust(&mut self, id: &str) {
        if let Some((count, _)) = self.counts.get_mut(id) {
            *count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::MemoryAws;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn reservation(id: &str) -> CapacityReservation {
        let text = str::to_owned;
        CapacityReservation {
            id: text(id),
            state: text("active"),
            match_criteria: text("targeted"),
            available_count: 2,
            ..CapacityReservation::default()
        }
    }

    #[tokio::test]
    async fn a_term_whose_reservation_is_not_there_finds_nothing() {
        let aws = MemoryAws::small();
        aws.with(|state| {
            state.reservations.push(reservation("cr-1"));
            state.reservations.push(CapacityReservation { end: Some(at(10)), ..reservation("cr-2") });
        });
        let by_id = |id: &str| CapacityReservationSelectorTerm { id: id.to_owned(), ..Default::default() };
        let targeted = CapacityReservationSelectorTerm {
            instance_match_criteria: Some(InstanceMatchCriteria::Targeted),
            ..Default::default()
        };
        let found = find_reservations(&aws, &[by_id("cr-9"), targeted, by_id("cr-1")], at(10)).await.expect("answers");
        assert_eq!(found.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ["cr-1"]);
    }

    #[test]
    fn of_reservations_with_words_that_nobody_knows_nothing_is_told() {
        let known = to_status(&reservation("cr-1"), at(0)).expect("known");
        assert_eq!((known.interruptible, known.reservation_type), (false, ReservationType::Default));
        let criteria = CapacityReservation { match_criteria: "other".to_owned(), ..reservation("cr-1") };
        let kind = CapacityReservation { reservation_type: Some("other".to_owned()), ..reservation("cr-1") };
        assert_eq!((to_status(&criteria, at(0)), to_status(&kind, at(0))), (None, None));
    }

    #[test]
    fn only_blocks_are_about_to_end() {
        let block = |end| CapacityReservation {
            reservation_type: Some("capacity-block".to_owned()),
            end: Some(at(end)),
            ..reservation("cr-1")
        };
        let state = |found: &CapacityReservation| to_status(found, at(0)).expect("known").state;
        assert_eq!(state(&block(40 * 60)), ReservationState::Expiring);
        assert_eq!(state(&block(40 * 60 + 1)), ReservationState::Active);
        assert_eq!(state(&CapacityReservation { end: Some(at(60)), ..reservation("cr-1") }), ReservationState::Active);
        let strange = CapacityReservation { reservation_type: Some("future".to_owned()), ..reservation("cr-1") };
        assert_eq!(to_status(&strange, at(0)), None);
    }

    #[test]
    fn launches_that_ec2_has_counted_are_not_counted_again() {
        let mut remaining = Remaining::default();
        remaining.refresh(&[reservation("cr-1")], at(10));
        remaining.launched("cr-1", at(5));
        assert_eq!(remaining.count("cr-1"), 2);
        remaining.launched("cr-1", at(11));
        assert_eq!(remaining.count("cr-1"), 1);
        remaining.exhaust("cr-1");
        remaining.launched("cr-1", at(12));
        assert_eq!((remaining.count("cr-1"), remaining.count("cr-2")), (0, 0));
    }

    #[test]
    fn a_slot_is_free_once_its_machine_is_gone() {
        let mut remaining = Remaining::default();
        remaining.refresh(&[reservation("cr-1")], at(10));
        let there = ["i-1", "i-2"].map(|id| Ec2Instance { id: id.to_owned(), ..Ec2Instance::default() });
        let counts = |remaining: &Remaining| remaining.count("cr-1");
        remaining.given_back("i-1", "cr-1");
        remaining.given_back("i-1", "cr-1");
        remaining.given_back("i-2", "cr-1");
        remaining.learn(&there);
        assert_eq!(counts(&remaining), 2);
        remaining.gone("i-1");
        remaining.gone("i-1");
        assert_eq!(counts(&remaining), 3);
        remaining.learn(&there[..1]);
        assert_eq!(counts(&remaining), 4);
    }
}
