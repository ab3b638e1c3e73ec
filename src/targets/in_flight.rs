//! A write that starts something and was not answered: it may still be done.

use std::time::Duration;

use crate::{clock, lease::BootInstant, targets::TargetError};

/// The API server gives a request up after a minute.
const LONGEST: Duration = Duration::from_secs(70);

/// Until such a write must be over, nothing is confirmed as stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InFlight(Option<BootInstant>);

impl InFlight {
    /// A write is about to be sent. What stood before is needed at its end.
    pub(super) fn send(&mut self) -> Self {
        std::mem::replace(self, Self(Some(clock::now())))
    }

    /// It was answered: with success it is over, and so is every earlier one, which was for an earlier version.
    /// Refused, it was never done: `before` stands.
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
