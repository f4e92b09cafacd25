//! What expressions in settings of a kubelet come to for an instance type.

use std::{borrow::Cow, collections::BTreeMap};

use karpenter_core::Quantity;
use serde_json::Value;

use super::TypeSettings;
use crate::{
    ec2::InstanceTypeInfo,
    nodeclass::{Ec2NodeClass, Expression, ExpressionError, KubeletExpressions, Variables},
};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
/// Numbers of the kubelet have 32 bits.
const MOST_PODS: i64 = i32::MAX as i64;

impl TypeSettings {
    /// How many pods the expression for it says; `None` if there is none.
    pub(super) fn evaluated_max_pods(&self, info: &InstanceTypeInfo) -> Option<Result<u32, ExpressionError>> {
        let expression = self.expressions.max_pods.as_ref()?;
        let found = expression.evaluate(&variables(info, self.up_to_cores(info, self.pods_of_family(info))));
        Some(found.and_then(|count| {
            let in_range = u32::try_from(count).ok().filter(|_| count <= MOST_PODS);
            in_range.ok_or_else(|| ExpressionError::NoValue { message: format!("{count} is no number of pods") })
        }))
    }

    /// What expressions for reserved resources come to. One that has no value, or one below zero, is left out.
    pub(super) fn evaluated<'e>(
        &self,
        expressions: &'e BTreeMap<String, Expression>,
        info: &InstanceTypeInfo,
    ) -> Vec<(&'e str, Quantity)> {
        if expressions.is_empty() {
            return Vec::new();
        }
        let variables = variables(info, self.pod_count(info));
        let quantity = |(resource, expression): (&'e String, &Expression)| {
            Some((resource.as_str(), quantity(resource, expression.evaluate(&variables).ok()?)?))
        };
        expressions.iter().filter_map(quantity).collect()
    }

    /// Which expression has no value for a type, and why.
    pub(crate) fn without_value(&self, info: &InstanceTypeInfo) -> Option<String> {
        let of_type =
            |field: &str, error: &ExpressionError| format!("spec.kubelet.{field} for {}: {error}", info.instance_type);
        if let Some(Err(error)) = self.evaluated_max_pods(info) {
            return Some(of_type("maxPods", &error));
        }
        let variables = variables(info, self.pod_count(info));
        self.reserved_expressions().into_iter().find_map(|(field, expressions)| {
            expressions.iter().find_map(|(resource, expression)| {
                let error = match expression.evaluate(&variables) {
                    Ok(number) if number >= 0 => return None,
                    Ok(number) => ExpressionError::NoValue { message: format!("{number} is below zero") },
                    Err(error) => error,
                };
                Some(of_type(&format!("{field}.{resource}"), &error))
            })
        })
    }

    /// The class with what its expressions come to for a type in their place, so that a node is told the same numbers as the
    /// planner. The number of pods is left to the planner.
    pub(crate) fn evaluated_class<'c>(
        &self,
        class: &'c Ec2NodeClass,
        info: &InstanceTypeInfo,
    ) -> Cow<'c, Ec2NodeClass> {
        let mut out = Cow::Borrowed(class);
        for (field, expressions) in self.reserved_expressions() {
            for (resource, quantity) in self.evaluated(expressions, info) {
                let map = out.to_mut().spec.kubelet.0.get_mut(field).and_then(Value::as_object_mut);
                map.and_then(|map| map.insert(resource.to_owned(), quantity.to_string().into()));
            }
        }
        out
    }

    /// The expressions for reserved resources, by their fields.
    fn reserved_expressions(&self) -> [(&'static str, &BTreeMap<String, Expression>); 2] {
        let KubeletExpressions { kube_reserved, system_reserved, .. } = &self.expressions;
        [("kubeReserved", kube_reserved), ("systemReserved", system_reserved)]
    }
}

fn variables(info: &InstanceTypeInfo, max_pods: u32) -> Variables {
    let network = &info.network_info;
    let card = network.network_cards.iter().find(|c| c.network_card_index == network.default_network_card_index);
    Variables {
        instance_type: info.instance_type.clone(),
        vcpus: info.vcpu_info.default_vcpus.into(),
        memory_mib: i64::try_from(info.memory_info.size_mib).unwrap_or(i64::MAX),
        default_enis: card.map_or(0, |card| card.maximum_network_interfaces).into(),
        ips_per_eni: network.ipv4_addresses_per_interface.into(),
        max_pods: max_pods.into(),
    }
}

/// So much of a resource, rounded up as Karpenter does; `None` if it is below zero or too much.
fn quantity(resource: &str, number: i64) -> Option<Quantity> {
    let up_to = |step: i64| number.checked_add(step - 1).map_or(number, |more| more / step * step);
    if number < 0 {
        return None;
    }
    match resource {
        "cpu" => Some(Quantity::from_milli(up_to(10))),
        "memory" => up_to(16).checked_mul(MIB).map(Quantity::from_bytes),
        "ephemeral-storage" => number.checked_mul(GIB).map(Quantity::from_bytes),
        _ => Some(Quantity::from_units(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_resources_are_rounded_up_in_their_units() {
        for (resource, number, expected) in [
            ("cpu", 1, Some("10m")),
            ("cpu", 120, Some("120m")),
            ("memory", 81, Some("96Mi")),
            ("memory", 0, Some("0")),
            ("ephemeral-storage", 3, Some("3Gi")),
            ("pid", 1001, Some("1001")),
            ("cpu", -1, None),
            ("memory", i64::MAX, None),
        ] {
            let found = quantity(resource, number).map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{resource} {number}");
        }
    }
}
