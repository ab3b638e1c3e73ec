//! Seals new masters at once (`init`); the caller states that no lease can be live.
//!
//! Refuses to start unless every master is reached and has no key under the prefix other than a probe. A
//! failure half-way leaves only probes, and masters sealed with the same floors: after probes alone `init` can be
//! repeated. The probes name the fingerprint, so any process that is configured with the same one seals the rest after
//! the full wait.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use thiserror::Error;

use redlock_core::seal::{Past, Registers, init_probe};

use super::{
    rounds::{self, NotDone, Probing, SealTurn},
    sealing::drawn,
};
use crate::{
    clock,
    lease::BootInstant,
    masters::{Ineligible, MasterFacts, Masters, Unknown, link::Link},
};

/// The time to wait for masters that were just started.
const CONNECT: Duration = Duration::from_secs(5);
/// The time during which facts are read again if the answers of a master are late, as on a busy machine. A
/// connection that is silent for longer than about 2 s is closed, which ends the procedure.
const PATIENCE: Duration = Duration::from_secs(10);
/// The bound of the walk through the keys of a master: enough for some ten million foreign keys.
const SCAN: Duration = Duration::from_secs(30);

/// The result of an initialisation, after which all masters of the quorum vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitReport {
    pub sealed: Vec<String>,
    /// The counter of each master. Every fencing token will be greater.
    pub counter: u64,
    /// Slots up to this one (unix seconds) cannot be claimed.
    pub slot_floor: u64,
}

/// The reason why masters were not initialised.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InitError {
    #[error(
        "initialising the masters: master {master} cannot be reached ({reason}); every master must be reachable"
    )]
    Unreachable { master: String, reason: Unknown },
    #[error("initialising the masters: master {master} is refused: {reason}")]
    Ineligible { master: String, reason: Ineligible },
    #[error(
        "initialising the masters: master {master} is in use: key {key:?} exists; a new master has no keys under the \
         prefix"
    )]
    InUse { master: String, key: String },
    #[error("initialising the masters: master {master}: {reason}; no master was sealed; retry")]
    NotProbed { master: String, reason: NotDone },
    #[error(
        "initialising the masters: writing the probes took longer than {} ms; no master was sealed; retry",
        limit.as_millis()
    )]
    TooSlow { limit: Duration },
    #[error(
        "initialising the masters: sealed {sealed:?}, but not master {master}: {reason}; candidates seal the others \
         after the full wait"
    )]
    NotAllSealed {
        sealed: Vec<String>,
        master: String,
        reason: NotDone,
    },
}

/// Writes the probes of [`init`] on new masters, and seals none: a later `init` continues from there. After a crash
/// between the two, any process of the same fingerprint seals the masters after the full wait (P-76). The caller states
/// that no lease can be live at any of them.
///
/// # Errors
/// As [`init`], which a repetition of this function corrects: no master is sealed here.
pub async fn begin_init(masters: &Masters) -> Result<(), InitError> {
    let facts = new_masters(masters).await?;
    let end = clock::now() + masters.fingerprint().acquire_limit();
    write_probes(masters.links(), &facts, Probing::Begin, end).await?;
    Ok(())
}

/// Seals new masters at once. The caller states that no lease can be live at any of them (P-76).
///
/// # Errors
/// Returns an error for any master that is not reached, is refused by the gate, or has a key under the prefix other
/// than a probe. See [`InitError`] for the state after a later failure.
pub async fn init(masters: &Masters) -> Result<InitReport, InitError> {
    let links = masters.links();
    let facts = new_masters(masters).await?;
    let limit = masters.fingerprint().acquire_limit();
    let begun = clock::now();
    // A late probe ends the procedure while no master is sealed; half of the time is left for the seals.
    let (probed, end) = (begun + limit / 2, begun + limit);
    let probes = write_probes(links, &facts, Probing::Replace, probed).await?;
    all_carry(links, &probes, probed).await?;
    let left = end.left(clock::now());
    if left.is_zero() {
        return Err(InitError::TooSlow { limit });
    }
    let known = masters.shared().read(|engine, _| engine.known_registers());
    let floor = known.fallback(clock::unix_time(), Past::NothingHeld);
    let (seals, turn) = (links.iter().zip(&probes), SealTurn::new(limit));
    let quorum = masters.quorum_id().unwrap_or_else(|| drawn(masters.shared()));
    let seals = seals.map(|(link, probe)| rounds::seal(link, probe, &floor, (&quorum, &turn), left));
    let sealed = join_all(seals).await;
    report(links, sealed, &floor)
}

