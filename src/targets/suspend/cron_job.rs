//! Switches a CronJob: it creates Jobs where the lock is held, and none of its Jobs runs in any other
//! cluster.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use k8s_openapi::{
    api::batch::v1::CronJob,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::Api;
use serde_json::{Value, json};

use super::{
    TRIES, conflict,
    job::{JOB_NAME, suspension},
    jobs::Jobs,
    missing,
    write::{Write, patch, patch_status, resume},
};
use crate::{
    api::lock_status::TargetState,
    clock,
    lease::{BootInstant, FencingToken},
    targets::{
        Changes, EventReason, Found, StartPermit, Step, StopPermit, TargetContext, TargetError,
        attempts::Attempts,
        fencing::{not_fenced, unfenced, unfenced_template},
        in_flight::InFlight,
        owner::declared_by,
        pods::Left,
        read::Place,
        shared::Index,
        slim::Job,
    },
};

/// The amount by which the clock of the cluster that ran the earlier slots may be ahead of this one. A slot
/// that is due within it is skipped here rather than run in both clusters.
const CLOCKS_APART: Duration = Duration::from_secs(1);

pub(in crate::targets) struct Schedule {
    context: TargetContext,
    name: String,
    /// The name of the CronJob in messages, as in `CronJob billing/report`.
    called: String,
    api: Api<CronJob>,
    place: Place,
    jobs: Jobs,
    in_flight: InFlight,
    /// The time since which a list is awaited.
    asked: Option<BootInstant>,
    /// The change counter of its Jobs at the last confirmed stop.
    confirmed: Option<u64>,
    /// The lease under which the abandoned Jobs were deleted.
    returned: Option<FencingToken>,
    /// The lease under which an event reported that no deadline is set.
    warned: Option<FencingToken>,
    /// The lease under which the CronJob was not suspended, and its UID.
    ran: Option<(FencingToken, Option<String>)>,
    /// The UID of the CronJob that was suspended since the last start.
    stopped: Option<String>,
    attempts: Attempts,
}

/// The outcome of the suspension of a CronJob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspended {
    /// The CronJob was suspended already, or does not exist.
    Before,
    Now,
    /// The CronJob was suspended again, because another writer had resumed it.
    Again,
    /// The CronJob keeps changing, and must be read again.
    Late,
    /// The permit is gone.
    Left,
}

impl Schedule {
    pub(in crate::targets) fn new(context: TargetContext, name: &str) -> Self {
        let called = format!("CronJob {}/{name}", context.namespace);
        Self {
            name: name.to_owned(),
            api: Api::namespaced(context.client.clone(), &context.namespace),
            place: super::place::<CronJob>(&context, name),
            jobs: Jobs::new(&context, name, &called),
            called,
            in_flight: InFlight::default(),
            asked: None,
            confirmed: None,
            returned: None,
            warned: None,
            ran: None,
            stopped: None,
            attempts: Attempts::default(),
            context,
        }
    }

    async fn read(&self) -> Result<Option<CronJob>, TargetError> {
        let found = self.api.get(&self.name).await;
        let what = || format!("reading {}", self.called);
        self.place.settle(what, found).await
    }

    pub(in crate::targets) async fn observe(&self) -> Result<TargetState, TargetError> {
        if self.read().await?.is_some_and(|found| !is_suspended(&found)) {
            return Ok(TargetState::Active);
        }
        let Some(jobs) = self.jobs.known()? else {
            return Ok(TargetState::Unknown);
        };
        let stopped = self.jobs.are_stopped(&jobs) && self.jobs.pods_left(None).await?.is_empty();
        Ok(if stopped {
            TargetState::Standby
        } else {
            TargetState::Changing
        })
    }

    pub(in crate::targets) async fn start(&mut self, permit: &StartPermit) -> Result<Step, TargetError> {
        (self.asked, self.confirmed) = (None, None);
        let Some(found) = self.read().await? else {
            return Ok(missing(&self.called));
        };
        self.warn_of_slots(&found, permit.token());
        self.stopped = None;
        self.attempts.settle();
        let this = (permit.token(), found.metadata.uid.clone());
        let suspended = is_suspended(&found);
        let names = (&*self.name, &*self.called);
        if let Some(step) = not_fenced(&self.context, &self.place, names, state(suspended)).await? {
            return Ok(step);
        }
        if suspended || self.returned != Some(permit.token()) {
            if !permit.holds() {
                return Ok(Step::Working(state(suspended)));
            }
            if self.jobs.delete_abandoned(permit).await? {
                return Ok(Step::Working(state(suspended)));
            }
            self.returned = Some(permit.token());
        }
        if !suspended {
            self.ran = Some(this);
            self.in_flight.settle();
            return Ok(Step::Done);
        }
        let revived = self.ran.as_ref() == Some(&this);
        let step = self.resume(found, permit).await?;
        if step != Step::Done {
            return Ok(step);
        }
        self.ran = Some(this);
        Ok(if revived {
            Step::Contested(format!("{} was suspended by another writer", self.called))
        } else {
            step
        })
    }

