//! The masters' own account of the leases, as an observer from outside sees it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock::lease::BootInstant;
use redlock_testkit::observer::{Looks, Shown, nearest_end};

const EVERY: Duration = Duration::from_millis(10);
/// What a holder keeps back of its lease for clocks of different rate (README): 1 % and 2 ms.
const DRIFT: fn(Duration) -> Duration = |lease| lease / 100 + Duration::from_millis(2);

/// The end of a lease on each master that showed it.
type Ends = HashMap<usize, BootInstant>;

/// By holder identity: each has one lease in a trial.
#[derive(Debug, Default)]
struct Seen(HashMap<String, Ends>);

#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    lease: Duration,
    _looks: Looks,
}

impl Observer {
    pub fn start(urls: &[String], lock: &str, lease: Duration) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let of_looks = Arc::clone(&seen);
        let report = move |master, shown: Option<Shown>| {
            if let Some(shown) = shown {
                of_looks.lock().unwrap().enter(master, &shown);
            }
        };
        Self {
            seen,
            lease,
            _looks: Looks::start(urls, &[lock.to_owned()], EVERY, report).unwrap(),
        }
    }

    /// The latest that a holder can have believed to hold the lease: the soonest end that a master shows, less the drift.
    /// What it believed is earlier by the time that its renewal took to get there.
    pub fn valid_until(&self, identity: &str) -> Option<BootInstant> {
        let seen = self.seen.lock().unwrap();
        let end = seen.0.get(identity)?.values().min()?;
        Some(*end - DRIFT(self.lease))
    }
}

impl Seen {
    fn enter(&mut self, master: usize, shown: &Shown) {
        for (lease, ends) in shown.leases() {
            let Some(lease) = lease else { continue };
            let end = self
                .0
                .entry(lease.identity)
                .or_default()
                .entry(master)
                .or_insert(ends);
            *end = nearest_end(*end, ends);
        }
    }
}
