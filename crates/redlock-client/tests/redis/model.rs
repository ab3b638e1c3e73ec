//! Compares the model of a master that the simulation uses with a real server: after each script of a random
//! sequence, both must have given the same answer and have the same data.

#[path = "model/real.rs"]
mod real;
#[path = "model/sequence.rs"]
mod sequence;

use std::time::Instant;

use fastrand::Rng;

use self::{real::Real, sequence::Sequence};
use crate::plant::Plant;
use redlock_testkit::{RedisServer, ServerOptions};

const SEQUENCES: u64 = 60;
const STEPS: usize = 60;

pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect(name))
}

/// Returns the number of steps that could be compared, or the first difference.
async fn compare(real: &mut Real, plant: Plant, seed: u64) -> Result<usize, String> {
    let mut sequence = Sequence::new(Rng::with_seed(seed), plant, real).await;
    let mut compared = 0;
    for step in 0..STEPS {
        let sure = sequence.step().await;
        compared +=
            usize::from(sure.map_err(|differs| format!("REDLOCK_SEED={seed}, step {step}: {differs}"))?);
    }
    Ok(compared)
}

#[tokio::test]
async fn a_real_server_behaves_like_the_model_of_the_simulation() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let mut real = Real::connect(&server.url()).await;
    let (first, count) = match number("REDLOCK_SEED") {
        Some(seed) => (seed, 1),
        None => (fastrand::u64(..1 << 32), SEQUENCES),
    };
    let mut compared = 0;
    for seed in first..first + count {
        compared += compare(&mut real, Plant::Nothing, seed).await.unwrap();
    }
    println!("{compared} steps compared, seeds from {first}");
    // A script that ran late, or while a key ended, cannot be compared; a busy machine has many of them.
    assert!(compared * 50 > usize::try_from(count).unwrap() * STEPS);
}

#[tokio::test]
async fn a_model_that_does_something_else_is_found_out() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let mut real = Real::connect(&server.url()).await;
    for plant in [
        Plant::UndoOfOthers,
        Plant::BreakDeletes,
        Plant::NoNotAfter,
        Plant::FloorNotRestored,
        Plant::SlotsNotRestored,
        Plant::TieToOne,
        Plant::DelayLowered,
        Plant::MemoryNeverFull,
    ] {
        let (mut compared, mut seed, began) = (0, 0, Instant::now());
        // A busy machine compares fewer steps of a sequence, and needs more sequences. The rarest fault is
        // found in one sequence of ten.
        let enough = 10 * usize::try_from(SEQUENCES).unwrap() * STEPS;
        loop {
            let steps = compare(&mut real, plant, seed).await;
            seed += 1;
            let took = began.elapsed().as_secs_f64();
            let Ok(steps) = steps else {
                println!("planted: {plant:?}|real Redis|after {seed} sequences, {took:.1} s");
                break;
            };
            compared += steps;
            assert!(compared < enough, "{plant:?} was not found out");
        }
    }
}
