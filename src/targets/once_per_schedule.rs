//! OncePerSchedule: each scheduled run of a CronJob happens in one cluster only.
//!
//! The Jobs of the CronJob are created suspended in every cluster. The cluster that holds the lock claims their slots
//! on the masters. A Job whose slot is claimed runs to its end, even after the lease has ended. The register of the
//! masters, and not the lease, ensures that a slot runs at most once, so an operation with an unknown result may be
//! repeated.

mod decide;
mod events;
mod job;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream};

use super::{
    Changes, ConditionReason, StartPermit, Step, StopPermit, TargetContext, TargetError,
    shared::{Followed, JobsOf, Shown},
    slim,
};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork, target::TargetRef},
    clock,
    lease::BootInstant,
};
use decide::{Due, Next, Power, TurnPermit};
pub(super) use job::Cron;
use job::{Job, Stage};
use write::Jobs;

/// The interval of reads of a slot that another cluster may claim at any time.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The pause before a retry that should succeed within milliseconds, such as after a conflict.
const SOON: Duration = Duration::from_millis(250);
/// The longest duration of a step. The next step continues with the remaining Jobs, so the caller waits a few seconds
/// at most.
const STEP: Duration = Duration::from_secs(2);

pub(super) struct OncePerSchedule {
    context: TargetContext,
    reference: TargetRef,
    max_age: Duration,
    cron: Followed<Cron>,
    jobs: JobsOf,
    desk: Jobs,
    /// The UIDs of Jobs whose slots were granted. A grant is final, even when a later slot is claimed before the Job
    /// runs.
    granted: BTreeSet<String>,
    /// The UIDs of Jobs whose slots the masters have not decided, and since when.
    undecided: BTreeMap<String, BootInstant>,
    emitted: Emitted,
}

/// The events that were emitted about the CronJob.
#[derive(Default)]
struct Emitted {
    /// The UID of the CronJob that was reported to have no time zone.
    no_zone: Option<String>,
    /// Whether the CronJob was reported to be suspended.
    suspended: bool,
}

/// The CronJob and its Jobs, older slots first.
enum Scene {
    NotYet,
    Missing,
    Here(Cron, Vec<Job>),
}

impl OncePerSchedule {
    pub(super) fn new(context: TargetContext, reference: &TargetRef, max_age: Duration) -> Self {
        Self {
            desk: Jobs::new(&context.client, &context.namespace),
            cron: context.shared.cron_job(&context.namespace, &reference.name),
            jobs: context.shared.jobs_of(&context.namespace, &reference.name),
            context,
            reference: reference.clone(),
            max_age,
            granted: BTreeSet::new(),
            undecided: BTreeMap::new(),
            emitted: Emitted::default(),
        }
    }

    fn scene(&self) -> Result<Scene, TargetError> {
        let cron = match self.cron.shown() {
            Shown::NotYet => return Ok(Scene::NotYet),
            Shown::Failed(error) => return Err(error),
            Shown::Missing => None,
            Shown::Here(cron) => Some(cron),
        };
        let Some(jobs) = self.jobs.known()? else {
            return Ok(Scene::NotYet);
        };
        let Some(cron) = cron else {
            return Ok(Scene::Missing);
        };
        // Jobs of an earlier CronJob of this name are about to be deleted, and do not count.
        let read = |found: &Arc<slim::Job>| job::job(&self.reference.name, found.as_ref().clone());
        let jobs = jobs.iter().filter_map(read).map(|(_, job)| job);
        let mut jobs: Vec<Job> = jobs.filter(|job| job.owner == cron.uid).collect();
        // The register only grows: once a later slot is claimed, an older one can no longer be claimed.
        jobs.sort_by_key(|job| job.slot);
        Ok(Scene::Here(cron, jobs))
    }

    fn called(&self) -> String {
        format!("CronJob {}/{}", self.context.namespace, self.reference.name)
    }

