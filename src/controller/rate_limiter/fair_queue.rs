//! Orders waiting requests so that every namespace gets a fair share of the limit. Pure.
//!
//! A place whose owner does not ask when it was due to, because its target rests or the process is slow, delays no other, and
//! is lost.
//!
//! Start-time fair queuing: a request is tagged with the work of its namespace that is still to be done before it, counted
//! from the request that was sent last. A namespace with one request waits for at most one request of each other namespace,
//! regardless of how many they have queued.

use std::{collections::BTreeMap, time::Duration};

use crate::lease::BootInstant;

/// The time after which a place whose owner was due to ask is not waited for.
const GRACE: Duration = Duration::from_millis(50);
/// The time after which such a place is lost: the requests of another target of the same lock may take this long.
const MISSED: Duration = Duration::from_secs(1);
/// The time before which a place is not waited for: an owner that was refused a moment ago asks again within it.
const SOON: Duration = Duration::from_millis(100);

/// The place of a request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    tag: u64,
    /// Distinguishes places of one tag, in order of arrival.
    number: u64,
}

/// The requests of a place, and when its owner is due to ask again.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    requests: u32,
    due: BootInstant,
}

#[derive(Debug, Default)]
pub(super) struct FairQueue {
    waiting: BTreeMap<Place, Waiting>,
    /// The number of waiting requests.
    requests: u64,
    /// The tag after the last request of each namespace that is ahead of `sent`.
    ends: BTreeMap<String, u64>,
    /// The tag of the first request that waits, or else of the last one that was sent.
    sent: u64,
    arrived: u64,
}

impl FairQueue {
    pub(super) fn enter(&mut self, namespace: &str, requests: u32, now: BootInstant) -> Place {
        let before = self.ends.get(namespace).copied().unwrap_or_default();
        let tag = before.max(self.sent);
        self.ends.insert(namespace.to_owned(), tag + u64::from(requests));
        self.arrived += 1;
        let place = Place {
            tag,
            number: self.arrived,
        };
        self.waiting.insert(place, Waiting { requests, due: now });
        self.requests += u64::from(requests);
        place
    }

    /// Removes a place whose requests were sent. A place may be sent before others that are not due: they stay before all that
    /// enter later.
    pub(super) fn send(&mut self, place: Place, requests: u32, now: BootInstant) {
        self.leave(place, requests);
        let waiting = self
            .waiting
            .iter()
            .find(|(_, waiting)| !is_missed(waiting.due, now));
        let first = waiting.map_or(place.tag, |(first, _)| first.tag.min(place.tag));
        self.sent = self.sent.max(first);
        let sent = self.sent;
        self.ends.retain(|_, end| *end > sent);
    }

    /// Removes a place whose requests were not sent. A place that is not in the queue is ignored.
    pub(super) fn leave(&mut self, place: Place, requests: u32) {
        if self.waiting.remove(&place).is_some() {
            self.requests = self.requests.saturating_sub(requests.into());
        }
    }

    /// Reports whether fewer than `count` places whose owners ask now, or soon, are before this one.
    pub(super) fn is_among_first(&self, place: Place, count: usize, now: BootInstant) -> bool {
        let asks = |due: BootInstant| due.left(now) <= SOON && now.since(due) <= GRACE;
        let before = self
            .waiting
            .range(..place)
            .filter(|(_, waiting)| asks(waiting.due));
        before.take(count).count() < count
    }

    /// Reports whether the owner of a place missed the time at which it was due to ask: it has to enter again, behind the
    /// requests that came meanwhile.
    pub(super) fn has_missed(&self, place: Place, now: BootInstant) -> bool {
        self.waiting
            .get(&place)
            .is_none_or(|waiting| is_missed(waiting.due, now))
    }

    /// Records when the owner of a place asks again.
    pub(super) fn postpone(&mut self, place: Place, due: BootInstant) {
        if let Some(known) = self.waiting.get_mut(&place) {
            known.due = due;
        }
    }

