//! Runs the state machine of every lock of one process: carries out its actions, reports back, publishes authority.
//!
//! Owns the timers and the one task behind them. Refuses to decide: that is [`crate::lease::Machine`]'s. All locks of
//! a quorum share one task, so that what is due together travels together.

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

/// What the elector is told from outside.
#[derive(Debug)]
enum Command {
    Put(LockName, Terms),
    Remove(LockName, ReleaseMode),
    StepDown(LockName, Duration),
    HandOver(LockName, ClusterId, Option<FencingToken>),
    /// Write into the registers that targets are about to start, or (true) that all are stopped.
    Mark(LockName, FencingToken, Mark, oneshot::Sender<bool>),
    /// Of the slots of a target: past the machine, whether or not the lock is contended for.
    Ask(LockName, masters::Command, oneshot::Sender<Completion>),
    Ping(oneshot::Sender<()>),
    /// Those named are reserved for siblings, the others released.
    Shutdown(HashSet<LockName>),
}

type Board = Arc<RwLock<BTreeMap<LockName, watch::Receiver<LockView>>>>;

/// A handle to the elector of one quorum; clones share it.
#[derive(Clone, Debug)]
pub struct Elector {
    commands: mpsc::UnboundedSender<Command>,
    board: Board,
}

/// The elector's task. Its owner joins it; it ends after [`Elector::shut_down`], or with [`Closed`] when the masters
/// are gone.
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

    /// One that knows no masters, and a lock that stands as if nobody were known to hold it: for as long as the sender is
    /// kept.
    #[must_use]
    pub fn detached() -> (Self, watch::Sender<LockView>) {
        let (commands, _) = mpsc::unbounded_channel();
        let board = Board::default();
        (
            Self { commands, board },
            watch::Sender::new(LockView::new(Participation::Observe)),
        )
    }

    /// Contends for a lock on these terms, or changes the terms; new timings take effect at the next renewal.
    pub fn put(&self, lock: LockName, terms: Terms) {
        self.send(Command::Put(lock, terms));
    }

    /// Gives a lock up, in this way if it is held, and forgets it.
    pub fn remove(&self, lock: LockName, release_mode: ReleaseMode) {
        self.send(Command::Remove(lock, release_mode));
    }

    /// Writes into the registers that targets of a lock are about to start or to be adopted, or that all that this lease
    /// started have stopped. True if a majority wrote it in one round; false, if not, or if the lease with this
    /// token is not held.
    pub async fn mark(&self, lock: LockName, token: FencingToken, mark: Mark) -> bool {
        let (sender, receiver) = oneshot::channel();
        self.send(Command::Mark(lock, token, mark, sender));
        receiver.await.unwrap_or(false)
    }

    /// One attempt to claim a slot of a target's object for a job (`<uid>@<cluster>`); with the same uid it may be tried
    /// again. Nothing of it depends on who holds the lock: only a holder may ask for a slot that is not the job's yet.
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

    /// What the masters show of the slots of a target's object; none without an elector.
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

    /// Gives a lock up and does not take it for so long.
    pub fn step_down(&self, lock: LockName, abstain: Duration) {
        self.send(Command::StepDown(lock, abstain));
    }

    /// Passes a lock on to a cluster.
    pub fn hand_over(&self, lock: LockName, to: ClusterId) {
        self.send(Command::HandOver(lock, to, None));
    }

    /// The same for the lease with this token and no other: does nothing once that one has ended.
    pub fn hand_over_lease(&self, lock: LockName, token: FencingToken, to: ClusterId) {
        self.send(Command::HandOver(lock, to, Some(token)));
    }

    /// Gives every lock up: releases it or, if it is one of these, reserves it for siblings. The task ends when all is
    /// done.
    pub fn shut_down(&self, reserve: HashSet<LockName>) {
        self.send(Command::Shutdown(reserve));
    }

    /// Waits until the task has taken this question up: false if it has ended. A task that hangs never answers.
    pub async fn answers(&self) -> bool {
        let (sender, receiver) = oneshot::channel();
        self.send(Command::Ping(sender));
        receiver.await.is_ok()
    }

    /// Follows one lock.
    #[must_use]
    pub fn watch(&self, lock: &LockName) -> Option<watch::Receiver<LockView>> {
        self.board
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(lock)
            .cloned()
    }

    /// All locks as they stand now.
    #[must_use]
    pub fn standings(&self) -> Vec<(LockName, LockView)> {
        let board = self.board.read().unwrap_or_else(PoisonError::into_inner);
        board
            .iter()
            .map(|(lock, view)| (lock.clone(), view.borrow().clone()))
            .collect()
    }

    /// Shows each lock as it stands now, without a copy. `look` must return at once: meanwhile nothing is published of
    /// that lock, and none is put or removed.
    pub fn each(&self, mut look: impl FnMut(&LockName, &LockView)) {
        let board = self.board.read().unwrap_or_else(PoisonError::into_inner);
        for (lock, view) in board.iter() {
            look(lock, &view.borrow());
        }
    }

    fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            // Its owner learns of the end by joining the task; nothing is held without it.
            tracing::debug!("the elector has ended");
        }
    }
}
