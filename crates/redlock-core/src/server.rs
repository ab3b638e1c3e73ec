//! Identifies the program behind a url by the fields of its INFO, and refuses programs that cannot be a master.

use std::fmt;

use thiserror::Error;

use crate::unknown::shown;

/// A program and its own version. Several of them also report the version of Redis that they imitate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Server {
    /// INFO was not read, or has no field that names the program. [`refusal`] reports the missing version.
    #[default]
    Unknown,
    /// Redis, or a program that gives no sign of being another one.
    Redis(String),
    Valkey(String),
    KeyDb {
        version: String,
        active_replica: bool,
    },
    /// A program with an unknown name that is compatible with this version of Redis.
    Other {
        name: String,
        compatible: String,
    },
    Dragonfly(String),
    Garnet(String),
    Upstash(String),
    MemoryDb(String),
    Sentinel(String),
}

/// The reason why a program cannot be a master, and the remedy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    #[error("{0} is too old; Redis 6.2, Valkey 7.2 or newer is needed")]
    TooOld(Server),
    #[error("the server reports no readable version ({0:?}); Redis 6.2, Valkey 7.2 or newer is needed")]
    NoVersion(String),
    #[error("{0} cannot be a master: {why}; {instead}", why = .1.0, instead = .1.1)]
    Unfit(Server, Fault),
}

/// The property that a program lacks, and the remedy.
pub type Fault = (&'static str, &'static str);

/// The first version of Redis with everything that the scripts use.
const OLDEST: (u32, u32) = (6, 2);

const USE_ANOTHER: &str = "use Redis 6.2, Valkey 7.2 or newer";
const DRAGONFLY: Fault = (
    "its INFO has no run_id, so a restart that loses leases is not detected",
    USE_ANOTHER,
);
const GARNET: Fault = (
    "its INFO has neither maxmemory_policy nor evicted_keys, so lost leases are not detected",
    USE_ANOTHER,
);
const ACTIVE_REPLICA: Fault = (
    "active replicas all accept writes and merge them later, so two candidates could hold one lock",
    "set active-replica no and run REPLICAOF NO ONE",
);
const UPSTASH: Fault = (
    "after a failover, a replica that may lack the last leases answers at the same url",
    USE_ANOTHER,
);
const MEMORYDB: Fault = (
    "the service has cluster mode only, and every master must be an independent server",
    "use a service without cluster mode, or run the servers yourself",
);
const SENTINEL: Fault = (
    "a Sentinel stores no keys",
    "give the url of a server that no Sentinel monitors",
);

/// Returns the program, by `INFO server` and the other sections that name it.
#[must_use]
pub fn identify(info: &str) -> Server {
    let field = |name| field(info, name);
    // Names and versions are written into statuses and logs.
    let printed = |text: &str| shown(text, 40);
    let compatible = || printed(field("redis_version").unwrap_or_default());
    let version = |name| field(name).map_or_else(compatible, printed);
    let active_replica = field("role") == Some("active-replica");
    if field("dragonfly_version").is_some() {
        return Server::Dragonfly(version("dragonfly_version"));
    }
    if field("garnet_version").is_some() {
        return Server::Garnet(version("garnet_version"));
    }
    if field("upstash_version").is_some() {
        return Server::Upstash(version("upstash_version"));
    }
    if mode(info) == Some("sentinel") {
        return Server::Sentinel(version("valkey_version"));
    }
    if field("os") == Some("Amazon MemoryDB") {
        return Server::MemoryDb(version("valkey_version"));
    }
    if active_replica || field("mvcc_depth").is_some() {
        return Server::KeyDb {
            version: compatible(),
            active_replica,
        };
    }
    if field("valkey_version").is_some() {
        return Server::Valkey(version("valkey_version"));
    }
    if field("kvrocks_version").is_some() {
        return other("Kvrocks", compatible());
    }
    match (field("server_name"), field("redis_version")) {
        (Some(name), _) if !["", "redis"].contains(&name) => other(name, compatible()),
        (_, Some(version)) => Server::Redis(printed(version)),
        (_, None) => Server::Unknown,
    }
}

fn other(name: &str, compatible: String) -> Server {
    Server::Other {
        name: shown(name, 40),
        compatible,
    }
}

/// Returns the reason why this program cannot be a master, whatever its role and its other settings. An
/// unknown program is judged by its version, and elsewhere by its report of each feature that is needed.
#[must_use]
pub fn refusal(server: &Server) -> Option<Refusal> {
    let unfit = |fault| Some(Refusal::Unfit(server.clone(), fault));
    let version = match server {
        Server::Dragonfly(_) => return unfit(DRAGONFLY),
        Server::Garnet(_) => return unfit(GARNET),
        Server::Upstash(_) => return unfit(UPSTASH),
        Server::MemoryDb(_) => return unfit(MEMORYDB),
        Server::Sentinel(_) => return unfit(SENTINEL),
        Server::KeyDb {
            active_replica: true, ..
        } => return unfit(ACTIVE_REPLICA),
        Server::Unknown => "",
        Server::Redis(version)
        | Server::Valkey(version)
        | Server::KeyDb { version, .. }
        | Server::Other {
            compatible: version, ..
        } => version,
    };
    match number(version) {
        None => Some(Refusal::NoVersion(version.chars().take(40).collect())),
        Some(found) if found < OLDEST => Some(Refusal::TooOld(server.clone())),
        Some(_) => None,
    }
}

/// Reports whether the server shows, by a field other than `cluster_enabled`, that it runs in cluster mode.
#[must_use]
pub fn in_cluster_mode(info: &str) -> bool {
    mode(info) == Some("cluster")
}

/// Returns the mode of the server. Valkey renamed the field.
fn mode(info: &str) -> Option<&str> {
    field(info, "redis_mode").or_else(|| field(info, "server_mode"))
}

/// Returns the value of a line of INFO.
#[must_use]
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().map(str::trim_end);
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

impl Server {
    /// Returns the name of the program, without its version.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown => "unknown server",
            Self::Redis(_) => "Redis",
            Self::Valkey(_) => "Valkey",
            Self::KeyDb { .. } => "KeyDB",
            Self::Other { name, .. } => name,
            Self::Dragonfly(_) => "Dragonfly",
            Self::Garnet(_) => "Garnet",
            Self::Upstash(_) => "Upstash",
            Self::MemoryDb(_) => "Amazon MemoryDB",
            Self::Sentinel(_) => "Sentinel",
        }
    }

    /// Returns the version of the program; of an unknown program, the version of Redis with which it is compatible.
    /// Empty if none is reported.
    #[must_use]
    pub fn version(&self) -> &str {
        match self {
            Self::Unknown => "",
            Self::Redis(version)
            | Self::Valkey(version)
            | Self::KeyDb { version, .. }
            | Self::Dragonfly(version)
            | Self::Garnet(version)
            | Self::Upstash(version)
            | Self::MemoryDb(version)
            | Self::Sentinel(version) => version,
            Self::Other { compatible, .. } => compatible,
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(self.name()),
            Self::Other { name, compatible } => write!(f, "{name} (compatible with Redis {compatible})"),
            Self::KeyDb {
                version,
                active_replica: true,
            } => write!(f, "KeyDB {version} with active replicas"),
            server => write!(f, "{} {}", server.name(), server.version()),
        }
    }
}

#[cfg(test)]
mod tests;
