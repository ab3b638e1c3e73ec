//! How many requests a second go to the API server.
//!
//! One limit for everything that is asked again and again or for many objects at once: looks at targets and starts in
//! the order in which they ask, stops before them, statuses and events with what is left, but always a share of it.
//! What has to be stopped by a bound never waits: it is only counted.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time;

use crate::{clock, lease::BootInstant};

/// What was not used may be made up for within so long.
const BURST: Duration = Duration::from_millis(500);
/// What cannot wait is made up for by what can, but not for longer than this: it must not be late for that.
const DEBT: Duration = Duration::from_secs(3);
/// Of all requests, one in so many is for statuses and events, however much else there is to do.
const SHARE: u32 = 4;
/// What is in no hurry waits for all else, but not for longer than this.
const SPARED: Duration = Duration::from_secs(10);
/// Between two looks for a free turn.
const AGAIN: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// From one request to the next.
    gap: Duration,
    lanes: Mutex<Lanes>,
}

/// Each up to when its requests are spread, at the rate of the limit.
#[derive(Debug, Default)]
struct Lanes {
    /// Those that are waited for included.
    all: BootInstant,
    sent: BootInstant,
    stops: BootInstant,
    stops_sent: BootInstant,
    told: BootInstant,
}

impl RateLimiter {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            gap: Duration::from_secs(1) / per_second.max(1),
            lanes: Mutex::default(),
        }
    }

    /// When the turn of these requests comes. Ask [`Self::send`] then.
    pub(super) fn turn(&self, requests: u32, now: BootInstant) -> BootInstant {
        self.with(|lanes| take(&mut lanes.all, self.gap * requests, now))
    }

    /// Until one request may be sent, which is counted.
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

    /// They are sent now, unless it is to be asked again then: a process that was not run for a while must not make up
    /// for all of it at once.
    pub(super) fn send(&self, requests: u32, now: BootInstant) -> Option<BootInstant> {
        self.with(|lanes| self.pass(&mut lanes.sent, requests, now))
    }

    /// When the turn of a stop comes that has no bound: it waits for other stops only, and is counted.
    pub(super) fn turn_to_stop(&self, requests: u32, now: BootInstant) -> BootInstant {
        self.with(|lanes| take(&mut lanes.stops, self.gap * requests, now))
    }

    /// As [`Self::send`].
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

    /// Whether something may be told now.
    pub(super) fn may_tell(&self, now: BootInstant) -> bool {
        self.with(|lanes| (is_free(lanes.all, now) && is_free(lanes.sent, now)) || is_free(lanes.told, now))
    }

    /// Something is told.
    pub(super) fn tell(&self, now: BootInstant) {
        self.with(|lanes| {
            if !is_free(lanes.all, now) || !is_free(lanes.sent, now) {
                take(&mut lanes.told, self.gap * SHARE, now);
            }
            take(&mut lanes.all, self.gap, now);
            take(&mut lanes.sent, self.gap, now);
        });
    }

    /// Until something may be told, which is counted.
    pub(super) async fn told(&self) {
        while !self.may_tell(clock::now()) {
            time::sleep(AGAIN).await;
        }
        self.tell(clock::now());
    }

    /// Until nothing else is waiting, for one request, which is counted.
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
        // Nothing that panics is done under it.
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
        // Unused for long: no more than that at once.
        assert_eq!(rate_limiter.turn(300, at(60_000)), at(60_000));
        assert_eq!(rate_limiter.turn(1, at(60_000)), at(62_500));
    }

    #[test]
    fn who_slept_through_its_turns_does_not_take_them_all_at_once() {
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
    fn statuses_get_their_share_whatever_else_is_to_be_done() {
        let rate_limiter = RateLimiter::new(100);
        rate_limiter.turn(100_000, at(0));
        let tells = |rate_limiter: &RateLimiter, time| {
            let may = rate_limiter.may_tell(at(time));
            if may {
                rate_limiter.tell(at(time));
            }
            may
        };
        let told = (0..10_000).filter(|time| tells(&rate_limiter, *time)).count();
        assert!((250..=300).contains(&told), "{told} in 10 s, a quarter of 100/s");
        let free = RateLimiter::new(100);
        let told = (0..10_000).filter(|time| tells(&free, *time)).count();
        assert!((1_000..=1_102).contains(&told), "{told}");
    }

    #[test]
    fn what_is_in_no_hurry_waits_for_all_else() {
        let rate_limiter = RateLimiter::new(100);
        assert!(rate_limiter.is_idle(at(0)));
        rate_limiter.turn(200, at(0));
        assert!(!rate_limiter.is_idle(at(1_000)));
        assert!(rate_limiter.is_idle(at(1_501)), "a burst is let by");
    }
}
