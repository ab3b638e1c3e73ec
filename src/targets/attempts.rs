//! Tracks the writes of one stop, and decides to which version of the object each write applies.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// The version of an object to which a write of a stop applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    /// Only the version that was read: the object has not been started since.
    Version,
    /// Any version of the same object. Its controller may write to it faster than the operator reads it, and
    /// a stop that is due must succeed. The API server ignores a UID in the scale of a custom resource: the
    /// write then applies to any object of that name.
    Uid,
}

impl Precondition {
    /// Adds the precondition to a merge patch of the object that was read.
    pub(super) fn require(self, patch: &mut Value, read: &ObjectMeta) {
        let (key, value) = match self {
            Self::Version => ("resourceVersion", &read.resource_version),
            Self::Uid => ("uid", &read.uid),
        };
        // A null value would remove the precondition.
        if let Some(value) = value {
            patch["metadata"][key] = json!(value);
        }
    }
}

/// Whether the stop sent a write whose effect is not known: it met a conflict, or was not answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    sent: bool,
}

impl Attempts {
    /// Returns the precondition of the next write, and records that the write is sent.
    pub(super) const fn send(&mut self) -> Precondition {
        let before = std::mem::replace(&mut self.sent, true);
        if before {
            Precondition::Uid
        } else {
            Precondition::Version
        }
    }

    /// Resets the state, because the stop is written, the object needs no stop, or the permit to stop is
    /// gone.
    pub(super) const fn settle(&mut self) {
        self.sent = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_after_one_that_is_not_known_to_be_done_is_for_any_version() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.send(), Precondition::Version);
        assert_eq!([attempts.send(), attempts.send()], [Precondition::Uid; 2]);
        attempts.settle();
        assert_eq!(attempts.send(), Precondition::Version);
    }
}
