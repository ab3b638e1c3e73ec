//! Summarizes one step of all targets. Pure.

use std::time::Duration;

use super::RETRY;
use crate::{controller::problem::Problem, targets::Step};

/// Interval between steps of a target that cannot reach the desired state.
pub(super) const RETRY_TROUBLE: Duration = RETRY.saturating_mul(8);

/// Interval between steps of a target with trouble that nothing waits for. A change of its object ends it.
const RETRY_UNAWAITED: Duration = Duration::from_secs(60);

pub(super) struct Outcome {
    /// Whether all targets are in the desired state, except those that nothing waits for.
    pub(super) settled: bool,
    /// Whether a start waits for the finalizer.
    pub(super) wants_guard: bool,
    pub(super) trouble: Option<Problem>,
    /// The time until the next step of a target that has pending work in its desired state.
    wait: Option<Duration>,
}

impl Outcome {
    /// The initial value, before the first target's step.
    pub(super) const SETTLED: Self = Self {
        settled: true,
        wants_guard: false,
        trouble: None,
        wait: None,
    };
    pub(super) const UNSETTLED: Self = Self {
        settled: false,
        wants_guard: false,
        trouble: None,
        wait: None,
    };

    pub(super) const WANTS_GUARD: Self = Self {
        settled: false,
        wants_guard: true,
        trouble: None,
        wait: None,
    };

    /// Returns the outcome of a step that no target could take, for this reason.
    pub(super) fn failed(problem: Problem) -> Self {
        Self {
            trouble: Some(problem),
            ..Self::UNSETTLED
        }
    }

    /// Adds the step of a target. Trouble with a target that is not awaited is reported, but does not
    /// unsettle the outcome.
    pub(super) fn add(&mut self, step: Step, awaited: bool) {
        match step {
            Step::Done => {}
            Step::Waiting(wait) => self.wait_at_most(wait),
            Step::Working(_) | Step::Contested(_) => self.settled = false,
            Step::Trouble(why) => {
                self.settled &= !awaited;
                self.trouble = Some(Problem::new(why.reason, why.text));
                self.wait_at_most(if awaited { RETRY_TROUBLE } else { RETRY_UNAWAITED });
            }
        }
    }

    /// Returns the time until the next step, given the interval for targets that are not settled.
    pub(super) fn pause(&self, unsettled: Duration) -> Option<Duration> {
        let unsettled = (!self.settled).then_some(unsettled);
        self.wait.into_iter().chain(unsettled).min()
    }

    fn wait_at_most(&mut self, wait: Duration) {
        self.wait = self.wait.into_iter().chain([wait]).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::lock_status::TargetState, controller::problem::Reason};

    fn trouble() -> Step {
        Step::trouble(TargetState::Standby, Reason::TargetNotFound, "no".into())
    }

    #[test]
    fn targets_that_are_as_they_should_be_need_no_further_step() {
        let mut outcome = Outcome::SETTLED;
        outcome.add(Step::Done, true);
        assert!(outcome.settled && outcome.pause(RETRY).is_none());
        outcome.add(Step::Waiting(Duration::from_secs(9)), true);
        outcome.add(Step::Waiting(Duration::from_secs(5)), true);
        assert!(outcome.settled);
        assert_eq!(outcome.pause(RETRY), Some(Duration::from_secs(5)), "the first");
    }

    #[test]
    fn one_target_that_works_unsettles_all() {
        for step in [
            Step::Working(TargetState::Changing),
            Step::Contested(String::new()),
        ] {
            let mut outcome = Outcome::SETTLED;
            outcome.add(step, true);
            outcome.add(Step::Done, true);
            assert!(!outcome.settled);
            assert_eq!(outcome.pause(RETRY), Some(RETRY));
        }
    }

    #[test]
    fn trouble_with_a_target_that_nothing_waits_for_is_reported_and_retried() {
        for awaited in [true, false] {
            let mut outcome = Outcome::SETTLED;
            outcome.add(trouble(), awaited);
            assert_eq!(outcome.settled, !awaited);
            assert!(outcome.trouble.is_some());
            let pause = if awaited { RETRY_TROUBLE } else { RETRY_UNAWAITED };
            assert_eq!(outcome.pause(RETRY_TROUBLE * 2), Some(pause));
        }
    }
}
