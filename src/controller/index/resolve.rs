//! Decides whether a lock can be contended for, and on which terms. Pure.

use std::sync::Arc;

use super::target_key::TargetKey;
use crate::{
    api::{
        LeaderLock,
        plan::{LockPlan, QuorumPlan},
        validate::{FieldError, LockNames, lock_name_taken, validate_lock},
    },
    controller::{
        object::ObjectKey,
        problem::{Problem, Reason},
        templates::Templates,
    },
    lease::{ClusterId, FencingToken, Nonce, fence::FenceMark},
};

/// The known state of the quorum that a lock names.
#[derive(Clone, Copy, Debug)]
pub(in crate::controller) enum QuorumView<'a> {
    Missing,
    /// The quorum is not open for this reason.
    NotUsable(&'a Problem),
    Usable(&'a QuorumPlan),
}

/// Returns the plan of a lock on its own: another object may still own its name.
pub(in crate::controller) fn plan(
    object: &LeaderLock,
    quorum: QuorumView<'_>,
    templates: &Templates,
    cluster: &ClusterId,
) -> Result<Arc<LockPlan>, Problem> {
    let name = &object.spec.quorum_ref.name;
    match quorum {
        QuorumView::Missing => Err(Problem::new(
            Reason::QuorumNotFound,
            format!("spec.quorumRef.name: there is no RedisQuorum {name:?}"),
        )),
        // The lock is refused for the same reason, under the same reason name.
        QuorumView::NotUsable(problem) if problem.reason.is_of_another_cluster() => Err(problem.clone()),
        QuorumView::NotUsable(problem) => Err(Problem::new(
            Reason::QuorumNotUsable,
            format!(
                "RedisQuorum {name:?} cannot be used: {}: {}",
                problem.reason.name(),
                problem.message
            ),
        )),
        QuorumView::Usable(quorum) => {
            validate_lock(object, quorum, LockNames::OfTheNamespace, &templates.graces())
                .map_err(|errors| match reason(&errors) {
                    // The stop time of the pods may be shorter than the default.
                    Reason::StopBudgetTooShort if templates.awaited() => {
                        Problem::new(Reason::Opening, AWAITED)
                    }
                    reason => Problem::invalid(reason, &errors),
                })
                .and_then(|plan| markable(plan, cluster))
                .map(Arc::new)
        }
    }
}

/// Refuses a fenced lock in a cluster whose UID cannot be part of a fence mark.
fn markable(plan: LockPlan, cluster: &ClusterId) -> Result<LockPlan, Problem> {
    let (token, nonce) = (FencingToken(1), Nonce(0));
    match FenceMark::new(token, token, cluster, nonce) {
        Err(error) if plan.is_fenced() => Err(Problem::new(
            Reason::InvalidSpec,
            format!("spec.fencing: Node is not possible in this cluster: {error}"),
        )),
        _ => Ok(plan),
    }
}

const AWAITED: &str = "the termination grace period of its pods is being read";

fn reason(errors: &[FieldError]) -> Reason {
    if errors.iter().all(|error| error.stop_budget) {
        Reason::StopBudgetTooShort
    } else {
        Reason::InvalidSpec
    }
}

/// Returns the problem of a lock whose name another object owns.
pub(in crate::controller) fn taken(plan: &LockPlan, first: &ObjectKey) -> Problem {
    let error = lock_name_taken(plan, first);
    Problem::invalid(Reason::DuplicateLockName, &[error])
}

/// Returns the problem of a lock with a target that another object switches, or has not stopped yet.
pub(in crate::controller) fn target_taken(what: &TargetKey, other: &ObjectKey) -> Problem {
    Problem::new(
        Reason::TargetTaken,
        format!(
            "spec.targets: {what} is already a target of LeaderLock {other}: two locks cannot switch one object; \
             remove it from one of them"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::plan::tests::plan_of;

    #[test]
    fn a_cluster_uid_that_makes_no_mark_refuses_fenced_locks() {
        let odd = ClusterId::new("eu-1", "a@b").unwrap();
        let usual = ClusterId::new("eu-1", "a-b").unwrap();
        let fenced = || plan_of(", fencing: Node");
        let problem = markable(fenced(), &odd).unwrap_err();
        assert_eq!(problem.reason, Reason::InvalidSpec);
        assert!(
            problem.message.contains("a UID without \"@\""),
            "{}",
            problem.message
        );
        assert!(markable(fenced(), &usual).is_ok());
        assert!(markable(plan_of(""), &odd).is_ok());
    }
}
