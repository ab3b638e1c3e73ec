//! One lock for one caller, without the elector.

use std::{sync::Arc, time::Duration};

use super::{Closed, Masters};
use crate::{
    clock,
    lease::{Authority, HolderIdentity, LockName, Loss, Moment, timing},
    masters::{Call, Delivery, LockKeys, Request, Tenure, courier::Sink},
};

/// What came of an attempt.
#[derive(Debug)]
#[must_use = "a lease that is not looked at is held for nothing"]
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
    tenure: Arc<Tenure>,
    authority: Authority,
    lease_duration: Duration,
    /// Of the local clock, before the attempt.
    local_steps: u64,
    /// The local end has come.
    over: bool,
    /// A release was asked for.
    given_back: bool,
}

/// An attempt whose caller may go away. The courier undoes what nobody takes; it cannot know of a delivery that was
/// taken by a future which is dropped before it reads it.
struct Unread<'a> {
    masters: &'a Masters,
    lock: &'a Arc<LockKeys>,
    tenure: Option<Arc<Tenure>>,
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if let Some(tenure) = self.tenure.take() {
            let undo = Request::Undo {
                tenure,
                only: None,
                publish: true,
            };
            self.masters.tell(self.lock, undo);
        }
    }
}

impl Masters {
    /// Hands over what nobody waits for: a caller goes away.
    fn tell(&self, lock: &Arc<LockKeys>, request: Request) {
        // Without a courier there is nobody to tell; the lease runs out.
        let _ = self.submit(Call {
            lock: lock.clone(),
            request,
            sink: Sink::Nobody,
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
        let tenure = Arc::new(Tenure::new(self.stem(holder), lease_duration));
        let request = Request::Acquire {
            tenure: tenure.clone(),
            lease_duration,
        };
        let mut unread = Unread {
            masters: self,
            lock: &lock,
            tenure: Some(tenure.clone()),
        };
        let local_steps = self.local_steps();
        let delivery = self.ask(&lock, request).await;
        unread.tenure = None;
        drop(unread);
        match delivery? {
            Delivery::Won(won) => Ok(Acquired::Won(Lease {
                masters: self.clone(),
                lock,
                tenure,
                authority: Authority {
                    token: won.token,
                    valid_until: won.valid_until,
                },
                lease_duration,
                local_steps,
                over: false,
                given_back: false,
            })),
            Delivery::NotWon(loss) => Ok(Acquired::Lost(loss)),
            _ => Ok(Acquired::Lost(Loss::TooLate)),
        }
    }
}

impl Lease {
    /// The authority that this lease gives at `now`, if it still gives any.
    #[must_use]
    pub fn authority_at(&self, now: Moment) -> Option<Authority> {
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
        let request = Request::Renew {
            tenure: self.tenure.clone(),
            token: self.authority.token,
            lease_duration,
        };
        let delivery = self.masters.ask(&self.lock, request).await?;
        if self.authority_at(clock::now()).is_none() {
            // Won or not: the end came first, and somebody may have acted on it.
            self.over = true;
            return Ok(Renewal::Lost);
        }
        match delivery {
            Delivery::Renewed { started } => {
                self.authority.valid_until = started + lease_duration - timing::drift(lease_duration);
                Ok(Renewal::Renewed)
            }
            Delivery::RenewalRefused => {
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
        let request = Request::Release {
            tenure: self.tenure.clone(),
        };
        match self.masters.ask(&self.lock, request).await? {
            Delivery::Done { majority, .. } => Ok(majority),
            _ => Ok(false),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Also of a lease that was lost: what is left of it on some masters would keep everybody out.
        if !self.given_back {
            let tenure = self.tenure.clone();
            self.masters.tell(&self.lock, Request::Release { tenure });
        }
    }
}
