//! Defines the request to pass a lock on, and its answer: two annotations of the LeaderLock.
//!
//! Only the holder can reserve the lock for another cluster, so the request goes to the holder. It names one lease by
//! its token. Once that lease has ended, which the hand-over itself causes, the request has no effect, regardless of
//! when a replica reads it.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::lease::ClusterId;

/// The annotation of the request that is not answered yet.
pub const REQUEST: &str = "redlock.dev/hand-over";
/// The annotation of the answer to the last request.
pub const ANSWER: &str = "redlock.dev/hand-over-answer";

/// The request to pass on the lease with this token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOverRequest {
    /// Distinguishes this request from every other.
    pub id: String,
    /// The cluster that receives the lease, as NAME/UID.
    pub to: String,
    /// The token of the lease that is passed on.
    pub token: u64,
    /// In Unix seconds. By then the requester has ended, and no longer expects the hand-over.
    pub not_after: u64,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOverAnswer {
    /// The `id` of the request.
    pub id: String,
    pub result: HandOverResult,
    /// The reason in words.
    pub message: String,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandOverResult {
    /// The holder released its lease with a reservation for the cluster. Only the masters show whether they have
    /// recorded it.
    Reserving,
    /// The holder did nothing.
    Refused,
}

impl HandOverRequest {
    /// Returns the cluster, if `to` is NAME/UID.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        // A name alone parses as a cluster with a UID that no cluster has.
        self.to.contains('/').then(|| self.to.parse().ok()).flatten()
    }
}

/// Reads the value of an annotation. A value that cannot be read was written by hand or by a later version.
#[must_use]
pub fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_lease_and_one_cluster() {
        let text = r#"{"id":"a","to":"us-1/8f0c","token":7,"notAfter":9}"#;
        let request: HandOverRequest = read(text).unwrap();
        assert_eq!(request.cluster().unwrap().uid(), "8f0c");
        assert_eq!(request.token, 7);
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(
            HandOverRequest {
                to: "us-1".into(),
                ..request
            }
            .cluster(),
            None
        );
        for bad in ["", "us-1", "{}", r#"{"id":"a","to":"us-1/8f0c","notAfter":9}"#] {
            assert_eq!(read::<HandOverRequest>(bad), None, "{bad}");
        }
    }
}
