//! `redlock operator --standalone DIR`: the same objects as YAML files, no Kubernetes.
//!
//! [`manifests`] reads the folder, `folder` follows it, `desired` says what should run, `reconcile` makes it run,
//! [`operator`] owns the process. Targets are not switched from here.

mod config;
mod desired;
mod folder;
mod http;
pub mod manifests;
pub mod operator;
mod quorum;
mod readiness;
mod reconcile;
mod report;
mod state;

pub use config::{COMMAND_TIMEOUT, masters_config};
pub use operator::{Options, run};
