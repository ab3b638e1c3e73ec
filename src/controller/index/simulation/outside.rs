//! Simulates the surroundings of a replica: the API server, the masters, the siblings, and the target tasks.

mod effects;
mod end;
mod faults;
mod masters;
mod requests;
mod stops;
mod tasks;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use super::server::{FAILS_OVER, FENCED, OBSERVED, Server, WITH_TARGET, key};
use crate::{
    api::{plan::LockPlan, target::TargetRef},
    controller::{
        events::timestamp_at,
        index::{Input, urls::RetiredUrl},
        node_guards::NodeGuards,
        object::ObjectKey,
        target_task::{Permissions, TargetReport},
        writer::Item,
    },
    lease::{BootInstant, ClusterId, FencingToken, Holder, HolderIdentity, LockName},
};
use faults::Faults;
pub(super) use faults::Focus;
use stops::Stops;

const NAMES: [&str; 3] = ["a", "b", "c"];
const QUORUMS: [&str; 2] = ["q", "r"];
const LEASE: Duration = Duration::from_secs(15);
const SIBLING: &str = "sibling";
const OTHER: &str = "us-1/other";

/// The actual holder of a lock.
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
    /// The other holder that this replica saw last.
    seen: Option<Holder>,
    last: Option<Holder>,
    /// Whether this replica acquires the lock when it is free; `None` if it does not participate.
    pub(super) contends: Option<bool>,
    /// Whether the lock is left to the other clusters while one of them is alive.
    abstains: bool,
}

#[derive(Debug, Default)]
pub(super) struct OpenQuorum {
    pub(super) voting: usize,
    /// Names and URLs of the masters.
    pub(super) masters: Vec<(String, String)>,
    pub(super) locks: BTreeMap<LockName, Stand>,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) plan: std::sync::Arc<LockPlan>,
    pub(super) hands: Permissions,
    pub(super) stops: Stops,
    last: Option<TargetReport>,
    /// The present lease of this replica, and when the task first saw it.
    won: Option<(FencingToken, BootInstant)>,
    /// Whether the task has panicked.
    pub(super) broken: bool,
}

impl Task {
    /// Reports whether the task waits for the finalizer.
    pub(super) fn waits(&self) -> bool {
        !self.broken && self.last.as_ref().is_some_and(|report| report.wants_guard)
    }
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
    /// Locks whose targets actually run.
    pub(super) running: BTreeSet<ObjectKey>,
    /// Whether siblings exist, and one of them sees a majority of the masters.
    pub(super) sibling_sees: bool,
    pub(super) sibling_answers: bool,
    /// Whether the API server does not answer this replica for so long that it is cut off, and whether it answers the
    /// sibling.
    pub(super) cut_off: bool,
    pub(super) sibling_reaches_api: bool,
    /// Whether the operator of another cluster reports.
    pub(super) other_lives: bool,
    /// Whether that cluster is willing to take any lock.
    other_takes_part: bool,
    faults: Faults,
    pub(super) focus: Focus,
    /// The masters' memory of locks on quorums that are not open.
    past: BTreeMap<String, BTreeMap<LockName, Stand>>,
    processes: u32,
    /// Whether a majority is never seen from now on.
    pub(super) blind: bool,
    /// Changes of URLs for which the old server has lost its vote.
    pub(super) retired: BTreeSet<RetiredUrl>,
    /// Templates that are followed.
    pub(super) templates: BTreeSet<(ObjectKey, TargetRef)>,
    /// Whether the pods of the node agents are followed.
    follows_guards: bool,
    /// Pending results of effects.
    due: Vec<(BootInstant, Input)>,
    /// Hand-overs that have not reached the masters yet.
    hand_overs: Vec<(String, LockName)>,
    /// Whether no new fault begins.
    calm: bool,
    /// The number of finalizer changes that fail even during calm steps.
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
        let focus = Focus::any(&mut random);
        if focus == Focus::Drains {
            let spec = [WITH_TARGET, FAILS_OVER, FENCED][random.usize(..3)];
            server.create(NAMES[0], spec, stamp);
        } else if focus == Focus::Names {
            server.create(NAMES[0], OBSERVED, stamp);
        } else {
            for name in NAMES {
                if random.bool() {
                    server.apply(name, &mut random, stamp);
                }
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
            sibling_sees: focus == Focus::Siblings || random.bool(),
            sibling_answers: focus == Focus::Siblings || random.bool(),
            cut_off: false,
            sibling_reaches_api: true,
            other_lives: focus == Focus::Drains || random.bool(),
            other_takes_part: focus == Focus::Drains || random.bool(),
            faults: Faults {
                refuses: focus == Focus::Masters && random.bool(),
                unready: focus == Focus::Drains && random.bool(),
                ..Faults::default()
            },
            focus,
            past: BTreeMap::new(),
            processes: 0,
            blind: false,
            retired: BTreeSet::new(),
            templates: BTreeSet::new(),
            follows_guards: false,
            due: Vec::new(),
            hand_overs: Vec::new(),
            calm: false,
            failing: 0,
            verbose,
            executed: 0,
            random,
        }
    }

