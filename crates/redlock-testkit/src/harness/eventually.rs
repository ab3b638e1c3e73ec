//! Waits for a condition, with a bound.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::stall::{served, served_for};

/// The first pause between two checks. Each further pause is half as long again, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(100);
/// A pause is at least this many times as long as the check before it, up to [`MOST`]: a check costs CPU time, most of
/// all one that starts a process.
const FACTOR: u32 = 3;
const MOST: Duration = Duration::from_millis(400);

/// Repeats a check until it returns `Ok`, and returns the value. `Err` carries the observed state; the last one is
/// reported when the bound has passed. The bound also ends a check that hangs. It is a bound of served time, see
/// [`served`]: a machine that is busy or stalls gets longer.
pub async fn eventually<T, E: Debug>(
    bound: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let began = Instant::now();
    let hangs = AtomicBool::new(false);
    let mut last = None;
    let mut pause = FIRST;
    let repeated = async {
        loop {
            let asked = Instant::now();
            hangs.store(true, Relaxed);
            match probe().await {
                Ok(value) => return value,
                Err(seen) => last = Some(seen),
            }
            hangs.store(false, Relaxed);
            tokio::time::sleep(pause.max(pause_after(asked.elapsed()))).await;
            pause = longer(pause);
        }
    };
    tokio::select! {
        biased;
        value = repeated => value,
        () = served_for(bound) => {
            let hung = if hangs.load(Relaxed) { "the last question hung; before it" } else { "last seen" };
            panic!("{what}: not within {bound:?}; {hung}: {last:?}; {}", after(began))
        }
    }
}

/// Does the same in a test that is not async. The bound does not end a check that hangs.
pub fn eventually_blocking<T, E: Debug>(
    bound: Duration,
    what: &str,
    mut probe: impl FnMut() -> Result<T, E>,
) -> T {
    let (began, end) = (Instant::now(), served() + bound);
    let mut pause = FIRST;
    loop {
        let asked = Instant::now();
        match probe() {
            Ok(value) => return value,
            Err(seen) if served() > end => {
                panic!(
                    "{what}: not within {bound:?}; last seen: {seen:?}; {}",
                    after(began)
                )
            }
            Err(_) => thread::sleep(pause.max(pause_after(asked.elapsed()))),
        }
        pause = longer(pause);
    }
}

fn after(began: Instant) -> String {
    format!(
        "given up after {:?}: the bound counts the time that the machine gave",
        began.elapsed()
    )
}

/// Returns the shortest pause after a check that took this long.
pub fn pause_after(check: Duration) -> Duration {
    (check * FACTOR).min(MOST)
}

fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(LONGEST)
}
