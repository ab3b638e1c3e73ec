//! Runs a long-running process that contends: its signals, its background tasks and the sampling of its locks.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use tokio::{
    task::{Id, JoinSet},
    time::{self, Interval, MissedTickBehavior},
};

use super::{error::ProcessError, signals::Signals, state::ProcessState};

/// The sampling interval of lock changes between two scrapes. It is the measurement error of the time without
/// a holder.
const SAMPLE: Duration = Duration::from_secs(1);

/// The owner of the background tasks, which all run until the process ends.
pub(crate) struct Process {
    pub(crate) state: Arc<ProcessState>,
    signals: Signals,
    sample: Interval,
    tasks: JoinSet<io::Result<()>>,
    names: HashMap<Id, &'static str>,
}

impl Process {
    pub(crate) fn new(signals: Signals, state: Arc<ProcessState>) -> Self {
        let mut sample = time::interval(SAMPLE);
        sample.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            state,
            signals,
            sample,
            tasks: JoinSet::new(),
            names: HashMap::new(),
        }
    }

    /// Starts a background task; `task` describes it in an error, as a verb with its object.
    pub(crate) fn spawn(
        &mut self,
        task: &'static str,
        work: impl Future<Output = io::Result<()>> + Send + 'static,
    ) {
        self.names.insert(self.tasks.spawn(work).id(), task);
    }

    /// Samples the locks until a signal arrives, and returns its name. Cancel safe.
    ///
    /// # Errors
    ///
    /// Returns an error if a task ends.
    pub(crate) async fn stopped(&mut self) -> Result<&'static str, ProcessError> {
        loop {
            tokio::select! {
                name = self.signals.next() => return Ok(name),
                Some(end) = self.tasks.join_next_with_id() => {
                    let (id, end) = end.unwrap_or_else(|broken| (broken.id(), Err(io::Error::other(broken))));
                    return Err(ended(self.names.get(&id).copied().unwrap_or("works"), end));
                }
                _ = self.sample.tick() => self.state.sample(),
            }
        }
    }

    /// Ends all tasks.
    pub(crate) async fn shut_down(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Returns the error of a task that ended unexpectedly.
pub(crate) fn ended(task: &'static str, end: io::Result<()>) -> ProcessError {
    let reason = end.map_or_else(|cause| cause.to_string(), |()| "it returned".to_owned());
    ProcessError::Task { task, reason }
}
