mod rates;

use super::*;

fn at(ms: u64) -> BootInstant {
    BootInstant::from_nanos(ms * 1_000_000)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn sample(master_ms: u64, sent_ms: u64, received_ms: u64) -> Sample {
    Sample {
        master: master_ms * 1_000,
        sent: at(sent_ms),
        received: at(received_ms),
    }
}

fn clocks(masters: usize) -> Clocks {
    Clocks::new(QuorumSize::new(masters).unwrap(), Duration::from_secs(60))
}

/// Samples a reply every `every` ms, each after one millisecond, of masters whose clocks show `shown(local ms)`.
fn steady(clocks: &mut Clocks, masters: usize, until: usize, every: usize, shown: impl Fn(u64) -> u64) {
    for now in (0..until).step_by(every) {
        for master in 0..masters {
            let now = now as u64;
            let judgement = clocks.sample(master, sample(shown(now), now, now + 1));
            assert_eq!(judgement, Judgement::Steady, "{now} ms");
        }
    }
}

#[test]
fn step_of_the_only_master_may_be_one_of_either_clock() {
    for stepped in [1_100_000, 900_000] {
        let mut clocks = clocks(1);
        assert_eq!(clocks.sample(0, sample(1_000_000, 0, 1)), Judgement::Steady);
        assert_eq!(
            clocks.sample(0, sample(stepped, 1_000, 1_001)),
            Judgement::EitherStepped
        );
        assert!(clocks.distrusted(0, at(60_000)).is_some());
        assert_eq!(
            clocks.sample(0, sample(stepped + 1_000, 2_000, 2_001)),
            Judgement::Steady
        );
    }
}

#[test]
fn a_step_is_a_change_beyond_both_round_trips() {
    for (first, second, stepped) in [
        (sample(1_000_000, 0, 1), sample(1_001_000, 1_000, 1_001), false),
        (sample(1_000_000, 0, 1), sample(1_001_100, 1_000, 1_001), true),
        (sample(1_000_000, 0, 1), sample(1_000_900, 1_000, 1_001), true),
        (sample(1_000_000, 0, 300), sample(1_000_800, 1_000, 1_001), false),
        (sample(1_000_000, 0, 1), sample(1_001_020, 1_000, 1_001), false),
        // The rates alone explain it: half a per cent in twenty seconds.
        (sample(1_000_000, 0, 1), sample(1_020_100, 20_000, 20_001), false),
        // An hour without contact.
        (
            sample(1_000_000, 0, 1),
            sample(4_600_500, 3_600_000, 3_600_001),
            false,
        ),
    ] {
        let mut clocks = clocks(3);
        assert_eq!(clocks.sample(0, first), Judgement::Steady);
        let expected = if stepped {
            Judgement::MasterStepped
        } else {
            Judgement::Steady
        };
        assert_eq!(clocks.sample(0, second), expected, "{first:?} {second:?}");
        assert_eq!(clocks.distrusted(0, second.received).is_some(), stepped);
    }
}

#[test]
fn distrust_lasts_a_little_longer_than_the_longest_lease() {
    let mut clocks = clocks(3);
    let _ = clocks.sample(0, sample(1_000_000, 0, 1));
    let _ = clocks.sample(0, sample(2_000_000, 0, 1));
    let end = at(1) + ms(61_200);
    assert!(clocks.distrusted(0, end - Duration::from_nanos(1)).is_some());
    assert!(clocks.distrusted(0, end).is_none());
}

#[test]
fn a_step_of_a_majority_at_once_is_that_of_the_local_clock() {
    for (jump, name) in [
        (10_000_i64, "the local clock stood still"),
        (-10_000, "it went ahead"),
    ] {
        let mut clocks = clocks(3);
        let shown = |now: u64| 1_000_000 + now;
        steady(&mut clocks, 3, 2_000, 500, shown);
        let after = |now: u64| shown(now).checked_add_signed(jump).unwrap();
        assert_eq!(
            clocks.sample(0, sample(after(2_100), 2_100, 2_101)),
            Judgement::MasterStepped,
            "{name}: one master alone may be at fault"
        );
        assert_eq!(
            clocks.sample(2, sample(after(2_102), 2_101, 2_103)),
            Judgement::LocalStepped,
            "{name}"
        );
        let now = at(2_104);
        assert!(
            (0..3).all(|master| clocks.distrusted(master, now).is_none()),
            "{name}"
        );
        assert_eq!(
            clocks.sample(1, sample(after(2_105), 2_105, 2_106)),
            Judgement::Steady
        );
        assert_eq!(
            clocks.sample(0, sample(after(2_600), 2_600, 2_601)),
            Judgement::Steady
        );
        assert!(
            clocks.not_after(0, at(2_700), ms(0)).unwrap() >= after(2_690) * 1_000,
            "{name}"
        );
    }
}

#[test]
fn masters_that_step_at_other_times_or_in_other_directions_are_at_fault_themselves() {
    for (second, name) in [
        (sample(1_014_500, 3_500, 3_501), "a second later"),
        (sample(992_200, 2_200, 2_201), "the other way"),
    ] {
        let mut clocks = clocks(3);
        steady(&mut clocks, 3, 2_001, 500, |now| 1_000_000 + now);
        let first = clocks.sample(0, sample(1_012_100, 2_100, 2_101));
        assert_eq!(first, Judgement::MasterStepped);
        if second.sent > at(3_000) {
            assert_eq!(
                clocks.sample(1, sample(1_003_000, 3_000, 3_001)),
                Judgement::Steady
            );
        }
        assert_eq!(clocks.sample(1, second), Judgement::MasterStepped, "{name}");
        assert!(clocks.distrusted(1, at(4_000)).is_some(), "{name}");
    }
}

/// The masters show +4 s, +3.7 s and so on after one pause: some of them read a request during the pause.
#[test]
fn a_step_that_masters_show_in_parts_is_that_of_the_local_clock() {
    for (jumps, name) in [
        ([4_000, 3_700], "the second master answered amid the pause"),
        ([3_700, 4_000], "the first master answered amid the pause"),
        ([-3_700, -4_000], "it went ahead"),
    ] {
        let mut clocks = clocks(3);
        let shown = |now: u64| 1_000_000 + now;
        steady(&mut clocks, 3, 2_000, 500, shown);
        let after = |now: u64, jump: i64| shown(now).checked_add_signed(jump).unwrap();
        for (master, (jump, judgement)) in jumps
            .into_iter()
            .zip([Judgement::MasterStepped, Judgement::LocalStepped])
            .enumerate()
        {
            let judged = clocks.sample(master, sample(after(2_100, jump), 2_100, 2_101));
            assert_eq!(judged, judgement, "{name}");
        }
        let whole = jumps.into_iter().max_by_key(|jump: &i64| jump.abs()).unwrap();
        for (master, jump) in jumps.into_iter().enumerate() {
            let distrusted = clocks.distrusted(master, at(2_104)).is_some();
            assert_eq!(distrusted, jump != whole, "{name}: m{master}");
        }
        // The master that showed the most may have hidden a part, too: its next reply shows the rest.
        let rest = if whole < 0 { -300 } else { 300 };
        for master in [0, 2] {
            let judged = clocks.sample(master, sample(after(2_200, whole + rest), 2_200, 2_201));
            assert_eq!(judged, Judgement::Steady, "{name}: m{master}");
        }
    }
}

#[test]
fn distrust_of_an_earlier_step_survives_a_step_of_the_local_clock() {
    let mut clocks = clocks(3);
    steady(&mut clocks, 3, 1_001, 500, |now| 1_000_000 + now);
    assert_eq!(
        clocks.sample(0, sample(1_006_100, 1_100, 1_101)),
        Judgement::MasterStepped
    );
    assert_eq!(
        clocks.sample(1, sample(1_001_900, 1_900, 1_901)),
        Judgement::Steady
    );
    assert_eq!(
        clocks.sample(2, sample(1_001_900, 1_900, 1_901)),
        Judgement::Steady
    );
    assert_eq!(
        clocks.sample(0, sample(1_006_900, 1_900, 1_901)),
        Judgement::Steady
    );
    for (master, judgement) in [
        (0, Judgement::MasterStepped),
        (1, Judgement::LocalStepped),
        (2, Judgement::Explained),
    ] {
        let base = if master == 0 { 1_005_000 } else { 1_000_000 };
        // The last reply was under way before the step, so no sample was forgotten yet.
        let shown = sample(base + 12_000, 2_000, 2_001);
        if master == 2 {
            assert_eq!(
                clocks.sample(2, sample(1_001_990, 1_990, 2_001)),
                Judgement::Steady
            );
        }
        assert_eq!(clocks.sample(master, shown), judgement, "m{master}");
    }
    assert!(clocks.distrusted(0, at(2_002)).is_some(), "its own step");
    assert!(clocks.distrusted(1, at(2_002)).is_none());
    assert!(clocks.distrusted(2, at(2_002)).is_none());
}

#[test]
fn a_slewed_clock_is_seen_although_each_reply_shows_little() {
    // 8 %, and a reply every 20 ms: 1.6 ms each.
    let mut clocks = clocks(3);
    let stepped = (0..2_000_u64).step_by(20).find(|now| {
        (0..3).any(|master| {
            let shown = sample(1_000_000 + now + now * 8 / 100, *now, now + 1);
            clocks.sample(master, shown) == Judgement::LocalStepped
        })
    });
    assert!(stepped.is_some_and(|now| now < 600), "{stepped:?}");
}

#[test]
fn replies_to_old_requests_do_not_hide_a_stop_of_the_local_clock() {
    let mut clocks = clocks(3);
    for master in 0..3 {
        // Only the second of four replies is precise: the others were requested 2 s before they arrived.
        for (sent, received) in [(100, 2_100), (2_200, 2_201), (300, 2_300), (400, 2_400)] {
            let judgement = clocks.sample(master, sample(1_000_000 + received, sent, received));
            assert_eq!(judgement, Judgement::Steady);
        }
    }
    // The local clock stood still for 700 ms.
    let judgements: Vec<_> = (0..3)
        .map(|master| clocks.sample(master, sample(1_000_000 + 2_500 + 700, 2_499, 2_500)))
        .collect();
    assert!(judgements.contains(&Judgement::LocalStepped), "{judgements:?}");
}

#[test]
fn clocks_whose_rates_differ_within_the_drift_never_step() {
    for every in [1, 20, 250, 1_000, 7_000] {
        for per_mille in [991, 1_009] {
            steady(&mut clocks(3), 3, 60_000, every, |now| {
                1_000_000 + now * per_mille / 1_000
            });
        }
    }
}

#[test]
fn the_memory_of_a_clock_is_bounded() {
    let mut offset = Offset::new(Duration::from_secs(60));
    for now in (0..300_000).step_by(10) {
        assert!(!offset.sample(sample(1_000_000 + now, now, now + 1)));
        assert!(offset.kept() <= 6, "{}", offset.kept());
    }
}

#[test]
fn not_after_never_runs_ahead_of_the_master() {
    let mut clocks = clocks(3);
    assert_eq!(clocks.not_after(0, BootInstant::default(), Duration::ZERO), None);
    let _ = clocks.sample(0, sample(1_000, 0, 10));
    // One per cent less than the elapsed time, in case the master's clock is the slower one.
    assert_eq!(
        clocks.not_after(0, at(110), ms(500)),
        Some((1_000 + 99 + 500) * 1_000)
    );
}

#[test]
fn a_reply_that_was_read_late_does_not_make_the_next_request_late() {
    let mut clocks = clocks(3);
    let _ = clocks.sample(0, sample(1_000_000, 0, 1));
    // The process stood still for three seconds with this reply in its socket.
    let _ = clocks.sample(0, sample(1_001_000, 1_000, 4_000));
    let not_after = clocks.not_after(0, at(4_000), ms(500)).unwrap();
    assert!(not_after > (1_004_000 + 400) * 1_000, "{not_after}");
    assert!(not_after <= (1_004_000 + 500) * 1_000, "{not_after}");
}

#[test]
fn a_step_of_the_master_restarts_the_bound_of_its_clock() {
    let mut clocks = clocks(3);
    let _ = clocks.sample(0, sample(1_000_000, 0, 1));
    let _ = clocks.sample(0, sample(991_000, 1_000, 1_001));
    assert_eq!(clocks.not_after(0, at(1_001), ms(0)), Some(991_000_000));
}

#[test]
fn after_one_step_that_a_majority_shows_alike_their_clocks_are_still_known() {
    let mut clocks = clocks(5);
    steady(&mut clocks, 5, 2_000, 500, |now| 1_000_000 + now);
    // One master's clock steps back at the same time.
    let back = clocks.sample(3, sample(997_100, 2_100, 2_101));
    assert_eq!(back, Judgement::MasterStepped);
    for (master, judgement) in [
        (0, Judgement::MasterStepped),
        (1, Judgement::MasterStepped),
        (2, Judgement::LocalStepped),
    ] {
        let judged = clocks.sample(master, sample(1_012_100, 2_100, 2_101));
        assert_eq!(judged, judgement, "m{master}");
    }
    let known = [0, 1, 2, 3, 4].map(|master| clocks.not_after(master, at(2_101), ms(0)));
    let shown = Some(1_012_100_000);
    assert_eq!(known, [shown, shown, shown, None, None]);
}

#[test]
fn step_that_one_master_shows_in_two_parts_is_the_one_that_another_shows_at_once() {
    let mut clocks = clocks(3);
    steady(&mut clocks, 3, 2_000, 500, |now| 1_000_000 + now);
    for (master, shown, now, judgement) in [
        (0, 1_006_100, 2_100, Judgement::MasterStepped),
        (0, 1_012_200, 2_200, Judgement::MasterStepped),
        (1, 1_012_200, 2_200, Judgement::LocalStepped),
    ] {
        let judged = clocks.sample(master, sample(shown, now, now + 1));
        assert_eq!(judged, judgement, "m{master} at {now} ms");
    }
    let known = [0, 1, 2].map(|master| clocks.not_after(master, at(2_201), ms(0)).is_some());
    assert_eq!(known, [true, true, false]);
}

#[test]
fn parts_that_do_not_amount_to_the_step_of_another_master_leave_no_clock_known() {
    let mut clocks = clocks(3);
    steady(&mut clocks, 3, 2_000, 500, |now| 1_000_000 + now);
    for (master, shown, now, judgement) in [
        (0, 1_007_100, 2_100, Judgement::MasterStepped),
        (0, 1_012_200, 2_200, Judgement::MasterStepped),
        (1, 1_005_200, 2_200, Judgement::LocalStepped),
    ] {
        let judged = clocks.sample(master, sample(shown, now, now + 1));
        assert_eq!(judged, judgement, "m{master} at {now} ms");
    }
    // The next reply of each may show the rest of it.
    let known = [0, 1, 2].map(|master| clocks.not_after(master, at(2_201), ms(0)));
    assert_eq!(known, [None; 3]);
}

#[test]
fn another_server_is_no_witness_of_a_step() {
    let mut clocks = clocks(3);
    let _ = clocks.sample(0, sample(1_000_000, 0, 1));
    clocks.forget(0);
    assert_eq!(clocks.not_after(0, at(1), ms(0)), None);
    let judged = clocks.sample(0, sample(5_000_000, 100, 101));
    assert_eq!(judged, Judgement::Steady);
}

#[test]
fn offset_is_measured_from_the_middle_of_the_last_exchange() {
    let mut clocks = clocks(3);
    assert_eq!(clocks.seconds(0, at(0), ms(0)), None);
    // The master showed 1,003 s in the middle of the exchange, at 20 ms; the own clock shows 1,000 s at 120 ms.
    let _ = clocks.sample(0, sample(1_003_000, 10, 30));
    let offset = clocks.seconds(0, at(120), ms(1_000_000)).unwrap();
    assert!((offset - 3.1).abs() < 1e-6, "{offset}");
}

#[test]
fn deadline_without_an_end_is_never_over() {
    let mut clocks = clocks(3);
    let _ = clocks.sample(0, sample(1_000, 0, 10));
    let not_after = clocks.not_after(0, at(10), Duration::MAX).unwrap();
    assert!(not_after > u64::MAX / 4, "{not_after}");
}
