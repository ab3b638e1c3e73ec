//! Bounds of what the API server may deliver: without them, the objects of one namespace could use up the memory of every
//! replica.
//!
//! The definitions bound each text, list and map. They can bound neither the values inside of one that may be any JSON, nor
//! the size of a whole object: [`super::validate`] bounds the former, and [`super::readable`] the latter.

use serde_json::Value;

/// The longest any-value of the action Patch, as JSON. Most are a number, a word, or a short map.
pub(crate) const VALUE_LIMIT: usize = 4_096;
/// The longest message that the operator writes, in bytes. The definitions bound messages of other writers by as many
/// characters.
pub(crate) const MESSAGE_LIMIT: usize = 1_024;
/// The most conditions in a status.
pub(crate) const CONDITION_LIMIT: usize = 32;
/// The most clusters in the status of a quorum.
pub(crate) const REPORTER_LIMIT: usize = 256;

/// The longest spec of a lock, as JSON: 32 targets of twice the usual size. Plan and tasks of a lock take about 17 times as much
/// memory.
pub(crate) const LOCK_SPEC_LIMIT: usize = 16_384;
/// The longest spec of a quorum, as JSON: an administrator writes it, and its sharedLockNames may list many namespaces.
pub(crate) const QUORUM_SPEC_LIMIT: usize = 262_144;
/// The longest status, as JSON: more than the conditions, targets and reporters that the operator writes.
pub(crate) const STATUS_LIMIT: usize = 131_072;
/// The longest record of the targets in force, as JSON: the targets of a spec, and those of an earlier one that are not known
/// to be stopped.
pub(crate) const RECORD_LIMIT: usize = 32_768;

/// Returns the length of a value as JSON; `None` if it is within the limit.
pub(crate) fn excess(value: &Value, limit: usize) -> Option<usize> {
    let length = value.to_string().len();
    (length > limit).then_some(length)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn value_is_as_long_as_its_json() {
        let value = json!({"a": "é", "b": [1, null]});
        let length = value.to_string().len();
        assert_eq!(excess(&value, length), None);
        assert_eq!(excess(&value, length - 1), Some(length));
    }
}
