//! A model of one master: what the scripts under `src/masters/scripts` do, on one lock.

use redlock::lease::{LeaseValue, Marks, Moment, Obstacle, Sighting};

use crate::rate::{Instant, MS, Rate};

/// One script call.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Grant {
        stem: LeaseValue,
        floor: u64,
        lease_ms: u64,
    },
    Confirm {
        value: LeaseValue,
        token: u64,
    },
    Renew {
        stem: LeaseValue,
        token: u64,
        lease_ms: u64,
    },
    Release {
        stem: LeaseValue,
        publish: bool,
    },
    Reserve {
        stem: LeaseValue,
        cluster: String,
    },
    Observe {
        cluster: String,
    },
    Break {
        longest_ms: u64,
    },
}

/// What stands in the way, as the script words it.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Granted(u64),
    Done,
    NotDone,
    Ours,
    Obstacle(Obstacle, u64),
    /// Not sealed, or too late.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    /// Microseconds by the master's clock.
    pub(crate) time: u64,
    pub(crate) counter: u64,
    /// Tell the standbys.
    pub(crate) published: bool,
}

impl Reply {
    pub(crate) fn sighting(&self, received: Moment) -> Option<Sighting> {
        match &self.answer {
            Answer::Obstacle(obstacle, left_ms) => {
                let left = std::time::Duration::from_millis(*left_ms);
                Some(Sighting::blocked(obstacle.clone(), received + left))
            }
            Answer::Ours => Some(Sighting::OURS),
            Answer::Granted(_) | Answer::Done | Answer::NotDone => Some(Sighting::FREE),
            Answer::Unknown => None,
        }
    }
}

/// Faults of the protocol itself, to prove that the checks see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    Nothing,
    NoDrift,
    NoConfirm,
    SealWithoutWaiting,
    NoSeal,
    VoteCountedTwice,
    HealAfterTheEnd,
    FailedRenewalDeletes,
    BreakDeletes,
    VotesSummedOverRounds,
    ReserveBeforeTheEnd,
    UndoOfOthers,
}

#[derive(Clone, Debug)]
pub(crate) struct Master {
    pub(crate) clock: Rate,
    /// Changes at every restart.
    pub(crate) run: u64,
    pub(crate) sealed: bool,
    pub(crate) counter: u64,
    /// With the millisecond of the own clock in which the key is alive for the last time.
    lease: Option<(LeaseValue, u64)>,
    reserved: Option<(String, u64)>,
    pub(crate) plant: Plant,
}

pub(crate) fn mine(value: &LeaseValue, stem: &LeaseValue) -> bool {
    (value.nonce, &value.identity, &value.cluster) == (stem.nonce, &stem.identity, &stem.cluster)
}

impl Master {
    pub(crate) fn new(clock: Rate, counter: u64, plant: Plant) -> Self {
        Self {
            clock,
            run: 1,
            sealed: true,
            counter,
            lease: None,
            reserved: None,
            plant,
        }
    }

    /// Loses all that it knew.
    pub(crate) fn forget(&mut self) {
        self.run += 1;
        self.sealed = self.plant == Plant::NoSeal;
        (self.counter, self.lease, self.reserved) = (0, None, None);
    }

    pub(crate) fn seal(&mut self, floor: u64) {
        self.counter = self.counter.max(floor);
        self.sealed = true;
    }

    pub(crate) fn micros(&self, at: Instant) -> u64 {
        self.clock.nanos(at) / 1_000
    }

    fn millis(&self, at: Instant) -> u64 {
        self.clock.nanos(at) / MS
    }

    /// The lease that is alive.
    pub(crate) fn lease(&self, at: Instant) -> Option<&LeaseValue> {
        let alive = |(_, last): &&(LeaseValue, u64)| self.millis(at) <= *last;
        self.lease.as_ref().filter(alive).map(|(value, _)| value)
    }

    /// How long the lease lives, in nanoseconds.
    pub(crate) fn left(&self, at: Instant) -> u64 {
        self.lease(at)
            .and(self.lease.as_ref())
            .map_or(0, |(_, last)| (last + 1 - self.millis(at)) * MS)
    }

