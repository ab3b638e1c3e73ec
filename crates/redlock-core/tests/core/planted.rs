//! Plants bugs, to prove that the checks find them.

use std::{process::Command, time::Instant};

use redlock_core::planted::Plant as Code;

use crate::{
    plant::Plant as Model,
    simulation::run,
    world::{World, hands_over, has_second},
};

/// The planted fault: in the code, or in the models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Planted {
    pub(crate) code: Code,
    pub(crate) model: Model,
}

impl From<Code> for Planted {
    fn from(code: Code) -> Self {
        let model = Model::Nothing;
        Self { code, model }
    }
}

impl From<Model> for Planted {
    fn from(model: Model) -> Self {
        let code = Code::Nothing;
        Self { code, model }
    }
}

#[test]
fn a_release_build_refuses_planted_faults() {
    let build = Command::new(env!("CARGO"))
        .args([
            "check",
            "--release",
            "--offline",
            "--package",
            "redlock-core",
            "--features",
            "planted",
        ])
        .args(["--target-dir", concat!(env!("CARGO_TARGET_TMPDIR"), "/planted")])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&build.stderr);
    assert!(!build.status.success(), "{stderr}");
    assert!(
        stderr.contains("breaks the lease protocol on purpose"),
        "{stderr}"
    );
}

/// More seeds than any of the faults needs.
const SEEDS: usize = 3_000;

/// Faults that few seeds show. Their search begins shortly before the first seed that does.
const RARE: [(&str, u64); 11] = [
    ("ClosedIgnored", 1_000),
    ("EarlierPodsForgotten", 12_600),
    ("FallbackWhenUnreachable", 1_150),
    ("KeptBeyondLongest", 3_300),
    ("MarkForgotten", 600),
    ("PermitBeforeMark", 900),
    ("ReserveOnAMinority", 400),
    ("ReserveUndone", 2_500),
    ("UnmarkedCounted", 2_700),
    ("UnmarkedReleased", 1_550),
    ("VotesSummedOverRounds", 3_400),
];

/// Returns the seed at which the search for a fault begins.
pub(crate) fn first_seed(plant: impl std::fmt::Debug) -> u64 {
    let name = format!("{plant:?}");
    let rare = RARE.iter().find(|(rare, _)| *rare == name);
    rare.map_or(1, |(_, first)| *first)
}

