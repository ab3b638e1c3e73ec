//! A CronJob that makes Jobs where the lock is held, and has none that runs everywhere else.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::{api::batch::v1::CronJob, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{Api, api::PartialObjectMeta, runtime::watcher};
use serde_json::json;

use super::{
    conflict,
    job::suspension,
    jobs::Jobs,
    missing,
    write::{Write, patch, patch_status},
};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork},
    clock,
    lease::{FencingToken, Moment},
    targets::{
        Action, Changes, Leave, Site, Step, TargetError, follow, in_flight::InFlight, owner::declared_by,
    },
};

/// By so much may the clock of the cluster that ran the slots before be ahead of this one: a slot that comes due within
/// it is left out here rather than run in both.
const CLOCKS_APART: Duration = Duration::from_secs(1);

pub(super) struct Schedule {
    site: Site,
    name: String,
    /// As in `CronJob billing/report`.
    called: String,
    api: Api<CronJob>,
    jobs: Jobs,
    in_flight: InFlight,
    /// The lease under which what was abandoned was deleted.
    returned: Option<FencingToken>,
    /// The lease under which it was told that no deadline is set.
    warned: Option<FencingToken>,
}

impl Schedule {
    pub(super) fn new(site: Site, name: &str) -> Self {
        let called = format!("CronJob {}/{name}", site.namespace);
        Self {
            name: name.to_owned(),
            api: Api::namespaced(site.client.clone(), &site.namespace),
            jobs: Jobs::new(&site, name, &called),
            called,
            in_flight: InFlight::default(),
            returned: None,
            warned: None,
            site,
        }
    }

    async fn read(&self) -> Result<Option<CronJob>, TargetError> {
        let found = self.api.get_opt(&self.name).await;
        found.map_err(|error| TargetError::of(format!("reading {}", self.called), &error))
    }

    async fn try_look(&self) -> Result<TargetState, TargetError> {
        if self.read().await?.is_some_and(|found| !is_suspended(&found)) {
            return Ok(TargetState::Active);
        }
        let jobs = self.jobs.all().await?;
        Ok(
            if self.jobs.are_stopped(&jobs) && self.jobs.pods_left(&jobs).await?.is_empty() {
                TargetState::Standby
            } else {
                TargetState::Changing
            },
        )
    }

    async fn try_start(&mut self, leave: &Leave) -> Result<Step, TargetError> {
        let Some(found) = self.read().await? else {
            return Ok(missing(&self.called));
        };
        self.warn_of_slots(&found, leave.token());
        let suspended = is_suspended(&found);
        if suspended || self.returned != Some(leave.token()) {
            if !leave.holds() {
                return Ok(Step::Working(state(suspended)));
            }
            if self.jobs.delete_abandoned().await? {
                return Ok(Step::Working(state(suspended)));
            }
            self.returned = Some(leave.token());
        }
        if suspended {
            return self.resume(found, leave).await;
        }
        self.in_flight.settle();
        Ok(Step::Done)
    }

    async fn resume(&mut self, found: CronJob, leave: &Leave) -> Result<Step, TargetError> {
        if let Some(owner) = declared_by(&found.metadata, &["spec", "suspend"]) {
            return Ok(conflict(&self.called, &owner));
        }
        let found = match self.pass_missed_slots(found).await? {
            Write::Done(found) => found,
            Write::Missing => return Ok(missing(&self.called)),
            Write::Late => return Ok(Step::Working(TargetState::Standby)),
        };
        // Its controller, which reads versions in their order, cannot see the one without the other.
        let change = json!({
            "metadata": { "resourceVersion": found.metadata.resource_version },
            "spec": { "suspend": false },
        });
        if !leave.holds() {
            return Ok(Step::Working(TargetState::Standby));
        }
        let before = self.in_flight.send();
        let written = patch(
            &self.api,
            &self.name,
            &change,
            &format!("resuming {}", self.called),
        )
        .await;
        self.in_flight.answered(before, &written, |write| {
            matches!(write, Write::Done(_) | Write::Missing)
        });
        Ok(match written? {
            Write::Done(_) => Step::Done,
            Write::Missing => missing(&self.called),
            Write::Late => Step::Working(TargetState::Standby),
        })
    }

    /// A CronJob that is resumed runs the last slot that it missed at once, which ran where the lock was held. So it is
    /// told that it has run up to now.
    async fn pass_missed_slots(&self, found: CronJob) -> Result<Write<CronJob>, TargetError> {
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
        patch_status(&self.api, &self.name, &change, &what).await
    }

    async fn try_stop(&mut self, by: Option<Moment>) -> Result<Step, TargetError> {
        let wrote = self.suspend().await;
        // Also where the CronJob is gone or cannot be written.
        let jobs = self.jobs.all().await?;
        let abandoned = self.jobs.abandon(&jobs).await;
        let left = self.jobs.pods_left(&jobs).await?;
        // Its controller may make one more Job until it sees the suspension: only a later look can find none.
        let settled = !wrote? && !abandoned? && self.jobs.are_stopped(&jobs);
        if settled && left.is_empty() && !self.in_flight.is_open() {
            self.in_flight.settle();
            return Ok(Step::Done);
        }
        self.jobs.pods.hurry(&left, by).await?;
        Ok(Step::Working(TargetState::Changing))
    }

    /// True if it was not suspended.
    async fn suspend(&mut self) -> Result<bool, TargetError> {
        if self.read().await?.is_none_or(|found| is_suspended(&found)) {
            return Ok(false);
        }
        let what = format!("suspending {}", self.called);
        let written = patch(&self.api, &self.name, &suspension(), &what).await?;
        if matches!(written, Write::Done(_)) {
            // A start that is still under way was for an earlier version.
            self.in_flight.settle();
        }
        Ok(true)
    }

    /// Once a lease.
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
            "{} has no startingDeadlineSeconds: when somebody else than the lock resumes it, a run that it missed starts \
             at once, however old. Add to its spec: startingDeadlineSeconds: 60",
            self.called
        );
        self.site.warn("NoStartingDeadline", text);
    }
}

impl Action for Schedule {
    fn declare(&mut self, _: &TargetWork) {}

    fn look(&mut self) -> BoxFuture<'_, Result<TargetState, TargetError>> {
        self.try_look().boxed()
    }

    fn start<'a>(&'a mut self, leave: &'a Leave) -> BoxFuture<'a, Result<Step, TargetError>> {
        self.try_start(leave).boxed()
    }

    /// Done when the pods of all its Jobs are gone.
    fn stop(&mut self, by: Option<Moment>) -> BoxFuture<'_, Result<Step, TargetError>> {
        self.try_stop(by).boxed()
    }

    fn changes(&self) -> Changes {
        let api =
            Api::<PartialObjectMeta<CronJob>>::namespaced(self.site.client.clone(), &self.site.namespace);
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        stream::select(follow(api, only).boxed(), self.jobs.changes().boxed()).boxed()
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

/// What is to be written as the time of the last run; nothing where that is later already.
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
