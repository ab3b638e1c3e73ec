//! Derives and checks the timings of a lock: lease duration, renew deadline, retry period, drift.
//!
//! Owns the derivation of the timings that a user left out and the rules that hold between them. Counts in whole
//! milliseconds. Refuses timings under which a holder could not stop its work before its lease ends. Reads no clock,
//! and does not depend on the source of the values.

mod error;

use std::time::Duration;

use super::BootInstant;

pub use error::{TimingError, TimingField};

/// The default of the longest lease that a quorum grants. Every re-seal of a master waits a little longer
/// than this (65 s by default), so the value covers a pod with the usual grace period of 30 s, and no more.
pub const DEFAULT_LONGEST_LEASE: Duration = Duration::from_secs(60);

/// The longest lease that any quorum may allow: the upper end of `maxLeaseDurationSeconds`. A process that knows nothing
/// of a quorum assumes leases of this length.
pub const LONGEST_LEASE_ALLOWED: Duration = Duration::from_secs(86_400);

/// The longest `T_acquire` that any quorum may have.
pub const LONGEST_ACQUIRE_LIMIT: Duration = Duration::from_secs(60);

/// `T_acquire`, the longest time that one attempt may take. Four command timeouts: a grant, a confirm and one retry of
/// each on a slow link. Every re-seal waits for it twice, so it stays small compared with the longest lease.
pub const DEFAULT_ACQUIRE_LIMIT: Duration = Duration::from_secs(2);

/// The shortest lease. Below it the drift, a command timeout and a scheduling delay leave no room for a second try.
pub const MIN_LEASE: Duration = Duration::from_secs(2);

/// The lease of a lock without anything to stop: client-go's default, known to survive a busy machine.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(15);

/// The shortest renew deadline: a holder must be able to miss one round and try again.
pub const MIN_RENEW_DEADLINE: Duration = Duration::from_secs(1);

/// The shortest retry period. A shorter one only adds load on masters that are already in trouble.
pub const MIN_RETRY_PERIOD: Duration = Duration::from_millis(10);

/// The default command timeout. A healthy master answers in a millisecond, a master across a continent in 200
/// ms; half a second is longer than both.
pub const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_millis(500);

/// The room in a derived lease in addition to the stop time: gives a renew deadline of 17 s at the usual stop of 35 s.
const LEASE_ROOM: u64 = 25_000;

/// The drift takes 1 % of the lease, so a very long stop reduces the room above. The room never drops below this value,
/// which a lease without anything to stop has (14 s × 0.75 = a renew deadline of 10 s).
const LEAST_ROOM: u64 = 14_000;

/// The longest slack between the end of stopping and the end of the lease.
const LONGEST_SLACK: u64 = 1_000;

/// The values that a user gave; `None` is derived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GivenTimings {
    pub lease_duration: Option<Duration>,
    pub renew_deadline: Option<Duration>,
    pub retry_period: Option<Duration>,
}

/// The timings of one lock. All rules are checked for timings from [`Timings::resolve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Timings {
    pub lease_duration: Duration,
    /// The time from the start of the last won round after which the holder steps down, unless another was
    /// won.
    pub renew_deadline: Duration,
    /// The wait after a failed round.
    pub retry_period: Duration,
    /// The time that the slowest target of the holder takes to stop.
    pub stop: Duration,
}

