//! How instance types are written in JSON: the format of the command line's catalogs and those of the kwok provider.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Catalog, InstanceType, Offering, Overhead, Price};
use crate::{
    Quantity, Requirement, Requirements, ResourceList, ResourceName,
    api::{is_default, nullable},
    labels,
};

/// Pods on a node where the kwok provider's list does not say.
const KWOK_PODS: i64 = 110;

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, expecting = "an instance type")]
struct WireType {
    name: String,
    #[serde(deserialize_with = "nullable")]
    requirements: Requirements,
    #[serde(deserialize_with = "nullable")]
    capacity: ResourceList,
    #[serde(deserialize_with = "nullable")]
    overhead: WireOverhead,
    #[serde(deserialize_with = "nullable")]
    offerings: Vec<WireOffering>,
    #[serde(skip_serializing_if = "is_default")]
    node_pools: Option<Vec<String>>,
    // What the kwok provider writes instead of requirements and capacity.
    #[serde(skip_serializing)]
    architecture: Option<String>,
    #[serde(skip_serializing)]
    operating_systems: Option<OperatingSystems>,
    #[serde(skip_serializing)]
    resources: Option<ResourceList>,
}

/// Newer lists name the systems; older ones have them as keys.
#[expect(clippy::zero_sized_map_values, reason = "this is what the file holds")]
#[derive(Deserialize)]
#[serde(untagged)]
enum OperatingSystems {
    List(Vec<String>),
    Keys(BTreeMap<String, Nothing>),
}

/// An object whose fields do not matter.
#[derive(Deserialize)]
struct Nothing {}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireOverhead {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    kube_reserved: ResourceList,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    system_reserved: ResourceList,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "nullable")]
    eviction_threshold: ResourceList,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireOffering {
    #[serde(default, alias = "Requirements", deserialize_with = "nullable")]
    requirements: Requirements,
    #[serde(alias = "Price")]
    price: Price,
    #[serde(alias = "Available", skip_serializing_if = "is_default")]
    available: Option<bool>,
    #[serde(alias = "ReservationCapacity", skip_serializing_if = "is_default")]
    reservation_capacity: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    interruption: Option<f64>,
    #[serde(alias = "CapacityType", skip_serializing)]
    capacity_type: Option<String>,
    #[serde(alias = "Zone", skip_serializing)]
    zone: Option<String>,
}

impl From<WireOffering> for Offering {
    fn from(wire: WireOffering) -> Self {
        let mut requirements = wire.requirements;
        for (key, value) in [(labels::CAPACITY_TYPE, wire.capacity_type), (labels::ZONE, wire.zone)] {
            if let Some(value) = value {
                requirements.add(key, Requirement::one_of([value]));
            }
        }
        Self {
            requirements,
            price: wire.price,
            available: wire.available.unwrap_or(true),
            reservation_capacity: wire.reservation_capacity,
            interruption: wire.interruption,
        }
    }
}

impl From<WireType> for InstanceType {
    fn from(wire: WireType) -> Self {
        let mut out = Self {
            name: wire.name,
            requirements: wire.requirements,
            capacity: wire.capacity,
            overhead: Overhead {
                kube_reserved: wire.overhead.kube_reserved,
                system_reserved: wire.overhead.system_reserved,
                eviction_threshold: wire.overhead.eviction_threshold,
            },
            offerings: wire.offerings.into_iter().map(Offering::from).collect(),
            node_pools: wire.node_pools,
        };
        if let Some(resources) = wire.resources {
            out.capacity = ResourceList::from_iter([(ResourceName::Pods, Quantity::from_units(KWOK_PODS))]);
            out.capacity.maximum(&resources);
            if let Some(pods) = resources.get("pods") {
                out.capacity.insert(ResourceName::Pods, pods);
            }
            out.overhead.kube_reserved = ResourceList::from_iter([
                ("cpu", Quantity::from_milli(100)),
                ("memory", Quantity::from_bytes(10 << 20)),
            ]);
            out.add_kwok_labels(wire.architecture, wire.operating_systems);
        }
        out
    }
}

