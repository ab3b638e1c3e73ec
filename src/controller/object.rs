//! Names objects and orders them by age.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(super) use crate::{
    api::readable::trim,
    targets::{ObjectKey, is_older},
};

/// Returns the sort key that puts the older object first; the name decides between equal timestamps.
pub(super) fn age(metadata: &ObjectMeta) -> (i64, String, String) {
    let created = metadata.creation_timestamp.as_ref();
    (
        created.map_or(i64::MAX, |time| time.0.as_second()),
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}
