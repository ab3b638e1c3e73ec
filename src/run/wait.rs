//! Before the command: finding the masters, and waiting for the lock.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{
    Outcome, Patience, RunError, Wrapper,
    election::{Election, Ended},
    group::reap_orphans,
    guard::Unguarded,
    launcher::Launcher,
    progress::no_quorum,
};
use crate::{
    clock,
    lease::{Authority, BootInstant},
    masters::{AdoptError, Agreement, MasterStatus, Masters, MastersConfig, Notices, Tasks, adopt_open},
};

/// The interval at which the reported reason for the wait is checked.
const TICK: Duration = Duration::from_millis(250);
/// The time between two attempts to find the masters.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The same for a run that does not wait for masters: they have two seconds in all.
const ASK_SOON: Duration = Duration::from_millis(100);

/// The process that initialises the masters sets names and longest lease.
const NEVER_SEALED: &str =
    "no master carries a fingerprint: run `redlock init`, or start an operator that uses these masters";

/// The result of waiting.
#[derive(Debug)]
pub(super) enum Waited<T> {
    For(T),
    /// The wait ended without a result.
    Over(Outcome),
}

impl Wrapper {
    /// Returns the masters of bare urls, with the fingerprint that is stored on them. A caller that waits
    /// also waits for masters that cannot be reached, but not for wrong ones.
    pub(super) async fn find(
        &mut self,
        config: &MastersConfig,
        launcher: &Launcher,
    ) -> Result<Waited<(Masters, Notices, Tasks)>, RunError> {
        let in_time = match self.options.patience {
            Patience::For(_) => self.until(),
            // No time limit for one attempt to ask the masters.
            Patience::Forever | Patience::Not => BootInstant::NEVER,
        };
        loop {
            let found = tokio::select! {
                found = adopt_open(config.clone(), Agreement::Majority) => found,
                () = clock::sleep_until(in_time) => Err(AdoptError::NoMajority {
                    found: "no answer in time".into(),
                    denied: 0,
                }),
                signal = self.ending(launcher) => return Ok(Waited::Over(Outcome::Interrupted(signal))),
            };
            let mut late = false;
            let (prefix, found, denied) = match found {
                Ok((adopted, opened)) if adopted.stored => {
                    self.found = true;
                    return Ok(Waited::For(opened));
                }
                // Without their longest lease, a seal could give another process the lock while it is held.
                Ok((_, (_, _, tasks))) => {
                    tasks.close().await;
                    ("", NEVER_SEALED.to_owned(), 0)
                }
                Err(error @ AdoptError::Forgotten { .. }) => ("", error.to_string(), 0),
                Err(AdoptError::NoMajority { found, denied }) => {
                    late = true;
                    ("no majority of the masters answers: ", found, denied)
                }
                Err(error) => return Err(error.into()),
            };
            let now = clock::now();
            // If fewer than a majority deny access, the wrapper waits for the others.
            let denied_by_majority = 2 * denied > config.masters.len();
            let waits = self.options.waits_for_masters();
            // One late answer is no reason to give up.
            let hopeless = !waits && (!late || now >= self.answers_by);
            if denied_by_majority || hopeless || now >= self.until() {
                let why = format!("{prefix}{found}");
                let auth = denied > 0;
                return Ok(Waited::Over(Outcome::NoQuorum { why, auth }));
            }
            if waits {
                self.progress.cannot_ask(now, &found);
            }
            let pause = if waits { ASK_AGAIN } else { ASK_SOON };
            tokio::select! {
                () = clock::sleep_until(self.until().min(now + pause)) => {}
                signal = self.ending(launcher) => return Ok(Waited::Over(Outcome::Interrupted(signal))),
            }
        }
    }

    /// Waits until the lock is held, or the wait is over.
    pub(super) async fn acquire(
        &mut self,
        election: &mut Election,
        launcher: &Launcher,
    ) -> Result<Waited<Authority>, RunError> {
        loop {
            let (now, standing) = (clock::now(), election.standing());
            if let Some(authority) = standing.authority_at(now) {
                self.found = true;
                self.progress.acquired(authority.token);
                return Ok(Waited::For(authority));
            }
            let held = standing.holder_at(now).is_some();
            let over = self.gives_up(now, held, &election.masters);
            // A run whose slot is taken has nothing to wait for, and ends as such also if it does not wait.
            if (matches!(over, Some(Outcome::NotAcquired)) || (held && self.reads_slot(now)))
                && let Some(taken) = self.taken_meanwhile(election).await
            {
                return Ok(Waited::Over(taken));
            }
            if let Some(outcome) = over {
                return Ok(Waited::Over(outcome));
            }
            // For a caller that does not wait, the exit code is the only answer.
            if self.options.patience != Patience::Not {
                self.progress.waits(now, &standing, &election.masters);
            }
            let wake = self.until().max(now).min(now + TICK);
            tokio::select! {
                changed = election.changed() => changed?,
                () = clock::sleep_until(wake) => {}
                signal = self.ending(launcher) => return Ok(Waited::Over(Outcome::Interrupted(signal))),
            }
        }
    }

    /// Returns a pending signal that asks this process to end: `acquire` may return before it reads them all.
    pub(super) async fn asked(&mut self, launcher: &Launcher) -> Option<Signal> {
        tokio::select! {
            biased;
            signal = self.ending(launcher) => Some(signal),
            () = tokio::task::yield_now() => None,
        }
    }

    /// Returns the end of the wait for the lock. A caller that does not wait gets its answer when the holder
    /// is known, at the latest when every master has had time to answer an attempt to acquire the lock.
    pub(super) fn until(&self) -> BootInstant {
        match self.options.patience {
            Patience::Forever => BootInstant::NEVER,
            Patience::For(time) => self.began + time,
            Patience::Not => self.answers_by,
        }
    }

    fn gives_up(&mut self, now: BootInstant, held: bool, masters: &Masters) -> Option<Outcome> {
        let over = now >= self.until();
        if held && (over || self.options.patience == Patience::Not) {
            return Some(Outcome::NotAcquired);
        }
        let hopeless = !self.found && !self.options.waits_for_masters() && now >= self.answers_by;
        if !over && !hopeless {
            return None;
        }
        let all = masters.status();
        let enough = |counts: fn(&MasterStatus) -> bool| {
            all.iter().filter(|one| counts(one)).count() >= masters.size().majority()
        };
        // The wrapper waits for a seal, and for a change that a person must make at a master that answers.
        self.found |= enough(MasterStatus::answers);
        match over {
            true if enough(MasterStatus::grants) => Some(Outcome::NotAcquired),
            false if self.found => None,
            _ => Some(Outcome::NoQuorum {
                why: no_quorum(&all),
                auth: all.iter().any(MasterStatus::auth),
            }),
        }
    }

    /// Returns the next signal that asks this process to end. Before the command begins, there is no process
    /// that the others could be passed on to.
    pub(super) async fn ending(&mut self, launcher: &Launcher) -> Signal {
        loop {
            match self.signals.next().await {
                signal if self.is_asked_to_end_by(signal) => return signal,
                Signal::SIGCHLD => reap_orphans(&[self.guard.process(), Some(launcher.id())]),
                _ => {}
            }
        }
    }
}

impl From<Ended> for RunError {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl From<Unguarded> for RunError {
    fn from(unguarded: Unguarded) -> Self {
        Self::Unguarded(unguarded)
    }
}
