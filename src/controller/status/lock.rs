//! Computes the status of a lock.

use std::time::Duration;

use super::{
    author::Author,
    blind::unseen,
    condition::{ConditionType, Conditions, Truth},
    enforced::{LockFacts, as_declared, enforced, switches, switching},
    guarded,
    holder::{self, called, taken},
    progress::Progress,
    surges,
    takeover::postponed,
};
use crate::{
    api::{
        leader_lock::{LockState, OnQuorumLoss},
        lock_status::{EffectiveTimings, LeaderLockStatus, Role, TargetState},
        plan::LockPlan,
    },
    controller::problem::{Problem, Reason},
};

/// Returns the complete status.
pub(in crate::controller) fn lock_status(facts: &LockFacts<'_>) -> LeaderLockStatus {
    let before = facts.before;
    let mut conditions = Conditions::new(&before.conditions, facts.generation, facts.now);
    let mut status = LeaderLockStatus {
        observed_generation: Some(facts.generation),
        lease_transitions: before.lease_transitions,
        fencing_token: before.fencing_token.filter(|_| !facts.implausible),
        ..LeaderLockStatus::default()
    };
    match facts.plan {
        Err(problem) => refused(facts, problem, &mut status, &mut conditions),
        Ok(plan) => {
            status.timings = Some(effective(plan));
            if facts.author.is_blind() {
                unseen(facts, plan, &mut status, &mut conditions);
            } else {
                known(facts, plan, &mut status, &mut conditions);
            }
        }
    }
    status.conditions = conditions.into_list();
    status
}

fn refused(
    facts: &LockFacts<'_>,
    problem: &Problem,
    status: &mut LeaderLockStatus,
    conditions: &mut Conditions<'_>,
) {
    let (reason, message) = (problem.reason, &problem.message);
    let (role, held) = if facts.may_be_in_force {
        in_force(facts, status);
        let text = "not inspected; the last valid spec of the object may be in force";
        (Role::Unknown, text)
    } else {
        (Role::Standby, "this cluster does not take part")
    };
    status.role = Some(role);
    let progress = Progress::problem(problem.reason.is_of_the_object(), reason, message);
    progress.ready(conditions);
    conditions.set(ConditionType::Held, Truth::Unknown, reason, held.into());
    let available = match &facts.no_majority {
        _ if facts.masters == 0 => Truth::Unknown,
        Some(_) => Truth::False,
        None => Truth::True,
    };
    conditions.set(
        ConditionType::QuorumAvailable,
        available,
        reason,
        "see Ready".into(),
    );
    conditions.set(ConditionType::Enforced, false, reason, "see Ready".into());
    progress.abnormal(conditions);
}

/// Handles a spec that became invalid: replicas that know the last valid one still contend for the lock, and
/// only they see its holder. A replica that was started later keeps the holder that they wrote.
fn in_force(facts: &LockFacts<'_>, status: &mut LeaderLockStatus) {
    let before = facts.before;
    match &facts.holder {
        Some(seen) => {
            let holds = facts.author == Author::Holder;
            holder::show(seen, holds, before, status, facts.now);
        }
        None if facts.observes => {}
        None => holder::keep(before, status),
    }
    status.timings.clone_from(&before.timings);
    status.targets = facts
        .targets
        .map_or_else(|| before.targets.clone(), |report| report.targets.clone());
}

fn known(
    facts: &LockFacts<'_>,
    plan: &LockPlan,
    status: &mut LeaderLockStatus,
    conditions: &mut Conditions<'_>,
) {
    let before = facts.before;
    let holds = facts.author == Author::Holder;
    let here = facts.holder.as_ref().is_some_and(|holder| holder.own_cluster);
    let role = role(facts, here);
    status.role = Some(role);
    status.targets = facts
        .targets
        .map_or_else(Vec::new, |report| report.targets.clone());
    let mut held_message = "no replica holds the lock".to_owned();
    if let Some(holder) = &facts.holder {
        let same = holder::show(holder, holds, before, status, facts.now);
        let previous = conditions.before(ConditionType::Held);
        let previous = previous.filter(|held| same && held.status == "True");
        held_message = previous.map_or_else(|| taken(holder, before), |held| held.message.clone());
    }
    let progress = progress(facts, plan, here, role);
    progress.ready(conditions);
    conditions.set(
        ConditionType::Held,
        facts.holder.is_some(),
        held_reason(facts),
        held_message,
    );
    match &facts.no_majority {
        None => {
            let text = format!("a majority of the {} masters votes", facts.masters);
            conditions.set(ConditionType::QuorumAvailable, true, Reason::MajorityVotes, text);
        }
        Some(why) => conditions.set(
            ConditionType::QuorumAvailable,
            false,
            why.reason,
            why.message.clone(),
        ),
    }
    enforced(facts, plan, role, conditions);
    progress.abnormal(conditions);
    guarded::set(plan, facts.targets, facts.guards, conditions);
    // Last, since the condition keeps its place at the end while it is unknown: another order would change
    // the status.
    surges::set(facts.surges, conditions);
}

