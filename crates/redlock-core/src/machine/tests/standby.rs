//! Tests the machine while another candidate holds the lock.

use super::*;

#[test]
fn a_split_does_not_report_the_lock_as_free() {
    let published = |rig: &Rig| {
        rig.actions.iter().find_map(|action| match action {
            Action::PublishStandby { holder, .. } => Some(holder.is_some()),
            _ => None,
        })
    };
    let mut rig = Rig::standby(terms(LEASE), 9_000);
    assert_eq!(published(&rig), Some(true));
    for (now, other, expected) in [
        (1_000, lease_of("there", 1, at(9_000)), None),
        (2_000, Sighting::FREE, Some(false)),
    ] {
        rig.timer(now)
            .outcome(now, Outcome::Observed(view(&[other, Sighting::FREE])));
        assert_eq!(published(&rig), expected, "{:?}", rig.actions);
    }
}

#[test]
fn an_observer_reads_when_another_candidate_may_have_taken_the_lock() {
    let observe = Terms {
        participation: Participation::Observe,
        ..terms(LEASE)
    };
    let free = || Outcome::Observed(view(&[Sighting::FREE, Sighting::FREE]));
    // The lease ends before the next periodic observation.
    let mut rig = Rig::standby(observe, 3_000);
    assert_eq!(rig.wake, Some(at(3_001)));
    // Each wait is longer than the one before.
    for (now, next) in [(3_001, 3_006), (3_011, 3_021), (3_801, 4_601)] {
        rig.timer(now).outcome(now, free());
        assert_eq!(rig.wake, Some(at(next)));
    }
    // Never later than the periodic observation.
    rig.timer(60_000).outcome(60_000, free());
    assert!(rig.wake.unwrap() <= at(60_000 + LEASE / 2), "{:?}", rig.wake);
}

fn is_acquire(round: Option<&Round>) -> bool {
    matches!(round, Some(Round::Acquire { .. }))
}

fn free() -> View {
    view(&[Sighting::FREE, Sighting::FREE, Sighting::FREE])
}

#[test]
fn it_sleeps_until_a_majority_can_be_free_and_one_millisecond() {
    let mut rig = Rig::standby(terms(LEASE), 5_000);
    assert_eq!(rig.wake, Some(at(5_001)));
    rig.timer(5_001);
    assert!(is_acquire(rig.asked()));
}

#[test]
fn siblings_of_a_dead_holder_are_first_where_they_can_continue() {
    // The observed holder is in another cluster.
    let guards = Terms {
        siblings_first: true,
        ..terms(LEASE)
    };
    let mut rig = Rig::standby(guards.clone(), 5_000);
    assert_eq!(rig.wake, Some(at(5_251)));
    rig.timer(5_001);
    assert!(!is_acquire(rig.asked()));
    // A release shows that no target runs.
    let mut rig = Rig::standby(guards, 5_000);
    rig.event(100, Event::Released { master: 0 })
        .event(100, Event::Released { master: 1 });
    assert!(is_acquire(rig.asked()));
}

#[test]
fn standby_reads_at_least_every_half_lease() {
    let mut rig = Rig::standby(terms(LEASE), 14_000);
    let wake = rig.wake.unwrap();
    assert!(wake <= at(7_501) && wake > at(7_000), "{wake:?}");
    rig.timer(7_501);
    assert_eq!(rig.asked(), Some(&Round::Observe));
}

#[test]
fn masters_that_forgot_the_lease_do_not_let_it_in_before_its_own_observed_end() {
    let mut rig = Rig::standby(terms(LEASE), 14_000);
    rig.timer(7_500).outcome(7_501, Outcome::Observed(free()));
    assert!(!is_acquire(rig.asked()));
    assert!(rig.wake.unwrap() <= at(14_001));
    rig.timer(14_000);
    assert!(!is_acquire(rig.asked()));
    rig.outcome(14_000, Outcome::Observed(free())).timer(14_001);
    assert!(is_acquire(rig.asked()));
}

