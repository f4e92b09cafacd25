//! What can be bought, as far as AWS said.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karpenter_core::{
    Catalog, OfferingKey, Timestamp,
    provider::{ProviderError, ProviderErrorKind},
};

use super::{Inner, Resolved, State, class::ClassError, error::NAME, unavailable::Scope};
use crate::{
    api::ApiError,
    ec2::{
        Filter, InstanceTypeInfo,
        price::{ProductFilter, SpotPriceRecord},
    },
    instance_type::{self, TypeSettings},
    price::{Prices, currency},
};

/// After how long instance types or prices are asked for again that did not come.
const RETRY: Duration = Duration::from_mins(1);

/// The instance types of a region, and where each can be had.
pub(crate) struct Types {
    pub(crate) infos: Vec<InstanceTypeInfo>,
    zones: BTreeMap<String, BTreeSet<String>>,
}

impl Types {
    /// The zones in which a type can be had.
    pub(crate) fn zones_of(&self, name: &str) -> &BTreeSet<String> {
        const NOWHERE: &BTreeSet<String> = &BTreeSet::new();
        self.zones.get(name).unwrap_or(NOWHERE)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&InstanceTypeInfo> {
        self.infos.iter().find(|info| info.instance_type == name)
    }
}

/// The instance types and the catalogs that were made of them.
#[derive(Default)]
pub(crate) struct Market {
    types: Option<Arc<Types>>,
    types_until: Timestamp,
    prices_until: Option<Timestamp>,
    /// Why AWS did not say some prices when it was asked last, if so.
    price_fault: Option<String>,
    /// Counts what changes prices and types.
    version: u64,
    /// The last catalog of each class, and what it was made of.
    catalogs: BTreeMap<String, (CatalogKey, Arc<Catalog>)>,
}

#[derive(Clone, PartialEq, Eq)]
struct CatalogKey {
    resolved: Timestamp,
    market: u64,
    unavailable: u64,
    memory: u64,
    shifted: BTreeSet<String>,
    remaining: Vec<(String, u32)>,
}

impl Market {
    pub(crate) fn forget(&mut self, class: &str) {
        self.catalogs.remove(class);
    }

    pub(crate) fn price_fault(&self) -> Option<&str> {
        self.price_fault.as_deref()
    }

    /// The catalogs of all classes, as they were last.
    pub(crate) fn catalogs(&self) -> impl Iterator<Item = &Catalog> {
        self.catalogs.values().map(|(_, catalog)| &**catalog)
    }

    /// The instance types of the region, as far as they are known.
    pub(crate) fn infos(&self) -> &[InstanceTypeInfo] {
        self.types.as_ref().map_or(&[], |types| &types.infos)
    }
}

impl Inner {
    /// The catalog of a class that can be used.
    pub(crate) async fn catalog_of(&self, class: &str) -> Result<Arc<Catalog>, ProviderError> {
        let not_ready = |why| ProviderError::new(NAME, "catalog", ProviderErrorKind::NodeClassNotReady, why);
        let resolved = match self.resolve(class).await {
            Ok(resolved) => resolved,
            Err(ClassError::Missing { message }) => return Err(not_ready(message)),
            Err(ClassError::Provider(error)) => return Err(error),
        };
        match resolved.problem() {
            Some(problem) => Err(not_ready(problem)),
            None => self.catalog(&resolved).await,
        }
    }

    /// What can be bought for a class.
    pub(crate) async fn catalog(&self, resolved: &Resolved) -> Result<Arc<Catalog>, ProviderError> {
        if resolved.class.status.subnets.is_empty() {
            return Ok(Arc::new(empty()));
        }
        let types = self.types().await?;
        self.refresh_prices().await?;
        let now = self.clock.now();
        let mut state = self.lock();
        state.unavailable.expire(now);
        let class = &resolved.class;
        let reservations = &class.status.capacity_reservations;
        let key = CatalogKey {
            resolved: resolved.since,
            market: state.market.version,
            unavailable: state.unavailable.version(),
            memory: state.memory.version(),
            shifted: state.shifts.zones(now),
            remaining: reservations.iter().map(|r| (r.id.clone(), state.remaining.count(&r.id))).collect(),
        };
        if let Some((known, catalog)) = state.market.catalogs.get(class.name())
            && *known == key
        {
            return Ok(catalog.clone());
        }
        let catalog = Arc::new(self.compile(resolved, &types, &state, now)?);
        state.market.catalogs.insert(class.name().to_owned(), (key, catalog.clone()));
        Ok(catalog)
    }

