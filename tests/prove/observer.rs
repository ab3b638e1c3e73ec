//! Observes the leases from outside, as the masters themselves show them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock::lease::BootInstant;
use redlock_testkit::observer::{Poller, Shown, nearest_end};

const EVERY: Duration = Duration::from_millis(10);
/// The part of its lease that a holder reserves for clocks of different rates (README): 1 % and 2 ms.
const DRIFT: fn(Duration) -> Duration = |lease| lease / 100 + Duration::from_millis(2);

/// The end of a lease on each master that showed it.
type Ends = HashMap<usize, BootInstant>;

/// The ends by holder identity: each identity has one lease in a trial.
#[derive(Debug, Default)]
struct Seen(HashMap<String, Ends>);

#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    lease: Duration,
    majority: usize,
    _poller: Poller,
}

impl Observer {
    pub fn start(urls: &[String], lock: &str, lease: Duration) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let shared = Arc::clone(&seen);
        let report = move |master, shown: Option<Shown>| {
            if let Some(shown) = shown {
                shared.lock().unwrap().enter(master, &shown);
            }
        };
        Self {
            seen,
            lease,
            majority: urls.len() / 2 + 1,
            _poller: Poller::start(urls, &[lock.to_owned()], EVERY, report).unwrap(),
        }
    }

    /// Returns the latest time at which a holder can have believed to hold the lease. A renewal counts when a
    /// majority granted it, so this is the end that a majority of the masters shows or exceeds, less the
    /// drift. The end that the holder believed in is earlier by the time that its renewal took to reach the
    /// masters. `None` before a majority has shown the lease.
    pub fn valid_until(&self, identity: &str) -> Option<BootInstant> {
        let end = self.seen.lock().unwrap().end(identity, self.majority)?;
        Some(end - DRIFT(self.lease))
    }
}

impl Seen {
    /// Returns the latest end that a majority shows or exceeds. Masters that missed a renewal show an earlier
    /// end.
    fn end(&self, identity: &str, majority: usize) -> Option<BootInstant> {
        let mut ends: Vec<BootInstant> = self.0.get(identity)?.values().copied().collect();
        ends.sort_unstable();
        ends.iter().rev().nth(majority - 1).copied()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_nanos(ms * 1_000_000)
    }

    fn end(ends: &[u64]) -> Option<BootInstant> {
        let ends = ends.iter().enumerate().map(|(master, ms)| (master, at(*ms)));
        Seen([("old".to_owned(), ends.collect())].into()).end("old", 2)
    }

    #[test]
    fn a_renewal_that_one_master_missed_moves_the_end() {
        assert_eq!(end(&[1_000, 1_626, 1_625]), Some(at(1_625)));
    }

    #[test]
    fn a_renewal_of_one_master_moves_no_end() {
        assert_eq!(end(&[1_001, 1_626, 1_000]), Some(at(1_001)));
    }

    #[test]
    fn fewer_than_a_majority_show_no_end() {
        assert_eq!(end(&[1_000]), None);
        assert_eq!(end(&[1_000, 1_002]), Some(at(1_000)));
    }
}
