//! A model of one master: the effects of the Lua scripts on one lock. `tests/redis/model.rs` of
//! redlock-client compares it with a real server.

#[path = "master/memory.rs"]
mod memory;
#[path = "master/op.rs"]
mod op;
#[path = "master/registers.rs"]
mod registers;
#[path = "master/second.rs"]
mod second;

use redlock_core::{LeaseValue, Mark, Obstacle};

use self::second::SecondKeys;
pub(crate) use self::{
    op::{Answer, Fenced, Op, Own, Reply},
    registers::{Job, Registers},
};
use crate::{
    plant::Plant,
    rate::{Instant, MS, Rate},
};

#[derive(Clone, Debug)]
pub(crate) struct Master {
    pub(crate) clock: Rate,
    /// How many times the process was a replica and was promoted again.
    #[allow(dead_code, reason = "for the simulation")]
    pub(crate) promotions: u64,
    /// The probe of its quarantine.
    pub(crate) probe: String,
    pub(crate) sealed: bool,
    pub(crate) registers: Registers,
    /// The lease, and the last millisecond of the own clock in which its key is alive.
    lease: Option<(LeaseValue, u64)>,
    reserved: Option<(String, u64)>,
    second: SecondKeys,
    /// The longest lease of the quorum, milliseconds: a key with longer to live is shortened.
    pub(crate) longest_ms: u64,
    pub(crate) memory_is_full: bool,
    /// Whether it has evicted keys since its seal, which a poll shows.
    pub(crate) evicted: bool,
    pub(crate) plant: Plant,
}

pub(crate) fn mine(value: &LeaseValue, stem: &LeaseValue) -> bool {
    (value.nonce, &value.identity, &value.cluster) == (stem.nonce, &stem.identity, &stem.cluster)
}

/// The name of a cluster may change; its UID does not.
fn same_cluster(one: &str, other: &str) -> bool {
    let uid = |text: &str| text.split_once('/').map(|(_, uid)| uid.to_owned());
    uid(one).is_some() && uid(one) == uid(other)
}

impl Master {
    pub(crate) fn new(clock: Rate, plant: Plant) -> Self {
        Self {
            clock,
            promotions: 0,
            probe: String::new(),
            sealed: true,
            registers: Registers::default(),
            lease: None,
            reserved: None,
            second: SecondKeys::default(),
            longest_ms: u64::MAX,
            memory_is_full: false,
            evicted: false,
            plant,
        }
    }

    /// Starts another process with the same data: it has no vote until it is sealed again.
    pub(crate) fn restart(&mut self) {
        self.sealed = self.plant == Plant::NoSeal;
        self.evicted = false;
    }

    /// Loses the lease alone: it is evicted, or deleted by hand.
    pub(crate) fn lose_lease(&mut self) {
        self.lease = None;
    }

    /// Loses all data.
    pub(crate) fn forget(&mut self) {
        self.restart();
        self.probe.clear();
        self.memory_is_full = false;
        (self.registers, self.lease, self.reserved) = (Registers::default(), None, None);
        self.second = SecondKeys::default();
    }

    /// Becomes a replica of a copy of its earlier data, and is promoted again: the process stays, all writes since are lost.
    #[allow(dead_code, reason = "for the simulation")]
    pub(crate) fn return_from(&mut self, copy: Self) {
        *self = Self {
            clock: self.clock,
            promotions: self.promotions + 1,
            sealed: self.sealed && self.plant == Plant::SealOutlivesPromotion,
            longest_ms: self.longest_ms,
            memory_is_full: self.memory_is_full,
            evicted: self.evicted,
            ..copy
        };
    }

    pub(crate) fn seal(&mut self, floor: &Registers) {
        if self.plant != Plant::FloorNotRestored {
            self.registers = self.registers.merged(floor, self.plant);
        }
        self.sealed = true;
    }

    pub(crate) fn micros(&self, at: Instant) -> u64 {
        self.clock.nanos(at) / 1_000
    }

    fn millis(&self, at: Instant) -> u64 {
        self.clock.nanos(at) / MS
    }

    /// Returns the lease, if it is alive.
    pub(crate) fn lease(&self, at: Instant) -> Option<&LeaseValue> {
        let alive = |(_, last): &&(LeaseValue, u64)| self.millis(at) <= *last;
        self.lease.as_ref().filter(alive).map(|(value, _)| value)
    }

    /// Returns the remaining lifetime of the lease, in nanoseconds.
    pub(crate) fn left(&self, at: Instant) -> u64 {
        self.lease(at)
            .and(self.lease.as_ref())
            .map_or(0, |(_, last)| (last + 1 - self.millis(at)) * MS)
    }

    /// Returns the remaining lifetime of the reservation, in nanoseconds.
    pub(crate) fn reserved_left(&self, at: Instant) -> u64 {
        self.reservation(at)
            .and(self.reserved.as_ref())
            .map_or(0, |(_, last)| (last + 1 - self.millis(at)) * MS)
    }

