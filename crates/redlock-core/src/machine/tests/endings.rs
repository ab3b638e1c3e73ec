//! Tests giving the lock up, passing it on and shutting down.

use super::*;

#[test]
fn the_local_end_comes_before_the_first_byte_of_the_release() {
    for (event, round) in [
        (Event::Shutdown(ReleaseMode::Release), Round::Release),
        (Event::StepDown { abstain: ms(9) }, Round::Release),
        (
            hand_over("there", None),
            Round::Reserve {
                cluster: cluster("there"),
            },
        ),
    ] {
        let mut rig = Rig::active(terms(LEASE));
        rig.event(100, event);
        assert!(
            matches!(&rig.actions[..], [Action::PublishStandby { ended: Some(_), .. }, Action::StartRound { round: r, .. }] if *r == round),
            "{:?}",
            rig.actions
        );
        assert!(rig.machine.authority_at(at(100)).is_none());
    }
}

#[test]
fn shutdown_stops_once_nothing_is_held_or_under_way() {
    let observe = Terms {
        participation: Participation::Observe,
        ..terms(LEASE)
    };
    let mut observing = Rig::new(observe);
    observing.timer(0);
    for (name, mut rig) in [
        ("new", Rig::new(terms(LEASE))),
        ("waiting", Rig::standby(terms(LEASE), 9_000)),
        ("observing", observing),
    ] {
        assert!(
            rig.event(100, Event::Shutdown(ReleaseMode::Release)).stopped(),
            "{name}"
        );
        assert!(rig.timer(200).actions.is_empty(), "{name}");
        assert!(
            rig.event(200, Event::Shutdown(ReleaseMode::Release))
                .actions
                .is_empty(),
            "{name}"
        );
    }
    let mut acquiring = Rig::new(terms(LEASE));
    acquiring.timer(0);
    let mut ending = Rig::active(terms(LEASE));
    ending.event(50, Event::StepDown { abstain: ms(0) });
    for (name, mut rig, round) in [
        ("acquiring", acquiring, Round::Undo),
        ("active", Rig::active(terms(LEASE)), Round::Release),
        ("ending", ending, Round::Release),
    ] {
        assert!(
            !rig.event(100, Event::Shutdown(ReleaseMode::Release)).stopped(),
            "{name}"
        );
        assert_eq!(rig.asked(), Some(&round), "{name}");
        assert!(rig.outcome(200, Outcome::Released).stopped(), "{name}");
    }
}

#[test]
fn an_attempt_won_after_the_shutdown_is_not_held() {
    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0);
    let (id, _) = rig.round.clone().unwrap();
    rig.event(1, Event::Shutdown(ReleaseMode::Release));
    let outcome = Outcome::Won(won(0, LEASE));
    rig.event(2, Event::RoundFinished { id, outcome });
    assert!(rig.actions.is_empty());
}

#[test]
fn a_step_of_the_local_clock_ends_held_leases_and_voids_attempts_under_way() {
    let guards = Terms {
        guards: true,
        ..terms(LEASE)
    };
    for (terms, round) in [(terms(LEASE), Round::Release), (guards, Round::Observe)] {
        let mut rig = Rig::active(terms);
        rig.event(100, Event::ClockStepped);
        assert_eq!(rig.ended(), Some(EndReason::ClockStepped));
        assert!(rig.machine.authority_at(at(100)).is_none());
        assert_eq!(rig.asked(), Some(&round));
    }

    let mut acquiring = Rig::new(terms(LEASE));
    acquiring.timer(0);
    let (id, _) = acquiring.round.clone().unwrap();
    acquiring.event(1, Event::ClockStepped);
    assert_eq!(acquiring.asked(), Some(&Round::Undo));
    let outcome = Outcome::Won(won(0, LEASE));
    acquiring.event(2, Event::RoundFinished { id, outcome });
    assert!(acquiring.actions.is_empty(), "it began under another clock");
    acquiring.outcome(3, Outcome::Released);
    assert_eq!(acquiring.asked(), Some(&Round::Observe));
}

/// The clocks of all masters may have stepped instead: they then forgot a lease that its holder still relies
/// on.
#[test]
fn candidate_whose_clock_stepped_waits_for_a_lease_that_it_may_have_missed() {
    let free = || Outcome::Observed(view(&[Sighting::FREE, Sighting::FREE]));
    for (known_end, free_at) in [(9_000, 100 + LEASE), (20_000, 20_001)] {
        let mut standby = Rig::standby(terms(LEASE), known_end);
        standby.event(100, Event::ClockStepped);
        assert_eq!(standby.asked(), Some(&Round::Observe));
        standby.outcome(101, free());
        assert_eq!(standby.asked(), None, "known until {known_end}");
        standby.timer(free_at - 1);
        assert_eq!(standby.asked(), Some(&Round::Observe));
        standby.outcome(free_at - 1, free()).timer(free_at);
        assert!(matches!(standby.asked(), Some(Round::Acquire { .. })));
    }
}

#[test]
fn release_ends_the_wait_after_a_step_of_the_clock() {
    let mut standby = Rig::standby(terms(LEASE), 9_000);
    standby
        .event(100, Event::ClockStepped)
        .outcome(101, Outcome::Observed(view(&[Sighting::FREE, Sighting::FREE])))
        .event(200, Event::Released { master: 0 })
        .event(200, Event::Released { master: 1 });
    assert!(matches!(standby.asked(), Some(Round::Acquire { .. })));
}

