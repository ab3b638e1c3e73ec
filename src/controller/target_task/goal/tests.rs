use super::*;

mod coordinated;

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(seconds * 1_000_000_000)
}

fn facts() -> TargetFacts {
    TargetFacts {
        fenced: false,
        held_until: None,
        start_after: at(0),
        from_elsewhere: true,
        other: None,
        passed_on: false,
        lost: None,
        sibling_until: None,
        siblings: Siblings::Unasked,
        coordinated_until: None,
        observes: false,
        began: at(100),
        stop_by: None,
        takeover_delay: Duration::from_secs(40),
        stop: Duration::from_secs(35),
        on_quorum_loss: OnQuorumLoss::Stop,
    }
}

#[test]
fn targets_that_the_holder_may_start_run() {
    let held = TargetFacts {
        held_until: Some(at(130)),
        ..facts()
    };
    assert_eq!(goal(&held, at(110)), Goal::Run);
    let delayed = TargetFacts {
        start_after: at(140),
        ..held
    };
    assert_eq!(goal(&delayed, at(139)), Goal::Stop(None), "by hand, say");
    assert_eq!(goal(&delayed, at(140)), Goal::Run);
    let unknown = TargetFacts {
        from_elsewhere: false,
        ..delayed
    };
    assert_eq!(
        goal(&unknown, at(139)),
        Goal::Keep(Some(at(140))),
        "perhaps its own"
    );
    // The lease is being renewed, so its end is no deadline.
    let stop_by = TargetFacts {
        stop_by: Some(at(150)),
        ..held
    };
    assert_eq!(goal(&stop_by, at(110)), Goal::Stop(Some(at(150))));
}

#[test]
fn a_lost_lock_is_stopped_before_its_lease_ends() {
    let lost = TargetFacts {
        lost: Some(at(125)),
        ..facts()
    };
    assert_eq!(goal(&lost, at(101)), Goal::Stop(Some(at(125))));
    let elsewhere = TargetFacts {
        other: Some(Other::Elsewhere),
        ..lost
    };
    assert_eq!(goal(&elsewhere, at(120)), Goal::Stop(Some(at(125))));
    // The sibling adopts the running targets.
    let sibling = TargetFacts {
        other: Some(Other::Sibling),
        ..lost
    };
    assert_eq!(goal(&sibling, at(120)), Goal::Keep(None));
}

#[test]
fn targets_of_keep_running_run_until_another_cluster_is_seen_to_hold() {
    let kept = TargetFacts {
        on_quorum_loss: OnQuorumLoss::KeepRunning,
        ..facts()
    };
    let lost = Some(at(125));
    let (sibling, elsewhere) = (Some(Other::Sibling), Some(Other::Elsewhere));
    for (lost, other, passed_on, wanted) in [
        (None, None, false, Goal::Keep(None)),
        (lost, None, false, Goal::Keep(None)),
        (lost, sibling, false, Goal::Keep(None)),
        (lost, elsewhere, true, Goal::Stop(None)),
        (None, elsewhere, true, Goal::Stop(None)),
        (lost, None, true, Goal::Stop(None)),
        (None, None, true, Goal::Stop(None)),
        (None, sibling, true, Goal::Keep(None)),
    ] {
        let facts = TargetFacts {
            lost,
            other,
            passed_on,
            ..kept
        };
        assert_eq!(goal(&facts, at(500)), wanted, "{lost:?} {other:?} {passed_on}");
    }
    let stop_by = TargetFacts {
        stop_by: Some(at(510)),
        ..kept
    };
    assert_eq!(goal(&stop_by, at(500)), Goal::Stop(Some(at(510))));
}

#[test]
fn targets_of_a_sibling_are_left_to_siblings_until_another_cluster_might_begin() {
    let sibling = TargetFacts {
        other: Some(Other::Sibling),
        ..facts()
    };
    assert_eq!(goal(&sibling, at(101)), Goal::Keep(None));
    let seen = TargetFacts {
        sibling_until: Some(at(120)),
        ..sibling
    };
    assert_eq!(
        goal(&seen, at(101)),
        Goal::Keep(Some(at(120))),
        "no sibling has answered"
    );
    let ended = TargetFacts {
        sibling_until: Some(at(120)),
        ..facts()
    };
    assert_eq!(
        goal(&ended, at(121)),
        Goal::Keep(Some(at(124))),
        "120 + 40 - 35 - 1"
    );
    assert_eq!(goal(&ended, at(124)), Goal::Stop(Some(at(160))), "120 + 40");
    assert_eq!(goal(&ended, at(160)), Goal::Stop(None), "by hand, hours later");
}

