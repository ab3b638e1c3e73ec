//! Sets the condition of a fenced lock that shows whether its pods are guarded. `Ready` does not depend on it.

use super::condition::{ConditionType, Conditions, Truth};
use crate::{
    api::plan::LockPlan,
    controller::{
        node_guards::{Guarded, NodeGuards},
        problem::Reason,
        target_task::TargetReport,
    },
};

const KIND: ConditionType = ConditionType::NodesGuarded;

pub(super) fn set(
    plan: &LockPlan,
    report: Option<&TargetReport>,
    guards: &NodeGuards,
    conditions: &mut Conditions<'_>,
) {
    if !plan.is_fenced() {
        return conditions.withdraw(KIND);
    }
    let nodes = report.and_then(|report| report.nodes.as_ref());
    let Some(nodes) = nodes else {
        let text = "the pods were not inspected yet";
        return conditions.set(KIND, Truth::Unknown, Reason::NotInspected, text.into());
    };
    let (truth, reason, text) = match guards.judge(nodes) {
        Guarded::Unknown => (
            Truth::Unknown,
            Reason::GuardsNotFollowed,
            "the pods of the node agent and the node guardian are not known".to_owned(),
        ),
        Guarded::Yes if nodes.is_empty() => {
            (Truth::True, Reason::Guarded, "no pod of the lock runs".to_owned())
        }
        Guarded::Yes => {
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            let text = format!(
                "a node agent and a node guardian are ready on {}",
                nodes.join(", ")
            );
            (Truth::True, Reason::Guarded, text)
        }
        Guarded::No(missing) => {
            let missing = missing
                .iter()
                .map(|(node, parts)| format!("node {node} has no ready pod of {}", parts.join(" and ")));
            let text = missing.collect::<Vec<_>>().join("; ");
            (Truth::False, Reason::NotGuarded, text)
        }
    };
    conditions.set(KIND, truth, reason, text);
}