    /// Takes one turn over all Jobs. A turn without a permit to start claims no slot: it records the claims
    /// of other clusters, and starts Jobs whose slots this cluster has already claimed.
    async fn turn(&mut self, permit: TurnPermit<'_>) -> Result<Step, TargetError> {
        let start = permit.to_start();
        let found = if start.is_some() {
            TargetState::Active
        } else {
            TargetState::Standby
        };
        let (cron, jobs) = match self.scene()? {
            Scene::NotYet if start.is_some() => return Ok(Step::Working(TargetState::Changing)),
            Scene::NotYet => return Ok(Step::Waiting(SOON)),
            Scene::Missing if start.is_some() => {
                let text = format!("{} does not exist", self.called());
                return Ok(Step::trouble(
                    TargetState::Standby,
                    ConditionReason::TargetNotFound,
                    text,
                ));
            }
            Scene::Missing => return Ok(Step::Done),
            Scene::Here(cron, jobs) => (cron, jobs),
        };
        self.granted.retain(|uid| jobs.iter().any(|job| job.uid == *uid));
        self.undecided
            .retain(|uid, _| jobs.iter().any(|job| job.uid == *uid));
        self.emit_of(&cron, start.is_some());
        let power = self.power(permit, &cron, &jobs).await;
        let (began, mut again, mut refused) = (clock::now(), None, None);
        for job in &jobs {
            let next = match self.decide(job, &power).await {
                Ok(next) => next,
                // A refused write does not hold up the other Jobs.
                Err(error) if error.is_refusal() => {
                    refused = Some(error);
                    Next::Later(POLL_INTERVAL)
                }
                Err(error) => return Err(error),
            };
            let pause = match next {
                Next::Settled => None,
                Next::Later(pause) | Next::Blocks(pause) => Some(pause),
            };
            again = again.into_iter().chain(pause).min();
            if matches!(next, Next::Blocks(_)) {
                break;
            }
            if clock::now().since(began) > STEP {
                again = Some(Duration::ZERO);
                break;
            }
        }
        if let Some(why) = cron.unsafe_because {
            let text = format!("{}: {why}", self.called());
            return Ok(Step::trouble(found, ConditionReason::TargetNotSafe, text));
        }
        if let Some(error) = refused {
            return Ok(Step::trouble(found, error.reason(), error.to_string()));
        }
        Ok(again.map_or(Step::Done, Step::Waiting))
    }

    /// Returns the powers of this turn. A turn claims no slot of a CronJob that is not safe, but finishes
    /// earlier claims.
    async fn power<'a>(&self, permit: TurnPermit<'a>, cron: &Cron, jobs: &[Job]) -> Power<'a> {
        let claims = permit.to_start().is_some() && cron.unsafe_because.is_none();
        let needs_view = |slot| !claims || self.due(slot) == Due::TooOld;
        let view = if jobs.iter().filter_map(Job::wanted).any(needs_view) {
            self.view().await
        } else {
            None
        };
        Power { permit, claims, view }
    }
}

impl OncePerSchedule {
    pub(super) fn declare(&mut self, work: &TargetWork) {
        if let TargetWork::OncePerSchedule { max_slot_age, .. } = work {
            self.max_age = *max_slot_age;
        }
    }

    /// Returns `Active` while a Job that the operator started runs.
    pub(super) fn observe(&mut self) -> Result<TargetState, TargetError> {
        Ok(match self.scene()? {
            Scene::NotYet => TargetState::Unknown,
            Scene::Here(_, jobs) if jobs.iter().any(|job| job.stage == Stage::Runs) => TargetState::Active,
            Scene::Here(..) | Scene::Missing => TargetState::Standby,
        })
    }

    pub(super) async fn start(&mut self, permit: &StartPermit) -> Result<Step, TargetError> {
        self.turn(TurnPermit::Starts(permit)).await
    }

    /// Stops no Job: a started Job runs to its end. A stop with a bound therefore has nothing to wait for,
    /// and calls without a bound do the remaining work.
    pub(super) async fn stop(
        &mut self,
        by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        match by {
            Some(_) => Ok(Step::Waiting(SOON)),
            None => self.turn(TurnPermit::Stops(permit)).await,
        }
    }

    pub(super) fn changes(&self) -> Changes {
        let jobs = stream::unfold(self.jobs.clone(), |mut jobs| async {
            jobs.changed().await;
            Some(((), jobs))
        });
        stream::select(self.cron.changes().boxed(), jobs.boxed()).boxed()
    }
}