    async fn resume(&mut self, found: CronJob, permit: &StartPermit) -> Result<Step, TargetError> {
        if let Some(owner) = declared_by(&found.metadata, &["spec", "suspend"]) {
            return Ok(conflict(&self.called, &owner));
        }
        let found = match self.pass_missed_slots(found, permit).await? {
            Write::Done(found) => found,
            Write::Missing => return Ok(missing(&self.called)),
            Write::Late => return Ok(Step::Working(TargetState::Standby)),
        };
        // The CronJob controller observes versions in order, so it cannot see the resumption without the new time.
        let change = json!({
            "metadata": { "resourceVersion": found.metadata.resource_version },
            "spec": { "suspend": false },
        });
        let names = (&*self.name, &*self.called);
        let written = resume(&self.api, names, &change, &mut self.in_flight, permit).await?;
        Ok(match written {
            Write::Done(_) => Step::Done,
            Write::Missing => missing(&self.called),
            Write::Late => Step::Working(TargetState::Standby),
        })
    }

    /// Sets the time of the last run to now, plus [`CLOCKS_APART`]. When a CronJob is resumed, its controller at once
    /// runs the last slot that it missed, which has already run in the cluster that held the lock.
    async fn pass_missed_slots(
        &self,
        found: CronJob,
        permit: &StartPermit,
    ) -> Result<Write<CronJob>, TargetError> {
        let last = found
            .status
            .as_ref()
            .and_then(|status| status.last_schedule_time.as_ref());
        let Some(time) = passed(last, clock::unix_time()) else {
            return Ok(Write::Done(Box::new(found)));
        };
        let change = json!({
            "metadata": { "resourceVersion": found.metadata.resource_version },
            "status": { "lastScheduleTime": time },
        });
        let what = format!("writing the lastScheduleTime of {}", self.called);
        if !permit.holds() {
            return Ok(Write::Late);
        }
        patch_status(&self.api, &self.name, &change, &what).await
    }

    /// Suspends the CronJob and its Jobs. Done when the pods of all its Jobs are gone.
    pub(in crate::targets) async fn stop(
        &mut self,
        by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        self.ran = None;
        let suspended = self.suspend(permit).await;
        if matches!(suspended, Ok(Suspended::Left)) {
            return Ok(Step::Working(TargetState::Active));
        }
        let again = matches!(suspended, Ok(Suspended::Again));
        let wrote = suspended.map(|suspended| suspended != Suspended::Before);
        // The Jobs are stopped even if the CronJob is gone or cannot be written.
        let changes = self.jobs.changes();
        if !matches!(wrote, Ok(false)) {
            self.asked = None;
        }
        let known = self.jobs.known()?;
        // The watch may be behind, so a list confirms the stop, and is valid until the next change.
        let mut all = match &known {
            Some(_) => None,
            None => Some(self.list().await?),
        };
        let mut jobs = known.unwrap_or_else(|| all.iter().flat_map(|all| all.of(&self.name)).collect());
        let mut abandoned = self.jobs.abandon(&jobs, permit).await;
        let mut left = self.jobs.pods_left(all.as_deref()).await?;
        if !matches!(abandoned, Ok(false)) {
            self.asked = None;
        }
        let confirms = matches!(wrote, Ok(false)) && all.is_none() && self.confirmed != Some(changes);
        if confirms && self.are_gone(&abandoned, &jobs, &left) {
            let list = self.list().await?;
            jobs = list.of(&self.name);
            abandoned = self.jobs.abandon(&jobs, permit).await;
            left = self.jobs.pods_left(Some(&list)).await?;
            all = Some(list);
        }
        drop(all);
        // Until the controller sees the suspension, it may create one more Job: only a later read can show
        // that no Job is left.
        let settled = !wrote? && self.are_gone(&abandoned, &jobs, &left);
        abandoned?;
        if settled && !self.in_flight.is_open() {
            self.in_flight.settle();
            self.confirmed = Some(changes);
            return Ok(Step::Done);
        }
        self.confirmed = None;
        self.jobs.pods.hurry(&left, by, permit).await?;
        self.jobs.renew(&jobs, permit).await?;
        Ok(if again {
            Step::Contested(format!("{} was resumed by another writer", self.called))
        } else {
            Step::Working(TargetState::Changing)
        })
    }

