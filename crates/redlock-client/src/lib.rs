#![doc = include_str!("../README.md")]

pub mod clock;
pub mod elector;
pub mod masters;
pub mod trace;
pub mod transport;

pub use redlock_core as lease;
