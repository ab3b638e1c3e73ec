//! Acquires, renews and releases one lock for one caller, without the elector.

use std::{sync::Arc, time::Duration};

use thiserror::Error;

use super::{Closed, Masters};
use crate::{
    clock,
    lease::{
        Authority, BootInstant, HolderIdentity, LockName, Loss, View,
        timing::{self, MIN_LEASE, TimingError},
    },
    masters::{Call, Command, Completion, LeaseAttempt, LockKeys, driver::ReplyTo},
};

/// The result of an attempt.
#[derive(Debug)]
#[must_use = "a lease that is never used is held for nothing"]
pub enum Acquired {
    Won(Lease),
    Lost(Loss),
}

/// The reason why no attempt was made or no outcome is known.
#[derive(Debug, Error)]
pub enum AcquireError {
    #[error("cannot acquire the lock \"{lock}\": {reason}")]
    LeaseDuration { lock: LockName, reason: TimingError },
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Renewal {
    Renewed,
    /// More than N - M masters refused, or the lease had run out: the lease is lost.
    Lost,
    /// No majority; the lease is unchanged. Retry until the renew deadline.
    Undecided,
}

/// A lease that this process holds. Dropping it releases the lease.
#[derive(Debug)]
#[must_use = "dropping a lease releases it"]
pub struct Lease {
    masters: Masters,
    lock: Arc<LockKeys>,
    attempt: Arc<LeaseAttempt>,
    authority: Authority,
    lease_duration: Duration,
    /// The number of local clock steps before the attempt, and of times at which a majority was found sealed for another
    /// quorum.
    losses: (u64, u64),
    /// Whether the local end has passed.
    over: bool,
    /// Whether a release was submitted.
    given_back: bool,
}

/// An attempt whose caller may go away. The driver undoes a completion without a receiver, but cannot detect
/// that a future received the completion and was dropped before it read the completion.
struct Unread<'a> {
    masters: &'a Masters,
    lock: &'a Arc<LockKeys>,
    attempt: Option<Arc<LeaseAttempt>>,
    /// The view of an attempt that was refused.
    refused: Option<View>,
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        let shared = self.masters.shared();
        shared.with_observed_ends(|ends, _| ends.finish(&self.lock.name, self.refused.take()));
        if let Some(attempt) = self.attempt.take() {
            let undo = Command::Undo {
                attempt,
                publish: true,
            };
            self.masters.submit_detached(self.lock, undo);
        }
    }
}

impl Masters {
    /// Submits a command for a value that is being dropped; no task waits for the result.
    fn submit_detached(&self, lock: &Arc<LockKeys>, command: Command) {
        // Without a driver the command is lost; the lease runs out.
        let _ = self.submit(Call {
            lock: lock.clone(),
            command,
            reply_to: ReplyTo::None,
        });
    }

    /// Makes one attempt to acquire a lock, for at most the longest lease: the wait of a master that lost its memory
    /// covers no longer lease (P-23).
    ///
    /// An attempt that was refused by the lease of another holder keeps the end of that lease. Until that end, or until a
    /// message of its release arrives, further attempts return the view of the refusal and ask no master: masters that
    /// forgot the lease must not let the caller in. Releases are received while the [`Notices`](super::Notices) of these
    /// masters are kept.
    ///
    /// # Errors
    /// Returns an error for a lease that is shorter than [`MIN_LEASE`], whose drift does not cover the steps of clocks that
    /// are not noticed, and if the tasks have ended; every other result is an outcome.
    pub async fn acquire(
        &self,
        lock: &LockName,
        holder: &HolderIdentity,
        lease_duration: Duration,
    ) -> Result<Acquired, AcquireError> {
        let lease_duration = lease_duration.min(self.fingerprint().longest_lease());
        if lease_duration < MIN_LEASE {
            return Err(AcquireError::LeaseDuration {
                lock: lock.clone(),
                reason: TimingError::LeaseTooShort {
                    lease: lease_duration,
                },
            });
        }
        if let Err(view) = self
            .shared()
            .with_observed_ends(|ends, now| ends.begin(lock, now))
        {
            return Ok(Acquired::Lost(Loss::Refused(view)));
        }
        let lock = self.lock(lock);
        let attempt = Arc::new(LeaseAttempt::new(self.stem(holder), lease_duration));
        let command = Command::Acquire {
            attempt: attempt.clone(),
            lease_duration,
        };
        let mut unread = Unread {
            masters: self,
            lock: &lock,
            attempt: Some(attempt.clone()),
            refused: None,
        };
        let losses = self.losses();
        let completion = self.ask(&lock, command).await;
        unread.attempt = None;
        if let Ok(Completion::NotWon(Loss::Refused(view))) = &completion {
            unread.refused = Some(view.clone());
        }
        drop(unread);
        match completion? {
            Completion::Won(won) => Ok(Acquired::Won(Lease {
                masters: self.clone(),
                lock,
                attempt,
                authority: Authority {
                    token: won.token,
                    valid_until: won.valid_until,
                },
                lease_duration,
                losses,
                over: false,
                given_back: false,
            })),
            Completion::NotWon(loss) => Ok(Acquired::Lost(loss)),
            _ => Ok(Acquired::Lost(Loss::TooLate)),
        }
    }
}

impl Lease {
    /// Returns the authority that this lease gives at `now`, if any.
    #[must_use]
    pub fn authority_at(&self, now: BootInstant) -> Option<Authority> {
        let lost = self.masters.losses() != self.losses;
        if self.over || lost {
            None
        } else {
            self.authority.at(now)
        }
    }

    /// Runs one round of renewal.
    ///
    /// # Errors
    /// Returns [`Closed`] if the tasks have ended; the lease then ends at `valid_until`.
    pub async fn renew(&mut self) -> Result<Renewal, Closed> {
        if self.authority_at(clock::now()).is_none() {
            return Ok(Renewal::Lost);
        }
        let lease_duration = self.lease_duration;
        let command = Command::Renew {
            attempt: self.attempt.clone(),
            token: self.authority.token,
            lease_duration,
        };
        let completion = self.masters.ask(&self.lock, command).await?;
        if self.authority_at(clock::now()).is_none() {
            // The lease ended before the renewal did, won or not, and the caller may have acted on that end.
            self.over = true;
            return Ok(Renewal::Lost);
        }
        match completion {
            Completion::Renewed { started } => {
                self.authority.valid_until = started + lease_duration - timing::drift(lease_duration);
                Ok(Renewal::Renewed)
            }
            Completion::RenewalRefused => {
                self.over = true;
                Ok(Renewal::Lost)
            }
            _ => Ok(Renewal::Undecided),
        }
    }

    /// Releases the lock and notifies the standbys; returns true if a majority held the lease and deleted it.
    ///
    /// # Errors
    /// Returns [`Closed`] if the tasks have ended; the lease then runs out.
    pub async fn release(mut self) -> Result<bool, Closed> {
        // The caller gave up the value that its authority came from.
        self.given_back = true;
        let command = Command::Release {
            attempt: self.attempt.clone(),
        };
        match self.masters.ask(&self.lock, command).await? {
            Completion::Done { majority, .. } => Ok(majority),
            _ => Ok(false),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let held = self.authority_at(clock::now()).is_some();
        // A lost lease is also released: its remains on some masters would block every candidate.
        if !self.given_back {
            let attempt = self.attempt.clone();
            self.masters
                .submit_detached(&self.lock, Command::Release { attempt });
        }
        if held {
            // Attempts of this process that begin from now on are run after the release.
            let shared = self.masters.shared();
            shared.with_observed_ends(|ends, _| ends.release(&self.lock.name));
        }
    }
}
