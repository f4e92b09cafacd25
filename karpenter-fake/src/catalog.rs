//! An instance catalog made by arithmetic, for those who have no cloud at hand.
//!
//! The names, the labels and the zones are those of Karpenter's kwok provider; prices are near those of a large cloud.
//! The same call gives the same catalog everywhere and for ever, so tests may name its types.

use std::sync::Arc;

use karpenter_core::{Catalog, InstanceType, Offering, Price, Quantity, Requirement, ResourceName, labels};

/// The zones in which every type is offered.
pub const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];

/// The family of a machine, such as `c`.
pub const INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
/// The size of a machine within its family, such as `4x`.
pub const INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";
/// The CPUs of a machine.
pub const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
/// The memory of a machine in mebibytes.
pub const INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";

/// The name of the resource that the types with GPUs have.
pub const GPU: &str = "nvidia.com/gpu";

const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;
/// The CPUs of the types of each family.
const SIZES: [i64; 11] = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96];
/// Families for computing, general use and memory, with gibibytes of memory for each CPU.
const FAMILIES: [(&str, i64); 3] = [("c", 2), ("s", 4), ("m", 8)];
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
/// How many GPUs a machine of a GPU family may have.
const GPU_COUNTS: [i64; 4] = [1, 2, 4, 8];

/// Dollars an hour for one CPU and for one gibibyte, on demand on amd64.
const DOLLARS_PER_CPU: f64 = 0.034;
const DOLLARS_PER_GIB: f64 = 0.0035;
/// What arm64 costs of the price of amd64.
const ARM_SHARE: f64 = 0.8;

/// A family of machines with GPUs: what comes with each GPU, and what each adds to the price.
struct GpuFamily {
    name: &'static str,
    cpus: i64,
    memory_gib: i64,
    dollars: f64,
}

/// One for inference and one for training.
const GPU_FAMILIES: [GpuFamily; 2] = [
    GpuFamily { name: "g", cpus: 8, memory_gib: 32, dollars: 0.60 },
    GpuFamily { name: "p", cpus: 12, memory_gib: 128, dollars: 3.20 },
];

/// The size of a machine, from which all the rest follows.
struct Shape<'s> {
    family: &'s str,
    size: String,
    arch: &'s str,
    cpus: i64,
    memory_gib: i64,
    gpus: i64,
    dollars: f64,
}

/// The generated instance types, compiled.
///
/// # Panics
/// Never: the types are the same every time, and they are a catalog.
///
/// ```
/// use karpenter_fake::generated_catalog;
///
/// let catalog = generated_catalog();
/// let small = catalog.get("c-1x-amd64-linux").expect("one CPU and 2 GiB");
/// assert_eq!(small.capacity.to_string(), "cpu 1, memory 2Gi, ephemeral-storage 100Gi, pods 16");
/// assert_eq!(small.offerings.len(), 8);
/// ```
pub fn generated_catalog() -> Arc<Catalog> {
    Arc::new(Catalog::new(generated_types()).expect("generated names differ and no generated value breaks a rule"))
}

/// Three families with 2, 4 and 8 GiB of memory for each CPU, from 1 to 96 CPUs, on amd64 and arm64, and two families
/// with 1 to 8 GPUs; all of them in four zones, on demand and spot.
pub fn generated_types() -> Vec<InstanceType> {
    let mut types = Vec::new();
    for (family, gib_per_cpu) in FAMILIES {
        for arch in ARCHITECTURES {
            for cpus in SIZES {
                let memory_gib = cpus * gib_per_cpu;
                let share = if arch == "arm64" { ARM_SHARE } else { 1.0 };
                let dollars = base_dollars(cpus, memory_gib) * share;
                types
                    .push(Shape { family, size: format!("{cpus}x"), arch, cpus, memory_gib, gpus: 0, dollars }.build());
            }
        }
    }
    for family in GPU_FAMILIES {
        for gpus in GPU_COUNTS {
            let (cpus, memory_gib) = (family.cpus * gpus, family.memory_gib * gpus);
            let dollars = base_dollars(cpus, memory_gib) + family.dollars * gpus as f64;
            let (family, size) = (family.name, format!("{gpus}g"));
            types.push(Shape { family, size, arch: "amd64", cpus, memory_gib, gpus, dollars }.build());
        }
    }
    types
}

fn base_dollars(cpus: i64, memory_gib: i64) -> f64 {
    DOLLARS_PER_CPU * cpus as f64 + DOLLARS_PER_GIB * memory_gib as f64
}

