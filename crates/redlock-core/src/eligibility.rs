//! Decides which servers may be asked for votes, and names the reason why the others are refused.

use thiserror::Error;

use crate::{
    Fingerprint, MasterFacts, QuorumId,
    server::{self, Refusal, Server},
};

/// The reason why a server that answers has no vote.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Ineligible {
    /// The program or its version is refused.
    #[error("{0}")]
    Server(Refusal),
    #[error("{0} reports no run_id, so a restart is not detected; use Redis 6.2, Valkey 7.2 or newer")]
    NoRunId(Server),
    #[error(
        "{0} reports no replication id of 40 hex digits, so a promotion is not detected; use Redis 6.2, Valkey 7.2 or newer"
    )]
    NoReplicationId(Server),
    #[error(
        "the server is a {0}, not a master; every master must be independent, without replicas that can take over"
    )]
    Replica(String),
    #[error("{}", has_replicas(*.0))]
    HasReplicas(u64),
    #[error(
        "the server runs in cluster mode; every master must be an independent server: set cluster-enabled no, or use \
         a managed service without cluster mode"
    )]
    ClusterMode,
    /// The text of the retirement.
    #[error("the server was removed from the quorum ({0})")]
    Retired(String),
    #[error("another master is the same server (equal run_id)")]
    Duplicate,
    #[error("{}", other_fingerprint(found, own))]
    OtherFingerprint { found: String, own: String },
    /// The fingerprint is the same, but the quorum is another one, as for a staging master in a production
    /// list.
    #[error(
        "the server belongs to quorum {found}, not to quorum {own}; give the url of the master of this quorum, or \
         delete <key prefix>:meta on this server, so that it is sealed again"
    )]
    OtherQuorum { found: String, own: QuorumId },
    #[error("{}; the policy must be noeviction, or leases and registers are lost", policy(.0))]
    EvictionPolicy(String),
    #[error(
        "the server has evicted {0} keys since it was sealed; restart the server, so that its registers are restored and it \
         is sealed again"
    )]
    Evicted(u64),
    #[error(
        "the counter of the server is {found}, and no counter above {limit} is plausible by the counters and clocks of the other \
         masters; the server was changed by hand, or forges numbers: restart it empty, so that its registers are restored \
         from the other masters and it is sealed again"
    )]
    CounterAhead { found: u64, limit: u64 },
    #[error("the clock of the server stepped; its votes count as unknown for {0} s more")]
    ClockStep(u64),
}

/// The prefix of the text that replaces the fingerprint of a retired server; the scripts use it, too.
pub const RETIRED: &str = "retired:";

/// Describes the policy; a server that is compatible with Redis may omit it.
fn policy(found: &str) -> String {
    match found {
        "" => "the server reports no maxmemory-policy".into(),
        found => format!("maxmemory-policy is {found}"),
    }
}

fn has_replicas(attached: u64) -> String {
    match attached {
        0 => "a replica was attached to the server since it was sealed, or the server was a replica itself, so that \
            a copy may have been promoted; make sure that no copy runs as a master, then restart this server, so \
            that it is sealed again".into(),
        1 => "a replica is attached to the server and may be promoted in its place; detach the replica (run \
            REPLICAOF NO ONE on the replica, or stop it), then restart this server, so that it is sealed again".into(),
        n => format!("{n} replicas are attached to the server, and one of them may be promoted in its place; detach \
            the replicas (run REPLICAOF NO ONE on each, or stop them), then restart this server, so that it is \
            sealed again"),
    }
}

/// Describes the difference if both fingerprints can be parsed.
fn other_fingerprint(found: &str, own: &str) -> String {
    let plain = || format!("the server is sealed for another quorum: {found}");
    let (Ok(theirs), Ok(ours)) = (found.parse::<Fingerprint>(), own.parse::<Fingerprint>()) else {
        return plain();
    };
    if theirs.names() != ours.names() {
        // Only `redlock init` generates names.
        let by_urls = if theirs
            .names()
            .iter()
            .enumerate()
            .all(|(i, name)| *name == format!("m{i}"))
        {
            ", as `redlock init --masters URL,…` names them"
        } else {
            ""
        };
        return format!(
            "the server was initialised with other master names: {}{by_urls}; this quorum has {}; use the names of \
             the server here or, if no lease was ever granted, delete <key prefix>:meta on each master and run \
             `redlock init` with --quorum NAME or --config FILE, which use the names given there ({found})",
            theirs.names().join(", "),
            ours.names().join(", "),
        );
    }
    if theirs.longest_lease() != ours.longest_lease() {
        return format!(
            "the server was initialised with maxLeaseDurationSeconds: {}, and this quorum has {}; use the value of \
             the server here, or another key prefix ({found})",
            theirs.longest_lease().as_secs_f64(),
            ours.longest_lease().as_secs_f64(),
        );
    }
    plain()
}

