//! Reads a CronJob and its Jobs. Pure.

use k8s_openapi::{
    api::batch::v1::CronJob, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry, jiff::Timestamp,
};

use super::write::MANAGER;
pub(super) use crate::targets::slim::SCHEDULED;
use crate::targets::{
    shared::Summary,
    slim::{Job as BatchJob, SLOT, cron_job as maker, finished},
};

/// A decision on the slot of a Job: the values of the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The slot belongs to this Job: it runs, or ran.
    Claimed,
    /// The slot can never belong to this Job.
    Lost,
    TooOld,
    /// The Job was created by hand, and starts when this cluster holds the lock.
    Waits,
    /// The slot of the Job is unknown: its annotation is not a time.
    Unreadable,
}

impl Mark {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Lost => "lost",
            Self::TooOld => "too-old",
            Self::Waits => "waits",
            Self::Unreadable => "unreadable",
        }
    }

    fn of(text: &str) -> Option<Self> {
        let all = [
            Self::Claimed,
            Self::Lost,
            Self::TooOld,
            Self::Waits,
            Self::Unreadable,
        ];
        all.into_iter().find(|mark| mark.text() == text)
    }
}

/// One Job of the CronJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: String,
    /// The UID of its CronJob.
    pub(super) owner: String,
    pub(super) slot: When,
    pub(super) stage: Stage,
}

/// The scheduled run that a Job was created for. Older slots first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// The scheduled time in seconds since 1970.
    Scheduled(u64),
    /// The Job was created by hand, and exists in one cluster only.
    Manual,
    /// The annotation is not a time.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Suspended and never started, with no final decision yet. `emitted`: whether an event has reported that it waits.
    Waits { emitted: bool },
    /// Another writer started the Job: the name of its field manager.
    ByHand(String),
    /// The Job must be deleted.
    Lost,
    /// The operator started the Job.
    Runs,
    /// The Job must not be touched: it ran before its CronJob was a target, another writer suspended it while
    /// it ran, or its controller has not stopped it yet.
    Left,
    /// The Job has ended, or is being deleted.
    Over,
}

impl Job {
    /// Returns the slot that must belong to the Job before the Job may run.
    pub(super) fn wanted(&self) -> Option<u64> {
        match (self.slot, &self.stage) {
            (When::Scheduled(slot), Stage::Waits { .. } | Stage::ByHand(_)) => Some(slot),
            _ => None,
        }
    }
}

/// Reads a Job; `None` if no CronJob of this name controls it.
pub(super) fn job(cron_job: &str, job: BatchJob) -> Option<(String, Job)> {
    let owner = maker(&job.metadata).filter(|owner| owner.name == cron_job)?;
    let (owner, stage) = (owner.uid.clone(), stage(&job));
    let annotations = job.metadata.annotations.as_ref();
    let slot = match annotations.and_then(|all| all.get(SCHEDULED)) {
        None => When::Manual,
        Some(text) => slot(text).map_or(When::Unreadable, When::Scheduled),
    };
    let name = job.metadata.name?;
    let job = Job {
        name: name.clone(),
        uid: job.metadata.uid?,
        version: job.metadata.resource_version?,
        owner,
        slot,
        stage,
    };
    Some((name, job))
}

/// Parses the time of a slot. The result does not depend on the time zone of the text.
fn slot(text: &str) -> Option<u64> {
    let time: Timestamp = text.parse().ok()?;
    u64::try_from(time.as_second()).ok()
}

fn stage(job: &BatchJob) -> Stage {
    let status = job.status.as_ref();
    if finished(job).is_some() || job.metadata.deletion_timestamp.is_some() {
        return Stage::Over;
    }
    let label = job.metadata.labels.as_ref().and_then(|all| all.get(SLOT));
    let mark = label.and_then(|text| Mark::of(text));
    let suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
    let started = status.is_some_and(|status| status.start_time.is_some());
    match (suspended, mark) {
        (false, Some(Mark::Claimed)) => Stage::Runs,
        (false, _) => by_hand(job).map_or(Stage::Left, Stage::ByHand),
        (true, Some(Mark::Claimed)) => Stage::Left,
        // The controller of the Job has not stopped it yet.
        (true, _) if started => Stage::Left,
        (true, Some(Mark::Lost | Mark::TooOld)) => Stage::Lost,
        (true, Some(Mark::Waits | Mark::Unreadable)) => Stage::Waits { emitted: true },
        (true, None) => Stage::Waits { emitted: false },
    }
}

/// Returns the field manager that set `suspend`, unless it is the operator or created the Job.
fn by_hand(job: &BatchJob) -> Option<String> {
    let entries = job.metadata.managed_fields.as_deref().unwrap_or_default();
    let owns = |entry: &&ManagedFieldsEntry, field: &str| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields["f:spec"].get(field).is_some())
    };
    let entry = entries.iter().find(|entry| owns(entry, "f:suspend"))?;
    let manager = entry.manager.clone().unwrap_or_default();
    // The manager that created the Job owns the rest of its spec as well.
    (manager != MANAGER && !owns(&entry, "f:template")).then_some(manager)
}

/// The CronJob itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::targets) struct Cron {
    pub(super) uid: String,
    /// The reason why its Jobs could run in more than one cluster, and the remedy.
    pub(super) unsafe_because: Option<String>,
    /// Whether the CronJob itself is suspended.
    pub(super) suspended: bool,
    /// Whether the CronJob sets the time zone of its schedule.
    pub(super) zoned: bool,
}

/// The number of characters of a schedule that a message shows.
const SHOWN: usize = 100;

impl Summary for Cron {
    type Object = CronJob;

    fn of(object: CronJob) -> Option<Self> {
        cron(object)
    }

    fn is_news(&self, before: &Self) -> bool {
        self != before
    }
}

pub(super) fn cron(cron: CronJob) -> Option<Cron> {
    let spec = cron.spec.unwrap_or_default();
    let starts = spec.job_template.spec.and_then(|spec| spec.suspend) != Some(true);
    let unsafe_because = if spec.schedule.trim_start().starts_with("@every") {
        Some(format!(
            "its schedule is {:?}: such slots depend on the time at which the CronJob was created in each cluster; \
             use a cron expression such as \"*/5 * * * *\"",
            spec.schedule.chars().take(SHOWN).collect::<String>()
        ))
    } else if starts {
        Some(
            "its Jobs start at once in every cluster; set suspend: true in the spec of its jobTemplate:\n\
             spec:\n  jobTemplate:\n    spec:\n      suspend: true"
                .to_owned(),
        )
    } else {
        None
    };
    Some(Cron {
        uid: cron.metadata.uid?,
        unsafe_because,
        suspended: spec.suspend == Some(true),
        zoned: spec.time_zone.is_some(),
    })
}

#[cfg(test)]
mod tests;
