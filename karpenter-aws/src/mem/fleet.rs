use karpenter_core::Timestamp;

use super::{Exhausted, State};
use crate::{
    api::ApiError,
    ec2::{
        fleet::{FleetConfig, FleetError, FleetLaunch, FleetOverride, FleetReply, FleetRequest, TargetKind},
        instance::{Ec2Instance, InstanceState},
        template::{InterfaceKind, LaunchTemplateData, ReservationTarget},
    },
};

/// The code of a capacity that is out.
const UNFULFILLABLE: &str = "UnfulfillableCapacity";

impl State {
    /// What is bought once for each token.
    pub(super) fn create_fleet(&mut self, request: &FleetRequest, now: Timestamp) -> Result<FleetReply, ApiError> {
        let refused = |code: &str, message: &str| Err(ApiError::refused("CreateFleet", code, message));
        self.fleets.push(request.clone());
        if let Some((earlier, reply)) = self.replies.get(&request.client_token) {
            let is_same = earlier == request;
            return if is_same {
                Ok(reply.clone())
            } else {
                refused("IdempotentParameterMismatch", "another request had this token")
            };
        }
        if request.client_token.len() > 64 || request.count == 0 || request.configs.is_empty() {
            return refused("InvalidParameterValue", "token, count or configs");
        }
        request.configs.iter().try_for_each(|config| self.has_template("CreateFleet", &config.template))?;
        let reply = self.fulfil(request, now);
        self.replies.insert(request.client_token.clone(), (request.clone(), reply.clone()));
        Ok(reply)
    }

    /// Whether there is a template of this name.
    pub(super) fn has_template(&self, operation: &str, name: &str) -> Result<(), ApiError> {
        if self.templates.contains_key(name) {
            return Ok(());
        }
        let message = format!("The specified launch template, with template name {name}, does not exist.");
        Err(ApiError::refused(operation, "InvalidLaunchTemplateName.NotFoundException", message))
    }

    fn fulfil(&mut self, request: &FleetRequest, now: Timestamp) -> FleetReply {
        let mut reply =
            FleetReply { fleet_id: self.next_id("fleet"), request_id: "request".to_owned(), ..FleetReply::default() };
        let mut choices: Vec<(&FleetConfig, &FleetOverride)> = request
            .configs
            .iter()
            .flat_map(|config| config.overrides.iter().map(move |choice| (config, choice)))
            .collect();
        choices.sort_by_key(|(_, choice)| choice.priority);
        let (mut left, fleet_id) = (request.count, reply.fleet_id.clone());
        for (config, choice) in choices {
            let data = self.templates[&config.template].1.clone();
            let mut ids = Vec::new();
            while left > 0 {
                match self.shortage(choice, request.target, &data) {
                    None => ids.push(self.start(request, choice, &data, &fleet_id, now)),
                    Some(code) => {
                        let message = format!("There is no capacity for {}.", choice.instance_type);
                        reply.errors.push(FleetError { code, message, choice: choice.clone() });
                        break;
                    }
                }
                left -= 1;
            }
            if !ids.is_empty() {
                reply.launched.push(FleetLaunch { instance_ids: ids, choice: choice.clone() });
            }
        }
        reply
    }

    /// Why a machine of this choice cannot be had.
    fn shortage(&self, choice: &FleetOverride, target: TargetKind, data: &LaunchTemplateData) -> Option<String> {
        let target = if target == TargetKind::Spot { "spot" } else { "on-demand" };
        let is = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        let is_out = |e: &&Exhausted| {
            is(&e.instance_type, &choice.instance_type) && is(&e.zone, &choice.zone) && is(&e.target, target)
        };
        if let Some(exhausted) = self.exhausted.iter().find(is_out) {
            return Some(exhausted.code.clone());
        }
        let subnet = self.subnets.iter().find(|subnet| subnet.id == choice.subnet_id);
        if subnet.is_none_or(|subnet| subnet.free_addresses <= 0) {
            return Some("InsufficientFreeAddressesInSubnet".to_owned());
        }
        let ReservationTarget::Only(id) = &data.reservation else { return None };
        let reservation = self.reservations.iter().find(|r| r.id == *id);
        let fits = |r: &&crate::ec2::reservation::CapacityReservation| {
            r.available_count > 0 && r.instance_type == choice.instance_type && r.zone == choice.zone
        };
        reservation.as_ref().is_none_or(|r| !fits(r)).then(|| "ReservationCapacityExceeded".to_owned())
    }

    fn start(
        &mut self,
        request: &FleetRequest,
        choice: &FleetOverride,
        data: &LaunchTemplateData,
        fleet_id: &str,
        now: Timestamp,
    ) -> String {
        let id = self.next_id("i");
        let mut tags = request.tags.clone();
        tags.insert("aws:ec2:fleet-id".to_owned(), fleet_id.to_owned());
        if let Some(subnet) = self.subnets.iter_mut().find(|subnet| subnet.id == choice.subnet_id) {
            subnet.free_addresses -= 1;
        }
        let mut reservation_id = None;
        if let ReservationTarget::Only(wanted) = &data.reservation
            && let Some(reservation) = self.reservations.iter_mut().find(|r| r.id == *wanted)
        {
            reservation.available_count -= 1;
            reservation_id = Some(wanted.clone());
        }
        let image_id = if choice.image_id.is_empty() { data.image_id.clone() } else { choice.image_id.clone() };
        let instance = Ec2Instance {
            id: id.clone(),
            state: InstanceState::Pending,
            instance_type: choice.instance_type.clone(),
            zone: choice.zone.clone(),
            image_id,
            subnet_id: choice.subnet_id.clone(),
            security_group_ids: data.interfaces.first().map(|i| i.security_group_ids.clone()).unwrap_or_default(),
            instance_profile: data.instance_profile.clone(),
            launched: Some(now),
            spot_request_id: (request.target == TargetKind::Spot).then(|| format!("sir-{id}")),
            reservation_preference: reservation_id.is_some().then(|| "capacity-reservations-only".to_owned()),
            reservation_id,
            tenancy: data.tenancy.clone(),
            placement_group_id: data.placement_group_id.clone(),
            partition: data.partition,
            has_efa: data.interfaces.iter().any(|i| i.kind != InterfaceKind::Interface),
            tags,
        };
        self.instances.insert(id.clone(), instance);
        id
    }
}

impl Exhausted {
    /// All capacity is out.
    pub fn everything() -> Self {
        Self { code: UNFULFILLABLE.to_owned(), ..Self::new("*", "*", "*") }
    }
}