/// Judges one server by its facts (P-27). Duplicates and clock steps need more than one poll. `quorum` is the id of
/// this quorum, once it is known.
#[must_use]
pub fn check(facts: &MasterFacts, fingerprint: &str, quorum: Option<&QuorumId>) -> Option<Ineligible> {
    if let Some(refusal) = server::refusal(&facts.server) {
        return Some(Ineligible::Server(refusal));
    }
    // Without a run_id, a restart is not detected, and two servers cannot be distinguished.
    if facts.run_id.is_empty() {
        return Some(Ineligible::NoRunId(facts.server.clone()));
    }
    if !facts.has_replication_id() {
        return Some(Ineligible::NoReplicationId(facts.server.clone()));
    }
    if facts.role != "master" {
        return Some(Ineligible::Replica(facts.role.clone()));
    }
    if facts.cluster_mode {
        return Some(Ineligible::ClusterMode);
    }
    if facts.replicas > 0 || facts.was_replicated() {
        return Some(Ineligible::HasReplicas(facts.replicas));
    }
    if facts.fingerprint.starts_with(RETIRED) {
        return Some(Ineligible::Retired(facts.fingerprint.chars().take(300).collect()));
    }
    if facts.eviction_policy != "noeviction" {
        return Some(Ineligible::EvictionPolicy(facts.eviction_policy.clone()));
    }
    if facts.sealed() && facts.fingerprint != fingerprint {
        return Some(Ineligible::OtherFingerprint {
            found: facts.fingerprint.chars().take(300).collect(),
            own: fingerprint.to_owned(),
        });
    }
    // This applies also without a seal: a restart does not make a server a member of another quorum.
    if let Some(own) = quorum
        && facts.fingerprint == fingerprint
        && facts.quorum.as_ref() != Some(own)
    {
        let found = facts.quorum.as_ref().map_or("(none)".into(), ToString::to_string);
        return Some(Ineligible::OtherQuorum {
            found,
            own: own.clone(),
        });
    }
    if facts.sealed() && facts.evicted > facts.evicted_at_seal {
        return Some(Ineligible::Evicted(facts.evicted - facts.evicted_at_seal));
    }
    None
}

