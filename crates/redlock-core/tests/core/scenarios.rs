//! Runs orders of events that the random storm rarely meets: short runs with a good network, from many seeds.

use std::time::Duration;

use redlock_core::{Event, ReleaseMode, planted::Plant as Code};

use crate::{
    planted::Planted,
    rate::{Instant, MS},
    scripts::Named,
    world::{LONGEST, PATIENT, SHORT, World, nanos},
};

const SEEDS: std::ops::Range<u64> = 1..400;

/// Returns a world in which all candidates run, one holds the lock, and the others have seen its lease and a renewal of
/// it.
fn held(seed: u64, planted: Planted) -> (World, usize) {
    let mut world = World::new(seed, planted);
    // The rate is not beyond the drift, as it is in some storms.
    world.candidates[0].clock.parts_per_million = 0;
    for candidate in 0..world.candidates.len() {
        world.start(candidate);
    }
    let settled = world.now + 2 * nanos(LONGEST);
    world.run_until(settled);
    let random = world.rng.u64(..nanos(SHORT.lease_duration));
    world.run_until(settled + random);
    let holder = holders(&world).first().copied();
    (world, holder.expect("a holder by a good network"))
}

fn holders(world: &World) -> Vec<usize> {
    let all = 0..world.candidates.len();
    all.filter(|c| world.candidates[*c].authority(world.now).is_some())
        .collect()
}

/// Reports whether two candidates hold the lock at any millisecond until `end`.
fn overlaps(world: &mut World, end: Instant) -> bool {
    while world.now < end {
        let next = world.now + MS;
        world.run_until(next);
        if holders(world).len() > 1 {
            return true;
        }
    }
    false
}

/// Reports whether two candidates hold the lock after a common step of the masters' clocks. The holder may be
/// cut off from all masters: it then relies on its lease to the end.
fn common_step_overlaps(seed: u64) -> bool {
    let (mut world, holder) = held(seed, Planted::default());
    // The masters forget a lease that is held: S3 cannot hold.
    world.checks.check_only_tokens();
    let cut_off = world.rng.bool();
    world.cut[holder].fill(cut_off);
    let step = nanos(LONGEST) + world.rng.u64(..nanos(LONGEST));
    for master in &mut world.masters {
        master.clock.offset += step;
    }
    let end = world.now + 3 * nanos(LONGEST);
    overlaps(&mut world, end)
}

#[test]
fn common_clock_step_of_all_masters_gives_no_second_holder() {
    let found: Vec<u64> = SEEDS.filter(|seed| common_step_overlaps(*seed)).collect();
    assert!(found.is_empty(), "two holders with the seeds {found:?}");
}

/// The clock of the only master steps while the holder, with a long lease, is cut off, and the others have short leases.
/// Returns whether two candidates held the lock; `None` if the seed has several masters.
fn step_of_the_only_master_overlaps(seed: u64) -> Option<bool> {
    let world = World::new(seed, Planted::default());
    if world.masters.len() > 1 || world.candidates.len() < 2 {
        return None;
    }
    let (mut world, holder) = held(seed, Planted::default());
    // The master forgets a lease that is held: S3 cannot hold.
    world.checks.check_only_tokens();
    let terms = world.terms(holder, PATIENT);
    world.notify(holder, Event::SpecChanged(terms));
    let renewed = world.now + world.rng.u64(..50 * MS);
    world.run_until(renewed);
    world.cut[holder].fill(true);
    let random = world.now + world.rng.u64(..100 * MS);
    world.run_until(random);
    world.masters[0].clock.offset += nanos(LONGEST) + world.rng.u64(..nanos(LONGEST));
    let end = world.now + 3 * nanos(LONGEST);
    Some(overlaps(&mut world, end))
}

#[test]
fn clock_step_of_the_only_master_gives_no_second_holder() {
    let runs: Vec<(u64, bool)> = (1..3_000)
        .filter_map(|seed| Some((seed, step_of_the_only_master_overlaps(seed)?)))
        .collect();
    assert!(runs.len() > 100, "only {} runs", runs.len());
    let found: Vec<u64> = runs.iter().filter(|run| run.1).map(|run| run.0).collect();
    assert!(found.is_empty(), "two holders with the seeds {found:?}");
}

/// All masters restart without memory while the lock is held, beside a process that is configured with shorter leases.
/// Returns the world some leases later, and whether two candidates held the lock.
fn total_loss_beside_another_fingerprint(seed: u64, planted: impl Into<Planted>) -> Option<(World, bool)> {
    let mut world = World::new(seed, planted);
    if world.candidates.len() < 3 || world.beyond {
        return None;
    }
    world.mix_fingerprints();
    for candidate in 0..world.candidates.len() {
        world.start(candidate);
        let terms = world.terms(candidate, PATIENT);
        world.notify(candidate, Event::SpecChanged(terms));
    }
    let settled = world.now + 2 * nanos(LONGEST) + world.rng.u64(..nanos(LONGEST));
    world.run_until(settled);
    // The holder is cut off from all masters, and relies on its lease to the end.
    let holder = holders(&world).first().copied()?;
    let cut_off = world.rng.bool();
    world.cut[holder].fill(cut_off);
    for master in 0..world.masters.len() {
        world.lose_memory(master);
    }
    if world.rng.bool() {
        world.restart_sealer_of_other();
    }
    let end = world.now + 5 * nanos(LONGEST);
    let overlap = overlaps(&mut world, end);
    Some((world, overlap))
}

