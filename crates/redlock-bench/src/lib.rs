//! What all measurements share: the floor of bare Redis commands, and the numbers as they are printed.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    missing_debug_implementations,
    reason = "a measurement that fails must stop; numbers for people"
)]

pub mod floor;
pub mod stats;
