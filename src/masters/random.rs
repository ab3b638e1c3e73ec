//! Random numbers that name things: nobody else draws the same.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many were made without a source of random numbers.
static WITHOUT: AtomicU64 = AtomicU64::new(0);

/// 128 random bits. Without a source of random numbers they are made of the clock, the process and a count: unique all
/// the same, only guessable.
pub(crate) fn bits() -> u128 {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        let count = u128::from(WITHOUT.fetch_add(1, Relaxed));
        let clock = u128::from(crate::clock::now().as_nanos());
        return clock << 64 | u128::from(std::process::id()) << 32 | count;
    }
    u128::from_le_bytes(bytes)
}
