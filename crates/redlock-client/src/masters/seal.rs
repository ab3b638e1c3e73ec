//! Restores the vote of a master that lost its memory, with a new seal.
//!
//! Owns every way in which a master without a seal gets its vote: automatically ([`Sealer`]), for new masters
//! ([`init`]) and by hand ([`reseal`]). `plan` makes the decisions, on values; `registers` merges registers.
//! No master is sealed before every lease and every attempt that it may have voted for is over, nor without
//! the registers of f+1 others, unless a majority lost theirs at once.

mod ended;
mod init;
mod reseal;
mod retire;
mod rounds;
mod sealing;
mod turn;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time;

pub use ended::NotForgotten;
pub use init::{InitError, InitReport, begin_init, init};
pub use redlock_core::seal::{Blocked, Registers, Remembered, Slot};
pub use reseal::{Progress, ResealError, ResealReport, reseal};
pub use retire::{OldServer, RetireOutcome};
pub use rounds::NotDone;

use redlock_core::{
    BootInstant, FencingToken, Fingerprint, QuorumSize, Unknown,
    seal::{Account, Plan, Quarantine, SealedBy, Step},
};

use self::{
    rounds::{ReadLimits, SealTurn},
    sealing::{SealExecutor, Sealed},
    turn::SealTurns,
};
use super::{Masters, link::Link, shared::Shared};
use crate::clock;

/// The interval at which the last poll of each master is read from memory, which only locks a few mutexes.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The interval of reads while a master is without a seal. A probe that changes restarts the wait, and users
/// watch the remaining seconds.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The progress of a master without a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sealing {
    pub(crate) until: BootInstant,
    pub(crate) blocked: Option<Blocked>,
}

/// Watches the masters and seals those without a seal.
#[derive(Debug)]
pub(crate) struct Sealer {
    executor: SealExecutor,
    quarantine: Quarantine,
    turns: SealTurns,
    /// The last logged state of each master, so that a state is logged once.
    logged: BTreeMap<usize, Logged>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Logged {
    Sealing(String),
    Blocked(Blocked),
    Failed(NotDone),
    Sealed,
}

impl Sealer {
    pub(crate) fn new(
        links: Arc<[Arc<Link>]>,
        size: QuorumSize,
        fingerprint: Fingerprint,
        shared: Arc<Shared>,
    ) -> Self {
        let limit = fingerprint.acquire_limit();
        Self {
            executor: SealExecutor {
                links,
                size,
                limit,
                reading: ReadLimits::of(&fingerprint),
                turn: SealTurn::new(limit),
                shared,
            },
            quarantine: Quarantine::new(size, fingerprint, SealedBy::Process),
            turns: SealTurns::default(),
            logged: BTreeMap::new(),
        }
    }

    /// Runs until it is cancelled.
    pub(crate) async fn run(mut self) {
        loop {
            let pause = if self.all_sealed() {
                self.logged.clear();
                self.publish(&BTreeMap::new());
                CHECK_INTERVAL
            } else {
                self.turn().await
            };
            time::sleep(pause).await;
        }
    }

    /// Reports whether no master lacks a seal, by the last polls: no exchange takes place while all are
    /// sealed.
    fn all_sealed(&self) -> bool {
        let lacks_seal = |link: &Arc<Link>| link.known().is_some_and(|facts| !facts.sealed());
        !self.executor.links.iter().any(lacks_seal)
    }

    /// Reads, plans and acts once. Returns the time until the next turn.
    async fn turn(&mut self) -> Duration {
        let plan = self.executor.plan(&mut self.quarantine).await;
        let mut done = self.executor.seal(&self.quarantine, &plan, &mut self.turns).await;
        let lost = plan.of(&Step::Fallback);
        done.extend(self.executor.fall_back(&self.quarantine, &plan, &lost).await);
        let sealing = progress(&plan, &done);
        self.publish(&sealing);
        self.log(&plan, &done);
        if !plan.of(&Step::Probe).is_empty() {
            // Probes were just written: report the remaining wait soon.
            return CHECK_INTERVAL;
        }
        let now = clock::now();
        let next = sealing.values().map(|sealing| sealing.until.left(now));
        next.filter(|left| !left.is_zero())
            .fold(READ_INTERVAL, Duration::min)
    }

    fn publish(&self, sealing: &BTreeMap<usize, Sealing>) {
        for link in self.executor.links.iter() {
            link.set_sealing(sealing.get(&link.index).cloned());
        }
    }

