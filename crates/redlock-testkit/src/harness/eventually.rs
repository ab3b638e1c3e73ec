//! Waits for a condition, with a bound.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// The first pause between two checks. Each further pause is half as long again, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(100);
/// A pause is at least this many times as long as the check before it, up to [`MOST`]: a check costs CPU time, most of
/// all one that starts a process.
const FACTOR: u32 = 3;
const MOST: Duration = Duration::from_millis(400);

/// Repeats a check until it returns `Ok`, and returns the value. `Err` carries the observed state; the last one is
/// reported when the bound has passed. The bound also ends a check that hangs.
pub async fn eventually<T, E: Debug>(
    bound: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let deadline = tokio::time::Instant::now() + bound;
    let mut last = None;
    let mut pause = FIRST;
    loop {
        let began = tokio::time::Instant::now();
        match tokio::time::timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(seen)) => last = Some(seen),
            Err(_) => panic!("{what}: not within {bound:?}; the last question hung; before it: {last:?}"),
        }
        let rest = pause.max(pause_after(began.elapsed()));
        if tokio::time::Instant::now() + rest > deadline {
            panic!("{what}: not within {bound:?}; last seen: {last:?}");
        }
        tokio::time::sleep(rest).await;
        pause = longer(pause);
    }
}

/// Does the same in a test that is not async. The bound does not end a check that hangs.
pub fn eventually_blocking<T, E: Debug>(
    bound: Duration,
    what: &str,
    mut probe: impl FnMut() -> Result<T, E>,
) -> T {
    let started = Instant::now();
    let mut pause = FIRST;
    loop {
        let began = Instant::now();
        match probe() {
            Ok(value) => return value,
            Err(seen) if started.elapsed() > bound => {
                panic!("{what}: not within {bound:?}; last seen: {seen:?}")
            }
            Err(_) => thread::sleep(pause.max(pause_after(began.elapsed()))),
        }
        pause = longer(pause);
    }
}

/// Returns the shortest pause after a check that took this long.
pub fn pause_after(check: Duration) -> Duration {
    (check * FACTOR).min(MOST)
}

fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(LONGEST)
}
