//! The rules that upstream's CRDs and its run-time validation hold objects to.

use std::fmt;

use super::{
    Budget, BudgetError, NodePool, NodeSelectorRequirement, NodeSelectorTerm, Operator, Pod, Resources, Taint,
    TemplateSpec,
};
use crate::{ResourceList, labels};

/// The most values that `minValues` may ask for.
const MAX_MIN_VALUES: u32 = 50;
/// The most requirements that a pool or an overlay may have.
pub(super) const MAX_REQUIREMENTS: usize = 100;
/// The most budgets that a pool may have.
const MAX_BUDGETS: usize = 50;

/// A field whose value breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct FieldError {
    /// The object, such as `Pod default/web-0`; empty where the caller knows it.
    pub object: String,
    /// The path of the field, such as `spec.containers[0].resources.requests.cpu`.
    pub field: String,
    /// The rule and the value.
    pub message: String,
}

impl FieldError {
    /// A broken rule of the field at this path.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { object: String::new(), field: field.into(), message: message.into() }
    }

    /// The same, with the object named.
    pub fn of(self, object: impl Into<String>) -> Self {
        Self { object: object.into(), ..self }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.object.is_empty() {
            write!(f, "{}: ", self.object)?;
        }
        write!(f, "{}: {}", self.field, self.message)
    }
}

pub(super) type Check = Result<(), FieldError>;

/// The path of the field is put together only for a rule that is broken: most hold, and there are very many pods.
pub(super) fn check(holds: bool, field: impl fmt::Display, message: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(FieldError::new(field.to_string(), message())) }
}

impl NodePool {
    /// Checks the rules that the API server and upstream's run-time validation check.
    ///
    /// # Errors
    /// The first broken rule, with the path of its field.
    pub fn validate(&self) -> Result<(), FieldError> {
        self.validate_for_provisioning()?;
        check(self.spec.disruption.budgets.len() <= MAX_BUDGETS, "spec.disruption.budgets", || {
            format!("more than {MAX_BUDGETS}")
        })?;
        self.spec.disruption.budgets.iter().enumerate().try_for_each(|(index, budget)| validate_budget(budget, index))
    }

    /// Checks the rules without which no node can be made: all but those of budgets, which only protect nodes.
    pub(crate) fn validate_for_provisioning(&self) -> Check {
        // Its nodes have it as the value of a label.
        let is_name = labels::is_subdomain(self.name()) && labels::is_value(self.name());
        check(is_name, "metadata.name", || {
            format!("{:?} is not at most 63 lowercase letters, digits, '-' and '.'", self.name())
        })?;
        let weight = self.spec.weight;
        check(weight.is_none_or(|w| (1..=100).contains(&w)), "spec.weight", || {
            format!("{} is not from 1 to 100", self.weight())
        })?;
        validate_amounts(&self.spec.limits, format_args!("spec.limits"))?;
        self.validate_static()?;
        self.validate_labels()?;
        let grace = &self.spec.template.spec.termination_grace_period;
        check(
            grace.as_ref().is_none_or(|own| own.duration().is_some()),
            "spec.template.spec.terminationGracePeriod",
            || "must not be Never".to_owned(),
        )?;
        self.spec.template.spec.validate("spec.template.spec")
    }

    fn validate_static(&self) -> Check {
        if !self.is_static() {
            return Ok(());
        }
        check(self.spec.weight.is_none(), "spec.weight", || "not allowed together with spec.replicas".to_owned())?;
        let only_nodes = self.spec.limits.iter().all(|(name, _)| name.as_str() == "nodes");
        check(only_nodes, "spec.limits", || "only nodes may be limited together with spec.replicas".to_owned())
    }

    fn validate_labels(&self) -> Check {
        for (key, value) in &self.spec.template.metadata.labels {
            let field = format!("spec.template.metadata.labels.{key}");
            check(labels::is_qualified_name(key), &field, || "the key is not a qualified name".to_owned())?;
            check(labels::is_value(value), &field, || format!("{value:?} is not a label value"))?;
            check(!labels::is_restricted(key), &field, || "the label is reserved".to_owned())?;
        }
        Ok(())
    }
}

