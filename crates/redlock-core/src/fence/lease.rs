//! The holder's side of a fenced lease: its mark, and whether the work that runs under it is confirmed to have stopped.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{OWN_RESERVATION, mark::FenceMark, mark::MarkRegister, succession::Succession};
use crate::{BootInstant, ClusterId, FencingToken, Nonce, timing::millis_down};

/// The state of a fenced lease in addition to its text. Only the engine writes it, so the counters need no
/// locked instruction.
#[derive(Debug)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct FencedLease {
    cluster: ClusterId,
    /// The `first` of the win; empty before the win.
    #[cfg_attr(feature = "trace", serde(skip))]
    first: OnceLock<FencingToken>,
    /// The mark that was sent, or was about to be sent.
    #[cfg_attr(feature = "trace", serde(skip))]
    mark: OnceLock<FenceMark>,
    /// The longest delay that was declared, in milliseconds.
    #[cfg_attr(feature = "trace", serde(skip))]
    delay: AtomicU64,
    #[cfg_attr(feature = "trace", serde(skip))]
    stop: AtomicU8,
}

/// The progress of the stop of the work that a marked lease started. A step leads only to the next one; a
/// mark `held` leads back to the first one (P-110).
mod stop {
    pub(super) const RUNS: u8 = 0;
    /// A majority forbids starts.
    pub(super) const CLOSED: u8 = 1;
    /// The holder has since judged that all work is gone.
    pub(super) const GONE: u8 = 2;
    /// A majority has the mark `clean`.
    pub(super) const CONFIRMED: u8 = 3;
}

/// The data that the end of a fenced lease may remove from the masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The lease, since no mark was ever sent. A sibling's pods may run under the reservation of its cluster.
    Lease,
    /// Nothing, since pods may run by the lease, which runs out.
    Nothing,
    /// The lease and the reservation of its cluster, since the stop was confirmed.
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

    /// Records that the lease was won with `token`. Its grants show these marks, and `held` as the greatest
    /// one of `held` and `heldFloor`. No key that a master has now lives longer than `until`.
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

    /// Records that the mark is about to be sent: the lease now counts as marked (P-109). Returns false if the lease
    /// was not won, has another token, or belongs to a cluster whose UID cannot be part of a mark (P-108).
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
        let milliseconds = millis_down(delay);
        self.delay.store(self.delay().max(milliseconds), Relaxed);
        self.stop.store(stop::RUNS, Relaxed);
        true
    }

    /// Returns the mark, once it was sent.
    #[must_use]
    pub fn mark(&self) -> Option<&FenceMark> {
        self.mark.get()
    }

    /// Returns the longest delay that was declared with the mark, in milliseconds.
    #[must_use]
    pub fn delay(&self) -> u64 {
        self.delay.load(Relaxed)
    }

    fn step(&self, from: u8, to: u8) {
        if self.stop.load(Relaxed) == from {
            self.stop.store(to, Relaxed);
        }
    }

    /// Records that a majority forbids starts.
    pub fn record_closed(&self) {
        self.step(stop::RUNS, stop::CLOSED);
    }

    /// Records, before the holder writes `clean`, that all work is gone. A stop that was judged before starts
    /// were forbidden is not confirmed.
    pub fn record_gone(&self) {
        self.step(stop::CLOSED, stop::GONE);
    }

    /// Records that a majority has `clean`.
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

/// Returns how long a renewal of a marked lease reserves the lock for its own cluster: at most the longest
/// lease, which the wait of a seal and the distrust after a clock step cover (P-112).
#[must_use]
pub fn own_reservation(lease_duration: Duration, longest: Duration) -> Duration {
    (lease_duration + OWN_RESERVATION).min(longest.max(lease_duration))
}
