//! Computes the statuses that the last replica of a cluster writes at its end: after that, its locks are no
//! longer contended for, observed or enforced.

use k8s_openapi::jiff::Timestamp;

use super::{
    blind::is_stopped,
    condition::{ConditionType, Conditions, Truth},
    progress::Progress,
};
use crate::{
    api::{
        lock_status::{LeaderLockStatus, Role, TargetState},
        quorum_status::{MasterStatus, RedisQuorumStatus},
    },
    controller::{problem::Reason, target_task::TargetReport},
};

const REASON: Reason = Reason::OperatorStopped;

/// Whether the replica held a lock, and how its lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum HeldUntilEnd {
    Released,
    /// The lock was not released: only this cluster may acquire it until the lease expires.
    LeftToRunOut,
    /// The replica did not hold the lock.
    No,
}

/// The facts of the last status of a lock.
#[derive(Debug)]
pub(in crate::controller) struct EndedFacts<'a> {
    pub(in crate::controller) before: &'a LeaderLockStatus,
    pub(in crate::controller) generation: i64,
    /// CLUSTER/IDENTITY of this replica.
    pub(in crate::controller) replica: &'a str,
    pub(in crate::controller) held: HeldUntilEnd,
    /// Whether agents of this cluster may hold the lock.
    pub(in crate::controller) agents: bool,
    /// The state of the targets, if the lock has targets.
    pub(in crate::controller) targets: Option<&'a TargetReport>,
    pub(in crate::controller) now: Timestamp,
}

pub(in crate::controller) fn ended_status(facts: &EndedFacts<'_>) -> LeaderLockStatus {
    let before = facts.before;
    let replica = facts.replica;
    let mut conditions = Conditions::new(&before.conditions, facts.generation, facts.now);
    let progress = stopped_by(replica);
    let held = match facts.held {
        HeldUntilEnd::Released => format!("{replica} released the lock when it stopped"),
        HeldUntilEnd::LeftToRunOut => {
            format!("{replica} stopped without a release; its lease expires by itself")
        }
        HeldUntilEnd::No => format!("{replica} did not hold the lock when it stopped"),
    };
    let stopped = facts.targets.is_none_or(is_stopped);
    progress.ready(&mut conditions);
    let held = format!("{held}; which candidate holds it now is unknown");
    conditions.set(ConditionType::Held, Truth::Unknown, REASON, held);
    conditions.set(
        ConditionType::QuorumAvailable,
        Truth::Unknown,
        REASON,
        "see Ready".into(),
    );
    let text = match facts.targets {
        None => "no target is switched until the operator runs again",
        Some(_) if stopped => "the targets are stopped, and not switched until the operator runs again",
        Some(_) => "the targets are left as they are until the operator runs again",
    };
    conditions.set(ConditionType::Enforced, false, REASON, text.into());
    progress.abnormal(&mut conditions);
    let known = stopped && !facts.agents && facts.held != HeldUntilEnd::LeftToRunOut;
    let targets = facts.targets.map(|report| report.targets.clone());
    LeaderLockStatus {
        observed_generation: Some(facts.generation),
        role: Some(if known { Role::Standby } else { Role::Unknown }),
        lease_transitions: before.lease_transitions,
        fencing_token: before.fencing_token,
        timings: before.timings.clone(),
        targets: targets.unwrap_or_else(|| {
            let mut targets = before.targets.clone();
            for target in &mut targets {
                target.observed = TargetState::Unknown;
            }
            targets
        }),
        conditions: conditions.into_list(),
        ..LeaderLockStatus::default()
    }
}

/// Returns the status of a lock whose targets the last replica stops before it ends, for this generation of its object.
pub(in crate::controller) fn stopping_status(
    before: &LeaderLockStatus,
    generation: i64,
    replica: &str,
    now: Timestamp,
) -> LeaderLockStatus {
    let text = format!(
        "the operator stops: {replica} stops the targets, since no other replica can take the lock over"
    );
    let progress = Progress::in_progress(Reason::Stopping, text.clone());
    let mut conditions = Conditions::new(&before.conditions, generation, now);
    progress.ready(&mut conditions);
    conditions.set(ConditionType::Enforced, false, Reason::Stopping, text);
    progress.abnormal(&mut conditions);
    let mut targets = before.targets.clone();
    for target in &mut targets {
        target.desired = TargetState::Standby;
        target.observed = TargetState::Changing;
    }
    LeaderLockStatus {
        observed_generation: Some(generation),
        role: Some(Role::Stopping),
        targets,
        conditions: conditions.into_list(),
        ..before.clone()
    }
}

fn stopped_by(replica: &str) -> Progress {
    let text = format!(
        "the operator stopped: {replica} stopped and no other replica of this cluster sees a majority of the masters"
    );
    Progress::in_progress(REASON, text)
}

/// Returns the status of a master that no replica observes, with its last used URL.
fn unseen_master(master: &MasterStatus) -> MasterStatus {
    MasterStatus {
        name: master.name.clone(),
        url: master.url.clone(),
        message: Some("not observed: the operator stopped".to_owned()),
        ..MasterStatus::default()
    }
}

/// The last replica of a cluster, which stops reporting on a quorum.
pub(in crate::controller) struct EndedReporter<'a> {
    pub(in crate::controller) replica: &'a str,
    pub(in crate::controller) cluster: &'a str,
}

/// Returns the last status of a quorum, for this generation of its object.
pub(in crate::controller) fn ended_quorum(
    before: &RedisQuorumStatus,
    generation: i64,
    ended: &EndedReporter<'_>,
    now: Timestamp,
) -> RedisQuorumStatus {
    let mut conditions = Conditions::new(&before.conditions, generation, now);
    let progress = stopped_by(ended.replica);
    progress.ready(&mut conditions);
    conditions.set(
        ConditionType::Degraded,
        Truth::Unknown,
        REASON,
        "see Ready".into(),
    );
    conditions.set(ConditionType::Safe, Truth::Unknown, REASON, "see Ready".into());
    progress.abnormal(&mut conditions);
    let mut reporters = before.reporters.clone();
    reporters.retain(|reporter| reporter.cluster != ended.cluster);
    RedisQuorumStatus {
        observed_generation: Some(generation),
        votes: None,
        masters: before.masters.iter().map(unseen_master).collect(),
        reporters,
        conditions: conditions.into_list(),
        ..before.clone()
    }
}