    fn reservation(&self, at: Instant) -> Option<&str> {
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

    /// Runs one script. `not_after` in microseconds of the own clock.
    pub(crate) fn run(&mut self, at: Instant, not_after: u64, op: &Op) -> Reply {
        let mut published = false;
        let answer = if !self.sealed || self.micros(at) > not_after {
            Answer::Unknown
        } else {
            self.execute(at, op, &mut published)
        };
        Reply {
            answer,
            time: self.micros(at),
            counter: self.counter,
            published,
        }
    }

    fn execute(&mut self, at: Instant, op: &Op, published: &mut bool) -> Answer {
        let now = self.millis(at);
        let found = self.lease(at).cloned();
        let reservation = self.reservation(at).map(str::to_owned);
        let foreign = |cluster: &str| reservation.as_deref().filter(|hold| *hold != cluster);
        match op {
            Op::Grant {
                stem,
                floor,
                lease_ms,
            } => {
                self.counter = self.counter.max(*floor);
                if let Some(value) = found.as_ref().filter(|value| mine(value, stem)) {
                    return Answer::Granted(value.grant);
                }
                if let Some(obstacle) = self.obstacle(at, foreign(&stem.cluster.to_string())) {
                    return obstacle;
                }
                self.counter += 1;
                let value = LeaseValue {
                    grant: self.counter,
                    ..stem.clone()
                };
                self.lease = Some((value, now + lease_ms));
                Answer::Granted(self.counter)
            }
            Op::Confirm { value, token } => {
                if found.as_ref() != Some(value) {
                    return Answer::NotDone;
                }
                self.counter = self.counter.max(*token);
                Answer::Done
            }
            Op::Renew {
                stem,
                token,
                lease_ms,
            } => {
                let hold = foreign(&stem.cluster.to_string()).map(str::to_owned);
                if hold.is_some() || found.as_ref().is_some_and(|value| !mine(value, stem)) {
                    return self.obstacle(at, hold.as_deref()).unwrap();
                }
                match (&mut self.lease, found) {
                    (Some((_, last)), Some(_)) => *last = (*last).max(now + lease_ms),
                    _ => {
                        self.counter = self.counter.max(*token);
                        self.lease = Some((
                            LeaseValue {
                                grant: *token,
                                ..stem.clone()
                            },
                            now + lease_ms,
                        ));
                    }
                }
                Answer::Done
            }
            Op::Release { stem, publish } => {
                let Some(value) = found else {
                    return Answer::NotDone;
                };
                if !mine(&value, stem) && self.plant != Plant::UndoOfOthers {
                    return Answer::NotDone;
                }
                self.lease = None;
                if *publish {
                    *published = true;
                    if reservation == Some(stem.cluster.to_string()) {
                        self.reserved = None;
                    }
                }
                Answer::Done
            }
            Op::Reserve { stem, cluster } => {
                // One for the own cluster is the one by which the lock came here: it is replaced.
                let theirs = foreign(cluster).and(foreign(&stem.cluster.to_string()));
                if !found.as_ref().is_some_and(|value| mine(value, stem)) || theirs.is_some() {
                    return Answer::NotDone;
                }
                let last = self.lease.take().map_or(now, |(_, last)| last.max(now + 1));
                self.reserved = Some((cluster.clone(), last));
                *published = true;
                Answer::Done
            }
            Op::Observe { cluster } => match self.obstacle(at, foreign(cluster)) {
                Some(obstacle) => obstacle,
                None if reservation.is_some() => Answer::Ours,
                None => Answer::Done,
            },
            Op::Break { longest_ms } => {
                if self.plant == Plant::BreakDeletes {
                    self.lease = None;
                    return Answer::Done;
                }
                self.reserved = Some(("nobody".to_owned(), now + longest_ms));
                Answer::Done
            }
        }
    }
}

pub(crate) const NO_MARKS: Marks = Marks { held: 0, clean: 0 };
