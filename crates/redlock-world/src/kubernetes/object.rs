//! The key of an object, and access to the metadata of a JSON object.

use serde_json::{Map, Value};

use super::resource::ResourceId;

/// The identity of an object: its resource, its namespace (empty for a cluster-scoped kind) and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub resource: ResourceId,
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(resource: ResourceId, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            resource,
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub(super) fn place(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.resource, self.namespace, self.name)
    }
}

/// Returns a text of the metadata; empty if it is absent.
pub(super) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(super) fn is_deleting(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

pub(super) fn finalizers(object: &Value) -> Vec<String> {
    let all = object["metadata"]["finalizers"].as_array();
    all.into_iter()
        .flatten()
        .filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

pub(super) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let metadata = metadata_of(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), finalizers.into());
    }
}

/// Returns the metadata for a change. Creates it if it is absent or not an object.
pub(super) fn metadata_of(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().expect("was made an object above")
}

/// Sets a field or removes it.
pub(super) fn put(object: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            object.insert(field.to_owned(), value);
        }
        None => {
            object.remove(field);
        }
    }
}
