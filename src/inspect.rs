//! The commands that read the masters: they show the holder of a lock, check the masters, and break a lock.
//!
//! Collects the facts, judges them and writes them as text and as JSON; [`cluster`] reads the objects of
//! Kubernetes. Takes no part in an election: it holds no lease, seals no master, and writes only the changes
//! that `break`, `hand-over`, `drain` and the trial of `doctor` announce.

pub mod break_lock;
pub mod cluster;
pub mod doctor;
pub mod drain;
pub mod fence;
pub mod hand_over;
pub mod status;
mod text;
pub mod top;
mod unreachable;

pub use unreachable::Unreachable;

use crate::masters::{
    AdoptError, Adopted, Agreement, MasterStatus, Masters, MastersConfig, Notices, Tasks, adopt,
};

/// Whether enough masters answered for the shown facts to be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Majority,
    TooFew,
    /// Too few; user, password or permissions are the reason at one or more of the masters.
    Refused,
}

impl Reach {
    fn of(all: &[MasterStatus], majority: usize, counts: impl Fn(&MasterStatus) -> bool) -> Self {
        if all.iter().filter(|status| counts(status)).count() >= majority {
            Self::Majority
        } else if all.iter().any(MasterStatus::auth) {
            Self::Refused
        } else {
            Self::TooFew
        }
    }
}

/// Masters that were read once.
#[derive(Debug)]
pub struct Session {
    pub masters: Masters,
    pub adopted: Adopted,
    tasks: Tasks,
    _notices: Notices,
}

impl Session {
    /// Connects to the masters. For bare urls, adopts the fingerprint that the masters carry; a configuration
    /// that names its masters is used unchanged.
    ///
    /// # Errors
    /// Returns an error if the configuration cannot work, or the masters carry no common fingerprint.
    pub async fn open(config: MastersConfig, adopting: Option<Agreement>) -> Result<Self, AdoptError> {
        let config = MastersConfig {
            reseal: false,
            ..config
        };
        let mut adopted = match adopting {
            Some(agreement) => adopt(config, agreement).await?,
            None => Adopted::as_configured(config),
        };
        // A command does not run for as long as a seal takes.
        adopted.config.reseal = false;
        let (masters, notices, tasks) = adopted.open()?;
        masters
            .wait_for_first_poll(Masters::FIRST_POLL_TIMEOUT, |_| false)
            .await;
        Ok(Self {
            masters,
            adopted,
            tasks,
            _notices: notices,
        })
    }

    /// Reports whether enough masters can be read.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let majority = self.masters.size().majority();
        Reach::of(&self.masters.status(), majority, MasterStatus::answers)
    }

    /// Finishes the work under way and disconnects.
    pub async fn close(self) {
        self.tasks.close().await;
    }
}
