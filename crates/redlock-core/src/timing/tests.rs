use proptest::prelude::*;

use super::*;

const NOTHING: GivenTimings = GivenTimings {
    lease_duration: None,
    renew_deadline: None,
    retry_period: None,
};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn given(lease: Option<Duration>, deadline: Option<Duration>, retry: Option<Duration>) -> GivenTimings {
    GivenTimings {
        lease_duration: lease,
        renew_deadline: deadline,
        retry_period: retry,
    }
}

/// Checks the rules of docs/protocol.md, section 14, in a second implementation: whole numbers without any rounding.
fn rules_hold(t: &Timings, command_timeout: Duration) -> bool {
    let lease = t.lease_duration.as_millis();
    let deadline = t.renew_deadline.as_millis();
    let hundred_slacks = (lease * 10).min(100_000);
    lease >= 2_000
        && lease * 99 > (deadline + t.stop.as_millis()) * 100 + hundred_slacks
        && deadline > 2 * t.retry_period.as_millis()
        && deadline >= 1_000
        && t.renew_deadline >= command_timeout * 3
}

#[test]
fn timings_are_derived_from_the_stop_time() {
    // stop, lease, renew deadline, retry period; in milliseconds
    let table = [
        (0, 15_000, 10_387, 2_077),
        (1, 30_000, 21_524, 4_304), // a stop of 1 ms is still a stop: 25.001 s, rounded up in steps of 5 s
        (5_000, 30_000, 17_775, 3_555),
        (5_001, 35_000, 21_486, 4_297),
        (35_000, 60_000, 17_550, 3_510),
        (36_000, 65_000, 20_512, 4_102),
        (300_000, 325_000, 15_562, 3_112),
        (3_600_000, 3_655_000, 13_087, 2_617), // 1 % of an hour is 36 s: the room keeps its least value
    ];
    for (stop, lease, deadline, retry) in table {
        let timings = Timings::derive(ms(stop));
        assert_eq!(
            (
                timings.lease_duration,
                timings.renew_deadline,
                timings.retry_period,
                timings.stop
            ),
            (ms(lease), ms(deadline), ms(retry), ms(stop)),
            "stop {stop} ms"
        );
    }
}

#[test]
fn unset_timings_are_derived_from_set_ones() {
    let lease_only = Timings::resolve(given(Some(s(3)), None, None), s(0), None, s(60)).unwrap();
    assert_eq!(
        (lease_only.renew_deadline, lease_only.retry_period),
        (ms(2_002), ms(400))
    );
    assert_eq!(
        lease_only.command_timeout(None),
        ms(400),
        "no longer than the retry period"
    );

    let deadline_only = Timings::resolve(given(None, Some(s(5)), None), s(0), None, s(60)).unwrap();
    assert_eq!(
        (deadline_only.lease_duration, deadline_only.retry_period),
        (s(15), s(1))
    );
    assert_eq!(deadline_only.command_timeout(None), ms(500));

    // the renew deadline is 1.335 s: three command timeouts of the retry period would not fit
    let shortest = Timings::resolve(given(Some(s(2)), None, Some(ms(446))), s(0), None, s(60)).unwrap();
    assert_eq!(shortest.command_timeout(None), ms(445));

    let all = Timings::resolve(given(Some(s(60)), Some(s(17)), Some(s(3))), s(35), None, s(60)).unwrap();
    assert_eq!(
        (all.lease_duration, all.renew_deadline, all.retry_period),
        (s(60), s(17), s(3))
    );
    assert_eq!(all.command_timeout(Some(ms(250))), ms(250));
}

