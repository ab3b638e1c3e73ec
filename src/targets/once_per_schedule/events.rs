//! Emits the events about slots.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{
    OncePerSchedule,
    decide::Never,
    job::{Cron, Job, SCHEDULED, When},
};
use crate::{lease::Gone, targets::EventReason, telemetry::SlotResult};

impl OncePerSchedule {
    pub(super) fn count(&self, result: SlotResult) {
        let context = &self.context;
        context
            .telemetry
            .slot(&context.namespace, &context.object, result);
    }

    pub(super) fn emit_dropped(&self, job: &Job, why: &Never) {
        let slot = match job.slot {
            When::Scheduled(slot) => at(slot),
            When::Manual | When::Unreadable => String::new(),
        };
        let what = format!("target {}: slot {slot}", self.context.target);
        let here = format!("{} is deleted", self.desk.called(job));
        let dropped = Dropped::of(why, &what, &here, self.max_age);
        self.count(dropped.result);
        self.context.emit(dropped.reason, dropped.text);
    }

    /// Reports why the Job is neither started nor deleted.
    pub(super) fn emit_waiting(&self, job: &Job) {
        let what = format!("target {}: {}", self.context.target, self.desk.called(job));
        if job.slot == When::Unreadable {
            let text = format!(
                "{what} stays suspended: its annotation {SCHEDULED} is not a time, so the scheduled run of the Job is \
                    not known; correct the annotation, such as 2026-01-31T01:00:00Z, or delete the Job"
            );
            self.context.emit(EventReason::SlotUnreadable, text);
        } else {
            let text = format!("{what} was created by hand and starts when this cluster holds the lock");
            self.context.emit(EventReason::ManualJobWaits, text);
        }
    }

    /// Emits the events of the CronJob itself, each once.
    pub(super) fn emit_of(&mut self, cron: &Cron, held: bool) {
        let what = format!("target {}: {}", self.context.target, self.called());
        if !cron.zoned && cron.unsafe_because.is_none() && self.emitted.no_zone.as_ref() != Some(&cron.uid) {
            let text = format!(
                "{what} has no timeZone and uses that of each cluster's controller-manager: if these differ, the \
                 slots differ, too, and a run happens once in each zone; set the time zone in every \
                 cluster:\nspec:\n  timeZone: Etc/UTC"
            );
            self.context.emit(EventReason::TimeZoneMissing, text);
            self.emitted.no_zone = Some(cron.uid.clone());
        }
        if cron.suspended && held && !self.emitted.suspended {
            let text = format!("{what} is itself suspended: no Job is scheduled");
            self.context.emit(EventReason::TargetSuspended, text);
        }
        self.emitted.suspended = cron.suspended && (held || self.emitted.suspended);
    }

    pub(super) fn emit_started_by_hand(&self, job: &Job, manager: &str) {
        let text = format!(
            "target {}: {} was resumed by {manager:?}, but does not own its slot: the operator suspended it again",
            self.context.target,
            self.desk.called(job)
        );
        self.context.emit(EventReason::JobStartedByHand, text);
    }
}

/// The report of a slot that does not run in this cluster.
#[derive(Debug, PartialEq, Eq)]
struct Dropped {
    result: SlotResult,
    reason: EventReason,
    text: String,
}

impl Dropped {
    fn of(why: &Never, what: &str, here: &str, max_age: Duration) -> Self {
        let (result, reason, text) = match why {
            Never::Gone(Gone::To(by)) => (
                SlotResult::Elsewhere,
                EventReason::SlotRunsElsewhere,
                format!("{what} runs in cluster {}; here {here}", cluster(by)),
            ),
            Never::Gone(Gone::Passed { slot, job: by }) => (
                SlotResult::Passed,
                EventReason::SlotPassed,
                format!(
                    "{what} was not claimed in this cluster before cluster {} claimed {}; {here}",
                    cluster(by),
                    at(*slot)
                ),
            ),
            Never::Gone(Gone::Unrecorded { floor }) => (
                SlotResult::Lost,
                EventReason::SlotNotRecorded,
                format!(
                    "{what} cannot be claimed by any Job: the masters record claims of slots after {} only, since \
                     they were new when they were sealed a minute before that, or all of them had lost their memory; \
                     no cluster is known to run it; {here}",
                    at(*floor)
                ),
            ),
            Never::Gone(Gone::Lost) => (
                SlotResult::Lost,
                EventReason::SlotLost,
                format!(
                    "{what} can no longer be claimed by any Job: the claims of several Jobs split, or a master that \
                     had one lost its memory; no cluster is known to run it; {here}"
                ),
            ),
            Never::TooOld => (
                SlotResult::TooOld,
                EventReason::SlotTooOld,
                format!(
                    "{what} is older than maxSlotAgeSeconds ({}); {here}",
                    max_age.as_secs()
                ),
            ),
        };
        Self { result, reason, text }
    }
}

fn at(slot: u64) -> String {
    let time = i64::try_from(slot).ok();
    let time = time.and_then(|slot| Timestamp::from_second(slot).ok());
    time.map_or_else(|| slot.to_string(), |time| time.to_string())
}

/// Returns the name of the cluster in the text of a register.
fn cluster(job: &str) -> &str {
    job.rsplit_once('@').map_or(job, |(_, cluster)| cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// New masters have held no slot, so they cannot have lost one.
    #[test]
    fn a_slot_of_the_first_minute_of_new_masters_is_not_called_lost() {
        let of = |gone| {
            Dropped::of(
                &Never::Gone(gone),
                "target t: slot s",
                "Job a is deleted",
                Duration::ZERO,
            )
        };
        let new = of(Gone::Unrecorded { floor: 60 });
        assert_eq!(new.reason, EventReason::SlotNotRecorded);
        assert!(
            new.text.contains("after 1970-01-01T00:01:00Z only"),
            "{}",
            new.text
        );
        assert!(
            new.text.contains("they were new when they were sealed"),
            "{}",
            new.text
        );
        let split = of(Gone::Lost);
        assert_eq!(split.reason, EventReason::SlotLost);
        assert!(!split.text.contains("masters lost"), "{}", split.text);
    }
}
