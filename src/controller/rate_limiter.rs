//! Limits the number of requests to the API server per second.
//!
//! One limit covers all requests that are repeated or made for many objects at once. Reads of targets and starts share it
//! fairly by namespace, in order of arrival within one; stops pass before them. Statuses and events use the remaining capacity, but always get a share.
//! A stop with a deadline never waits: it is only counted.

mod fair_queue;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fair_queue::{FairQueue, Place};
use tokio::time;

use super::planted::{WorldMistake, plants};
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
/// The time after which a waiting request asks again at the latest.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
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
    /// The reads and starts that wait.
    waiting: FairQueue,
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

    /// Waits until one request for an object of this namespace may be sent, and counts it.
    pub(super) async fn sent(self: &Arc<Self>, namespace: &str) {
        let mut turn = Turn::enter(self, namespace, 1, clock::now());
        while let Some(later) = turn.send(clock::now()) {
            clock::sleep_until(later).await;
        }
    }

    /// Reserves a turn for a stop without a deadline and returns its time. Such a stop waits only for other
    /// stops.
    pub(super) fn turn_to_stop(&self, requests: u32, now: BootInstant) -> BootInstant {
        self.with(|lanes| take(&mut lanes.stops, self.gap * requests, now))
    }

    /// Like [`Turn::send`], but for a stop.
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
            let before = lanes.sent;
            take(&mut lanes.sent, self.gap * requests, now);
            lanes.sent = lanes.sent.min(now + DEBT).max(before);
        });
    }

    /// Reports whether a status or an event may be written now.
    pub(super) fn may_report(&self, now: BootInstant) -> bool {
        self.with(|lanes| self.is_idle_with(lanes, now) || is_free(lanes.reports, now))
    }

    /// Counts the write of a status or an event.
    pub(super) fn count_report(&self, now: BootInstant) {
        self.with(|lanes| {
            if !self.is_idle_with(lanes, now) {
                take(&mut lanes.reports, self.gap * SHARE, now);
            }
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
        self.with(|lanes| self.is_idle_with(lanes, now))
    }

    /// Reports whether all requests, with those that wait, fit into the limit.
    fn is_idle_with(&self, lanes: &Lanes, now: BootInstant) -> bool {
        let waiting = u32::try_from(lanes.waiting.requests()).unwrap_or(u32::MAX);
        lanes.sent.left(now) + self.gap.saturating_mul(waiting) < BURST
    }

    fn with<T>(&self, act: impl FnOnce(&mut Lanes) -> T) -> T {
        // No code that panics runs under this lock, so a poisoned lock is still consistent.
        act(&mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A place in the queue of reads and starts. Another namespace does not wait for it once it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    rate_limiter: Arc<RateLimiter>,
    namespace: String,
    place: Place,
    requests: u32,
}

impl Turn {
    pub(super) fn enter(
        rate_limiter: &Arc<RateLimiter>,
        namespace: &str,
        requests: u32,
        now: BootInstant,
    ) -> Self {
        let namespace = match plants(WorldMistake::QueuesByArrival) {
            true => "",
            false => namespace,
        };
        Self {
            namespace: namespace.to_owned(),
            place: rate_limiter.with(|lanes| lanes.waiting.enter(namespace, requests, now)),
            rate_limiter: rate_limiter.clone(),
            requests,
        }
    }

    /// Counts the requests as sent, or returns when to call again: after a suspension, a process must not send all missed
    /// requests at once. Once they are counted, the turn is over.
    pub(super) fn send(&mut self, now: BootInstant) -> Option<BootInstant> {
        let (gap, requests) = (self.rate_limiter.gap, self.requests);
        let cost = gap * requests;
        self.rate_limiter.with(|Lanes { waiting, sent, .. }| {
            if waiting.has_missed(self.place, now) {
                waiting.leave(self.place, requests);
                self.place = waiting.enter(&self.namespace, requests, now);
            }
            let free = BURST.saturating_sub(sent.left(now));
            // As many as may be sent at once: the first one may be late.
            let at_once = (free.as_nanos() / cost.as_nanos().max(1)).max(1);
            let at_once = usize::try_from(at_once).unwrap_or(usize::MAX);
            if is_free(*sent, now) && waiting.is_among_first(self.place, at_once, now) {
                waiting.send(self.place, requests, now);
                take(sent, cost, now);
                return None;
            }
            let before = u32::try_from(waiting.requests_before(self.place)).unwrap_or(u32::MAX);
            let behind = sent.left(now) + gap.saturating_mul(before);
            // Places before this one may be given up.
            let wait = behind.saturating_sub(BURST) + gap;
            let later = now + wait.min(LONGEST_WAIT);
            waiting.postpone(self.place, later);
            Some(later)
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.rate_limiter
            .with(|lanes| lanes.waiting.leave(self.place, self.requests));
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

    fn limiter() -> Arc<RateLimiter> {
        Arc::new(RateLimiter::new(100))
    }

    fn turns(rate_limiter: &Arc<RateLimiter>, namespace: &str, count: usize, now: BootInstant) -> Vec<Turn> {
        (0..count)
            .map(|_| Turn::enter(rate_limiter, namespace, 1, now))
            .collect()
    }

    /// Lets each turn send when it is due, and returns when each of them was over.
    fn sent(turns: Vec<Turn>, mut now: BootInstant) -> Vec<BootInstant> {
        let mut pending: Vec<_> = turns.into_iter().map(|turn| (now, turn)).enumerate().collect();
        let mut ends = vec![now; pending.len()];
        while let Some(next) = pending.iter().map(|(_, (due, _))| *due).min() {
            now = next;
            pending.retain_mut(|(index, (due, turn))| {
                if *due <= now {
                    match turn.send(now) {
                        Some(later) => *due = later,
                        None => {
                            ends[*index] = now;
                            return false;
                        }
                    }
                }
                true
            });
        }
        ends
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let ends = sent(turns(&limiter(), "n", 300, at(5_000)), at(5_000));
        assert_eq!(ends[49], at(5_000), "half a second's worth");
        assert!(ends[51] > at(5_000));
        assert!((at(7_490)..at(7_600)).contains(&ends[299]), "{:?}", ends[299]);
    }

    #[test]
    fn a_candidate_that_slept_does_not_take_all_missed_turns_at_once() {
        let rate_limiter = limiter();
        let mut all = turns(&rate_limiter, "n", 1_000, at(10_000));
        let sent = all.iter_mut().map(|turn| turn.send(at(10_000)));
        let sent = sent.filter(Option::is_none).count();
        assert_eq!(sent, 50, "half a second's worth");
        let later = all[50].send(at(10_000)).unwrap();
        assert!((at(10_001)..at(10_050)).contains(&later));
        assert_eq!(all[50].send(later), None);
    }

    #[test]
    fn start_of_one_namespace_waits_for_no_queue_of_another() {
        let rate_limiter = limiter();
        let mut all = turns(&rate_limiter, "noisy", 1_000, at(0));
        all.extend(turns(&rate_limiter, "good", 1, at(0)));
        let ends = sent(all, at(0));
        assert!(ends[1_000] <= at(20), "{:?}", ends[1_000]);
        assert!((at(9_400)..at(9_700)).contains(&ends[999]), "{:?}", ends[999]);
    }

    /// Each call of a waiting target costs a step of its task.
    #[test]
    fn starts_of_many_namespaces_ask_seldom() {
        let rate_limiter = limiter();
        let mut pending: Vec<(BootInstant, Turn)> = (0..2_000)
            .map(|number| (at(0), Turn::enter(&rate_limiter, &format!("n{number}"), 1, at(0))))
            .collect();
        let mut calls = 0;
        let mut now = at(0);
        while let Some(next) = pending.iter().map(|(due, _)| *due).min() {
            now = next;
            pending.retain_mut(|(due, turn)| {
                if *due > now {
                    return true;
                }
                calls += 1;
                let later = turn.send(now);
                *due = later.unwrap_or(*due);
                later.is_some()
            });
        }
        assert!(now <= at(20_500), "{now:?}");
        assert!(calls <= 2_000 * 8, "{calls} calls");
    }

    #[test]
    fn a_stop_does_not_wait_behind_starts_and_they_wait_behind_it() {
        let rate_limiter = limiter();
        let waiting = turns(&rate_limiter, "n", 1_000, at(0));
        assert_eq!(rate_limiter.turn_to_stop(1, at(0)), at(0));
        assert_eq!(rate_limiter.send_stop(1, at(0)), None);
        rate_limiter.count(100_000, at(0));
        drop(waiting);
        let late = sent(turns(&rate_limiter, "n", 1, at(0)), at(0))[0];
        assert!(
            (at(2_000)..at(4_000)).contains(&late),
            "requests that do not wait delay the others by at most 3 s: {late:?}"
        );
    }

    #[test]
    fn statuses_get_their_share_under_any_load() {
        let rate_limiter = limiter();
        let _waiting = Turn::enter(&rate_limiter, "n", 100_000, at(0));
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
        let rate_limiter = limiter();
        assert!(rate_limiter.is_idle(at(0)));
        let mut waiting = Turn::enter(&rate_limiter, "n", 200, at(0));
        assert!(!rate_limiter.is_idle(at(0)));
        assert_eq!(waiting.send(at(0)), None);
        assert!(!rate_limiter.is_idle(at(1_000)));
        assert!(rate_limiter.is_idle(at(1_501)), "a burst may be sent");
    }
}
