//! Buying a machine for a claim.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karpenter_core::{
    Catalog, OfferingKey,
    api::NodeClaim,
    labels,
    provider::{CreateError, Launched, ProviderEvent, ProviderId},
};

use super::{
    Inner, Resolved, State,
    class::ClassError,
    error::LaunchFailure,
    filters::{self, Pick, Wanted},
    fleets::{Bought, Context, Tries},
    launch::{self, Order, Terms},
    machines::ClaimName,
    tags, template_data, templates,
};
use crate::{
    api::ApiError,
    ec2::{
        fleet::{FleetConfig, FleetOverride, FleetRequest},
        instance::Ec2Instance,
    },
    nodeclass::{NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION},
};

/// The most fleets that are asked for one after the other for one claim; what had no capacity is remembered for the next
/// time. Each of them can rule out 60 types in all zones.
const MAX_FLEETS: usize = 5;

/// A machine to buy: what for, of what, and what may be bought.
struct Purchase<'p> {
    claim: &'p NodeClaim,
    name: ClaimName,
    resolved: &'p Resolved,
    catalog: &'p Catalog,
    wanted: Wanted,
}

/// What came of one fleet.
enum Outcome {
    Launched(Box<Launched>),
    /// Nothing had capacity of what was tried.
    Nothing(BTreeSet<OfferingKey>, String),
    TemplateGone,
}

impl Inner {
    fn context(&self) -> Context {
        Context { api: self.api.clone(), clock: self.clock.clone(), state: self.state.clone() }
    }

    pub(crate) async fn create(&self, claim: &NodeClaim) -> Result<Launched, CreateError> {
        self.learn_machines().await?;
        let class_name = &claim.spec.node_class_ref.name;
        let not_ready = |message: String| CreateError::NodeClassNotReady { class: class_name.clone(), message };
        let resolved = match self.resolve(class_name).await {
            Ok(resolved) => resolved,
            Err(ClassError::Missing { message }) => return Err(not_ready(message)),
            Err(ClassError::Provider(error)) => return Err(error.into()),
        };
        let catalog = self.catalog(&resolved).await?;
        let name = ClaimName { uid: claim.metadata.uid.clone(), name: claim.name().to_owned() };
        if let Some(machine) = self.machine_of(&name).await? {
            return self.launched_before(&machine, &name, claim, &resolved, &catalog);
        }
        if let Some(launched) = self.try_again(&name, claim, &catalog).await? {
            return Ok(launched);
        }
        if let Some(problem) = resolved.problem() {
            return Err(not_ready(problem));
        }
        let wanted = Wanted::of_claim(claim);
        let purchase = Purchase { claim, name, resolved: &resolved, catalog: &catalog, wanted };
        self.buy(&purchase).await
    }

    /// The machine that there is for a claim already.
    async fn machine_of(&self, name: &ClaimName) -> Result<Option<Ec2Instance>, CreateError> {
        let known = self.lock().owners.machine_of(&name.uid).map(str::to_owned);
        let Some(id) = known else { return Ok(None) };
        let found = self.look_at(&id).await.map_err(|error| error.to_error("create"))?;
        let now = self.clock.now();
        if found.is_none() && self.lock().may_be_unseen(&id, now) {
            return Err(ApiError::no_answer("DescribeInstances", format!("{id} is not told of yet"))
                .to_error("create")
                .into());
        }
        Ok(found.filter(|machine| !machine.state.is_ending()))
    }

    /// Asks once more for a fleet whose answer was lost: it is bought once. `None` if it brought nothing.
    async fn try_again(
        &self,
        name: &ClaimName,
        claim: &NodeClaim,
        catalog: &Catalog,
    ) -> Result<Option<Launched>, CreateError> {
        let Some(attempt) = self.lock().owners.attempt_of(&name.uid).cloned() else { return Ok(None) };
        let bought = self.context().try_once(&attempt, Tries::Further).await.remove(&name.uid);
        match bought.map(|bought| bought.machine) {
            Some(Ok(Some((id, choice)))) => {
                Ok(self.describe(&id, &choice, &attempt.terms, name, claim, &attempt.request, catalog))
            }
            Some(Err(error)) if Tries::Further.leaves_open(&error) => Err(error.to_error("create").into()),
            _ => Ok(None),
        }
    }

