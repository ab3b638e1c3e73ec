//! Tests from which rate on, and how soon, the clocks of masters and of this machine are found to differ.

use std::ops::Range;

use super::*;

/// Returns the time of the first step and its judgement, if masters whose clocks differ from the local one by this many
/// millionths are asked each second.
fn first_step(longest: Duration, masters: Range<usize>, millionths: i64) -> Option<(u64, Judgement)> {
    let mut clocks = Clocks::new(QuorumSize::new(3).unwrap(), longest);
    (0..120_000_u64).step_by(1_000).find_map(|now| {
        let ahead = i64::try_from(now).unwrap() * millionths / 1_000_000;
        let shown = (1_000_000 + now).checked_add_signed(ahead).unwrap();
        let judged = masters
            .clone()
            .map(|master| clocks.sample(master, sample(shown, now, now + 1)));
        let steps: Vec<Judgement> = judged.filter(|judged| *judged != Judgement::Steady).collect();
        steps.last().map(|last| (now, *last))
    })
}

/// Without witnesses that are older than a second, no rate below 2.7 % is noticed.
#[test]
fn a_rate_beyond_the_drift_is_noticed_however_little_a_second_shows() {
    let minute = Duration::from_secs(60);
    for (millionths, by) in [
        (26_000, 3_000),
        (17_000, 5_000),
        (12_000, 16_000),
        (10_500, 64_000),
    ] {
        for millionths in [millionths, -millionths] {
            let alone = first_step(minute, 0..1, millionths);
            assert!(
                alone.is_some_and(|(at, judged)| at <= by && judged == Judgement::MasterStepped),
                "{millionths}: {alone:?}"
            );
            let all = first_step(minute, 0..3, millionths);
            assert!(
                all.is_some_and(|(at, judged)| at <= by && judged == Judgement::LocalStepped),
                "{millionths}: {all:?}"
            );
        }
    }
}

#[test]
fn a_rate_within_the_drift_is_never_noticed() {
    for millionths in [9_900, -9_900] {
        assert_eq!(first_step(Duration::from_secs(60), 0..3, millionths), None);
    }
}

/// A lease that is over cannot be harmed, so the witnesses are not older than 1.02 longest leases.
#[test]
fn witnesses_are_not_older_than_the_leases_that_a_rate_could_harm() {
    for (longest, noticed) in [(15, 13_000), (5, 20_000)] {
        for millionths in [noticed, -noticed] {
            let found = first_step(Duration::from_secs(longest), 0..1, millionths);
            assert!(found.is_some(), "{longest} s: {millionths}");
        }
    }
}
