//! Tests terms that change while a lease is held or an attempt is under way.

use super::*;

fn drifted(start: u64, lease: u64) -> BootInstant {
    at(start + lease) - timing::drift(ms(lease))
}

#[test]
fn new_terms_are_renewed_with_at_once() {
    let mut rig = Rig::active(terms(LEASE));
    rig.event(100, Event::SpecChanged(terms(30_000)));
    assert!(
        matches!(rig.asked(), Some(Round::Renew { lease_duration, .. }) if *lease_duration == ms(30_000))
    );
    assert_eq!(
        rig.published_end(),
        None,
        "longer only after a majority has granted it"
    );
}

#[test]
fn a_shorter_lease_is_published_before_it_is_sent_to_the_masters() {
    let mut rig = Rig::active(terms(LEASE));
    rig.event(100, Event::SpecChanged(terms(3_000)));
    assert!(matches!(
        rig.actions[..],
        [Action::PublishActive { authority, .. }, Action::StartRound { .. }, Action::SleepUntil(wake)]
            if authority.valid_until == drifted(100, 3_000) && wake == at(2_100)
    ));
}

#[test]
fn a_renewal_under_way_is_superseded_by_one_of_another_duration() {
    let mut rig = Rig::active(terms(LEASE));
    rig.timer(5_000);
    let (id, _) = rig.round.clone().unwrap();
    rig.event(5_001, Event::SpecChanged(terms(60_000)));
    assert!(
        matches!(rig.asked(), Some(Round::Renew { lease_duration, .. }) if *lease_duration == ms(60_000))
    );
    let outcome = Outcome::Renewed { started: at(5_000) };
    rig.event(5_002, Event::RoundFinished { id, outcome });
    assert!(rig.actions.is_empty(), "{:?}", rig.actions);
    rig.outcome(5_003, Outcome::Renewed { started: at(5_001) });
    assert_eq!(rig.published_end(), Some(drifted(5_001, 60_000)));
}

#[test]
fn a_longer_stop_that_comes_during_a_renewal_leaves_time_to_stop() {
    let (mut without, mut with) = (terms(60_000), terms(60_000));
    without.timings.renew_deadline = ms(55_000);
    with.timings.renew_deadline = ms(25_000);
    with.timings.stop = ms(30_000);
    let mut rig = Rig::active(without);
    rig.timer(20_000);
    rig.event(20_001, Event::SpecChanged(with));
    assert_eq!(rig.wake, Some(at(28_398)), "59.398 s - 30 s - 1 s");
    rig.outcome(20_500, Outcome::RenewalUndecided).timer(28_397);
    assert_eq!(rig.ended(), None);
    rig.timer(28_398);
    assert_eq!(rig.ended(), Some(EndReason::QuorumLost));
}

#[test]
fn a_lease_won_with_the_old_duration_is_renewed_before_it_ends() {
    let mut rig = Rig::new(terms(2_000));
    rig.timer(0)
        .event(1, Event::SpecChanged(terms(60_000)))
        .won(0, 2, 2_000);
    assert_eq!(rig.published_end(), Some(drifted(0, 2_000)));
    assert!(matches!(rig.asked(), Some(Round::Renew { .. })));
}

#[test]
fn a_shorter_renew_deadline_counts_from_now_on() {
    let mut rig = Rig::active(terms(60_000));
    let mut short = terms(60_000);
    short.timings.renew_deadline = ms(6_000);
    rig.event(100, Event::SpecChanged(short))
        .outcome(600, Outcome::RenewalUndecided)
        .timer(2_600);
    assert_eq!(rig.wake, Some(at(6_100)));
}

#[test]
fn a_holder_that_may_no_longer_hold_gives_up() {
    let observe = Terms {
        participation: Participation::Observe,
        ..terms(LEASE)
    };
    let mut rig = Rig::active(terms(LEASE));
    rig.event(100, Event::SpecChanged(observe.clone()));
    assert_eq!(rig.ended(), Some(EndReason::SteppedDown));
    assert_eq!(rig.asked(), Some(&Round::Release));
    rig.outcome(101, Outcome::Released);
    assert_eq!(rig.asked(), Some(&Round::Observe));

    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0)
        .event(1, Event::SpecChanged(observe))
        .won(0, 2, LEASE);
    assert_eq!((rig.published_end(), rig.asked()), (None, Some(&Round::Undo)));
}

#[test]
fn a_frozen_holder_stays_and_may_succeed_itself() {
    let frozen = Terms {
        participation: Participation::SucceedSibling,
        ..terms(LEASE)
    };
    let mut rig = Rig::active(terms(LEASE));
    rig.event(100, Event::SpecChanged(frozen));
    assert_eq!(rig.ended(), None);
    rig.outcome(101, Outcome::RenewalRefused)
        .outcome(102, Outcome::Released);
    assert!(matches!(rig.asked(), Some(Round::Acquire { .. })));
}

/// Returns terms with targets that take this long to stop.
fn stopping(stop: u64) -> Terms {
    Terms {
        timings: Timings::derive(ms(stop)),
        guards: true,
        ..terms(LEASE)
    }
}

#[test]
fn a_stop_longer_than_the_rest_of_the_lease_is_renewed_for() {
    // A lease of 35 s, of which 22 s are left; a stop of 65 s needs one of 90 s.
    let mut rig = Rig::active(stopping(7_000));
    rig.timer(11_000).outcome(11_001, Outcome::RenewalUndecided);
    rig.event(13_000, Event::SpecChanged(stopping(65_000)));
    assert_eq!(rig.ended(), None);
    assert!(
        matches!(rig.asked(), Some(Round::Renew { lease_duration, .. }) if *lease_duration == ms(90_000))
    );
    let mut lost = Rig {
        machine: rig.machine.clone(),
        round: rig.round.clone(),
        wake: rig.wake,
        actions: Vec::new(),
    };
    rig.outcome(13_001, Outcome::Renewed { started: at(13_000) });
    assert_eq!(
        (rig.ended(), rig.published_end()),
        (None, Some(drifted(13_000, 90_000)))
    );

    // Without a majority the holder gives up within the slack, because its time to stop shrinks.
    lost.outcome(13_001, Outcome::RenewalUndecided).timer(13_999);
    assert_eq!(lost.ended(), None);
    lost.timer(14_000);
    assert_eq!(lost.ended(), Some(EndReason::QuorumLost));
}

#[test]
fn a_shorter_stop_ends_nothing_and_cuts_the_lease() {
    let mut rig = Rig::active(stopping(65_000));
    // 16 s after the last renewal, more than a second before it would give up.
    rig.timer(8_700).outcome(8_701, Outcome::RenewalUndecided);
    rig.event(16_000, Event::SpecChanged(stopping(7_000)));
    assert_eq!(
        (rig.ended(), rig.published_end()),
        (None, Some(drifted(16_000, 35_000)))
    );
    rig.outcome(16_001, Outcome::Renewed { started: at(16_000) });
    assert_eq!(
        (rig.ended(), rig.published_end()),
        (None, Some(drifted(16_000, 35_000)))
    );
}
