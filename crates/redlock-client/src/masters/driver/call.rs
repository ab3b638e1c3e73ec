//! Carries one lock's command to the engine, and its completion back to the caller.

use std::sync::Arc;

use redlock_core::{Command, Completion, LockKeys};
use tokio::sync::{mpsc, oneshot};

/// One lock's command, on its way to the engine.
#[derive(Debug)]
pub struct Call {
    pub(crate) lock: Arc<LockKeys>,
    pub(crate) command: Command,
    pub(crate) reply_to: ReplyTo,
}

impl Call {
    /// Builds a call whose `sender` receives whether a majority carried it out.
    pub(crate) const fn answering(
        lock: Arc<LockKeys>,
        command: Command,
        sender: oneshot::Sender<bool>,
    ) -> Self {
        Self {
            lock,
            command,
            reply_to: ReplyTo::Majority(sender),
        }
    }

    /// Builds a call whose `sender` receives the completion.
    pub(crate) const fn asking(
        lock: Arc<LockKeys>,
        command: Command,
        sender: oneshot::Sender<Completion>,
    ) -> Self {
        Self {
            lock,
            command,
            reply_to: ReplyTo::One(sender),
        }
    }

    /// Builds a call whose completion is sent to `sender`, marked with `tag`.
    #[must_use]
    pub const fn tagged(
        lock: Arc<LockKeys>,
        command: Command,
        tag: u64,
        sender: mpsc::UnboundedSender<(u64, Completion)>,
    ) -> Self {
        Self {
            lock,
            command,
            reply_to: ReplyTo::Many(tag, sender),
        }
    }
}

/// The receiver of a completion.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    One(oneshot::Sender<Completion>),
    Many(u64, mpsc::UnboundedSender<(u64, Completion)>),
    /// Receives only whether a majority carried out the command.
    Majority(oneshot::Sender<bool>),
    None,
}

impl ReplyTo {
    /// Returns false if the caller is gone.
    pub(super) fn deliver(self, completion: Completion) -> bool {
        match self {
            Self::One(sender) => sender.send(completion).is_ok(),
            Self::Many(tag, sender) => sender.send((tag, completion)).is_ok(),
            Self::Majority(sender) => {
                let done = matches!(completion, Completion::Done { majority: true, .. });
                sender.send(done).is_ok()
            }
            Self::None => false,
        }
    }
}
