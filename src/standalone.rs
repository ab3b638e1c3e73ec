//! `redlock operator --standalone DIR`: the same objects as YAML files, without Kubernetes.
//!
//! [`manifests`] reads the folder, `folder` follows it, `desired` derives the locks to contend for,
//! `reconcile` applies them, [`process`] owns the process. Targets are not switched here.

mod desired;
mod folder;
pub(crate) mod manifests;
pub(crate) mod process;
mod reconcile;
mod report;

pub(crate) use process::{OperatorError, Options, run};
