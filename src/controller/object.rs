//! What is kept of an object, and how it is called.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(super) use crate::targets::{ObjectKey, is_older};

/// Prefix of the annotations that this operator reads.
const OURS: &str = "redlock.dev/";

/// Drops what is never read: of ten thousand objects, managedFields alone are more than all that is.
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

/// Which of two objects was there first; by name where the clock of the API server does not tell.
pub(super) fn age(metadata: &ObjectMeta) -> (i64, String, String) {
    let created = metadata.creation_timestamp.as_ref();
    (
        created.map_or(i64::MAX, |time| time.0.as_second()),
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}
