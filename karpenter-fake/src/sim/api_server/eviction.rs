//! The eviction of pods
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/>, `pkg/registry/core/pod/storage/eviction.go`).

use std::sync::Arc;

use karpenter_core::{
    api::{ConditionStatus, ObjectKey, Pod, PodDisruptionBudget, UnhealthyPodEvictionPolicy},
    engine::Refusal,
};

use super::{ApiObject, ApiServer};

impl ApiServer {
    /// Asks a pod to end, unless a disruption budget does not allow it now. The budget's status counts it at once.
    ///
    /// Pods that have not started or are on their way out are no business of any budget. A pod that is not ready goes as
    /// the budget's `unhealthyPodEvictionPolicy` says.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], also if the pod of this name has another uid; [`Refusal::TooManyRequests`] if a budget
    /// does not allow it, was not counted for yet, or is not the only one (for which a real server answers 500).
    pub fn evict(&mut self, key: &ObjectKey, uid: &str) -> Result<(), Refusal> {
        let pod = self.find::<Pod>(key, uid)?;
        if !is_counted(&pod) {
            return self.delete_pod(key, uid, None);
        }
        let budgets = self.budgets_of(&pod);
        match budgets.as_slice() {
            [] => {}
            [budget] => self.pay(&pod, budget)?,
            _ => {
                let message = "this pod has more than one PodDisruptionBudget, which eviction does not support";
                return Err(Refusal::TooManyRequests(message.to_owned()));
            }
        }
        self.delete_pod(key, uid, None)
    }

    /// The budgets that select a pod, in the order of their names.
    pub(crate) fn budgets_of(&self, pod: &Pod) -> Vec<Arc<PodDisruptionBudget>> {
        let near = PodDisruptionBudget::store(&self.stores).of_namespace(pod.namespace());
        near.filter(|budget| selects(budget, pod)).cloned().collect()
    }

    fn pay(&mut self, pod: &Pod, budget: &PodDisruptionBudget) -> Result<(), Refusal> {
        let status = &budget.status;
        let policy = budget.spec.unhealthy_pod_eviction_policy.unwrap_or_default();
        let is_healthy = status.current_healthy >= status.desired_healthy && status.desired_healthy > 0;
        if !is_ready(pod) && (policy == UnhealthyPodEvictionPolicy::AlwaysAllow || is_healthy) {
            return Ok(());
        }
        let refuse = |why: String| Err(Refusal::TooManyRequests(why));
        let name = &budget.metadata.name;
        if status.observed_generation.unwrap_or(0) < budget.metadata.generation.unwrap_or(0) {
            return refuse(format!("the disruption budget {name} is still being processed by the server"));
        }
        let allowed = status.disruptions_allowed.unwrap_or(0);
        if allowed <= 0 {
            let (desired, healthy) = (status.desired_healthy, status.current_healthy);
            return refuse(format!("the disruption budget {name} needs {desired} healthy pods and has {healthy}"));
        }
        self.modify::<PodDisruptionBudget>(&budget.key(), |b| b.status.disruptions_allowed = Some(allowed - 1));
        Ok(())
    }
}

/// Whether budgets look at a pod at all.
fn is_counted(pod: &Pod) -> bool {
    pod.is_active() && pod.status.phase != "Pending"
}

/// Whether a pod says that it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    pod.status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == ConditionStatus::True)
}

/// Whether a budget of the pod's namespace selects it.
pub(crate) fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    budget.spec.selector.as_ref().is_some_and(|selector| selector.matches(&pod.metadata.labels))
}
