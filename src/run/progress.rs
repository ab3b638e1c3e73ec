//! The lines that are written during the wait for the lock.

use std::{
    io::{self, Write},
    time::Duration,
};

use crate::{
    elector::LockView,
    lease::{BootInstant, LockName},
    masters::{MasterStatus, Masters},
};

/// Interval at which the same reason is repeated: a job's log is read later.
const AGAIN: Duration = Duration::from_secs(10);
/// Shortest interval between different reasons: a lock that often changes its holder must not fill the log.
const AT_MOST: Duration = Duration::from_secs(1);
/// Masters are connected within milliseconds. The problem of a master is reported once it is not connected after this
/// time.
const CONNECTING: Duration = Duration::from_secs(1);

/// The reason why the lock is not held.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WaitReason {
    Held(String),
    Sealing,
    NoQuorum(String),
    /// No holder is known: the lock is reserved, or other candidates try at the same time.
    Contended,
}

#[derive(Debug)]
pub(super) struct Progress {
    lock: LockName,
    quiet: bool,
    began: BootInstant,
    reported: Option<(WaitReason, BootInstant)>,
}

impl Progress {
    pub(super) fn new(lock: LockName, quiet: bool, began: BootInstant) -> Self {
        Self {
            lock,
            quiet,
            began,
            reported: None,
        }
    }

    /// Writes a line to the standard error, unless the run is quiet.
    pub(super) fn print(&self, text: &str) {
        if !self.quiet {
            self.warn(text);
        }
    }

    /// Writes a line about a failure that no exit code reports, also if the run is quiet.
    pub(super) fn warn(&self, text: &str) {
        // A closed standard error is not a failure.
        let _ = writeln!(io::stderr(), "redlock: lock {}: {text}", self.lock);
    }

    /// Reports the reason why the lock is not held, if the reason is new.
    pub(super) fn waits(&mut self, now: BootInstant, standing: &LockView, masters: &Masters) {
        let (reason, text) = reason(now, standing, masters);
        let known_soon = !matches!(reason, WaitReason::Held(_));
        if known_soon && now < self.began + CONNECTING {
            return;
        }
        self.report(now, reason, &text);
    }

    /// Reports that there are no masters to ask.
    pub(super) fn cannot_ask(&mut self, now: BootInstant, why: &str) {
        self.report(
            now,
            WaitReason::NoQuorum(why.to_owned()),
            &format!("no quorum: {why}"),
        );
    }

    fn report(&mut self, now: BootInstant, reason: WaitReason, text: &str) {
        let rest = match &self.reported {
            None => Duration::ZERO,
            Some((before, _)) if *before == reason => AGAIN,
            Some(_) => AT_MOST,
        };
        if self.reported.as_ref().is_none_or(|(_, at)| now >= *at + rest) {
            self.print(text);
            self.reported = Some((reason, now));
        }
    }

    /// Reports that the lock is held, if the wait was reported.
    pub(super) fn acquired(&mut self, token: impl std::fmt::Display) {
        if self.reported.take().is_some() {
            self.print(&format!("acquired, token {token}"));
        }
    }
}

fn reason(now: BootInstant, standing: &LockView, masters: &Masters) -> (WaitReason, String) {
    if let Some(holder) = standing.holder_at(now) {
        let left = holder.ends.left(now).as_secs_f64().ceil();
        let who = if holder.cluster == *masters.cluster() {
            holder.identity.clone()
        } else {
            format!("{} of cluster {}", holder.identity, holder.cluster)
        };
        let text = format!("held by {who} for at most {left} s more");
        return (WaitReason::Held(who), text);
    }
    let all = masters.status();
    let (voting, majority) = (
        all.iter().filter(|one| one.grants()).count(),
        masters.size().majority(),
    );
    if voting >= majority {
        let text = "reserved, or other candidates try at the same time".to_owned();
        return (WaitReason::Contended, text);
    }
    if let Some(left) = sealing_left(&all, majority - voting) {
        let left = left.as_secs_f64().ceil();
        return (WaitReason::Sealing, format!("sealing, {left} s left"));
    }
    let why = no_quorum(&all);
    (WaitReason::NoQuorum(why.clone()), format!("no quorum: {why}"))
}

/// Returns the time until the missing masters vote, if they only wait for their seal.
fn sealing_left(all: &[MasterStatus], missing: usize) -> Option<Duration> {
    let blocked =
        |one: &&MasterStatus| one.seal_blocked.is_none() && one.not_permitted.is_none() && one.answers();
    let mut left: Vec<Duration> = all
        .iter()
        .filter(blocked)
        .filter_map(|one| one.sealing_left)
        .collect();
    left.sort_unstable();
    left.get(missing.checked_sub(1)?).copied()
}

/// Returns how many masters vote, and the problem of each of the others.
pub(super) fn no_quorum(all: &[MasterStatus]) -> String {
    let voting = all.iter().filter(|one| one.votes()).count();
    let granting = all.iter().filter(|one| one.grants()).count();
    let refusals = match granting == voting {
        true => String::new(),
        false => format!(", {} of them refuse", voting - granting),
    };
    let others = all.iter().filter(|one| !one.grants()).map(|one| {
        let why = match (&one.ineligible, one.refusal(), &one.no_vote) {
            (Some(unfit), _, _) if one.answers() => unfit.to_string(),
            (_, Some(unknown), _) | (_, None, Some(unknown)) => unknown.to_string(),
            (_, None, None) => "no answer".into(),
        };
        format!("; {} ({}): {why}", one.name, one.url)
    });
    let others: String = others.collect();
    let mut blocked: Vec<String> = Vec::new();
    for reason in all.iter().filter_map(|one| one.seal_blocked.as_ref()) {
        let reason = format!("; cannot be sealed: {reason}");
        if !blocked.contains(&reason) {
            blocked.push(reason);
        }
    }
    format!(
        "{voting} of {} masters vote{refusals}{others}{}",
        all.len(),
        blocked.concat()
    )
}
