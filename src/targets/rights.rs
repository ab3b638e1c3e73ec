//! What has to be granted for an action, said where it is missing.

use futures_util::{FutureExt, future::BoxFuture};

use super::{Action, Changes, Leave, Step, TargetError};
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

/// The rights of a kind that is always the same.
fn of(work: &TargetWork) -> Option<String> {
    let batch = |resource: &str, verbs: &str| {
        format!("- apiGroups: [\"batch\"]\n  resources: [{resource}]\n  verbs: [{verbs}]")
    };
    match work {
        TargetWork::Suspend { object } if object.kind == "Job" => Some(granted(
            "batch",
            "jobs",
            &batch("jobs", "get, list, watch, patch"),
        )),
        TargetWork::Suspend { .. } | TargetWork::OncePerSchedule { .. } => {
            let rules = [
                batch("cronjobs", "get, list, watch, patch"),
                batch("cronjobs/status", "patch"),
                batch("jobs", "list, watch, patch, delete"),
            ];
            Some(granted("batch", "cronjobs", &rules.join("\n")))
        }
        TargetWork::LabelPods { .. } => Some(granted(
            "",
            "pods",
            "- apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [list, watch, patch]",
        )),
        // Any kind: known when it was found.
        TargetWork::Scale { .. } => None,
    }
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
        step: BoxFuture<'a, Result<T, TargetError>>,
    ) -> BoxFuture<'a, Result<T, TargetError>> {
        async move { step.await.map_err(|error| error.granting(|| rights.to_owned())) }.boxed()
    }
}

impl Action for Explained {
    fn declare(&mut self, work: &TargetWork) {
        self.action.declare(work);
    }

    fn runs_untouched(&self) -> bool {
        self.action.runs_untouched()
    }

    fn look(&mut self) -> BoxFuture<'_, Result<TargetState, TargetError>> {
        Self::explain(&self.rights, self.action.look())
    }

    fn start<'a>(&'a mut self, leave: &'a Leave) -> BoxFuture<'a, Result<Step, TargetError>> {
        Self::explain(&self.rights, self.action.start(leave))
    }

    fn stop(&mut self, by: Option<Moment>) -> BoxFuture<'_, Result<Step, TargetError>> {
        Self::explain(&self.rights, self.action.stop(by))
    }

    fn ready(&mut self) -> BoxFuture<'_, Result<Option<bool>, TargetError>> {
        Self::explain(&self.rights, self.action.ready())
    }

    fn changes(&self) -> Changes {
        self.action.changes()
    }
}