/// Reads the facts of a master, and repeats a read whose answer is late: otherwise one late answer would end
/// the procedure for all masters.
async fn read_facts(link: &Link, until: BootInstant) -> Result<MasterFacts, Unknown> {
    loop {
        match link.read_facts().await {
            Err(Unknown::TimedOut(_)) if clock::now() < until => {}
            result => return result,
        }
    }
}

/// Checks that every master is new: reached, eligible, and without a key under the prefix other than a probe.
async fn new_masters(masters: &Masters) -> Result<Vec<MasterFacts>, InitError> {
    masters.connected(CONNECT).await;
    let links = masters.links();
    let facts = eligible_masters(links).await?;
    let until = clock::now() + SCAN;
    let found = join_all(links.iter().map(|link| rounds::foreign_key(link, until))).await;
    for (link, found) in links.iter().zip(found) {
        let master = link.name.clone();
        match found {
            Ok(None) => {}
            Ok(Some(key)) => return Err(InitError::InUse { master, key }),
            Err(reason) => return Err(InitError::Unreachable { master, reason }),
        }
    }
    Ok(facts)
}

/// Checks that every master is reached and eligible, and that no two names lead to one server.
async fn eligible_masters(links: &[Arc<Link>]) -> Result<Vec<MasterFacts>, InitError> {
    let mut all: Vec<MasterFacts> = Vec::new();
    let until = clock::now() + PATIENCE;
    let results = join_all(links.iter().map(|link| read_facts(link, until))).await;
    for (link, result) in links.iter().zip(results) {
        let master = link.name.clone();
        let facts = match result {
            Ok(facts) => facts,
            Err(reason) => return Err(InitError::Unreachable { master, reason }),
        };
        let twice = all.iter().any(|other| other.run_id == facts.run_id);
        let ineligible = link.judge(&facts);
        if let Some(reason) = ineligible.or(twice.then_some(Ineligible::Duplicate)) {
            return Err(InitError::Ineligible { master, reason });
        }
        all.push(facts);
    }
    Ok(all)
}

async fn write_probes(
    links: &[Arc<Link>],
    facts: &[MasterFacts],
    probing: Probing,
    end: BootInstant,
) -> Result<Vec<String>, InitError> {
    let own = rounds::uuid();
    let writes = links.iter().zip(facts).map(|(link, facts)| {
        let probe = init_probe(facts, &link.fingerprint()) + &own;
        async move {
            let deadline = end.left(clock::now());
            let written = rounds::write_probe(link, &probe, probing, deadline).await;
            written.map(|(standing, _)| standing)
        }
    });
    let written = join_all(writes).await;
    let mut probes = Vec::new();
    for (link, result) in links.iter().zip(written) {
        let master = link.name.clone();
        probes.push(match result {
            Ok(probe) => probe,
            Err(NotDone::Used | NotDone::Sealed) => {
                let key = link.keys.meta.to_string();
                return Err(InitError::InUse { master, key });
            }
            Err(reason) => return Err(InitError::NotProbed { master, reason }),
        });
    }
    Ok(probes)
}

/// Checks that all masters carry the probe of this process: no other process sealed or probed them in between.
async fn all_carry(links: &[Arc<Link>], probes: &[String], end: BootInstant) -> Result<(), InitError> {
    let results = join_all(links.iter().map(|link| read_facts(link, end))).await;
    for ((link, result), probe) in links.iter().zip(results).zip(probes) {
        let reason = match result {
            Ok(facts) if facts.probe == *probe && !facts.sealed() => continue,
            Ok(_) => NotDone::ProbeChanged,
            Err(unknown) => unknown.into(),
        };
        let master = link.name.clone();
        return Err(InitError::NotProbed { master, reason });
    }
    Ok(())
}

fn report(
    links: &[Arc<Link>],
    results: Vec<Result<(), NotDone>>,
    floor: &Registers,
) -> Result<InitReport, InitError> {
    let (mut sealed, mut failed) = (Vec::new(), None);
    for (link, result) in links.iter().zip(results) {
        match result {
            Ok(()) => sealed.push(link.name.clone()),
            Err(reason) => failed = failed.or(Some((link.name.clone(), reason))),
        }
    }
    match failed {
        None => Ok(InitReport {
            sealed,
            counter: floor.number("counter"),
            slot_floor: floor.number("slotFloor"),
        }),
        Some((master, reason)) => Err(InitError::NotAllSealed {
            sealed,
            master,
            reason,
        }),
    }
}
