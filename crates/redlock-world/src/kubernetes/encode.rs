//! The JSON of answers.

use bytes::Bytes;
use serde_json::{Value, json};

pub(super) const PARTIAL: &str = "as=PartialObjectMetadata";

pub(super) fn bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// Returns the object as `PartialObjectMetadata`.
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}
