//! Contains the parts that both forms of the operator share: a running quorum, and the HTTP server.
//!
//! Owns no source of objects: [`crate::standalone`] reads them from files, [`crate::controller`] from an API server.

pub(crate) mod access;
pub(crate) mod api_server;
pub(crate) mod config;
pub(crate) mod duration;
pub(crate) mod error;
pub(crate) mod given;
pub(crate) mod guarded;
pub(crate) mod http;
pub(crate) mod metrics_watcher;
pub(crate) mod process;
pub(crate) mod process_limits;
pub(crate) mod quorum;
pub(crate) mod quorums;
pub(crate) mod readiness;
pub(crate) mod sibling;
pub(crate) mod signals;
pub(crate) mod state;

pub(crate) use config::masters_config;