#[test]
fn holder_whose_clock_stepped_acquires_the_lock_anew_at_once() {
    let mut holder = Rig::active(terms(LEASE));
    holder
        .event(100, Event::ClockStepped)
        .outcome(101, Outcome::Released);
    assert!(matches!(holder.asked(), Some(Round::Acquire { .. })));
}

#[test]
fn a_holder_that_steps_down_abstains() {
    let mut rig = Rig::active(terms(LEASE));
    rig.event(100, Event::StepDown { abstain: ms(3_000) })
        .outcome(101, Outcome::Released);
    assert_eq!(
        rig.asked(),
        Some(&Round::Observe),
        "the candidate reads the lock, and does not take it"
    );
    rig.outcome(102, Outcome::Observed(view(&[Sighting::FREE, Sighting::FREE])));
    assert_eq!(rig.wake, Some(at(3_100)));
    rig.timer(3_100);
    assert!(matches!(rig.asked(), Some(Round::Acquire { .. })));
}

#[test]
fn an_attempt_won_after_stepping_down_is_undone() {
    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0)
        .event(1, Event::StepDown { abstain: ms(3_000) })
        .won(0, 2, LEASE);
    // A release would delete the reservation under which a sibling may still enter.
    assert_eq!((rig.published_end(), rig.asked()), (None, Some(&Round::Undo)));
}

#[test]
fn after_a_hand_over_the_lock_is_waited_for_again() {
    let mut rig = Rig::active(terms(LEASE));
    rig.event(100, hand_over("there", None))
        .outcome(101, Outcome::Reserved { majority: true });
    let reserved = || Sighting::blocked(Obstacle::Reserved("there".into()), at(9_000));
    rig.outcome(
        102,
        Outcome::NotWon(Loss::Refused(view(&[reserved(), reserved()]))),
    );
    assert!(rig.wake.unwrap() > at(6_000), "{:?}", rig.wake);
}

#[test]
fn a_hand_over_of_one_lease_leaves_every_other_alone() {
    let mut rig = Rig::active(terms(LEASE));
    for token in [8, 10] {
        rig.event(100, hand_over("there", Some(token)));
        assert!(rig.actions.is_empty(), "{:?}", rig.actions);
    }
    rig.event(100, hand_over("there", Some(9)));
    assert_eq!(rig.ended(), Some(EndReason::Reserved));
    // The lease with this token is over, and no other lease has it.
    rig.event(101, hand_over("there", Some(9)));
    assert!(rig.actions.is_empty(), "{:?}", rig.actions);
}

fn with_targets() -> Terms {
    Terms {
        guards: true,
        ..terms(LEASE)
    }
}

fn releases(rig: &Rig) -> bool {
    let release = |action: &Action| {
        matches!(
            action,
            Action::StartRound {
                round: Round::Release,
                ..
            }
        )
    };
    rig.actions.iter().any(release)
}

#[test]
fn a_lost_lease_is_left_to_run_out_where_something_has_to_be_stopped() {
    for lost in [
        Outcome::RenewalRefused,
        // Undecided at the renew deadline.
        Outcome::RenewalUndecided,
    ] {
        let mut rig = Rig::active(with_targets());
        rig.timer(5_000);
        rig.outcome(10_000, lost);
        assert!(rig.machine.authority_at(at(10_000)).is_none());
        assert!(!releases(&rig), "{:?}", rig.actions);
    }
    // `guards` decides, not the time to stop: without work to stop, the lease is released at once.
    let mut without = terms(LEASE);
    without.timings.stop = ms(3_000);
    let mut rig = Rig::active(without);
    rig.timer(5_000);
    rig.outcome(10_000, Outcome::RenewalUndecided);
    assert!(releases(&rig), "{:?}", rig.actions);
}

#[test]
fn a_reservation_that_failed_at_the_end_leaves_a_guarding_lease_to_run_out() {
    for (terms, released) in [(with_targets(), false), (terms(LEASE), true)] {
        let mut rig = Rig::active(terms);
        rig.event(100, Event::Shutdown(ReleaseMode::Reserve));
        rig.outcome(101, Outcome::Reserved { majority: false });
        assert_eq!((releases(&rig), rig.stopped()), (released, !released));
    }
}

#[test]
fn a_candidate_that_leaves_releases_reserves_or_abandons() {
    let mut rig = Rig::active(terms(LEASE));
    rig.event(100, Event::Shutdown(ReleaseMode::Reserve));
    assert!(matches!(&rig.round, Some((_, Round::Reserve { cluster: own })) if *own == cluster("here")));
    let mut rig = Rig::active(terms(LEASE));
    assert!(rig.event(100, Event::Shutdown(ReleaseMode::Abandon)).stopped());
    assert!(
        !rig.actions
            .iter()
            .any(|action| matches!(action, Action::StartRound { .. })),
        "the lease runs out: {:?}",
        rig.actions
    );
    assert!(matches!(
        &rig.actions[0],
        Action::PublishStandby { ended: Some(_), .. }
    ));
}
