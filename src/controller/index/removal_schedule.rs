//! Schedules the removal of the registers that ended locks left on the masters.

use std::time::Duration;

use crate::lease::BootInstant;

/// The time from the first turn as reporter to the first removal: a replica that was just elected has other work.
const FIRST: Duration = Duration::from_secs(600);
const EVERY: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub(super) struct RemovalSchedule {
    next: Option<BootInstant>,
}

impl RemovalSchedule {
    /// Reports whether the reporter removes the registers now.
    pub(super) fn is_due(&mut self, now: BootInstant) -> bool {
        let next = *self.next.get_or_insert(now + FIRST);
        let due = now >= next;
        if due {
            self.next = Some(now + EVERY);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_removed_once_an_hour() {
        let mut schedule = RemovalSchedule::default();
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let due: Vec<u64> = (1..8_000).filter(|second| schedule.is_due(at(*second))).collect();
        assert_eq!(due, [601, 4_201, 7_801]);
    }
}
