//! Runs the state machine of every lock of one process: carries out its actions, reports their results, publishes
//! authority.
//!
//! Owns the timers and the one task behind them. [`crate::lease::Machine`] makes the decisions. All locks of a quorum
//! share one task, so that their calls travel together.

mod driver;
mod lock_view;
mod watcher;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

pub use lock_view::LockView;
pub use watcher::{AcquireResult, RenewResult, Silent, Watcher};

use crate::{
    lease::{
        Claim, ClusterId, FencingToken, HolderIdentity, LockName, Mark, Participation, ReleaseMode, SlotView,
        Terms,
    },
    masters::{self, Closed, Completion, Masters, Notices},
};

/// An order to the elector's task.
#[derive(Debug)]
enum Command {
    Put(LockName, Terms),
    Remove(LockName, ReleaseMode),
    StepDown(LockName, Duration),
    HandOver(LockName, ClusterId, Option<FencingToken>),
    /// Records in the registers that targets are about to start, or that all targets have stopped. The reply
    /// is true if a majority recorded it.
    Mark(LockName, FencingToken, Mark, oneshot::Sender<bool>),
    /// Reads or claims slots of a target. Bypasses the machine, so this process need not contend for the
    /// lock.
    Ask(LockName, masters::Command, oneshot::Sender<Completion>),
    Ping(oneshot::Sender<()>),
    /// Reserves these locks for siblings and releases the others.
    Shutdown(HashSet<LockName>),
}

type Board = Arc<RwLock<BTreeMap<LockName, watch::Receiver<LockView>>>>;

/// A handle to the elector of one quorum; clones share it.
#[derive(Clone, Debug)]
pub struct Elector {
    commands: mpsc::UnboundedSender<Command>,
    board: Board,
}

/// The elector's task, which its owner joins. It ends after [`Elector::shut_down`], or with [`Closed`] when
/// the masters are gone.
pub type ElectorTask = JoinHandle<Result<(), Closed>>;

impl Elector {
    /// Starts the task of one quorum, for candidate `holder`.
    #[must_use]
    pub fn start(
        masters: Masters,
        notices: Notices,
        holder: HolderIdentity,
        watcher: Arc<dyn Watcher>,
    ) -> (Self, ElectorTask) {
        let (commands, orders) = mpsc::unbounded_channel();
        let board = Board::default();
        let driver = driver::Driver::new(masters, holder, watcher, board.clone());
        (
            Self { commands, board },
            tokio::spawn(driver.run(orders, notices)),
        )
    }

    /// Returns an elector without masters, and the view of a lock without a known holder, which lives as long
    /// as its sender.
    #[must_use]
    pub fn detached() -> (Self, watch::Sender<LockView>) {
        let (commands, _) = mpsc::unbounded_channel();
        let board = Board::default();
        (
            Self { commands, board },
            watch::Sender::new(LockView::new(Participation::Observe)),
        )
    }

    /// Contends for a lock on the given terms, or changes its terms. New timings take effect at the next
    /// renewal.
    pub fn put(&self, lock: LockName, terms: Terms) {
        self.send(Command::Put(lock, terms));
    }

    /// Gives up a lock and forgets it. `release_mode` determines how a held lease ends.
    pub fn remove(&self, lock: LockName, release_mode: ReleaseMode) {
        self.send(Command::Remove(lock, release_mode));
    }

    /// Records in the registers that targets of a lock are about to be started or adopted, or that all
    /// targets of this lease have stopped. Returns true if a majority recorded it in one round, and false
    /// otherwise or if the lease with this token is not held.
    pub async fn mark(&self, lock: LockName, token: FencingToken, mark: Mark) -> bool {
        let (sender, receiver) = oneshot::channel();
        self.send(Command::Mark(lock, token, mark, sender));
        receiver.await.unwrap_or(false)
    }

    /// Makes one attempt to claim a slot of a target's object for a job (`<uid>@<cluster>`); the claim may be
    /// repeated with the same uid. The masters do not check the holder: the caller must be the holder when it
    /// claims a slot that the job does not have yet.
    pub async fn claim(&self, lock: &LockName, object: &str, slot: u64, job: &str) -> Claim {
        let (object, job) = (object.into(), job.into());
        match self
            .ask(lock, masters::Command::Claim { object, slot, job })
            .await
        {
            Some(Completion::Done { majority: true, .. }) => Claim::Granted,
            Some(Completion::Done { refused: true, .. }) => Claim::Refused,
            _ => Claim::Undecided,
        }
    }

    /// Returns the slots of a target's object as the masters show them; `None` without an elector.
    pub async fn slots(&self, lock: &LockName, object: &str) -> Option<SlotView> {
        let object = object.into();
        match self.ask(lock, masters::Command::Slots { object }).await {
            Some(Completion::Slots(view)) => Some(view),
            _ => None,
        }
    }

    async fn ask(&self, lock: &LockName, command: masters::Command) -> Option<Completion> {
        let (sender, receiver) = oneshot::channel();
        self.send(Command::Ask(lock.clone(), command, sender));
        receiver.await.ok()
    }

    /// Gives up a lock and abstains from it for the given time.
    pub fn step_down(&self, lock: LockName, abstain: Duration) {
        self.send(Command::StepDown(lock, abstain));
    }

    /// Hands over a lock to a cluster.
    pub fn hand_over(&self, lock: LockName, to: ClusterId) {
        self.send(Command::HandOver(lock, to, None));
    }

    /// Hands over the lease with this token and no other; does nothing once that lease has ended.
    pub fn hand_over_lease(&self, lock: LockName, token: FencingToken, to: ClusterId) {
        self.send(Command::HandOver(lock, to, Some(token)));
    }

    /// Gives up every lock: reserves the locks in `reserve` for siblings and releases the others. The task
    /// ends once all locks are given up.
    pub fn shut_down(&self, reserve: HashSet<LockName>) {
        self.send(Command::Shutdown(reserve));
    }

    /// Waits until the task answers; returns false if the task has ended. Never returns if the task hangs.
    pub async fn answers(&self) -> bool {
        let (sender, receiver) = oneshot::channel();
        self.send(Command::Ping(sender));
        receiver.await.is_ok()
    }

    /// Subscribes to the view of one lock.
    #[must_use]
    pub fn watch(&self, lock: &LockName) -> Option<watch::Receiver<LockView>> {
        self.board
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(lock)
            .cloned()
    }

    /// Returns the current view of every lock.
    #[must_use]
    pub fn standings(&self) -> Vec<(LockName, LockView)> {
        let board = self.board.read().unwrap_or_else(PoisonError::into_inner);
        board
            .iter()
            .map(|(lock, view)| (lock.clone(), view.borrow().clone()))
            .collect()
    }

    /// Passes the current view of each lock to `visit`, without a copy. `visit` must return at once: it blocks
    /// the publication of that lock, and adding or removing locks.
    pub fn each(&self, mut visit: impl FnMut(&LockName, &LockView)) {
        let board = self.board.read().unwrap_or_else(PoisonError::into_inner);
        for (lock, view) in board.iter() {
            visit(lock, &view.borrow());
        }
    }

    fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            // The owner learns of the end by joining the task; without the task no lease is held.
            tracing::debug!("the elector has ended");
        }
    }
}
