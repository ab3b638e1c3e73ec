use super::*;
use crate::{
    api::{
        LeaderLock, RedisQuorum,
        validate::{Graces, LockNames, validate_lock, validate_quorum},
    },
    controller::{
        sibling_answers::CombinedAnswer,
        target_task::{
            goal::{Goal, goal},
            lease_view::OtherLease,
        },
    },
    lease::{DeclaredDelay, Marks},
};

const OWN: FencingToken = FencingToken(7);

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(seconds * 1_000_000_000)
}

/// Returns a plan whose targets stop within 5 s, and for which other clusters wait 10 s.
fn plan() -> LockPlan {
    let quorum: RedisQuorum = serde_yaml::from_str(
        "{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {name: q}, spec: {masters: [\
         {name: a, url: 'redis://a'}, {name: b, url: 'redis://b'}, {name: c, url: 'redis://c'}]}}",
    )
    .unwrap();
    let lock: LeaderLock = serde_yaml::from_str(
        "{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {name: l, namespace: n}, spec: {\
         quorumRef: {name: q}, targets: [{name: t, action: Scale, stopSeconds: 5, \
         ref: {apiVersion: apps/v1, kind: Deployment, name: t}}]}}",
    )
    .unwrap();
    let quorum = validate_quorum(&quorum).unwrap();
    validate_lock(&lock, &quorum, LockNames::Any, &Graces::default()).unwrap()
}

fn seen(lease: LeaseView, now: u64) -> Observation {
    Observation {
        fenced: false,
        lease,
        majority: true,
        coordinated_until: None,
        latest_answer: LatestAnswer {
            sent: None,
            answer: None,
        },
        stop_by: None,
        now: at(now),
        unix: Duration::ZERO,
    }
}

fn held() -> LeaseView {
    LeaseView {
        held: Some((OWN, at(110))),
        ..LeaseView::default()
    }
}

fn other(of: Other) -> LeaseView {
    LeaseView {
        other: Some(OtherLease {
            of,
            token: FencingToken(8),
            ends: at(120),
        }),
        ..LeaseView::default()
    }
}

/// Returns the state of a lease that was held at 100 s and is lost at 105 s.
fn lost() -> (Leases, TargetFacts) {
    let (mut leases, tokens) = (Leases::new(at(90)), OwnTokens::default());
    leases.observe(&seen(held(), 100), &plan(), &tokens);
    let facts = leases.observe(&seen(LeaseView::default(), 105), &plan(), &tokens);
    (leases, facts)
}

#[test]
fn a_lease_waits_after_an_unclean_end_elsewhere_and_adopts_own_targets() {
    let unclean = Marks {
        held: 6,
        clean: 5,
        delay: DeclaredDelay {
            token: 6,
            milliseconds: 20_000,
        },
    };
    let clean = Marks { clean: 6, ..unclean };
    let (elsewhere, sibling) = (Other::Elsewhere, Other::Sibling);
    for (marks, last, own, wait, declares) in [
        (clean, Some((elsewhere, 6)), None, 0, 10),
        (unclean, Some((elsewhere, 6)), None, 20, 10),
        (unclean, None, None, 20, 10),
        (unclean, Some((sibling, 6)), None, 0, 20),
        (unclean, None, Some(6), 0, 20),
        // An earlier lease of this cluster is no evidence about the lease that ended uncleanly.
        (unclean, Some((sibling, 5)), Some(5), 20, 10),
    ] {
        let (mut leases, tokens) = (Leases::new(at(90)), OwnTokens::default());
        own.into_iter().for_each(|token| tokens.remember(token));
        let last = last.map(|(of, token)| (of, FencingToken(token)));
        let view = LeaseView {
            marks,
            last,
            ..held()
        };
        let facts = leases.observe(&seen(view, 100), &plan(), &tokens);
        assert_eq!(facts.start_after, at(100 + wait), "{last:?} {own:?}");
        let delay = leases.delays.needed(plan().takeover_delay, Duration::ZERO);
        assert_eq!(delay, Duration::from_secs(declares), "{last:?} {own:?}");
        assert_eq!(facts.from_elsewhere, last.is_some_and(|(of, _)| of == elsewhere));
        let later = leases.observe(&seen(view, 105), &plan(), &tokens);
        assert_eq!(
            later.start_after,
            at(100 + wait),
            "a renewal waits for nothing more"
        );
    }
}

