//! Computes the status that a replica without a majority of the masters writes: the lock is unknown, and the targets
//! are as the replica itself sees them.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{
    author::Author,
    condition::{ConditionType, Conditions, Truth},
    enforced::{LockFacts, enforced, switches},
    holder::called,
    progress::Progress,
};
use crate::{
    api::{
        lock_status::{LeaderLockStatus, Role, TargetState, TargetStatus},
        plan::LockPlan,
    },
    controller::{problem::Reason, target_task::TargetReport},
    lease::BootInstant,
};

const REASON: Reason = Reason::NoMajority;
/// The minimum time between two statuses of a replica without a majority if another replica wrote in between.
const REST: Duration = Duration::from_secs(5);

pub(super) fn unseen(
    facts: &LockFacts<'_>,
    plan: &LockPlan,
    status: &mut LeaderLockStatus,
    conditions: &mut Conditions<'_>,
) {
    let why = facts.no_majority.as_ref().map_or_else(
        || "no replica of this cluster can report".to_owned(),
        |why| why.message.clone(),
    );
    let stopping = facts.targets.is_some_and(is_stopping) && switches(facts, plan);
    let role = if stopping { Role::Stopping } else { Role::Unknown };
    status.role = Some(role);
    status.targets = facts
        .targets
        .map_or_else(Vec::new, |report| report.targets.clone());
    let reason = facts.no_majority.as_ref().map_or(REASON, |why| why.reason);
    let progress = Progress::in_progress(reason, why.clone());
    progress.ready(conditions);
    conditions.set(ConditionType::Held, Truth::Unknown, REASON, held(facts));
    conditions.set(ConditionType::QuorumAvailable, false, reason, why);
    match facts.targets {
        Some(report) if switches(facts, plan) && is_stopped(report) => {
            conditions.set(
                ConditionType::Enforced,
                true,
                Reason::AsDeclared,
                "the targets are stopped".into(),
            );
        }
        Some(report) if switches(facts, plan) && report.settled => {
            let text = "the targets are left as they are; see QuorumAvailable";
            conditions.set(ConditionType::Enforced, Truth::Unknown, REASON, text.into());
        }
        _ => enforced(facts, plan, role, conditions),
    }
    progress.abnormal(conditions);
}

fn held(facts: &LockFacts<'_>) -> String {
    let before = facts.before;
    let unknown = "which candidate holds the lock is unknown";
    match (&before.holder_cluster, &before.holder_identity) {
        (Some(cluster), Some(identity)) if facts.author == Author::Former => {
            format!("the lease of {} ended; {unknown}", called(cluster, identity))
        }
        // The message of this replica's previous write.
        _ => {
            let kept = condition(facts.before, ConditionType::Held).filter(|held| {
                facts.author == Author::Former && held.status == "Unknown" && held.reason == REASON.name()
            });
            kept.map_or_else(
                || format!("no replica of this cluster sees a majority of the masters: {unknown}"),
                |held| held.message.clone(),
            )
        }
    }
}

fn is_stopping(report: &TargetReport) -> bool {
    let mut targets = report.targets.iter();
    !report.settled && targets.any(|target| target.desired == TargetState::Standby)
}

/// Reports whether the replica stopped the targets, or found them stopped, and starts none of them.
pub(super) fn is_stopped(report: &TargetReport) -> bool {
    let standby = |target: &TargetStatus| {
        target.desired == TargetState::Standby && target.observed == TargetState::Standby
    };
    let mut all = report.targets.iter().chain(&report.removed);
    report.settled && report.trouble.is_none() && all.all(standby)
}

/// A status that this replica wrote without a majority.
#[derive(Debug)]
pub(in crate::controller) struct BlindStatus {
    pub(in crate::controller) written: BootInstant,
    pub(in crate::controller) status: LeaderLockStatus,
}

/// Returns the time until which a replica without a majority keeps the status of another one: two such
/// replicas may see targets differently, and would overwrite each other forever. `last` is the last status
/// that this replica wrote.
pub(in crate::controller) fn rests_until(
    last: Option<&BlindStatus>,
    before: &LeaderLockStatus,
    now: BootInstant,
) -> Option<BootInstant> {
    let BlindStatus { written, status: own } = last?;
    let is_own = own.role == before.role && own.targets == before.targets;
    let until = *written + REST;
    (!is_own && !claims(before) && now < until).then_some(until)
}

/// Reports whether a status without sight of the masters adds information to the present one: the present one
/// claims facts that are not known, or shows the targets in another state. Of two statuses that differ only
/// in their wording, the first stays: otherwise, two replicas would overwrite each other forever.
pub(in crate::controller) fn adds(before: &LeaderLockStatus, status: &LeaderLockStatus) -> bool {
    let observed = |status: &LeaderLockStatus| -> Vec<(String, TargetState)> {
        let targets = status.targets.iter();
        targets
            .map(|target| (target.name.clone(), target.observed))
            .collect()
    };
    claims(before)
        || before.observed_generation != status.observed_generation
        || ready_reason(before) != ready_reason(status)
        || observed(before) != observed(status)
}

/// Reports whether a status claims to know the holder of the lock, or the role of this cluster.
pub(in crate::controller) fn claims(status: &LeaderLockStatus) -> bool {
    condition(status, ConditionType::Held).is_none_or(|held| held.status != "Unknown")
        || matches!(status.role, Some(Role::Active | Role::Activating | Role::Standby))
}

fn ready_reason(status: &LeaderLockStatus) -> Option<&str> {
    condition(status, ConditionType::Ready).map(|ready| ready.reason.as_str())
}

fn condition(status: &LeaderLockStatus, kind: ConditionType) -> Option<&Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.type_ == kind.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_two_blind_replicas_do_not_replace_each_other_at_once() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let status = |role, observed| {
            let mut status = LeaderLockStatus {
                role: Some(role),
                targets: vec![TargetStatus {
                    name: "it".into(),
                    desired: TargetState::Standby,
                    observed,
                }],
                ..LeaderLockStatus::default()
            };
            let mut conditions = Conditions::new(&[], 1, k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
            conditions.set(ConditionType::Held, Truth::Unknown, REASON, String::new());
            status.conditions = conditions.into_list();
            status
        };
        let own = status(Role::Stopping, TargetState::Changing);
        let others = status(Role::Unknown, TargetState::Standby);
        let last = Some(BlindStatus {
            written: at(100),
            status: own.clone(),
        });
        assert_eq!(rests_until(None, &others, at(101)), None);
        assert_eq!(rests_until(last.as_ref(), &own, at(101)), None, "its own");
        assert_eq!(rests_until(last.as_ref(), &others, at(101)), Some(at(105)));
        assert_eq!(rests_until(last.as_ref(), &others, at(105)), None);
        // A claim is replaced at once.
        let claim = status(Role::Active, TargetState::Active);
        assert_eq!(rests_until(last.as_ref(), &claim, at(101)), None);
    }
}
