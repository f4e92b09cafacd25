//! Whose the machines are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karpenter_core::{
    Timestamp, labels,
    provider::{Instance, ProviderId},
};

use super::tags;
use crate::{
    ec2::{fleet::FleetRequest, instance::Ec2Instance},
    instance_type::labels as own,
    nodeclass,
};

/// The most machines that are remembered; far more than a cluster has.
const MAX_OWNERS: usize = 100_000;
/// EC2 may not tell of a machine for so long after it was bought.
const UNSEEN_FOR: Duration = Duration::from_mins(1);
/// A fleet whose answer was lost is remembered for so long. A claim has five minutes to get its machine.
const ATTEMPT_FOR: Duration = Duration::from_mins(10);
/// The beginning of all ids of machines, before the zone.
const SCHEME: &str = "aws:///";

/// The name of a machine for Kubernetes.
pub(crate) fn provider_id(zone: &str, instance: &str) -> ProviderId {
    ProviderId::new(format!("{SCHEME}{zone}/{instance}"))
}

/// The zone and the id of the machine that has this name; `None` if it is none of EC2.
pub(crate) fn parts(id: &ProviderId) -> Option<(&str, &str)> {
    let (zone, instance) = id.as_str().strip_prefix(SCHEME)?.split_once('/')?;
    let digits = instance.strip_prefix("i-")?;
    (!digits.is_empty() && digits.chars().all(|c| c.is_ascii_alphanumeric())).then_some((zone, instance))
}

/// The id of the machine that has this name; `None` if it is none of EC2.
pub(crate) fn instance_id(id: &ProviderId) -> Option<&str> {
    parts(id).map(|(_, instance)| instance)
}

/// A fleet whose answer was lost. It is asked for once more as it was, so that it is bought once.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// When it was asked for first.
    pub(crate) begun: Timestamp,
    pub(crate) request: FleetRequest,
    /// The claims in the order in which machines are dealt to them.
    pub(crate) claims: Vec<ClaimName>,
    pub(crate) terms: Arc<super::launch::Terms>,
}

/// What a claim is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimName {
    pub(crate) uid: String,
    pub(crate) name: String,
}

/// The machines of the cluster, and which claim each was bought for.
///
/// What this process bought it knows by itself. Of the rest the tags tell, or whoever knows the claims. Where a machine is and
/// what it is matters to messages about it, though nobody may know yet whose it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    /// By the ids of the machines.
    by_machine: BTreeMap<String, Owned>,
    /// Whether all machines that were there at the start have been looked at.
    pub(crate) is_complete: bool,
    /// Fleets whose answer was lost, by the uids of the claims. One for each claim at most, and none of claims that are gone
    /// for long.
    attempts: BTreeMap<String, Arc<Attempt>>,
}

#[derive(Clone, Debug)]
struct Owned {
    /// The uid of its claim; `None` as long as nobody knows it, and empty if it is nobody's.
    uid: Option<String>,
    zone: String,
    /// When it was bought by this process, unless it was given back.
    bought: Option<Timestamp>,
    /// What it is, as far as that is known.
    kind: Option<MachineKind>,
}

/// What a machine is and what it draws on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineKind {
    pub(crate) instance_type: String,
    /// The id of its capacity reservation.
    pub(crate) reservation: Option<String>,
}

impl Owners {
    /// A machine is that of a claim. What else is known of it stays.
    pub(crate) fn set(&mut self, machine: &str, uid: &str, zone: &str) {
        let uid = Some(uid.to_owned());
        match self.by_machine.get_mut(machine) {
            Some(owned) => owned.uid = uid,
            None => self.insert(machine, Owned { uid, ..Owned::in_zone(zone) }),
        }
    }

    /// A machine was bought for a claim.
    pub(crate) fn bought(&mut self, machine: &str, uid: &str, zone: &str, kind: MachineKind, now: Timestamp) {
        let (uid, zone) = (Some(uid.to_owned()), zone.to_owned());
        self.insert(machine, Owned { uid, zone, bought: Some(now), kind: Some(kind) });
    }

