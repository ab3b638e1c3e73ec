//! Judges one master by its answers.

mod seal;

use std::time::Duration;

use serde::Serialize;

use crate::{
    inspect::text::milliseconds,
    masters::{Ineligible, MasterFacts, MasterStatus, PreflightError, Refusal, Unknown, server},
};

/// A larger offset confuses users, and affects slots of CronJobs, which are compared with the time of a total
/// loss. No lease depends on it.
const CLOCK_OFFSET_SECONDS: f64 = 1.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    Good,
    Warning,
    Bad,
}

/// One fact that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub name: &'static str,
    pub level: Level,
    pub found: String,
    /// The remedy.
    pub hint: Option<String>,
}

impl Check {
    pub(super) fn is_bad(&self) -> bool {
        self.level == Level::Bad
    }

    pub(super) fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            level: Level::Good,
            found: found.into(),
            hint: None,
        }
    }

    pub(super) fn but(
        name: &'static str,
        level: Level,
        found: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            name,
            level,
            found: found.into(),
            hint: Some(hint.into()),
        }
    }
}

pub(super) struct MasterEvidence<'a> {
    pub(super) status: &'a MasterStatus,
    /// `None` for each request without an answer.
    pub(super) round_trips: &'a [Option<Duration>],
    pub(super) preflight: Result<&'a (), &'a PreflightError>,
    pub(super) seal_wait: Duration,
    pub(super) unix_now: Duration,
    pub(super) lease_duration: Duration,
    pub(super) command_timeout: Duration,
    /// Whether the quorum has no other master.
    pub(super) is_only_one: bool,
}

impl MasterEvidence<'_> {
    /// Reports whether the master answers. A poll that timed out is one slow sample; the doctor's requests
    /// decide.
    fn answers(&self) -> bool {
        let status = self.status;
        let late = status.trouble.as_ref().is_some_and(Unknown::is_late);
        let answered = self.round_trips.iter().flatten().count();
        let mostly = status.connected && late && answered * 2 > self.round_trips.len();
        status.facts.is_some() && (status.answers() || mostly)
    }
}

pub(super) fn of(seen: &MasterEvidence<'_>) -> Vec<Check> {
    let facts = seen.status.facts.as_ref().filter(|_| seen.answers());
    let mut checks = reached(seen);
    checks.extend(seen.is_only_one.then(only_one));
    let Some(facts) = facts else {
        return checks;
    };
    let version = version(facts);
    if version.is_bad() {
        // The other answers of such a server may be missing, or have another meaning.
        checks.push(version);
        return checks;
    }
    checks.extend([
        version,
        role(facts),
        single(seen.status),
        preflight(facts, seen.preflight),
        eviction(facts),
        seal::sealed(facts, seen),
        persistence(facts),
        clock(seen.status),
        latency(seen.round_trips, seen.command_timeout, seen.lease_duration),
    ]);
    checks
}

fn only_one() -> Check {
    Check::but(
        "quorum",
        Level::Warning,
        "the only master: no lock is held while this server is away, and one server is believed",
        "for a trial or a small site; docs/single-master.md describes the losses, and how to get to three masters",
    )
}

fn reached(seen: &MasterEvidence<'_>) -> Vec<Check> {
    let connected = || Check::good("reachable", "connected");
    if seen.answers() {
        return vec![
            connected(),
            Check::good("authenticated", "user and password accepted"),
        ];
    }
    match &seen.status.trouble {
        None => vec![Check::but("reachable", Level::Bad, "no answer", UNREACHABLE)],
        Some(trouble @ Unknown::Server { code, .. }) if code == "NOPERM" => vec![
            connected(),
            Check::but(
                "authenticated",
                Level::Bad,
                // The first read of the preflight failed in the same way, and names the command.
                seen.preflight
                    .err()
                    .map_or_else(|| trouble.to_string(), ToString::to_string),
                "the user lacks permissions: give it the line of docs/redis-acl.md",
            ),
        ],
        Some(trouble) if trouble.is_auth() => vec![
            connected(),
            Check::but(
                "authenticated",
                Level::Bad,
                trouble.to_string(),
                "check --username, and --password-file or REDLOCK_PASSWORD",
            ),
        ],
        Some(trouble) => {
            let hint = match trouble {
                Unknown::Reply(_) => NOT_UNDERSTOOD,
                _ => UNREACHABLE,
            };
            vec![Check::but("reachable", Level::Bad, trouble.to_string(), hint)]
        }
    }
}

const NOT_UNDERSTOOD: &str = "check that the url is that of a Redis server. If another program wrote to <key \
    prefix>:meta (redlock:meta) there, delete that key on this master alone: the master is sealed again after its \
    wait";
const OTHER_SERVERS: &str = "docs/servers.md lists the servers and services that can be masters";
const UNREACHABLE: &str = "check that the server runs, the url is right and the port is open, and whether the server \
    requires TLS (rediss://, --tls-ca, --tls-cert)";

fn version(facts: &MasterFacts) -> Check {
    let (unfit, hint) = match server::refusal(&facts.server) {
        Some(refusal @ Refusal::TooOld(_)) => (refusal.to_string(), "upgrade the server"),
        Some(refusal) => (refusal.to_string(), OTHER_SERVERS),
        None if facts.run_id.is_empty() => {
            let unfit = Ineligible::NoRunId(facts.server.clone());
            (unfit.to_string(), OTHER_SERVERS)
        }
        None if !facts.has_replication_id() => {
            let unfit = Ineligible::NoReplicationId(facts.server.clone());
            (unfit.to_string(), OTHER_SERVERS)
        }
        None => return Check::good("version", facts.server.to_string()),
    };
    Check::but("version", Level::Bad, unfit, hint)
}