#[test]
fn targets_that_stop_quickly_are_stopped_before_another_cluster_begins() {
    // LabelPods: no stop time, 5 s of delay.
    let ended = TargetFacts {
        sibling_until: Some(at(120)),
        stop: Duration::ZERO,
        takeover_delay: Duration::from_secs(5),
        ..facts()
    };
    assert_eq!(goal(&ended, at(120)), Goal::Keep(Some(at(124))));
    assert_eq!(goal(&ended, at(124)), Goal::Stop(Some(at(125))));
    // If the other cluster does not wait, this cluster does not wait either.
    let at_once = TargetFacts {
        takeover_delay: Duration::ZERO,
        ..ended
    };
    assert_eq!(goal(&at_once, at(120)), Goal::Stop(None));
}

#[test]
fn an_observer_follows_the_seen_lease_and_no_longer() {
    let seen = |other, sibling_until| TargetFacts {
        observes: true,
        other,
        sibling_until,
        on_quorum_loss: OnQuorumLoss::KeepRunning,
        ..facts()
    };
    for (other, until, now, expected) in [
        (Some(Other::Sibling), Some(at(120)), 100, Goal::Run),
        (Some(Other::Elsewhere), None, 100, Goal::Stop(None)),
        // The lease has ended or is no longer observed: the stop is immediate.
        (None, Some(at(120)), 120, Goal::Stop(None)),
        // Not polled yet.
        (None, None, 100, Goal::Keep(Some(at(101)))),
        (None, None, 101, Goal::Stop(None)),
    ] {
        assert_eq!(goal(&seen(other, until), at(now)), expected);
    }
    let stop_by = TargetFacts {
        stop_by: Some(at(150)),
        ..seen(Some(Other::Sibling), None)
    };
    assert_eq!(goal(&stop_by, at(110)), Goal::Stop(Some(at(150))));
}

#[test]
fn a_restarted_operator_stops_targets_of_a_free_lock_after_one_round() {
    assert_eq!(goal(&facts(), at(100)), Goal::Keep(Some(at(101))));
    assert_eq!(goal(&facts(), at(101)), Goal::Stop(None));
}

/// Returns facts without a majority; the siblings were asked at 100.
fn blind(siblings: Siblings) -> TargetFacts {
    TargetFacts { siblings, ..facts() }
}

#[test]
fn blind_replica_keeps_targets_of_a_sibling() {
    let held = blind(Siblings::Held(at(120), FencingToken(8)));
    assert_eq!(goal(&held, at(110)), Goal::Keep(Some(at(120))));
    // The sibling's answer outranks this replica's earlier observations.
    for (other, sibling_until, passed_on) in [
        (Some(Other::Elsewhere), None, true),
        (Some(Other::Sibling), Some(at(111)), false),
        (None, Some(at(50)), false),
    ] {
        let facts = TargetFacts {
            other,
            sibling_until,
            passed_on,
            ..held
        };
        assert_eq!(goal(&facts, at(110)), Goal::Keep(Some(at(120))), "{other:?}");
    }
    let free = blind(Siblings::Free(at(100)));
    assert_eq!(goal(&free, at(101)), Goal::Keep(Some(at(102))));
    let observes = TargetFacts {
        observes: true,
        ..held
    };
    assert_eq!(goal(&observes, at(110)), Goal::Keep(Some(at(120))), "of an agent");
}

#[test]
fn the_proof_of_a_sibling_expires_by_itself() {
    // The sibling died right after its answer: another cluster begins at 120 + 40.
    let held = TargetFacts {
        sibling_until: Some(at(120)),
        ..blind(Siblings::Held(at(120), FencingToken(8)))
    };
    assert_eq!(goal(&held, at(120)), Goal::Keep(Some(at(124))));
    assert_eq!(goal(&held, at(124)), Goal::Stop(Some(at(160))));
    let free = blind(Siblings::Free(at(100)));
    assert_eq!(goal(&free, at(102)), Goal::Stop(None));
    for siblings in [Siblings::Silent, Siblings::Unasked] {
        assert_eq!(goal(&blind(siblings), at(110)), Goal::Stop(None));
    }
}