    fn insert(&mut self, machine: &str, owned: Owned) {
        if self.by_machine.len() < MAX_OWNERS || self.by_machine.contains_key(machine) {
            self.by_machine.insert(machine.to_owned(), owned);
        }
    }

    /// A fleet is asked for, for each of its claims. What was asked for long ago is forgotten.
    pub(crate) fn attempted(&mut self, attempt: &Arc<Attempt>, now: Timestamp) {
        self.attempts.retain(|_, old| now < old.begun + ATTEMPT_FOR);
        self.attempts.extend(attempt.claims.iter().map(|claim| (claim.uid.clone(), attempt.clone())));
    }

    /// It is known what came of a fleet.
    pub(crate) fn answered(&mut self, attempt: &Attempt) {
        for claim in &attempt.claims {
            self.attempts.remove(&claim.uid);
        }
    }

    /// The fleet that was asked for, for a claim, of which it is not known what came of it.
    pub(crate) fn attempt_of(&self, uid: &str) -> Option<&Arc<Attempt>> {
        self.attempts.get(uid)
    }

    /// The machine of a claim; the first of several.
    pub(crate) fn machine_of(&self, uid: &str) -> Option<&str> {
        self.by_machine.iter().find(|(_, owned)| owned.uid.as_deref() == Some(uid)).map(|(machine, _)| machine.as_str())
    }

    /// A machine was given back: it may be gone any time.
    pub(crate) fn given_back(&mut self, machine: &str) {
        if let Some(owned) = self.by_machine.get_mut(machine) {
            owned.bought = None;
        }
    }

    /// A machine is gone.
    pub(crate) fn forget(&mut self, machine: &str) {
        self.by_machine.remove(machine);
    }

    /// The uid of the claim of a machine.
    pub(crate) fn uid_of(&self, machine: &str) -> Option<&str> {
        self.by_machine.get(machine)?.uid.as_deref()
    }

    /// The uid of a claim for which a machine may have been bought with others, of which it is not known whose it is: of a
    /// claim that has no machine yet, or none if all have one. `None` if its tags tell of no claims.
    pub(crate) fn likely_uid_of<'m>(&self, machine: &'m Ec2Instance) -> Option<&'m str> {
        let mut uids = tags::uids_of(machine)?;
        Some(uids.find(|uid| self.machine_of(uid).is_none()).unwrap_or(""))
    }

    /// The zone of a machine.
    pub(crate) fn zone_of(&self, machine: &str) -> Option<&str> {
        self.by_machine.get(machine).map(|owned| owned.zone.as_str())
    }

    /// The machines in these zones of which it is known whose they are, with the uids of their claims.
    pub(crate) fn in_zones(&self, zones: &BTreeSet<String>) -> impl Iterator<Item = (ProviderId, &str)> {
        let here = self.by_machine.iter().filter(|(_, owned)| zones.contains(&owned.zone));
        here.filter_map(|(machine, owned)| Some((provider_id(&owned.zone, machine), owned.uid.as_deref()?)))
    }

    /// What a machine is, as far as that is known.
    pub(crate) fn kind_of(&self, machine: &str) -> Option<&MachineKind> {
        self.by_machine.get(machine)?.kind.as_ref()
    }

    /// Whether a machine was bought so short a time ago that EC2 may not tell of it yet.
    pub(crate) fn may_be_unseen(&self, machine: &str, now: Timestamp) -> bool {
        self.by_machine.get(machine).is_some_and(|owned| owned.is_young(now))
    }

    /// Takes in all machines that there are: what is not among them is gone, save in zones that are left alone.
    ///
    /// A machine whose claim has another one already was bought twice; nobody owns it, so that it is collected. At the start
    /// that is known only where the claim itself names the other one.
    pub(crate) fn learn(&mut self, machines: &[Ec2Instance], shifted: &BTreeSet<String>, now: Timestamp) {
        let is_there: BTreeSet<&str> = machines.iter().map(|m| m.id.as_str()).collect();
        self.by_machine.retain(|machine, owned| {
            is_there.contains(machine.as_str()) || owned.is_young(now) || shifted.contains(&owned.zone)
        });
        for machine in machines {
            if !self.by_machine.contains_key(&machine.id) {
                self.insert(&machine.id, Owned::in_zone(&machine.zone));
            }
            let Some(known) = self.by_machine.get_mut(&machine.id) else { continue };
            let (instance_type, reservation) = (machine.instance_type.clone(), machine.reservation_id.clone());
            known.kind = Some(MachineKind { instance_type, reservation });
        }
        let named: BTreeSet<String> = self.by_machine.values().filter_map(|owned| owned.uid.clone()).collect();
        let mut owned = named.clone();
        for (machine, uid) in tags::claims_of(machines) {
            let Some(known) = self.by_machine.get_mut(machine).filter(|known| known.uid.is_none()) else { continue };
            let is_surplus = if self.is_complete { owned.contains(uid) } else { named.contains(uid) };
            known.uid = Some(if is_surplus { String::new() } else { uid.to_owned() });
            owned.insert(uid.to_owned());
        }
        self.is_complete = true;
    }
}

