//! Parses the reply of the `facts` script.

use std::time::Duration;

use crate::{
    QuorumId, Server, Unknown, quorum_id,
    reply::{self, Value},
    server,
    unknown::shown,
};

/// The end of `replication_at_seal` where a replication backlog stood at the seal.
const BACKLOG: &str = "|backlog";

/// The facts that a master reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct MasterFacts {
    pub run_id: String,
    pub server: Server,
    pub role: String,
    pub eviction_policy: String,
    pub evicted: u64,
    pub aof: bool,
    pub cluster_mode: bool,
    /// The run_id under which the server may vote; empty if the server was never sealed.
    pub seal: String,
    pub fingerprint: String,
    /// The id of the quorum, stored next to the fingerprint; `None` if the server was never sealed.
    pub quorum: Option<QuorumId>,
    pub evicted_at_seal: u64,
    pub probe: String,
    pub counter: u64,
    /// Number of replicas that are attached now.
    pub replicas: u64,
    pub replication_id: String,
    /// Number of synchronisations of replicas since the server started.
    pub synchronisations: u64,
    /// `<replication id>|<synchronisations>` at the seal, with `|backlog` where a replication backlog stood then.
    pub replication_at_seal: String,
}

impl MasterFacts {
    /// Reports whether the server carries the seal of its present process. A seal beside a backlog ends with it, since the
    /// replication id changes then, as by a promotion (P-26).
    #[must_use]
    pub fn sealed(&self) -> bool {
        self.was_sealed_by_this_run() && (self.has_id_of_seal() || !self.seal_ends_with_backlog())
    }

    /// Reports whether a replication backlog stood at the seal.
    #[must_use]
    pub fn seal_ends_with_backlog(&self) -> bool {
        self.replication_at_seal.ends_with(BACKLOG)
    }

    /// Reports whether a replica was attached since the seal, or the server was a replica itself: another
    /// server may have been promoted in its place. Of a seal that ended, only its synchronisations count (P-26).
    #[must_use]
    pub fn was_replicated(&self) -> bool {
        let count = self.replication_at_seal.split('|').nth(1);
        let synchronised = count.and_then(|count| count.parse().ok()) != Some(self.synchronisations);
        let has_other_id = !self.has_id_of_seal() && !self.seal_ends_with_backlog();
        self.was_sealed_by_this_run() && (synchronised || has_other_id)
    }

    fn was_sealed_by_this_run(&self) -> bool {
        !self.run_id.is_empty() && self.seal == self.run_id
    }

    /// Reports whether the replication id distinguishes this process from others.
    #[must_use]
    pub fn has_replication_id(&self) -> bool {
        let id = self.replication_id.as_bytes();
        id.len() == 40 && id.iter().all(u8::is_ascii_hexdigit) && id.iter().any(|digit| *digit != b'0')
    }

    fn has_id_of_seal(&self) -> bool {
        self.replication_at_seal.split('|').next() == Some(self.replication_id.as_str())
    }

    /// Returns how each probe of the present process begins. The replication id keeps a probe that a former replica
    /// copied from counting after a promotion.
    #[must_use]
    pub fn probe_prefix(&self) -> String {
        format!("{}|{}|", self.run_id, self.replication_id)
    }

    /// Reports whether the server carries a probe of its present process, whichever process wrote it; a probe of `init`
    /// counts like any other.
    #[must_use]
    pub fn carries_probe(&self) -> bool {
        self.probe.starts_with(&self.probe_prefix())
    }

    /// Returns the age of a probe of the present run by the wall clock, for display. A process that seals measures the
    /// wait on its own clock (P-70).
    #[must_use]
    pub fn probed_for(&self, unix_now: Duration) -> Option<Duration> {
        let rest = self.probe.strip_prefix(&self.probe_prefix())?;
        let drawn = drawn_at(rest.rsplit('|').next()?)?;
        Some(unix_now.saturating_sub(drawn))
    }

    /// Parses a reply. `whole` provides the facts that the reply to a brief poll omits, from a whole poll of the same
    /// process.
    ///
    /// # Errors
    /// Returns an error if the number of fields or the type of a field is wrong.
    pub fn parse(counter: u64, items: &[Value], whole: Option<&Self>) -> Result<Self, Unknown> {
        let mut facts = Self::parse_alone(counter, items)?;
        if let Some(whole) = whole
            && facts.run_id.is_empty()
            && facts.replication_id == whole.replication_id
        {
            facts.run_id.clone_from(&whole.run_id);
            facts.server.clone_from(&whole.server);
            facts.eviction_policy.clone_from(&whole.eviction_policy);
            facts.aof = whole.aof;
            facts.cluster_mode = whole.cluster_mode;
        }
        Ok(facts)
    }

    /// Returns the facts of a server whose program is refused, for a program that runs no script. Returns
    /// `None` if the program may be a master, since its other facts are unknown.
    #[must_use]
    pub fn refused(info: &str) -> Option<Self> {
        let server = server::identify(info);
        // Without a field that names the program, the server may be any program, or one that is still starting.
        if server == Server::Unknown {
            return None;
        }
        server::refusal(&server)?;
        Some(Self {
            run_id: shown(server::field(info, "run_id").unwrap_or_default(), 64),
            server,
            cluster_mode: server::in_cluster_mode(info),
            ..Self::default()
        })
    }

