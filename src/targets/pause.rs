//! The back-off of a watch that failed.

use std::time::Duration;

use kube::runtime::utils::Backoff;

/// With these bounds, a server that is back is noticed within a few seconds, and three replicas do not
/// overload it.
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// A pause that doubles from attempt to attempt, with jitter.
pub(crate) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(SHORTEST)
    }
}

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0.mul_f64(0.5 + fastrand::f64());
        self.0 = LONGEST.min(self.0 * 2);
        Some(pause)
    }
}

impl Backoff for Pause {
    fn reset(&mut self) {
        self.0 = SHORTEST;
    }
}
