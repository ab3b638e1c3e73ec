//! Carries out a plan: reads floors from the right masters, then seals.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;

use redlock_core::{
    QuorumId, QuorumSize,
    plausible::{RegisterLimits, nth_greatest},
    seal::{Account, Past, Plan, Quarantine, Registers, Step},
};

use super::{
    rounds::{self, NotDone, Probing, ReadLimits, SealTurn},
    turn::{SealTurns, extend_turns},
};
use crate::{
    clock,
    masters::{link::Link, random, shared::Shared},
};

/// The registers that a source may have beyond twice those of others: each is copied to the master that is sealed.
const EXCESS: u64 = 10_000;

/// Carries out the seals of one quorum.
#[derive(Clone, Debug)]
pub(super) struct SealExecutor {
    pub(super) links: Arc<[Arc<Link>]>,
    pub(super) size: QuorumSize,
    /// T_acquire: no call of a seal takes longer.
    pub(super) limit: Duration,
    pub(super) reading: ReadLimits,
    pub(super) turn: SealTurn,
    pub(super) shared: Arc<Shared>,
}

/// The result of one master's seal.
pub(super) type Sealed = Vec<(usize, Result<(), NotDone>)>;

impl SealExecutor {
    /// Reads all masters, plans, and writes the probes that are missing.
    pub(super) async fn plan(&self, quarantine: &mut Quarantine) -> Plan {
        let read = rounds::read_all(&self.links).await;
        let plan = self
            .shared
            .read(|engine, _| quarantine.decide(&read, engine.identity()));
        let probing = plan.of(&Step::Probe).into_iter().map(|master| {
            let link = &self.links[master];
            let prefix = read.responses[master]
                .as_ref()
                .map(|response| response.facts.probe_prefix());
            async move {
                let probe = prefix? + &rounds::uuid();
                let written = rounds::write_probe(link, &probe, Probing::Keep, link.command_timeout()).await;
                written
                    .ok()
                    .map(|(standing, received)| (master, standing, received))
            }
        });
        for (master, standing, received) in join_all(probing).await.into_iter().flatten() {
            quarantine.note(master, &standing, received);
        }
        plan
    }

    /// Seals in the ordinary way, in the turn of this process.
    pub(super) async fn seal(&self, quarantine: &Quarantine, plan: &Plan, turns: &mut SealTurns) -> Sealed {
        let ripe = plan.of(&Step::Seal);
        let Some(quorum) = plan.quorum.as_ref().filter(|_| !ripe.is_empty()) else {
            return Vec::new();
        };
        let (ripe, failed) = turns.take(self, quarantine, ripe).await;
        if ripe.is_empty() {
            return failed;
        }
        let mut done = tokio::select! {
            done = self.seal_ripe(quarantine, plan, quorum, &ripe) => done,
            never = extend_turns(self, quarantine, &ripe) => match never {},
        };
        turns.finish(self, &ripe, &done);
        done.extend(failed);
        done
    }

    /// Seals with the registers of f+1 sealed masters (P-71), which are read after the wait (P-68).
    async fn seal_ripe(
        &self,
        quarantine: &Quarantine,
        plan: &Plan,
        quorum: &QuorumId,
        ripe: &[usize],
    ) -> Sealed {
        let accounts = rounds::accounts(&self.links, &plan.sources, self.size.majority(), self.reading).await;
        let (fingerprint, limits) = self.shared.read(|engine, _| {
            let fingerprint = engine.identity().fingerprint().to_owned();
            (fingerprint, engine.register_limits())
        });
        // Without the counters of a majority, nothing shows which registers are plausible.
        let Some(limits) = limits else {
            return Vec::new();
        };
        let (mut sealed, implausible) = self.plausible(accounts, &limits);
        sealed.retain(|account| account.sealed(&fingerprint, quorum));
        self.drop_excessive(&mut sealed);
        let sealed: Vec<Registers> = sealed.into_iter().map(|account| account.registers).collect();
        if sealed.len() < self.size.majority() {
            // Without an implausible one, a source has stopped answering since the plan was made; the next read leads to
            // a new plan.
            let failed = |master: &usize| Some((*master, Err(implausible.clone()?)));
            return ripe.iter().filter_map(failed).collect();
        }
        let floor = Registers::floor_of(sealed, self.size.majority());
        self.write(quarantine, ripe, &floor, quorum).await
    }