/// Two masters show one lease. The clock of one of them was set back by an hour.
fn bounded_until(ends: BootInstant) -> View {
    let lease = lease_of("there", 1, at(14_000));
    let obstacle = lease.obstacle.clone().unwrap();
    view(&[lease, Sighting::bounded(obstacle, ends)])
}

/// Returns the time for which the machine sleeps, in milliseconds.
fn woken(rig: &Rig) -> u64 {
    let since = rig.wake.unwrap().since(at(0));
    u64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap()
}

#[test]
fn a_later_view_of_the_lease_replaces_the_end_that_was_seen_before() {
    for (first, then) in [
        (held_until(at(40_000)), held_until(at(14_000))),
        (held_until(at(14_000)), held_until(at(40_000))),
        (bounded_until(at(61_200)), held_until(at(14_000))),
        (held_until(at(14_000)), bounded_until(at(61_200))),
    ] {
        let ends = then.free_at().unwrap() + ms(1);
        let mut rig = Rig::new(terms(LEASE));
        rig.timer(0).outcome(1, Outcome::NotWon(Loss::Refused(first)));
        rig.timer(7_500).outcome(7_501, Outcome::Observed(then.clone()));
        let mut now = 7_501;
        while !is_acquire(rig.asked()) {
            now = woken(&rig);
            rig.timer(now);
            if !is_acquire(rig.asked()) {
                rig.outcome(now, Outcome::Observed(then.clone()));
            }
        }
        assert_eq!(at(now), ends);
    }
}

/// Two of three masters show one lease, and one of them much longer than the other: its clock was set back.
#[test]
fn standby_reads_again_soon_where_a_master_that_is_missing_may_show_a_nearer_end() {
    let first = view(&[lease_of("there", 1, at(58_000)), lease_of("there", 1, at(1_300))]);
    let then = view(&[
        lease_of("there", 1, at(58_000)),
        lease_of("there", 1, at(1_300)),
        lease_of("there", 1, at(1_300)),
    ]);
    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0).outcome(1, Outcome::NotWon(Loss::Refused(first)));
    assert_eq!(rig.wake, Some(at(250)));
    rig.timer(250).outcome(251, Outcome::Observed(then));
    assert_eq!(rig.wake, Some(at(1_301)));
}

#[test]
fn an_end_that_no_key_can_have_gives_way_to_a_majority_that_is_free() {
    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0)
        .outcome(1, Outcome::NotWon(Loss::Refused(bounded_until(at(61_200)))));
    rig.timer(7_500).outcome(7_501, Outcome::Observed(free()));
    assert!(is_acquire(rig.asked()));
}

/// A master that shows an hour shows nearly an hour half a lease later.
#[test]
fn the_first_bound_of_an_end_is_reached_although_each_view_bounds_it_anew() {
    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0)
        .outcome(1, Outcome::NotWon(Loss::Refused(bounded_until(at(61_200)))));
    let mut now = 1;
    while !is_acquire(rig.asked()) {
        assert!(now <= 61_201, "no attempt by {now} ms");
        now = woken(&rig);
        rig.timer(now);
        if !is_acquire(rig.asked()) {
            rig.outcome(now, Outcome::Observed(bounded_until(at(now + 61_200))));
        }
    }
    assert_eq!(now, 61_201);
}

#[test]
fn a_step_of_the_clock_discards_an_end_that_no_key_can_have() {
    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0)
        .outcome(1, Outcome::NotWon(Loss::Refused(bounded_until(at(61_200)))));
    rig.event(2_000, Event::ClockStepped)
        .outcome(2_001, Outcome::Observed(free()));
    let lease = u64::try_from(terms(LEASE).timings.lease_duration.as_millis()).unwrap();
    rig.timer(2_000 + lease);
    assert!(is_acquire(rig.asked()), "{:?}", rig.wake);
}

