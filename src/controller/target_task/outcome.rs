//! What one step of each target comes to.

use std::time::Duration;

use super::AGAIN;
use crate::{lease::Moment, targets::Step};

/// Between two looks at pods that take their time: a thousand of them must not be a thousand looks every [`AGAIN`].
const SELDOM: Duration = Duration::from_secs(1);

pub(super) struct Outcome {
    /// Everything is as it should be, or nobody waits for the rest.
    pub(super) settled: bool,
    pub(super) trouble: Option<(&'static str, String)>,
    /// Until the next step of one that has something to do although it is as it should be.
    wait: Option<Duration>,
}

impl Outcome {
    /// Before anything was asked of a target.
    pub(super) const fn new() -> Self {
        Self {
            settled: true,
            trouble: None,
            wait: None,
        }
    }

    /// Trouble with one that nobody waits for is told, and no more.
    pub(super) fn take(&mut self, step: Step, awaited: bool) {
        match step {
            Step::Done => {}
            Step::Waiting(wait) => self.look_after(wait),
            Step::Working(_) | Step::Contested(_) => self.settled = false,
            Step::Trouble(why) => {
                self.settled &= !awaited;
                self.trouble = Some((why.reason, why.text));
                self.look_after(AGAIN * 8);
            }
        }
    }

    /// Until the next step, when what is not settled is looked at again after so long.
    pub(super) fn pause(&self, unsettled: Duration) -> Option<Duration> {
        let unsettled = (!self.settled).then_some(unsettled);
        self.wait.into_iter().chain(unsettled).min()
    }

    fn look_after(&mut self, wait: Duration) {
        self.wait = self.wait.into_iter().chain([wait]).min();
    }
}

/// How long what is stopping is left alone: an eighth of the time that it takes, and less towards its end.
pub(super) fn between_looks(since: Moment, by: Moment, now: Moment) -> Duration {
    let pause = now.since(since).min(by.left(now)) / 8;
    pause.clamp(AGAIN, SELDOM)
}
