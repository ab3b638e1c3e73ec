//! `redlock operator --standalone DIR`: the same objects as YAML files, without Kubernetes.
//!
//! [`manifests`] reads the folder, `folder` follows it, `desired` decides the desired state, `reconcile` establishes
//! it, [`process`] owns the process. It switches no targets.

mod desired;
mod folder;
pub(crate) mod manifests;
pub(crate) mod process;
mod reconcile;
mod report;

pub(crate) use process::{OperatorError, Options, run};
