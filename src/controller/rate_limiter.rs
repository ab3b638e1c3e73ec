//! Limits the number of requests to the API server per second.
//!
//! One limit covers all requests that are repeated or made for many objects at once. Reads of targets and starts pass
//! in order of arrival; stops pass before them. Statuses and events use the remaining capacity, but always get a share.
//! A stop with a deadline never waits: it is only counted.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time;

use crate::{clock, lease::BootInstant};

/// The burst: unused capacity of this duration may be used later.
const BURST: Duration = Duration::from_millis(500);
/// Requests that cannot wait delay the others by at most this duration, so that the others do not become
/// late.
const DEBT: Duration = Duration::from_secs(3);
/// One in this number of requests is reserved for statuses and events, regardless of the other load.
const SHARE: u32 = 4;
/// The maximum time for which requests without urgency wait for all others.
const SPARED: Duration = Duration::from_secs(10);
/// Interval between checks for a free turn.
const AGAIN: Duration = Duration::from_millis(20);

/// The rate limiter; requests of different urgency have different lanes.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// The interval between two requests.
    gap: Duration,
    lanes: Mutex<Lanes>,
}

/// For each lane, the time up to which its requests are spread at the rate of the limit.
#[derive(Debug, Default)]
struct Lanes {
    /// Includes the requests that still wait.
    all: BootInstant,
    sent: BootInstant,
    stops: BootInstant,
    stops_sent: BootInstant,
    reports: BootInstant,
}

