//! How long one command may take at one master: one value for everything that asks, which changes while it runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Clones share the value.
#[derive(Clone, Debug)]
pub(crate) struct CommandTimeout(Arc<Nanoseconds>);

#[derive(Debug)]
struct Nanoseconds {
    now: AtomicU64,
    longest: AtomicU64,
}

fn nanoseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
}

impl CommandTimeout {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self(Arc::new(Nanoseconds {
            now: nanoseconds(timeout).into(),
            longest: nanoseconds(timeout).into(),
        }))
    }

    /// For the next command.
    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.0.now.load(Ordering::SeqCst))
    }

    /// The longest that any command was ever given: what was sent before the value became shorter may still arrive,
    /// and an undo that has to come after it must not be repeated too soon.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_nanos(self.0.longest.load(Ordering::SeqCst))
    }

    pub(crate) fn set(&self, timeout: Duration) {
        // In this order: whoever reads the new value finds it covered.
        self.0.longest.fetch_max(nanoseconds(timeout), Ordering::SeqCst);
        self.0.now.store(nanoseconds(timeout), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_it_and_the_longest_stays() {
        let ms = Duration::from_millis;
        let (one, other) = {
            let one = CommandTimeout::new(ms(150));
            (one.clone(), one)
        };
        for (set, longest) in [(50, 150), (500, 500), (20, 500)] {
            one.set(ms(set));
            assert_eq!((other.get(), other.longest()), (ms(set), ms(longest)));
        }
    }
}
