//! Tests the rules of the decision, one per test.

use super::*;
use crate::api::plan::tests::plan_of;

fn plan(more: &str) -> Arc<LockPlan> {
    Arc::new(plan_of(more))
}

const TARGET: &str = ", targets: [{name: t, action: Scale, stopSeconds: 5, ref: {apiVersion: apps/v1, kind: Deployment, name: t}}]";

fn decided(
    active: Option<&LockPlan>,
    wanted: &Result<Arc<LockPlan>, Problem>,
    change: impl Fn(&mut DecisionFacts<'_>),
) -> Decision {
    let mut facts = DecisionFacts {
        active,
        stops_leftovers: false,
        overtaken: false,
        wanted,
        confirmed: true,
        declared: true,
        deleted: false,
        guarded: false,
        in_force: None,
        paused: false,
        unswitchable: false,
        holds: true,
        in_charge: false,
    };
    change(&mut facts);
    decide(&facts)
}

#[test]
fn a_lock_is_put_once_our_name_is_ours() {
    let wanted = Ok(plan(""));
    assert_eq!(decided(None, &wanted, |_| {}), Decision::Activate(plan("")));
    assert_eq!(
        decided(None, &wanted, |facts| facts.confirmed = false),
        Decision::Keep
    );
    assert_eq!(
        decided(None, &wanted, |facts| facts.deleted = true),
        Decision::Keep
    );
}

#[test]
fn a_sibling_is_responsible_for_leftovers_without_a_majority() {
    let wanted = Ok(plan(TARGET));
    let activates_stepped_down =
        |found: Decision| matches!(found, Decision::Activate(plan) if plan.state == LockState::SteppedDown);
    assert_eq!(
        decided(None, &wanted, |facts| (facts.confirmed, facts.guarded) =
            (false, true)),
        Decision::Keep
    );
    assert!(activates_stepped_down(decided(None, &wanted, |facts| {
        (facts.confirmed, facts.guarded, facts.in_charge) = (false, true, true);
    })));
    assert!(activates_stepped_down(decided(None, &wanted, |facts| {
        (facts.deleted, facts.guarded) = (true, true);
    })));
    for (more, deleted, keeps) in [
        ("", false, true),
        ("", true, false),
        (", fencing: Node", false, true),
        (", fencing: Node", true, false),
        (
            ", fencing: Node, state: SteppedDown, reason: maintenance",
            false,
            false,
        ),
    ] {
        let wanted = Ok(plan(&format!("{TARGET}{more}")));
        let decision = decided(None, &wanted, |facts| {
            (facts.confirmed, facts.guarded, facts.in_charge, facts.deleted) = (false, true, true, deleted);
        });
        let kept = matches!(&decision, Decision::Activate(plan) if plan.awaits_confirmation);
        assert_eq!(kept, keeps, "{more} {deleted}: {decision:?}");
    }
    // The lock is contended for as soon as the cluster name is confirmed.
    let minded = observe_only(&plan(TARGET));
    assert_eq!(
        decided(Some(&minded), &wanted, |_| {}),
        Decision::Activate(plan(TARGET))
    );
}

#[test]
fn leftovers_of_an_unusable_lock_are_stopped_by_the_responsible_replica() {
    let all = [
        Reason::InvalidSpec,
        Reason::StopBudgetTooShort,
        Reason::DuplicateLockName,
        Reason::TargetTaken,
        Reason::QuorumNotFound,
        Reason::QuorumNotUsable,
        Reason::ClusterNameNotUnique,
        Reason::Opening,
    ];
    for reason in all {
        let wrong = Err(Problem::new(reason, ""));
        let found = |change: fn(&mut DecisionFacts<'_>)| decided(None, &wrong, change);
        assert_eq!(found(|_| {}), Decision::Keep, "{reason:?}: nothing of it runs");
        assert_eq!(
            found(|facts| facts.guarded = true),
            Decision::Keep,
            "{reason:?}: too early"
        );
        for deleted in [false, true] {
            let facts = if deleted {
                found(|facts| (facts.guarded, facts.in_charge, facts.deleted) = (true, true, true))
            } else {
                found(|facts| (facts.guarded, facts.in_charge) = (true, true))
            };
            assert_eq!(facts, Decision::StopLeftovers, "{reason:?}");
        }
        let stops =
            found(|facts| (facts.guarded, facts.in_charge, facts.stops_leftovers) = (true, true, true));
        assert_eq!(stops, Decision::Keep, "{reason:?}: it is being stopped");
        let goes = found(|facts| (facts.guarded, facts.deleted, facts.stops_leftovers) = (true, true, true));
        assert_eq!(goes, Decision::Withdraw, "{reason:?}: the object may go");
    }
    // The lock can be activated now.
    let wanted = Ok(plan(TARGET));
    let put = decided(None, &wanted, |facts| {
        (facts.guarded, facts.stops_leftovers) = (true, true)
    });
    assert_eq!(put, Decision::Activate(plan(TARGET)));
}

#[test]
fn a_target_that_an_older_lock_declares_is_given_up() {
    let wrong = Err(Problem::new(Reason::TargetTaken, ""));
    let put = plan(TARGET);
    // The invalid spec adds a target: the active plan stays.
    assert_eq!(decided(Some(&put), &wrong, |_| {}), Decision::Keep);
    assert_eq!(
        decided(Some(&put), &wrong, |facts| facts.overtaken = true),
        Decision::Withdraw
    );
}

#[test]
fn held_lock_survives_an_invalid_edit() {
    let put = plan("");
    let wrong = |reason| Err(Problem::new(reason, ""));
    assert_eq!(
        decided(Some(&put), &wrong(Reason::InvalidSpec), |_| {}),
        Decision::Keep
    );
    assert_eq!(
        decided(Some(&put), &wrong(Reason::QuorumNotUsable), |_| {}),
        Decision::Keep
    );
    // The loss of a majority is no evidence against the cluster name.
    assert_eq!(
        decided(Some(&put), &Ok(plan("")), |facts| facts.confirmed = false),
        Decision::Keep
    );
    for gone in [
        decided(Some(&put), &Ok(plan(", lockName: n/other")), |_| {}),
        decided(Some(&put), &wrong(Reason::ClusterNameNotUnique), |_| {}),
        decided(Some(&put), &wrong(Reason::DuplicateLockName), |_| {}),
        decided(Some(&put), &wrong(Reason::QuorumNotFound), |facts| {
            facts.declared = false
        }),
        decided(Some(&put), &Ok(plan("")), |facts| facts.deleted = true),
    ] {
        assert_eq!(gone, Decision::Withdraw);
    }
}

#[test]
fn targets_are_stopped_before_a_step_down() {
    let down = format!("{TARGET}, state: SteppedDown, reason: maintenance");
    assert_eq!(
        decided(Some(&plan(TARGET)), &Ok(plan(&down)), |_| {}),
        Decision::Withdraw
    );
    assert_eq!(
        decided(None, &Ok(plan(&down)), |_| {}),
        Decision::Activate(plan(&down))
    );
    // The holder stops the targets, and every other replica only stops contending.
    assert_eq!(
        decided(Some(&plan(TARGET)), &Ok(plan(&down)), |facts| facts.holds = false),
        Decision::Activate(plan(&down))
    );
    let agents = Arc::new(LockPlan {
        candidates: Candidates::Agents,
        ..plan(TARGET).as_ref().clone()
    });
    assert_eq!(
        decided(Some(&plan(TARGET)), &Ok(agents), |facts| facts.holds = false),
        Decision::Withdraw,
        "a sibling that holds the lock is no agent"
    );
    // Without targets there is nothing to stop.
    let down = ", state: SteppedDown, reason: maintenance";
    assert_eq!(
        decided(Some(&plan("")), &Ok(plan(down)), |_| {}),
        Decision::Activate(plan(down))
    );
}

#[test]
fn removed_target_is_stopped_before_the_lock_is_stepped_down_from() {
    let down = Ok(plan(", state: SteppedDown, reason: maintenance"));
    let put = LockPlan {
        has_leftovers: true,
        ..plan("").as_ref().clone()
    };
    assert_eq!(decided(Some(&put), &down, |_| {}), Decision::Withdraw);
}

#[test]
fn targets_that_may_run_under_another_lock_are_observed_there_first() {
    let former = plan(", lockName: n/former").identity();
    let next = decided(None, &Ok(plan(TARGET)), |facts| {
        (facts.guarded, facts.in_force) = (true, Some(FormerLock::Open(former.clone())));
    });
    let Decision::Activate(observed) = next else {
        panic!("{next:?}");
    };
    assert_eq!(
        (observed.identity(), observed.state),
        (former, LockState::SteppedDown)
    );
    // The declared lock is contended for after the departure from the former one.
    assert_eq!(
        decided(Some(&observed), &Ok(plan(TARGET)), |_| {}),
        Decision::Withdraw
    );
}

#[test]
fn a_lock_that_is_fenced_from_now_on_ends_its_lease_first() {
    let fenced = format!("{TARGET}, fencing: Node");
    for (before, after) in [(TARGET, &*fenced), (&*fenced, TARGET)] {
        let next = decided(Some(&plan(before)), &Ok(plan(after)), |_| {});
        assert_eq!(next, Decision::Withdraw, "{before} {after}");
    }
    let next = decided(Some(&plan(&fenced)), &Ok(plan(&fenced)), |_| {});
    assert_eq!(next, Decision::Activate(plan(&fenced)));
}
