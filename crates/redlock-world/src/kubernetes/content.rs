//! The content of an object on its way into the database: patches, pruning, defaults and subresources.

use serde_json::{Value, json};

use super::{
    access::Verb,
    defaults,
    error::{ApiError, FieldError},
    managed::FieldConflict,
    merge::{json_patch, merge_patch},
    object::{metadata_of, put},
    registry::ResourceKind,
    resource::ResourceId,
    shape::Shape,
    strategic::strategic_patch,
    write::{Patch, Subresource, WriteRequest},
};

pub(super) fn change(kind: &ResourceKind, object: &mut Value, patch: &Patch) -> Result<(), ApiError> {
    match patch {
        Patch::Merge(patch) => merge_patch(object, patch),
        Patch::Json(patch) => json_patch(object, patch)?,
        Patch::Strategic(patch) | Patch::Apply { config: patch, .. } => {
            strategic_patch(object, patch, Shape::of(kind.schema.as_deref()));
        }
    }
    Ok(())
}

/// Prunes a custom resource and sets defaults.
pub(super) fn complete(
    kind: &ResourceKind,
    object: &mut Value,
    request: WriteRequest<'_>,
) -> Result<(), ApiError> {
    let Some(schema) = &kind.schema else {
        defaults::apply(kind, object);
        return Ok(());
    };
    let mut unknown = Vec::new();
    schema.prune_root(object, &mut unknown);
    if request.options.is_strict && !unknown.is_empty() {
        let fields: Vec<String> = unknown
            .iter()
            .map(|field| format!("unknown field {field:?}"))
            .collect();
        let why = format!("strict decoding error: {}", fields.join(", "));
        if request.verb == Verb::Patch {
            let error = FieldError::invalid("patch", object, &why);
            return Err(ApiError::invalid(kind, "", &[error]));
        }
        let (name, version) = (&kind.kind, &kind.version);
        let why = format!("{name} in version {version:?} cannot be handled as a {name}: {why}");
        return Err(ApiError::bad_request(why));
    }
    schema.fill(object);
    Ok(())
}

pub(super) fn new_status(kind: &ResourceKind, object: &mut Value) {
    if !kind.has_status {
        return;
    }
    let status = if kind.is_custom() {
        None
    } else {
        defaults::status(kind, object)
    };
    if let Some(fields) = object.as_object_mut() {
        put(fields, "status", status);
    }
}

/// Sets the default of an absent status, which a read would set.
pub(super) fn fill_status(kind: &ResourceKind, object: &mut Value) {
    if let Some(schema) = &kind.schema {
        schema.fill(object);
    }
}

/// Keeps the fields that the subresource does not cover.
pub(super) fn restrict(kind: &ResourceKind, subresource: Subresource, before: &Value, after: &mut Value) {
    let keep = |after: &mut Value, field: &str| {
        if let Some(fields) = after.as_object_mut() {
            put(fields, field, before.get(field).cloned());
        }
    };
    match subresource {
        Subresource::Main | Subresource::Scale => {
            if kind.has_status {
                keep(after, "status");
            }
            if kind.id == ResourceId::NAMESPACES {
                keep(after, "spec");
            }
        }
        Subresource::Finalize => keep(after, "status"),
        Subresource::Status if kind.is_custom() => {
            let status = after.get("status").cloned();
            let managed = after["metadata"].get("managedFields").cloned();
            *after = before.clone();
            if let Some(fields) = after.as_object_mut() {
                put(fields, "status", status);
            }
            put(metadata_of(after), "managedFields", managed);
        }
        Subresource::Status => {
            keep(after, "spec");
            let metadata = metadata_of(after);
            for field in ["labels", "ownerReferences"] {
                put(metadata, field, before["metadata"].get(field).cloned());
            }
        }
    }
}

/// Returns the part of an applied configuration that the subresource covers.
pub(super) fn of_subresource(kind: &ResourceKind, subresource: Subresource, config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(fields) = config.as_object_mut() {
        fields.retain(|name, _| match subresource {
            Subresource::Status => matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status"),
            Subresource::Main | Subresource::Scale | Subresource::Finalize => {
                !kind.has_status || name != "status"
            }
        });
    }
    config
}

pub(super) fn apply_conflict(conflicts: &[FieldConflict]) -> ApiError {
    let mut causes = Vec::new();
    for conflict in conflicts {
        for path in &conflict.paths {
            let message = format!("conflict with {:?}", conflict.manager);
            causes.push(json!({"reason": "FieldManagerConflict", "message": message, "field": path}));
        }
    }
    let count = causes.len();
    let plural = if count == 1 { "" } else { "s" };
    let texts: Vec<String> = conflicts
        .iter()
        .map(|conflict| {
            format!(
                "conflicts with {:?}: {}",
                conflict.manager,
                conflict.paths.join(", ")
            )
        })
        .collect();
    let message = format!("Apply failed with {count} conflict{plural}: {}", texts.join("; "));
    let mut error = ApiError::new(409, "Conflict", message);
    error.details = json!({ "causes": causes });
    error
}
