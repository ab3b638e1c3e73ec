//! Tests S8: a fenced lock under every fault, with an agent and pods in each cluster. `REDLOCK_SEED=n`
//! replays one seed.

use std::time::Instant;

use crate::{
    checks::Broken,
    planted::Planted,
    rate::MS,
    simulation::{Happened, number},
    world::World,
};

const STORM: u64 = 25_000 * MS;
const CALM: u64 = 5_000 * MS;

pub(crate) fn run(seed: u64, planted: impl Into<Planted>, trace: bool) -> Result<Happened, Broken> {
    let mut world = World::fenced(seed, planted);
    world.trace = trace;
    for candidate in 0..world.candidates.len() {
        world.start(candidate);
    }
    world.agents_begin();
    world.storm();
    world.run_until(STORM);
    world.calm();
    for agent in &mut world.agents {
        agent.cut.fill(false);
    }
    let end = world.now + CALM;
    world.run_until(end);
    match world.checks.broken {
        Some(broken) => Err(broken),
        None => Ok(Happened {
            wins: world.checks.wins,
            faults: world.faults,
            ..Happened::default()
        }),
    }
}

#[test]
fn no_pod_runs_beside_a_holder_of_another_cluster_under_any_fault() {
    if let Some(seed) = number("REDLOCK_SEED") {
        println!("{:?}", run(seed, Planted::default(), true));
        return assert_eq!(run(seed, Planted::default(), false).err(), None);
    }
    let first = number("FIRST_SEED").unwrap_or(1);
    let seeds = number("REDLOCK_SEEDS").unwrap_or(200);
    let (mut all, began) = (Happened::default(), Instant::now());
    for seed in first..first + seeds {
        match run(seed, Planted::default(), false) {
            Ok(happened) => all.add(happened),
            Err(broken) => panic!("replay with REDLOCK_SEED={seed}: {broken:?}"),
        }
    }
    println!(
        "fenced: seeds {first} to {}, {:.1} s: {:?}",
        first + seeds - 1,
        began.elapsed().as_secs_f64(),
        all.faults
    );
    for what in [
        "pod started",
        "pod frozen",
        "pod killed",
        "adoption",
        "takeover after an unclean end",
        "takeover after a clean end",
        "confirmed stop",
        "pod deleted by force",
        "restart of an agent",
        "cluster cut off",
    ] {
        let count = all.faults.get(what).copied().unwrap_or_default();
        assert!(count * 8 >= seeds, "{what}: {count} times in {seeds} seeds");
    }
}

/// Tests that each planted fault is found: `make planted`.
mod planted {
    use std::time::Instant;

    use redlock_core::planted::Plant as Code;

    use super::run;
    use crate::{
        plant::Plant as Model,
        planted::{Planted, first_seed},
    };

    /// More seeds than any of the faults needs.
    const SEEDS: usize = 4_000;

    fn is_found(plant: impl Into<Planted> + std::fmt::Debug + Copy) {
        let (planted, began) = (plant.into(), Instant::now());
        let broken = |seed| Some((seed, run(seed, planted, false).err()?));
        let found = (first_seed(plant)..)
            .take(SEEDS)
            .filter_map(broken)
            .find(|(_, broken)| matches!(broken.invariant, "S8" | "lineage" | "mark"));
        let (seed, broken) = found.unwrap_or_else(|| panic!("{plant:?} was not found in {SEEDS} seeds"));
        let took = began.elapsed().as_secs_f64();
        let invariant = broken.invariant;
        println!("planted: {plant:?}|simulation|{invariant} after {seed} seeds, {took:.1} s");
        println!("{broken:?}");
    }

    macro_rules! found {
        ($($name:ident: $in:ident $plant:ident;)+) => {$(
            #[test]
            fn $name() {
                is_found($in::$plant);
            }
        )+};
    }

    found! {
        an_unmarked_lease_that_counts_is_found: Model UnmarkedCounted;
        a_reserve_that_shortens_is_found: Model ReserveShortens;
        a_pod_that_was_force_deleted_and_counts_as_gone_is_found: Model ForceDeletedGone;
        a_reservation_beyond_the_wait_of_a_seal_is_found: Model KeptBeyondLongest;
        a_marked_lease_that_is_taken_for_unmarked_is_found: Code MarkForgotten;
        a_release_of_an_unmarked_lease_that_deletes_the_reservation_is_found: Code UnmarkedReleased;
        a_release_before_the_stop_is_confirmed_is_found: Code ReleasedEarly;
        a_thaw_on_another_lineage_is_found: Code ThawOnOtherFirst;
        a_start_on_a_kept_permit_is_found: Code StartOnKeptPermit;
        a_start_after_closing_is_found: Code ClosedIgnored;
        a_start_of_a_pod_without_an_object_is_found: Code StartWithoutObject;
        a_permit_before_the_mark_is_found: Model PermitBeforeMark;
        a_lineage_that_each_master_decides_is_found: Model FirstByEachMaster;
        a_stop_that_an_adopter_confirms_is_found: Model AdopterReleases;
        pods_of_an_earlier_lineage_that_are_forgotten_are_found: Model EarlierPodsForgotten;
    }
}
