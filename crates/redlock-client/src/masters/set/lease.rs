//! One lock for one caller, without the elector.

use std::{sync::Arc, time::Duration};

use super::{Closed, Masters};
use crate::{
    clock,
    lease::{Authority, BootInstant, HolderIdentity, LockName, Loss, timing},
    masters::{Call, Command, Completion, LeaseAttempt, LockKeys, driver::ReplyTo},
};

/// What came of an attempt.
#[derive(Debug)]
#[must_use = "a lease that is never used is held for nothing"]
pub enum Acquired {
    Won(Lease),
    Lost(Loss),
}

/// What came of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Renewal {
    Renewed,
    /// More than N - M masters refused, or the lease had run out: it is lost.
    Lost,
    /// No majority; the lease stays as it was. Try again until the renew deadline.
    Undecided,
}

/// A lease that this process holds. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping a lease releases it"]
pub struct Lease {
    masters: Masters,
    lock: Arc<LockKeys>,
    attempt: Arc<LeaseAttempt>,
    authority: Authority,
    lease_duration: Duration,
    /// Of the local clock, before the attempt.
    local_steps: u64,
    /// The local end has come.
    over: bool,
    /// A release was asked for.
    given_back: bool,
}

/// An attempt whose caller may go away. The driver undoes what nobody takes; it cannot know of a completion that was
/// taken by a future which is dropped before it reads it.
struct Unread<'a> {
    masters: &'a Masters,
    lock: &'a Arc<LockKeys>,
    attempt: Option<Arc<LeaseAttempt>>,
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            let undo = Command::Undo {
                attempt,
                publish: true,
            };
            self.masters.tell(self.lock, undo);
        }
    }
}

impl Masters {
    /// Hands over what nobody waits for: a caller goes away.
    fn tell(&self, lock: &Arc<LockKeys>, command: Command) {
        // Without a driver there is nobody to tell; the lease runs out.
        let _ = self.submit(Call {
            lock: lock.clone(),
            command,
            reply_to: ReplyTo::Nobody,
        });
    }

    /// One attempt to acquire a lock, for at most the longest lease: no master that lost its memory waits longer.
    ///
    /// # Errors
    /// [`Closed`]; everything else is an outcome.
    pub async fn acquire(
        &self,
        lock: &LockName,
        holder: &HolderIdentity,
        lease_duration: Duration,
    ) -> Result<Acquired, Closed> {
        let lock = self.lock(lock);
        let lease_duration = lease_duration.min(self.fingerprint().longest_lease());
        if lease_duration <= timing::drift(lease_duration) {
            // Over before it could be won; and a key that lives for no time is an error to a master.
            return Ok(Acquired::Lost(Loss::TooLate));
        }
        let attempt = Arc::new(LeaseAttempt::new(self.stem(holder), lease_duration));
        let command = Command::Acquire {
            attempt: attempt.clone(),
            lease_duration,
        };
        let mut unread = Unread {
            masters: self,
            lock: &lock,
            attempt: Some(attempt.clone()),
        };
        let local_steps = self.local_steps();
        let completion = self.ask(&lock, command).await;
        unread.attempt = None;
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
                local_steps,
                over: false,
                given_back: false,
            })),
            Completion::NotWon(loss) => Ok(Acquired::Lost(loss)),
            _ => Ok(Acquired::Lost(Loss::TooLate)),
        }
    }
}

impl Lease {
    /// The authority that this lease gives at `now`, if it still gives any.
    #[must_use]
    pub fn authority_at(&self, now: BootInstant) -> Option<Authority> {
        let stepped = self.masters.local_steps() != self.local_steps;
        if self.over || stepped {
            None
        } else {
            self.authority.at(now)
        }
    }

    /// One round of renewal.
    ///
    /// # Errors
    /// [`Closed`]; the lease ends at `valid_until` then.
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
            // Won or not: the end came first, and somebody may have acted on it.
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

    /// Gives the lock back and tells the standbys; true if a majority had it and deleted it.
    ///
    /// # Errors
    /// [`Closed`]; the lease runs out then.
    pub async fn release(mut self) -> Result<bool, Closed> {
        self.over = true;
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
        // Also of a lease that was lost: what is left of it on some masters would keep everybody out.
        if !self.given_back {
            let attempt = self.attempt.clone();
            self.masters.tell(&self.lock, Command::Release { attempt });
        }
    }
}
