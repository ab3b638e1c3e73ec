//! Seals masters by hand (`reseal`) when a sealed master is lost for good, so that f+1 can never be read again.
//!
//! Data that only the lost masters had is forgotten: the caller accepts that loss. The counter and the slots
//! jump above every possible earlier value, as after a total loss. Refuses while the ordinary way is open.

use std::time::Duration;

use thiserror::Error;
use tokio::time;

use redlock_core::seal::{Blocked, Plan, Quarantine, SealedBy, Step};

use super::{READ_INTERVAL, rounds::NotDone};
use crate::{clock, masters::Masters};

/// The time to wait for running masters; lost masters do not extend it.
const CONNECT: Duration = Duration::from_secs(2);
/// Number of waits after which the function gives up: masters that restart repeatedly restart the wait.
const WAITS: u32 = 3;
/// The minimum pause between two tries, for a master that did not answer when it was about to be sealed.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// The time for the exchanges, in addition to the waits.
const MARGIN: Duration = Duration::from_secs(10);

/// The progress of a reseal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The masters that will be sealed.
    pub masters: Vec<String>,
    pub left: Duration,
}

/// The result for each master that was without a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResealReport {
    pub sealed: Vec<String>,
    pub not_sealed: Vec<(String, NotDone)>,
}

/// The reason why nothing was sealed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ResealError {
    #[error(
        "resealing discards the data that only the lost masters have (the last tokens and claimed slots); confirm \
         the loss with --accept-loss"
    )]
    LossNotAccepted,
    #[error(
        "resealing: every reachable master has a seal{}; there is nothing to do",
        unreached(missing)
    )]
    NothingUnsealed { missing: Vec<String> },
    #[error(
        "resealing is not needed for {}: {readable} sealed masters can be read, so any candidate seals the others \
         after the wait, and no data is lost", masters.join(", ")
    )]
    OrdinaryWayOpen { masters: Vec<String>, readable: usize },
    #[error(
        "resealing: the masters were sealed for {found}, and {own} was given; give the names and the longest lease of the \
         quorum, by --quorum or --config"
    )]
    OtherFingerprint { found: String, own: String },
    #[error(
        "resealing: after {} s the masters had not kept one probe for the whole wait; check whether they restart", waited.as_secs()
    )]
    Unsettled { waited: Duration },
}

fn unreached(missing: &[String]) -> String {
    match missing {
        [] => String::new(),
        some => format!(" (not reached or refused: {})", some.join(", ")),
    }
}

/// Seals every master that can be reached and has no seal, after the full wait. Calls `progress` every second.
///
/// # Errors
/// Returns a [`ResealError`] if nothing was sealed.
pub async fn reseal(
    masters: &Masters,
    accept_loss: bool,
    mut progress: impl FnMut(Progress),
) -> Result<ResealReport, ResealError> {
    if !accept_loss {
        return Err(ResealError::LossNotAccepted);
    }
    masters.connected(CONNECT).await;
    let executor = masters.executor();
    let mut quarantine = Quarantine::new(masters.size(), masters.fingerprint().clone(), SealedBy::Person);
    let started = clock::now();
    let give_up = masters.fingerprint().seal_wait() * WAITS + MARGIN;
    loop {
        let plan = executor.plan(&mut quarantine).await;
        refuse(masters, &plan)?;
        let left = left(&plan);
        if let Some(Duration::ZERO) = left {
            let all: Vec<usize> = plan.steps.iter().map(|(master, _)| *master).collect();
            let done = executor.fall_back(&quarantine, &plan, &all).await;
            if !done.is_empty() {
                return Ok(report(masters, done));
            }
        }
        let waited = clock::now().since(started);
        if waited > give_up {
            return Err(ResealError::Unsettled { waited });
        }
        // A probe that was just written starts the wait: the next read knows its end.
        let left = left.unwrap_or_else(|| masters.fingerprint().seal_wait());
        progress(Progress {
            masters: names(masters, &plan),
            left,
        });
        time::sleep(READ_INTERVAL.min(left.max(MIN_PAUSE))).await;
    }
}

/// Refuses while the ordinary way is open, and where the masters carried another fingerprint (P-77).
fn refuse(masters: &Masters, plan: &Plan) -> Result<(), ResealError> {
    if plan.steps.is_empty() {
        let all = masters
            .links()
            .iter()
            .filter(|link| !plan.sources.contains(&link.index));
        let missing = all.map(|link| link.name.clone()).collect();
        return Err(ResealError::NothingUnsealed { missing });
    }
    match &plan.blocked {
        Some(Blocked::TooFew { .. } | Blocked::NeverSeen) => Ok(()),
        Some(Blocked::OtherFingerprint { found, own }) => Err(ResealError::OtherFingerprint {
            found: found.clone(),
            own: own.clone(),
        }),
        None => Err(ResealError::OrdinaryWayOpen {
            masters: names(masters, plan),
            readable: plan.sources.len(),
        }),
    }
}

/// Returns the longest remaining wait at the time of the read; `None` while a master has only just received
/// its probe.
fn left(plan: &Plan) -> Option<Duration> {
    let mut lefts = plan.steps.iter().map(|(_, step)| match step {
        Step::Blocked { until } => Some(until.left(plan.read_at)),
        _ => None,
    });
    lefts.try_fold(Duration::ZERO, |most, left| Some(most.max(left?)))
}

fn names(masters: &Masters, plan: &Plan) -> Vec<String> {
    let name = |master: &usize| masters.links()[*master].name.clone();
    plan.steps.iter().map(|(master, _)| name(master)).collect()
}

fn report(masters: &Masters, done: super::Sealed) -> ResealReport {
    let mut report = ResealReport {
        sealed: Vec::new(),
        not_sealed: Vec::new(),
    };
    for (master, result) in done {
        let name = masters.links()[master].name.clone();
        match result {
            Ok(()) => report.sealed.push(name),
            Err(why) => report.not_sealed.push((name, why)),
        }
    }
    report
}
