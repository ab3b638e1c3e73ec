//! The request to the holder of a lock to pass it on: two annotations of its LeaderLock.
//!
//! Only the holder can reserve, so it must receive the request. A request is for the lease with one token and for no
//! other: once that lease has ended, which the hand-over itself causes, the request has no effect on any reader at any
//! time.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::lease::ClusterId;

/// A request that is not answered yet.
pub const REQUEST: &str = "redlock.dev/hand-over";
/// How the last request was answered.
pub const ANSWER: &str = "redlock.dev/hand-over-answer";

/// Pass the lease with this token on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOverRequest {
    /// Distinguishes this request from every other.
    pub id: String,
    /// To this cluster, as NAME/UID.
    pub to: String,
    /// The lease that is passed on.
    pub token: u64,
    /// In Unix seconds: the client that requested it has left by then, and no longer expects it.
    pub not_after: u64,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOverAnswer {
    /// Of the request.
    pub id: String,
    pub result: HandOverResult,
    /// In words.
    pub message: String,
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandOverResult {
    /// The holder gave its lease up, with a reservation for the cluster. The masters show whether they have it.
    Reserving,
    /// Nothing was done.
    Refused,
}

impl HandOverRequest {
    /// The cluster, if `to` is one.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        // A name alone would stand for a UID that no cluster has.
        self.to.contains('/').then(|| self.to.parse().ok()).flatten()
    }
}

/// Reads an annotation. What cannot be read was written by hand, or by a later version.
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
