//! The metadata that the server sets and keeps.

use serde_json::{Map, Value};

use super::{
    error::{ApiError, FieldError},
    object::{finalizers, is_deleting, meta, metadata_of, put},
    registry::ResourceKind,
    resource::ResourceId,
    state::State,
    write::Subresource,
};

/// The metadata that an update cannot change.
const KEPT: [&str; 9] = [
    "name",
    "namespace",
    "generateName",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
];
const OTHER_NAMESPACE: &str =
    "the namespace of the provided object does not match the namespace sent on the request";
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl State {
    /// Sets the metadata of a new object.
    pub(super) fn begin_metadata(
        &mut self,
        kind: &ResourceKind,
        namespace: &str,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        check_type(kind, object)?;
        if !meta(object, "resourceVersion").is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(500, "", why));
        }
        let stated = meta(object, "namespace");
        if kind.is_namespaced && !stated.is_empty() && stated != namespace {
            return Err(ApiError::bad_request(OTHER_NAMESPACE));
        }
        let prefix = meta(object, "generateName").to_owned();
        let name = meta(object, "name").to_owned();
        let name = if name.is_empty() && !prefix.is_empty() {
            prefix + &self.suffix()
        } else {
            name
        };
        let (uid, created) = (self.uid(), self.second());
        let metadata = metadata_of(object);
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
        ] {
            metadata.remove(field);
        }
        drop_empty(metadata);
        metadata.insert("name".to_owned(), name.into());
        put(
            metadata,
            "namespace",
            kind.is_namespaced.then(|| namespace.into()),
        );
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), created.into());
        if kind.has_generation {
            metadata.insert("generation".to_owned(), 1.into());
        }
        Ok(())
    }

    fn suffix(&mut self) -> String {
        let one = |_| char::from(LETTERS[self.rng.usize(..LETTERS.len())]);
        (0..5).map(one).collect()
    }

    /// Refuses a new object in a namespace that does not exist or is being deleted.
    pub(super) fn check_namespace(
        &self,
        id: &ResourceId,
        namespace: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        let place = (String::new(), namespace.to_owned());
        let found = self
            .objects
            .get(&ResourceId::NAMESPACES)
            .and_then(|all| all.get(&place));
        let Some(found) = found else {
            return Err(ApiError::not_found(&ResourceId::NAMESPACES, namespace));
        };
        if is_deleting(found) {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let mut error = ApiError::forbidden(id, name, &why);
            error.details["causes"] = serde_json::json!([{
                "reason": "NamespaceTerminating", "field": "metadata.namespace",
                "message": format!("namespace {namespace} is being terminated"),
            }]);
            return Err(error);
        }
        Ok(())
    }
}

/// Refuses an object of another kind than that of the path; sets kind and version if they are absent.
fn check_type(kind: &ResourceKind, object: &mut Value) -> Result<(), ApiError> {
    metadata_of(object);
    for (field, expected) in [("kind", kind.kind.clone()), ("apiVersion", kind.api_version())] {
        let stated = object[field].as_str().unwrap_or_default();
        if !stated.is_empty() && stated != expected {
            let why =
                format!("the object provided is unrecognized: {field} {stated:?}, expected {expected:?}");
            return Err(ApiError::bad_request(why));
        }
        object[field] = expected.into();
    }
    Ok(())
}

/// Removes empty lists, maps and nulls, which the typed metadata omits.
pub(super) fn drop_empty(metadata: &mut Map<String, Value>) {
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            !fields.is_empty()
        }
        _ => true,
    });
}

/// Checks the preconditions of an update, and keeps the metadata that it cannot change.
pub(super) fn keep_metadata(
    kind: &ResourceKind,
    before: &Value,
    after: &mut Value,
    needs_version: bool,
) -> Result<(), ApiError> {
    check_type(kind, after)?;
    let name = meta(before, "name");
    check_uid(&kind.id, name, meta(after, "uid"), before)?;
    let version = meta(after, "resourceVersion");
    if !version.is_empty() && version != meta(before, "resourceVersion") {
        return Err(ApiError::modified(&kind.id, name));
    }
    if version.is_empty() && needs_version {
        return Err(ApiError::without_version(&kind.id, name));
    }
    let stated = meta(after, "name");
    if !stated.is_empty() && stated != name {
        let why = format!("the name of the object ({stated}) does not match the name on the URL ({name})");
        return Err(ApiError::bad_request(why));
    }
    let stated = meta(after, "namespace");
    if kind.is_namespaced && !stated.is_empty() && stated != meta(before, "namespace") {
        return Err(ApiError::bad_request(OTHER_NAMESPACE));
    }
    let metadata = metadata_of(after);
    for field in KEPT.iter().chain(&["resourceVersion"]) {
        put(metadata, field, before["metadata"].get(field).cloned());
    }
    drop_empty(metadata);
    Ok(())
}

pub(super) fn check_uid(id: &ResourceId, name: &str, wanted: &str, before: &Value) -> Result<(), ApiError> {
    let found = meta(before, "uid");
    if wanted.is_empty() || wanted == found {
        Ok(())
    } else {
        Err(ApiError::wrong_uid(id, name, wanted, found))
    }
}

/// Refuses a patch that would change the UID or the time of the deletion. Unlike an update with another UID, that is no conflict.
pub(super) fn check_patched_metadata(
    kind: &ResourceKind,
    before: &Value,
    after: &Value,
) -> Result<(), ApiError> {
    for field in ["uid", "deletionTimestamp"] {
        let wanted = meta(after, field);
        if !wanted.is_empty() && wanted != meta(before, field) {
            let error =
                FieldError::invalid(format!("metadata.{field}"), &wanted.into(), "field is immutable");
            // The server reports it twice: it validates the metadata in two layers.
            return Err(ApiError::invalid(
                kind,
                meta(before, "name"),
                &[error.clone(), error],
            ));
        }
    }
    Ok(())
}

/// Increments the generation if the update changes more than status and metadata.
pub(super) fn count_generation(
    kind: &ResourceKind,
    subresource: Subresource,
    before: &Value,
    after: &mut Value,
) {
    let is_status = subresource == Subresource::Status;
    if kind.has_generation && !is_status && is_specified_anew(kind, before, after) {
        bump_generation(after);
    }
}

pub(super) fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

fn is_specified_anew(kind: &ResourceKind, before: &Value, after: &Value) -> bool {
    if !kind.is_custom() {
        let annotations = |object: &Value| object["metadata"]["annotations"].clone();
        return before.get("spec") != after.get("spec")
            || (kind.id == ResourceId::DEPLOYMENTS && annotations(before) != annotations(after));
    }
    let counts = |name: &str| name != "metadata" && !(name == "status" && kind.has_status);
    let fields = |object: &Value| -> Vec<String> {
        let all = object.as_object().into_iter().flatten();
        all.map(|(name, _)| name.clone())
            .filter(|name| counts(name))
            .collect()
    };
    fields(before)
        .iter()
        .chain(&fields(after))
        .any(|name| before.get(name) != after.get(name))
}

/// Reports whether nothing keeps an object that is being deleted.
pub(super) fn may_vanish(kind: &ResourceKind, object: &Value) -> bool {
    let spec_finalizers = object["spec"]["finalizers"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    is_deleting(object)
        && finalizers(object).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or_default()
            == 0
        && !(kind.id == ResourceId::NAMESPACES && spec_finalizers)
}
