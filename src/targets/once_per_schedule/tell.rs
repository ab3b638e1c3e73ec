//! What people are told of slots.

use k8s_openapi::jiff::Timestamp;

use super::{
    OncePerSchedule,
    decide::Never,
    job::{Cron, Job, SCHEDULED, When},
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

    /// Why it is not let run, nor deleted.
    pub(super) fn tell_waits(&self, job: &Job) {
        let what = format!("target {}: {}", self.site.target, self.desk.called(job));
        if job.slot == When::Unreadable {
            let text = format!(
                "{what} stays suspended: its annotation {SCHEDULED} is no time, so nobody can tell which run it is; put it \
                 right, such as 2026-01-31T01:00:00Z, or delete the Job"
            );
            self.site.warn("SlotUnreadable", text);
        } else {
            let text = format!("{what} was made by hand and starts when this cluster holds the lock");
            self.site.note("ManualJobWaits", text);
        }
    }

    /// Of the CronJob itself, each once.
    pub(super) fn tell_of(&mut self, cron: &Cron, held: bool) {
        let what = format!("target {}: {}", self.site.target, self.called());
        if !cron.zoned && cron.unsafe_because.is_none() && self.told.no_zone.as_ref() != Some(&cron.uid) {
            let text = format!(
                "{what} takes the time zone of each cluster's controller-manager: where these differ, so do the slots, and \
                 a run happens once in each zone; say it in every cluster:\nspec:\n  timeZone: Etc/UTC"
            );
            self.site.warn("TimeZoneMissing", text);
            self.told.no_zone = Some(cron.uid.clone());
        }
        if cron.suspended && held && !self.told.suspended {
            let text = format!("{what} is suspended itself: nothing is scheduled");
            self.site.warn("TargetSuspended", text);
        }
        self.told.suspended = cron.suspended && (held || self.told.suspended);
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