    /// Reports whether a key ends between these milliseconds of the own clock.
    #[allow(dead_code, reason = "for the comparison with a real server")]
    pub(crate) fn ends_between(&self, from: u64, to: u64) -> bool {
        let lasts = [
            self.lease.as_ref().map(|(_, last)| last),
            self.reserved.as_ref().map(|(_, last)| last),
        ];
        lasts
            .into_iter()
            .flatten()
            .any(|last| (from..=to).contains(&(last + 1)))
    }

    pub(crate) fn reservation(&self, at: Instant) -> Option<&str> {
        let alive = |(_, last): &&(String, u64)| self.millis(at) <= *last;
        self.reserved
            .as_ref()
            .filter(alive)
            .map(|(cluster, _)| cluster.as_str())
    }

    fn obstacle(&self, at: Instant, hold: Option<&str>) -> Option<Answer> {
        let left = |last: u64| last - self.millis(at);
        let reserved_left = hold
            .and(self.reserved.as_ref())
            .map_or(0, |(_, last)| left(*last));
        match (self.lease(at), &self.lease, hold) {
            (Some(value), Some((_, last)), _) => Some(Answer::Obstacle(
                Obstacle::Lease(value.clone()),
                left(*last).max(reserved_left),
            )),
            (_, _, Some(hold)) => Some(Answer::Obstacle(
                Obstacle::Reserved(hold.to_owned()),
                reserved_left,
            )),
            _ => None,
        }
    }

    /// Reports whether data was written since `before`.
    pub(crate) fn differs(&self, before: &Self) -> bool {
        (&self.lease, &self.reserved, &self.registers) != (&before.lease, &before.reserved, &before.registers)
    }

    /// Runs one script. `not_after` is in microseconds of the own clock.
    pub(crate) fn run(&mut self, at: Instant, not_after: u64, op: &Op) -> Reply {
        let mut published = false;
        let late = self.micros(at) > not_after && self.plant != Plant::NoNotAfter;
        let answer = if !self.sealed || late {
            Answer::Unknown
        } else {
            self.execute(at, op, &mut published)
        };
        Reply {
            answer,
            time: self.micros(at),
            counter: self.registers.counter,
            marks: self.registers.marks(),
            fence: matches!(op, Op::Grant { fenced: true, .. }).then(|| self.registers.mark.clone()),
            published,
        }
    }

    /// Shortens keys that were set before the own clock was set back.
    fn shorten(&mut self, at: Instant) {
        let latest = self.millis(at).saturating_add(self.longest_ms);
        let keys = [
            self.lease.as_mut().map(|(_, last)| last),
            self.reserved.as_mut().map(|(_, last)| last),
        ];
        for last in keys.into_iter().flatten() {
            *last = latest.min(*last);
        }
    }

    fn execute(&mut self, at: Instant, op: &Op, published: &mut bool) -> Answer {
        let shortens = matches!(
            op,
            Op::Grant { .. } | Op::Renew { .. } | Op::Reserve { .. } | Op::Break { .. }
        );
        if shortens && self.plant != Plant::NeverShortened {
            self.shorten(at);
        }
        if let Some(refusal) = self.refusal(at, op) {
            return refusal;
        }
        match op {
            Op::Grant { .. } | Op::Renew { .. } => self.extend(at, op),
            Op::Release { .. } | Op::Reserve { .. } => self.end(at, op, published),
            Op::Confirm { value, token } => {
                if self.lease(at) != Some(value) {
                    return Answer::NotDone;
                }
                self.registers.counter = self.registers.counter.max(*token);
                Answer::Done
            }
            Op::Observe { cluster } => match self.obstacle(at, self.foreign(at, cluster).as_deref()) {
                Some(obstacle) => obstacle,
                None if self.reservation(at).is_some() => Answer::Ours,
                None => Answer::Done,
            },
            Op::Break { longest_ms } => {
                if self.plant == Plant::BreakDeletes {
                    self.lease = None;
                    return Answer::Done;
                }
                let left = self
                    .reservation(at)
                    .and(self.reserved.as_ref())
                    .map_or(0, |(_, last)| *last);
                self.reserved = Some(("nobody".to_owned(), left.max(self.millis(at) + longest_ms)));
                Answer::Done
            }
            Op::Mark {
                stem,
                token,
                mark,
                fence,
            } => {
                let own = self.lease(at).is_some_and(|value| mine(value, stem));
                if !own && *mark != Mark::Clean {
                    return Answer::NotDone;
                }
                match (fence, mark) {
                    (Some(fence), Mark::Held { delay }) => {
                        self.registers.raise(*token, fence, millis(*delay), self.plant);
                    }
                    _ => self.registers.mark(*token, *mark, self.plant),
                }
                if own { Answer::Done } else { Answer::NotDone }
            }
            Op::Claim { slot, job } => match self.registers.claim(*slot, *job) {
                true => Answer::Done,
                false => Answer::NotDone,
            },
        }
    }

