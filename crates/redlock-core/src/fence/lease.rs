//! The holder's side of a fenced lease: its mark, and whether the work that runs under it is confirmed to have stopped.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{OWN_RESERVATION, mark::FenceMark, mark::MarkRegister, succession::Succession};
use crate::{BootInstant, ClusterId, FencingToken, Nonce};

/// What a fenced lease has in addition to its text. Only the engine writes it, so the counters need no locked
/// instruction.
#[derive(Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct FencedLease {
    cluster: ClusterId,
    /// Of the win; none before.
    #[cfg_attr(feature = "trace", serde(skip))]
    first: OnceLock<FencingToken>,
    /// As it was sent, or was about to be.
    #[cfg_attr(feature = "trace", serde(skip))]
    mark: OnceLock<FenceMark>,
    /// The longest that was declared, in milliseconds.
    #[cfg_attr(feature = "trace", serde(skip))]
    delay: AtomicU64,
    #[cfg_attr(feature = "trace", serde(skip))]
    stop: AtomicU8,
}

/// How far the stop of what a marked lease started is. Each step leads to the next one only; a mark `held` leads back.
mod stop {
    pub(super) const RUNS: u8 = 0;
    /// A majority forbids starts.
    pub(super) const CLOSED: u8 = 1;
    /// The holder has judged since that everything is gone.
    pub(super) const GONE: u8 = 2;
    /// A majority has the mark `clean`.
    pub(super) const CONFIRMED: u8 = 3;
}

/// What the end of a fenced lease may remove from the masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// No mark was ever sent: the lease. The reservation of its cluster may be that under which a sibling's pods run.
    Lease,
    /// Pods may run by it: nothing. It runs out.
    Nothing,
    /// The stop was confirmed: the lease and the reservation of its cluster.
    All,
}

impl FencedLease {
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            first: OnceLock::new(),
            mark: OnceLock::new(),
            delay: AtomicU64::new(0),
            stop: AtomicU8::new(stop::RUNS),
        }
    }

    /// The lease was won with `token`; its grants show these marks, and `held` as the greatest one of `held` and
    /// `heldFloor`. No key that a master has now lives longer than `until`.
    pub fn win(
        &self,
        registers: &[MarkRegister],
        held: u64,
        token: FencingToken,
        until: BootInstant,
    ) -> Succession {
        let found = Succession::of(registers, &self.cluster, (held, token), until);
        let first = *self.first.get_or_init(|| found.first);
        Succession { first, ..found }
    }

    /// The mark is about to be sent: from now on the lease counts as marked. False if it cannot be marked: it was not won,
    /// it has another token, or the UID of the cluster makes no mark.
    pub fn send(&self, token: FencingToken, nonce: Nonce, delay: Duration) -> bool {
        let Some(first) = self.first.get() else {
            return false;
        };
        if self.mark.get().is_none() {
            let Ok(mark) = FenceMark::new(token, *first, &self.cluster, nonce) else {
                return false;
            };
            let _ = self.mark.set(mark);
        }
        if self.mark.get().is_none_or(|mark| mark.token != token) {
            return false;
        }
        let milliseconds = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay.store(self.delay().max(milliseconds), Relaxed);
        self.stop.store(stop::RUNS, Relaxed);
        true
    }

    /// The mark, once it was sent.
    #[must_use]
    pub fn mark(&self) -> Option<&FenceMark> {
        self.mark.get()
    }

    /// The longest delay that was declared with it, in milliseconds.
    #[must_use]
    pub fn delay(&self) -> u64 {
        self.delay.load(Relaxed)
    }

    fn step(&self, from: u8, to: u8) {
        if self.stop.load(Relaxed) == from {
            self.stop.store(to, Relaxed);
        }
    }

    /// A majority forbids starts.
    pub fn record_closed(&self) {
        self.step(stop::RUNS, stop::CLOSED);
    }

    /// Call this before the holder writes `clean`. A stop that was judged before starts were forbidden is not
    /// confirmed.
    pub fn record_gone(&self) {
        self.step(stop::CLOSED, stop::GONE);
    }

    /// A majority has `clean`.
    pub fn record_confirmed(&self) {
        self.step(stop::GONE, stop::CONFIRMED);
    }

    #[must_use]
    pub fn removal(&self) -> Removal {
        match (self.mark(), self.stop.load(Relaxed)) {
            (None, _) => Removal::Lease,
            (Some(_), stop::CONFIRMED) => Removal::All,
            (Some(_), _) => Removal::Nothing,
        }
    }

    #[must_use]
    pub fn is_of(&self, cluster: &ClusterId) -> bool {
        self.cluster.uid() == cluster.uid()
    }
}

/// For how long a renewal of a marked lease keeps the lock for its own cluster: no longer than the longest lease, for which
/// the wait of a seal and the distrust after a step of a clock are made.
#[must_use]
pub fn own_reservation(lease_duration: Duration, longest: Duration) -> Duration {
    (lease_duration + OWN_RESERVATION).min(longest.max(lease_duration))
}
