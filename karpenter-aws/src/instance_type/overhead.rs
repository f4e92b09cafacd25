use karpenter_core::{Overhead, Quantity, ResourceList, ResourceName};

use super::TypeSettings;
use crate::{ec2::InstanceTypeInfo, nodeclass::KubeletSettings};

const MIB: i64 = 1 << 20;
/// The processors that the kubelet takes: so many ten-thousandths of those up to so many thousandths.
const CPU_BANDS: [(i64, i64); 4] = [(1000, 600), (2000, 100), (4000, 50), (i64::MAX, 25)];
/// The kubelet's signals and the resources that they watch.
const SIGNALS: [(&str, ResourceName); 2] =
    [("memory.available", ResourceName::Memory), ("nodefs.available", ResourceName::EphemeralStorage)];

impl TypeSettings {
    /// What a node of the type keeps for the system, out of the capacity that was computed for it.
    pub(super) fn overhead(&self, info: &InstanceTypeInfo, capacity: &ResourceList) -> Overhead {
        let mut out = Overhead::default();
        out.kube_reserved = self.kube_reserved(info);
        out.system_reserved = list(KubeletSettings::quantities(&self.kubelet.system_reserved));
        for (name, quantity) in self.evaluated(&self.expressions.system_reserved, info) {
            out.system_reserved.insert(ResourceName::from(name), quantity);
        }
        out.eviction_threshold = self.eviction_threshold(capacity);
        out
    }

    fn kube_reserved(&self, info: &InstanceTypeInfo) -> ResourceList {
        let by_interfaces = self.family.keeps_memory_by_interfaces();
        let pods = if by_interfaces { self.pods_by_interfaces(info, 0) } else { self.pod_count(info) };
        let mut out = ResourceList::from_iter([
            (ResourceName::Cpu, Quantity::from_milli(kube_cpu_milli(info.vcpu_info.default_vcpus))),
            (ResourceName::Memory, Quantity::from_bytes((11 * i64::from(pods) + 255) * MIB)),
            (ResourceName::EphemeralStorage, Quantity::from_bytes(1 << 30)),
        ]);
        for (name, quantity) in KubeletSettings::quantities(&self.kubelet.kube_reserved) {
            out.insert(ResourceName::from(name), quantity);
        }
        for (name, quantity) in self.evaluated(&self.expressions.kube_reserved, info) {
            out.insert(ResourceName::from(name), quantity);
        }
        out
    }

    /// What must stay free lest pods be evicted at once. That they are evicted after a while below another threshold
    /// does not take room from them.
    fn eviction_threshold(&self, capacity: &ResourceList) -> ResourceList {
        let of = |name: &ResourceName| capacity.get(name.as_str()).unwrap_or_default();
        let tenth = of(&ResourceName::EphemeralStorage).units_ceil().max(0).unsigned_abs().div_ceil(10);
        let mut out = ResourceList::from_iter([
            (ResourceName::Memory, Quantity::from_bytes(100 * MIB)),
            (ResourceName::EphemeralStorage, Quantity::from_bytes(i64::try_from(tenth).unwrap_or(i64::MAX))),
        ]);
        for (signal, resource) in SIGNALS {
            let text = self.kubelet.eviction_hard.get(signal);
            if let Some(threshold) = text.and_then(|text| threshold(text, of(&resource))) {
                out.insert(resource, threshold);
            }
        }
        out
    }
}

/// A quantity, or a percentage of the capacity, of which a hundred switch the signal off. `None` if it is neither.
fn threshold(text: &str, capacity: Quantity) -> Option<Quantity> {
    let Some(percent) = text.strip_suffix('%') else { return text.parse().ok() };
    let percent: f64 = percent.parse().ok().filter(|p| (0.0..=100.0).contains(p))?;
    if percent >= 100.0 {
        return Some(Quantity::ZERO);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is less than the capacity")]
    let bytes = (capacity.as_f64() / 100.0 * percent).ceil() as i64;
    Some(Quantity::from_bytes(bytes))
}

fn kube_cpu_milli(vcpus: u32) -> i64 {
    let milli = i64::from(vcpus) * 1000;
    let mut reserved = 0;
    let mut from = 0;
    for (to, ten_thousandths) in CPU_BANDS {
        reserved += (milli.min(to) - from).max(0) * ten_thousandths / 10_000;
        from = to;
    }
    reserved
}

fn list<'q>(quantities: impl Iterator<Item = (&'q str, Quantity)>) -> ResourceList {
    quantities.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_takes_less_of_each_further_processor() {
        for (vcpus, milli) in [(1, 60), (2, 70), (4, 80), (8, 90), (96, 310)] {
            assert_eq!(kube_cpu_milli(vcpus), milli, "{vcpus}");
        }
    }

    #[test]
    fn thresholds_are_quantities_or_shares_and_the_whole_is_none() {
        let capacity = Quantity::from_bytes(1001);
        for (text, expected) in [
            ("1Ki", Some(1024)),
            ("5%", Some(51)),
            ("7.5%", Some(76)),
            ("100%", Some(0)),
            ("0%", Some(0)),
            ("x", None),
            ("101%", None),
        ] {
            assert_eq!(threshold(text, capacity), expected.map(Quantity::from_bytes), "{text}");
        }
    }
}
