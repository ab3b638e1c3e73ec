//! Sets the condition `Enforced` of a lock, and defines the facts that the status of a lock is computed from.

use k8s_openapi::jiff::Timestamp;

use super::{
    author::Author,
    condition::{ConditionType, Conditions, Truth},
    holder::HolderFacts,
    takeover::postponed,
};
use crate::{
    api::{
        leader_lock::Enforcement,
        lock_status::{LeaderLockStatus, Role, TargetState},
        plan::LockPlan,
    },
    controller::{
        index::intention,
        node_guards::NodeGuards,
        problem::{Problem, Reason},
        target_task::TargetReport,
        templates::Surges,
    },
    lease::Holder,
};

/// The facts of a status.
#[derive(Debug)]
pub(in crate::controller) struct LockFacts<'a> {
    pub(in crate::controller) before: &'a LeaderLockStatus,
    pub(in crate::controller) generation: i64,
    pub(in crate::controller) plan: Result<&'a LockPlan, &'a Problem>,
    pub(in crate::controller) author: Author,
    /// Whether no master issued the token in the status.
    pub(in crate::controller) implausible: bool,
    pub(in crate::controller) holder: Option<HolderFacts>,
    /// The last other holder that this replica has seen.
    pub(in crate::controller) last_holder: Option<&'a Holder>,
    /// The number of masters of the quorum; 0 before their first observation. The number of voting masters is only in
    /// the status of the RedisQuorum: here, a flapping master would cost a write for every lock.
    pub(in crate::controller) masters: usize,
    /// The reason why there is no majority.
    pub(in crate::controller) no_majority: Option<Problem>,
    pub(in crate::controller) paused: Option<&'a str>,
    /// The time until which this cluster leaves the lock to the other clusters.
    pub(in crate::controller) abstains: Option<Timestamp>,
    /// Whether the last valid spec of an object that cannot be used may be in force: this replica contends for its lock, or
    /// its targets may run in this cluster.
    pub(in crate::controller) may_be_in_force: bool,
    /// Whether this replica observes the lock on a majority of its masters.
    pub(in crate::controller) observes: bool,
    /// Whether targets that were removed from the spec may run, according to the record of the object.
    pub(in crate::controller) leftovers: bool,
    /// The state of the targets, if the lock has targets.
    pub(in crate::controller) targets: Option<&'a TargetReport>,
    pub(in crate::controller) surges: &'a Surges,
    /// The nodes with a ready agent and guardian, for a fenced lock.
    pub(in crate::controller) guards: &'a NodeGuards,
    pub(in crate::controller) now: Timestamp,
}

/// Reports whether the lock has targets: declared ones, or removed ones that are not known to be stopped.
fn has_targets(facts: &LockFacts<'_>, plan: &LockPlan) -> bool {
    let removed = facts.targets.is_some_and(|report| !report.removed.is_empty());
    removed || facts.leftovers || !plan.targets.is_empty()
}

/// Reports whether the lock has targets, and they are to be switched now.
pub(super) fn switches(facts: &LockFacts<'_>, plan: &LockPlan) -> bool {
    has_targets(facts, plan) && plan.enforcement == Enforcement::Enforce && facts.paused.is_none()
}

/// Returns the names of the removed targets that are not known to be stopped.
fn removed_running(report: &TargetReport) -> Vec<&str> {
    let running = report
        .removed
        .iter()
        .filter(|target| target.observed != TargetState::Standby);
    running.map(|target| target.name.as_str()).collect()
}

/// Describes the switch under way.
pub(super) fn switching(facts: &LockFacts<'_>, report: &TargetReport) -> String {
    if let Some(wait) = &report.takeover {
        return postponed(wait, facts.last_holder);
    }
    match &removed_running(report)[..] {
        [] => "the targets are being switched".to_owned(),
        names => format!(
            "the targets that were removed from the lock are being stopped: {}",
            names.join(", ")
        ),
    }
}

/// Reports whether the targets are in the state that belongs to this role. A replica that does not know yet
/// which cluster holds the lock has nothing to switch, and its targets may be in any state.
pub(super) fn as_declared(report: &TargetReport, role: Role) -> bool {
    let all = |state| report.targets.iter().all(|target| target.observed == state);
    report.settled
        && removed_running(report).is_empty()
        && match role {
            Role::Active | Role::Activating | Role::Stopping => all(TargetState::Active),
            Role::Standby => all(TargetState::Standby),
            Role::Unknown => true,
        }
}

pub(super) fn enforced(facts: &LockFacts<'_>, plan: &LockPlan, role: Role, conditions: &mut Conditions<'_>) {
    if let Some(reason) = facts.paused {
        conditions.set(
            ConditionType::Enforced,
            false,
            Reason::Paused,
            format!("redlock.dev/paused: {reason}"),
        );
    } else if !has_targets(facts, plan) {
        conditions.set(
            ConditionType::Enforced,
            true,
            Reason::NoTargets,
            "there is nothing to switch".into(),
        );
    } else if plan.enforcement == Enforcement::Observe {
        let targets = facts.targets.into_iter().flat_map(|report| &report.targets);
        let would: Vec<String> = targets.filter_map(intention).collect();
        let text = match &would[..] {
            [] => "it would switch none".to_owned(),
            would => format!("it {}", would.join(", ")),
        };
        let text = format!("enforcement: Observe: the operator switches no target; {text}");
        conditions.set(ConditionType::Enforced, false, Reason::Observed, text);
    } else {
        match facts.targets {
            None => conditions.set(
                ConditionType::Enforced,
                Truth::Unknown,
                Reason::NotInspected,
                "not inspected yet".into(),
            ),
            Some(TargetReport {
                trouble: Some(trouble),
                ..
            }) => {
                conditions.set(
                    ConditionType::Enforced,
                    false,
                    trouble.reason,
                    trouble.message.clone(),
                );
            }
            Some(report) if as_declared(report, role) => {
                conditions.set(
                    ConditionType::Enforced,
                    true,
                    Reason::AsDeclared,
                    "the targets are in their desired state".into(),
                );
            }
            Some(report) => {
                let text = switching(facts, report);
                conditions.set(ConditionType::Enforced, false, Reason::Switching, text);
            }
        }
    }
}