impl RateLimiter {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            gap: Duration::from_secs(1) / per_second.max(1),
            lanes: Mutex::default(),
        }
    }

    /// Reserves a turn for these requests and returns its time. The caller calls [`Self::send`] at that time.
    pub(super) fn turn(&self, requests: u32, now: BootInstant) -> BootInstant {
        self.with(|lanes| take(&mut lanes.all, self.gap * requests, now))
    }

    /// Waits until one request may be sent, and counts it.
    pub(super) async fn sent(&self) {
        let mut at = self.turn(1, clock::now());
        loop {
            clock::sleep_until(at).await;
            match self.send(1, clock::now()) {
                Some(later) => at = later,
                None => return,
            }
        }
    }

    /// Counts the requests as sent, or returns when to call again: after a suspension, a process must not
    /// send all missed requests at once.
    pub(super) fn send(&self, requests: u32, now: BootInstant) -> Option<BootInstant> {
        self.with(|lanes| self.pass(&mut lanes.sent, requests, now))
    }

    /// Reserves a turn for a stop without a deadline and returns its time. Such a stop waits only for other
    /// stops.
    pub(super) fn turn_to_stop(&self, requests: u32, now: BootInstant) -> BootInstant {
        self.with(|lanes| take(&mut lanes.stops, self.gap * requests, now))
    }

    /// Like [`Self::send`], but for a stop.
    pub(super) fn send_stop(&self, requests: u32, now: BootInstant) -> Option<BootInstant> {
        let again = self.with(|lanes| self.pass(&mut lanes.stops_sent, requests, now));
        if again.is_none() {
            self.count(requests, now);
        }
        again
    }

    fn pass(&self, lane: &mut BootInstant, requests: u32, now: BootInstant) -> Option<BootInstant> {
        if is_free(*lane, now) {
            take(lane, self.gap * requests, now);
            return None;
        }
        Some(now + lane.left(now).saturating_sub(BURST) + self.gap)
    }

    /// Counts requests that cannot wait.
    pub(super) fn count(&self, requests: u32, now: BootInstant) {
        self.with(|lanes| {
            for lane in [&mut lanes.all, &mut lanes.sent] {
                let before = *lane;
                take(lane, self.gap * requests, now);
                *lane = (*lane).min(now + DEBT).max(before);
            }
        });
    }

    /// Reports whether a status or an event may be written now.
    pub(super) fn may_report(&self, now: BootInstant) -> bool {
        self.with(|lanes| {
            (is_free(lanes.all, now) && is_free(lanes.sent, now)) || is_free(lanes.reports, now)
        })
    }

    /// Counts the write of a status or an event.
    pub(super) fn count_report(&self, now: BootInstant) {
        self.with(|lanes| {
            if !is_free(lanes.all, now) || !is_free(lanes.sent, now) {
                take(&mut lanes.reports, self.gap * SHARE, now);
            }
            take(&mut lanes.all, self.gap, now);
            take(&mut lanes.sent, self.gap, now);
        });
    }

    /// Waits until a status or an event may be written, and counts it.
    pub(super) async fn wait_to_report(&self) {
        while !self.may_report(clock::now()) {
            time::sleep(AGAIN).await;
        }
        self.count_report(clock::now());
    }

    /// Waits until no other request is waiting, for at most [`SPARED`], and counts one request.
    pub(super) async fn spared(&self) {
        let until = clock::now() + SPARED;
        loop {
            let now = clock::now();
            if now >= until || self.is_idle(now) {
                return self.count(1, now);
            }
            time::sleep(AGAIN).await;
        }
    }

    fn is_idle(&self, now: BootInstant) -> bool {
        self.with(|lanes| is_free(lanes.all, now) && is_free(lanes.sent, now))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Lanes) -> T) -> T {
        // No code that panics runs under this lock, so a poisoned lock is still consistent.
        act(&mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_free(lane: BootInstant, now: BootInstant) -> bool {
    lane.left(now) < BURST
}

fn take(lane: &mut BootInstant, length: Duration, now: BootInstant) -> BootInstant {
    let from = (*lane).max(now);
    *lane = from + length;
    now + from.left(now).saturating_sub(BURST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let rate_limiter = RateLimiter::new(100);
        let turns: Vec<BootInstant> = (0..300).map(|_| rate_limiter.turn(1, at(5_000))).collect();
        assert_eq!(turns[50], at(5_000), "half a second's worth");
        assert_eq!(turns[51], at(5_010));
        assert_eq!(turns[299], at(7_490));
        // After a long idle time, the burst is no larger.
        assert_eq!(rate_limiter.turn(300, at(60_000)), at(60_000));
        assert_eq!(rate_limiter.turn(1, at(60_000)), at(62_500));
    }

    #[test]
    fn a_candidate_that_slept_does_not_take_all_missed_turns_at_once() {
        let rate_limiter = RateLimiter::new(100);
        let turns: Vec<BootInstant> = (0..1_000).map(|_| rate_limiter.turn(1, at(0))).collect();
        assert!(turns[999] < at(10_000), "{:?}", turns[999]);
        let sent = turns
            .iter()
            .filter(|_| rate_limiter.send(1, at(10_000)).is_none())
            .count();
        assert_eq!(sent, 50, "half a second's worth");
        let again = rate_limiter.send(1, at(10_000));
        assert_eq!(again, Some(at(10_010)));
        assert_eq!(rate_limiter.send(1, at(10_010)), None);
    }

    #[test]
    fn a_stop_does_not_wait_behind_starts_and_they_wait_behind_it() {
        let rate_limiter = RateLimiter::new(100);
        rate_limiter.turn(1_000, at(0));
        assert_eq!(rate_limiter.turn_to_stop(1, at(0)), at(0));
        assert_eq!(rate_limiter.send_stop(1, at(0)), None);
        rate_limiter.count(100_000, at(0));
        assert!(
            rate_limiter.turn(1, at(0)) < at(10_000),
            "what does not wait puts off the rest for 3 s at most"
        );
    }

    #[test]
    fn statuses_get_their_share_under_any_load() {
        let rate_limiter = RateLimiter::new(100);
        rate_limiter.turn(100_000, at(0));
        let reports = |rate_limiter: &RateLimiter, time| {
            let may = rate_limiter.may_report(at(time));
            if may {
                rate_limiter.count_report(at(time));
            }
            may
        };
        let reported = (0..10_000).filter(|time| reports(&rate_limiter, *time)).count();
        assert!(
            (250..=300).contains(&reported),
            "{reported} in 10 s, a quarter of 100/s"
        );
        let free = RateLimiter::new(100);
        let reported = (0..10_000).filter(|time| reports(&free, *time)).count();
        assert!((1_000..=1_102).contains(&reported), "{reported}");
    }

    #[test]
    fn calls_without_urgency_wait_for_all_others() {
        let rate_limiter = RateLimiter::new(100);
        assert!(rate_limiter.is_idle(at(0)));
        rate_limiter.turn(200, at(0));
        assert!(!rate_limiter.is_idle(at(1_000)));
        assert!(rate_limiter.is_idle(at(1_501)), "a burst is let by");
    }
}
