//! Names objects, trims their metadata and orders them by age.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(super) use crate::targets::{ObjectKey, is_older};

/// Prefix of the annotations that this operator reads.
const OURS: &str = "redlock.dev/";

/// Drops the fields that are never read: for ten thousand objects, managedFields alone take more memory than all fields
/// that are read.
pub(super) fn trim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.labels = None;
    metadata.owner_references = None;
    metadata.self_link = None;
    metadata.generate_name = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|name, _| name.starts_with(OURS));
    }
    metadata.annotations.take_if(|annotations| annotations.is_empty());
}

/// Returns the sort key that puts the older object first; the name decides between equal timestamps.
pub(super) fn age(metadata: &ObjectMeta) -> (i64, String, String) {
    let created = metadata.creation_timestamp.as_ref();
    (
        created.map_or(i64::MAX, |time| time.0.as_second()),
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}
