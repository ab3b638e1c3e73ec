//! One round of the read-only script: the permit that it gives, or the evidence against one.

use std::time::Duration;

use super::{
    FREEZE_BEFORE,
    mark::{FenceMark, MarkRegister},
    reading::Reading,
};
use crate::{BootInstant, ClusterId, FencingToken, Obstacle, QuorumSize, vote::MAX_MASTERS};

/// Allowance for the resolution of an expiry on a master, in addition to 1 % for the rates of clocks.
const RESOLUTION: Duration = Duration::from_millis(2);

/// The time until which no other cluster can be granted the lock, as one round shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The M-th smallest of the ends that the masters show. Without an end, a master counts with `sent`.
    pub until: BootInstant,
    /// The time at which the round began.
    pub sent: BootInstant,
    pub first: FencingToken,
    pub token: FencingToken,
    /// Whether the holder forbids starts.
    pub closed: bool,
}

impl Permit {
    /// Returns the time at which the pods that run by this permit are frozen.
    #[must_use]
    pub fn freeze_at(&self) -> BootInstant {
        self.until - FREEZE_BEFORE
    }
}

/// The reason why a round gives no permit (P-101). No such reason is evidence that another cluster may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// Fewer than M sealed masters answered.
    NoMajority,
    /// The greatest mark is older than the greatest `held` or `heldFloor`: a holder has not marked its lease yet, or
    /// does not fence.
    MarkIsOlder { mark: FencingToken, held: u64 },
    /// The greatest mark is on fewer than M of the masters that answered.
    MarkOnMinority,
    /// Masters show different marks under one token.
    MarkIsSplit,
    /// The round began before the evidence that ended the permit, or shows a mark that a later one has replaced.
    Overtaken,
}

/// The result of one round for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Permit(Permit),
    Withheld(Withheld),
    /// Contrary evidence: the greatest mark is that of another cluster.
    Foreign {
        token: FencingToken,
        cluster_uid: String,
    },
    /// Contrary evidence: M masters show no lease and no reservation that count.
    Unheld,
    /// Contrary evidence: the clocks of M masters ran ahead of the local one, which stood still.
    ClockStoodStill,
}

impl Finding {
    /// Reports whether the finding ends a permit at once (P-102).
    #[must_use]
    pub const fn is_contrary(&self) -> bool {
        match self {
            Self::Foreign { .. } | Self::Unheld | Self::ClockStoodStill => true,
            Self::Permit(_) | Self::Withheld(_) => false,
        }
    }
}

/// The readings of one lock in one round. The caller waits for all masters until the deadline of the command:
/// a permit of M readings is valid, but ends earlier than one of all readings.
#[derive(Clone, Debug)]
pub struct Observation {
    size: QuorumSize,
    sent: BootInstant,
    readings: [Option<Reading>; MAX_MASTERS],
}

impl Observation {
    /// Creates an observation. `sent` is read before the first byte of the round is sent.
    #[must_use]
    pub const fn new(size: QuorumSize, sent: BootInstant) -> Self {
        Self {
            size,
            sent,
            readings: [const { None }; MAX_MASTERS],
        }
    }

    /// Records the reading of a sealed master. A second reading of the same master does not count.
    pub fn record(&mut self, master: usize, reading: Reading) {
        if let Some(slot @ None) = self.readings.get_mut(master)
            && master < self.size.masters()
        {
            *slot = Some(reading);
        }
    }

    #[must_use]
    pub const fn sent(&self) -> BootInstant {
        self.sent
    }

    pub fn readings(&self) -> impl Iterator<Item = (usize, &Reading)> {
        let readings = self.readings.iter().enumerate();
        readings.filter_map(|(master, reading)| Some((master, reading.as_ref()?)))
    }

    fn known(&self) -> impl Iterator<Item = &Reading> {
        self.readings.iter().flatten()
    }

    /// Reports whether all masters answered.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.known().count() == self.size.masters()
    }

    /// Returns the greatest mark of any master.
    #[must_use]
    pub fn mark(&self) -> MarkRegister {
        MarkRegister::greatest(self.known().map(|reading| &reading.mark))
    }

    /// Returns the holder of the lease that most masters show, for the text of a refusal.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        let leases = || self.known().filter_map(|reading| reading.lease.as_ref());
        let same = |text: &str| leases().filter(|(obstacle, _)| named(obstacle) == text).count();
        let names = leases().map(|(obstacle, _)| named(obstacle));
        names.max_by_key(|name| same(name))
    }

    /// Returns the result of this round for the pods of `cluster`: a permit, or the reason against one (P-101).
    #[must_use]
    pub fn finding(&self, cluster: &ClusterId) -> Finding {
        let majority = self.size.majority();
        if self.known().count() < majority {
            return Finding::Withheld(Withheld::NoMajority);
        }
        let register = self.mark();
        let mark = match &register {
            MarkRegister::Split(_) => return Finding::Withheld(Withheld::MarkIsSplit),
            MarkRegister::Marked(mark) if !mark.is_of(cluster) => {
                return Finding::Foreign {
                    token: mark.token,
                    cluster_uid: mark.cluster_uid().to_owned(),
                };
            }
            MarkRegister::Never | MarkRegister::Marked(_) => register.mark(),
        };
        let nonce = mark.map(|mark| mark.nonce);
        let uncounted = self
            .known()
            .filter(|reading| reading.counted(cluster, nonce).is_none())
            .count();
        let Some(mark) = mark.filter(|_| uncounted < majority) else {
            return Finding::Unheld;
        };
        let held = self.known().map(|reading| reading.held).max().unwrap_or_default();
        if mark.token.0 < held {
            let mark = mark.token;
            return Finding::Withheld(Withheld::MarkIsOlder { mark, held });
        }
        let on = self.known().filter(|reading| reading.mark.mark() == Some(mark));
        if on.count() < majority {
            return Finding::Withheld(Withheld::MarkOnMinority);
        }
        Finding::Permit(Permit {
            until: self.until(cluster, mark),
            sent: self.sent,
            first: mark.first,
            token: mark.token,
            closed: self.known().any(|reading| reading.closed >= mark.token),
        })
    }

    /// Returns the M-th smallest end over all N masters (P-100). A master that did not answer, or shows nothing that
    /// counts, may be free since the round began. A reservation with an earlier mark does not count: the
    /// release of that lease may still be under way to this master, and would delete the reservation.
    fn until(&self, cluster: &ClusterId, mark: &FenceMark) -> BootInstant {
        let end = |reading: &Option<Reading>| {
            let left = reading
                .as_ref()
                .and_then(|reading| reading.permitted(cluster, mark));
            self.sent + left.map_or(Duration::ZERO, |left| good_for(left.time()))
        };
        let mut ends: Vec<BootInstant> = self.readings[..self.size.masters()].iter().map(end).collect();
        ends.sort_unstable();
        ends[self.size.majority() - 1]
    }
}

/// Subtracts 1 % for the rates of clocks, and the resolution of an expiry.
fn good_for(left: Duration) -> Duration {
    (left - left / 100).saturating_sub(RESOLUTION)
}

fn named(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::Lease(lease) => format!("{} in cluster {}", lease.identity, lease.cluster.name()),
        Obstacle::Reserved(text) | Obstacle::Foreign(text) => text.clone(),
    }
}
