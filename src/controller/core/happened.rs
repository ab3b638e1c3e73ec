//! What to tell of targets.

use crate::{
    api::lock_status::{TargetState, TargetStatus},
    controller::{events::What, warden::Report},
};

/// Why nothing is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Off {
    Paused,
    /// It is said what would be done.
    Observed,
}

/// What changed of the targets since the report before.
pub(super) fn happened(before: Option<&Report>, now: &Report, off: Option<Off>) -> Vec<(What, String)> {
    let mut all = Vec::new();
    for target in &now.targets {
        let mut known = before.iter().flat_map(|report| &report.targets);
        let before = known.find(|known| known.name == target.name);
        all.extend(match off {
            None => switched(before, target),
            Some(Off::Observed) => would(before, target),
            Some(Off::Paused) => None,
        });
    }
    let conflict = |report: &Report| {
        report
            .trouble
            .clone()
            .filter(|(reason, _)| *reason == "EnforcementConflict")
    };
    if let Some((_, text)) = conflict(now)
        && before.and_then(conflict).is_none()
    {
        all.push((What::EnforcementConflict, text));
    }
    all
}

fn switched(before: Option<&TargetStatus>, target: &TargetStatus) -> Option<(What, String)> {
    let before = before.filter(|before| before.observed != target.observed);
    match (before?, target.observed) {
        (_, TargetState::Active) => Some((What::TargetActivated, format!("target {} runs", target.name))),
        (_, TargetState::Standby) => {
            Some((What::TargetStopped, format!("target {} is stopped", target.name)))
        }
        _ => None,
    }
}

/// Once for each change of mind.
fn would(before: Option<&TargetStatus>, target: &TargetStatus) -> Option<(What, String)> {
    let said = before.and_then(intention);
    let intention = intention(target).filter(|now| said.as_ref() != Some(now))?;
    Some((
        What::Told("Observed"),
        format!("enforcement: Observe: {intention}"),
    ))
}

/// What would be done with a target that is not as it should be.
pub(in crate::controller) fn intention(target: &TargetStatus) -> Option<String> {
    match (target.desired, target.observed) {
        (TargetState::Active, TargetState::Standby | TargetState::Changing) => {
            Some(format!("would start target {}", target.name))
        }
        (TargetState::Standby, TargetState::Active | TargetState::Changing) => {
            Some(format!("would stop target {}", target.name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TargetState::{Active, Standby, Unknown};

    fn target(desired: TargetState, observed: TargetState) -> TargetStatus {
        TargetStatus {
            name: "t".into(),
            desired,
            observed,
        }
    }

    #[test]
    fn whoever_observes_says_once_what_it_would_do() {
        let text = |before: Option<&TargetStatus>, now| would(before, &now).map(|(_, text)| text);
        let start = target(Active, Standby);
        assert_eq!(
            text(None, start.clone()).as_deref(),
            Some("enforcement: Observe: would start target t")
        );
        assert_eq!(text(Some(&start), start.clone()), None);
        assert_eq!(text(Some(&start), target(Active, Active)), None);
        assert!(
            text(Some(&start), target(Standby, Active))
                .unwrap()
                .contains("would stop")
        );
        assert_eq!(text(None, target(Standby, Unknown)), None);
    }

    #[test]
    fn what_is_found_at_first_did_not_happen() {
        assert_eq!(switched(None, &target(Active, Active)), None);
        let unknown = target(Active, Unknown);
        let (what, _) = switched(Some(&unknown), &target(Active, Active)).unwrap();
        assert_eq!(what, What::TargetActivated);
        assert_eq!(
            switched(Some(&target(Active, Active)), &target(Standby, Active)),
            None
        );
    }
}
