//! What is kept of an object, and how it is called.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

/// Prefix of the annotations that this operator reads.
const OURS: &str = "redlock.dev/";

/// Namespace and name of an object; the namespace is empty where the kind has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectKey {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl ObjectKey {
    pub(super) fn of(object: &impl ResourceExt) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

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

/// Resource versions of one kind are numbers that grow; where they are not, the newer arrival counts.
pub(super) fn is_older(object: &ObjectMeta, known: &ObjectMeta) -> bool {
    let version = |metadata: &ObjectMeta| metadata.resource_version.as_ref()?.parse::<u64>().ok();
    let same = object.uid == known.uid;
    same && matches!((version(object), version(known)), (Some(new), Some(known)) if new < known)
}