/// Returns the progress of a lock that is contended for or observed.
fn progress(facts: &LockFacts<'_>, plan: &LockPlan, here: bool, role: Role) -> Progress {
    // A lease may be renewed although a lock cannot be acquired: a full memory refuses only the latter.
    if let Some(why) = &facts.no_majority
        && (why.reason != Reason::WritesRefused || facts.holder.is_none())
    {
        return Progress::in_progress(why.reason, &why.message);
    }
    if switches(facts, plan) {
        match facts.targets {
            None => return Progress::in_progress(Reason::NotInspected, "the targets were not inspected yet"),
            Some(report) => {
                if let Some(trouble) = &report.trouble {
                    return Progress::trouble(trouble);
                }
            }
        }
        match role {
            Role::Activating => {
                return Progress::in_progress(Reason::Activating, activating(facts));
            }
            Role::Stopping => {
                return Progress::in_progress(Reason::Stopping, "the targets are being stopped");
            }
            Role::Active | Role::Standby | Role::Unknown => {}
        }
        if let Some(report) = facts.targets.filter(|report| !as_declared(report, role)) {
            return Progress::in_progress(Reason::Switching, switching(facts, report));
        }
    }
    Progress::current(if here { Reason::Active } else { Reason::Standby }, ready(facts))
}

/// Describes the start of the targets, or the wait before that.
fn activating(facts: &LockFacts<'_>) -> String {
    let wait = facts.targets.and_then(|report| report.takeover.as_ref());
    wait.map_or_else(
        || "the targets are being started".to_owned(),
        |wait| postponed(wait, facts.last_holder),
    )
}

fn role(facts: &LockFacts<'_>, here: bool) -> Role {
    // If nothing is switched, no change is in progress.
    let switched = facts.plan.is_ok_and(|plan| switches(facts, plan));
    let active = facts
        .targets
        .is_some_and(|report| report.targets.iter().all(|t| t.observed == TargetState::Active));
    let postponed = facts.targets.is_some_and(|report| report.takeover.is_some());
    let stopping = facts.targets.is_some_and(|report| {
        !report.settled && report.targets.iter().any(|t| t.desired == TargetState::Standby)
    });
    match here {
        _ if stopping && switched => Role::Stopping,
        true if (active && !postponed) || !switched => Role::Active,
        true => Role::Activating,
        // `onQuorumLoss: KeepRunning` left the targets running without the lock.
        false if facts.holder.is_none() && keeps_running(facts) => Role::Unknown,
        // Targets that were not inspected may run.
        false if switched && facts.targets.is_none() && facts.may_be_in_force => Role::Unknown,
        false => Role::Standby,
    }
}

fn keeps_running(facts: &LockFacts<'_>) -> bool {
    let keeps = facts
        .plan
        .is_ok_and(|plan| plan.on_quorum_loss == OnQuorumLoss::KeepRunning);
    keeps && facts.targets.is_some_and(|report| report.runs)
}

fn held_reason(facts: &LockFacts<'_>) -> Reason {
    match &facts.holder {
        None => Reason::NotHeld,
        Some(holder) if holder.own_cluster => Reason::HeldHere,
        Some(_) => Reason::HeldElsewhere,
    }
}

fn ready(facts: &LockFacts<'_>) -> String {
    match &facts.holder {
        Some(holder) if holder.own_cluster => format!("this cluster holds the lock{}", stays_unready(facts)),
        Some(holder) => format!(
            "this cluster stands by{}; {} holds the lock",
            abstains(facts),
            called(&holder.cluster, &holder.identity)
        ),
        None => format!(
            "this cluster stands by{}; no replica holds the lock",
            abstains(facts)
        ),
    }
}

/// Explains what becomes of targets that do not become ready.
fn stays_unready(facts: &LockFacts<'_>) -> String {
    let enabled = facts.plan.ok().filter(|plan| plan.state == LockState::Enabled);
    let after = enabled.and_then(|plan| plan.failover_after_unready);
    let unready = facts.targets.is_some_and(|report| report.unready);
    after.filter(|_| unready).map_or_else(String::new, |after| {
        format!(
            "; its targets have not been ready for {} s: the lock is passed on once another cluster is willing to take it",
            after.as_secs()
        )
    })
}

fn abstains(facts: &LockFacts<'_>) -> String {
    facts.abstains.map_or_else(String::new, |until| {
        format!(" until {until}, because its targets did not become ready")
    })
}

fn effective(plan: &LockPlan) -> EffectiveTimings {
    let milliseconds = |length: Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    EffectiveTimings {
        lease_duration_milliseconds: milliseconds(plan.timings.lease_duration),
        renew_deadline_milliseconds: milliseconds(plan.timings.renew_deadline),
        retry_period_milliseconds: milliseconds(plan.timings.retry_period),
        stop_milliseconds: milliseconds(plan.timings.stop),
    }
}
