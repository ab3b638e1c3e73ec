use super::*;
use crate::{Sample, timing};

/// Returns a sample of a master whose clock is `offset` ms ahead of the local one, with a round trip of 10
/// ms.
fn sample(sent: u64, offset: u64) -> Sample {
    Sample {
        master: (sent + 5 + offset) * 1_000,
        sent: at(sent),
        received: at(sent + 10),
    }
}

fn round(watch: &mut ClockWatch, sent: u64, offsets: &[(usize, u64)]) -> bool {
    let samples: Vec<_> = offsets
        .iter()
        .map(|(master, offset)| (*master, sample(sent, *offset)))
        .collect();
    watch.on_round(samples)
}

const BASE: u64 = 1_000_000;
const ALL: [(usize, u64); 3] = [(0, BASE), (1, BASE), (2, BASE)];

#[test]
fn a_majority_that_ran_ahead_shows_that_the_local_clock_stood_still() {
    let mut watch = ClockWatch::new(three());
    assert!(!round(&mut watch, 0, &ALL));
    assert!(!round(&mut watch, 5_000, &ALL));
    // A pause of 200 ms: more than the round trip and the drift of 5 s.
    let paused = [(0, BASE + 200), (1, BASE + 200), (2, BASE)];
    assert!(round(&mut watch, 10_000, &paused));
    // The pause is reported once.
    assert!(!round(&mut watch, 10_100, &paused));
}

#[test]
fn a_pause_is_measured_from_the_last_round() {
    let mut watch = ClockWatch::new(three());
    for poll in 0..720 {
        assert!(!round(&mut watch, poll * 5_000, &ALL));
    }
    // The drift of the whole hour is 36 s, which would hide the pause of 200 ms.
    let paused = [(0, BASE + 200), (1, BASE + 200), (2, BASE + 200)];
    assert!(round(&mut watch, 3_600_000, &paused));
}

#[test]
fn one_master_that_is_set_ahead_shows_nothing() {
    let mut watch = ClockWatch::new(three());
    assert!(!round(&mut watch, 0, &ALL));
    assert!(!round(
        &mut watch,
        5_000,
        &[(0, BASE + 60_000), (1, BASE), (2, BASE)]
    ));
    assert!(!round(
        &mut watch,
        10_000,
        &[(0, BASE + 120_000), (1, BASE), (2, BASE)]
    ));
}

#[test]
fn a_pause_amid_a_round_is_seen_in_parts() {
    let mut watch = ClockWatch::new(three());
    assert!(!round(&mut watch, 0, &ALL));
    // The time of m1 and m2 was read before the pause.
    assert!(!round(
        &mut watch,
        5_000,
        &[(0, BASE + 4_000), (1, BASE), (2, BASE)]
    ));
    // The reply of m2 is missing, so the round before is needed for a majority.
    assert!(round(&mut watch, 5_100, &[(0, BASE + 4_000), (1, BASE + 4_000)]));
}

#[test]
fn masters_that_are_set_ahead_in_rounds_far_apart_show_nothing() {
    let mut watch = ClockWatch::new(three());
    assert!(!round(&mut watch, 0, &ALL));
    let first = [(0, BASE + 60_000), (1, BASE), (2, BASE)];
    assert!(!round(&mut watch, 5_000, &first));
    assert!(!round(&mut watch, 10_000, &first));
    let second = [(0, BASE + 60_000), (1, BASE + 60_000), (2, BASE)];
    assert!(!round(&mut watch, 15_000, &second));
}

#[test]
fn rates_within_the_drift_and_slow_round_trips_show_nothing() {
    let mut watch = ClockWatch::new(three());
    for poll in 0..1_000_u64 {
        // 0.9 % faster, and every third reply took half a second.
        let sent = poll * 5_000;
        let fast = |master: usize| {
            let slow = (poll + master as u64).is_multiple_of(3);
            let trip = if slow { 500 } else { 1 };
            let local = sent + trip;
            let master_time = BASE + local + local * 9 / 1_000;
            let sample = Sample {
                master: master_time * 1_000,
                sent: at(sent),
                received: at(local),
            };
            (master, sample)
        };
        assert!(!watch.on_round([fast(0), fast(1), fast(2)]), "poll {poll}");
    }
}

#[test]
fn a_slow_request_does_not_hide_the_next_pause() {
    let mut watch = ClockWatch::new(three());
    assert!(!round(&mut watch, 0, &ALL));
    // The request took half a second to the master: the sample does not bound the clock better.
    let slow = |master| {
        let early = Sample {
            sent: at(1_000),
            ..sample(1_490, BASE)
        };
        (master, early)
    };
    assert!(!watch.on_round([slow(0), slow(1), slow(2)]));
    let paused = [(0, BASE + 300), (1, BASE + 300), (2, BASE + 300)];
    assert!(round(&mut watch, 2_000, &paused));
}

#[test]
fn clocks_that_use_the_permitted_drift_show_nothing() {
    for (beyond, stood_still) in [(0, false), (1, true)] {
        let mut watch = ClockWatch::new(three());
        assert!(!round(&mut watch, 0, &ALL));
        let local = ms(5_010);
        let permitted = u64::try_from((local + timing::drift(local)).as_micros()).unwrap();
        let moved = Sample {
            master: sample(0, BASE).master + permitted + beyond,
            ..sample(5_000, BASE)
        };
        assert_eq!(
            watch.on_round([(0, moved), (1, moved)]),
            stood_still,
            "{beyond} us beyond"
        );
    }
}

#[test]
fn another_server_under_a_name_is_no_witness() {
    let mut watch = ClockWatch::new(three());
    assert!(!round(&mut watch, 0, &ALL));
    watch.forget(0);
    watch.forget(1);
    watch.forget(99);
    let other = [(0, BASE + 9_000), (1, BASE + 9_000), (2, BASE)];
    assert!(!round(&mut watch, 5_000, &other));
}
