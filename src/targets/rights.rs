//! What has to be granted for an action, said where it is missing.

use futures_util::{FutureExt, future::BoxFuture};

use super::{Action, Changes, ConditionReason, StartPermit, Step, StopPermit, TargetError};
use crate::{
    api::{lock_status::TargetState, plan::TargetWork},
    lease::Moment,
};

/// To be pasted: a value of the chart, or the rules.
pub(super) fn granted(group: &str, resource: &str, rules: &str) -> String {
    format!(
        "with the chart: targetKinds: [{{group: {group:?}, resource: {resource}}}]; without, in a ClusterRole:\n{rules}"
    )
}

/// The rights of a kind that is always the same, as the chart grants them.
fn of(work: &TargetWork) -> Option<String> {
    let rule = |group: &str, resource: &str, verbs: &str| {
        format!("- apiGroups: [{group:?}]\n  resources: [{resource}]\n  verbs: [{verbs}]\n")
    };
    // What was suspended has stopped when its pods are gone.
    let pods_go = rule("", "pods", "list, delete");
    // A condition that is older than the last start is removed.
    let conditions = rule("batch", "jobs/status", "patch");
    let (group, resource, rules) = match work {
        TargetWork::Suspend { object } if object.kind == "Job" => {
            let jobs = rule("batch", "jobs", "get, list, watch, patch");
            ("batch", "jobs", jobs + &conditions + &pods_go)
        }
        TargetWork::Suspend { .. } | TargetWork::OncePerSchedule { .. } => {
            let crons = rule("batch", "cronjobs", "get, list, watch, patch");
            let statuses = rule("batch", "cronjobs/status", "patch");
            let jobs = rule("batch", "jobs", "list, watch, patch, delete");
            (
                "batch",
                "cronjobs",
                crons + &statuses + &jobs + &conditions + &pods_go,
            )
        }
        TargetWork::LabelPods { .. } => ("", "pods", rule("", "pods", "list, watch, patch")),
        // Any kind: known when it was found.
        TargetWork::Scale { .. } => return None,
    };
    Some(granted(group, resource, rules.trim_end()))
}

/// The same action, whose errors say so.
pub(super) fn explained(action: Box<dyn Action>, work: &TargetWork) -> Box<dyn Action> {
    match of(work) {
        Some(rights) => Box::new(Explained { action, rights }),
        None => action,
    }
}

struct Explained {
    action: Box<dyn Action>,
    rights: String,
}

impl Explained {
    fn explain<'a, T: Send + 'a>(
        rights: &'a str,
        found: BoxFuture<'a, Result<T, TargetError>>,
    ) -> BoxFuture<'a, Result<T, TargetError>> {
        async move { found.await.map_err(|error| error.granting(|| rights.to_owned())) }.boxed()
    }

    /// Also of a write that was refused while the rest went on.
    fn explain_step<'a>(
        rights: &'a str,
        step: BoxFuture<'a, Result<Step, TargetError>>,
    ) -> BoxFuture<'a, Result<Step, TargetError>> {
        let explain = move |step| match step {
            Step::Trouble(mut why) if why.reason == ConditionReason::Forbidden => {
                why.text = format!("{}\n{rights}", why.text);
                Step::Trouble(why)
            }
            step => step,
        };
        async move { Self::explain(rights, step).await.map(explain) }.boxed()
    }
}

impl Action for Explained {
    fn declare(&mut self, work: &TargetWork) {
        self.action.declare(work);
    }

    fn runs_untouched(&self) -> bool {
        self.action.runs_untouched()
    }

    fn late(&self) -> Option<String> {
        self.action.late()
    }

    fn observe(&mut self) -> BoxFuture<'_, Result<TargetState, TargetError>> {
        Self::explain(&self.rights, self.action.observe())
    }

    fn start<'a>(&'a mut self, permit: &'a StartPermit) -> BoxFuture<'a, Result<Step, TargetError>> {
        Self::explain_step(&self.rights, self.action.start(permit))
    }

    fn stop<'a>(
        &'a mut self,
        by: Option<Moment>,
        permit: &'a StopPermit,
    ) -> BoxFuture<'a, Result<Step, TargetError>> {
        Self::explain_step(&self.rights, self.action.stop(by, permit))
    }

    fn ready(&mut self) -> BoxFuture<'_, Result<Option<bool>, TargetError>> {
        Self::explain(&self.rights, self.action.ready())
    }

    fn changes(&self) -> Changes {
        self.action.changes()
    }
}
