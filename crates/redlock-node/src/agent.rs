//! The agent of a node: starts a pod of a fenced lock by a permit of the masters, freezes the pod at the end
//! of the permit, and then thaws or kills it by the findings of the masters.
//!
//! One task owns the records of all pods. A separate thread writes to the cgroups, and a guardian in another
//! process freezes by the same table.

mod explanations;
mod freeze_watch;
mod freezer;
mod owner;
mod placement;
mod pod;
mod quorum;
mod report;
mod restore;
mod turn;
mod volumes;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use thiserror::Error;
use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    task::{JoinError, JoinHandle},
};

use redlock_client::clock;

pub(crate) use self::turn::Vacant;

pub use self::report::{BOUNDS, Change, ChangeKind, Latency, PodReport, QuorumReport, Report, ReportedState};
use self::{
    owner::{Command, Shared},
    turn::Turns,
};
use crate::{
    cgroup::{CgroupError, pod::PodCgroupError},
    kubelet::KubeletError,
    resolver::{Resolver, Unresolved},
    spec::SpecError,
    table::{PodName, Table, TableError},
    volume::VolumeError,
};

/// Number of changes kept for a receiver. Older changes are dropped: the report shows the current state.
const CHANGES: usize = 256;

#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the table that is shared with the guardian, on tmpfs.
    pub state_dir: PathBuf,
    /// The mount point of the cgroup2 file system of the node.
    pub cgroup_root: PathBuf,
    /// The directory of the kubelet. Without it, the table alone names the pods of a restarted agent.
    pub kubelet_dir: Option<PathBuf>,
}

/// A call to publish the volume of a pod.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    pub pod: PodName,
    /// The name of the declared lock, in the namespace of the pod.
    pub lock: String,
    pub target: PathBuf,
}

/// The reason why a pod may not start. Each reason may pass: the kubelet calls again.
#[derive(Debug, Error)]
pub enum PublishError {
    #[error(transparent)]
    Cgroup(#[from] PodCgroupError),
    #[error(transparent)]
    Lock(#[from] Unresolved),
    #[error("the pod has volumes of two locks, {first} and {second}: a pod is fenced by one lock")]
    OtherLock { first: String, second: String },
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("the masters of lock {lock} cannot be used: {reason}")]
    Quorum { lock: String, reason: String },
    #[error("lock {lock} gives no permit to start: {reason}")]
    NoPermit { lock: String, reason: String },
    #[error("{reason}: on this node, nothing would stop the pod at the end of its permit")]
    CannotFreeze { reason: String },
    #[error("the call was replaced by a later one for the same pod, or the volume was unpublished")]
    Replaced,
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("the agent is starting or shutting down")]
    Stopped,
}

/// The reason why a volume was not unpublished.
#[derive(Debug, Error)]
pub enum UnpublishError {
    #[error("the cgroup {} of pod {uid} still has processes, which nothing would fence any more", path.display())]
    Populated { uid: String, path: PathBuf },
    #[error("whether pod {uid} still runs is unknown")]
    Unknown { uid: String, source: CgroupError },
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("the agent is starting or shutting down")]
    Stopped,
}

#[derive(Debug, Error)]
pub enum AgentError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    #[error("the thread that freezes cannot be started")]
    Freezer(#[source] std::io::Error),
    #[error("the thread that freezes has ended; its reason is in the log")]
    FreezerEnded,
    #[error("determining which agent of the node acts failed")]
    Turn(#[source] std::io::Error),
    #[error("a task of the agent ended: {0}")]
    Task(String),
}

/// A handle to the agent; clones share it.
#[derive(Clone, Debug)]
pub struct Agent {
    commands: mpsc::UnboundedSender<Command>,
    ready: watch::Receiver<bool>,
    changes: broadcast::Sender<Change>,
}

/// The task of the agent, which its owner joins.
#[derive(Debug)]
#[must_use = "the agent ends with its task"]
pub struct AgentTask(JoinHandle<Result<(), AgentError>>);

impl Agent {
    /// Starts the task, which takes over from a running agent, restores the pods of the table, and freezes
    /// unknown pods.
    ///
    /// # Errors
    /// Returns an error if the table cannot be opened or the turn cannot be claimed.
    pub fn start(options: Options, resolver: Arc<dyn Resolver>) -> Result<(Self, AgentTask), AgentError> {
        let (commands, received) = mpsc::unbounded_channel();
        let (ready, seen) = watch::channel(false);
        let changes = broadcast::Sender::new(CHANGES);
        let table = Table::open(&options.state_dir)?;
        let turns = Turns::claim(&options.state_dir, clock::now()).map_err(AgentError::Turn)?;
        let shared = Shared {
            options,
            table,
            turns,
            resolver,
            ready,
            changes: changes.clone(),
        };
        let agent = Self {
            commands,
            ready: seen,
            changes,
        };
        Ok((agent, AgentTask(tokio::spawn(shared.run(received)))))
    }

    /// Waits until the pod may start. The call may be dropped and repeated.
    ///
    /// # Errors
    /// Returns the reason why the pod may not start.
    pub async fn publish(&self, request: PublishRequest) -> Result<(), PublishError> {
        self.ask(|answer| Command::Publish(Box::new(request), answer))
            .await
            .unwrap_or(Err(PublishError::Stopped))
    }

    /// Unpublishes a volume that is no longer used. The pod is no longer guarded.
    ///
    /// # Errors
    /// Returns an error if the pod still runs, if that is unknown, or if the directory cannot be removed.
    pub async fn unpublish(&self, uid: &str, target: &Path) -> Result<(), UnpublishError> {
        let (uid, of) = (uid.to_owned(), target.to_owned());
        self.ask(|answer| Command::Unpublish(uid, of, answer))
            .await
            .unwrap_or(Err(UnpublishError::Stopped))
    }

    /// Reports whether a guardian runs and has acknowledged every record, the volumes of the kubelet are known, and agent
    /// and guardian can freeze pods.
    #[must_use]
    pub fn ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Returns the state of every pod and quorum; `None` once the agent has ended.
    pub async fn report(&self) -> Option<Report> {
        self.ask(Command::Report).await
    }

    /// Subscribes to the starts, freezes, thaws, kills and releases of pods.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Ends the task once a guardian or another agent guards the pods, or no pod needs it. The pods continue to run until
    /// their permits end, which this agent extends no further.
    pub fn shut_down(&self) {
        let _ = self.commands.send(Command::ShutDown);
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).ok()?;
        answered.await.ok()
    }
}

impl AgentTask {
    /// Waits for the end. Cancel safe.
    ///
    /// # Errors
    /// Returns the reason if the task did not end by [`Agent::shut_down`].
    pub async fn ended(&mut self) -> Result<(), AgentError> {
        let failed = |error: JoinError| Err(AgentError::Task(error.to_string()));
        (&mut self.0).await.unwrap_or_else(failed)
    }
}
