//! Measures how long the processes of a trial waited for the CPU. Decides nothing: a wrong outcome prints the
//! delays, which show whether the whole machine stood still, or only the guardian.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redlock::clock;
use redlock::lease::BootInstant;

use crate::records::Record;

const PACE: Duration = Duration::from_millis(2);
/// A pause of this length is normal on a busy machine.
const USUAL: Duration = Duration::from_millis(10);

/// The delays in the last lease duration before the old holder's last write.
#[derive(Debug)]
pub struct Delays {
    /// The longest time between two writes of the old holder.
    work: Duration,
    /// The longest time for which a thread of the harness did not run.
    harness: Duration,
    /// The time for which the guardian waited for a CPU since its start; `None` if it has ended.
    guardian: Option<Duration>,
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (work, harness) = (self.work, self.harness);
        write!(
            f,
            "longest pause of the work {work:?}, of the harness {harness:?}; "
        )?;
        match self.guardian {
            Some(waited) => write!(f, "the guardian waited {waited:?} for a CPU"),
            None => f.write_str("no guardian is left"),
        }
    }
}

impl Delays {
    pub fn before(old: &Record, lease: Duration, probe: &Probe, guardian: Option<Duration>) -> Self {
        let since = old.last - lease;
        let writes = old.writes.iter().map(|write| write.at).filter(|at| *at >= since);
        let writes: Vec<BootInstant> = writes.chain([old.last]).collect();
        let pauses = writes.windows(2).map(|pair| pair[1].since(pair[0]));
        Self {
            work: pauses.max().unwrap_or_default(),
            harness: probe.longest(since, old.last),
            guardian,
        }
    }
}

/// A thread that only detects when it did not run. It ends when the value is dropped.
#[derive(Debug)]
pub struct Probe {
    stop: Arc<AtomicBool>,
    stalls: Arc<Mutex<Vec<(BootInstant, BootInstant)>>>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    pub fn start() -> Self {
        let (stop, stalls) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (stopped, of_thread) = (Arc::clone(&stop), Arc::clone(&stalls));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let due = clock::now() + PACE;
                thread::sleep(PACE);
                let now = clock::now();
                if now.since(due) > USUAL {
                    of_thread.lock().unwrap().push((due, now));
                }
            }
        });
        Self {
            stop,
            stalls,
            thread: Some(thread),
        }
    }

    /// Returns the longest stall that lies, at least in part, between the two moments.
    fn longest(&self, since: BootInstant, until: BootInstant) -> Duration {
        let stalls = self.stalls.lock().unwrap();
        let between = stalls.iter().filter(|(from, to)| *to >= since && *from <= until);
        between
            .map(|(from, to)| to.since(*from))
            .max()
            .unwrap_or_default()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