impl Shape<'_> {
    fn build(&self) -> InstanceType {
        let name = format!("{}-{}-{}-linux", self.family, self.size, self.arch);
        let pods = (self.cpus * 16).min(110);
        let storage_gib = if self.gpus > 0 { 500 } else { 100 };
        let capacity = [
            ("cpu", Quantity::from_units(self.cpus)),
            ("memory", Quantity::from_bytes(self.memory_gib * GIB)),
            ("ephemeral-storage", Quantity::from_bytes(storage_gib * GIB)),
            ("pods", Quantity::from_units(pods)),
        ];
        let mut out = InstanceType::named(&name, capacity);
        if self.gpus > 0 {
            out.capacity.insert(ResourceName::from(GPU), Quantity::from_units(self.gpus));
        }
        self.reserve(&mut out, pods);
        self.label(&mut out);
        for (zone_index, zone) in ZONES.into_iter().enumerate() {
            out.offerings.push(Offering::new(labels::ON_DEMAND, zone, price(self.dollars)));
            let mut spot = Offering::new(labels::SPOT, zone, price(self.dollars * self.spot_share(zone_index)));
            spot.interruption = Some(0.01);
            out.offerings.push(spot);
        }
        out
    }

    /// What the large clouds keep: a falling share of the CPUs, and memory by the number of pods.
    fn reserve(&self, out: &mut InstanceType, pods: i64) {
        // 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
        let cpu_milli =
            60 + 10 * i64::from(self.cpus > 1) + 5 * (self.cpus - 2).clamp(0, 2) + 5 * (self.cpus - 4).max(0) / 2;
        let reserved = &mut out.overhead.kube_reserved;
        reserved.insert(ResourceName::Cpu, Quantity::from_milli(cpu_milli));
        reserved.insert(ResourceName::Memory, Quantity::from_bytes((255 + 11 * pods) * MIB));
        reserved.insert(ResourceName::EphemeralStorage, Quantity::from_bytes(GIB));
        out.overhead.eviction_threshold.insert(ResourceName::Memory, Quantity::from_bytes(100 * MIB));
    }

    fn label(&self, out: &mut InstanceType) {
        let mut requirements = karpenter_core::Requirements::new();
        let memory_mib = (self.memory_gib * 1024).to_string();
        for (key, value) in [
            (labels::INSTANCE_TYPE, out.name.as_str()),
            (labels::ARCH, self.arch),
            (labels::OS, "linux"),
            (INSTANCE_FAMILY, self.family),
            (INSTANCE_SIZE, &self.size),
            (INSTANCE_CPU, &self.cpus.to_string()),
            (INSTANCE_MEMORY, &memory_mib),
        ] {
            requirements.add(key, Requirement::one_of([value]));
        }
        requirements.add(labels::ZONE, Requirement::one_of(ZONES));
        requirements.add(labels::CAPACITY_TYPE, Requirement::one_of([labels::ON_DEMAND, labels::SPOT]));
        out.requirements = requirements;
    }

    /// What spot costs of the price on demand: 30 to 45 %, different from zone to zone.
    fn spot_share(&self, zone_index: usize) -> f64 {
        let turn = (usize::try_from(self.cpus).unwrap_or(0) + self.family.len() + zone_index) % ZONES.len();
        0.30 + 0.05 * turn as f64
    }
}

/// Rounded to a hundredth of a cent, as clouds print prices.
fn price(dollars: f64) -> Price {
    Price::per_hour((dollars * 1e4).round() / 1e4).expect("generated prices are finite and above zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cheapest(catalog: &Catalog, name: &str, capacity_type: &str) -> Price {
        let offerings = &catalog.get(name).expect(name).offerings;
        offerings.iter().filter(|o| o.label(labels::CAPACITY_TYPE) == capacity_type).map(|o| o.price).min().expect(name)
    }

    #[test]
    fn prices_are_in_proportion() {
        let catalog = generated_catalog();
        assert_eq!(catalog.types().len(), FAMILIES.len() * ARCHITECTURES.len() * SIZES.len() + 8);
        assert_eq!(cheapest(&catalog, "s-8x-amd64-linux", "on-demand").to_string(), "$0.3840/h");
        for instance_type in catalog.types() {
            let name = &instance_type.name;
            assert!(cheapest(&catalog, name, "spot") < cheapest(&catalog, name, "on-demand"), "{name}");
            if let Some(arm) = catalog.get(&name.replace("amd64", "arm64")).filter(|_| name.contains("amd64")) {
                assert!(cheapest(&catalog, &arm.name, "on-demand") < cheapest(&catalog, name, "on-demand"), "{name}");
            }
        }
    }

    #[test]
    fn every_type_leaves_room_for_pods() {
        for instance_type in generated_catalog().types() {
            let allocatable = instance_type.allocatable();
            for resource in ["cpu", "memory", "ephemeral-storage", "pods"] {
                let (left, all) = (allocatable.get(resource), instance_type.capacity.get(resource));
                assert!(left > Some(Quantity::ZERO) && left <= all, "{} {resource}", instance_type.name);
            }
        }
        let gpu = generated_catalog().get("p-8g-amd64-linux").expect("generated").allocatable();
        assert_eq!(gpu.get(GPU), Some(Quantity::from_units(8)));
    }
}
