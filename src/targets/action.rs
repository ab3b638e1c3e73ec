//! The action of one target.

use super::{
    Changes, StartPermit, Step, StopPermit, TargetContext, TargetError,
    label_pods::LabelPods,
    leader_lease::LeaderLease,
    once_per_schedule::OncePerSchedule,
    patch::FieldPatch,
    rights,
    scale::Scale,
    suspend::{OneJob, Schedule},
};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork},
    lease::BootInstant,
};

/// The reason of a late stop that no pod delays.
const UNCONFIRMED: &str = "the controller of the object has not confirmed the stop, and may create a pod: check the controller \
                           manager of the cluster";

/// An action on one object. Each call performs one step, and its future may be dropped at any await.
pub(crate) struct Action {
    kind: Kind,
    /// The rights that the action needs; `None` if they depend on the object.
    rights: Option<String>,
}

enum Kind {
    Scale(Box<Scale>),
    SuspendJob(Box<OneJob>),
    SuspendCronJob(Box<Schedule>),
    OncePerSchedule(Box<OncePerSchedule>),
    LabelPods(Box<LabelPods>),
    Lease(Box<LeaderLease>),
    Patch(Box<FieldPatch>),
}

/// Makes the same call on the action of each kind.
macro_rules! each {
    ($kind:expr, $action:ident => $call:expr) => {
        match $kind {
            Kind::Scale($action) => $call,
            Kind::SuspendJob($action) => $call,
            Kind::SuspendCronJob($action) => $call,
            Kind::OncePerSchedule($action) => $call,
            Kind::LabelPods($action) => $call,
            Kind::Lease($action) => $call,
            Kind::Patch($action) => $call,
        }
    };
}

impl Action {
    /// Creates the action that a target declares.
    pub(crate) fn new(context: TargetContext, work: &TargetWork) -> Self {
        let kind = match work {
            TargetWork::Scale {
                object,
                active_replicas: active,
                standby_replicas: standby,
            } => Kind::Scale(Box::new(Scale::new(context, object, *active, *standby))),
            // The kind was validated with the lock: it is `Job` or `CronJob` of `batch/v1`.
            TargetWork::Suspend { object } if object.kind == "Job" => {
                Kind::SuspendJob(Box::new(OneJob::new(context, &object.name)))
            }
            TargetWork::Suspend { object } => {
                Kind::SuspendCronJob(Box::new(Schedule::new(context, &object.name)))
            }
            TargetWork::OncePerSchedule { object, max_slot_age } => {
                Kind::OncePerSchedule(Box::new(OncePerSchedule::new(context, object, *max_slot_age)))
            }
            TargetWork::LabelPods { selector } => {
                Kind::LabelPods(Box::new(LabelPods::new(context, selector)))
            }
            TargetWork::Lease { object, stop } => {
                Kind::Lease(Box::new(LeaderLease::new(context, object, *stop)))
            }
            TargetWork::Patch { object, patch, stop } => {
                Kind::Patch(Box::new(FieldPatch::new(context, object, patch, *stop)))
            }
        };
        Self {
            kind,
            rights: rights::of(work),
        }
    }

    /// Applies new settings for the same object.
    pub(crate) fn declare(&mut self, work: &TargetWork) {
        match &mut self.kind {
            Kind::Scale(action) => action.declare(work),
            Kind::OncePerSchedule(action) => action.declare(work),
            Kind::Lease(action) => action.declare(work),
            Kind::Patch(action) => action.declare(work),
            // These actions have no settings: another selector is another target.
            Kind::SuspendJob(_) | Kind::SuspendCronJob(_) | Kind::LabelPods(_) => {}
        }
    }

    /// The target leaves the lock, or the lock ends: what a start may have set has to be undone, and nothing may be left
    /// behind that only the lock would remove.
    pub(crate) fn undeclare(&mut self) {
        match &mut self.kind {
            Kind::Patch(action) => action.undeclare(),
            Kind::Lease(action) => action.undeclare(),
            Kind::Scale(_)
            | Kind::SuspendJob(_)
            | Kind::SuspendCronJob(_)
            | Kind::OncePerSchedule(_)
            | Kind::LabelPods(_) => {}
        }
    }

