//! Describes how to reach the masters of one quorum.

use std::{collections::BTreeMap, fmt, time::Duration};

use thiserror::Error;

use super::{
    Fingerprint, QuorumId,
    access::Access,
    master_url::{MasterUrl, MasterUrlError, redact},
};
use crate::{
    lease::{ClusterId, QuorumSize, timing},
    transport::Transport,
};

/// A password or key. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The user and password for the masters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// ACL user; Redis' `default` user when absent.
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// The logins of single masters, by the names of the masters, which replace the common one: no other master learns them.
    pub own: BTreeMap<String, MasterLogin>,
}

/// The user and password for one master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterLogin {
    /// The common user when absent.
    pub username: Option<String>,
    pub password: Secret,
}

impl Credentials {
    /// Returns the user and password for the master of this name.
    #[must_use]
    pub fn login(&self, master: &str) -> (Option<&str>, Option<&Secret>) {
        match self.own.get(master) {
            Some(own) => {
                let username = own.username.as_ref().or(self.username.as_ref());
                (username.map(String::as_str), Some(&own.password))
            }
            None => (self.username.as_deref(), self.password.as_ref()),
        }
    }
}

/// The PEM texts for `rediss://`; without a CA, the CAs of the system are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    pub ca: Option<Secret>,
    /// Certificate and key of the client.
    pub client: Option<(Secret, Secret)>,
    /// The certificates and keys of the client for single masters, by the names of the masters, which replace the common one.
    pub own: BTreeMap<String, (Secret, Secret)>,
}

impl Tls {
    /// Returns certificate and key of the client for the master of this name.
    #[must_use]
    pub fn client_for(&self, master: &str) -> Option<&(Secret, Secret)> {
        self.own.get(master).or(self.client.as_ref())
    }
}

/// One of the N Redis servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterConfig {
    pub name: String,
    /// `redis://HOST[:PORT][/DB]` or `rediss://…`, without user and password.
    pub url: String,
}

/// How the servers learn the scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptLoading {
    /// Each script is sent with its source when it first runs on a connection. A process that re-seals masters also keeps
    /// the script of the node agents in the caches of the servers.
    #[default]
    WithSource,
    /// A script is named by its hash; its source is sent only where the cache lacks the script. The user then needs no
    /// `eval`, which runs any script, while another process keeps the scripts in the caches. For programs that only read: a
    /// call that was sent later may overtake a script that is sent again.
    ByHash,
}

impl MasterConfig {
    pub(crate) fn parsed_url(&self) -> Result<MasterUrl, ConfigError> {
        MasterUrl::parse(&self.url).map_err(|reason| ConfigError::Url {
            name: self.name.clone(),
            url: redact(&self.url),
            reason,
        })
    }
}

#[derive(Clone, Debug)]
pub struct MastersConfig {
    /// The masters, in the order of the votes.
    pub masters: Vec<MasterConfig>,
    pub key_prefix: String,
    pub credentials: Credentials,
    pub tls: Tls,
    /// The cluster of this process, part of every lease and reservation.
    pub cluster: ClusterId,
    /// The deadline of one command at one master.
    pub command_timeout: Duration,
    pub longest_lease: Duration,
    /// T_acquire: no attempt lasts longer.
    pub acquire_limit: Duration,
    /// The id of the quorum, if it was stored outside the masters; the process then joins no other quorum.
    /// `None` stands for the id that a majority of the masters shows.
    pub quorum: Option<QuorumId>,
    /// Whether to re-seal masters that lost their memory, for programs that run for long. After a loss of a majority, a
    /// process seals only where it saw a majority carry this fingerprint, or where `quorum` is given. False for programs
    /// that only read: rotated credentials are then tried out without the scripts that write.
    pub reseal: bool,
    pub scripts: ScriptLoading,
    /// The way to the masters.
    pub transport: Transport,
}

