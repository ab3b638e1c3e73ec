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

/// The same with the own wall clock in front, as a UUID of version 7 has it: people can read how old it is. Nothing is
/// decided by it.
pub(crate) fn timed_bits() -> u128 {
    crate::clock::unix_time().as_millis() << 80 | bits() >> 48
}

#[cfg(test)]
mod tests {
    use redlock_core::facts::drawn_at;

    use super::*;

    #[test]
    fn the_time_of_bits_reads_back() {
        let before = crate::clock::unix_time();
        let drawn = drawn_at(&format!("{:032x}", timed_bits())).unwrap();
        assert!(drawn.abs_diff(before).as_secs() < 60, "{drawn:?} {before:?}");
        assert_ne!(timed_bits(), timed_bits());
        assert_eq!(drawn_at("ab"), None);
    }
}