    /// Reports whether the object was started and the watch shows no later version of it: a start then has
    /// nothing to do.
    pub(crate) fn runs_untouched(&self) -> bool {
        matches!(&self.kind, Kind::Scale(action) if action.runs_untouched())
    }

    pub(crate) async fn observe(&mut self) -> Result<TargetState, TargetError> {
        let found = match &mut self.kind {
            Kind::Scale(action) => action.observe().await,
            Kind::SuspendJob(action) => action.observe().await,
            Kind::SuspendCronJob(action) => action.observe().await,
            Kind::OncePerSchedule(action) => action.observe(),
            Kind::LabelPods(action) => action.observe().await,
            Kind::Lease(action) => action.observe().await,
            Kind::Patch(action) => action.observe().await,
        };
        self.explain(found)
    }

    pub(crate) async fn start(&mut self, permit: &StartPermit) -> Result<Step, TargetError> {
        let step = each!(&mut self.kind, action => action.start(permit).await);
        self.explain_step(step)
    }

    /// Stops the object. If `by` is set, every part of the object must be gone at that time.
    pub(crate) async fn stop(
        &mut self,
        by: Option<BootInstant>,
        permit: &StopPermit,
    ) -> Result<Step, TargetError> {
        let step = each!(&mut self.kind, action => action.stop(by, permit).await);
        self.explain_step(step)
    }

    /// Returns the parts of the object that a late stop still waits for, and where they run. Without a pod, the controller of
    /// the object is awaited.
    pub(crate) fn late(&self) -> Option<String> {
        let controlled = |pods: Option<String>| Some(pods.unwrap_or_else(|| UNCONFIRMED.to_owned()));
        match &self.kind {
            Kind::Scale(action) => controlled(action.late()),
            Kind::SuspendJob(action) => controlled(action.late()),
            Kind::SuspendCronJob(action) => controlled(action.late()),
            Kind::Lease(action) => action.late(),
            Kind::Patch(action) => action.late(),
            Kind::OncePerSchedule(_) | Kind::LabelPods(_) => None,
        }
    }

    /// Reports whether a pod of the object is ready; `None` for an object without a pod selector, and for all
    /// actions other than Scale.
    pub(crate) async fn ready(&mut self) -> Result<Option<bool>, TargetError> {
        match &mut self.kind {
            Kind::Scale(action) => action.ready().await,
            _ => Ok(None),
        }
    }

    /// For a fenced lock, returns a running pod of the object that is not fenced, or an unfenced pod
    /// template.
    pub(crate) async fn unfenced(&mut self) -> Result<Option<String>, TargetError> {
        match &mut self.kind {
            Kind::Scale(action) => action.unfenced().await,
            Kind::SuspendJob(action) => action.unfenced().await,
            Kind::SuspendCronJob(action) => action.unfenced().await,
            // A fenced lock has no such target.
            Kind::OncePerSchedule(_) | Kind::LabelPods(_) | Kind::Lease(_) | Kind::Patch(_) => Ok(None),
        }
    }

    /// Follows the object, so that a write by another writer is noticed at once.
    pub(crate) fn changes(&self) -> Changes {
        each!(&self.kind, action => action.changes())
    }

    fn explain<T>(&self, result: Result<T, TargetError>) -> Result<T, TargetError> {
        match &self.rights {
            Some(rights) => result.map_err(|error| error.granting(|| rights.clone())),
            None => result,
        }
    }

    fn explain_step(&self, step: Result<Step, TargetError>) -> Result<Step, TargetError> {
        let step = self.explain(step)?;
        Ok(match &self.rights {
            Some(rights) => rights::explained(step, rights),
            None => step,
        })
    }
}
