//! Permits to start and to stop objects. A permit to start holds while the lease under which it was given is
//! held. A permit to stop holds while no other replica of this cluster is known to hold the lock.

use std::{fmt, sync::Arc};

use tokio::sync::watch;

use crate::{
    clock,
    elector::LockView,
    lease::{FencingToken, Holder},
};

/// A permit that belongs to one lease, and holds only while that lease is held.
#[derive(Clone, Debug)]
pub(crate) struct StartPermit {
    standing: watch::Receiver<LockView>,
    lease: Lease,
}

#[derive(Clone, Debug)]
enum Lease {
    /// A lease of this process.
    Own(FencingToken),
    /// A lease of an agent in this cluster, as this process sees it.
    Observed(Holder),
}

impl StartPermit {
    pub(crate) const fn new(standing: watch::Receiver<LockView>, token: FencingToken) -> Self {
        let lease = Lease::Own(token);
        Self { standing, lease }
    }

    pub(crate) const fn observed(standing: watch::Receiver<LockView>, holder: Holder) -> Self {
        let lease = Lease::Observed(holder);
        Self { standing, lease }
    }

    /// Reports whether the permit holds. Call it after the last await before the write.
    pub(crate) fn holds(&self) -> bool {
        let (standing, now) = (self.standing.borrow(), clock::now());
        match &self.lease {
            Lease::Own(token) => standing
                .authority_at(now)
                .is_some_and(|authority| authority.token == *token),
            Lease::Observed(holder) => standing
                .holder_at(now)
                .is_some_and(|seen| seen.nonce == holder.nonce),
        }
    }

    /// Waits until the permit no longer holds.
    pub(crate) async fn ended(mut self) {
        loop {
            let now = clock::now();
            let until = {
                let standing = self.standing.borrow_and_update();
                match &self.lease {
                    Lease::Own(_) => standing.authority_at(now).map(|authority| authority.valid_until),
                    Lease::Observed(_) => standing.holder_at(now).map(|holder| holder.ends),
                }
            };
            let Some(until) = until.filter(|_| self.holds()) else {
                return;
            };
            tokio::select! {
                changed = self.standing.changed() => if changed.is_err() { return },
                () = clock::sleep_until(until) => {}
            }
        }
    }

    pub(crate) const fn token(&self) -> FencingToken {
        match &self.lease {
            Lease::Own(token) => *token,
            Lease::Observed(holder) => holder.token,
        }
    }

    /// Returns the holder of the lock; `None` if the operator holds the lock itself.
    pub(crate) fn holder(&self) -> Option<&str> {
        match &self.lease {
            Lease::Own(_) => None,
            Lease::Observed(holder) => Some(&holder.identity),
        }
    }
}

/// A permit for one step. The answer depends on the knowledge of this replica about the lock at the time of the call.
#[derive(Clone)]
pub(crate) struct StopPermit(Arc<dyn Fn(Found) -> bool + Send + Sync>);

/// The state in which the object was found before its stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Running,
    /// This replica had stopped the object, and another writer has started it since.
    StartedAgain,
}

impl Found {
    pub(crate) const fn of(started_again: bool) -> Self {
        if started_again {
            Self::StartedAgain
        } else {
            Self::Running
        }
    }
}

impl StopPermit {
    pub(crate) fn new(holds: impl Fn(Found) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    /// Returns a permit to stop a target that is no longer declared, while this process holds the lock itself.
    pub(crate) fn of(permit: &StartPermit) -> Self {
        let permit = permit.clone();
        Self::new(move |_| permit.holds())
    }

    /// Reports whether the permit holds. Call it after the last await before the write.
    pub(crate) fn holds(&self, found: Found) -> bool {
        (self.0)(found)
    }
}

impl fmt::Debug for StopPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopPermit").finish_non_exhaustive()
    }
}