    /// Logs each change once.
    fn log(&mut self, plan: &Plan, done: &Sealed) {
        for (index, step) in &plan.steps {
            let master = &self.executor.links[*index].name;
            let result = done.iter().find(|(m, _)| m == index).map(|(_, result)| result);
            let state = match (step, result) {
                (_, Some(Ok(()))) => Logged::Sealed,
                (_, Some(Err(why))) => Logged::Failed(why.clone()),
                (Step::Wait { .. } | Step::Blocked { .. }, None) => match &plan.blocked {
                    Some(blocked) => Logged::Blocked(blocked.clone()),
                    None => Logged::Sealing(self.quarantine.probe(*index).unwrap_or_default().to_owned()),
                },
                (_, None) => continue,
            };
            if self.logged.get(index) == Some(&state) {
                continue;
            }
            match (&state, step) {
                (Logged::Sealing(_), Step::Wait { until }) => {
                    let left = until.left(clock::now()).as_secs_f64().ceil();
                    tracing::warn!(master, "master lost its memory or is new: sealing, {left} s left");
                }
                (Logged::Blocked(why), _) => tracing::warn!(master, "master cannot be sealed: {why}"),
                (Logged::Failed(why), _) => tracing::info!(master, "master not sealed, retrying: {why}"),
                _ => tracing::info!(master, way = ?step, "master sealed: its votes count again"),
            }
            self.logged.insert(*index, state);
        }
    }
}

/// Returns the progress of each master after this turn.
fn progress(plan: &Plan, done: &Sealed) -> BTreeMap<usize, Sealing> {
    let sealed = |master: &usize| done.iter().any(|(m, result)| m == master && result.is_ok());
    let left = plan.steps.iter().filter(|(master, _)| !sealed(master));
    let of = |step: &Step| match step {
        Step::Wait { until } | Step::Blocked { until } => Some(*until),
        // The wait begins with the probe: the next read knows its end.
        Step::Probe => None,
        Step::Seal | Step::Fallback => Some(clock::now()),
    };
    left.filter_map(|(master, step)| {
        let (until, blocked) = (of(step)?, plan.blocked.clone());
        Some((*master, Sealing { until, blocked }))
    })
    .collect()
}

impl Masters {
    /// Returns each master's registers, in the order of the votes, sealed or not.
    pub async fn registers(&self) -> Vec<Result<Registers, Unknown>> {
        let accounts = self.read_accounts().await.into_iter();
        accounts.map(|account| Ok(account?.registers)).collect()
    }

    async fn read_accounts(&self) -> Vec<Result<Account, Unknown>> {
        let limits = ReadLimits::of(self.fingerprint());
        join_all(self.links().iter().map(|link| rounds::account(link, limits))).await
    }

    fn executor(&self) -> SealExecutor {
        SealExecutor {
            links: self.links().clone(),
            size: self.size(),
            limit: self.fingerprint().acquire_limit(),
            reading: ReadLimits::of(self.fingerprint()),
            turn: SealTurn::new(self.fingerprint().acquire_limit()),
            shared: self.shared().clone(),
        }
    }

    /// Adds a token to the floor of the counter after a total loss, in which all masters may have forgotten it.
    pub fn remember_token(&self, token: FencingToken) -> Remembered {
        let now = clock::unix_time();
        self.shared().update(|engine, _| engine.remember(token, now))
    }

    /// Returns the largest counter that the sealed masters report now; `None` if fewer than a majority report
    /// one. No token that was granted earlier is greater.
    pub async fn largest_counter(&self) -> Option<FencingToken> {
        let results = join_all(self.links().iter().map(async |link| {
            let facts = link.read_facts().await.ok()?;
            // A server that was a replica may have lost counters with its seal in place.
            link.judge(&facts).is_none().then_some(facts)
        }))
        .await;
        let (fingerprint, quorum) = (self.fingerprint().to_string(), self.quorum_id());
        let limits = self.shared().read(|engine, _| engine.register_limits());
        let mut counters = BTreeMap::new();
        for facts in results.into_iter().flatten() {
            let plausible = limits.is_some_and(|limits| facts.counter <= limits.token);
            if plausible && facts.sealed() && facts.fingerprint == fingerprint && facts.quorum == quorum {
                counters.insert(facts.run_id, facts.counter);
            }
        }
        let enough = counters.len() >= self.size().majority();
        counters.into_values().max().filter(|_| enough).map(FencingToken)
    }

    /// Waits until all masters have been polled, for at most `bound`.
    async fn connected(&self, bound: Duration) {
        /// A local master connects within a millisecond; a user does not notice this interval.
        const TICK: Duration = Duration::from_millis(5);
        let all = async {
            while self.links().iter().any(|link| link.known().is_none()) {
                time::sleep(TICK).await;
            }
        };
        // A caller that needs all masters checks them itself and names the missing one.
        let _ = time::timeout(bound, all).await;
    }
}
