//! Checks whether a master is sealed, and for how long.

use super::{Check, Level, MasterEvidence};
use crate::masters::{Ineligible, MasterFacts, Unknown};

fn vote(facts: &MasterFacts, no_vote: &Option<Unknown>) -> Check {
    let id = facts.quorum.as_ref().map(ToString::to_string).unwrap_or_default();
    match no_vote {
        // Masters with different quorum ids are seen here, one by one.
        Some(why @ Unknown::QuorumUnknown) => {
            let hint = "wait until a majority is sealed; if the ids of the masters differ, delete <key prefix>:meta on \
                each master that has the wrong id";
            Check::but(
                "sealed",
                Level::Warning,
                format!("sealed in quorum {id}; {why}"),
                hint,
            )
        }
        _ if facts.seal_ends_with_backlog() => {
            let found = format!(
                "has a vote in quorum {id} until its replication backlog ends, and is then sealed again after the wait"
            );
            let hint = "run CONFIG SET repl-backlog-ttl 1 on one master at a time, and wait until it is sealed again";
            Check::but("sealed", Level::Warning, found, hint)
        }
        _ => Check::good("sealed", format!("has a vote in quorum {id}")),
    }
}

pub(super) fn sealed(facts: &MasterFacts, seen: &MasterEvidence<'_>) -> Check {
    match &seen.status.ineligible {
        Some(unfit @ Ineligible::OtherFingerprint { .. }) => {
            let hint = "give the names and the longest lease of the quorum that it belongs to, or another --key-prefix";
            return Check::but("sealed", Level::Bad, unfit.to_string(), hint);
        }
        Some(unfit @ Ineligible::OtherQuorum { .. }) => {
            let hint = "check the url; to use this server as a master of this quorum, delete <key prefix>:meta on \
                it: the server is sealed again after its wait";
            return Check::but("sealed", Level::Bad, unfit.to_string(), hint);
        }
        Some(unfit @ Ineligible::Retired(_)) => {
            let hint = "another server is this master now: give its url; to use this one again, remove the url of \
                the other one from every configuration, then delete <key prefix>:meta on it";
            return Check::but("sealed", Level::Bad, unfit.to_string(), hint);
        }
        Some(unfit @ Ineligible::ClockStep(_)) => {
            let hint = "slew the clock of the server (chrony, ntpd -x) instead of stepping it";
            return Check::but("sealed", Level::Bad, unfit.to_string(), hint);
        }
        Some(Ineligible::HasReplicas(_)) if !facts.sealed() => {
            let hint = "make sure that no copy of the server runs as a master, then restart the server";
            return Check::but("sealed", Level::Bad, "not sealed until it is restarted", hint);
        }
        // The reason why the master has no vote is another line.
        Some(_) if facts.sealed() => return Check::good("sealed", "under its present run"),
        None if facts.sealed() => return vote(facts, &seen.status.no_vote),
        _ => {}
    }
    let Some(since) = facts.probed_for(seen.unix_now) else {
        let found = "not sealed, and no candidate is about to seal the master: it has no vote";
        let hint = "an operator seals the master after a wait; `redlock init` seals new masters at once";
        return Check::but("sealed", Level::Bad, found, hint);
    };
    let left = seen.seal_wait.saturating_sub(since).as_secs_f64().ceil();
    if left > 0.0 {
        return Check::but("sealed", Level::Bad, format!("sealing, {left} s left"), "wait");
    }
    let found = "not sealed, although the wait is over: the master has no vote";
    let hint = "check that an operator runs and a majority of the sealed masters can be read; if sealed masters are \
        lost permanently: `redlock reseal --accept-loss`";
    Check::but("sealed", Level::Bad, found, hint)
}