#[test]
fn targets_of_a_lost_lease_must_be_gone_by_its_end() {
    let (mut leases, facts) = lost();
    assert_eq!((facts.held_until, facts.lost), (None, Some(at(110))));
    let facts = leases.observe(
        &seen(other(Other::Elsewhere), 106),
        &plan(),
        &OwnTokens::default(),
    );
    assert_eq!(facts.lost, Some(at(110)), "another cluster took the lock");
    leases.stopped();
    let facts = leases.observe(
        &seen(other(Other::Elsewhere), 107),
        &plan(),
        &OwnTokens::default(),
    );
    assert_eq!(facts.lost, None, "all is gone");
}

#[test]
fn a_sibling_that_holds_the_lock_adopts_the_targets_of_a_lost_lease() {
    let (mut leases, _) = lost();
    let facts = leases.observe(&seen(other(Other::Sibling), 106), &plan(), &OwnTokens::default());
    assert_eq!((facts.lost, facts.sibling_until), (None, Some(at(120))));
    let facts = leases.observe(&seen(LeaseView::default(), 121), &plan(), &OwnTokens::default());
    assert_eq!(facts.sibling_until, Some(at(120)), "its end is remembered");
    let facts = leases.observe(&seen(held(), 122), &plan(), &OwnTokens::default());
    assert_eq!(facts.sibling_until, None, "until this replica holds the lock");
}

#[test]
fn an_answer_of_a_sibling_counts_as_a_lease_that_was_seen() {
    let (mut leases, _) = lost();
    let blind = Observation {
        majority: false,
        coordinated_until: None,
        latest_answer: LatestAnswer {
            sent: Some(at(106)),
            answer: Some(CombinedAnswer::Held(at(115), FencingToken(8))),
        },
        ..seen(LeaseView::default(), 106)
    };
    let facts = leases.observe(&blind, &plan(), &OwnTokens::default());
    assert_eq!((facts.lost, facts.sibling_until), (None, Some(at(115))));
}

#[test]
fn the_end_of_a_lease_is_owed_until_a_sibling_has_it_or_has_time() {
    let held = |token| Siblings::Held(at(110), FencingToken(token));
    for (siblings, room, owed) in [
        (held(7), false, true),
        (held(7), true, false),
        (held(8), false, false),
        (Siblings::Silent, true, true),
        (Siblings::Elsewhere, true, true),
        (Siblings::Free(at(100)), true, true),
    ] {
        let left = still_owed(Some(at(110)), siblings, Some(OWN), room);
        assert_eq!(left.is_some(), owed, "{siblings:?}, room: {room}");
    }
    assert_eq!(still_owed(None, held(7), Some(OWN), false), None);
}

#[test]
fn the_lock_was_passed_on_when_another_cluster_had_a_later_lease() {
    let after = |of, token| LeaseView {
        last: Some((of, FencingToken(token))),
        ..LeaseView::default()
    };
    for (view, passed_on) in [
        (after(Other::Elsewhere, 8), true),
        (after(Other::Elsewhere, 6), false),
        (after(Other::Sibling, 8), false),
    ] {
        let (mut leases, _) = lost();
        let facts = leases.observe(&seen(view, 106), &plan(), &OwnTokens::default());
        assert_eq!(facts.passed_on, passed_on, "{view:?}");
    }
}

#[test]
fn a_fenced_lease_that_succeeds_one_of_the_own_cluster_starts_at_once() {
    let marks = Marks {
        held: 6,
        clean: 5,
        delay: DeclaredDelay {
            token: 6,
            milliseconds: 1_000,
        },
    };
    for (succeeds_sibling, wait, adopted) in [(true, 0, 1_000), (false, 1, 0)] {
        let (mut leases, tokens) = (Leases::new(at(90)), OwnTokens::default());
        let view = LeaseView {
            marks,
            succeeds_sibling,
            ..held()
        };
        let facts = leases.observe(&seen(view, 100), &plan(), &tokens);
        assert_eq!(facts.start_after, at(100 + wait));
        assert_eq!(leases.delays.adopted(), Duration::from_millis(adopted));
    }
}

