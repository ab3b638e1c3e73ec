//! Selects the events about targets.

use std::collections::BTreeMap;

use crate::{
    api::{
        LeaderLock,
        lock_status::{LeaderLockStatus, Role, TargetState, TargetStatus},
    },
    controller::{
        events::EventReason, index::LockSnapshot, problem::Reason, status::postponed,
        target_task::TargetReport,
    },
};

/// The reason why nothing is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Off {
    Paused,
    /// Only the intended actions are reported.
    Observed,
}

/// Returns the events of a report that the previous report did not have. The states of the targets are
/// reported with the status.
pub(super) fn happened(
    before: Option<&TargetReport>,
    now: &TargetReport,
    off: Option<Off>,
) -> Vec<(EventReason, String)> {
    let mut all = Vec::new();
    for target in now.targets.iter().filter(|_| off == Some(Off::Observed)) {
        let mut known = before.iter().flat_map(|report| &report.targets);
        all.extend(would(known.find(|known| known.name == target.name), target));
    }
    let conflict = |report: &TargetReport| {
        let trouble = report.trouble.clone();
        trouble.filter(|trouble| trouble.reason == Reason::EnforcementConflict)
    };
    if let Some(trouble) = conflict(now)
        && before.and_then(conflict).is_none()
    {
        all.push((EventReason::EnforcementConflict, trouble.message));
    }
    all
}

/// Returns the event of a wait before a start, once for each lease.
pub(super) fn start_postponed(
    before: Option<&TargetReport>,
    now: &TargetReport,
    snapshot: Option<&LockSnapshot>,
    off: Option<Off>,
) -> Option<(EventReason, String)> {
    let wait = now.takeover.filter(|_| off.is_none())?;
    if before.and_then(|report| report.takeover) == Some(wait) {
        return None;
    }
    let last = snapshot.and_then(|snapshot| snapshot.last_holder.as_ref());
    Some((EventReason::StartPostponed, postponed(&wait, last)))
}

/// The last settled state of each target, running or stopped, according to the statuses of its lock.
#[derive(Debug, Default)]
pub(in crate::controller) struct Settled(BTreeMap<String, TargetState>);

impl Settled {
    pub(in crate::controller) fn see(&mut self, object: &LeaderLock) {
        self.take(object.status.iter().flat_map(|status| &status.targets));
    }

    fn take<'a>(&mut self, targets: impl Iterator<Item = &'a TargetStatus>) {
        let settled =
            |target: &&TargetStatus| matches!(target.observed, TargetState::Active | TargetState::Standby);
        for target in targets.filter(settled) {
            self.0.insert(target.name.clone(), target.observed);
        }
    }

    /// Returns the events of targets that were stopped while no replica may write a status. The next status
    /// may not show the stop, because the target may already run again.
    pub(super) fn stopped_unwritten(&mut self, report: &TargetReport) -> Vec<(EventReason, String)> {
        let standby = |target: &&TargetStatus| target.observed == TargetState::Standby;
        let stopped = || report.targets.iter().filter(standby);
        let role = Some(Role::Standby);
        let news = stopped()
            .filter_map(|target| self.switched(target, role))
            .collect();
        self.take(stopped());
        news
    }

    /// Returns the events that this status is the first to report. Every replica sees the states of the
    /// targets, and one replica writes them.
    pub(super) fn news(&self, status: &LeaderLockStatus) -> Vec<(EventReason, String)> {
        let targets = status.targets.iter();
        targets
            .filter_map(|target| self.switched(target, status.role))
            .collect()
    }

    fn switched(&self, target: &TargetStatus, role: Option<Role>) -> Option<(EventReason, String)> {
        let (before, name) = (self.0.get(&target.name), &target.name);
        match target.observed {
            _ if before == Some(&target.observed) => None,
            TargetState::Active => match role? {
                Role::Active | Role::Activating => {
                    Some((EventReason::TargetActivated, format!("target {name} runs")))
                }
                // Another writer, or a node that is reachable again: no candidate of this cluster started the target.
                Role::Standby => Some((
                    EventReason::TargetFoundRunning,
                    format!("target {name} runs, and this cluster does not hold the lock"),
                )),
                // This cluster may hold the lock.
                Role::Stopping | Role::Unknown => None,
            },
            // A target that is found stopped at first was not stopped by the operator.
            TargetState::Standby => {
                before.map(|_| (EventReason::TargetStopped, format!("target {name} is stopped")))
            }
            TargetState::Changing | TargetState::Unknown => None,
        }
    }
}

/// Returns the intended action once for each change of intention.
fn would(before: Option<&TargetStatus>, target: &TargetStatus) -> Option<(EventReason, String)> {
    let previous = before.and_then(intention);
    let intention = intention(target).filter(|now| previous.as_ref() != Some(now))?;
    Some((
        EventReason::Observed,
        format!("enforcement: Observe: {intention}"),
    ))
}

/// Returns the action that the operator would take on a target that is not in its desired state.
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
    use TargetState::{Active, Changing, Standby, Unknown};

    fn target(desired: TargetState, observed: TargetState) -> TargetStatus {
        TargetStatus {
            name: "t".into(),
            desired,
            observed,
        }
    }

    #[test]
    fn an_observer_reports_once_the_action_that_it_would_take() {
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
    fn a_target_is_reported_when_it_has_changed_since_it_was_last_settled() {
        let status = |role, observed| LeaderLockStatus {
            role: Some(role),
            targets: vec![target(Active, observed)],
            ..LeaderLockStatus::default()
        };
        let mut settled = Settled::default();
        let mut lock = serde_yaml::from_str::<LeaderLock>(
            "{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {name: lock}, spec: {quorumRef: {name: q}}}",
        )
        .unwrap();
        // In order, each state that is written, and the event that it leads to.
        for (role, observed, event) in [
            (Role::Active, Unknown, None),
            (Role::Active, Standby, None),
            (Role::Activating, Changing, None),
            (Role::Active, Active, Some(EventReason::TargetActivated)),
            (Role::Active, Active, None),
            (Role::Active, Unknown, None),
            (Role::Active, Active, None),
            (Role::Stopping, Changing, None),
            (Role::Standby, Standby, Some(EventReason::TargetStopped)),
            (Role::Standby, Standby, None),
            (Role::Standby, Active, Some(EventReason::TargetFoundRunning)),
            (Role::Stopping, Active, None),
            (Role::Standby, Standby, Some(EventReason::TargetStopped)),
            (Role::Unknown, Active, None),
        ] {
            lock.status = Some(status(role, observed));
            let news = settled.news(lock.status.as_ref().unwrap()).into_iter().next();
            assert_eq!(news.map(|(what, _)| what), event, "{role:?} {observed:?}");
            settled.see(&lock);
        }
    }
}
