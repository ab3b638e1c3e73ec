use proptest::prelude::*;

use super::*;
use crate::lease::{QuorumSize, SlotRegister};

pub(super) const MASTERS: usize = 3;

pub(super) fn claim(slot: u64, on_crash: OnCrash, nonce: u128) -> SlotClaim {
    let holder = HolderIdentity::parse(&format!("host/{nonce}")).unwrap();
    SlotClaim::new(OncePer { slot, on_crash }, &holder, Nonce(nonce))
}

pub(super) fn view(seen: &[(u64, &str)]) -> SlotView {
    let mut view = SlotView::new(QuorumSize::new(MASTERS).unwrap());
    for (slot, job) in seen {
        view.record(SlotRegister {
            slot: *slot,
            job: (*job).to_owned(),
            floor: 60,
        });
    }
    view
}

/// The time by the masters' clocks.
const CLOCK: u64 = 630;

#[test]
fn a_slot_of_another_run_is_taken() {
    let (skip, retry) = (claim(600, OnCrash::Skip, 1), claim(600, OnCrash::Retry, 1));
    let by = |holder: &str| {
        SlotState::Taken(SlotConflict::By {
            holder: holder.into(),
        })
    };
    let passed = SlotState::Taken(SlotConflict::Passed {
        slot: 660,
        holder: "[31mb".into(),
    });
    let (none, never) = (view(&[]), (0, NO_JOB));
    let free = view(&[never, never]);
    for (begun, ended, skipped, retried) in [
        (&none, &none, SlotState::Open, SlotState::Unknown),
        (&free, &free, SlotState::Open, SlotState::Open),
        (&free, &none, SlotState::Open, SlotState::Unknown),
        (
            &view(&[(600, &*skip.job); 2]),
            &free,
            SlotState::Open,
            by("host/1"),
        ),
        (
            &view(&[(600, "repeatable@b"); 2]),
            &free,
            by("b"),
            SlotState::Open,
        ),
        (
            &view(&[(600, "repeatable@b"); 2]),
            &view(&[never, (600, "repeatable@b")]),
            by("b"),
            SlotState::Taken(SlotConflict::Ended),
        ),
        (&view(&[(660, "7@\u{1b}[31mb"); 2]), &free, passed.clone(), passed),
    ] {
        assert_eq!(skip.state(begun, ended, CLOCK), skipped, "{begun:?} {ended:?}");
        assert_eq!(retry.state(begun, ended, CLOCK), retried, "{begun:?} {ended:?}");
    }
    assert_eq!(skip.shown(), "slot 1970-01-01T00:10:00Z");
}

fn taken(claim: &SlotClaim, begun: &[(u64, &str)], ended: &[(u64, &str)]) -> SlotConflict {
    match claim.state(&view(begun), &view(ended), CLOCK) {
        SlotState::Taken(taken) => taken,
        state @ (SlotState::Open | SlotState::Unknown) => panic!("{state:?}"),
    }
}

/// Such a slot has not run, and the run must not end as if it had.
#[test]
fn slot_that_no_run_has_is_no_slot_of_another_run() {
    let (skip, retry) = (claim(600, OnCrash::Skip, 1), claim(600, OnCrash::Retry, 1));
    let never = [(0, NO_JOB); 2];
    let old = claim(60, OnCrash::Retry, 1);
    let far = 600 + MOST_AHEAD + 31;
    for (taken, text) in [
        (
            taken(&old, &never, &never),
            "no record of slots up to 1970-01-01T00:01:00Z",
        ),
        (
            taken(&skip, &[(600, "7@b"), (600, "8@c"), (600, "9@d")], &never),
            "different runs on record",
        ),
        (
            taken(&skip, &[(far, "7@b"); 2], &never),
            "the slot 1970-01-01T00:12:31Z on record, which is ahead of their clocks",
        ),
        (
            taken(
                &retry,
                &[(600, "repeatable@b"); 2],
                &[(far, "repeatable@b"), (0, NO_JOB)],
            ),
            "ahead of their clocks",
        ),
    ] {
        assert!(!taken.is_of_a_run(), "{taken:?}");
        assert!(taken.to_string().contains(text), "{taken}");
    }
    for (taken, text) in [
        (taken(&skip, &[(600, "7@b"); 2], &never), "the run of b"),
        (taken(&skip, &[(far - 1, "7@b"); 2], &never), "has the later slot"),
        (
            taken(
                &retry,
                &[(600, "repeatable@b"); 2],
                &[(600, "repeatable@b"), (0, NO_JOB)],
            ),
            "it has run to its end",
        ),
    ] {
        assert!(taken.is_of_a_run(), "{taken:?}");
        assert!(taken.to_string().contains(text), "{taken}");
    }
}

#[test]
fn slot_ahead_of_the_clocks_of_a_majority_is_not_claimed() {
    let clock = |shown: &[u64]| {
        clock_of(
            shown.iter().copied(),
            QuorumSize::new(MASTERS).unwrap().majority(),
        )
    };
    assert_eq!(clock(&[600]), None, "one of them may be wrong");
    assert_eq!(clock(&[600, 9_999]), Some(600));
    assert_eq!(clock(&[600, 9_999, 601]), Some(601));
    assert_eq!(clock(&[600, 1, 601]), Some(600));
    let near = claim(600 + MOST_AHEAD, OnCrash::Skip, 1);
    assert_eq!(
        (near.seconds_ahead(600), near.seconds_ahead(599)),
        (None, Some(MOST_AHEAD + 1))
    );
    assert_eq!(near.seconds_ahead(9_999), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A read that shows the end at one master is enough, as a majority recorded it and a majority answers.
    #[test]
    fn one_record_of_an_end_is_enough(slot in 61..10_000_u64, shows in 0..MASTERS, hides in 0..MASTERS) {
        let claim = claim(slot, OnCrash::Retry, 7);
        let mut seen = vec![(0, NO_JOB); MASTERS];
        seen[shows] = (slot, "repeatable@other");
        seen.remove(hides);
        let begun = view(&[(slot, "repeatable@other"); 2]);
        let ended = claim.state(&begun, &view(&seen), slot);
        prop_assert_eq!(ended == SlotState::Open, shows == hides);
    }
}
