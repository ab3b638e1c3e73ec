//! Runs a world in virtual time on the thread of the caller.

use std::future::Future;

use redlock_client::clock::virtual_time;
use tokio::runtime::Builder;

/// Runs a world to its end. Its runtime has one thread, whose clock is paused and advances when all tasks wait, and no
/// sockets, signals and files: product code that uses one directly panics. Random numbers of [`fastrand`] follow from
/// the seed.
///
/// # Panics
///
/// Panics if a world runs on this thread.
#[allow(unexpected_cfgs)]
pub fn run<F: Future>(seed: u64, world: F) -> F::Output {
    let mut builder = Builder::new_current_thread();
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    fastrand::seed(seed);
    runtime.block_on(async {
        let _clocks = virtual_time::install();
        world.await
    })
}
