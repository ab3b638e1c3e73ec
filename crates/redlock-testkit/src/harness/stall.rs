//! Measures how much of the time the machine gives to the programs of a test.

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

/// The interval between two measurements.
const TICK: Duration = Duration::from_millis(50);
/// The most runnable threads for each CPU that count: a test that hangs on a busy machine ends, too.
const MOST_THREADS: f64 = 8.0;

/// Nanoseconds of served time since the first call of [`served`].
static SERVED: AtomicU64 = AtomicU64::new(0);
static MEASURED: Once = Once::new();

/// The last stalls of the whole machine, each with its end.
static STALLS: Mutex<VecDeque<(Instant, Duration)>> = Mutex::new(VecDeque::new());
/// The shortest stall that is recorded: a thread that only waits for a CPU waits less.
const SHORTEST_STALL: Duration = Duration::from_millis(500);
const KEPT_STALLS: usize = 64;

/// Returns the longest stall of the whole machine that ended after this time; zero if none was noticed. The first call of
/// this function or of a bounded wait starts the measurement.
pub fn longest_stall_since(began: Instant) -> Duration {
    served();
    let stalls = STALLS.lock().unwrap();
    let recent = stalls.iter().filter(|(ended, _)| *ended >= began);
    recent.map(|(_, length)| *length).max().unwrap_or_default()
}

fn record_stall(ended: Instant, length: Duration) {
    if length < SHORTEST_STALL {
        return;
    }
    let mut stalls = STALLS.lock().unwrap();
    stalls.push_back((ended, length));
    if stalls.len() > KEPT_STALLS {
        stalls.pop_front();
    }
}

/// Returns the time in which the machine served this process, since the first call. While the CPUs have more runnable
/// threads than they can run, a second counts as the share of one thread. A stall of the whole machine does not count.
/// Where the system does not count its runnable threads, each second counts.
pub(super) fn served() -> Duration {
    MEASURED.call_once(|| drop(thread::spawn(measure)));
    Duration::from_nanos(SERVED.load(Relaxed))
}

/// Waits until this much time is served.
pub(super) async fn served_for(bound: Duration) {
    let end = served() + bound;
    while served() < end {
        tokio::time::sleep(TICK).await;
    }
}

fn measure() {
    let cpus = thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    loop {
        let began = Instant::now();
        thread::sleep(TICK);
        let elapsed = began.elapsed();
        record_stall(Instant::now(), elapsed.saturating_sub(TICK));
        let tick = elapsed.min(2 * TICK);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let share = tick.div_f64(threads_for_each_cpu(&load, cpus));
        SERVED.fetch_add(u64::try_from(share.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Returns how many runnable threads share a CPU, between 1 and [`MOST_THREADS`]. The thread that reads the file is one.
fn threads_for_each_cpu(loadavg: &str, cpus: f64) -> f64 {
    let runnable = loadavg
        .split_whitespace()
        .nth(3)
        .and_then(|field| field.split('/').next()?.parse::<f64>().ok())
        .unwrap_or(1.0);
    ((runnable - 1.0) / cpus).clamp(1.0, MOST_THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_for_a_cpu_share_it() {
        let threads = |loadavg| threads_for_each_cpu(loadavg, 2.0);
        assert_eq!(threads("2.64 0.90 0.32 1/97 7576\n"), 1.0);
        assert_eq!(threads("2.64 0.90 0.32 3/97 7576\n"), 1.0);
        assert_eq!(threads("2.64 0.90 0.32 7/97 7576\n"), 3.0);
        assert_eq!(threads("2.64 0.90 0.32 970/970 7576\n"), MOST_THREADS);
        assert_eq!(threads(""), 1.0, "no such file");
        assert_eq!(threads("unknown"), 1.0);
    }

    #[test]
    fn longest_of_the_recent_stalls_counts() {
        let began = Instant::now();
        let long = 1_000 * SHORTEST_STALL;
        record_stall(began.checked_sub(TICK).unwrap(), 3 * long);
        record_stall(Instant::now(), SHORTEST_STALL / 2);
        assert!(longest_stall_since(began) < long);
        record_stall(Instant::now(), 2 * long);
        record_stall(Instant::now(), long);
        assert_eq!(longest_stall_since(began), 2 * long);
    }

    #[tokio::test]
    async fn served_time_is_at_most_the_elapsed_time() {
        served();
        let began = Instant::now();
        served_for(3 * TICK).await;
        assert!(began.elapsed() >= TICK, "{:?}", began.elapsed());
    }
}