#[test]
fn a_process_with_another_fingerprint_seals_no_master_after_a_total_loss() {
    let (mut losses, mut overlap, mut sealed) = (0, Vec::new(), Vec::new());
    for seed in SEEDS {
        let Some((world, overlaps)) = total_loss_beside_another_fingerprint(seed, Planted::default()) else {
            continue;
        };
        losses += 1;
        if overlaps || world.checks.broken.is_some() {
            overlap.push((seed, world.checks.broken.clone()));
        }
        if world.stamps.contains(&Some(Named::Other)) {
            sealed.push(seed);
        }
    }
    assert!(losses > 100, "only {losses} losses");
    assert!(
        overlap.is_empty() && sealed.is_empty(),
        "of {losses} losses: two holders with the seeds {overlap:?}; sealed for the other fingerprint: {sealed:?}"
    );
}

/// All masters are initialised for another quorum while the lock is held. Returns for how long the holder believes in its
/// lease after a majority of them answered its next poll.
fn held_beside_another_quorum(seed: u64, planted: impl Into<Planted>) -> Instant {
    let (mut world, holder) = held(seed, planted.into());
    let terms = world.terms(holder, PATIENT);
    world.notify(holder, Event::SpecChanged(terms));
    let renewed = world.now + 500 * MS;
    world.run_until(renewed);
    // The masters forget a lease that is held: S3 cannot hold.
    world.checks.check_only_tokens();
    for master in 0..world.masters.len() {
        world.stamps[master] = Some(Named::Other);
    }
    let polled = world.now + 1_100 * MS;
    let end = world.now + 2 * nanos(LONGEST);
    while world.now < end && world.candidates[holder].authority(world.now).is_some() {
        let next = world.now + MS;
        world.run_until(next);
    }
    world.now.saturating_sub(polled)
}

#[test]
fn a_holder_that_sees_a_majority_sealed_for_another_quorum_ends_at_once() {
    let late = |planted: Code| -> Vec<u64> {
        let late = |seed: &u64| held_beside_another_quorum(*seed, planted) > 0;
        SEEDS.step_by(8).filter(late).collect()
    };
    assert_eq!(late(Code::Nothing), [0; 0]);
    assert!(
        late(Code::ForeignMajorityIgnored).len() > 10,
        "the planted fault is not found"
    );
}

/// After a release, the first candidate that makes an attempt shuts down before it knows the result. Returns for how
/// long no candidate then holds the lock; `None` if no candidate is left, or no attempt was interrupted.
fn unheld_after_an_attempt_is_given_up(seed: u64, planted: Planted) -> Option<Instant> {
    let (mut world, holder) = held(seed, planted);
    if world.candidates.len() < 3 {
        return None;
    }
    let abstain = Duration::from_nanos(8 * nanos(LONGEST));
    world.notify(holder, Event::StepDown { abstain });
    let released = world.now;
    let acquiring = |world: &World| {
        let all = 0..world.candidates.len();
        all.into_iter()
            .find(|c| world.candidates[*c].state() == Some("acquiring"))
    };
    let leaver = loop {
        let next = world.now + MS / 10;
        world.run_until(next);
        match acquiring(&world) {
            Some(candidate) => break candidate,
            None if world.now > released + 100 * MS => return None,
            None => {}
        }
    };
    let soon = world.now + world.rng.u64(..2 * MS);
    world.run_until(soon);
    if world.candidates[leaver].state() != Some("acquiring") {
        return None;
    }
    world.notify(leaver, Event::Shutdown(ReleaseMode::Release));
    let given_up = world.now;
    while holders(&world).is_empty() && world.now < given_up + 2 * nanos(LONGEST) {
        let next = world.now + MS;
        world.run_until(next);
    }
    assert_eq!(world.checks.broken, None, "seed {seed}");
    Some(world.now - given_up)
}

/// A few clashes, each retried after at most the retry period.
const SOON: Instant = 700 * MS;

fn delayed(planted: Planted) -> Vec<(u64, Instant)> {
    let unheld = |seed| Some((seed, unheld_after_an_attempt_is_given_up(seed, planted)?));
    let all: Vec<_> = SEEDS.filter_map(unheld).collect();
    assert!(all.len() > 20, "only {} attempts were interrupted", all.len());
    all.into_iter().filter(|(_, unheld)| *unheld > SOON).collect()
}

#[test]
fn attempt_that_is_given_up_does_not_delay_the_next_holder() {
    assert_eq!(delayed(Planted::default()), []);
}