    /// Returns about how many requests are sent before those of this place.
    pub(super) fn requests_before(&self, place: Place) -> u64 {
        let own = place.tag.saturating_sub(self.sent);
        let others = self
            .ends
            .values()
            .map(|end| end.saturating_sub(self.sent).min(own));
        let first = Place {
            tag: place.tag,
            number: 0,
        };
        // The requests of one tag are those of different namespaces. Without them, all of these would ask at one time.
        let same = self
            .waiting
            .range(first..place)
            .map(|(_, waiting)| u64::from(waiting.requests));
        (others.sum::<u64>() + same.sum::<u64>()).min(self.requests)
    }

    pub(super) const fn requests(&self) -> u64 {
        self.requests
    }
}

fn is_missed(due: BootInstant, now: BootInstant) -> bool {
    now.since(due) > MISSED
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootInstant = BootInstant::from_nanos(1_000_000_000_000);

    /// Sends the first place until the queue is empty, and returns the texts of the places in this order.
    fn drained(queue: &mut FairQueue, names: &BTreeMap<Place, String>) -> Vec<String> {
        let mut order = Vec::new();
        while let Some((first, _)) = queue.waiting.first_key_value() {
            let first = *first;
            assert!(queue.is_among_first(first, 1, NOW));
            queue.send(first, 1, NOW);
            order.push(names[&first].clone());
        }
        order
    }

    #[test]
    fn namespace_with_one_request_does_not_wait_for_the_queue_of_another() {
        let (mut queue, mut names) = (FairQueue::default(), BTreeMap::new());
        for _ in 0..100 {
            names.insert(queue.enter("noisy", 1, NOW), "noisy".to_owned());
        }
        for _ in 0..10 {
            let first = *queue.waiting.first_key_value().unwrap().0;
            queue.send(first, 1, NOW);
        }
        let good = queue.enter("good", 1, NOW);
        names.insert(good, "good".to_owned());
        assert!(queue.is_among_first(good, 2, NOW));
        assert!(queue.requests_before(good) <= 2);
        assert_eq!(drained(&mut queue, &names)[0], "good");
    }

    #[test]
    fn namespaces_take_turns_and_each_keeps_its_order() {
        let (mut queue, mut names) = (FairQueue::default(), BTreeMap::new());
        for (namespace, count) in [("a", 3), ("b", 2), ("c", 1)] {
            for number in 0..count {
                names.insert(queue.enter(namespace, 1, NOW), format!("{namespace}{number}"));
            }
        }
        assert_eq!(drained(&mut queue, &names), ["a0", "b0", "c0", "a1", "b1", "a2"]);
        assert_eq!((queue.requests(), queue.ends.len()), (0, 1));
    }

    #[test]
    fn idle_namespace_collects_no_credit_and_nothing_is_kept_of_it() {
        let mut queue = FairQueue::default();
        for number in 0..1_000 {
            let place = queue.enter(&format!("n{number}"), 2, NOW);
            queue.send(place, 2, NOW);
            let place = queue.enter("busy", 2, NOW);
            queue.send(place, 2, NOW);
        }
        assert!(queue.ends.len() <= 3, "{:?}", queue.ends);
        let (late, busy) = (queue.enter("late", 1, NOW), queue.enter("busy", 1, NOW));
        assert!(queue.is_among_first(late, 1, NOW) && !queue.is_among_first(busy, 1, NOW));
    }

    #[test]
    fn place_that_leaves_is_not_waited_for() {
        let mut queue = FairQueue::default();
        let (first, second) = (queue.enter("a", 2, NOW), queue.enter("a", 2, NOW));
        assert!(!queue.is_among_first(second, 1, NOW));
        queue.leave(first, 2);
        queue.leave(first, 2);
        assert!(queue.is_among_first(second, 1, NOW));
        assert_eq!(queue.requests(), 2);
    }

    /// A target that rests after a failure asks minutes later.
    #[test]
    fn place_that_does_not_ask_is_not_waited_for_and_loses_its_order() {
        let mut queue = FairQueue::default();
        let (first, second) = (queue.enter("a", 2, NOW), queue.enter("b", 2, NOW));
        queue.postpone(first, NOW + Duration::from_secs(1));
        assert!(queue.is_among_first(second, 1, NOW), "it is not due");
        let due = NOW + Duration::from_secs(1);
        assert!(!queue.is_among_first(second, 1, due));
        let late = due + Duration::from_millis(51);
        assert!(queue.is_among_first(second, 1, late));
        assert!(!queue.has_missed(first, late) && queue.has_missed(first, late + MISSED));
    }
}
