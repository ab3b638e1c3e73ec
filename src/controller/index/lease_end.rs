//! Determines how the last lease of a lock ended, as far as this replica can observe it.

use std::time::Duration;

use super::LockSnapshot;
use crate::lease::{BootInstant, Holder};

/// The end of a lease, as seen by a replica that only observes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeenEnd {
    /// The lease disappeared before it could have expired.
    Released,
    Expired,
}

/// The time without an observed holder after which the status shows that there is no holder.
const UNHELD: Duration = Duration::from_secs(1);

/// The end of the last lease of a lock.
#[derive(Debug, Default)]
pub(super) struct LeaseEnd {
    /// The observed end of the last lease of an agent, until there is another lease.
    pub(super) seen: Option<SeenEnd>,
    unheld_since: Option<BootInstant>,
}

impl LeaseEnd {
    /// Records the state of the lock. Returns how the previous lease was seen to end.
    pub(super) fn see(&mut self, snapshot: &LockSnapshot, now: BootInstant) -> Option<SeenEnd> {
        let seen = match &snapshot.holder {
            Some(_) => None,
            None => snapshot.last_holder.as_ref().map(|last| SeenEnd::of(last, now)),
        };
        std::mem::replace(&mut self.seen, seen)
    }

    pub(super) fn held(&mut self) {
        self.unheld_since = None;
    }

    /// Records that no holder is seen. Returns the time from which the status shows this.
    pub(super) fn unheld(&mut self, now: BootInstant) -> BootInstant {
        *self.unheld_since.get_or_insert(now) + UNHELD
    }
}

/// A replica that only observes sees a lease for slightly longer than the candidates that wait for its end.
const LATE: Duration = Duration::from_millis(100);

impl SeenEnd {
    pub(super) fn of(holder: &Holder, now: BootInstant) -> Self {
        if now + LATE < holder.ends {
            Self::Released
        } else {
            Self::Expired
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lease::{FencingToken, Nonce};

    pub(in crate::controller::index) fn holder(cluster: &str, seconds: u64) -> Holder {
        Holder {
            cluster: cluster.parse().unwrap(),
            identity: "ns/web-0/u".into(),
            nonce: Nonce(1),
            token: FencingToken(7),
            ends: BootInstant::from_nanos(seconds * 1_000_000_000),
        }
    }

    #[test]
    fn a_lease_that_is_gone_before_its_end_was_given_back() {
        let at = |milliseconds: u64| BootInstant::from_nanos(milliseconds * 1_000_000);
        let lease = holder("eu/u", 10);
        assert_eq!(SeenEnd::of(&lease, at(4_000)), SeenEnd::Released);
        assert_eq!(SeenEnd::of(&lease, at(9_950)), SeenEnd::Expired);
        assert_eq!(SeenEnd::of(&lease, at(10_001)), SeenEnd::Expired);
    }
}