#[test]
fn a_release_by_a_majority_lets_it_in_at_once_and_by_one_master_a_moment_later() {
    let mut rig = Rig::standby(terms(LEASE), 14_000);
    rig.event(100, Event::Released { master: 0 });
    assert_eq!((rig.asked(), rig.wake), (None, Some(at(101))));
    rig.event(100, Event::Released { master: 0 });
    assert_eq!(rig.asked(), None, "the same master again");
    rig.event(100, Event::Released { master: 2 });
    assert!(is_acquire(rig.asked()));
}

#[test]
fn a_release_received_while_an_attempt_is_under_way_is_tried_again() {
    let mut rig = Rig::standby(terms(LEASE), 5_000);
    rig.timer(5_001)
        .event(5_002, Event::Released { master: 0 })
        .outcome(5_003, Outcome::NotWon(Loss::Refused(held_until(at(14_000)))));
    assert_eq!(rig.wake, Some(at(5_004)));
    rig.timer(5_004);
    assert!(is_acquire(rig.asked()));
}

#[test]
fn a_release_published_during_a_read_is_not_forgotten() {
    let mut rig = Rig::standby(terms(LEASE), 14_000);
    rig.timer(7_500)
        .event(7_501, Event::Released { master: 0 })
        .outcome(7_502, Outcome::Observed(held_until(at(14_000))));
    assert_eq!(rig.wake, Some(at(7_503)));
    rig.timer(7_503);
    assert!(is_acquire(rig.asked()));
}

#[test]
fn a_release_ends_every_back_off() {
    let split = || view(&[lease_of("a", 1, at(9_000)), lease_of("b", 2, at(9_000))]);
    for loss in [Loss::TooLate, Loss::NoQuorum(view(&[])), Loss::Refused(split())] {
        let mut rig = Rig::new(terms(LEASE));
        rig.timer(0).outcome(1, Outcome::NotWon(loss.clone()));
        rig.event(1, Event::Released { master: 0 })
            .event(1, Event::Released { master: 1 });
        assert!(is_acquire(rig.asked()), "{loss:?}");
    }
}

#[test]
fn a_clash_is_retried_after_a_random_delay_that_grows_to_the_retry_period() {
    let split = || view(&[lease_of("a", 1, at(90_000)), lease_of("b", 2, at(90_000))]);
    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0);
    let (mut now, mut longest) = (0, Duration::ZERO);
    for clash in 0..40 {
        let (id, _) = rig.round.take().unwrap();
        let outcome = Outcome::NotWon(Loss::Refused(split()));
        // The greatest random number below each ceiling.
        let ceiling = (2_000_000_u64 << clash.min(10)).min(2_000_000_000);
        let actions = rig
            .machine
            .handle(at(now), ceiling - 1, Event::RoundFinished { id, outcome });
        let Some(Action::SleepUntil(wake)) = actions.last() else {
            panic!("{actions:?}")
        };
        let delay = wake.since(at(now));
        assert!(
            delay >= ms(1) && delay >= longest && delay <= ms(2_001),
            "{delay:?}"
        );
        longest = delay;
        now += 3_000;
        rig.timer(now);
    }
    assert!(longest > ms(1_900));
}

#[test]
fn without_a_quorum_it_tries_again_after_about_the_retry_period_or_when_it_is_back() {
    let mut rig = Rig::new(terms(LEASE));
    rig.timer(0).outcome(1, Outcome::NotWon(Loss::TooLate));
    let wake = rig.wake.unwrap();
    assert!(wake >= at(1_501) && wake <= at(2_501), "{wake:?}");
    rig.event(10, Event::QuorumBack);
    assert!(is_acquire(rig.asked()));
}

#[test]
fn quorum_that_is_back_changes_nothing_behind_a_lease_that_is_seen() {
    let mut rig = Rig::standby(terms(LEASE), 5_000);
    rig.event(10, Event::QuorumBack);
    assert!(rig.actions.is_empty(), "{:?}", rig.actions);
}