impl TemplateSpec {
    fn validate(&self, path: &str) -> Check {
        let class = &self.node_class_ref;
        for (part, text) in [("group", &class.group), ("kind", &class.kind), ("name", &class.name)] {
            check(!text.is_empty(), format_args!("{path}.nodeClassRef.{part}"), || "must not be empty".to_owned())?;
        }
        check(!class.group.contains('/'), format_args!("{path}.nodeClassRef.group"), || {
            format!("{:?} names a version; write the group alone", class.group)
        })?;
        let field = format!("{path}.requirements");
        check(self.requirements.len() <= MAX_REQUIREMENTS, &field, || format!("more than {MAX_REQUIREMENTS}"))?;
        for (i, requirement) in self.requirements.iter().enumerate() {
            let field = format!("{path}.requirements[{i}]");
            requirement.validate(&field)?;
            let key = labels::normalized(&requirement.key);
            check(!labels::is_restricted(key), format_args!("{field}.key"), || format!("{key:?} is reserved"))?;
        }
        validate_taints(&self.taints, &self.startup_taints, path)
    }
}

fn validate_taints(taints: &[Taint], startup_taints: &[Taint], path: &str) -> Check {
    let mut seen = Vec::new();
    for (list, taints) in [("taints", taints), ("startupTaints", startup_taints)] {
        for (i, taint) in taints.iter().enumerate() {
            let field = format!("{path}.{list}[{i}]");
            check(labels::is_qualified_name(&taint.key), format_args!("{field}.key"), || {
                format!("{:?} is not a qualified name", taint.key)
            })?;
            check(labels::is_value(&taint.value), format_args!("{field}.value"), || {
                format!("{:?} is not a label value", taint.value)
            })?;
            let identity = (&taint.key, taint.effect);
            check(!seen.contains(&identity), field, || format!("a second taint {}:{:?}", taint.key, taint.effect))?;
            seen.push(identity);
        }
    }
    Ok(())
}

fn validate_budget(budget: &Budget, index: usize) -> Check {
    let broken = |error: BudgetError| {
        let field = format!("spec.disruption.budgets[{index}].{}", error.field());
        FieldError::new(field, error.to_string())
    };
    budget.node_limit().map_err(broken)?;
    budget.window().map_err(broken)?;
    Ok(())
}

impl NodeSelectorRequirement {
    /// Checks that the values fit the operator, as the API server does for node pools.
    ///
    /// # Errors
    /// The first broken rule; `path` is the path of this requirement.
    pub fn validate(&self, path: &str) -> Result<(), FieldError> {
        let key = labels::is_qualified_name(&self.key);
        check(key, format_args!("{path}.key"), || format!("{:?} is not a qualified name", self.key))?;
        let field = format!("{path}.values");
        match self.operator {
            Operator::In | Operator::NotIn => {
                let enough = self.operator == Operator::NotIn || !self.values.is_empty();
                check(enough, &field, || "In needs at least one value".to_owned())?;
            }
            Operator::Exists | Operator::DoesNotExist => {
                check(self.values.is_empty(), &field, || format!("{:?} takes no values", self.operator))?;
            }
            Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
                let is_integer = matches!(self.values.as_slice(), [v] if v.parse::<u64>().is_ok());
                check(is_integer, &field, || {
                    format!("{:?} takes one whole number, not {:?}", self.operator, self.values)
                })?;
            }
        }
        for (i, value) in self.values.iter().enumerate() {
            check(labels::is_value(value), format_args!("{field}[{i}]"), || format!("{value:?} is not a label value"))?;
        }
        let Some(min_values) = self.min_values else { return Ok(()) };
        let field = format!("{path}.minValues");
        check((1..=MAX_MIN_VALUES).contains(&min_values), &field, || {
            format!("{min_values} is not from 1 to {MAX_MIN_VALUES}")
        })?;
        let reachable = self.operator != Operator::In || self.values.len() >= min_values as usize;
        check(reachable, field, || format!("{min_values}, but only {} values are named", self.values.len()))
    }
}