#[test]
fn each_rule_refuses_just_beyond_its_edge() {
    use TimingError as E;
    let ok = |g, stop, timeout| Timings::resolve(g, stop, timeout, s(60)).unwrap();
    let err = |g, stop, timeout| Timings::resolve(g, stop, timeout, s(60)).unwrap_err();

    ok(given(Some(s(2)), None, None), s(0), None);
    assert_eq!(
        err(given(Some(ms(1_999)), None, None), s(0), None),
        E::LeaseTooShort { lease: ms(1_999) }
    );
    assert_eq!(
        err(given(Some(s(0)), None, None), s(0), None),
        E::LeaseTooShort { lease: s(0) }
    );

    ok(given(Some(s(60)), None, None), s(0), None);
    let lease = ms(60_001);
    assert_eq!(
        err(given(Some(lease), None, None), s(0), None),
        E::LeaseTooLong {
            lease,
            longest: s(60)
        }
    );

    // 10 s × 0.99 - 1 s = 8.9 s, and the deadline must be shorter than that
    ok(given(Some(s(10)), Some(ms(8_899)), None), s(0), None);
    let e = err(given(Some(s(10)), Some(ms(8_900)), None), s(0), None);
    assert_eq!(
        e,
        E::RenewDeadlineTooLong {
            renew_deadline: ms(8_900),
            lease: s(10)
        }
    );

    ok(given(Some(s(10)), Some(s(1)), Some(ms(200))), s(0), None);
    let e = err(given(Some(s(10)), Some(ms(999)), Some(ms(200))), s(0), None);
    assert_eq!(
        e,
        E::RenewDeadlineTooShort {
            renew_deadline: ms(999),
            command_timeout: ms(200)
        }
    );

    ok(given(Some(s(10)), Some(s(6)), None), s(0), Some(s(2)));
    let e = err(given(Some(s(10)), Some(ms(5_999)), None), s(0), Some(s(2)));
    assert_eq!(
        e,
        E::RenewDeadlineTooShort {
            renew_deadline: ms(5_999),
            command_timeout: s(2)
        }
    );

    ok(given(Some(s(10)), Some(s(4)), Some(ms(1_999))), s(0), None);
    let e = err(given(Some(s(10)), Some(s(4)), Some(s(2))), s(0), None);
    assert_eq!(
        e,
        E::RetryPeriodTooLong {
            retry_period: s(2),
            renew_deadline: s(4),
            lease: s(10)
        }
    );

    ok(given(None, None, Some(ms(10))), s(0), None);
    let e = err(given(None, None, Some(ms(9))), s(0), None);
    assert_eq!(e, E::RetryPeriodTooShort { retry_period: ms(9) });
}

#[test]
fn a_stop_that_does_not_fit_names_the_lease_that_would_do_and_the_longest() {
    // the derived lease would be longer than the quorum allows
    let e = Timings::resolve(NOTHING, s(36), None, s(60)).unwrap_err();
    assert_eq!(
        e,
        TimingError::StopBudgetTooShort {
            lease: s(65),
            stop: s(36),
            needed: s(65),
            longest: s(60)
        }
    );
    for part in [
        "lease duration 65 s",
        "36 s",
        "a lease of 65 s would be enough",
        "quorum's longest is 60 s",
    ] {
        assert!(e.to_string().contains(part), "{e}: {part}");
    }
    // a given lease shorter than the stop, and one that leaves less than a renew deadline of 1 s
    for lease in [20, 36] {
        let e = Timings::resolve(given(Some(s(lease)), None, None), s(35), None, s(60)).unwrap_err();
        assert_eq!(
            e,
            TimingError::StopBudgetTooShort {
                lease: s(lease),
                stop: s(35),
                needed: s(60),
                longest: s(60)
            }
        );
    }
    // a given renew deadline is part of the suggested lease
    let e = Timings::resolve(given(Some(s(60)), Some(s(30)), None), s(35), None, s(120)).unwrap_err();
    assert_eq!(
        e,
        TimingError::StopBudgetTooShort {
            lease: s(60),
            stop: s(35),
            needed: s(67),
            longest: s(120)
        }
    );
}

/// 24.167 s less drift, stop and slack leaves 49 ms for the renew deadline: the retry period of 9 ms is derived.
#[test]
fn a_derived_retry_period_is_never_refused() {
    let stop = ms(22_859);
    let refused = Timings::resolve(given(Some(ms(24_167)), None, None), stop, None, s(120)).unwrap_err();
    assert_eq!(refused.field(), TimingField::LeaseDuration, "{refused}");
    let refused = Timings::resolve(given(None, Some(ms(40)), None), s(0), None, s(120)).unwrap_err();
    assert_eq!(refused.field(), TimingField::RenewDeadline, "{refused}");
}