#[test]
fn a_key_without_an_expiry_keeps_it_out_only_while_it_is_there() {
    let mut rig = Rig::new(terms(LEASE));
    let forever = held_until(BootInstant::NEVER);
    rig.timer(0).outcome(1, Outcome::NotWon(Loss::Refused(forever)));
    assert!(rig.wake.unwrap() > at(5_000), "no busy loop");
    rig.timer(7_502);
    if !is_acquire(rig.asked()) {
        rig.outcome(7_502, Outcome::Observed(free())).timer(7_503);
    }
    assert!(is_acquire(rig.asked()));
}

#[test]
fn an_ordered_candidate_waits_its_delay_from_the_end_and_from_its_own_start() {
    let ordered = || Terms {
        ordered_delay: ms(3_000),
        ..terms(LEASE)
    };
    let mut rig = Rig::new(ordered());
    rig.timer(0).outcome(1, Outcome::Observed(free()));
    assert_eq!(rig.wake, Some(at(3_000)));
    let rig = Rig::standby(ordered(), 2_000);
    assert_eq!(rig.wake, Some(at(5_001)));
    let mut rig = Rig::standby(ordered(), 6_000);
    rig.event(100, Event::Released { master: 0 })
        .event(100, Event::Released { master: 1 });
    assert_eq!(rig.asked(), Some(&Round::Observe), "it may be reserved for it");
    rig.outcome(101, Outcome::Observed(free()));
    assert_eq!(rig.wake, Some(at(3_100)));
}

#[test]
fn a_reservation_for_the_own_cluster_knows_no_order_and_no_freeze() {
    let ours = || view(&[Sighting::OURS, Sighting::OURS]);
    for terms in [
        Terms {
            ordered_delay: ms(3_000),
            ..terms(LEASE)
        },
        Terms {
            participation: Participation::SucceedSibling,
            ..terms(LEASE)
        },
    ] {
        let mut rig = Rig::standby(terms, 14_000);
        rig.event(100, Event::Released { master: 0 })
            .event(100, Event::Released { master: 1 })
            .outcome(101, Outcome::Observed(ours()));
        assert!(is_acquire(rig.asked()));
        // A sibling split the masters with this candidate: the reservation is still there.
        let split = view(&[Sighting::FREE, lease_of("here", 3, at(9_000))]);
        rig.outcome(102, Outcome::NotWon(Loss::Refused(split)));
        assert!(rig.wake.unwrap() < at(200), "{:?}", rig.wake);
    }
}

#[test]
fn a_frozen_candidate_succeeds_only_a_sibling() {
    for (holder, takes) in [("here", true), ("there", false)] {
        let terms = Terms {
            participation: Participation::SucceedSibling,
            ..terms(LEASE)
        };
        let mut rig = Rig::new(terms);
        let seen = view(&[lease_of(holder, 1, at(2_000)), lease_of(holder, 1, at(2_000))]);
        rig.timer(0).outcome(1, Outcome::Observed(seen)).timer(2_001);
        assert_eq!(is_acquire(rig.asked()), takes, "{holder}");
    }
}

#[test]
fn a_win_reports_the_lease_that_it_followed() {
    for (release, expected) in [(false, at(5_000)), (true, at(100))] {
        let mut rig = Rig::standby(terms(LEASE), 5_000);
        let now = if release { 100 } else { 5_001 };
        if release {
            rig.event(now, Event::Released { master: 0 })
                .event(now, Event::Released { master: 1 });
        } else {
            rig.timer(now);
        }
        rig.won(now, now + 1, LEASE);
        let Some(Action::PublishActive {
            won: Some((_, takeover)),
            ..
        }) = rig.actions.first()
        else {
            panic!("{:?}", rig.actions)
        };
        assert_eq!(
            *takeover,
            Some(Takeover {
                released: release,
                ended_at: expected
            })
        );
    }
}