impl Pod {
    /// Checks the rules about placement that the API server checks, for pods that never met one.
    ///
    /// # Errors
    /// The first broken rule, with the path of its field.
    pub fn validate(&self) -> Result<(), FieldError> {
        check(!self.metadata.name.is_empty(), "metadata.name", || "must not be empty".to_owned())?;
        for (key, value) in &self.spec.node_selector {
            let field = format_args!("spec.nodeSelector.{key}");
            check(labels::is_qualified_name(key), field, || "the key is not a qualified name".to_owned())?;
            check(labels::is_value(value), field, || format!("{value:?} is not a label value"))?;
        }
        let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        if let Some(required) = &self.spec.affinity.node_affinity.required {
            check(!required.node_selector_terms.is_empty(), path, || "needs at least one term".to_owned())?;
            for (i, term) in required.node_selector_terms.iter().enumerate() {
                validate_term(term, format_args!("{path}[{i}]"))?;
            }
        }
        for (list, containers) in
            [("containers", &self.spec.containers), ("initContainers", &self.spec.init_containers)]
        {
            for (i, container) in containers.iter().enumerate() {
                container.resources.validate(format_args!("spec.{list}[{i}].resources"))?;
            }
        }
        self.spec.resources.validate(format_args!("spec.resources"))?;
        validate_amounts(&self.spec.overhead, format_args!("spec.overhead"))
    }
}

impl Resources {
    fn validate(&self, path: fmt::Arguments<'_>) -> Check {
        validate_amounts(&self.requests, format_args!("{path}.requests"))?;
        validate_amounts(&self.limits, format_args!("{path}.limits"))
    }
}

fn validate_amounts(list: &ResourceList, path: fmt::Arguments<'_>) -> Check {
    list.iter().try_for_each(|(name, quantity)| {
        check(!quantity.is_negative(), format_args!("{path}.{name}"), || format!("{quantity} is below zero"))
    })
}

