//! Holds the masters of one quorum, and the evidence of their rounds about each lock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use redlock_client::masters::{ConfigError, FenceRound, LockKeys, Masters, Tasks};
use redlock_core::{
    BootInstant, QuorumSize,
    fence::{ClockWatch, Finding, Observation, Watch},
};

use super::QuorumReport;
use crate::spec::{Access, LockSpec, QuorumSpec, SpecError};

/// The interval of rounds until a majority has answered a round.
const UNANSWERED: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Quorum {
    masters: Masters,
    tasks: Tasks,
    clock: ClockWatch,
    /// Number of steps of the local clock that were already taken as evidence.
    steps: u64,
    locks: BTreeMap<LockSpec, Lock>,
    /// The time at which the next round begins, unless a round is under way.
    pub(super) due: BootInstant,
    pub(super) under_way: bool,
    /// Whether a majority has answered at least one round: the connections are open.
    answered: bool,
}

#[derive(Debug)]
struct Lock {
    keys: Arc<LockKeys>,
    watch: Watch,
    holder: Option<String>,
}

/// A round over all locks that the quorum had when the round began.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) quorum: QuorumSpec,
    locks: Vec<LockSpec>,
    result: FenceRound,
}

/// The reason why the masters of a lock cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Quorum {
    /// Opens the masters, and connects to them in the background.
    pub(super) fn open(lock: &LockSpec, access: Access, now: BootInstant) -> Result<Self, OpenError> {
        let config = lock.quorum.config(access, lock.cluster_id()?)?;
        // Without the notices, the connections subscribe to no channel.
        let (masters, _, tasks) = Masters::open(&config, None)?;
        let clock = ClockWatch::new(masters.size());
        Ok(Self {
            masters,
            tasks,
            clock,
            steps: 0,
            locks: BTreeMap::new(),
            due: now,
            under_way: false,
            answered: false,
        })
    }

    pub(super) fn add(&mut self, lock: &LockSpec) -> Result<(), SpecError> {
        if !self.locks.contains_key(lock) {
            let state = Lock {
                keys: self.masters.lock(&lock.lock_name()?),
                watch: Watch::new(lock.cluster_id()?),
                holder: None,
            };
            self.locks.insert(lock.clone(), state);
        }
        Ok(())
    }

    /// Forgets the locks that no pod uses; returns false if no lock is left.
    pub(super) fn keep(&mut self, used: impl Fn(&LockSpec) -> bool) -> bool {
        self.locks.retain(|lock, _| used(lock));
        !self.locks.is_empty()
    }

    pub(super) fn holder(&self, lock: &LockSpec) -> Option<&str> {
        self.locks.get(lock)?.holder.as_deref()
    }

    /// Applies rotated credentials.
    pub(super) fn rekey(&self, access: Access) -> Result<(), ConfigError> {
        self.masters.rekey(access.credentials, access.tls)
    }

    pub(super) fn report(&self, name: &str) -> QuorumReport {
        QuorumReport {
            name: name.to_owned(),
            voters: self.masters.voters(),
            masters: self.masters.size().masters(),
        }
    }

    /// Runs a round: one call for each master, with all locks.
    pub(super) fn round(&self, quorum: QuorumSpec) -> impl Future<Output = Round> + Send + 'static {
        let (locks, keys): (Vec<_>, Vec<_>) = self
            .locks
            .iter()
            .map(|(spec, lock)| (spec.clone(), lock.keys.clone()))
            .unzip();
        let masters = self.masters.clone();
        async move {
            let result = masters.read_fences(&keys).await;
            Round {
                quorum,
                locks,
                result,
            }
        }
    }

    /// Evaluates a round. Returns the finding for each lock.
    pub(super) fn on_round(&mut self, round: &Round, now: BootInstant) -> Vec<(LockSpec, Finding)> {
        let readings = || {
            let all = round.result.readings.iter().enumerate();
            all.filter_map(|(master, read)| Some((master, read.as_ref().ok()?)))
        };
        self.answered |= readings().count() >= self.masters.size().majority();
        let clocks = readings().map(|(master, read)| (master, read.clock));
        let ahead = self.clock.on_round(clocks);
        let stood_still = ahead | round.result.local_clock_stepped | self.take_steps();
        let size = self.masters.size();
        let mut findings = Vec::new();
        for (index, spec) in round.locks.iter().enumerate() {
            let Some(lock) = self.locks.get_mut(spec) else {
                continue;
            };
            let mut observation = Observation::new(size, round.result.sent);
            for (master, read) in readings() {
                if let Some(reading) = read.locks.get(index) {
                    observation.record(master, reading.clone());
                }
            }
            lock.holder = observation.holder();
            let finding = lock.watch.on_round(&observation, stood_still, now);
            findings.push((spec.clone(), finding));
        }
        findings
    }

    /// Returns the latest start of the round after the one that began at `sent`. The first round may begin
    /// before the connections are open, and a restarted agent has pods whose permits end.
    pub(super) fn latest(&self, sent: BootInstant) -> BootInstant {
        if self.answered {
            BootInstant::NEVER
        } else {
            sent + UNANSWERED
        }
    }

    /// Returns findings if the connections have since shown that the local clock stood still: contrary
    /// evidence without a round.
    pub(super) fn on_steps(&mut self, now: BootInstant) -> Vec<(LockSpec, Finding)> {
        if !self.take_steps() {
            return Vec::new();
        }
        let size = self.masters.size();
        let locks = self.locks.iter_mut();
        locks
            .map(|(spec, lock)| (spec.clone(), stood_still(&mut lock.watch, size, now)))
            .collect()
    }

    fn take_steps(&mut self) -> bool {
        let steps = self.masters.clock_steps();
        std::mem::replace(&mut self.steps, steps) != steps
    }

    pub(super) async fn close(self) {
        self.tasks.close().await;
    }
}

fn stood_still(watch: &mut Watch, size: QuorumSize, now: BootInstant) -> Finding {
    watch.on_round(&Observation::new(size, now), true, now)
}

impl Round {
    pub(super) const fn sent(&self) -> BootInstant {
        self.result.sent
    }
}
