//! Queues events by namespace, so that a namespace that refuses events delays no other.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    time::Duration,
};

use crate::{controller::backoff::Backoff, lease::BootInstant};

/// Capacity of one namespace, exceeded only when thousands of locks change at once.
const OF_ONE: usize = 1_024;
/// Total capacity.
const OF_ALL: usize = 4_096;

/// The queued events of all namespaces.
#[derive(Debug)]
pub(super) struct Queue<T> {
    namespaces: BTreeMap<String, Lane<T>>,
    waiting: usize,
    /// The namespace that had the last turn.
    last: String,
}

#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<T>,
    backoff: Backoff,
    again_at: Option<BootInstant>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            namespaces: BTreeMap::new(),
            waiting: 0,
            last: String::new(),
        }
    }
}

impl<T> Queue<T> {
    /// Adds an event at the end of its namespace. Returns the event that is dropped if the queue is full.
    pub(super) fn push(&mut self, namespace: &str, event: T) -> Option<T> {
        let lane = self
            .namespaces
            .entry(namespace.to_owned())
            .or_insert_with(|| Lane {
                waiting: VecDeque::new(),
                backoff: Backoff::default(),
                again_at: None,
            });
        if lane.waiting.len() >= OF_ONE {
            return Some(event);
        }
        lane.waiting.push_back(event);
        self.waiting += 1;
        (self.waiting > OF_ALL).then(|| self.shorten()).flatten()
    }

    /// Drops the newest event of the namespace with the longest queue.
    fn shorten(&mut self) -> Option<T> {
        let longest = self
            .namespaces
            .values_mut()
            .max_by_key(|lane| lane.waiting.len())?;
        let dropped = longest.waiting.pop_back()?;
        self.waiting -= 1;
        Some(dropped)
    }

    /// Returns the oldest event of the next namespace that may be tried now. The namespaces take turns.
    pub(super) fn next(&mut self, now: BootInstant) -> Option<(String, T)> {
        let due = |lane: &Lane<T>| !lane.waiting.is_empty() && lane.backoff.is_over(now);
        let behind = (Bound::Excluded(self.last.as_str()), Bound::Unbounded);
        let mut turns = self.namespaces.range::<str, _>(behind).chain(&self.namespaces);
        let (namespace, _) = turns.find(|(_, lane)| due(lane))?;
        let namespace = namespace.clone();
        let event = self.namespaces.get_mut(&namespace)?.waiting.pop_front()?;
        self.waiting -= 1;
        self.last.clone_from(&namespace);
        Some((namespace, event))
    }

    /// Records that the namespace accepted an event, or rejected it permanently.
    pub(super) fn settled(&mut self, namespace: &str) {
        if let Some(lane) = self.namespaces.get_mut(namespace) {
            lane.backoff.reset();
            lane.again_at = None;
            if lane.waiting.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// Records that an event was dropped because it had waited too long. The namespace may still refuse
    /// events, so its backoff stays.
    pub(super) fn dropped(&mut self, namespace: &str) {
        if self
            .namespaces
            .get(namespace)
            .is_some_and(|lane| lane.waiting.is_empty())
        {
            self.namespaces.remove(namespace);
        }
    }

    /// Puts an event back at the head of its namespace, because it could not be written. The next attempt
    /// follows after a wait of at most `longest`.
    pub(super) fn put_back(
        &mut self,
        namespace: &str,
        event: T,
        longest: Duration,
        now: BootInstant,
        jitter: f64,
    ) {
        if let Some(lane) = self.namespaces.get_mut(namespace) {
            lane.waiting.push_front(event);
            self.waiting += 1;
            lane.again_at = Some(lane.backoff.fail(longest, now, jitter));
        }
    }

    /// Returns when the next event may be tried; `None` if the queue is empty.
    pub(super) fn due_at(&self, now: BootInstant) -> Option<BootInstant> {
        let waiting = self.namespaces.values().filter(|lane| !lane.waiting.is_empty());
        waiting.map(|lane| lane.again_at.unwrap_or(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_nanos(milliseconds * 1_000_000)
    }

    fn next(queue: &mut Queue<u32>, now: BootInstant) -> Option<u32> {
        queue.next(now).map(|(_, event)| event)
    }

    #[test]
    fn namespace_that_refuses_events_holds_up_no_other() {
        let mut queue = Queue::default();
        for (namespace, event) in [("bad", 1), ("bad", 2), ("good", 3), ("good", 4)] {
            assert_eq!(queue.push(namespace, event), None);
        }
        assert_eq!(next(&mut queue, at(0)), Some(1));
        queue.put_back("bad", 1, LONGEST, at(0), 0.0);
        for event in [3, 4] {
            assert_eq!(next(&mut queue, at(0)), Some(event));
            queue.settled("good");
        }
        assert_eq!(next(&mut queue, at(0)), None);
        assert_eq!(queue.due_at(at(0)), Some(at(200)));
        assert_eq!(next(&mut queue, at(200)), Some(1), "in its order");
        queue.put_back("bad", 1, LONGEST, at(200), 0.0);
        assert_eq!(next(&mut queue, at(599)), None, "the wait doubles");
        assert_eq!(next(&mut queue, at(600)), Some(1));
        queue.settled("bad");
        assert_eq!(next(&mut queue, at(600)), Some(2));
        queue.settled("bad");
        assert_eq!(queue.due_at(at(600)), None);
        assert!(queue.namespaces.is_empty());
    }

    #[test]
    fn dropped_event_leaves_the_back_off_of_its_namespace() {
        let mut queue = Queue::default();
        for event in [1, 2] {
            queue.push("bad", event);
        }
        for millisecond in [0, 200] {
            assert_eq!(next(&mut queue, at(millisecond)), Some(1));
            queue.put_back("bad", 1, LONGEST, at(millisecond), 0.0);
        }
        assert_eq!(next(&mut queue, at(600)), Some(1));
        queue.dropped("bad");
        assert_eq!(next(&mut queue, at(600)), Some(2));
        queue.put_back("bad", 2, LONGEST, at(600), 0.0);
        assert_eq!(queue.due_at(at(600)), Some(at(1_400)), "the third wait");
        assert_eq!(next(&mut queue, at(1_400)), Some(2));
        queue.dropped("bad");
        assert!(queue.namespaces.is_empty());
    }

    #[test]
    fn namespaces_take_turns() {
        let mut queue = Queue::default();
        for (namespace, event) in [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5)] {
            queue.push(namespace, event);
        }
        let all: Vec<u32> = std::iter::from_fn(|| next(&mut queue, at(0))).collect();
        assert_eq!(all, [1, 3, 5, 2, 4]);
    }

    #[test]
    fn full_queue_drops_from_the_namespace_with_most_events() {
        let mut queue = Queue::default();
        for event in 0..5_000 {
            let dropped = queue.push("loud", event);
            assert_eq!(dropped.is_some(), event >= 1_024);
        }
        for namespace in ["b", "c", "d"] {
            (0..1_024).for_each(|event| assert_eq!(queue.push(namespace, event), None));
        }
        assert_eq!(queue.push("quiet", 1), Some(1_023));
        assert_eq!(queue.waiting, 4_096);
        assert!(queue.namespaces["quiet"].waiting.contains(&1));
    }
}
