//! Checks objects by their rules, for every caller alike. Returns a plan, or every problem of the object.
//!
//! Pure, so that the manifests of a folder and the objects in a cluster get the same verdict. Never stops at the first
//! problem, and never repeats credentials that were written in the wrong place.

mod graces;
mod leftovers;
mod lock;
mod name;
mod patch;
mod problems;
mod quorum;
mod selector;
mod set;
mod target;
mod update;

pub use crate::masters::redact;
pub use graces::{Grace, Graces};
pub use leftovers::{leftovers, recorded_targets};
pub use lock::{LockNames, validate_lock};
pub(crate) use name::is_api_version;
pub use problems::FieldError;
pub use quorum::{check_key_prefix, validate_quorum};
pub(crate) use set::lock_name_taken;
pub use set::{duplicate_lock_names, shared_masters};
pub use update::{validate_lock_update, validate_quorum_update};
