//! Names the rights that an action needs, for errors about missing rights.

use super::{ConditionReason, Step};
use crate::api::plan::TargetWork;

/// Returns text to paste: a value of the chart, or the RBAC rules.
pub(super) fn granted(group: &str, resource: &str, rules: &str) -> String {
    format!(
        "with the chart: targetKinds: [{{group: {group:?}, resource: {resource}}}]; without, in a ClusterRole:\n{rules}"
    )
}

/// Returns the rights of an action whose kind is fixed, as the chart grants them.
pub(super) fn of(work: &TargetWork) -> Option<String> {
    let rule = |group: &str, resource: &str, verbs: &str| {
        format!("- apiGroups: [{group:?}]\n  resources: [{resource}]\n  verbs: [{verbs}]\n")
    };
    // A suspended object has stopped only when its pods are gone.
    let pods_go = rule("", "pods", "list, delete");
    // The operator removes a condition that is older than the last start.
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
        TargetWork::Lease { .. } => {
            let leases = rule("coordination.k8s.io", "leases", "get, list, watch, create, patch");
            ("coordination.k8s.io", "leases", leases + &rule("", "pods", "get"))
        }
        TargetWork::LabelPods { .. } => ("", "pods", rule("", "pods", "list, watch, patch")),
        // The resource is known only after discovery.
        TargetWork::Scale { .. } | TargetWork::Patch { .. } => return None,
    };
    Some(granted(group, resource, rules.trim_end()))
}

/// Adds the rights to a step that reports missing rights, even if only one write was refused and the rest was
/// done.
pub(super) fn explained(step: Step, rights: &str) -> Step {
    match step {
        Step::Trouble(mut why) if why.reason == ConditionReason::Forbidden => {
            why.text = format!("{}\n{rights}", why.text);
            Step::Trouble(why)
        }
        step => step,
    }
}
