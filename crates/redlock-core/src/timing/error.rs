//! Describes the errors of given timings: one variant for each rule, each with the values that broke it.

use std::fmt;
use std::time::Duration;

use super::{MIN_LEASE, MIN_RENEW_DEADLINE, MIN_RETRY_PERIOD};

/// The field that a [`TimingError`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimingField {
    LeaseDuration,
    RenewDeadline,
    RetryPeriod,
}

impl TimingField {
    /// Returns its name in a `LeaderLock`'s `spec`.
    pub fn wire_name(self) -> &'static str {
        match self {
            TimingField::LeaseDuration => "leaseDurationSeconds",
            TimingField::RenewDeadline => "renewDeadlineSeconds",
            TimingField::RetryPeriod => "retryPeriodSeconds",
        }
    }
}

impl fmt::Display for TimingField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimingField::LeaseDuration => "lease duration",
            TimingField::RenewDeadline => "renew deadline",
            TimingField::RetryPeriod => "retry period",
        })
    }
}

/// A rule between the timings that does not hold. Shown as `FIELD VALUE s REASON`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} {} {}", self.field(), Seconds(self.value()), self.reason())]
pub enum TimingError {
    /// Lease ≥ 2 s.
    LeaseTooShort { lease: Duration },
    /// Lease ≤ the longest lease of the quorum.
    LeaseTooLong { lease: Duration, longest: Duration },
    /// Lease × 0.99 > renew deadline + stop + slack, where there is something to stop.
    StopBudgetTooShort {
        lease: Duration,
        stop: Duration,
        needed: Duration,
        longest: Duration,
    },
    /// Lease × 0.99 > renew deadline + slack, where there is nothing to stop.
    RenewDeadlineTooLong {
        renew_deadline: Duration,
        lease: Duration,
    },
    /// Renew deadline ≥ 1 s and ≥ 3 × command timeout.
    RenewDeadlineTooShort {
        renew_deadline: Duration,
        command_timeout: Duration,
    },
    /// Renew deadline > 2 × retry period.
    RetryPeriodTooLong {
        retry_period: Duration,
        renew_deadline: Duration,
        lease: Duration,
    },
    /// A retry period of zero would retry without a pause.
    RetryPeriodTooShort { retry_period: Duration },
}

impl TimingError {
    pub fn field(&self) -> TimingField {
        match self {
            Self::LeaseTooShort { .. } | Self::LeaseTooLong { .. } | Self::StopBudgetTooShort { .. } => {
                TimingField::LeaseDuration
            }
            Self::RenewDeadlineTooLong { .. } | Self::RenewDeadlineTooShort { .. } => {
                TimingField::RenewDeadline
            }
            Self::RetryPeriodTooLong { .. } | Self::RetryPeriodTooShort { .. } => TimingField::RetryPeriod,
        }
    }

    /// Returns the value that broke the rule; derived where the user gave none.
    pub fn value(&self) -> Duration {
        match *self {
            Self::LeaseTooShort { lease }
            | Self::LeaseTooLong { lease, .. }
            | Self::StopBudgetTooShort { lease, .. } => lease,
            Self::RenewDeadlineTooLong { renew_deadline, .. }
            | Self::RenewDeadlineTooShort { renew_deadline, .. } => renew_deadline,
            Self::RetryPeriodTooLong { retry_period, .. } | Self::RetryPeriodTooShort { retry_period } => {
                retry_period
            }
        }
    }

    /// Returns the error of the value and the expected value, as the rest of a sentence that names the value.
    pub fn reason(&self) -> String {
        match *self {
            Self::LeaseTooShort { .. } => {
                format!("is shorter than {}, the shortest lease", Seconds(MIN_LEASE))
            }
            Self::LeaseTooLong { longest, .. } => format!(
                "is longer than {}, the quorum's longest lease (maxLeaseDurationSeconds): give a shorter one",
                Seconds(longest)
            ),
            Self::StopBudgetTooShort {
                stop,
                needed,
                longest,
                ..
            } => {
                let way_out = if needed <= longest {
                    "give that"
                } else {
                    "stop faster, or use a quorum that allows it"
                };
                format!(
                    "does not leave {} to stop the work before the lease ends: a lease of {} would be enough, and \
                     the quorum's longest is {}: {way_out}",
                    Seconds(stop),
                    Seconds(needed),
                    Seconds(longest)
                )
            }
            Self::RenewDeadlineTooLong { lease, .. } => format!(
                "does not end before the lease of {}, less 1 % for drift and a tenth (at most 1 s) of slack: \
                 shorten it or lengthen the lease",
                Seconds(lease)
            ),
            Self::RenewDeadlineTooShort { command_timeout, .. } => format!(
                "is shorter than {} or than {}, three command timeouts of the quorum (commandTimeoutMilliseconds): \
                 lengthen the lease or shorten the command timeout",
                Seconds(MIN_RENEW_DEADLINE),
                Seconds(command_timeout.saturating_mul(3))
            ),
            Self::RetryPeriodTooLong {
                renew_deadline,
                lease,
                ..
            } => format!(
                "does not fit twice into the renew deadline of {} (lease duration {}): shorten it or lengthen the lease",
                Seconds(renew_deadline),
                Seconds(lease)
            ),
            Self::RetryPeriodTooShort { .. } => {
                format!(
                    "is shorter than {}, the shortest retry period",
                    Seconds(MIN_RETRY_PERIOD)
                )
            }
        }
    }
}

/// A duration in seconds, such as `17 s` or `2.077 s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}
