//! One direction between two parties.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use fastrand::Rng;
use redlock_client::clock::virtual_time;
use tokio::time::Instant;

use super::connection::Pipe;

/// The effect of a cut on new connections. Existing ones hold the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A connection attempt waits until the cut is healed, or for the timeout of its caller.
    Hang,
    Refuse,
}

/// The range from which the delay of each write is drawn. Timers of the runtime have a resolution of a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    pub shortest: Duration,
    pub longest: Duration,
}

impl Latency {
    /// Returns the range between two numbers of milliseconds.
    #[must_use]
    pub const fn milliseconds(shortest: u64, longest: u64) -> Self {
        Self {
            shortest: Duration::from_millis(shortest),
            longest: Duration::from_millis(longest),
        }
    }
}

/// Returns the seed of a link, which does not depend on the order in which links are created.
pub(super) fn seed(seed: u64, from: &str, to: &str) -> u64 {
    let bytes = from.bytes().chain([0]).chain(to.bytes());
    bytes.fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[derive(Debug)]
pub(super) struct Link(Mutex<State>);

#[derive(Debug)]
struct State {
    rng: Rng,
    latency: Latency,
    cut: Option<Cut>,
    pipes: Vec<Weak<Pipe>>,
    digest: DefaultHasher,
}

impl Link {
    pub(super) fn new(seed: u64, latency: Latency) -> Self {
        Self(Mutex::new(State {
            rng: Rng::with_seed(seed),
            latency,
            cut: None,
            pipes: Vec::new(),
            digest: DefaultHasher::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(super) fn cut(&self) -> Option<Cut> {
        self.state().cut
    }

    pub(super) fn set_cut(&self, cut: Option<Cut>) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.cut, cut);
        if before.is_none() || cut.is_some() {
            return;
        }
        let pipes = state.open_pipes();
        let arrives = Instant::now() + state.draw();
        drop(state);
        pipes.iter().for_each(|pipe| pipe.healed(arrives));
    }

    pub(super) fn set_latency(&self, latency: Latency) {
        self.state().latency = latency;
    }

    /// Draws the delay of a write.
    pub(super) fn draw(&self) -> Duration {
        self.state().draw()
    }

    /// Draws the arrival of a write.
    pub(super) fn arrival(&self, bytes: &[u8]) -> Instant {
        let mut state = self.state();
        let arrives = Instant::now() + state.draw();
        virtual_time::passed().hash(&mut state.digest);
        bytes.hash(&mut state.digest);
        arrives
    }

    /// Returns a hash of all writes and their times.
    pub(super) fn digest(&self) -> u64 {
        self.state().digest.finish()
    }

    pub(super) fn add(&self, pipe: &Arc<Pipe>) {
        let mut state = self.state();
        state.pipes.retain(|pipe| pipe.strong_count() > 0);
        state.pipes.push(Arc::downgrade(pipe));
    }

    pub(super) fn reset(&self) {
        let pipes = self.state().open_pipes();
        pipes.iter().for_each(|pipe| pipe.reset());
    }

    pub(super) fn connections(&self) -> usize {
        self.state().open_pipes().len()
    }
}

impl State {
    fn draw(&mut self) -> Duration {
        let Latency { shortest, longest } = self.latency;
        let range = longest.saturating_sub(shortest);
        shortest + range.mul_f64(self.rng.f64())
    }

    fn open_pipes(&self) -> Vec<Arc<Pipe>> {
        self.pipes.iter().filter_map(Weak::upgrade).collect()
    }
}
