//! Draws random numbers that serve as unique names.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of calls that had no source of random numbers.
static WITHOUT: AtomicU64 = AtomicU64::new(0);

/// Returns 128 random bits. Without a source of random numbers, they derive from the clock, the process and a count:
/// still unique, but guessable.
pub(crate) fn bits() -> u128 {
    #[cfg(all(feature = "virtual", debug_assertions))]
    if crate::clock::virtual_time::is_installed() {
        return fastrand::u128(..);
    }
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        let count = u128::from(WITHOUT.fetch_add(1, Relaxed));
        let clock = u128::from(crate::clock::now().as_nanos());
        return clock << 64 | u128::from(std::process::id()) << 32 | count;
    }
    u128::from_le_bytes(bytes)
}

/// Returns bits that begin with the local wall clock, like a UUID of version 7, so that a reader can see
/// their age. No decision depends on the time.
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
