//! The surroundings of a replica: the API server, the masters, the siblings, and the target tasks.

mod masters;
mod requests;
mod tasks;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::server::{Server, key};
use crate::{
    api::{hand_over::REQUEST, plan::LockPlan},
    controller::{
        events::timestamp_at,
        index::{AfterStop, Input},
        object::ObjectKey,
        target_task::{Permissions, StopRequest, TargetReport},
        writer::Item,
    },
    lease::{BootInstant, ClusterId, Holder, HolderIdentity, LockName},
};

const NAMES: [&str; 3] = ["a", "b", "c"];
const QUORUMS: [&str; 2] = ["q", "r"];
const LEASE: Duration = Duration::from_secs(15);
const SIBLING: &str = "sibling";

/// Who holds a lock in truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Me,
    Sibling,
    Elsewhere,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stand {
    pub(super) owner: Option<(Owner, u64, BootInstant)>,
    token: u64,
    /// Who else holds it, as this replica saw it last.
    seen: Option<Holder>,
    last: Option<Holder>,
    /// This replica takes it when it is free; none where it was not put.
    pub(super) contends: Option<bool>,
}

#[derive(Debug, Default)]
pub(super) struct OpenQuorum {
    pub(super) voting: usize,
    pub(super) locks: BTreeMap<LockName, Stand>,
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) plan: std::sync::Arc<LockPlan>,
    pub(super) hands: Permissions,
    stop: Option<(StopRequest, AfterStop)>,
    last: Option<TargetReport>,
    /// It panicked.
    pub(super) broken: bool,
}

#[derive(Debug)]
pub(super) struct Outside {
    pub(super) random: fastrand::Rng,
    pub(super) identity: HolderIdentity,
    pub(super) cluster: ClusterId,
    pub(super) now: BootInstant,
    pub(super) unix: Duration,
    pub(super) server: Server,
    pub(super) quorums: BTreeMap<String, OpenQuorum>,
    pub(super) tasks: BTreeMap<ObjectKey, Task>,
    /// Locks whose targets run in truth.
    pub(super) running: BTreeSet<ObjectKey>,
    /// Siblings are there, and one of them sees a majority of the masters.
    pub(super) sibling_sees: bool,
    sibling_answers: bool,
    /// Ends of what was started.
    due: Vec<(BootInstant, Input)>,
    /// What was asked for, and has not reached the masters yet.
    hand_overs: Vec<(String, LockName)>,
    /// No fault begins any more.
    calm: bool,
    /// As many changes of finalizers fail nevertheless.
    pub(super) failing: u32,
    verbose: bool,
    pub(super) executed: u64,
}

impl Outside {
    pub(super) fn new(seed: u64, verbose: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let now = BootInstant::from_nanos(1_000_000_000_000);
        let unix = Duration::from_secs(1_700_000_000);
        let mut server = Server::default();
        let stamp = timestamp_at(unix);
        server.apply_quorum("q", &mut random, stamp);
        if random.bool() {
            server.apply_quorum("r", &mut random, stamp);
        }
        for name in NAMES {
            if random.bool() {
                server.apply(name, &mut random, stamp);
            }
        }
        server.events.clear();
        server.list(now);
        let running = NAMES.map(key).into_iter().filter(|_| random.bool());
        Self {
            identity: HolderIdentity::parse("me").unwrap(),
            cluster: "eu-1/uid".parse().unwrap(),
            now,
            unix,
            server,
            quorums: BTreeMap::new(),
            tasks: BTreeMap::new(),
            running: running.collect(),
            sibling_sees: random.bool(),
            sibling_answers: random.bool(),
            due: Vec::new(),
            hand_overs: Vec::new(),
            calm: false,
            failing: 0,
            verbose,
            executed: 0,
            random,
        }
    }

    /// Without faults and siblings, with one lock that has a finalizer.
    pub(super) fn with_lock(name: &str, spec: usize) -> Self {
        let mut outside = Self::new(0, false);
        let stamp = outside.stamp();
        outside.server = Server::default();
        outside.server.apply_quorum("q", &mut outside.random, stamp);
        outside.server.create(name, spec, stamp);
        outside.server.events.clear();
        outside.server.list(outside.now);
        (outside.sibling_sees, outside.sibling_answers) = (false, true);
        outside.calm = true;
        outside
    }

    pub(super) fn delete(&mut self, name: &str) {
        let stamp = self.stamp();
        self.server.delete(name, stamp);
    }

