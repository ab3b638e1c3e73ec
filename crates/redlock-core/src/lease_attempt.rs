//! One lease of this process, from its first grant to its last undo.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{ClusterId, LeaseStem, MAX_MASTERS, Mark, fence::FencedLease};

/// The value in place of a connection when several carried grants or renewals. Calls that were sent on closed
/// connections may still arrive, so an undo on any one connection does not follow all of them.
const SEVERAL: u32 = u32::MAX;

/// The text of a lease, and the connections on which it was sent. An undo on the same connection runs after
/// the grant. On another connection it may run before the grant, and must be repeated.
///
/// Only the engine writes the counters, so they need no locked instruction.
#[derive(Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseAttempt {
    pub stem: LeaseStem,
    /// The longest time that a key of this lease may live.
    pub lifetime: Duration,
    #[cfg_attr(feature = "trace", serde(skip))]
    sent: [AtomicU32; MAX_MASTERS],
    #[cfg_attr(feature = "trace", serde(skip))]
    pending: [AtomicU32; MAX_MASTERS],
    /// The state of the lease of a fenced lock.
    #[cfg_attr(feature = "trace", serde(default, skip_serializing_if = "Option::is_none"))]
    fence: Option<Box<FencedLease>>,
    /// The cluster for which a majority reserves the lock.
    #[cfg_attr(feature = "trace", serde(skip))]
    reserved: OnceLock<ClusterId>,
}

impl LeaseAttempt {
    /// Creates an attempt. `lifetime` is the longest lease duration with which it is sent.
    #[must_use]
    pub fn new(stem: LeaseStem, lifetime: Duration) -> Self {
        Self {
            stem,
            lifetime,
            sent: Default::default(),
            pending: Default::default(),
            fence: None,
            reserved: OnceLock::new(),
        }
    }

    /// Creates the attempt of a fenced lock by a candidate of `cluster`.
    #[must_use]
    pub fn fenced(stem: LeaseStem, lifetime: Duration, cluster: ClusterId) -> Self {
        Self {
            fence: Some(Box::new(FencedLease::new(cluster))),
            ..Self::new(stem, lifetime)
        }
    }

    /// Returns the state that the lease of a fenced lock has in addition.
    #[must_use]
    pub fn fence(&self) -> Option<&FencedLease> {
        self.fence.as_deref()
    }

    /// Reports whether this would be the first mark `held` of the lease of a fenced lock.
    #[must_use]
    pub fn is_first(&self, mark: Mark) -> bool {
        matches!(mark, Mark::Held { .. }) && self.fence().is_some_and(|fence| fence.mark().is_none())
    }

    /// Records that a majority has reserved the lock for this cluster.
    pub(crate) fn reserve(&self, cluster: &ClusterId) {
        let _ = self.reserved.set(cluster.clone());
    }

    pub(crate) fn reserved(&self) -> Option<&ClusterId> {
        self.reserved.get()
    }

    pub(crate) fn sending(&self, master: usize) {
        let pending = &self.pending[master];
        pending.store(pending.load(Relaxed) + 1, Relaxed);
    }

    /// Records that a grant or renewal has ended, answered or not. `connection` is 0 if the call was never
    /// sent.
    pub(crate) fn sent(&self, master: usize, connection: u32) {
        let pending = &self.pending[master];
        pending.store(pending.load(Relaxed).saturating_sub(1), Relaxed);
        if connection != 0 {
            let before = self.sent[master].load(Relaxed);
            let one = before == 0 || before == connection;
            self.sent[master].store(if one { connection } else { SEVERAL }, Relaxed);
        }
    }

    /// Reports whether an undo on the connection `undone` (`None`: not known to have run) must be repeated (P-54).
    pub(crate) fn may_be_left(&self, master: usize, undone: Option<u32>) -> bool {
        let sent = self.sent[master].load(Relaxed);
        self.pending[master].load(Relaxed) > 0 || (sent != 0 && undone != Some(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterId, HolderIdentity, Nonce};

    #[test]
    fn an_undo_on_another_connection_is_repeated() {
        let stem = LeaseStem::new(
            &ClusterId::new("a", "b").unwrap(),
            &HolderIdentity::parse("c").unwrap(),
            Nonce(1),
        );
        let attempt = LeaseAttempt::new(stem, Duration::from_secs(1));
        assert!(!attempt.may_be_left(0, None), "nothing was ever sent");
        attempt.sending(0);
        assert!(attempt.may_be_left(0, Some(1)), "a grant is still under way");
        attempt.sent(0, 1);
        assert!(!attempt.may_be_left(0, Some(1)));
        assert!(attempt.may_be_left(0, Some(2)));
        assert!(attempt.may_be_left(0, None));
        attempt.sending(1);
        attempt.sent(1, 0);
        assert!(!attempt.may_be_left(1, None), "it never left this process");
    }
    #[test]
    fn an_undo_on_the_last_of_several_connections_is_repeated() {
        let stem = LeaseStem::new(
            &ClusterId::new("a", "b").unwrap(),
            &HolderIdentity::parse("c").unwrap(),
            Nonce(1),
        );
        let attempt = LeaseAttempt::new(stem, Duration::from_secs(1));
        // A renewal without an answer on the first connection, then one on the second.
        for connection in [1, 2] {
            attempt.sending(0);
            attempt.sent(0, connection);
        }
        assert!(attempt.may_be_left(0, Some(2)), "the first may still heal");
    }
}
