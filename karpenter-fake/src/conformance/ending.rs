//! Machines that are given back.

use std::future::Future;

use karpenter_core::provider::{Deletion, ProviderError, ProviderId};

use super::{Check, Run, ids};

impl Run<'_> {
    /// Deletes a machine twice.
    pub(super) async fn check_delete(&mut self, id: &ProviderId) {
        let deleted = self.provider.delete(id).await;
        self.judge(Check::DeleteStarts, "delete", deleted.err().map(|error| error.to_string()));
        let again = self.provider.delete(id).await;
        self.judge(
            Check::DeleteIsRepeatable,
            "delete",
            again.err().map(|error| format!("{id} a second time: {error}")),
        );
    }

    /// Waits until a machine is gone, and looks for what is left.
    pub(super) async fn check_gone<F: Future<Output = ()>>(&mut self, id: &ProviderId, pause: impl FnMut() -> F) {
        let problem = self.wait_until_gone(id, pause).await.err();
        let is_gone = problem.is_none();
        self.judge(Check::GetForgets, "get", problem);
        if !is_gone {
            return;
        }
        let problem = match self.provider.list().await {
            Ok(all) => all.iter().any(|i| i.id == *id).then(|| format!("{id} is gone and is among [{}]", ids(&all))),
            Err(error) => Some(error.to_string()),
        };
        self.judge(Check::ListForgets, "list", problem);
        let problem = expect_gone(id, self.provider.delete(id).await);
        self.judge(Check::DeletedMachineIsGone, "delete", problem);
    }

    /// A machine that was deleted is there until it is gone, and says that it is on its way out: at the latest when it is
    /// seen last, as a cloud may take a moment to tell.
    async fn wait_until_gone<F: Future<Output = ()>>(
        &mut self,
        id: &ProviderId,
        mut pause: impl FnMut() -> F,
    ) -> Result<(), String> {
        let mut was_terminating: Option<bool> = None;
        for poll in 0..self.polls {
            let Some(found) = self.provider.get(id).await.map_err(|error| error.to_string())? else {
                if let Some(was_terminating) = was_terminating {
                    let problem = (!was_terminating).then(|| silent(id));
                    self.judge(Check::DeletedMachineIsTerminating, "get", problem);
                }
                return Ok(());
            };
            was_terminating = Some(found.is_terminating);
            let was_listed = self.report.failures().all(|verdict| verdict.check != Check::ListHas);
            if poll == 0 && was_listed {
                self.check_listed_while_ending(id).await;
            }
            pause().await;
        }
        Err(format!("{id} was deleted and is still there after {} polls", self.polls))
    }

    /// What `get` finds before and after is in a list that is made in between.
    async fn check_listed_while_ending(&mut self, id: &ProviderId) {
        let listed = self.provider.list().await;
        if !matches!(self.provider.get(id).await, Ok(Some(_))) {
            return;
        }
        let problem = match listed {
            Ok(all) if all.iter().any(|i| i.id == *id) => None,
            Ok(all) => Some(format!("{id} is ending, not gone, and is not among [{}]", ids(&all))),
            Err(error) => Some(error.to_string()),
        };
        self.judge(Check::ListHasEndingMachines, "list", problem);
    }
}

fn silent(id: &ProviderId) -> String {
    format!("{id} was deleted, and was not said to be on its way out until it was gone")
}

pub(super) fn expect_gone(id: &ProviderId, deleted: Result<Deletion, ProviderError>) -> Option<String> {
    match deleted {
        Ok(Deletion::Gone) => None,
        Ok(Deletion::Started) => Some(format!("there is no {id}, and its deletion is said to have started")),
        Err(error) => Some(format!("there is no {id}: {error}")),
    }
}