fn role(facts: &MasterFacts) -> Check {
    if facts.role != "master" {
        let found = format!("the server is a {}", facts.role);
        let hint = "each master must be independent: run REPLICAOF NO ONE on this server, and put no failover in \
            front of it";
        return Check::but("role", Level::Bad, found, hint);
    }
    if facts.cluster_mode {
        let hint = "each master must be a server of its own: set cluster-enabled no";
        return Check::but("role", Level::Bad, "the server runs in cluster mode", hint);
    }
    if facts.replicas > 0 || facts.was_replicated() {
        let unfit = Ineligible::HasReplicas(facts.replicas);
        let hint = "a promoted replica would be a second server under one name: run REPLICAOF NO ONE on each \
            replica, then restart this server";
        return Check::but("role", Level::Bad, unfit.to_string(), hint);
    }
    Check::good("role", "master")
}

fn single(status: &MasterStatus) -> Check {
    let shown = status
        .facts
        .as_ref()
        .map_or("", |facts| facts.run_id.get(..8).unwrap_or(""));
    match &status.ineligible {
        Some(unfit @ Ineligible::Duplicate) => Check::but(
            "own server",
            Level::Bad,
            unfit.to_string(),
            "two urls reach one server, which would have two votes: give each master a server of its own",
        ),
        _ => Check::good("own server", format!("run_id {shown}…")),
    }
}

fn preflight(facts: &MasterFacts, preflight: Result<&(), &PreflightError>) -> Check {
    match preflight {
        Ok(()) => Check::good(
            "scripts",
            "every script ran on keys of its own, which are deleted",
        ),
        Err(error) if facts.role != "master" => Check::but(
            "scripts",
            Level::Bad,
            error.to_string(),
            "a replica accepts no writes: see the check of the role",
        ),
        Err(error) => {
            let hint = if error.reason.is_auth() {
                "the user lacks a permission: give it the line of docs/redis-acl.md"
            } else {
                "see the log of the server; after MISCONF or OOM its disk or memory is full"
            };
            Check::but("scripts", Level::Bad, error.to_string(), hint)
        }
    }
}

fn eviction(facts: &MasterFacts) -> Check {
    if facts.eviction_policy != "noeviction" {
        let unfit = Ineligible::EvictionPolicy(facts.eviction_policy.clone());
        return Check::but(
            "eviction",
            Level::Bad,
            unfit.to_string(),
            "run CONFIG SET maxmemory-policy noeviction, and set the same in the configuration file of the server",
        );
    }
    if facts.sealed() && facts.evicted > facts.evicted_at_seal {
        let unfit = Ineligible::Evicted(facts.evicted - facts.evicted_at_seal);
        return Check::but(
            "eviction",
            Level::Bad,
            unfit.to_string(),
            "restart the server, and give it more memory",
        );
    }
    Check::good("eviction", "noeviction")
}

fn persistence(facts: &MasterFacts) -> Check {
    if facts.aof {
        return Check::good("persistence", "append-only file");
    }
    Check::but(
        "persistence",
        Level::Warning,
        "no append-only file: a restart forgets the registers of this master",
        "set appendonly yes, so that a restart of all masters at once loses no token and no slot",
    )
}

fn clock(status: &MasterStatus) -> Check {
    match status.clock_offset_seconds {
        None => Check::but("clock", Level::Warning, "not known", "run doctor again"),
        Some(offset) if offset.abs() > CLOCK_OFFSET_SECONDS => Check::but(
            "clock",
            Level::Warning,
            format!("{offset:+.3} s from the clock here"),
            "run chrony or ntpd on both machines; the slots of CronJobs depend on the clocks, leases do not",
        ),
        Some(offset) => Check::good("clock", format!("{offset:+.3} s from the clock here")),
    }
}

/// The latency is good if the slowest answer takes less than a quarter of a command timeout. A master whose
/// median reaches the timeout does not vote. One slow or lost answer out of many is a warning: a majority of
/// the samples decides whether the master is usable.
fn latency(round_trips: &[Option<Duration>], command_timeout: Duration, lease: Duration) -> Check {
    let samples = round_trips.len();
    let mut took: Vec<Duration> = round_trips.iter().flatten().copied().collect();
    took.sort_unstable();
    let answered = format!("the server answered {} of {samples} requests", took.len());
    // Requests without an answer count as the slowest: the median of all samples must exist.
    let (Some(median), Some(slowest)) = (took.get(samples / 2), took.last()) else {
        return Check::but(
            "latency",
            Level::Bad,
            answered,
            "check the log of the server and the network",
        );
    };
    let mut found = format!(
        "median {}, slowest {}; a command may take {} with leases of {} s",
        milliseconds(*median),
        milliseconds(*slowest),
        milliseconds(command_timeout),
        lease.as_secs_f64()
    );
    let lost = took.len() < samples;
    if lost {
        found = format!("{answered}; {found}");
    }
    let hint = "use a nearer master, or a longer lease";
    if *median >= command_timeout {
        Check::but("latency", Level::Bad, found, hint)
    } else if lost || *slowest * 4 >= command_timeout {
        Check::but("latency", Level::Warning, found, hint)
    } else {
        Check::good("latency", found)
    }
}

#[cfg(test)]
mod tests;