#[test]
fn every_error_names_field_and_value() {
    let e = Timings::resolve(given(None, None, Some(s(20))), s(0), None, s(60)).unwrap_err();
    assert_eq!(e.field().wire_name(), "retryPeriodSeconds");
    assert_eq!(e.value(), s(20));
    assert_eq!(
        e.to_string(),
        "retry period 20 s does not fit twice into the renew deadline of 10.387 s (lease duration 15 s): \
         shorten it or lengthen the lease"
    );
}

#[test]
fn drift_and_seal_wait_follow_the_protocol() {
    assert_eq!(drift(s(15)), ms(152));
    assert_eq!(drift(s(0)), ms(2));
    assert_eq!(
        seal_wait(DEFAULT_LONGEST_LEASE, DEFAULT_ACQUIRE_LIMIT),
        ms(65_200)
    );
    assert_eq!(seal_wait(Duration::MAX, s(2)), Duration::MAX);
}

#[test]
fn the_longest_durations_are_refused_not_overflowed() {
    let huge = Some(Duration::MAX);
    assert!(Timings::resolve(given(huge, huge, huge), Duration::MAX, huge, Duration::MAX).is_err());
    assert!(Timings::resolve(NOTHING, Duration::MAX, huge, s(60)).is_err());
}

proptest! {
    #[test]
    fn derived_timings_keep_every_rule(stop in 0u64..86_400_000) {
        let timings = Timings::derive(ms(stop));
        prop_assert!(rules_hold(&timings, timings.command_timeout(None)), "{timings:?}");
        prop_assert_eq!(Timings::resolve(NOTHING, ms(stop), None, s(200_000)), Ok(timings));
    }

    #[test]
    fn resolved_timings_keep_every_rule(
        lease in proptest::option::of(0u64..130_000),
        deadline in proptest::option::of(0u64..100_000),
        retry in proptest::option::of(0u64..30_000),
        timeout in proptest::option::of(1u64..4_000),
        stop in prop_oneof![Just(0u64), 0u64..100_000],
    ) {
        let wanted = given(lease.map(ms), deadline.map(ms), retry.map(ms));
        match Timings::resolve(wanted, ms(stop), timeout.map(ms), s(120)) {
            Ok(t) => {
                prop_assert!(rules_hold(&t, t.command_timeout(timeout.map(ms))), "{t:?}");
                prop_assert!(t.lease_duration <= s(120));
                prop_assert!(lease.is_none_or(|l| t.lease_duration == ms(l)));
                prop_assert!(deadline.is_none_or(|d| t.renew_deadline == ms(d)));
                prop_assert!(retry.is_none_or(|r| t.retry_period == ms(r)));
                // two renewals are started before the deadline, and three before the lease ends
                prop_assert!(t.renew_interval() * 2 <= t.renew_deadline);
                prop_assert!(t.renew_interval() * 3 <= t.lease_duration);
            }
            Err(TimingError::StopBudgetTooShort { needed, .. }) => {
                let with_needed = given(Some(needed), wanted.renew_deadline, wanted.retry_period);
                let again = Timings::resolve(with_needed, ms(stop), timeout.map(ms), s(1_000));
                prop_assert!(
                    !matches!(again, Err(TimingError::StopBudgetTooShort { .. } | TimingError::LeaseTooLong { .. })),
                    "{needed:?} was reported as sufficient: {again:?}"
                );
            }
            Err(other) => {
                // an error names only a field that the user gave
                let named = match other.field() {
                    TimingField::LeaseDuration => lease.is_some(),
                    TimingField::RenewDeadline => deadline.is_some() || timeout.is_some(),
                    TimingField::RetryPeriod => retry.is_some(),
                };
                prop_assert!(named, "{other} names a field that was not given");
            }
        }
    }

    #[test]
    fn drift_never_leaves_a_lease_without_validity(lease in 2_000u64..86_400_000) {
        prop_assert!(drift(ms(lease)) < ms(lease) / 50);
        prop_assert!(drift(ms(lease)) >= ms(lease / 100 + 2));
    }
}
