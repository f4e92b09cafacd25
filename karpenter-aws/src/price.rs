//! What instances cost.

use std::collections::BTreeMap;

use karpenter_core::Price;
use serde::{Deserialize, Serialize};

/// Prices of the instance types of a region, in dollars an hour; of those in China, in yuan an hour.
///
/// It is the format of a price file, too, in which a field of another name is an error:
/// `{"onDemand": {"m5.large": 0.096}, "spot": {"m5.large": {"us-east-1a": 0.04}}}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Prices {
    /// By instance type.
    on_demand: BTreeMap<String, Price>,
    /// By instance type and zone; `None` until EC2 said.
    #[serde(skip_serializing_if = "Option::is_none")]
    spot: Option<BTreeMap<String, BTreeMap<String, Price>>>,
}

/// A refresh that brought nothing, so that all prices stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("AWS says no {kind} prices")]
pub struct NoPrices {
    /// Prices of what: `on-demand` or `spot`.
    pub kind: &'static str,
}

impl Prices {
    /// The on-demand price of a type.
    pub fn on_demand(&self, instance_type: &str) -> Option<Price> {
        self.on_demand.get(instance_type).copied()
    }

    /// The spot price of a type in a zone. Until EC2 said any, that is the on-demand price; afterwards a type without a
    /// price in a zone cannot be had there.
    pub fn spot(&self, instance_type: &str, zone: &str) -> Option<Price> {
        match &self.spot {
            Some(spot) => spot.get(instance_type)?.get(zone).copied(),
            None => self.on_demand(instance_type),
        }
    }

    /// What an instance of a reservation costs a plan: next to nothing, because it is paid for, but more for larger ones.
    pub fn reserved(&self, instance_type: &str) -> Price {
        let dollars = self.on_demand(instance_type).map_or(0.0, Price::dollars_per_hour) / 10_000_000.0;
        Price::per_hour(dollars).unwrap_or(Price::ZERO)
    }

    /// Takes over on-demand prices: of instances that share a host, and of bare metal. What costs nothing has no price. A
    /// type without a new price keeps its old one.
    ///
    /// # Errors
    /// There are none of instances that share a host; then all prices stay as they are. Not every region has bare metal.
    pub fn update_on_demand(
        &mut self,
        shared: impl IntoIterator<Item = (String, f64)>,
        bare_metal: impl IntoIterator<Item = (String, f64)>,
    ) -> Result<(), NoPrices> {
        let shared: Vec<_> = shared.into_iter().filter_map(priced).collect();
        let bare_metal = bare_metal.into_iter().filter_map(priced);
        if shared.is_empty() {
            return Err(NoPrices { kind: "on-demand" });
        }
        self.on_demand.extend(shared.into_iter().chain(bare_metal));
        Ok(())
    }

    /// Takes over spot prices: type, zone, price. The last of several for one type and zone counts. A zone without a new
    /// price keeps its old one.
    ///
    /// # Errors
    /// There are none; then all prices stay as they are.
    pub fn update_spot(&mut self, prices: impl IntoIterator<Item = (String, String, f64)>) -> Result<(), NoPrices> {
        let valid = |(name, zone, dollars): (String, String, f64)| Some((name, zone, Price::per_hour(dollars)?));
        let mut prices = prices.into_iter().filter_map(valid).peekable();
        if prices.peek().is_none() {
            return Err(NoPrices { kind: "spot" });
        }
        let spot = self.spot.get_or_insert_default();
        for (name, zone, price) in prices {
            spot.entry(name).or_default().insert(zone, price);
        }
        Ok(())
    }
}

fn priced((name, dollars): (String, f64)) -> Option<(String, Price)> {
    let price = Price::per_hour(dollars).filter(|price| *price > Price::ZERO)?;
    Some((name, price))
}

