//! Tests the pure core under every fault that the protocol expects, in virtual time, and tests its
//! properties.
//!
//! The simulation runs a fixed set of seeds. `REDLOCK_SEED=n` replays one; `REDLOCK_SEEDS=n FIRST_SEED=k` runs others.

// The lints exempt test functions, but not the functions that tests share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "core/calm.rs"]
mod calm;
#[path = "core/candidate.rs"]
mod candidate;
#[path = "core/checks.rs"]
mod checks;
#[path = "core/faults.rs"]
mod faults;
#[path = "core/fenced.rs"]
mod fenced;
#[path = "core/forger.rs"]
mod forger;
#[path = "core/forgetter.rs"]
mod forgetter;
#[path = "core/master.rs"]
mod master;
#[path = "core/plant.rs"]
mod plant;
#[path = "core/planted.rs"]
mod planted;
#[path = "core/properties.rs"]
mod properties;
#[path = "core/rate.rs"]
mod rate;
#[path = "core/scenarios.rs"]
mod scenarios;
#[path = "core/scripts.rs"]
mod scripts;
#[path = "core/simulation.rs"]
mod simulation;
#[path = "core/soak.rs"]
mod soak;
#[path = "core/strain.rs"]
mod strain;
#[path = "core/world.rs"]
mod world;
