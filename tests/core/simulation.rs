//! Random worlds, all of whose invariants hold.

use redlock::lease::Event;

use super::{
    clock::MS,
    faults::Bug,
    world::{Happening, World},
};
use crate::faults::Trouble;

/// So many that the binary runs some seconds.
const SEEDS: u64 = 200;
/// A lease, what it lives on masters with slow clocks, and the back-off of those that clash after it.
const LEASE_AND_BACK_OFF: u64 = (3_000 + 300) * MS;
const RELEASE_AND_BACK_OFF: u64 = 50 * MS;

/// What did not hold in the world of this seed.
pub fn run(seed: u64, bug: Option<Bug>) -> Option<String> {
    let mut world = World::new(seed, bug);
    world.run_until(world.calm);
    world.calm_down();
    // The longest wait for a seal, and after it the longest lease or reservation.
    world.run_until(world.calm + 15_000 * MS);
    if world.checks.broken.is_none() {
        takeovers(&mut world);
    }
    world.checks.broken
}

fn holder(world: &mut World) -> Option<usize> {
    let holder = (0..world.candidates.len()).find(|c| world.candidates[*c].authority(world.now).is_some());
    if holder.is_none() && world.checks.broken.is_none() {
        world.violated("L1: nobody holds it, and nothing is wrong any more");
    }
    holder
}

/// L1 once faults have stopped: after a crash, and after a clean release.
fn takeovers(world: &mut World) {
    for candidate in 0..world.candidates.len() {
        world.trouble(Trouble::Begin { candidate });
    }
    world.run_until(world.now + 10 * MS);
    let Some(crashed) = holder(world) else { return };
    world.check_remains();
    world.candidates[crashed].alive = false;
    world.run_until(world.now + LEASE_AND_BACK_OFF);
    let Some(leaving) = holder(world) else { return };
    world.later(0, Happening::Trouble(Trouble::Begin { candidate: crashed }));
    world.run_until(world.now + 500 * MS);
    world.event(leaving, Event::Shutdown);
    world.run_until(world.now + RELEASE_AND_BACK_OFF);
    let _ = holder(world);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

/// `REDLOCK_SEED=n` replays one world, `REDLOCK_SEEDS=n` runs so many.
#[test]
fn s1_s2_s3_s5_s6_and_l1_hold_in_every_world() {
    let seeds = match number("REDLOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("REDLOCK_SEEDS").unwrap_or(SEEDS),
    };
    let broken: Vec<String> = seeds.filter_map(|seed| run(seed, None)).collect();
    assert!(
        broken.is_empty(),
        "{} broken: {:#?}",
        broken.len(),
        &broken[..broken.len().min(10)]
    );
}

#[test]
fn a_seed_replays() {
    let trace = |seed| {
        let mut world = World::new(seed, None);
        world.run_until(world.calm);
        (world.checks.wins, world.checks.last_token, world.checks.clashes)
    };
    assert_eq!(trace(7), trace(7));
    assert!(trace(7).0 > 0);
}
