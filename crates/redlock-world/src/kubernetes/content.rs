//! The content of an object on its way into the database: patches, pruning, defaults and subresources.

use serde_json::{Value, json};

use super::{
    access::Verb,
    defaults,
    error::ApiError,
    managed::FieldConflict,
    merge::{json_patch, merge_patch},
    object::{metadata_of, put},
    registry::ResourceKind,
    resource::ResourceId,
    shape::Shape,
    strategic::strategic_patch,
    typed,
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
        return match typed::mistake(kind, object) {
            None => Ok(()),
            Some(why) if request.verb == Verb::Patch => Err(ApiError::invalid_patch(&why)),
            Some(why) => Err(ApiError::bad_request(why)),
        };
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
            return Err(ApiError::invalid_patch(&why));
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
            let field = match &*kind.id.plural {
                "deployments" => "labels",
                "pods" => "ownerReferences",
                _ => return,
            };
            put(metadata_of(after), field, before["metadata"].get(field).cloned());
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

/// Refuses a configuration that cannot be applied.
pub(super) fn check_config(kind: &ResourceKind, config: &Value) -> Result<(), ApiError> {
    if config["kind"].is_null() || config["apiVersion"].is_null() {
        return Err(ApiError::bad_request(
            "an applied object needs apiVersion and kind",
        ));
    }
    if config["metadata"]["managedFields"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
    {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let mut unknown = Vec::new();
    if let Some(schema) = &kind.schema {
        schema.prune_root(&mut config.clone(), &mut unknown);
    }
    match unknown.first() {
        // The server has no better code for it.
        Some(field) => {
            let why = format!("failed to create typed patch object: .{field}: field not declared in schema");
            Err(ApiError::new(500, "", why))
        }
        None => Ok(()),
    }
}

pub(super) fn apply_conflict(conflicts: &[FieldConflict]) -> ApiError {
    let mut causes = Vec::new();
    for conflict in conflicts {
        for path in &conflict.paths {
            let message = format!("conflict with {}", conflict.manager);
            causes.push(json!({"reason": "FieldManagerConflict", "message": message, "field": path}));
        }
    }
    let count = causes.len();
    let of = |conflict: &FieldConflict| {
        format!(
            "conflicts with {}:\n- {}",
            conflict.manager,
            conflict.paths.join("\n- ")
        )
    };
    let message = match conflicts {
        [one] if count == 1 => {
            let path = one.paths.first().map_or("", String::as_str);
            format!(
                "Apply failed with 1 conflict: conflict with {}: {path}",
                one.manager
            )
        }
        many => {
            let texts: Vec<String> = many.iter().map(of).collect();
            format!("Apply failed with {count} conflicts: {}", texts.join("\n"))
        }
    };
    let mut error = ApiError::new(409, "Conflict", message);
    error.details = json!({ "causes": causes });
    error
}
