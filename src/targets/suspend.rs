//! Suspend: sets `spec.suspend` of a CronJob or a Job, and stops the Jobs of a CronJob.

mod cron_job;
mod job;
mod jobs;
mod observed;
mod write;

pub(super) use cron_job::Schedule;
pub(super) use job::OneJob;
use kube::{Resource, api::ApiResource};

use super::{ConditionReason, Step, TargetContext, kind::Need, owner::named, read::Place};
use crate::api::{lock_status::TargetState, target::TargetRef};

/// The maximum number of attempts in one step: the controller may write to the object between a read and a
/// write.
const TRIES: usize = 8;

/// Returns the place of an object of `batch/v1`.
fn place<K: Resource<DynamicType = ()>>(context: &TargetContext, name: &str) -> Place {
    let resource = ApiResource::erase::<K>(&());
    let reference = TargetRef {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        name: name.to_owned(),
    };
    Place::of(
        &context.client,
        &context.shared.kinds,
        &reference,
        Need::Served,
        resource,
    )
}

/// Reports a missing object. It is started once it exists.
fn missing(called: &str) -> Step {
    let text = format!("{called} does not exist");
    Step::trouble(TargetState::Standby, ConditionReason::TargetNotFound, text)
}

/// Reports that another manager declares the object to be suspended.
fn conflict(called: &str, owner: &str) -> Step {
    let owner = named(owner);
    let text = format!(
        "{called}: spec.suspend: true belongs to {owner}: set it to false in the same way, or remove suspend from \
         the applied manifest, so that the operator can set it"
    );
    Step::trouble(TargetState::Standby, ConditionReason::EnforcementConflict, text)
}

/// Reports that another controller resumes and suspends the Job for its own reasons.
fn contested(called: &str, controller: &str) -> Step {
    let text = format!(
        "{called}: spec.suspend is decided by {controller}, which the operator does not overwrite: remove this Job \
         from the targets, and make its pods wait for the lock (redlock run)"
    );
    Step::trouble(TargetState::Standby, ConditionReason::EnforcementConflict, text)
}
