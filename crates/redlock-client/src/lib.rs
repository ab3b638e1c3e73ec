//! Locks with fencing tokens on N independent Redis masters.

pub mod clock;
pub mod elector;
pub mod masters;
pub mod trace;

pub use redlock_core as lease;
