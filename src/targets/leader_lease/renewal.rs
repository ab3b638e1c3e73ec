//! Decides when a replica renews the record of the operator in a Lease that no policy protects. Pure.
//!
//! Every replica that stops the target follows the record, and one of them renews it: the others see its renewals and wait.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::record::Record;
use crate::lease::BootInstant;

/// The leaseDuration that client-go uses by default.
const USUAL_DURATION: Duration = Duration::from_secs(15);

/// The next renewal.
#[derive(Clone, Debug, Default)]
pub(super) struct RenewalSchedule {
    planned: Option<PlannedRenewal>,
}

#[derive(Clone, Debug)]
struct PlannedRenewal {
    /// The last renewal when the next one was planned. A candidate ignores other changes, too.
    renewed: Option<Timestamp>,
    due: BootInstant,
}

/// Returns the interval of the renewals: three in the duration of a candidate.
fn interval(found: &Record) -> Duration {
    let (duration, _) = found.last_candidate();
    duration.unwrap_or(USUAL_DURATION) / 3
}

impl RenewalSchedule {
    /// Returns the time of the next decision; `None` if no renewal is planned.
    pub(super) fn due(&self) -> Option<BootInstant> {
        self.planned.as_ref().map(|planned| planned.due)
    }

    /// Forgets the plan: the operator does not hold the Lease, or a policy protects it.
    pub(super) fn clear(&mut self) {
        self.planned = None;
    }

    /// Plans the renewal after one of this replica, which `written` contains.
    pub(super) fn plan(&mut self, written: &Record, now: BootInstant) {
        self.plan_after(written, interval(written), now);
    }

    /// Reports whether this replica renews the record that was found. The renewal of another replica postpones it; two
    /// intervals of waiting are shorter than the duration of a candidate.
    pub(super) fn is_due(&mut self, found: &Record, now: BootInstant) -> bool {
        match &self.planned {
            None => true,
            Some(planned) if now < planned.due => false,
            Some(planned) if planned.renewed == found.renewed => true,
            Some(_) => {
                self.plan_after(found, interval(found) * 6 / 5, now);
                false
            }
        }
    }

    fn plan_after(&mut self, found: &Record, pause: Duration, now: BootInstant) {
        self.planned = Some(PlannedRenewal {
            renewed: found.renewed,
            due: now + pause,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn renewed(number: i64) -> Record {
        Record {
            renewed: Timestamp::from_second(number).ok(),
            ..Record::default()
        }
    }

    #[test]
    fn one_of_two_replicas_renews_the_record_and_the_other_one_after_its_end() {
        let (mut first, mut second) = (RenewalSchedule::default(), RenewalSchedule::default());
        assert!(first.is_due(&renewed(1), at(0)));
        first.plan(&renewed(2), at(0));
        second.plan(&renewed(2), at(1));
        let mut present = 2;
        for second_of in 1..60 {
            let found = renewed(present);
            if first.is_due(&found, at(second_of)) {
                present += 1;
                first.plan(&renewed(present), at(second_of));
            }
            let found = renewed(present);
            assert!(!second.is_due(&found, at(second_of)), "{second_of}");
        }
        let found = renewed(present);
        let last = 55;
        let taken = (60..).find(|now| second.is_due(&found, at(*now))).unwrap();
        assert!(taken - last < 15, "{taken}: within the duration of a candidate");
    }
}
