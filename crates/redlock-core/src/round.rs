//! Translates between the state machine of a lock and the engine of a quorum: a round into a command, a completion into
//! an outcome.

use std::sync::Arc;

use crate::{Command, Completion, LeaseAttempt, Outcome, Round};

impl Round {
    /// Returns the command of this round. `attempt` is the lease that an acquire is to create, or the last one.
    #[must_use]
    pub fn command(self, attempt: Option<Arc<LeaseAttempt>>) -> Command {
        match (self, attempt) {
            (Self::Acquire { lease_duration }, Some(attempt)) => Command::Acquire {
                attempt,
                lease_duration,
            },
            (
                Self::Renew {
                    lease_duration,
                    token,
                },
                Some(attempt),
            ) => Command::Renew {
                attempt,
                token,
                lease_duration,
            },
            (Self::Release, Some(attempt)) => Command::Release { attempt },
            (Self::Undo, Some(attempt)) => Command::Undo {
                attempt,
                publish: true,
            },
            (Self::Reserve { cluster }, Some(attempt)) => Command::Reserve { attempt, cluster },
            // Without an attempt no grant was ever sent.
            (Self::Observe, _) | (_, None) => Command::Observe,
        }
    }
}

impl Completion {
    /// Returns the outcome of a completed round; `None` for a command that no round uses. `reserves` states whether the
    /// round was a reserve.
    #[must_use]
    pub fn outcome(self, reserves: bool) -> Option<Outcome> {
        Some(match self {
            Self::Won(won) => Outcome::Won(won),
            Self::NotWon(loss) => Outcome::NotWon(loss),
            Self::Renewed { started } => Outcome::Renewed { started },
            Self::RenewalRefused => Outcome::RenewalRefused,
            Self::RenewalUndecided => Outcome::RenewalUndecided,
            Self::Observed(view) => Outcome::Observed(view),
            Self::Done { majority, .. } if reserves => Outcome::Reserved { majority },
            Self::Done { .. } => Outcome::Released,
            Self::Slots(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_MASTERS;

    #[test]
    fn reserve_and_release_have_outcomes_of_their_own() {
        let done = |majority, reserves| {
            let done = Completion::Done {
                majority,
                refused: false,
                answers: Box::new([const { None }; MAX_MASTERS]),
            };
            done.outcome(reserves)
        };
        for majority in [true, false] {
            let reserved = done(majority, true);
            assert!(
                matches!(reserved, Some(Outcome::Reserved { majority: found }) if found == majority),
                "{reserved:?}"
            );
            assert!(matches!(done(majority, false), Some(Outcome::Released)));
        }
    }
}