    /// Returns the reservation, if it is for a cluster other than this one.
    fn foreign(&self, at: Instant, cluster: &str) -> Option<String> {
        let other = |hold: &&str| !same_cluster(hold, cluster);
        self.reservation(at).filter(other).map(str::to_owned)
    }

    fn extend(&mut self, at: Instant, op: &Op) -> Answer {
        let (now, found) = (self.millis(at), self.lease(at).cloned());
        match op {
            Op::Grant {
                stem,
                floor,
                lease_ms,
                ..
            } => {
                if let Some(value) = found.as_ref().filter(|value| mine(value, stem)) {
                    return Answer::Granted(value.grant);
                }
                let hold = self.foreign(at, &stem.cluster.to_string());
                if let Some(obstacle) = self.obstacle(at, hold.as_deref()) {
                    return obstacle;
                }
                self.registers.counter = self.registers.counter.max(*floor) + 1;
                let value = granted(stem, self.registers.counter);
                self.lease = Some((value, now + lease_ms));
                Answer::Granted(self.registers.counter)
            }
            Op::Renew {
                stem,
                token,
                lease_ms,
                fence,
            } => {
                let hold = self.foreign(at, &stem.cluster.to_string());
                if hold.is_some() || found.as_ref().is_some_and(|value| !mine(value, stem)) {
                    return self.obstacle(at, hold.as_deref()).unwrap();
                }
                let marked_later = fence.is_some() && self.registers.mark.0 > *token;
                let mut written = true;
                match (&mut self.lease, found) {
                    (Some((_, last)), Some(_)) => {
                        written = *last < now + lease_ms;
                        *last = (*last).max(now + lease_ms);
                    }
                    _ if marked_later => return Answer::NotDone,
                    _ => {
                        self.registers.counter = self.registers.counter.max(*token);
                        self.lease = Some((granted(stem, *token), now + lease_ms));
                    }
                }
                if let Some(fence) = fence.as_ref().filter(|fence| !fence.mark.is_empty()) {
                    self.keep((at, written), &stem.cluster.to_string(), *token, fence);
                }
                Answer::Done
            }
            _ => Answer::NotDone,
        }
    }

    fn reserve(
        &mut self,
        at: Instant,
        (value, stem): (&LeaseValue, &LeaseValue),
        cluster: &str,
        own: Option<Own>,
        published: &mut bool,
    ) -> Answer {
        // A reservation for the own cluster is the one by which the lock came to it, and is replaced.
        let of_other = self.foreign(at, cluster).is_some();
        let theirs = of_other && self.foreign(at, &stem.cluster.to_string()).is_some();
        if !mine(value, stem) || theirs {
            return Answer::NotDone;
        }
        if of_other && own == Some(Own::Refuses) {
            return Answer::NotDone;
        }
        let now = self.millis(at);
        let last = self.lease.take().map_or(now, |(_, last)| last.max(now + 1));
        let kept = own.is_some() && self.plant != Plant::ReserveShortens && self.reservation(at).is_some();
        let before = self.reserved.as_ref().filter(|_| kept);
        let last = before.map_or(last, |(_, before)| last.max(*before));
        self.reserved = Some((cluster.to_owned(), last));
        *published = true;
        Answer::Done
    }

    /// Raises the registers and keeps the own reservation, after a renewal of a marked lease was granted. `written` states
    /// whether that renewal wrote.
    fn keep(&mut self, (at, written): (Instant, bool), own: &str, token: u64, fence: &Fenced) {
        if self.keeps_nothing(written, (token, fence)) {
            return;
        }
        self.registers.raise(token, &fence.mark, fence.delay, self.plant);
        let last = self.millis(at) + fence.keep_ms;
        match (self.reservation(at).is_some(), &mut self.reserved) {
            (true, Some((_, before))) => *before = last.max(*before),
            _ if self.memory_is_full && !written => {}
            (_, reserved) => *reserved = Some((own.to_owned(), last)),
        }
    }

    fn end(&mut self, at: Instant, op: &Op, published: &mut bool) -> Answer {
        let Some(value) = self.lease(at).cloned() else {
            return Answer::NotDone;
        };
        match op {
            Op::Release {
                stem,
                publish,
                keep_reservation,
            } => {
                if !mine(&value, stem) && self.plant != Plant::UndoOfOthers {
                    return Answer::NotDone;
                }
                let own = |hold: &str| same_cluster(hold, &stem.cluster.to_string());
                if !keep_reservation && self.reservation(at).is_some_and(own) {
                    self.reserved = None;
                }
                self.lease = None;
                *published = *publish;
                Answer::Done
            }
            Op::Reserve { stem, cluster, own } => self.reserve(at, (&value, stem), cluster, *own, published),
            _ => Answer::NotDone,
        }
    }
}

fn millis(delay: std::time::Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap()
}

fn granted(stem: &LeaseValue, grant: u64) -> LeaseValue {
    LeaseValue {
        grant,
        ..stem.clone()
    }
}