impl Timings {
    /// Derives the timings of a lock whose user gave none.
    pub fn derive(stop: Duration) -> Timings {
        let stop = millis_up(stop);
        let lease = derived_lease(stop);
        let renew_deadline = derived_renew_deadline(lease, stop);
        Timings {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew_deadline),
            retry_period: Duration::from_millis(renew_deadline / 5),
            stop: Duration::from_millis(stop),
        }
    }

    /// Fills in the missing values, from the lease duration downwards, and checks every rule.
    ///
    /// The lease derives from `stop` alone: a renew deadline or retry period that does not fit it is refused. A longer
    /// lease instead would make every takeover slower.
    pub fn resolve(
        given: GivenTimings,
        stop: Duration,
        command_timeout: Option<Duration>,
        longest_lease: Duration,
    ) -> Result<Timings, TimingError> {
        let stop_ms = millis_up(stop);
        let lease = given
            .lease_duration
            .map_or_else(|| derived_lease(stop_ms), millis_down);
        let renew_deadline = given
            .renew_deadline
            .map_or_else(|| derived_renew_deadline(lease, stop_ms), millis_down);
        let timings = Timings {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew_deadline),
            retry_period: Duration::from_millis(given.retry_period.map_or(renew_deadline / 5, millis_down)),
            stop: Duration::from_millis(stop_ms),
        };
        timings.check(given, timings.command_timeout(command_timeout), longest_lease)?;
        Ok(timings)
    }

    fn check(
        &self,
        given: GivenTimings,
        command_timeout: Duration,
        longest: Duration,
    ) -> Result<(), TimingError> {
        let lease = self.lease_duration;
        let needed_deadline = MIN_RENEW_DEADLINE.max(command_timeout.saturating_mul(3));
        let deadline_derived = given.renew_deadline.is_none();
        let stop_too_long = || TimingError::StopBudgetTooShort {
            lease,
            stop: self.stop,
            needed: self.lease_that_would_do(deadline_derived, needed_deadline),
            longest,
        };
        // The drift of a shorter lease covers no unnoticed step of a clock; no seal waits for a longer lease (P-23).
        if lease < MIN_LEASE {
            return Err(TimingError::LeaseTooShort { lease });
        }
        if lease > longest {
            // The user cannot fix a lease that was derived from the stop time.
            let because_of_stop = given.lease_duration.is_none() && !self.stop.is_zero();
            return Err(if because_of_stop {
                stop_too_long()
            } else {
                TimingError::LeaseTooLong { lease, longest }
            });
        }
        if !self.stops_in_time() {
            return Err(if self.stop.is_zero() && !deadline_derived {
                TimingError::RenewDeadlineTooLong {
                    renew_deadline: self.renew_deadline,
                    lease,
                }
            } else {
                stop_too_long()
            });
        }
        if given.retry_period.is_some() {
            self.check_retry_period()?;
        }
        if self.renew_deadline < needed_deadline {
            return Err(if deadline_derived && !self.stop.is_zero() {
                stop_too_long()
            } else {
                TimingError::RenewDeadlineTooShort {
                    renew_deadline: self.renew_deadline,
                    command_timeout,
                }
            });
        }
        Ok(())
    }

    /// Checks a given retry period. A derived one is too short only if the renew deadline is.
    fn check_retry_period(&self) -> Result<(), TimingError> {
        if self.retry_period < MIN_RETRY_PERIOD {
            return Err(TimingError::RetryPeriodTooShort {
                retry_period: self.retry_period,
            });
        }
        if self.renew_deadline <= self.retry_period.saturating_mul(2) {
            return Err(TimingError::RetryPeriodTooLong {
                retry_period: self.retry_period,
                renew_deadline: self.renew_deadline,
                lease: self.lease_duration,
            });
        }
        Ok(())
    }

    /// Checks that a holder that gives up at its renew deadline has stopped, with slack, before another candidate may
    /// enter (P-98).
    fn stops_in_time(&self) -> bool {
        let budget = less_one_percent(millis_down(self.lease_duration));
        let spent = millis_up(self.renew_deadline)
            .saturating_add(millis_up(self.stop))
            .saturating_add(millis_up(self.slack()));
        budget > spent
    }

    fn lease_that_would_do(&self, deadline_derived: bool, needed_deadline: Duration) -> Duration {
        let stop = millis_up(self.stop);
        let room = if deadline_derived {
            millis_up(needed_deadline).saturating_mul(4) / 3 + 2
        } else {
            millis_up(self.renew_deadline)
        };
        let exact = lease_for(
            stop.saturating_add(LONGEST_SLACK)
                .saturating_add(room)
                .saturating_add(1),
        );
        Duration::from_millis(round_up(exact, 1_000).max(derived_lease(stop)))
    }

    /// Returns the interval of renewals (P-43): at least two tries fit before the renew deadline, three before the
    /// lease ends.
    pub fn renew_interval(&self) -> Duration {
        (self.lease_duration / 3).min(self.renew_deadline / 2)
    }

    /// Returns the time between the end of stopping and the end of the lease.
    pub fn slack(&self) -> Duration {
        Duration::from_millis(slack(millis_down(self.lease_duration)))
    }

    /// Returns the latest time at which a holder must give up a lease, so that its targets have stopped, with slack,
    /// before the end (P-49, P-99).
    pub fn latest_end(&self, valid_until: BootInstant) -> BootInstant {
        valid_until - self.stop - self.slack()
    }

    /// Returns the timeout of one command. A derived timeout is never longer than the retry period, so that a retry is
    /// not late, and fits three times into the renew deadline.
    pub fn command_timeout(&self, explicit: Option<Duration>) -> Duration {
        explicit.unwrap_or_else(|| {
            DEFAULT_COMMAND_TIMEOUT
                .min(self.retry_period)
                .min(self.renew_deadline / 3)
        })
    }
}

/// Returns the allowance for clocks that run at different rates: 1 % of the lease, and 2 ms for the
/// resolution of Redis' expiry (P-39).
pub fn drift(lease: Duration) -> Duration {
    (lease / 100).saturating_add(Duration::from_millis(2))
}

/// Returns the time after which a key that lives for `longest` by the clock of a master has ended: 1.02 times as long.
/// Twice the drift of one clock, since the master's and the observer's may err in opposite directions.
pub fn outlived(longest: Duration) -> Duration {
    longest.saturating_add(longest / 50)
}

/// Returns the wait of a master before it is sealed. Every lease that it may have granted has then ended (P-69).
pub fn seal_wait(longest: Duration, acquire_limit: Duration) -> Duration {
    outlived(longest).saturating_add(acquire_limit.saturating_mul(2))
}

fn derived_lease(stop: u64) -> u64 {
    if stop == 0 {
        return millis_down(DEFAULT_LEASE);
    }
    let usual = stop.saturating_add(LEASE_ROOM);
    let least = lease_for(stop.saturating_add(LONGEST_SLACK).saturating_add(LEAST_ROOM));
    round_up(usual.max(least), 5_000)
}

fn derived_renew_deadline(lease: u64, stop: u64) -> u64 {
    let room = less_one_percent(lease)
        .saturating_sub(stop)
        .saturating_sub(slack(lease));
    room - room.div_ceil(4)
}

fn slack(lease: u64) -> u64 {
    LONGEST_SLACK.min(lease.div_ceil(10))
}

fn less_one_percent(lease: u64) -> u64 {
    lease - lease.div_ceil(100)
}

/// Returns the smallest lease of which `budget` remains after 1 % is subtracted.
fn lease_for(budget: u64) -> u64 {
    budget.saturating_add(budget.div_ceil(99))
}

fn round_up(value: u64, step: u64) -> u64 {
    value.div_ceil(step).saturating_mul(step)
}

/// Rounds down. A duration that grants time is rounded down; one that takes time is rounded up.
pub(crate) fn millis_down(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