#[test]
fn blind_replica_stops_targets_that_a_sibling_sees_held_elsewhere() {
    assert_eq!(goal(&blind(Siblings::Elsewhere), at(110)), Goal::Stop(None));
    let kept = TargetFacts {
        on_quorum_loss: OnQuorumLoss::KeepRunning,
        ..blind(Siblings::Elsewhere)
    };
    assert_eq!(goal(&kept, at(110)), Goal::Stop(None));
    let lost = TargetFacts {
        lost: Some(at(125)),
        ..blind(Siblings::Elsewhere)
    };
    assert_eq!(goal(&lost, at(110)), Goal::Stop(Some(at(125))));
}

#[test]
fn blind_replica_waits_for_answers_where_that_is_safe() {
    let waits = blind(Siblings::Awaited(at(112)));
    assert_eq!(goal(&waits, at(110)), Goal::Keep(Some(at(112))));
    assert_eq!(goal(&waits, at(112)), Goal::Stop(None));
    // A deadline is kept.
    let bound = TargetFacts {
        sibling_until: Some(at(80)),
        ..waits
    };
    assert_eq!(goal(&bound, at(110)), Goal::Stop(Some(at(120))));
    // The stop must begin before the lease ends.
    let lost = TargetFacts {
        lost: Some(at(147)),
        ..waits
    };
    let begin = at(147) - Duration::from_millis(35_500);
    assert_eq!(goal(&lost, at(110)), Goal::Keep(Some(begin)));
    assert_eq!(goal(&lost, begin), Goal::Stop(Some(at(147))));
    let stop_by = TargetFacts {
        stop_by: Some(at(150)),
        ..waits
    };
    assert_eq!(goal(&stop_by, at(110)), Goal::Stop(Some(at(150))));
}

#[test]
fn holder_leaves_its_targets_to_a_sibling_if_there_is_time_for_a_stop_after_it() {
    let lost = TargetFacts {
        lost: Some(at(119)),
        ..blind(Siblings::Held(at(120), FencingToken(8)))
    };
    assert_eq!(goal(&lost, at(101)), Goal::Keep(Some(at(120))));
    let at_once = TargetFacts {
        takeover_delay: Duration::from_secs(35),
        ..lost
    };
    assert_eq!(goal(&at_once, at(101)), Goal::Stop(Some(at(119))));
    // The replica's own lease counts until its end, regardless of the answers of the siblings.
    let held = TargetFacts {
        held_until: Some(at(130)),
        ..blind(Siblings::Silent)
    };
    assert_eq!(goal(&held, at(110)), Goal::Run);
}

#[test]
fn fenced_targets_are_left_to_the_nodes_until_another_cluster_is_seen_to_hold() {
    let fenced = TargetFacts {
        fenced: true,
        stop: Duration::ZERO,
        takeover_delay: Duration::from_secs(1),
        ..facts()
    };
    let ended = TargetFacts {
        sibling_until: Some(at(120)),
        ..fenced
    };
    for facts in [fenced, ended] {
        assert_eq!(goal(&facts, at(500)), Goal::Keep(None), "no sibling has won");
        let elsewhere = TargetFacts {
            other: Some(Other::Elsewhere),
            passed_on: true,
            ..facts
        };
        assert_eq!(goal(&elsewhere, at(500)), Goal::Stop(None));
        let passed_on = TargetFacts {
            passed_on: true,
            ..facts
        };
        assert_eq!(goal(&passed_on, at(500)), Goal::Stop(None));
    }
    // The graceful stop gets the rest of the lease, unless a sibling is known to hold the lock.
    let lost = TargetFacts {
        lost: Some(at(125)),
        ..fenced
    };
    assert_eq!(goal(&lost, at(121)), Goal::Stop(Some(at(125))));
    let held = TargetFacts {
        siblings: Siblings::Held(at(130), FencingToken(8)),
        ..lost
    };
    assert_eq!(goal(&held, at(121)), Goal::Keep(Some(at(130))));
}

#[test]
fn a_stop_depends_on_fencing_where_no_other_cluster_is_seen_to_hold() {
    let restarted = TargetFacts {
        siblings: Siblings::Silent,
        ..facts()
    };
    assert!(depends_on_fencing(&restarted, at(105)));
    let passed_on = TargetFacts {
        passed_on: true,
        ..restarted
    };
    let elsewhere = TargetFacts {
        other: Some(Other::Elsewhere),
        ..restarted
    };
    let lost = TargetFacts {
        lost: Some(at(125)),
        ..restarted
    };
    let held = TargetFacts {
        held_until: Some(at(130)),
        ..restarted
    };
    for facts in [passed_on, elsewhere, lost, held] {
        assert!(!depends_on_fencing(&facts, at(105)), "{facts:?}");
    }
}
