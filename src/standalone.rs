//! `redlock operator --standalone DIR`: the same objects as YAML files, no Kubernetes.
//!
//! [`manifests`] reads the folder, `folder` follows it, `desired` says what should run, `reconcile` makes it run,
//! [`process`] owns the process. Targets are not switched from here.

mod desired;
mod folder;
pub(crate) mod manifests;
pub(crate) mod process;
mod reconcile;
mod report;

pub(crate) use process::{OperatorError, Options, run};
