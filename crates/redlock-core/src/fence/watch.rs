//! The rounds of one lock on one node: the permit after each round, and the time of the next one.

use std::time::Duration;

use super::{
    FREEZE_BEFORE,
    observation::{Finding, Observation, Withheld},
    record::Record,
};
use crate::{BootInstant, ClusterId, FencingToken};

/// The time that the answers of a round need.
const ROUND: Duration = Duration::from_millis(200);
/// The time before the end of a permit at which the last round that can prevent a freeze begins.
const BEFORE_END: Duration = FREEZE_BEFORE.saturating_add(ROUND);

/// The pace at which the masters are asked about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub lease_duration: Duration,
    pub retry_period: Duration,
}

impl Pace {
    /// Returns the start of the round after one that began at `sent`: after a third of the lease; after a
    /// retry period once a third is missing, or a record waits; shortly before the freeze, so that its
    /// answers can still prevent the freeze; and at the expected end.
    #[must_use]
    pub fn next<'a>(self, sent: BootInstant, records: impl IntoIterator<Item = &'a Record>) -> BootInstant {
        let third = self.lease_duration / 3;
        let soon = sent + self.retry_period.min(third);
        let next = |record: &Record| match record.permitted_until() {
            Some(until) if until.since(sent) >= third * 2 => sent + third,
            Some(until) if until - BEFORE_END > sent => soon.min(until - BEFORE_END),
            Some(until) if until > sent => soon.min(until),
            Some(_) | None => soon,
        };
        records.into_iter().map(next).min().unwrap_or(sent + third)
    }
}

/// The results of the rounds of one lock so far. A round that began before contrary evidence gives no permit
/// after it (P-102).
#[derive(Clone, Debug)]
pub struct Watch {
    cluster: ClusterId,
    /// The time at which the last contrary evidence was received.
    contrary: BootInstant,
    /// The greatest token that gave a permit.
    permitted: FencingToken,
}

impl Watch {
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            contrary: BootInstant::default(),
            permitted: FencingToken::default(),
        }
    }

    /// Returns a watch that has seen a permit under this token, and no contrary evidence since: see
    /// `Record::in_state`.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn permitted(cluster: ClusterId, permitted: FencingToken) -> Self {
        Self {
            permitted,
            ..Self::new(cluster)
        }
    }

    /// Handles one round. `clock_stood_still` is the result that the [`super::ClockWatch`] of the quorum gave
    /// for it.
    pub fn on_round(
        &mut self,
        observation: &Observation,
        clock_stood_still: bool,
        now: BootInstant,
    ) -> Finding {
        let finding = if clock_stood_still {
            Finding::ClockStoodStill
        } else {
            observation.finding(&self.cluster)
        };
        match finding {
            Finding::Permit(permit) if permit.sent < self.contrary || permit.token < self.permitted => {
                Finding::Withheld(Withheld::Overtaken)
            }
            Finding::Permit(permit) => {
                self.permitted = permit.token;
                finding
            }
            _ => {
                if finding.is_contrary() {
                    self.contrary = now;
                }
                finding
            }
        }
    }
}