    fn compile(
        &self,
        resolved: &Resolved,
        types: &Types,
        state: &State,
        now: Timestamp,
    ) -> Result<Catalog, ProviderError> {
        let class = &resolved.class;
        let other = |message: String| ProviderError::new(NAME, "catalog", ProviderErrorKind::Other, message);
        let settings = TypeSettings::new(class, &self.options.types).map_err(|error| other(error.to_string()))?;
        let scope = Scope {
            placement_group: resolved.placement_group.as_ref().map(|g| g.id.clone()).unwrap_or_default(),
            partition: None,
        };
        let is_sold_out = |key: &OfferingKey| {
            let here = class.status.subnets.iter().filter(|subnet| subnet.zone == key.zone);
            state.unavailable.is_unavailable(key, &scope, here.map(|subnet| subnet.id.as_str()), now)
        };
        let left_of_reservation = |id: &str| state.remaining.count(id);
        let shifted = self.options.avoided_zones.iter().cloned().chain(state.shifts.zones(now)).collect();
        let market = instance_type::Market {
            prices: &state.prices,
            placement_group: resolved.placement_group.as_ref(),
            shifted_zones: &shifted,
            is_sold_out: &is_sold_out,
            left_of_reservation: &left_of_reservation,
        };
        let images: Vec<String> = class.status.amis.iter().map(|image| image.id.clone()).collect();
        let mut out = Vec::new();
        for info in &types.infos {
            let zones = types.zones_of(&info.instance_type);
            if let Some(mut instance_type) = settings.instance_type(info, zones) {
                state.memory.apply(&mut instance_type, &images, now);
                settings.add_offerings(&mut instance_type, info, zones, class, &market);
                out.push(instance_type);
            }
        }
        Catalog::new(out).map_err(|error| other(error.to_string()))
    }

    /// The instance types of the region.
    pub(crate) async fn types(&self) -> Result<Arc<Types>, ProviderError> {
        self.types_or_error().await.map_err(|error| error.to_error("catalog"))
    }

    /// The same, with the error of AWS.
    pub(crate) async fn types_or_error(&self) -> Result<Arc<Types>, ApiError> {
        self.asking.types.take((), self.types_now()).await
    }

    async fn types_now(&self) -> Result<Arc<Types>, ApiError> {
        let now = self.clock.now();
        let (known, until) = {
            let state = self.lock();
            (state.market.types.clone(), state.market.types_until)
        };
        if let Some(types) = known.as_ref().filter(|_| now < until) {
            return Ok(types.clone());
        }
        match self.fetch_types().await {
            Ok(types) => {
                let types = Arc::new(types);
                let mut state = self.lock();
                state.market.types = Some(types.clone());
                state.market.types_until = now + self.options.catalog_period;
                state.market.version += 1;
                Ok(types)
            }
            // What was known yesterday is better than nothing, and whoever refuses is not asked with every call.
            Err(error) => {
                self.lock().market.types_until = now + RETRY;
                known.ok_or(error)
            }
        }
    }

    async fn fetch_types(&self) -> Result<Types, ApiError> {
        let filters = [
            Filter::new("supported-virtualization-type", ["hvm"]),
            Filter::new("processor-info.supported-architecture", ["x86_64", "arm64"]),
        ];
        let infos = self.api.describe_instance_types(&filters).await?;
        let offerings = self.api.describe_zone_offerings().await?;
        let mut zones: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (instance_type, zone) in offerings {
            zones.entry(instance_type).or_default().insert(zone);
        }
        Ok(Types { infos, zones })
    }

    /// Asks for prices if those that are known are old. A price list that is out of reach leaves the prices that are
    /// known, such as those of a file; it is asked again after a minute.
    async fn refresh_prices(&self) -> Result<(), ProviderError> {
        self.asking.prices.take((), self.refresh_prices_now()).await
    }