    pub(super) fn log(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:?} {}", self.now, text());
        }
    }

    fn stamp(&self) -> Timestamp {
        timestamp_at(self.unix)
    }

    /// The rate limit.
    pub(super) fn may_write(&self) -> bool {
        true
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.unix += time;
    }

    /// What comes in next.
    pub(super) fn step(&mut self) -> Vec<Input> {
        self.hand_over();
        match self.random.u8(..10) {
            0..=2 => return self.tick(Duration::from_millis(200)),
            3 => {
                let time = Duration::from_millis(self.random.u64(200..20_000));
                return self.tick(time);
            }
            4 => self.user(),
            5 => self.fault(),
            6 => return self.elect(),
            7 if self.random.u8(..16) == 0 => self.break_task(),
            7 => return self.switch(),
            _ => {}
        }
        let count = self.random.usize(..8);
        let mut inputs = self.deliver(count);
        inputs.extend(self.ends());
        inputs
    }

    /// Everything goes well.
    pub(super) fn calm_step(&mut self) -> Vec<Input> {
        self.hand_over();
        let mut inputs = self.deliver(usize::MAX);
        inputs.extend(self.elect());
        inputs.extend(self.switch());
        inputs.extend(self.tick(Duration::from_secs(1)));
        inputs
    }

    fn tick(&mut self, time: Duration) -> Vec<Input> {
        self.pass(time);
        let mut inputs = self.renew();
        inputs.extend(self.ends());
        let broken = self.tasks.iter().filter(|(_, task)| task.broken);
        inputs.extend(broken.map(|(key, _)| Input::TargetTaskEnded(key.clone())));
        inputs.push(Input::Tick);
        inputs
    }

    fn deliver(&mut self, count: usize) -> Vec<Input> {
        let count = count.min(self.server.events.len());
        self.server.events.drain(..count).collect()
    }

    /// Of what is over by now.
    fn ends(&mut self) -> Vec<Input> {
        let now = self.now;
        let (over, due) = std::mem::take(&mut self.due)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.due = due;
        let over: Vec<(BootInstant, Input)> = over;
        over.into_iter().map(|(_, input)| input).collect()
    }

    fn user(&mut self) {
        let stamp = self.stamp();
        let name = NAMES[self.random.usize(..NAMES.len())];
        let quorum = QUORUMS[self.random.usize(..QUORUMS.len())];
        match self.random.u8(..10) {
            0..=3 => self.server.apply(name, &mut self.random, stamp),
            4..=6 => self.server.delete(name, stamp),
            7 => self.server.apply_quorum(quorum, &mut self.random, stamp),
            8 => self.server.delete_quorum(quorum, stamp),
            _ if self.random.bool() => {
                let paused = self.random.bool().then(|| "a test".to_owned());
                self.server.annotate(name, "redlock.dev/paused", paused);
            }
            _ => {
                let token = self.random.u64(..4);
                let until = self.unix.as_secs() + 60;
                let request =
                    format!(r#"{{"id": "1", "token": {token}, "to": "us-1/other", "notAfter": {until}}}"#);
                self.server.annotate(name, REQUEST, Some(request));
            }
        }
    }

    fn fault(&mut self) {
        match self.random.u8(..8) {
            0 => self.server.down ^= true,
            1 if self.server.unwatched => self.server.watch_again(self.now),
            1 => self.server.break_watch(),
            2 => self.server.unserved ^= true,
            3 => self.sibling_sees ^= true,
            4 => self.sibling_answers ^= true,
            5 => {
                // The wall clock is set.
                let step = Duration::from_secs(self.random.u64(..100));
                self.unix = if self.random.bool() {
                    self.unix + step
                } else {
                    self.unix - step
                };
            }
            _ => {
                for quorum in self.quorums.values_mut() {
                    quorum.voting = if quorum.voting < 2 {
                        3
                    } else {
                        self.random.usize(..2)
                    };
                }
            }
        }
    }

    /// All faults end.
    pub(super) fn heal(&mut self) -> Vec<Input> {
        self.calm = true;
        (self.server.down, self.server.unserved) = (false, false);
        // A sibling that sees the masters would let the rest go.
        (self.sibling_sees, self.sibling_answers) = (false, true);
        for name in NAMES {
            self.server.annotate(name, "redlock.dev/paused", None);
            self.server.annotate(name, REQUEST, None);
        }
        for quorum in self.quorums.values_mut() {
            quorum.voting = 3;
            for (_, stand) in quorum.locks.iter_mut().filter(|(lock, _)| lock.is_internal()) {
                // Our name is ours again.
                stand.owner = None;
            }
        }
        self.server.unwatched = true;
        self.server.watch_again(self.now);
        self.elect()
    }

    /// Nothing that was started is under way, but for what never ends: heartbeats, and questions to the siblings.
    pub(super) fn is_settled(&self) -> bool {
        let goes_on = |input: &Input| {
            matches!(
                input,
                Input::Said(_)
                    | Input::Uses(..)
                    | Input::Clusters(..)
                    | Input::Quorum(_)
                    | Input::Written(Item::Quorum(_), _)
            )
        };
        self.server.events.iter().all(goes_on) && self.due.iter().all(|(_, input)| goes_on(input))
    }

    /// Objects that are being deleted.
    pub(super) fn deleted(&self) -> impl Iterator<Item = &ObjectKey> {
        let deleted = self.server.locks.iter();
        let deleted = deleted.filter(|(_, object)| object.metadata.deletion_timestamp.is_some());
        deleted.map(|(key, _)| key)
    }
}
