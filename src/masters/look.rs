//! What the `look` script tells of a master.

use std::time::Duration;

use redis::Value;

use super::{random, reply, unknown::Unknown};

/// A master's own account of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub run_id: String,
    pub version: String,
    pub role: String,
    pub eviction_policy: String,
    pub evicted: u64,
    pub aof: bool,
    pub cluster_mode: bool,
    /// The run_id under which it may vote, empty if never sealed.
    pub seal: String,
    pub fingerprint: String,
    pub evicted_at_seal: u64,
    pub probe: String,
    pub counter: u64,
}

impl Facts {
    #[must_use]
    pub fn sealed(&self) -> bool {
        !self.run_id.is_empty() && self.seal == self.run_id
    }

    /// While it carries a probe of its present run: how long that has been there by the wall clock, for people. Whoever
    /// seals it measures on a clock of its own.
    #[must_use]
    pub fn probed_for(&self, unix_now: Duration) -> Option<Duration> {
        let rest = self.probe.strip_prefix(self.run_id.as_str())?.strip_prefix('|')?;
        let drawn = random::drawn_at(rest.rsplit('|').next()?)?;
        Some(unix_now.saturating_sub(drawn))
    }

    pub(crate) fn parse(counter: u64, items: &[Value]) -> Result<Self, Unknown> {
        let [
            run_id,
            version,
            role,
            policy,
            evicted,
            aof,
            cluster,
            seal,
            fingerprint,
            at_seal,
            probe,
        ] = items
        else {
            return Err(Unknown::Reply(format!("look gave {} fields", items.len())));
        };
        let text = |v| reply::text(v).map(str::to_owned);
        Ok(Self {
            run_id: text(run_id)?,
            version: text(version)?,
            role: text(role)?,
            eviction_policy: text(policy)?,
            evicted: reply::number(evicted)?,
            aof: text(aof)? == "1",
            cluster_mode: text(cluster)? == "1",
            seal: text(seal)?,
            fingerprint: text(fingerprint)?,
            evicted_at_seal: reply::number(at_seal)?,
            probe: text(probe)?,
            counter,
        })
    }
}