#[test]
fn a_fenced_lock_keeps_the_stop_time_of_pods_that_are_not_fenced() {
    for (fenced, stop) in [(false, 5), (true, 0)] {
        let seen = Observation {
            fenced,
            ..seen(held(), 100)
        };
        let facts = Leases::new(at(90)).observe(&seen, &plan(), &OwnTokens::default());
        assert_eq!((facts.fenced, facts.stop), (fenced, Duration::from_secs(stop)));
    }
    let down = LockPlan {
        state: LockState::SteppedDown,
        ..plan()
    };
    let seen = Observation {
        fenced: true,
        ..seen(LeaseView::default(), 100)
    };
    let facts = Leases::new(at(90)).observe(&seen, &down, &OwnTokens::default());
    assert!(!facts.fenced, "a cluster that stepped down keeps nothing running");
    let unconfirmed = LockPlan {
        awaits_confirmation: true,
        ..down
    };
    let facts = Leases::new(at(90)).observe(&seen, &unconfirmed, &OwnTokens::default());
    assert!(facts.fenced, "the lock is not given up");
    let keeps = |awaits_confirmation| {
        let plan = LockPlan {
            on_quorum_loss: OnQuorumLoss::KeepRunning,
            awaits_confirmation,
            ..unconfirmed.clone()
        };
        let facts = Leases::new(at(90)).observe(&seen, &plan, &OwnTokens::default());
        facts.on_quorum_loss == OnQuorumLoss::KeepRunning
    };
    assert!(keeps(true) && !keeps(false));
}

#[test]
fn fenced_pods_run_on_where_the_lease_is_handed_to_the_own_cluster() {
    let tokens = OwnTokens::default();
    let observe = |leases: &mut Leases, lease, now| {
        let seen = Observation {
            fenced: true,
            ..seen(lease, now)
        };
        goal(&leases.observe(&seen, &plan(), &tokens), at(now))
    };
    let mut leases = Leases::new(at(90));
    assert_eq!(observe(&mut leases, held(), 100), Goal::Run);
    leases.hand_to_sibling(OWN);
    assert_eq!(
        observe(&mut leases, held(), 101),
        Goal::Run,
        "not handed over yet"
    );
    assert_eq!(observe(&mut leases, LeaseView::default(), 102), Goal::Keep(None));
    assert_eq!(
        observe(&mut leases, other(Other::Elsewhere), 103),
        Goal::Stop(None),
        "another cluster has won"
    );
    let next = LeaseView {
        held: Some((FencingToken(9), at(130))),
        ..LeaseView::default()
    };
    assert_eq!(observe(&mut leases, next, 110), Goal::Run);
    let lost = observe(&mut leases, LeaseView::default(), 115);
    assert_eq!(lost, Goal::Stop(Some(at(130))), "a later lease that is lost");
}

#[test]
fn a_pod_that_is_not_fenced_stops_by_the_end_of_a_lease_that_was_handed_over() {
    let tokens = OwnTokens::default();
    let mut leases = Leases::new(at(90));
    let mut observe = |lease, fenced, now| {
        let seen = Observation {
            fenced,
            ..seen(lease, now)
        };
        if now == 101 {
            leases.hand_to_sibling(OWN);
        }
        goal(&leases.observe(&seen, &plan(), &tokens), at(now))
    };
    assert_eq!(observe(held(), true, 100), Goal::Run);
    assert_eq!(observe(held(), true, 101), Goal::Run);
    let ended = LeaseView::default();
    assert_eq!(observe(ended, true, 102), Goal::Keep(None));
    assert_eq!(observe(ended, false, 103), Goal::Stop(Some(at(110))));
}