/// The reason why a configuration cannot work.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("{} given; a quorum has 1, 3, 5 or 7", counted(.0))]
    Count(usize),
    #[error("master {name}: url {url:?} {reason}")]
    Url {
        name: String,
        /// Without secrets.
        url: String,
        reason: MasterUrlError,
    },
    #[error(
        "masters {first} and {second} have the same server {address}; every master must be a server of its own"
    )]
    SameServer {
        first: String,
        second: String,
        address: String,
    },
    #[error(
        "{what} of {} s given; at most {} s are allowed",
        given.as_secs_f64(), allowed.as_secs()
    )]
    TooLong {
        what: &'static str,
        given: Duration,
        allowed: Duration,
    },
    #[error("two masters have the name {0:?}; names must be unique")]
    SameName(String),
    #[error("no master has the name {name:?}; the masters are {names}")]
    NoSuchMaster { name: String, names: String },
    #[error("TLS certificates cannot be used: {0}; certificates and keys must be in PEM format")]
    Tls(String),
}

fn counted(masters: &usize) -> String {
    format!("{masters} {}", if *masters == 1 { "master" } else { "masters" })
}

/// The prefix of the keys on the masters, unless another one is given.
pub const DEFAULT_KEY_PREFIX: &str = "redlock";

impl MastersConfig {
    /// Returns a configuration of masters m0, m1, … at these urls, with the defaults of a `RedisQuorum`. It seals no
    /// master: the names and the longest lease of a quorum are those that its masters carry, which
    /// [`adopt_open`](super::adopt_open) reads. Every candidate must name the same masters.
    #[must_use]
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let masters = urls.into_iter().enumerate().map(|(index, url)| MasterConfig {
            name: format!("m{index}"),
            url: url.into(),
        });
        Self {
            masters: masters.collect(),
            key_prefix: DEFAULT_KEY_PREFIX.to_owned(),
            credentials: Credentials::default(),
            tls: Tls::default(),
            cluster: ClusterId::default(),
            command_timeout: timing::DEFAULT_COMMAND_TIMEOUT,
            longest_lease: timing::DEFAULT_LONGEST_LEASE,
            acquire_limit: timing::DEFAULT_ACQUIRE_LIMIT,
            quorum: None,
            reseal: false,
            scripts: ScriptLoading::default(),
            transport: Transport::tcp(),
        }
    }

    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let names = self.masters.iter().map(|m| m.name.clone()).collect();
        Fingerprint::new(names, self.longest_lease, self.acquire_limit)
    }

    /// Checks the number of the masters, their names and their urls.
    ///
    /// # Errors
    /// Returns an error for a wrong number of masters, for two with one name or server, and for urls that cannot be used.
    pub fn check_masters(&self) -> Result<(), ConfigError> {
        self.size()?;
        let mut servers: Vec<(&str, MasterUrl)> = Vec::new();
        for master in &self.masters {
            let url = master.parsed_url()?;
            for (first, other) in &servers {
                if *first == master.name {
                    return Err(ConfigError::SameName(master.name.clone()));
                }
                if other.address == url.address {
                    return Err(ConfigError::SameServer {
                        first: (*first).to_owned(),
                        second: master.name.clone(),
                        address: url.address,
                    });
                }
            }
            servers.push((&master.name, url));
        }
        Ok(())
    }

    pub(crate) fn size(&self) -> Result<QuorumSize, ConfigError> {
        QuorumSize::new(self.masters.len()).ok_or(ConfigError::Count(self.masters.len()))
    }

    /// Checks that a process that knows nothing of this quorum waits long enough before it seals a master.
    pub(crate) fn lengths(&self) -> Result<(), ConfigError> {
        let lengths = [
            (
                "a longest lease",
                self.longest_lease,
                timing::LONGEST_LEASE_ALLOWED,
            ),
            (
                "an acquire limit",
                self.acquire_limit,
                timing::LONGEST_ACQUIRE_LIMIT,
            ),
        ];
        match lengths.into_iter().find(|(_, given, allowed)| given > allowed) {
            Some((what, given, allowed)) => Err(ConfigError::TooLong { what, given, allowed }),
            None => Ok(()),
        }
    }

    pub(crate) fn access(&self) -> Access {
        Access {
            credentials: self.credentials.clone(),
            tls: self.tls.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        assert_eq!(format!("{:?}", Secret::new("hunter2".into())), "…");
    }
}
