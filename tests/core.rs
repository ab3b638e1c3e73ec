//! The lease core: a seeded simulation in virtual time, the bugs that it must see, and properties.

// The lints' leave for tests covers test functions, not the functions that they share.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "core/candidate.rs"]
mod candidate;
#[path = "core/checks.rs"]
mod checks;
#[path = "core/clock.rs"]
mod clock;
#[path = "core/driver.rs"]
mod driver;
#[path = "core/faults.rs"]
mod faults;
#[path = "core/flight.rs"]
mod flight;
#[path = "core/master.rs"]
mod master;
#[path = "core/message.rs"]
mod message;
#[path = "core/planted.rs"]
mod planted;
#[path = "core/properties.rs"]
mod properties;
#[path = "core/simulation.rs"]
mod simulation;
#[path = "core/world.rs"]
mod world;
