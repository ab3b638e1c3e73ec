//! What people are told of slots.

use k8s_openapi::jiff::Timestamp;

use super::{
    OncePerSchedule,
    decide::Never,
    job::{Job, When},
};
use crate::{lease::Gone, telemetry::SlotResult};

impl OncePerSchedule {
    pub(super) fn count(&self, result: SlotResult) {
        let site = &self.site;
        site.telemetry.slot(&site.namespace, &site.object, result);
    }

    pub(super) fn tell_dropped(&self, job: &Job, why: &Never) {
        let slot = match job.slot {
            When::Scheduled(slot) => at(slot),
            When::Manual | When::Unreadable => String::new(),
        };
        let what = format!("target {}: slot {slot}", self.site.target);
        let here = format!("{} is deleted", self.desk.called(job));
        match why {
            Never::Gone(Gone::To(by)) => {
                self.count(SlotResult::Elsewhere);
                let text = format!("{what} runs in cluster {}; here {here}", cluster(by));
                self.site.note("SlotRunsElsewhere", text);
            }
            Never::Gone(Gone::Passed { slot, job: by }) => {
                self.count(SlotResult::Passed);
                let text = format!(
                    "{what} was not claimed here before cluster {} claimed {}; {here}",
                    cluster(by),
                    at(*slot)
                );
                self.site.note("SlotPassed", text);
            }
            Never::Gone(Gone::Lost) => {
                self.count(SlotResult::Lost);
                let text = format!(
                    "{what} can be claimed by no Job any more, since masters lost their memory: no cluster is known to run \
                     it; {here}"
                );
                self.site.warn("SlotLost", text);
            }
            Never::TooOld => {
                self.count(SlotResult::TooOld);
                let text = format!(
                    "{what} is longer ago than maxSlotAgeSeconds ({}); {here}",
                    self.max_age.as_secs()
                );
                self.site.warn("SlotTooOld", text);
            }
        }
    }

    pub(super) fn tell_waits(&self, job: &Job) {
        let text = format!(
            "target {}: {} was made by hand and starts when this cluster holds the lock",
            self.site.target,
            self.desk.called(job)
        );
        self.site.note("ManualJobWaits", text);
    }

    pub(super) fn tell_by_hand(&self, job: &Job, manager: &str) {
        let text = format!(
            "target {}: {} was let run by {manager:?}, and its slot is not this Job's: suspended again",
            self.site.target,
            self.desk.called(job)
        );
        self.site.warn("JobStartedByHand", text);
    }
}

fn at(slot: u64) -> String {
    let time = i64::try_from(slot).ok();
    let time = time.and_then(|slot| Timestamp::from_second(slot).ok());
    time.map_or_else(|| slot.to_string(), |time| time.to_string())
}

/// Of the text in a register.
fn cluster(job: &str) -> &str {
    job.rsplit_once('@').map_or(job, |(_, cluster)| cluster)
}