    async fn buy(&self, purchase: &Purchase<'_>) -> Result<Launched, CreateError> {
        let allowed = purchase.wanted.allowed(purchase.catalog);
        if allowed.is_empty() {
            return Err(CreateError::NothingCompatible { message: purchase.wanted.explain(purchase.catalog) });
        }
        let mut tried: BTreeSet<OfferingKey> = BTreeSet::new();
        let (mut words, mut was_gone) = (String::new(), false);
        for _ in 0..MAX_FLEETS {
            let open = self.open(purchase, &allowed, &mut tried);
            let picks = filters::narrow(&purchase.wanted, open);
            let Some(capacity_type) = filters::capacity_type(&picks) else { break };
            let is_meant = |offering: &karpenter_core::Offering| offering.label(labels::CAPACITY_TYPE) == capacity_type;
            let picks = filters::keep_offerings(picks, |_, offering| is_meant(offering));
            let warning = filters::few_to_fall_back_on(&purchase.wanted, &picks, capacity_type);
            match self.buy_one(purchase, picks, capacity_type).await? {
                Outcome::Launched(launched) => {
                    self.tell_of_machine(&launched.instance.id, warning);
                    return Ok(*launched);
                }
                Outcome::Nothing(keys, _) if keys.is_empty() => break,
                Outcome::Nothing(keys, said) => {
                    tried.extend(keys);
                    words = said;
                }
                Outcome::TemplateGone if was_gone => {
                    let failure = LaunchFailure::LaunchTemplateNotFound;
                    return Err(failure.to_error("a launch template is gone as soon as it is made").into());
                }
                Outcome::TemplateGone => was_gone = true,
            }
        }
        if tried.is_empty() {
            return Err(LaunchFailure::LaunchFailed.to_error(format!("there is no choice to ask for {words}")).into());
        }
        Err(CreateError::InsufficientCapacity { offerings: tried.into_iter().collect() })
    }

    /// Says of a machine that is just bought what people should know.
    fn tell_of_machine(&self, id: &ProviderId, warning: Option<String>) {
        let Some(message) = warning else { return };
        let (id, reason) = (id.clone(), "OnDemandFallback".into());
        self.lock().tell(ProviderEvent::Notice { id, is_warning: true, reason, message });
    }