    /// Creates surroundings without faults and siblings, with one lock that has a finalizer.
    pub(super) fn with_lock(name: &str, spec: usize) -> Self {
        let mut outside = Self::new(0, false);
        let stamp = outside.stamp();
        outside.server = Server::default();
        outside.server.apply_quorum("q", &mut outside.random, stamp);
        outside.server.create(name, spec, stamp);
        outside.server.events.clear();
        outside.server.list(outside.now);
        (outside.sibling_sees, outside.sibling_answers) = (false, true);
        (outside.calm, outside.other_lives) = (true, false);
        (outside.faults, outside.focus) = (Faults::default(), Focus::All);
        outside
    }

    /// Sets whether the opening of quorums and the replacement of URLs fail.
    pub(super) fn refuse(&mut self, refuses: bool) {
        self.faults.refuses = refuses;
    }

    pub(super) fn move_master(&mut self, quorum: &str) {
        self.server.move_master(quorum, &mut self.random);
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

    /// Reports whether the rate limit allows a write.
    pub(super) fn may_write(&self) -> bool {
        self.calm || !self.faults.limited
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.unix += time;
    }

    /// Performs a random step and returns the inputs that result.
    pub(super) fn step(&mut self) -> Vec<Input> {
        self.hand_over();
        match self.random.u8(..12) {
            0..=2 => return self.tick(Duration::from_millis(200)),
            3 => {
                let time = Duration::from_millis(self.random.u64(200..20_000));
                return self.tick(time);
            }
            4..=6 => self.user(),
            7 => self.fault(),
            8 => return self.elect(),
            9 if self.random.u8(..16) == 0 => self.break_task(),
            9 => return self.switch(),
            _ => {}
        }
        let count = self.random.usize(..8);
        let mut inputs = self.deliver(count);
        inputs.extend(self.ends());
        inputs
    }

    /// Suspends or resumes faults, so that most sequences begin with locks that are held.
    pub(super) fn set_calm(&mut self, calm: bool) {
        self.calm = calm;
    }

    /// Performs a step without faults.
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
        inputs.extend(self.node_guards());
        inputs.push(Input::Tick);
        inputs
    }

    /// Returns a change of the node agents, once they are followed.
    fn node_guards(&mut self) -> Option<Input> {
        if !self.follows_guards || self.calm || self.random.u8(..8) > 0 {
            return None;
        }
        let guards = match self.random.u8(..3) {
            0 => NodeGuards::default(),
            1 => NodeGuards::test(&[("n1", "node-agent")]),
            _ => NodeGuards::test(&[("n1", "node-agent"), ("n1", "node-guardian")]),
        };
        Some(Input::NodeGuards(guards))
    }

    fn deliver(&mut self, count: usize) -> Vec<Input> {
        let count = count.min(self.server.events.len());
        self.server.events.drain(..count).collect()
    }

    /// Returns the results that are due by now.
    fn ends(&mut self) -> Vec<Input> {
        let now = self.now;
        let (over, due) = std::mem::take(&mut self.due)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.due = due;
        let over: Vec<(BootInstant, Input)> = over;
        let mut inputs: Vec<Input> = over.into_iter().map(|(_, input)| input).collect();
        let keys: Vec<ObjectKey> = self.tasks.keys().cloned().collect();
        inputs.extend(keys.iter().flat_map(|key| self.stopped(key)));
        inputs
    }

    /// Reports whether no effect is under way, apart from the periodic ones: heartbeats, and questions to the siblings.
    pub(super) fn is_settled(&self) -> bool {
        let is_periodic = |input: &Input| {
            matches!(
                input,
                Input::SiblingsAnswered(_)
                    | Input::Uses(..)
                    | Input::Coordinator(_)
                    | Input::CoordinatorWritten(_)
                    | Input::Clusters(..)
                    | Input::Quorum(_)
                    | Input::Written(Item::Quorum(_), _)
            )
        };
        self.server.events.iter().all(is_periodic) && self.due.iter().all(|(_, input)| is_periodic(input))
    }

    /// Returns the objects that are being deleted.
    pub(super) fn deleted(&self) -> impl Iterator<Item = &ObjectKey> {
        let deleted = self.server.locks.iter();
        let deleted = deleted.filter(|(_, object)| object.metadata.deletion_timestamp.is_some());
        deleted.map(|(key, _)| key)
    }
}
