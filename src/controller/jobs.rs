//! Runs tasks whose results the core waits for; a task that panics or is cancelled has a result, too.

use std::collections::HashMap;

use tokio::task::{self, JoinSet};

/// Tasks that each end with a value. A task that panics or is cancelled ends with the value that was given for that
/// case, so that the object it worked on never stays blocked.
#[derive(Debug)]
pub(super) struct Jobs<T> {
    tasks: JoinSet<T>,
    broken: HashMap<task::Id, T>,
}

impl<T: 'static> Default for Jobs<T> {
    fn default() -> Self {
        Self {
            tasks: JoinSet::new(),
            broken: HashMap::new(),
        }
    }
}

impl<T: Send + 'static> Jobs<T> {
    /// Starts a task; `broken` is its result if it panics or is cancelled.
    pub(super) fn start(&mut self, broken: T, work: impl Future<Output = T> + Send + 'static) {
        let task = self.tasks.spawn(work);
        self.broken.insert(task.id(), broken);
    }

    /// Waits for the end of a task; returns `None` if no task runs. Cancel safe.
    pub(super) async fn ended(&mut self) -> Option<T> {
        match self.tasks.join_next_with_id().await? {
            Ok((task, end)) => {
                self.broken.remove(&task);
                Some(end)
            }
            Err(error) => {
                tracing::error!(%error, "a task of the operator ended unexpectedly");
                self.broken.remove(&error.id())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn task_that_panics_ends_with_its_substitute() {
        let mut jobs = Jobs::default();
        jobs.start("a broke off", async { panic!("a test") });
        jobs.start("b broke off", async { "b ended" });
        let mut ends = [jobs.ended().await, jobs.ended().await];
        ends.sort_unstable();
        assert_eq!(ends, [Some("a broke off"), Some("b ended")]);
        assert_eq!(jobs.ended().await, None);
        assert!(jobs.broken.is_empty());
    }

    #[tokio::test]
    async fn cancelled_task_ends_with_its_substitute() {
        let mut jobs = Jobs::default();
        jobs.start("broke off", std::future::pending());
        jobs.tasks.abort_all();
        assert_eq!(jobs.ended().await, Some("broke off"));
    }
}