    /// What of the allowed offerings is not known to have no capacity now. The others count as tried.
    fn open<'c>(
        &self,
        purchase: &Purchase<'c>,
        allowed: &[Pick<'c>],
        tried: &mut BTreeSet<OfferingKey>,
    ) -> Vec<Pick<'c>> {
        let now = self.clock.now();
        let state = self.lock();
        let group = purchase.resolved.placement_group.as_ref().map(|group| group.id.clone()).unwrap_or_default();
        let subnets = &purchase.resolved.class.status.subnets;
        let mut closed = BTreeSet::new();
        let open = filters::keep_offerings(allowed.to_vec(), |pick, offering| {
            let partition = offering.label(crate::instance_type::labels::PLACEMENT_GROUP_PARTITION).parse().ok();
            let scope = super::Scope { placement_group: group.clone(), partition };
            let key = offering.key(&pick.instance_type.name);
            let here = subnets.iter().filter(|subnet| subnet.zone == key.zone).map(|subnet| subnet.id.as_str());
            let reservation = offering.label(crate::instance_type::labels::RESERVATION_ID);
            let has_left = offering.reservation_capacity.is_none() || state.remaining.count(reservation) > 0;
            offering.available && has_left && !state.unavailable.is_unavailable(&key, &scope, here, now)
        });
        let is_open = |key: &OfferingKey| {
            let of_type = open.iter().find(|pick| pick.instance_type.name == key.instance_type);
            of_type.is_some_and(|pick| pick.offerings.iter().any(|o| o.key(&pick.instance_type.name) == *key))
        };
        for pick in allowed {
            closed.extend(pick.offerings.iter().map(|o| o.key(&pick.instance_type.name)).filter(|key| !is_open(key)));
        }
        tried.extend(closed);
        open
    }

    /// Asks for one fleet, for this claim and others that are alike.
    async fn buy_one(
        &self,
        purchase: &Purchase<'_>,
        picks: Vec<Pick<'_>>,
        capacity_type: &str,
    ) -> Result<Outcome, CreateError> {
        let (picks, partition) = launch::one_partition(picks);
        let terms = Arc::new(terms(purchase, &picks, capacity_type, partition));
        let taken_at = self.clock.now();
        let (subnets, charges) = self.take_addresses(purchase, &picks);
        let configs = self.configs(purchase, &picks, &terms, &subnets).await;
        let bought = match configs {
            Ok(configs) if configs.is_empty() => Err(None),
            Ok(configs) => {
                let order = Order {
                    claim: purchase.name.clone(),
                    body: Arc::new(self.body(purchase, &picks, capacity_type, configs)),
                    terms: terms.clone(),
                };
                let key = serde_json::to_string(&(&*order.body, &*terms)).unwrap_or_default();
                self.fleets.submit(key, order).await.ok_or(None)
            }
            Err(error) => Err(Some(error)),
        };
        let used = bought.as_ref().ok().and_then(|bought| bought.machine.as_ref().ok()?.as_ref());
        let used = used.map(|(_, choice)| choice.subnet_id.clone()).unwrap_or_default();
        self.give_back(&charges, &used, taken_at);
        match bought {
            Ok(bought) => self.judge(purchase, bought, &terms),
            Err(Some(error)) => Err(error),
            Err(None) => Ok(Outcome::Nothing(BTreeSet::new(), "in a subnet and from an image of the class".to_owned())),
        }
    }

    fn judge(&self, purchase: &Purchase<'_>, bought: Bought, terms: &Arc<Terms>) -> Result<Outcome, CreateError> {
        let Purchase { claim, name, catalog, resolved, .. } = purchase;
        match bought.machine {
            Ok(Some((id, choice))) => {
                let launched = self.describe(&id, &choice, terms, name, claim, &bought.request, catalog);
                let missing = || {
                    LaunchFailure::LaunchFailed.to_error(format!("EC2 bought {choice:?}, which it was not asked for"))
                };
                Ok(Outcome::Launched(Box::new(launched.ok_or_else(missing)?)))
            }
            Ok(None) => {
                let failures = bought
                    .errors
                    .iter()
                    .filter(|error| !error.is_capacity() && error.failure() != LaunchFailure::SpotSlrCreationFailed);
                if let Some(error) = failures.into_iter().next() {
                    let mut state = self.lock();
                    state.resolved.remove(resolved.class.name());
                    if error.failure() == LaunchFailure::LaunchTemplateNotFound {
                        state.forget_templates(&bought.request);
                    }
                    return Err(error.failure().to_error(format!("{}: {}", error.code, error.message)).into());
                }
                // EC2 may name some only; the others are asked for again unless none is named.
                let mut keys: BTreeSet<OfferingKey> = bought.errors.iter().map(|e| terms.key(&e.choice)).collect();
                if keys.is_empty() {
                    keys = launch::keys_of(&bought.request.configs, terms);
                    let now = self.clock.now();
                    let mut state = self.lock();
                    for key in &keys {
                        state.unavailable.mark(key.clone(), terms.scope(), now);
                    }
                }
                Ok(Outcome::Nothing(keys, format!("(request {})", bought.request_id)))
            }
            Err(error) if error.is_template_gone() => {
                self.lock().forget_templates(&bought.request);
                Ok(Outcome::TemplateGone)
            }
            Err(error) if error.is_ambiguous() => Err(error.to_error("create").into()),
            Err(error) => Err(LaunchFailure::told(&error).into()),
        }
    }

    /// Chooses a subnet for each zone and takes what machines there would need of its addresses.
    fn take_addresses(
        &self,
        purchase: &Purchase<'_>,
        picks: &[Pick<'_>],
    ) -> (BTreeMap<String, String>, BTreeMap<String, i64>) {
        let smallest = |zone: &str| {
            let here = picks.iter().filter(|pick| pick.offerings.iter().any(|o| o.label(labels::ZONE) == zone));
            here.map(|pick| pick.instance_type.capacity.get("pods").map_or(0, karpenter_core::Quantity::units_floor))
                .min()
                .unwrap_or(0)
        };
        let mut state = self.lock();
        let subnets = state.free.choose(&purchase.resolved.class.status.subnets);
        let charges: BTreeMap<String, i64> =
            subnets.iter().map(|(zone, subnet)| (subnet.clone(), smallest(zone))).collect();
        for (subnet, addresses) in &charges {
            state.free.take(subnet, *addresses);
        }
        (subnets, charges)
    }

    fn give_back(&self, charges: &BTreeMap<String, i64>, used: &str, taken_at: karpenter_core::Timestamp) {
        let mut state = self.lock();
        for (subnet, addresses) in charges.iter().filter(|(subnet, _)| *subnet != used) {
            state.free.give_back(subnet, *addresses, taken_at);
        }
    }

    /// What may be bought with which template; the templates are there.
    async fn configs(
        &self,
        purchase: &Purchase<'_>,
        picks: &[Pick<'_>],
        terms: &Terms,
        subnets: &BTreeMap<String, String>,
    ) -> Result<Vec<FleetConfig>, CreateError> {
        let types = self.types().await?;
        let cluster = self.options.bootstrap();
        let inputs = template_data::Inputs {
            cluster: &cluster,
            options: &self.options,
            resolved: purchase.resolved,
            claim: purchase.claim,
            terms,
            types: &types,
        };
        let tags = self.tags(purchase);
        let mut out: BTreeMap<String, FleetConfig> = BTreeMap::new();
        for (data, pick) in inputs.grouped(picks).map_err(|problem| Self::cannot_be_told(purchase, problem))? {
            let choices = launch::overrides(&pick, &data.image_id, subnets);
            if choices.is_empty() {
                continue;
            }
            let data = crate::ec2::template::LaunchTemplateData { tags: tags.clone(), ..data };
            let name = templates::name(&data, &tags);
            if !out.contains_key(&name) {
                self.lock().note_user_data(purchase.resolved.class.name(), &data.user_data);
                self.ensure_template(&name, &data, &tags).await?;
            }
            let config =
                out.entry(name.clone()).or_insert_with(|| FleetConfig { template: name, overrides: Vec::new() });
            config.overrides.extend(choices);
        }
        Ok(out.into_values().collect())
    }

    fn cannot_be_told(purchase: &Purchase<'_>, message: String) -> CreateError {
        CreateError::NodeClassNotReady { class: purchase.resolved.class.name().to_owned(), message }
    }

    async fn ensure_template(
        &self,
        name: &str,
        data: &crate::ec2::template::LaunchTemplateData,
        tags: &crate::ec2::Tags,
    ) -> Result<(), CreateError> {
        self.has_template(name, data, tags).await.map_err(|error| LaunchFailure::told(&error).into())
    }

    fn tags(&self, purchase: &Purchase<'_>) -> crate::ec2::Tags {
        let class = &purchase.resolved.class;
        let pool = purchase.claim.pool_name().unwrap_or_default();
        tags::of_pool(&self.options.cluster_name, class.name(), pool, &class.spec.tags)
    }

    fn body(
        &self,
        purchase: &Purchase<'_>,
        picks: &[Pick<'_>],
        capacity_type: &str,
        configs: Vec<FleetConfig>,
    ) -> FleetRequest {
        let (target, allocation) = launch::target(picks, capacity_type);
        let relaxed = purchase.claim.metadata.annotations.get(filters::MIN_VALUES_RELAXED);
        let context = purchase.resolved.class.spec.context.clone().filter(|_| relaxed.is_none_or(|v| v != "true"));
        let mut tags = self.tags(purchase);
        // So that it is known of each machine what its class said then.
        for key in [NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION] {
            let value = purchase.resolved.class.metadata.annotations.get(key);
            tags.extend(value.map(|value| (key.to_owned(), value.clone())));
        }
        FleetRequest { target, allocation, configs, tags, context, ..FleetRequest::default() }
    }

    /// A machine as it was bought; `None` if the catalog does not know its type.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    fn describe(
        &self,
        id: &str,
        choice: &FleetOverride,
        terms: &Terms,
        name: &ClaimName,
        claim: &NodeClaim,
        request: &FleetRequest,
        catalog: &Catalog,
    ) -> Option<Launched> {
        let instance_type = catalog.get(&choice.instance_type)?;
        let has_efa = template_data::wants_efa(claim);
        let mut launched = launch::launched(id, choice, instance_type, terms, name, &request.tags, has_efa);
        let zone_id = self.zone_id(claim, &choice.zone);
        Arc::make_mut(&mut launched.instance.labels)
            .extend(zone_id.map(|id| (crate::instance_type::labels::ZONE_ID.to_owned(), id)));
        Some(launched)
    }

    fn zone_id(&self, claim: &NodeClaim, zone: &str) -> Option<String> {
        let state = self.lock();
        let class = &state.resolved.get(&claim.spec.node_class_ref.name)?.class;
        let subnet = class.status.subnets.iter().find(|subnet| subnet.zone == zone);
        subnet.map(|subnet| subnet.zone_id.clone()).filter(|id| !id.is_empty())
    }

    /// A machine that was bought earlier, as it was then.
    fn launched_before(
        &self,
        machine: &Ec2Instance,
        name: &ClaimName,
        claim: &NodeClaim,
        resolved: &Resolved,
        catalog: &Catalog,
    ) -> Result<Launched, CreateError> {
        let choice = FleetOverride {
            instance_type: machine.instance_type.clone(),
            subnet_id: machine.subnet_id.clone(),
            zone: machine.zone.clone(),
            image_id: machine.image_id.clone(),
            ..FleetOverride::default()
        };
        let reservation = machine.reservation_id.clone();
        let capacity_type = super::machines::capacity_type(machine);
        let reserved = reservation.filter(|_| capacity_type == labels::RESERVED);
        let terms = Terms {
            capacity_type: capacity_type.to_owned(),
            tenancy: if machine.tenancy.is_empty() { "default".to_owned() } else { machine.tenancy.clone() },
            placement_group: machine.placement_group_id.clone().unwrap_or_default(),
            partition: machine.partition,
            reservations: reserved
                .map(|id| (choice.instance_type.clone(), choice.zone.clone(), id))
                .into_iter()
                .collect(),
        };
        let tags = FleetRequest { tags: machine.tags.clone(), ..FleetRequest::default() };
        let launched = self.describe(&machine.id, &choice, &terms, name, claim, &tags, catalog);
        let unknown = || {
            let (kind, class) = (&machine.instance_type, resolved.class.name());
            LaunchFailure::LaunchFailed.to_error(format!("{} is of type {kind}, unknown to class {class}", machine.id))
        };
        launched.ok_or_else(|| unknown().into())
    }
}

impl State {
    /// One of the templates of a request is gone, which of them is not said: all are made anew that are not there.
    fn forget_templates(&mut self, request: &FleetRequest) {
        for config in &request.configs {
            self.templates.forget(&config.template);
        }
    }
}

fn terms(purchase: &Purchase<'_>, picks: &[Pick<'_>], capacity_type: &str, partition: Option<u32>) -> Terms {
    let mut reservations = BTreeSet::new();
    for pick in picks.iter().filter(|_| capacity_type == labels::RESERVED) {
        reservations.extend(pick.offerings.iter().map(|offering| {
            let id = offering.label(crate::instance_type::labels::RESERVATION_ID).to_owned();
            (pick.instance_type.name.clone(), offering.label(labels::ZONE).to_owned(), id)
        }));
    }
    Terms {
        capacity_type: capacity_type.to_owned(),
        tenancy: launch::tenancy(&purchase.wanted).to_owned(),
        placement_group: purchase.resolved.placement_group.as_ref().map(|g| g.id.clone()).unwrap_or_default(),
        partition,
        reservations: reservations.into_iter().collect(),
    }
}
