//! Reports the trouble of pods whose labels need no change.

use super::{
    Cause, LabelPods,
    choice::{Choice, Wanted},
    snapshot::{PodSnapshot, ROLE},
};
use crate::{
    api::lock_status::TargetState,
    targets::{ConditionReason, Step},
};

impl LabelPods {
    /// Returns the step for pods that are in the wanted state, as far as they can be.
    pub(super) fn verdict(
        &self,
        pods: &[PodSnapshot],
        choice: &Choice,
        wanted: &Wanted,
        cause: Cause<'_>,
    ) -> Step {
        let state = match cause {
            Cause::Lease(_) if choice.keep.is_some() => TargetState::Active,
            Cause::Lease(_) => TargetState::Changing,
            Cause::Ordered(_) | Cause::Unheld(_) => TargetState::Standby,
        };
        if let Some(step) = self.unsafe_selector(pods, choice, state) {
            return step;
        }
        let Cause::Lease(permit) = cause else {
            return Step::Done;
        };
        let called = self.pods.called();
        if let Some(why) = self.pods.problem() {
            let text = format!("labelPods.selector cannot be read: {why}");
            return Step::trouble(TargetState::Unknown, ConditionReason::SelectorInvalid, text);
        }
        if choice.keep.is_none() {
            let (reason, text) = match (wanted, permit.holder()) {
                (Wanted::Holder { .. }, Some(holder)) => (
                    ConditionReason::HolderNotSelected,
                    format!("{holder} holds the lock, but is not a pod of {called}"),
                ),
                _ => (
                    ConditionReason::NoReadyPod,
                    format!("no pod of {called} is Ready: the first Ready pod gets the label"),
                ),
            };
            return Step::trouble(TargetState::Changing, reason, text);
        }
        if let Some(foreign) = &choice.foreign {
            let (pod, by) = (&foreign.name, foreign.by.as_deref().unwrap_or_default());
            let text = format!(
                "pod {pod} of {called} has label {ROLE} by target {by}: two targets cannot select one pod; if that \
                 lock no longer exists, remove the label"
            );
            return Step::trouble(TargetState::Active, ConditionReason::EnforcementConflict, text);
        }
        choice.later.map_or(Step::Done, Step::Waiting)
    }

    /// Returns the trouble of pods that may get the label again at any time, whether or not this cluster holds the lock.
    fn unsafe_selector(&self, pods: &[PodSnapshot], choice: &Choice, state: TargetState) -> Option<Step> {
        if let Some(manager) = &choice.template {
            let text = template(&self.pods.called(), manager);
            return Some(Step::trouble(state, ConditionReason::TargetNotSafe, text));
        }
        let text = self.overlap(pods)?;
        Some(Step::trouble(state, ConditionReason::EnforcementConflict, text))
    }

    /// Describes a pod that another target selects, too.
    fn overlap(&self, pods: &[PodSnapshot]) -> Option<String> {
        let selected = pods.iter().filter(|pod| pod.selected);
        let selected: Vec<(&str, &str)> = selected.map(|pod| (&*pod.name, &*pod.uid)).collect();
        let selections = &self.context.shared.selections;
        let (by, pod) = selections.other(&self.context.namespace, &self.pods.by, &selected)?;
        Some(format!(
            "pod {pod} of {} is also selected by target {by}: two targets cannot select one pod; change one of the \
             selectors",
            self.pods.called()
        ))
    }
}

pub(super) fn template(called: &str, manager: &str) -> String {
    format!(
        "pods of {called} are created with label {ROLE} (by {manager:?}): each pod is selected until the label is \
         removed; remove the label from the pod template"
    )
}

#[cfg(test)]
mod tests;