impl Owned {
    /// A machine of which nobody knows whose it is.
    fn in_zone(zone: &str) -> Self {
        Self { uid: None, zone: zone.to_owned(), bought: None, kind: None }
    }

    fn is_young(&self, now: Timestamp) -> bool {
        self.bought.is_some_and(|bought| now < bought + UNSEEN_FOR)
    }
}

/// What a machine was bought as.
pub(crate) fn capacity_type(machine: &Ec2Instance) -> &'static str {
    let is_targeted = machine.reservation_preference.as_deref() == Some("capacity-reservations-only");
    match machine {
        Ec2Instance { spot_request_id: Some(_), .. } => labels::SPOT,
        Ec2Instance { reservation_id: Some(_), .. } if is_targeted => labels::RESERVED,
        _ => labels::ON_DEMAND,
    }
}

/// What EC2 tells of a machine, in the words of the engine.
pub(crate) fn to_instance(machine: &Ec2Instance, uid: &str) -> Instance {
    let capacity_type = capacity_type(machine);
    let mut out = BTreeMap::new();
    let mut set = |key: &str, value: &str| {
        if !value.is_empty() {
            out.insert(key.to_owned(), value.to_owned());
        }
    };
    set(labels::INSTANCE_TYPE, &machine.instance_type);
    set(labels::ZONE, &machine.zone);
    set(labels::CAPACITY_TYPE, capacity_type);
    set(own::TENANCY, &machine.tenancy);
    if let Some(id) = machine.reservation_id.as_ref().filter(|_| capacity_type == labels::RESERVED) {
        set(own::RESERVATION_ID, id);
    }
    for (tag, label) in [
        (tags::NODE_POOL, labels::NODE_POOL.to_owned()),
        (tags::NODE_CLASS, nodeclass::Ec2NodeClass::default().reference().label_key()),
    ] {
        set(&label, machine.tags.get(tag).map_or("", String::as_str));
    }
    let mut instance = Instance::new(provider_id(&machine.zone, &machine.id), uid, out);
    instance.is_terminating = machine.state.is_ending();
    instance
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::Tags;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn machine(id: &str, uid: &str) -> Ec2Instance {
        let tags = Tags::from([(tags::CLAIM_UID.to_owned(), uid.to_owned())]);
        Ec2Instance { id: id.to_owned(), tags, ..Ec2Instance::default() }
    }

    #[test]
    fn names_of_machines_of_ec2() {
        assert_eq!(instance_id(&provider_id("us-west-2a", "i-0a1")), Some("i-0a1"));
        for other in ["aws:///us-west-2a/", "fake:///z/i-1", "aws:///i-1", "aws:///z/i-", "aws:///z/i-1/x", "x"] {
            assert_eq!(instance_id(&ProviderId::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_machine_that_was_bought_twice_is_nobodys() {
        let mut owners = Owners::default();
        owners.learn(&[machine("i-2", "u1")], &BTreeSet::new(), at(0));
        owners.learn(&[machine("i-1", "u1"), machine("i-2", "u1")], &BTreeSet::new(), at(0));
        assert_eq!((owners.uid_of("i-1"), owners.uid_of("i-2")), (Some(""), Some("u1")));
        assert_eq!(owners.machine_of("u1"), Some("i-2"));
        owners.learn(&[], &BTreeSet::new(), at(0));
        assert_eq!(owners.machine_of("u1"), None, "it is gone");
    }

    #[test]
    fn of_machines_of_a_fleet_that_came_short_nobody_knows_whose_they_are_until_all_claims_have_others() {
        let uids = Tags::from([(tags::CLAIM_UIDS.to_owned(), "u1 u2".to_owned())]);
        let short = Ec2Instance { id: "i-1".to_owned(), tags: uids, ..Ec2Instance::default() };
        let mut owners = Owners::default();
        owners.learn(std::slice::from_ref(&short), &BTreeSet::new(), at(0));
        assert_eq!((owners.uid_of("i-1"), owners.likely_uid_of(&short)), (None, Some("u1")));
        owners.bought("i-2", "u1", "z", MachineKind::default(), at(0));
        assert_eq!(owners.likely_uid_of(&short), Some("u2"));
        owners.bought("i-3", "u2", "z", MachineKind::default(), at(0));
        assert_eq!(owners.likely_uid_of(&short), Some(""));
        assert_eq!(owners.likely_uid_of(&Ec2Instance::default()), None);
    }

    #[test]
    fn lost_answers_are_remembered_for_ten_minutes() {
        let mut owners = Owners::default();
        for minute in 0..100 {
            let begun = at(60 * minute);
            let claims = vec![ClaimName { uid: format!("u{minute}"), name: String::new() }];
            let attempt = Attempt { begun, request: FleetRequest::default(), claims, terms: Arc::default() };
            owners.attempted(&Arc::new(attempt), begun);
        }
        assert_eq!(owners.attempts.len(), 10);
        assert!(owners.attempt_of("u90").is_some() && owners.attempt_of("u89").is_none());
    }

    #[test]
    fn a_machine_may_be_unseen_for_a_minute_unless_it_was_given_back() {
        let mut owners = Owners::default();
        owners.bought("i-1", "u1", "z", MachineKind::default(), at(0));
        owners.bought("i-2", "u2", "z", MachineKind::default(), at(0));
        owners.given_back("i-2");
        owners.learn(&[], &BTreeSet::new(), at(59));
        assert_eq!((owners.machine_of("u1"), owners.machine_of("u2")), (Some("i-1"), None));
        assert!(owners.may_be_unseen("i-1", at(59)) && !owners.may_be_unseen("i-1", at(60)));
        owners.learn(&[], &BTreeSet::new(), at(60));
        assert_eq!(owners.machine_of("u1"), None);
    }

    #[test]
    fn at_the_start_nobody_knows_which_of_two_is_meant() {
        let mut owners = Owners::default();
        owners.learn(&[machine("i-1", "u1"), machine("i-2", "u1")], &BTreeSet::new(), at(0));
        assert_eq!((owners.uid_of("i-1"), owners.uid_of("i-2")), (Some("u1"), Some("u1")));
        let mut owners = Owners::default();
        owners.set("i-2", "u1", "z");
        owners.learn(&[machine("i-1", "u1"), machine("i-2", "u1")], &BTreeSet::new(), at(0));
        assert_eq!((owners.uid_of("i-1"), owners.uid_of("i-2")), (Some(""), Some("u1")), "its claim names it");
    }

    #[test]
    fn a_machine_is_reserved_if_it_asked_for_its_reservation() {
        let open = Ec2Instance { reservation_id: Some("cr-1".to_owned()), ..Ec2Instance::default() };
        assert_eq!(capacity_type(&open), labels::ON_DEMAND);
        let preference = Some("capacity-reservations-only".to_owned());
        assert_eq!(capacity_type(&Ec2Instance { reservation_preference: preference, ..open }), labels::RESERVED);
    }
}
