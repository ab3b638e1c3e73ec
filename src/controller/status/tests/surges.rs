//! Tests the condition for a single pod that a rollout doubles.

use super::*;
use crate::controller::events::EventReason;

fn status(before: &LeaderLockStatus, surges: &Surges) -> LeaderLockStatus {
    let plan = plan(TARGET);
    let report = report(TargetState::Active, TargetState::Active, None);
    lock_status(&LockFacts {
        surges,
        ..facts(before, Ok(&plan), Some(&report), Some(holder("eu-1")))
    })
}

fn surges_on_rollout(status: &LeaderLockStatus) -> (&str, &str) {
    status_of(&status.conditions, "SurgesOnRollout")
}

#[test]
fn a_rollout_that_surges_is_reported_and_does_not_affect_ready() {
    let one = Surges::Of(vec!["Deployment web".to_owned()]);
    let found = status(&LeaderLockStatus::default(), &one);
    assert_eq!(surges_on_rollout(&found), ("True", "SurgingStrategy"));
    assert_eq!(status_of(&found.conditions, "Ready"), ("True", "Active"));
    assert_eq!(computed(&found), Kstatus::Current);
    let (what, text) = surge_news(&LeaderLockStatus::default(), &found).unwrap();
    assert_eq!(what, EventReason::SurgesOnRollout);
    for part in [
        "Deployment web",
        "`strategy: {type: Recreate}`",
        "`strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The event is emitted once for each change.
    let again = status(&found, &one);
    assert_eq!((&again, surge_news(&found, &again)), (&found, None));
    let two = Surges::Of(vec!["Deployment api".to_owned(), "Deployment web".to_owned()]);
    let more = status(&found, &two);
    let (_, text) = surge_news(&found, &more).unwrap();
    assert!(text.contains("Deployment api, Deployment web"), "{text}");
}

#[test]
fn an_unknown_state_changes_nothing_and_a_corrected_one_is_false() {
    let never = status(&LeaderLockStatus::default(), &Surges::Never);
    assert_eq!(surges_on_rollout(&never), ("", ""), "it was never otherwise");
    let one = Surges::Of(vec!["Deployment web".to_owned()]);
    let found = status(&LeaderLockStatus::default(), &one);
    assert_eq!(status(&found, &Surges::Unknown), found);
    let right = status(&found, &Surges::Never);
    assert_eq!(surges_on_rollout(&right), ("False", "NoSurge"));
    assert_eq!(surge_news(&found, &right), None);
    assert_eq!(status(&right, &Surges::Never), right);
    let again = status(&right, &one);
    assert!(surge_news(&right, &again).is_some());
    assert_eq!(surges_on_rollout(&status(&found, &Surges::NotJudged)), ("", ""));
}
