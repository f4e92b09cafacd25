//! What goes on beside the controller.

use tokio::task::JoinSet;

/// Tasks that go on for as long as the process does. Once one has ended, by a panic or because it cannot go on, something is left
/// undone that nobody else does.
#[derive(Debug, Default)]
pub(crate) struct Aside(JoinSet<&'static str>);

impl Aside {
    /// Begins a task of this name.
    pub(crate) fn begin(&mut self, name: &'static str, task: impl Future<Output: Send + 'static> + Send + 'static) {
        // A task within a task, so that a panic is an end like any other.
        let task = tokio::spawn(task);
        self.0.spawn(async move {
            let _ = task.await;
            name
        });
    }

    /// The name of a task that has ended, once one has.
    pub(crate) async fn ended(&mut self) -> &'static str {
        match self.0.join_next().await {
            Some(Ok(name)) => name,
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_is_noticed_however_it_ends() {
        let mut aside = Aside::default();
        aside.begin("goes on", pending::<()>());
        let quiet = tokio::time::timeout(Duration::from_millis(20), aside.ended()).await;
        assert!(quiet.is_err(), "{quiet:?}");
        aside.begin("ends", async {});
        assert_eq!(aside.ended().await, "ends");
        aside.begin("panics", async { panic!("of a mistake") });
        assert_eq!(aside.ended().await, "panics");
    }
}