fn is_found(plant: impl Into<Planted> + std::fmt::Debug + Copy, by: &[&str]) {
    let planted = plant.into();
    let about = |seed: &u64| planted.code != Code::ReserveUndone || hands_over(*seed);
    // A planted bug may also cost time; only a broken guarantee of safety counts.
    let safety = |seed| {
        run(seed, planted, false)
            .err()
            .filter(|broken| broken.invariant != "L1")
    };
    let began = Instant::now();
    let found = (first_seed(plant)..)
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

/// Requires that a fault that costs only time is found by L1.
fn is_found_late(plant: impl Into<Planted> + std::fmt::Debug + Copy) {
    let planted = plant.into();
    let late = |seed: &u64| run(*seed, planted, false).is_err_and(|broken| broken.invariant == "L1");
    // Only where clocks are set, or registers are forged.
    let about = |seed: &u64| {
        let world = World::new(*seed, planted);
        world.steps || world.forger.is_some()
    };
    let found = (first_seed(plant)..).filter(about).take(SEEDS).find(late);
    let seed = found.unwrap_or_else(|| panic!("{plant:?} was not found in {SEEDS} seeds"));
    println!("planted: {plant:?}|simulation|L1 after {seed} seeds");
}

#[test]
fn a_key_that_is_never_shortened_is_found() {
    is_found_late(Model::NeverShortened);
}

#[test]
fn a_counter_that_no_other_master_reached_is_found() {
    is_found_late(Code::CountersBelieved);
}

/// Requires that the checks of the second lock find faults by themselves.
#[test]
fn faults_that_the_second_lock_alone_shows_are_found() {
    for code in [Code::AnswersMixedUp, Code::SilenceGrants] {
        let of_second = |seed: &u64| {
            let broken = run(*seed, code, false).err();
            broken.is_some_and(|broken| broken.how.starts_with("second lock"))
        };
        let found = (1..)
            .filter(|seed| has_second(*seed))
            .take(SEEDS / 10)
            .find(of_second);
        println!("planted: {code:?}|second lock|after {found:?} seeds");
        assert!(found.is_some(), "{code:?} was not found");
    }
}

macro_rules! found {
    ($($name:ident: $in:ident $plant:ident by $($invariant:literal),+;)+) => {$(
        #[test]
        fn $name() {
            is_found($in::$plant, &[$($invariant),+]);
        }
    )+};
}

found! {
    a_clean_end_that_one_master_shows_is_found: Code OneCleanCounts by "marks";
    validity_without_drift_is_found: Code NoDrift by "S1", "S3";
    a_token_that_is_not_confirmed_is_found: Code NoConfirm by "S2", "marks";
    a_vote_without_a_seal_is_found: Model NoSeal by "S1", "S2", "S3", "marks";
    a_seal_that_outlives_a_promotion_is_found: Model SealOutlivesPromotion by "S1", "S2", "S3", "marks";
    a_seal_without_the_wait_is_found: Model FloorWithoutWait by "S1", "S2", "S3";
    a_delayed_restart_alone_is_found: Model FloorNotRestored by "S2", "marks";
    slots_that_are_not_restored_are_found: Model SlotsNotRestored by "S2";
    a_tie_of_slots_given_to_one_side_is_found: Model TieToOne by "S2";
    a_fallback_because_masters_were_silent_is_found: Model FallbackWhenUnreachable by "S2", "marks", "delay";
    a_seal_for_a_fingerprint_that_was_never_seen_is_found: Model UnseenSealed by "S1", "S2", "S3", "S6", "marks";
    registers_removed_by_one_clean_end_are_found: Model ForgetsByOne by "marks";
    registers_removed_of_a_later_lease_are_found: Model ForgetsLater by "marks", "delay";
    a_missing_clean_up_is_found: Code NoCleanUp by "S5";
    a_late_command_that_writes_is_found: Model NoNotAfter by "S5", "S6";
    replies_after_the_limit_that_count_are_found: Code NoCheckAfterTheReplies by "limit";
    a_master_counted_twice_is_found: Code VoteCountedTwice by "S1", "S3";
    votes_summed_over_rounds_are_found: Code VotesSummedOverRounds by "S1", "S3", "clock";
    a_heal_after_the_local_end_is_found: Code HealAfterTheEnd by "S1", "S2", "S3", "S6";
    a_failed_renewal_that_deletes_is_found: Code FailedRenewalDeletes by "S6";
    a_break_that_deletes_is_found: Model BreakDeletes by "S3";
    a_reserve_before_the_local_end_is_found: Code ReserveBeforeTheEnd by "S3", "S6";
    a_reserve_on_a_minority_is_found: Code ReserveOnAMinority by "reserved";
    a_reserve_that_is_undone_is_found: Code ReserveUndone by "reserved";
    a_death_of_the_task_that_still_holds_is_found: Model DeathHolds by "S1", "S3";
    a_shutdown_of_an_attempt_that_releases_is_found: Code AttemptReleased by "reserved";
    two_servers_of_one_name_are_found: Model TwoServersOfOneName by "S1", "S2", "marks";
    masters_blamed_for_the_local_clock_are_found: Code MastersBlamed by "clock", "S1", "S3";
    timings_that_take_effect_late_are_found: Code TimingsTakeEffectLate by "stop";
    a_delay_that_a_late_mark_lowers_is_found: Model DelayLowered by "delay";
    an_undo_of_others_leases_is_found: Model UndoOfOthers by "S3", "S6";
    answers_of_a_batch_that_are_mixed_up_are_found: Code AnswersMixedUp by "S2", "marks";
    silence_that_grants_is_found: Code SilenceGrants by "S1", "S2", "S3", "marks";
    an_error_that_grants_is_found: Code ErrorGrants by "S1", "S2", "S3", "marks";
    a_release_that_was_lost_and_counts_as_run_is_found: Code LostReleaseSettles by "S5";
    a_renewal_that_counts_from_its_reply_is_found: Code RenewedAtTheReply by "S1", "S3";
    answers_that_overtake_each_other_are_found: Model AnswersOvertake by "S5";
    calls_without_an_end_are_found: Code CallsWithoutEnd by "S5", "S6";
}
