//! The JSON of answers.

use bytes::Bytes;
use serde::Serializer as _;
use serde_json::{Value, json};

use super::registry::ResourceKind;

pub(super) const PARTIAL: &str = "as=PartialObjectMetadata";

pub(super) fn bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// Writes an item of a list: without its type, unless it is a custom resource.
pub(super) fn item(kind: &ResourceKind, item: &Value, body: &mut Vec<u8>) -> serde_json::Result<()> {
    let Some(fields) = item.as_object().filter(|_| !kind.is_custom()) else {
        return serde_json::to_writer(body, item);
    };
    let fields = fields
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind"));
    serde_json::Serializer::new(body).collect_map(fields)
}

/// Returns the object as `PartialObjectMetadata`.
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}