/// Returns the facts of a server that votes under the fingerprint `f`.
#[cfg(test)]
pub(crate) fn fit() -> MasterFacts {
    MasterFacts {
        run_id: "a1".into(),
        server: Server::Redis("7.0.15".into()),
        role: "master".into(),
        eviction_policy: "noeviction".into(),
        seal: "a1".into(),
        fingerprint: "f".into(),
        quorum: QuorumId::parse(&"a".repeat(32)),
        replication_id: "b".repeat(40),
        replication_at_seal: "b".repeat(40) + "|0",
        ..MasterFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside_ended_backlog(facts: &mut MasterFacts, synchronisations: u64) {
        facts.replication_at_seal = "b".repeat(40) + "|3|backlog";
        facts.replication_id = "c".repeat(40);
        facts.synchronisations = synchronisations;
    }

    #[test]
    fn other_fingerprint_names_the_difference_and_the_remedy() {
        use crate::Fingerprint;
        use std::time::Duration;
        let fingerprint = |names: [&str; 3], longest: u64| {
            let names = names.map(str::to_owned).to_vec();
            Fingerprint::new(names, Duration::from_secs(longest), Duration::from_secs(1)).to_string()
        };
        let ours = fingerprint(["eu-a", "eu-b", "eu-c"], 60);
        let text = |found: String| {
            Ineligible::OtherFingerprint {
                found,
                own: ours.clone(),
            }
            .to_string()
        };
        let by_urls = text(fingerprint(["m0", "m1", "m2"], 60));
        for part in [
            "other master names: m0, m1, m2, as `redlock init --masters URL,…` names them",
            "this quorum has eu-a, eu-b, eu-c",
            "--quorum NAME",
        ] {
            assert!(by_urls.contains(part), "{by_urls}");
        }
        let named = text(fingerprint(["a", "b", "c"], 60));
        assert!(
            named.contains("other master names: a, b, c; this quorum has"),
            "{named}"
        );
        let shorter = text(fingerprint(["eu-a", "eu-b", "eu-c"], 5));
        assert!(
            shorter.contains("maxLeaseDurationSeconds: 5, and this quorum has 60"),
            "{shorter}"
        );
        assert_eq!(text("g".into()), "the server is sealed for another quorum: g");
    }

    #[test]
    fn master_with_replicas_is_refused_by_how_many_are_attached() {
        for (attached, part) in [
            (0, "a replica was attached to the server since it was sealed"),
            (1, "a replica is attached to the server and may be promoted"),
            (2, "2 replicas are attached"),
        ] {
            let text = Ineligible::HasReplicas(attached).to_string();
            assert!(text.starts_with(part), "{text}");
            assert!(text.contains("then restart this server"), "{text}");
        }
    }

    #[test]
    fn every_policy_that_evicts_is_refused_by_its_name() {
        for policy in [
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-lrm",
            "allkeys-random",
            "volatile-lru",
            "volatile-lfu",
            "volatile-lrm",
            "volatile-random",
            "volatile-ttl",
        ] {
            let facts = MasterFacts {
                eviction_policy: policy.into(),
                ..fit()
            };
            let text = check(&facts, "f", None).unwrap().to_string();
            let expected = format!("maxmemory-policy is {policy}; the policy must be noeviction");
            assert!(text.starts_with(&expected), "{text}");
        }
    }

    #[test]
    fn each_reason_has_a_name() {
        type Change = fn(&mut MasterFacts);
        let own = QuorumId::parse(&"a".repeat(32)).unwrap();
        let cases: [(Change, Option<Ineligible>); 25] = [
            (|_| {}, None),
            (|f| f.server = Server::Valkey("8.1.1".into()), None),
            (
                |f| f.server = Server::Redis("6.0.16".into()),
                Some(Ineligible::Server(Refusal::TooOld(Server::Redis(
                    "6.0.16".into(),
                )))),
            ),
            (
                |f| f.server = Server::Redis("what".into()),
                Some(Ineligible::Server(Refusal::NoVersion("what".into()))),
            ),
            // The program is reported first, whatever else is wrong with the server: its name helps most.
            (
                |f| {
                    f.server = Server::Dragonfly("df-v1.40.1".into());
                    f.run_id = String::new();
                    f.role = "slave".into();
                },
                server::refusal(&Server::Dragonfly("df-v1.40.1".into())).map(Ineligible::Server),
            ),
            (
                |f| f.run_id = String::new(),
                Some(Ineligible::NoRunId(Server::Redis("7.0.15".into()))),
            ),
            (
                |f| f.eviction_policy = String::new(),
                Some(Ineligible::EvictionPolicy(String::new())),
            ),
            (
                |f| f.role = "slave".into(),
                Some(Ineligible::Replica("slave".into())),
            ),
            (
                |f| f.replication_id = "0".repeat(40),
                Some(Ineligible::NoReplicationId(Server::Redis("7.0.15".into()))),
            ),
            (|f| f.replicas = 2, Some(Ineligible::HasReplicas(2))),
            // The replication id changed, or a replica was synchronised, since the seal.
            (
                |f| f.replication_id = "c".repeat(40),
                Some(Ineligible::HasReplicas(0)),
            ),
            (|f| f.synchronisations = 1, Some(Ineligible::HasReplicas(0))),
            // A seal beside a backlog ends with it; more synchronisations show a replica that was attached before.
            (|f| beside_ended_backlog(f, 3), None),
            (|f| beside_ended_backlog(f, 4), Some(Ineligible::HasReplicas(0))),
            // The data of an earlier seal does not count.
            (
                |f| {
                    f.seal = "a0".into();
                    f.replication_id = "c".repeat(40);
                },
                None,
            ),
            (
                |f| f.quorum = QuorumId::parse(&"c".repeat(32)),
                Some(Ineligible::OtherQuorum {
                    found: "c".repeat(32),
                    own: own.clone(),
                }),
            ),
            // A restart does not change the quorum.
            (
                |f| {
                    f.quorum = QuorumId::parse(&"c".repeat(32));
                    f.seal = String::new();
                },
                Some(Ineligible::OtherQuorum {
                    found: "c".repeat(32),
                    own: own.clone(),
                }),
            ),
            (|f| f.cluster_mode = true, Some(Ineligible::ClusterMode)),
            (
                |f| f.eviction_policy = "allkeys-lru".into(),
                Some(Ineligible::EvictionPolicy("allkeys-lru".into())),
            ),
            (
                |f| f.fingerprint = "g".into(),
                Some(Ineligible::OtherFingerprint {
                    found: "g".into(),
                    own: "f".into(),
                }),
            ),
            (|f| f.evicted = 3, Some(Ineligible::Evicted(3))),
            // Evictions before the seal do not count.
            (
                |f| (f.evicted, f.evicted_at_seal) = (5, 2),
                Some(Ineligible::Evicted(3)),
            ),
            (|f| (f.evicted, f.evicted_at_seal) = (2, 2), None),
            // A retirement does not depend on a seal.
            (
                |f| {
                    f.seal = String::new();
                    f.fingerprint = "retired: m2 is elsewhere".into();
                },
                Some(Ineligible::Retired("retired: m2 is elsewhere".into())),
            ),
            // The seal belongs to an earlier run: the data stored with it does not count.
            (
                |f| {
                    f.seal = "a0".into();
                    f.fingerprint = "g".into();
                },
                None,
            ),
        ];
        for (change, expected) in cases {
            let mut facts = fit();
            change(&mut facts);
            assert_eq!(check(&facts, "f", Some(&own)), expected, "{facts:?}");
        }
    }
}
