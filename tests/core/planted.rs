//! Planted bugs: proof that the checks see them.

use crate::{master::Plant, simulation::run};

/// More than any of them needs.
const SEEDS: u64 = 2_000;

fn is_found(plant: Plant, by: &[&str]) {
    // A planted bug may also cost time; what has to be seen is the broken promise of safety.
    let safety = |seed| {
        run(seed, plant, false)
            .err()
            .filter(|broken| broken.invariant != "L1")
    };
    let found = (1..=SEEDS).find_map(|seed| Some((seed, safety(seed)?)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("{plant:?} was not found in {SEEDS} seeds"));
    println!("{plant:?}: seed {seed}: {broken:?}");
    assert!(
        by.contains(&broken.invariant),
        "{plant:?} was found as {broken:?}"
    );
}

macro_rules! found {
    ($($name:ident: $plant:ident by $($invariant:literal),+;)+) => {$(
        #[test]
        fn $name() {
            is_found(Plant::$plant, &[$($invariant),+]);
        }
    )+};
}

found! {
    validity_without_drift_is_found: NoDrift by "S1", "S3";
    a_token_that_is_not_confirmed_is_found: NoConfirm by "S2";
    a_seal_without_the_wait_is_found: SealWithoutWaiting by "S1", "S3";
    a_vote_without_a_seal_is_found: NoSeal by "S1", "S2", "S3";
    a_master_counted_twice_is_found: VoteCountedTwice by "S1", "S3";
    a_heal_after_the_local_end_is_found: HealAfterTheEnd by "S1", "S2", "S3", "S6";
    a_failed_renewal_that_deletes_is_found: FailedRenewalDeletes by "S6";
    a_break_that_deletes_is_found: BreakDeletes by "S3";
    votes_summed_over_rounds_are_found: VotesSummedOverRounds by "S1", "S3";
    a_reserve_before_the_local_end_is_found: ReserveBeforeTheEnd by "S3", "S6";
    an_undo_of_others_leases_is_found: UndoOfOthers by "S3", "S6";
}
