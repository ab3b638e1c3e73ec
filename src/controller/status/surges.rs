//! Sets the condition of a lock whose single pod is doubled by a rollout. `Ready` does not depend on it.

use super::condition::{ConditionType, Conditions};
use crate::{
    api::lock_status::LeaderLockStatus,
    controller::{events::EventReason, problem::Reason, templates::Surges},
};

const KIND: ConditionType = ConditionType::SurgesOnRollout;

/// Sets the condition to true while it applies, and to false once it is fixed: an object that never surged has no such
/// condition.
pub(super) fn set(surges: &Surges, conditions: &mut Conditions<'_>) {
    match surges {
        Surges::Of(objects) => conditions.set(KIND, true, Reason::SurgingStrategy, advice(objects)),
        Surges::Never if conditions.before(KIND).is_some() => {
            let text = "a rollout ends the old pod before it creates the new one";
            conditions.set(KIND, false, Reason::NoSurge, text.to_owned());
        }
        Surges::NotJudged => conditions.withdraw(KIND),
        // The previous condition is still the best knowledge.
        Surges::Never | Surges::Unknown => {}
    }
}

fn advice(objects: &[String]) -> String {
    format!(
        "a rollout of {} starts the new pod beside the old one, so that two run in this cluster meanwhile: write into its spec \
         `strategy: {{type: Recreate}}`, which waits until the old pod is gone, or `strategy: {{rollingUpdate: {{maxSurge: 0, \
         maxUnavailable: 1}}}}`, which ends the old pod first",
        objects.join(", ")
    )
}

/// Returns the event for a surge that this status is the first to report.
pub(in crate::controller) fn surge_news(
    before: &LeaderLockStatus,
    now: &LeaderLockStatus,
) -> Option<(EventReason, String)> {
    let message = |status: &LeaderLockStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == KIND.name() && condition.status == "True");
        found.map(|condition| condition.message.clone())
    };
    let text = message(now).filter(|text| message(before).as_ref() != Some(text))?;
    Some((EventReason::SurgesOnRollout, text))
}
