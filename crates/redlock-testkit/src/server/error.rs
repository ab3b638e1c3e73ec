//! The errors of a Redis server of the testkit.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum RedisServerError {
    #[error(
        "finding redis-server: no program redis-server or valkey-server in PATH; install the package \
         `redis-server` (Debian, Ubuntu) or `redis` (elsewhere), or run scripts/install-tools"
    )]
    Missing,
    #[error("asking {program:?} for its version: {output:?} names none; Redis 6.2 or newer is needed")]
    NoVersion { program: PathBuf, output: String },
    #[error("finding redis-server: {program:?} is version {major}.{minor}; 6.2 or newer is needed")]
    TooOld {
        program: PathBuf,
        major: u32,
        minor: u32,
    },
    #[error("choosing a port for redis-server: none of {tried} ports from {first} to {last} is free")]
    NoPort { tried: u16, first: u16, last: u16 },
    #[error("preparing the folder of a redis-server: {path:?} is not usable")]
    Folder { path: PathBuf, source: io::Error },
    #[error("starting {program:?} failed")]
    Spawn { program: PathBuf, source: io::Error },
    #[error("starting redis-server: port {port} was taken by another program; its log ends:\n{log}")]
    PortTaken { port: u16, log: String },
    #[error("redis-server on port {port} ended by itself; its log ends:\n{log}")]
    Ended { port: u16, log: String },
    #[error("starting redis-server on port {port}: no answer to PING within {bound:?}; its log ends:\n{log}")]
    Silent { port: u16, bound: Duration, log: String },
    #[error(
        "stopping redis-server on port {port}: still there {bound:?} after SIGTERM, killed; its log ends:\n{log}"
    )]
    StillRunning { port: u16, bound: Duration, log: String },
    #[error("signalling redis-server on port {port}: it is not running; restart it first")]
    NotRunning { port: u16 },
    #[error("sending {signal} to redis-server on port {port} failed")]
    Signal {
        signal: &'static str,
        port: u16,
        source: nix::Error,
    },
}
