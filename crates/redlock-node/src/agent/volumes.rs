//! Writes the files of volumes outside the task that owns the records, because the disk of a node may hang.
//!
//! The files of a volume are written and removed in the order of the owner's decisions: the write for a call
//! that was given up does not follow the removal.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{mpsc, mpsc::error::TrySendError, oneshot},
    task::JoinHandle,
    time::timeout,
};

use super::{PublishError, UnpublishError, pod::Caller};
use crate::{guardian::chain, volume, volume::Contents};

/// The longest time for which a disk that hangs keeps the turn from a newer agent.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Job {
    /// Creates the volume, and answers the call.
    Publish(Caller, Contents),
    Update(PathBuf, Contents),
    Remove(PathBuf, oneshot::Sender<Result<(), UnpublishError>>),
}

/// The jobs that the task has not begun. While a disk hangs, one update waits for each volume, not one for
/// each renewal.
#[derive(Clone, Debug, Default)]
struct Queue(Arc<Mutex<Vec<Job>>>);

/// The task, and its jobs.
#[derive(Debug)]
pub(super) struct Volumes {
    jobs: Queue,
    /// One wake-up is enough for all jobs that were added before.
    wake: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Volumes {
    pub(super) fn start() -> Self {
        let (wake, mut woken) = mpsc::channel(1);
        let jobs = Queue::default();
        let queue = jobs.clone();
        let task = tokio::spawn(async move {
            while woken.recv().await.is_some() {
                let batch = queue.take();
                let done = tokio::task::spawn_blocking(move || batch.into_iter().for_each(Job::carry_out));
                if let Err(error) = done.await {
                    tracing::error!(%error, "writing volumes");
                }
            }
        });
        Self { jobs, wake, task }
    }

    /// Writes a volume, and then answers the caller.
    pub(super) fn publish(&self, caller: Caller, contents: Contents) {
        self.send(Job::Publish(caller, contents));
    }

    pub(super) fn update(&self, target: PathBuf, contents: Contents) {
        self.send(Job::Update(target, contents));
    }

    /// Removes a volume, and then answers the call.
    pub(super) fn remove(&self, target: PathBuf, answer: oneshot::Sender<Result<(), UnpublishError>>) {
        self.send(Job::Remove(target, answer));
    }

    fn send(&self, job: Job) {
        self.jobs.add(job);
        if let Err(TrySendError::Closed(())) = self.wake.try_send(()) {
            tracing::error!("the task that writes volumes has ended");
        }
    }

    /// Carries out the jobs that were sent before, unless the disk hangs.
    pub(super) async fn close(self) {
        drop(self.wake);
        let mut task = self.task;
        if timeout(CLOSE_WITHIN, &mut task).await.is_err() {
            tracing::warn!("the disk with the volumes of the pods hangs; they are not updated");
            task.abort();
        }
    }
}

impl Job {
    fn target(&self) -> &Path {
        match self {
            Self::Publish(caller, _) => &caller.target,
            Self::Update(target, _) | Self::Remove(target, _) => target,
        }
    }

    fn carry_out(self) {
        match self {
            Self::Publish(Caller { target, answer }, contents) => {
                let written = volume::create(&target).and_then(|()| volume::write(&target, &contents));
                let _ = answer.send(written.map_err(PublishError::Volume));
            }
            Self::Update(target, contents) => update(&target, &contents),
            Self::Remove(target, answer) => {
                let _ = answer.send(volume::remove(&target).map_err(UnpublishError::Volume));
            }
        }
    }
}

impl Queue {
    /// Adds a job, and drops an earlier update that the job overtakes.
    fn add(&self, job: Job) {
        let mut jobs = self.lock();
        jobs.retain(|other| !matches!(other, Job::Update(..)) || other.target() != job.target());
        jobs.push(job);
    }

    fn take(&self) -> Vec<Job> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Updates a volume, unless it is not written yet or was removed in the meantime.
fn update(target: &Path, contents: &Contents) {
    if volume::is_written(target)
        && let Err(error) = volume::write(target, contents)
    {
        tracing::warn!(error = %chain(&error), "a volume cannot be updated");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::tests::contents;

    #[tokio::test]
    async fn a_volume_that_was_removed_is_not_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("mount");
        let caller = || {
            let (answer, answered) = oneshot::channel();
            let target = target.clone();
            (Caller { target, answer }, answered)
        };
        let volumes = Volumes::start();
        let (published, answered) = caller();
        volumes.publish(published, contents(1));
        answered.await.unwrap().unwrap();
        volumes.update(target.clone(), contents(2));
        // The call was given up before its volume was written.
        volumes.publish(caller().0, contents(3));
        let (answer, removed) = oneshot::channel();
        volumes.remove(target.clone(), answer);
        volumes.update(target.clone(), contents(4));
        removed.await.unwrap().unwrap();
        volumes.close().await;
        assert!(!target.exists());
    }

    #[test]
    fn an_update_that_a_later_job_overtakes_does_not_wait() {
        let update = |target: &str, token| Job::Update(target.into(), contents(token));
        let remove = |target: &str| Job::Remove(target.into(), oneshot::channel().0);
        let jobs = [
            update("a", 1),
            update("b", 2),
            update("a", 3),
            remove("b"),
            update("c", 4),
        ];
        let queue = Queue::default();
        for job in jobs {
            queue.add(job);
        }
        let kept: Vec<String> = queue
            .take()
            .iter()
            .map(|job| format!("{}", job.target().display()))
            .collect();
        assert_eq!(kept, ["a", "b", "c"]);
        assert!(queue.take().is_empty());
    }
}