    /// Returns a list that began after the last write. If a step ends before the list is complete, the next step waits
    /// for the same list.
    async fn list(&mut self) -> Result<Arc<Index>, TargetError> {
        let since = *self.asked.get_or_insert_with(clock::now);
        let listed = self.jobs.listed(since).await;
        self.asked = None;
        listed
    }

    fn are_gone(&self, abandoned: &Result<bool, TargetError>, jobs: &[Arc<Job>], left: &[Left]) -> bool {
        matches!(abandoned, Ok(false)) && self.jobs.are_stopped(jobs) && left.is_empty()
    }

    async fn suspend(&mut self, permit: &StopPermit) -> Result<Suspended, TargetError> {
        let what = format!("suspending {}", self.called);
        for _ in 0..TRIES {
            let found = self.read().await?.filter(|found| !is_suspended(found));
            let Some(found) = found else {
                self.attempts.settle();
                return Ok(Suspended::Before);
            };
            let again = self.stopped.is_some() && self.stopped == found.metadata.uid;
            if !permit.holds(Found::of(again)) {
                self.attempts.settle();
                return Ok(Suspended::Left);
            }
            let mut change = suspension();
            self.attempts.send().require(&mut change, &found.metadata);
            match patch(&self.api, &self.name, &change, &what).await? {
                // An unanswered start was for an earlier version, and can no longer apply.
                Write::Done(_) => {
                    self.in_flight.settle();
                    self.attempts.settle();
                }
                Write::Missing => {}
                Write::Late => continue,
            }
            self.stopped = found.metadata.uid;
            return Ok(if again { Suspended::Again } else { Suspended::Now });
        }
        Ok(Suspended::Late)
    }

    /// Emits a warning once for each lease.
    fn warn_of_slots(&mut self, found: &CronJob, token: FencingToken) {
        let deadline = found
            .spec
            .as_ref()
            .and_then(|spec| spec.starting_deadline_seconds);
        if deadline.is_some() || self.warned == Some(token) {
            return;
        }
        self.warned = Some(token);
        let text = format!(
            "{} has no startingDeadlineSeconds: when a client other than the operator resumes it, a run that it \
             missed starts at once, regardless of its age. Add to its spec: startingDeadlineSeconds: 60",
            self.called
        );
        self.context.emit(EventReason::NoStartingDeadline, text);
    }
}

impl Schedule {
    pub(in crate::targets) fn late(&self) -> Option<String> {
        self.jobs.pods.late()
    }

    /// Returns a running pod that is not fenced, or the template if the next pods from it would not be
    /// fenced.
    pub(in crate::targets) async fn unfenced(&self) -> Result<Option<String>, TargetError> {
        let resumed = |object: &Value| object.pointer("/spec/suspend") != Some(&Value::Bool(true));
        let names = (&*self.name, &*self.called);
        let template = unfenced_template(&self.context, &self.place, names, resumed).await?;
        if template.is_some() {
            return Ok(template);
        }
        let belong = |pod: &ObjectMeta| self.jobs.made_pod(None, pod);
        unfenced(&self.context, (JOB_NAME, &self.called), belong).await
    }

    pub(in crate::targets) fn changes(&self) -> Changes {
        let context = &self.context;
        let followed = context
            .shared
            .follow(&self.place.resource, &context.namespace, &self.name);
        let changed = stream::unfold(followed, |mut followed| async {
            followed.changed().await;
            Some(((), followed))
        });
        stream::select(changed.boxed(), self.jobs.follow().boxed()).boxed()
    }
}

fn is_suspended(found: &CronJob) -> bool {
    found.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false)
}

const fn state(suspended: bool) -> TargetState {
    if suspended {
        TargetState::Standby
    } else {
        TargetState::Active
    }
}

/// Returns the new time of the last run; `None` if the recorded one is not earlier.
fn passed(last: Option<&Time>, now: Duration) -> Option<Time> {
    let until = i64::try_from((now + CLOCKS_APART).as_secs()).ok()?;
    let time = Timestamp::from_second(until).ok()?;
    last.is_none_or(|last| last.0 < time).then_some(Time(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_last_run_never_goes_back() {
        let time = |second| Time(Timestamp::from_second(second).unwrap());
        let now = Duration::from_millis(100_900);
        assert_eq!(passed(None, now), Some(time(101)));
        assert_eq!(passed(Some(&time(40)), now), Some(time(101)));
        assert_eq!(passed(Some(&time(101)), now), None);
        assert_eq!(passed(Some(&time(500)), now), None);
    }
}
