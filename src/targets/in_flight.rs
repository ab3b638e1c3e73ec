//! Tracks a write that starts an object and was not answered: the API server may still carry it out.

use std::time::Duration;

use crate::{clock, lease::BootInstant, targets::TargetError};

/// Longer than the request timeout of the API server, which is a minute.
const LONGEST: Duration = Duration::from_secs(70);

/// The time of an unanswered write. While the write may still take effect, no stop is confirmed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InFlight(Option<BootInstant>);

impl InFlight {
    /// Records that a write is about to be sent. Returns the earlier state for `answered`.
    pub(super) fn send(&mut self) -> Self {
        std::mem::replace(self, Self(Some(clock::now())))
    }

    /// Records the answer. A successful write rules out every earlier one, which was for an earlier version.
    /// A refused write never takes effect: the state `before` it applies again.
    pub(super) fn answered<T>(
        &mut self,
        before: Self,
        written: &Result<T, TargetError>,
        done: impl Fn(&T) -> bool,
    ) {
        match written {
            Ok(outcome) if done(outcome) => *self = Self(None),
            Ok(_) => *self = before,
            Err(error) if error.is_refusal() => *self = before,
            Err(_) => {}
        }
    }

    pub(super) const fn settle(&mut self) {
        self.0 = None;
    }

    pub(super) fn is_open(self) -> bool {
        self.0.is_some_and(|sent| clock::now().since(sent) < LONGEST)
    }
}
