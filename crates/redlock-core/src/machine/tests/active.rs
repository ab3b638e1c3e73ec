//! Tests the machine while it holds the lock.

use super::*;

#[test]
fn authority_is_published_with_its_end_and_ends_by_itself() {
    let rig = Rig::active(terms(LEASE));
    let end = at(LEASE) - timing::drift(ms(LEASE));
    assert_eq!(rig.published_end(), Some(end));
    assert!(rig.machine.authority_at(end - Duration::from_nanos(1)).is_some());
    assert!(rig.machine.authority_at(end).is_none());
}

#[test]
fn renewal_is_due_after_a_third_of_the_lease_or_a_little_before() {
    let mut rig = Rig::active(terms(LEASE));
    let wake = rig.wake.unwrap();
    assert!(
        wake <= at(5_000) && wake > at(5_000) - ms(5_000 / 16 + 1),
        "{wake:?}"
    );
    rig.timer(5_000);
    assert!(matches!(rig.asked(), Some(Round::Renew { .. })));
}

#[test]
fn a_won_renewal_moves_the_end_to_its_own_start() {
    let mut rig = Rig::active(terms(LEASE));
    rig.timer(5_000)
        .outcome(5_400, Outcome::Renewed { started: at(5_002) });
    let end = at(5_002 + LEASE) - timing::drift(ms(LEASE));
    assert_eq!(rig.published_end(), Some(end));
}

#[test]
fn a_failed_renewal_moves_nothing_and_is_tried_again_every_retry_period() {
    let mut rig = Rig::active(terms(LEASE));
    rig.timer(5_000).outcome(5_500, Outcome::RenewalUndecided);
    assert_eq!(rig.published_end(), None);
    assert_eq!(rig.wake, Some(at(7_500)));
    rig.timer(7_500);
    assert!(matches!(rig.asked(), Some(Round::Renew { .. })));
}

#[test]
fn without_a_won_round_it_steps_down_at_the_renew_deadline() {
    let mut rig = Rig::active(terms(LEASE));
    rig.timer(5_000).outcome(5_500, Outcome::RenewalUndecided);
    rig.timer(7_500);
    assert_eq!(rig.wake, Some(at(10_000)), "also while a renewal hangs");
    rig.timer(10_000);
    assert_eq!(rig.ended(), Some(EndReason::QuorumLost));
}

#[test]
fn too_many_refusals_lose_it_at_once() {
    let mut rig = Rig::active(terms(LEASE));
    rig.timer(5_000).outcome(5_001, Outcome::RenewalRefused);
    assert_eq!(rig.ended(), Some(EndReason::Refused));
    assert_eq!(rig.asked(), Some(&Round::Release));
}

#[test]
fn the_first_output_after_a_pause_past_the_end_is_the_loss() {
    for event in [
        Event::TimerFired,
        Event::Released { master: 0 },
        Event::QuorumBack,
        Event::Marked,
        Event::SpecChanged(terms(LEASE)),
        Event::StepDown { abstain: ms(1) },
        hand_over("there", None),
        Event::Shutdown(ReleaseMode::Release),
    ] {
        let mut rig = Rig::active(terms(LEASE));
        rig.event(60_000, event.clone());
        assert!(
            matches!(
                rig.actions.first(),
                Some(Action::PublishStandby {
                    ended: Some(EndReason::Expired),
                    ..
                })
            ),
            "{event:?}: {:?}",
            rig.actions
        );
        let renews = |a: &Action| {
            matches!(
                a,
                Action::StartRound {
                    round: Round::Renew { .. },
                    ..
                }
            )
        };
        assert!(!rig.actions.iter().any(renews), "{event:?}");
    }
}

#[test]
fn a_renewal_won_after_the_local_end_does_not_bring_the_lease_back() {
    let mut rig = Rig::active(terms(LEASE));
    rig.timer(5_000);
    let (id, _) = rig.round.clone().unwrap();
    let outcome = Outcome::Renewed { started: at(5_000) };
    rig.event(14_900, Event::RoundFinished { id, outcome });
    assert_eq!(
        (rig.published_end(), rig.ended()),
        (None, Some(EndReason::Expired))
    );
    assert!(rig.machine.authority_at(at(14_900)).is_none());
}

#[test]
fn an_answer_to_an_older_round_changes_nothing() {
    let mut rig = Rig::active(terms(LEASE));
    let (id, outcome) = (1, Outcome::RenewalRefused);
    rig.timer(5_000)
        .event(5_001, Event::RoundFinished { id, outcome });
    assert!(rig.actions.is_empty());
}

#[test]
fn an_attempt_won_after_its_end_is_not_held() {
    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0).won(0, LEASE, LEASE);
    assert_eq!(rig.published_end(), None);
    assert_eq!(rig.asked(), Some(&Round::Undo));
}

#[test]
fn a_failed_renewal_is_repeated_at_once_when_the_quorum_is_back() {
    let mut rig = Rig::active(terms(LEASE));
    rig.event(100, Event::QuorumBack);
    assert_eq!(rig.round, None, "nothing had failed");
    rig.timer(5_000).outcome(5_001, Outcome::RenewalUndecided);
    rig.event(5_010, Event::QuorumBack);
    assert!(matches!(rig.asked(), Some(Round::Renew { .. })));
}

#[test]
fn the_first_mark_is_followed_by_a_renewal() {
    let mut rig = Rig::active(terms(LEASE));
    rig.event(100, Event::Marked);
    assert!(matches!(rig.asked(), Some(Round::Renew { .. })));
    // The renewal under way may have been written before the mark.
    let mut rig = Rig::active(terms(LEASE));
    rig.timer(5_000).event(5_010, Event::Marked);
    let started = at(5_000);
    rig.outcome(5_020, Outcome::Renewed { started });
    assert!(matches!(rig.asked(), Some(Round::Renew { .. })));
    let started = at(5_020);
    rig.outcome(5_030, Outcome::Renewed { started });
    assert_eq!(rig.round, None);
}