    /// Seals these masters by the fallback: with the registers of every master that can be read, and the
    /// floor after a loss. No master is sealed unless all masters of the plan, sealed or not, return their
    /// registers (P-74).
    pub(super) async fn fall_back(&self, quarantine: &Quarantine, plan: &Plan, masters: &[usize]) -> Sealed {
        if masters.is_empty() || (plan.quorum.is_none() && self.draws_first().await) {
            return Vec::new();
        }
        let mut of = plan.sources.clone();
        of.extend(plan.steps.iter().map(|(master, _)| *master));
        let accounts = rounds::accounts(&self.links, &of, of.len(), self.reading).await;
        if of.iter().any(|master| !accounts.contains_key(master)) {
            return Vec::new();
        }
        let floor = self.floor_after_loss(accounts);
        match &plan.quorum {
            Some(quorum) => self.write(quarantine, masters, &floor, quorum).await,
            None => self.write_in_turn(quarantine, masters, &floor).await,
        }
    }

    /// Returns true the first time, after a pause in which a process that remembers the id of the quorum can
    /// seal under it; the next plan then uses that id. The new id is used only if no master shows one after
    /// the pause.
    async fn draws_first(&self) -> bool {
        if self.shared.read(|engine, _| engine.identity().drawn().is_some()) {
            return false;
        }
        tokio::time::sleep(self.limit).await;
        drawn(&self.shared);
        true
    }

    /// Seals under a new id, one master after the other, by name (P-25). Another process that does the same with its
    /// own id fails at the first master, and reads the id there.
    async fn write_in_turn(&self, quarantine: &Quarantine, masters: &[usize], floor: &Registers) -> Sealed {
        let mut in_turn = masters.to_vec();
        in_turn.sort_by_key(|master| &self.links[*master].name);
        let mut all = Vec::new();
        for master in in_turn {
            let quorum = drawn(&self.shared);
            if all
                .iter()
                .any(|(_, result): &(usize, Result<(), NotDone>)| result.is_err())
            {
                all.push((master, Err(NotDone::OutOfTurn)));
            } else {
                all.extend(self.write(quarantine, &[master], floor, &quorum).await);
            }
        }
        all
    }

    fn floor_after_loss(&self, accounts: BTreeMap<usize, Account>) -> Registers {
        let known = self.shared.read(|engine, _| engine.known_registers());
        let unix_time = clock::unix_time();
        let limits = RegisterLimits::after_loss(unix_time, known.number("counter"));
        let (plausible, _) = self.plausible(accounts, &limits);
        let sources = plausible.into_iter().map(|account| account.registers).collect();
        let all = Registers::floor_of(sources, self.size.majority()).merged(known);
        all.fallback(unix_time, Past::MayHaveHeld)
    }

    /// Returns the accounts whose registers are within the limits, and the first register that is not: it would be copied to
    /// all masters.
    fn plausible(
        &self,
        accounts: BTreeMap<usize, Account>,
        limits: &RegisterLimits,
    ) -> (Vec<Account>, Option<NotDone>) {
        let all: Vec<&Registers> = accounts.values().map(|account| &account.registers).collect();
        let limits = &Registers::widen(*limits, &all, self.size.majority());
        let (mut plausible, mut first) = (Vec::new(), None);
        for (master, account) in accounts {
            match account.registers.implausible(limits) {
                None => plausible.push(account),
                Some((register, value)) => {
                    first.get_or_insert_with(|| NotDone::ImplausibleSource {
                        master: self.links[master].name.clone(),
                        register: register.chars().take(120).collect(),
                        value,
                    });
                }
            }
        }
        (plausible, first)
    }

    /// Drops sources with far more registers than the others.
    fn drop_excessive(&self, sealed: &mut Vec<Account>) {
        let counts = sealed.iter().map(|account| account.registers.count() as u64);
        let usual = nth_greatest(counts, self.size.majority()).unwrap_or_default();
        let most = usual.saturating_mul(2).saturating_add(EXCESS);
        sealed.retain(|account| account.registers.count() as u64 <= most);
    }

    async fn write(
        &self,
        quarantine: &Quarantine,
        masters: &[usize],
        floor: &Registers,
        quorum: &QuorumId,
    ) -> Sealed {
        let seals = masters.iter().filter_map(|master| {
            let (link, probe) = (&self.links[*master], quarantine.probe(*master)?);
            Some(async move {
                (
                    *master,
                    rounds::seal(link, probe, floor, (quorum, &self.turn), self.limit).await,
                )
            })
        });
        join_all(seals).await
    }
}

/// Returns the id for a quorum that has no id yet. The id stays the same for the life of the process.
pub(super) fn drawn(shared: &Shared) -> QuorumId {
    let fresh = QuorumId::from_bits(random::bits());
    shared.update(|engine, _| {
        engine.set_drawn(fresh.clone());
        engine.identity().drawn().cloned().unwrap_or(fresh)
    })
}
