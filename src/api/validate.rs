//! The rules that hold for objects, for every caller: returns a plan for an object, or all of its problems.
//!
//! Pure, so that a folder of manifests and objects in a cluster are judged alike. Does not stop at the first problem,
//! and never repeats credentials from a field that must not contain any.

mod graces;
mod leftovers;
mod lock;
mod master_url;
mod name;
mod problems;
mod quorum;
mod selector;
mod set;
mod target;
mod update;

pub use graces::{Grace, Graces};
pub use leftovers::leftovers;
pub use lock::{LockNames, validate_lock};
pub use master_url::redact;
pub(crate) use name::is_api_version;
pub use problems::FieldError;
pub use quorum::{check_key_prefix, validate_quorum};
pub(crate) use set::lock_name_taken;
pub use set::{duplicate_lock_names, shared_masters};
pub use update::{validate_lock_update, validate_quorum_update};
