//! Planted bugs: proof that the checks see them.

use std::time::Instant;

use crate::{plant::Plant, simulation::run, world::hands_over};

/// More than any of them needs.
const SEEDS: usize = 3_000;

fn is_found(plant: Plant, by: &[&str]) {
    let about = |seed: &u64| plant != Plant::ReserveUndone || hands_over(*seed);
    // A planted bug may also cost time; what has to be seen is the broken promise of safety.
    let safety = |seed| {
        run(seed, plant, false)
            .err()
            .filter(|broken| broken.invariant != "L1")
    };
    let began = Instant::now();
    let found = (1..)
        .filter(about)
        .take(SEEDS)
        .find_map(|seed| Some((seed, safety(seed)?)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("{plant:?} was not found in {SEEDS} seeds"));
    let (invariant, seeds, took) = (broken.invariant, seed, began.elapsed().as_secs_f64());
    println!("planted: {plant:?}|simulation|{invariant} after {seeds} seeds, {took:.1} s");
    println!("{broken:?}");
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
    a_token_that_is_not_confirmed_is_found: NoConfirm by "S2", "marks";
    a_vote_without_a_seal_is_found: NoSeal by "S1", "S2", "S3", "marks";
    a_seal_without_the_wait_is_found: FloorWithoutWait by "S1", "S2", "S3";
    a_delayed_restart_alone_is_found: FloorNotRestored by "S2", "marks";
    slots_that_are_not_restored_are_found: SlotsNotRestored by "S2";
    a_tie_of_slots_given_to_one_side_is_found: TieToOne by "S2";
    a_fallback_because_masters_were_silent_is_found: FallbackWhenUnreachable by "S2", "marks";
    what_is_not_cleaned_up_is_found: NoCleanUp by "S5";
    a_late_command_that_writes_is_found: NoNotAfter by "S5", "S6";
    replies_after_the_limit_that_count_are_found: NoCheckAfterTheReplies by "limit";
    a_master_counted_twice_is_found: VoteCountedTwice by "S1", "S3";
    votes_summed_over_rounds_are_found: VotesSummedOverRounds by "S1", "S3";
    a_heal_after_the_local_end_is_found: HealAfterTheEnd by "S1", "S2", "S3", "S6";
    a_failed_renewal_that_deletes_is_found: FailedRenewalDeletes by "S6";
    a_break_that_deletes_is_found: BreakDeletes by "S3";
    a_reserve_before_the_local_end_is_found: ReserveBeforeTheEnd by "S3", "S6";
    a_reserve_on_a_minority_is_found: ReserveOnAMinority by "reserved";
    a_reserve_that_is_undone_is_found: ReserveUndone by "reserved";
    a_death_of_the_task_that_still_holds_is_found: DeathHolds by "S1", "S3";
    a_shutdown_of_an_attempt_that_releases_is_found: AttemptReleased by "reserved";
    two_servers_of_one_name_are_found: TwoServersOfOneName by "S1", "marks";
    masters_blamed_for_the_local_clock_are_found: MastersBlamed by "clock", "S1", "S3";
    timings_that_take_effect_late_are_found: TimingsTakeEffectLate by "stop";
    a_delay_that_a_late_mark_lowers_is_found: DelayLowered by "delay";
    an_undo_of_others_leases_is_found: UndoOfOthers by "S3", "S6";
}
