use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ec2::{InstanceTypeInfo, thousandths_of};

/// What is known of instance types beside what EC2 says of them.
///
/// AWS publishes these numbers in documents and programs, but no call of its API gives them. Who needs them writes
/// them to a file. A field of another name is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Facts {
    /// Megabits a second by instance type, where what EC2 says is not to be believed.
    pub network_bandwidth_mbps: BTreeMap<String, u32>,
    /// By instance type: how many branch interfaces there can be, which is how many pods can have security groups of
    /// their own.
    pub branch_interfaces: BTreeMap<String, u32>,
}

impl Facts {
    /// What an instance can always send and receive, in megabits a second; `None` where AWS has only words for it.
    ///
    /// That is what AWS says it is: its steady bandwidth, and the baseline of one that can be more for a while.
    pub fn network_bandwidth_mbps(&self, info: &InstanceTypeInfo) -> Option<u32> {
        match self.network_bandwidth_mbps.get(&info.instance_type) {
            Some(mbps) => Some(*mbps),
            None => stated_bandwidth_mbps(info),
        }
    }

    /// How many branch interfaces an instance can have.
    pub fn branch_interfaces(&self, info: &InstanceTypeInfo) -> u32 {
        self.branch_interfaces.get(&info.instance_type).copied().unwrap_or(0)
    }
}

fn stated_bandwidth_mbps(info: &InstanceTypeInfo) -> Option<u32> {
    let text = info.network_info.network_performance.strip_suffix(" Gigabit")?;
    if text.starts_with("Up to ") {
        return info.network_info.network_cards.iter().map(|card| card.baseline_bandwidth_mbps).sum();
    }
    let (cards, gigabits) = text.split_once("x ").unwrap_or(("1", text));
    thousandths_of(gigabits.parse().ok()?)?.checked_mul(cards.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::NetworkCard;

    fn info(performance: &str, baselines_mbps: &[u32]) -> InstanceTypeInfo {
        let mut info = InstanceTypeInfo { instance_type: "x1.large".to_owned(), ..InstanceTypeInfo::default() };
        info.network_info.network_performance = performance.to_owned();
        let card = |mbps: &u32| NetworkCard { baseline_bandwidth_mbps: Some(*mbps), ..NetworkCard::default() };
        info.network_info.network_cards = baselines_mbps.iter().map(card).collect();
        info
    }

    #[test]
    fn the_bandwidth_is_the_steady_one_or_the_baseline() {
        let cases = [
            ("25 Gigabit", &[25_000][..], Some(25_000)),
            ("133.33 Gigabit", &[133_333], Some(133_330)),
            ("200 Gigabit", &[200_000, 200_000], Some(200_000)),
            ("8x 100 Gigabit", &[100_000; 8], Some(800_000)),
            ("Up to 10 Gigabit", &[750], Some(750)),
            ("High", &[1_000], None),
            ("", &[], None),
        ];
        for (performance, baselines, expected) in cases {
            assert_eq!(
                Facts::default().network_bandwidth_mbps(&info(performance, baselines)),
                expected,
                "{performance}"
            );
        }
    }

    #[test]
    fn facts_of_the_user_count_more_than_what_ec2_says() {
        let facts: Facts =
            serde_json::from_str(r#"{"networkBandwidthMbps":{"x1.large":7},"branchInterfaces":{"x1.large":9}}"#)
                .expect("valid");
        assert_eq!(facts.network_bandwidth_mbps(&info("25 Gigabit", &[25_000])), Some(7));
        assert_eq!(facts.branch_interfaces(&info("", &[])), 9);
    }
}