/// The region whose endpoint of the price list answers for `region`.
pub fn price_list_region(region: &str) -> &'static str {
    match region.split_once('-').map(|(area, _)| area) {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

/// The currency of the prices of a region.
pub fn currency(region: &str) -> &'static str {
    if region.starts_with("cn-") { "CNY" } else { "USD" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(dollars: f64) -> Option<Price> {
        Price::per_hour(dollars)
    }

    fn some() -> Prices {
        let mut prices = Prices::default();
        let shared = [("a".to_owned(), 1.0), ("b".to_owned(), 2.0), ("free".to_owned(), 0.0)];
        prices.update_on_demand(shared, [("metal".to_owned(), 9.0)]).expect("prices");
        prices
    }

    #[test]
    fn a_type_without_a_new_price_keeps_its_old_one() {
        let mut prices = some();
        assert_eq!((prices.on_demand("a"), prices.on_demand("free")), (price(1.0), None));
        prices.update_on_demand([("b".to_owned(), 3.0)], [("metal".to_owned(), 8.0)]).expect("prices");
        assert_eq!(["a", "b", "metal"].map(|t| prices.on_demand(t)), [price(1.0), price(3.0), price(8.0)]);
    }

    #[test]
    fn a_refresh_that_brings_nothing_changes_nothing() {
        let mut prices = some();
        let before = prices.clone();
        assert_eq!(prices.update_on_demand([], []), Err(NoPrices { kind: "on-demand" }));
        assert_eq!(
            prices.update_on_demand([("a".to_owned(), 0.0)], [("m".to_owned(), 1.0)]),
            Err(NoPrices { kind: "on-demand" })
        );
        assert_eq!(prices.update_spot([]), Err(NoPrices { kind: "spot" }));
        assert_eq!(prices, before);
    }

    #[test]
    fn other_machines_have_prices_where_there_is_no_bare_metal() {
        let mut prices = some();
        prices.update_on_demand([("a".to_owned(), 7.0)], []).expect("prices");
        assert_eq!(["a", "metal"].map(|name| prices.on_demand(name)), [price(7.0), price(9.0)]);
    }

    #[test]
    fn spot_costs_what_on_demand_costs_until_ec2_says_otherwise() {
        let mut prices = some();
        assert_eq!(prices.spot("a", "z1"), price(1.0));
        let spot = |zone: &str, dollars| ("a".to_owned(), zone.to_owned(), dollars);
        prices.update_spot([spot("z1", 0.5), spot("z1", 0.4), spot("z2", f64::NAN)]).expect("prices");
        assert_eq!((prices.spot("a", "z1"), prices.spot("a", "z2"), prices.spot("b", "z1")), (price(0.4), None, None));
        prices.update_spot([spot("z2", 0.3)]).expect("prices");
        assert_eq!((prices.spot("a", "z1"), prices.spot("a", "z2")), (price(0.4), price(0.3)));
    }

    #[test]
    fn what_is_reserved_costs_less_than_any_spot_price_and_keeps_its_order() {
        let prices = some();
        assert!(Price::ZERO < prices.reserved("a") && prices.reserved("a") < prices.reserved("b"));
        assert!(prices.reserved("b").dollars_per_hour() < 0.000_001);
        assert_eq!(prices.reserved("unknown"), Price::ZERO);
    }

    #[test]
    fn a_price_file_is_read_and_written() {
        let text = r#"{"onDemand":{"m5.large":0.096},"spot":{"m5.large":{"us-east-1a":0.04}}}"#;
        let prices: Prices = serde_json::from_str(text).expect("valid");
        assert_eq!(prices.spot("m5.large", "us-east-1a"), price(0.04));
        assert_eq!(serde_json::to_string(&prices).expect("plain"), text);
        assert!(serde_json::from_str::<Prices>(r#"{"onDemand":{"m5.large":-1}}"#).is_err());
    }

    #[test]
    fn a_price_list_answers_for_the_regions_of_its_part_of_the_world() {
        for (region, expected) in [
            ("ap-east-1", "ap-south-1"),
            ("cn-north-1", "cn-northwest-1"),
            ("eu-west-3", "eu-central-1"),
            ("sa-east-1", "us-east-1"),
        ] {
            assert_eq!(price_list_region(region), expected);
        }
        assert_eq!((currency("cn-north-1"), currency("us-east-1")), ("CNY", "USD"));
    }
}
