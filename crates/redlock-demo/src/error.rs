//! The errors that end the demo early.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use super::manifests::ManifestError;
use super::replica::ReplicaError;
use redlock_client::masters::{ConfigError, InitError};
use redlock_testkit::RedisServerError;

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("starting the masters of the demo")]
    Redis(#[from] RedisServerError),
    #[error("preparing the manifests of the demo")]
    Manifests(#[from] ManifestError),
    #[error("preparing the folder of the demo: {path:?} is not usable")]
    Folder { path: PathBuf, source: io::Error },
    #[error("connecting to the masters of the demo")]
    Masters(#[from] ConfigError),
    #[error("sealing the new masters of the demo")]
    Init(#[from] InitError),
    #[error("observing the masters of the demo: a url cannot be used")]
    Observe(#[source] redis::RedisError),
    #[error("running the replicas of the demo")]
    Replica(#[from] ReplicaError),
    #[error("following the log {path:?}")]
    Follow { path: PathBuf, source: io::Error },
    #[error("starting the guard that cleans up after this program, /bin/sh")]
    Guard(#[source] io::Error),
    #[error("{name} ended by itself with {status}; it must run until the demo stops it")]
    ReplicaEnded { name: String, status: ExitStatus },
    #[error("a task of the observer ended; without it an overlap could go unseen")]
    ObserverEnded,
    #[error("{what}: not within {} s", bound.as_secs_f64())]
    Missed { what: String, bound: Duration },
    #[error("no replica called {0} runs")]
    NoReplica(String),
}