    fn parse_alone(counter: u64, items: &[Value]) -> Result<Self, Unknown> {
        let [
            run_id,
            info,
            role,
            policy,
            evicted,
            aof,
            cluster,
            seal,
            fingerprint,
            at_seal,
            probe,
            replicas,
            replication_id,
            synchronisations,
            replication_at_seal,
        ] = items
        else {
            return Err(Unknown::Reply(format!(
                "the read of the master's facts returned {} fields",
                items.len()
            )));
        };
        let text = |v| plain(v).map(str::to_owned);
        let info = reply::text(info)?;
        let (fingerprint, quorum) = quorum_id::split(plain(fingerprint)?);
        Ok(Self {
            run_id: text(run_id)?,
            server: server::identify(info),
            role: text(role)?,
            eviction_policy: text(policy)?,
            evicted: reply::number(evicted)?,
            aof: text(aof)? == "1",
            cluster_mode: text(cluster)? == "1" || server::in_cluster_mode(info),
            seal: text(seal)?,
            fingerprint: fingerprint.to_owned(),
            quorum,
            evicted_at_seal: reply::number(at_seal)?,
            probe: text(probe)?,
            counter,
            replicas: reply::number(replicas)?,
            replication_id: text(replication_id)?,
            synchronisations: reply::number(synchronisations)?,
            replication_at_seal: text(replication_at_seal)?,
        })
    }
}

/// The longest text of one fact, in bytes. A probe of `init` names the fingerprint with all masters.
const PLAIN_LIMIT: usize = 1_024;

/// Returns a text that people may read in a log or on a terminal: printable ASCII, as every server that can be a master sends.
fn plain(value: &Value) -> Result<&str, Unknown> {
    let text = reply::text(value)?;
    let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if text.len() > PLAIN_LIMIT || !text.bytes().all(printable) {
        return Err(Unknown::Reply(format!(
            "a fact of the master is not printable ASCII of at most {PLAIN_LIMIT} bytes: {:?}",
            shown(text, 40)
        )));
    }
    Ok(text)
}

/// Returns the time at which a probe was drawn, from its 32 hex digits: the first 12 are milliseconds since 1970, as in
/// a UUID of version 7.
#[must_use]
pub fn drawn_at(hex: &str) -> Option<Duration> {
    let millis = u64::from_str_radix(hex.get(..12).filter(|_| hex.len() == 32)?, 16).ok()?;
    Some(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(run_id: &str, policy: &str, replication_id: &str) -> Vec<Value> {
        let info = if run_id.is_empty() {
            ""
        } else {
            "# Server\r\nredis_version:7.0.15\r\nrole:master\r\n"
        };
        let texts = [
            run_id,
            info,
            "master",
            policy,
            "7",
            "",
            "",
            "a1",
            "f",
            "0",
            "",
            "0",
            replication_id,
            "0",
            "b1|0",
        ];
        texts.iter().map(|text| Value::from(*text)).collect()
    }

    #[test]
    fn facts_that_are_not_printable_are_refused() {
        let long = "a".repeat(PLAIN_LIMIT + 1);
        for text in ["\u{1b}[2J", "a\nb", "a\u{202e}b", "a\u{200b}b", &long] {
            let found = MasterFacts::parse(0, &reply(text, "noeviction", "b1"), None);
            let Err(Unknown::Reply(error)) = found else {
                panic!("{text:?}: {found:?}");
            };
            assert!(error.is_ascii() && error.len() < 200, "{error}");
        }
    }

    #[test]
    fn brief_read_keeps_the_facts_of_this_process_only() {
        let whole = MasterFacts::parse(0, &reply("a1", "noeviction", "b1"), None).unwrap();
        let brief = MasterFacts::parse(0, &reply("", "", "b1"), Some(&whole)).unwrap();
        assert_eq!(brief, whole);
        // A server that omits a requested value has no vote: it is too old.
        let other = MasterFacts::parse(0, &reply("", "", "b2"), Some(&whole)).unwrap();
        assert_eq!((other.run_id.as_str(), &other.server), ("", &Server::Unknown));
        let changed = MasterFacts::parse(0, &reply("a1", "allkeys-lru", "b1"), Some(&whole)).unwrap();
        assert_eq!(changed.eviction_policy, "allkeys-lru");
    }

    #[test]
    fn flags_of_a_server_are_read() {
        for (aof, cluster) in [("", "1"), ("1", "0"), ("0", "0"), ("1", "1")] {
            let mut items = reply("a1", "noeviction", "b1");
            (items[5], items[6]) = (aof.into(), cluster.into());
            let facts = MasterFacts::parse(0, &items, None).unwrap();
            assert_eq!((facts.aof, facts.cluster_mode), (aof == "1", cluster == "1"));
        }
    }

    #[test]
    fn probe_of_the_present_run_shows_since_when_it_is_there() {
        let probe = |text: &str| MasterFacts {
            run_id: "a1".into(),
            replication_id: "b1".into(),
            probe: text.into(),
            ..MasterFacts::default()
        };
        // Drawn 10 s after 1970.
        let drawn = format!("{:012x}{:020x}", 10_000, 7);
        let since = |text: &str| probe(text).probed_for(Duration::from_secs(15));
        assert_eq!(since(&format!("a1|b1|{drawn}")), Some(Duration::from_secs(5)));
        assert_eq!(since(&format!("a1|b1|x|{drawn}")), Some(Duration::from_secs(5)));
        assert_eq!(since(&format!("a0|b1|{drawn}")), None, "an earlier run");
        assert_eq!(since(&format!("a1|b0|{drawn}")), None, "before a promotion");
        assert_eq!(since(&format!("a1|b1|{}", &drawn[1..])), None, "no 32 digits");
        assert_eq!(since(""), None);
    }
}