    async fn refresh_prices_now(&self) -> Result<(), ProviderError> {
        let now = self.clock.now();
        if self.lock().market.prices_until.is_some_and(|until| now < until) {
            return Ok(());
        }
        let spot = self.api.describe_spot_prices().await;
        // The price list does not know the regions of the government, and an isolated network does not reach it.
        let has_list = !self.options.is_isolated && !self.options.region().starts_with("us-gov");
        let on_demand = if has_list { Some(self.fetch_on_demand().await) } else { None };
        let mut state = self.lock();
        // None at all is no news: all prices stay as they are, and it is asked again soon.
        let (mut first_error, mut missing) = (None, None);
        match spot {
            Ok(records) => missing = state.prices.update_spot(records.into_iter().filter_map(spot_price)).err(),
            Err(error) => first_error = Some(error),
        }
        match on_demand {
            Some(Ok((shared, metal))) => missing = state.prices.update_on_demand(shared, metal).err().or(missing),
            Some(Err(error)) => first_error = Some(error),
            None => {}
        }
        state.market.version += 1;
        let is_known = state.prices != Prices::default();
        state.market.price_fault = first_error.as_ref().map(ToString::to_string);
        match first_error {
            Some(error) if !is_known => Err(error.to_error("catalog")),
            problem => {
                let is_done = problem.is_none() && missing.is_none();
                let period = if is_done { self.options.catalog_period } else { RETRY };
                state.market.prices_until = Some(now + period);
                Ok(())
            }
        }
    }

    async fn fetch_on_demand(&self) -> Result<(OnDemand, OnDemand), ApiError> {
        let filters = |tenancy: &str, family: &str| {
            let fixed = [
                ("regionCode", self.options.region()),
                ("serviceCode", "AmazonEC2"),
                ("preInstalledSw", "NA"),
                ("operatingSystem", "Linux"),
                ("capacitystatus", "Used"),
                ("marketoption", "OnDemand"),
                ("tenancy", tenancy),
                ("productFamily", family),
            ];
            fixed.map(|(field, value)| ProductFilter::new(field, value))
        };
        let shared = self.api.get_products(&filters("Shared", "Compute Instance")).await?;
        let metal = self.api.get_products(&filters("Dedicated", "Compute Instance (bare metal)")).await?;
        let currency = currency(self.options.region());
        let read = |products: &[String]| products.iter().filter_map(|text| product_price(text, currency)).collect();
        Ok((read(&shared), read(&metal)))
    }
}

/// Prices by instance type.
type OnDemand = Vec<(String, f64)>;

/// Type, zone and price of a record. One that does not say since when does not count.
fn spot_price(record: SpotPriceRecord) -> Option<(String, String, f64)> {
    record.since?;
    Some((record.instance_type, record.zone, record.price.parse().ok()?))
}

/// Type and price an hour of a product of the price list; `None` if it has none.
fn product_price(text: &str, currency: &str) -> Option<(String, f64)> {
    let product: serde_json::Value = serde_json::from_str(text).ok()?;
    let name = product.pointer("/product/attributes/instanceType")?.as_str()?;
    let terms = product.pointer("/terms/OnDemand")?.as_object()?.values();
    let dimensions = terms.filter_map(|term| term.get("priceDimensions")?.as_object()).flat_map(|all| all.values());
    let is_hourly = |dimension: &&serde_json::Value| dimension.get("unit").is_none_or(|unit| unit == "Hrs");
    let mut prices =
        dimensions.filter(is_hourly).filter_map(|dimension| dimension.pointer("/pricePerUnit")?.get(currency));
    let price: f64 = prices.find_map(|price| price.as_str()?.parse().ok())?;
    Some((name.to_owned(), price))
}

fn empty() -> Catalog {
    Catalog::new(Vec::new()).unwrap_or_else(|error| unreachable!("an empty list is a catalog: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_has_an_hourly_price_in_the_currency_of_the_region() {
        let product = |unit: &str, currency: &str, price: &str| {
            format!(
                r#"{{"product":{{"attributes":{{"instanceType":"m5.large"}}}},"terms":{{"OnDemand":{{"t":{{"priceDimensions":
                {{"d":{{"unit":"{unit}","pricePerUnit":{{"{currency}":"{price}"}}}}}}}}}}}}}}"#
            )
        };
        let usd = |text: &str| product_price(text, "USD");
        assert_eq!(usd(&product("Hrs", "USD", "0.096")), Some(("m5.large".to_owned(), 0.096)));
        for wrong in
            [product("Quantity", "USD", "9"), product("Hrs", "CNY", "9"), product("Hrs", "USD", "x"), "{".into()]
        {
            assert_eq!(usd(&wrong), None, "{wrong}");
        }
    }
}
