//! What cannot change once an object is there. The API server holds the same by the rules that see the old object; these
//! are for an object that was stored before a rule, or in a folder.

use std::collections::BTreeSet;

use super::problems::{FieldError, Problems, Quoted};
use crate::api::leader_lock::LeaderLockSpec;
use crate::api::reasons;
use crate::api::redis_quorum::RedisQuorumSpec;
use crate::lease::timing::DEFAULT_LONGEST_LEASE;
use crate::masters::DEFAULT_KEY_PREFIX;

/// Whether `new` may follow `old`.
///
/// # Errors
/// Every field that would change and cannot.
pub fn validate_lock_update(old: &LeaderLockSpec, new: &LeaderLockSpec) -> Result<(), Vec<FieldError>> {
    let mut problems = Problems::default();
    if old.lock_name != new.lock_name {
        let given = new.lock_name.as_deref();
        problems.add(changed("spec.lockName", given, reasons::LOCK_NAME_CHANGED));
    }
    problems.verdict(())
}

/// Whether `new` may follow `old`. A default may be written down or left out.
///
/// # Errors
/// Every field that would change and cannot.
pub fn validate_quorum_update(old: &RedisQuorumSpec, new: &RedisQuorumSpec) -> Result<(), Vec<FieldError>> {
    let mut problems = Problems::default();
    if names(old) != names(new) || old.masters.len() != new.masters.len() {
        problems.add(FieldError::missing("spec.masters", reasons::MASTERS_CHANGED));
    }
    if key_prefix(old) != key_prefix(new) {
        let given = new.key_prefix.as_deref();
        problems.add(changed("spec.keyPrefix", given, reasons::KEY_PREFIX_CHANGED));
    }
    if longest_lease(old) != longest_lease(new) {
        problems.add(FieldError::new(
            "spec.maxLeaseDurationSeconds",
            longest_lease(new),
            reasons::LONGEST_LEASE_CHANGED,
        ));
    }
    problems.verdict(())
}

fn changed(field: &str, given: Option<&str>, reason: &str) -> FieldError {
    match given {
        Some(given) => FieldError::new(field, Quoted(given), reason),
        None => FieldError::missing(field, reason),
    }
}

fn names(quorum: &RedisQuorumSpec) -> BTreeSet<&str> {
    quorum.masters.iter().map(|master| master.name.as_str()).collect()
}

fn key_prefix(quorum: &RedisQuorumSpec) -> &str {
    quorum.key_prefix.as_deref().unwrap_or(DEFAULT_KEY_PREFIX)
}

fn longest_lease(quorum: &RedisQuorumSpec) -> i64 {
    let default = i64::try_from(DEFAULT_LONGEST_LEASE.as_secs()).unwrap_or(i64::MAX);
    quorum.max_lease_duration_seconds.unwrap_or(default)
}