impl InstanceType {
    /// The labels that the kwok provider derives from the name and the resources.
    fn add_kwok_labels(&mut self, architecture: Option<String>, systems: Option<OperatingSystems>) {
        let name = self.name.as_str();
        let of = |resource| self.capacity.get(resource).map(|q| q.to_string()).unwrap_or_default();
        let (cpu, memory) = (of("cpu"), of("memory"));
        let family = name.split(['.', '-']).next().unwrap_or(name);
        let size = name.split_once('.').map_or(cpu.as_str(), |(_, size)| size);
        let mut add = |key: &str, value: &str| self.requirements.add(key, Requirement::one_of([value]));
        add(labels::INSTANCE_TYPE, name);
        add("karpenter.kwok.sh/instance-size", size);
        add("karpenter.kwok.sh/instance-family", family);
        add("karpenter.kwok.sh/instance-cpu", &cpu);
        add("karpenter.kwok.sh/instance-memory", &memory);
        if let Some(architecture) = architecture {
            add(labels::ARCH, &architecture);
        }
        let systems: Vec<String> = match systems {
            Some(OperatingSystems::List(names)) => names,
            Some(OperatingSystems::Keys(names)) => names.into_keys().collect(),
            None => return,
        };
        self.requirements.add(labels::OS, Requirement::one_of(systems));
    }
}

impl WireOffering {
    fn of(offering: &Offering) -> Self {
        Self {
            requirements: offering.requirements.clone(),
            price: offering.price,
            available: (!offering.available).then_some(false),
            reservation_capacity: offering.reservation_capacity,
            interruption: offering.interruption,
            capacity_type: None,
            zone: None,
        }
    }
}

impl WireType {
    fn of(source: &InstanceType) -> Self {
        let Overhead { kube_reserved, system_reserved, eviction_threshold } = source.overhead.clone();
        Self {
            name: source.name.clone(),
            requirements: source.requirements.clone(),
            capacity: source.capacity.clone(),
            overhead: WireOverhead { kube_reserved, system_reserved, eviction_threshold },
            offerings: source.offerings.iter().map(WireOffering::of).collect(),
            node_pools: source.node_pools.clone(),
            ..Self::default()
        }
    }
}

impl Serialize for InstanceType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WireType::of(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for InstanceType {
    /// Reads an entry of a catalog file, or of the kwok provider's `instance_types.json`.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WireType::deserialize(deserializer).map(Self::from)
    }
}

impl Serialize for Catalog {
    /// As the list of its types. What cannot be bought now says so, whether that is known of the type or of the catalog.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.current_types())
    }
}

impl<'de> Deserialize<'de> for Catalog {
    /// Reads a list of types, and compiles it.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_kwok_format() {
        let new = r#"{"name":"c-4x-amd64-linux","offerings":[{"Price":0.1,"Available":true,"Requirements":[{"key":"karpenter.sh/capacity-type","operator":"In","values":["spot"]},{"key":"topology.kubernetes.io/zone","operator":"In","values":["test-zone-a"]}]}],"architecture":"amd64","operatingSystems":["linux"],"resources":{"cpu":"4","memory":"8Gi","pods":"64"}}"#;
        let old = r#"{"name":"c-4x-amd64-linux","offerings":[{"CapacityType":"spot","Zone":"test-zone-a","Price":0.1,"Available":true}],"architecture":"amd64","operatingSystems":{"linux":{}},"resources":{"cpu":"4","memory":"8Gi","pods":"64"}}"#;
        let (new, old): (InstanceType, InstanceType) =
            (serde_json::from_str(new).expect("new"), serde_json::from_str(old).expect("old"));
        assert_eq!(new, old);
        assert_eq!(new.allocatable().to_string(), "cpu 3900m, memory 8182Mi, pods 64");
        assert_eq!(new.offerings[0].key(&new.name).to_string(), "spot c-4x-amd64-linux in test-zone-a");
        let labels = new.requirements.to_string();
        assert!(labels.contains("instance-family In [c]") && labels.contains("instance-size In [4]"), "{labels}");
    }

    #[test]
    fn a_type_survives_the_wire() {
        let json = r#"{"name":"m","requirements":[{"key":"a","operator":"In","values":["x"]}],"capacity":{"cpu":"2"},"overhead":{"kubeReserved":{"cpu":"100m"}},"offerings":[{"requirements":[],"price":0.5,"available":false,"reservationCapacity":2}],"nodePools":["p"]}"#;
        let instance_type: InstanceType = serde_json::from_str(json).expect("valid");
        assert_eq!(serde_json::to_string(&instance_type).expect("valid"), json);
        assert!(serde_json::from_str::<InstanceType>(&json.replace("0.5", "-1")).is_err());
    }
}
