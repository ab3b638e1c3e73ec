//! The sum of one step of each target. Pure.

use std::time::Duration;

use super::RETRY;
use crate::{
    controller::problem::{Problem, Reason},
    targets::Step,
};

/// Between two steps of a target that cannot be as it should be.
pub(super) const RETRY_TROUBLE: Duration = RETRY.saturating_mul(8);

pub(super) struct Outcome {
    /// Everything is as it should be, or nothing waits for the rest.
    pub(super) settled: bool,
    /// A start waits for the finalizer.
    pub(super) wants_guard: bool,
    pub(super) trouble: Option<Problem>,
    /// Until the next step of one that has something to do although it is as it should be.
    wait: Option<Duration>,
}

impl Outcome {
    /// Before a step of a target.
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

    /// No target took a step for this reason.
    pub(super) fn failed(reason: Reason, text: &str) -> Self {
        Self {
            settled: false,
            wants_guard: false,
            trouble: Some(Problem::new(reason, text)),
            wait: None,
        }
    }

    /// Trouble with a target that nothing waits for is reported only.
    pub(super) fn add(&mut self, step: Step, awaited: bool) {
        match step {
            Step::Done => {}
            Step::Waiting(wait) => self.wait_at_most(wait),
            Step::Working(_) | Step::Contested(_) => self.settled = false,
            Step::Trouble(why) => {
                self.settled &= !awaited;
                self.trouble = Some(Problem::new(why.reason, why.text));
                self.wait_at_most(RETRY_TROUBLE);
            }
        }
    }

    /// Until the next step, when targets that are not settled take one after so long.
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
    use crate::api::lock_status::TargetState;

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
            assert_eq!(outcome.pause(RETRY_TROUBLE * 2), Some(RETRY_TROUBLE));
        }
    }
}