fn validate_term(term: &NodeSelectorTerm, path: fmt::Arguments<'_>) -> Check {
    for (i, expression) in term.match_expressions.iter().enumerate() {
        let field = format_args!("{path}.matchExpressions[{i}]");
        let (key, operator, values) = (&expression.key, expression.operator, &expression.values);
        check(labels::is_qualified_name(key), format_args!("{field}.key"), || {
            format!("{key:?} is not a qualified name")
        })?;
        let (fits, rule) = match operator {
            Operator::In | Operator::NotIn => (!values.is_empty(), "needs at least one value"),
            Operator::Exists | Operator::DoesNotExist => (values.is_empty(), "takes no values"),
            Operator::Gt | Operator::Lt => {
                (matches!(values.as_slice(), [v] if v.parse::<i64>().is_ok()), "takes one whole number")
            }
            Operator::Gte | Operator::Lte => (false, "is not an operator of pods"),
        };
        check(fits, format_args!("{field}.values"), || format!("{operator:?} {rule}, not {values:?}"))?;
    }
    for (i, expression) in term.match_fields.iter().enumerate() {
        let field = format_args!("{path}.matchFields[{i}]");
        let known = expression.key == "metadata.name";
        check(known, format_args!("{field}.key"), || format!("{:?} is not metadata.name", expression.key))?;
        let fits = matches!(expression.operator, Operator::In | Operator::NotIn) && expression.values.len() == 1;
        check(fits, field, || "takes In or NotIn and one name".to_owned())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(json: &str) -> NodePool {
        let text = format!(r#"{{"metadata":{{"name":"p"}},"spec":{json}}}"#);
        serde_json::from_str(&text).expect(json)
    }

    #[test]
    fn a_pool_is_held_to_the_rules_of_the_crd() {
        let class = r#""nodeClassRef":{"group":"g","kind":"K","name":"n"}"#;
        for (spec, field) in [
            (r#"{"weight":0}"#.to_owned(), "spec.weight"),
            (r#"{"weight":101}"#.to_owned(), "spec.weight"),
            (r#"{"replicas":1,"weight":1}"#.to_owned(), "spec.weight"),
            (r#"{"limits":{"cpu":"-1"}}"#.to_owned(), "spec.limits.cpu"),
            ("{}".to_owned(), "spec.template.spec.nodeClassRef.group"),
            (
                r#"{"template":{"metadata":{"labels":{"karpenter.sh/nodepool":"x"}}}}"#.to_owned(),
                "spec.template.metadata.labels.karpenter.sh/nodepool",
            ),
            (
                format!(r#"{{"template":{{"spec":{{{class},"requirements":[{{"key":"a","operator":"In"}}]}}}}}}"#),
                "spec.template.spec.requirements[0].values",
            ),
            (
                format!(
                    r#"{{"template":{{"spec":{{{class},"requirements":[{{"key":"a","operator":"Gt","values":["x"]}}]}}}}}}"#
                ),
                "spec.template.spec.requirements[0].values",
            ),
            (
                format!(
                    r#"{{"template":{{"spec":{{{class},"requirements":[{{"key":"a","operator":"In","values":["x"],"minValues":2}}]}}}}}}"#
                ),
                "spec.template.spec.requirements[0].minValues",
            ),
            (
                format!(r#"{{"template":{{"spec":{{{class},"terminationGracePeriod":"Never"}}}}}}"#),
                "spec.template.spec.terminationGracePeriod",
            ),
            (
                format!(
                    r#"{{"template":{{"spec":{{{class},"taints":[{{"key":"a","effect":"NoSchedule"}}],"startupTaints":[{{"key":"a","effect":"NoSchedule"}}]}}}}}}"#
                ),
                "spec.template.spec.startupTaints[0]",
            ),
        ] {
            assert_eq!(pool(&spec).validate().map_err(|e| e.field), Err(field.to_owned()), "{spec}");
        }
        assert_eq!(NodePool::named("p").validate(), Ok(()));
    }

    #[test]
    fn no_amount_of_a_pod_is_below_zero() {
        for (spec, field) in [
            (r#"{"overhead":{"cpu":"-1"}}"#, "spec.overhead.cpu"),
            (r#"{"resources":{"requests":{"cpu":"-1"}}}"#, "spec.resources.requests.cpu"),
            (r#"{"resources":{"limits":{"memory":"-1"}}}"#, "spec.resources.limits.memory"),
            (r#"{"containers":[{},{"resources":{"limits":{"a/b":"-1"}}}]}"#, "spec.containers[1].resources.limits.a/b"),
            (
                r#"{"initContainers":[{"resources":{"requests":{"cpu":"-1"}}}]}"#,
                "spec.initContainers[0].resources.requests.cpu",
            ),
        ] {
            let pod: Pod =
                serde_json::from_str(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{spec}}}"#)).expect(spec);
            assert_eq!(pod.validate(), Err(FieldError::new(field, "-1 is below zero")), "{spec}");
        }
    }

    #[test]
    fn bad_budgets_break_a_rule_but_not_provisioning() {
        for (budget, field, message) in [
            (r#"{"nodes":"5","schedule":"@daily"}"#, "duration", r#"missing beside the schedule "@daily""#),
            (r#"{"nodes":"5","duration":"1h"}"#, "schedule", r#"missing beside the duration "1h""#),
            (r#"{"nodes":"1000a%"}"#, "nodes", r#"expected a whole number or a percentage up to 100%, not "1000a%""#),
            (
                r#"{"nodes":"5","schedule":"@daily","duration":"1d"}"#,
                "duration",
                r#"expected hours and minutes such as 1h30m, not "1d""#,
            ),
        ] {
            let class = r#""nodeClassRef":{"group":"g","kind":"K","name":"n"}"#;
            let disruption = format!(r#"{{"budgets":[{{}},{budget}]}}"#);
            let pool = pool(&format!(r#"{{"template":{{"spec":{{{class}}}}},"disruption":{disruption}}}"#));
            let broken = FieldError::new(format!("spec.disruption.budgets[1].{field}"), message);
            assert_eq!(pool.validate(), Err(broken), "{budget}");
            assert_eq!(pool.validate_for_provisioning(), Ok(()), "{budget}");
        }
        let mut pool = NodePool::named("p");
        pool.spec.disruption.budgets = vec![Budget::default(); MAX_BUDGETS + 1];
        assert_eq!(pool.validate(), Err(FieldError::new("spec.disruption.budgets", "more than 50")));
        assert_eq!(pool.validate_for_provisioning(), Ok(()));
    }

    #[test]
    fn a_pool_survives_the_wire() {
        let json = r#"{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"p"},"spec":{"template":{"spec":{"nodeClassRef":{"group":"g","kind":"K","name":"n"},"requirements":[{"key":"a","operator":"In","values":["x"],"minValues":1}],"expireAfter":"Never"}},"disruption":{"consolidateAfter":"1m","consolidationPolicy":"WhenEmpty","budgets":[{"nodes":"20%"},{"nodes":"0","reasons":["Drifted"]},{"nodes":"many","schedule":"@never","duration":"1d"}]},"limits":{"cpu":"1k"},"weight":5}}"#;
        let pool: NodePool = serde_json::from_str(json).expect("valid");
        assert_eq!(serde_json::to_string(&pool).expect("valid"), json);
    }
}
