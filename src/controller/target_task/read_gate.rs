//! Requires a consistent read of the object before a stop that no deadline and no request asks for. Pure, apart from the
//! memory of the first refusal.
//!
//! The plan may be outdated: a target that runs may since belong to no lock, or to another one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::lease::BootInstant;

/// The time for which a stop waits for the read. After that, exclusion comes first: another cluster may be about to
/// start its targets.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time for which a stop without a deadline is left to the coordinator.
const DEFERRED: Duration = Duration::from_secs(3);

/// The reads that stops wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadGate {
    /// The time at which a target was first found running since the targets were last stopped.
    found: Arc<Mutex<Option<BootInstant>>>,
}

impl ReadGate {
    /// Reports whether a target that was found running now may be stopped, given the time at which the last read was sent.
    /// `defers` is true if another replica coordinates, and stops the target first.
    pub(super) fn admits(&self, read: Option<BootInstant>, defers: bool, now: BootInstant) -> bool {
        let found = *self.found().get_or_insert(now);
        if defers && now < found + DEFERRED {
            return false;
        }
        read.is_some_and(|read| read >= found) || now >= found + PATIENCE
    }

    /// Returns the time at or after which a read has to be sent, if one is missing.
    pub(super) fn wants(&self, read: Option<BootInstant>) -> Option<BootInstant> {
        self.found().filter(|found| read.is_none_or(|read| read < *found))
    }

    /// Forgets the earlier read: the targets are stopped, or are not to be stopped.
    pub(super) fn reset(&self) {
        *self.found() = None;
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Option<BootInstant>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_waits_for_a_read_that_was_sent_after_the_target_was_found() {
        let at = |milliseconds: u64| BootInstant::from_nanos(milliseconds * 1_000_000);
        let gate = ReadGate::default();
        assert_eq!(gate.wants(None), None);
        assert!(!gate.admits(Some(at(99)), false, at(100)), "the read is older");
        assert_eq!(gate.wants(Some(at(99))), Some(at(100)));
        assert!(!gate.admits(None, false, at(1_099)));
        assert!(gate.admits(Some(at(100)), false, at(150)));
        assert_eq!(gate.wants(Some(at(100))), None);
        assert!(
            gate.admits(None, false, at(1_100)),
            "the API server does not answer"
        );
        assert!(
            !gate.admits(Some(at(100)), true, at(3_099)),
            "the coordinator acts first"
        );
        assert!(gate.admits(Some(at(100)), true, at(3_100)));
        gate.reset();
        assert!(!gate.admits(Some(at(100)), false, at(2_000)), "another finding");
    }
}
