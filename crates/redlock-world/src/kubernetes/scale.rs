//! The subresource `scale`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    error::{ApiError, FieldError},
    merge::{json_patch, merge_patch},
    metadata::check_uid,
    object::{ObjectKey, meta},
    registry::{ResourceKind, ScalePaths},
    resource::ResourceId,
    state::State,
    write::{Patch, WriteRequest},
};

impl State {
    pub(super) fn scale(&self, key: &ObjectKey) -> Result<Value, ApiError> {
        let kind = self.kind(&key.resource)?;
        scale_of(&kind, paths(&kind)?, &*self.get(key)?)
    }

    pub(super) fn update_scale(
        &mut self,
        request: WriteRequest<'_>,
        kind: &ResourceKind,
        key: &ObjectKey,
        scale: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let (paths, before) = (paths(kind)?.clone(), self.get(key)?);
        let id = ResourceId::new(&*key.resource.group, format!("{}/scale", key.resource.plural));
        check_uid(&id, &key.name, meta(scale, "uid"), &before)?;
        let version = meta(scale, "resourceVersion");
        if !version.is_empty() && version != meta(&before, "resourceVersion") {
            return Err(ApiError::modified(&key.resource, &key.name));
        }
        let replicas = &scale["spec"]["replicas"];
        let replicas = if replicas.is_null() {
            Value::from(0)
        } else {
            replicas.clone()
        };
        if replicas.as_i64().is_none_or(|count| count < 0) {
            return Err(refused(kind, &key.name, &replicas));
        }
        let mut after = (*before).clone();
        let stored = paths
            .wanted
            .strip_prefix("/spec/")
            .filter(|rest| !rest.contains('/'));
        match (after.pointer_mut(&paths.wanted), stored) {
            (Some(place), _) => *place = replicas,
            (None, Some(name)) => after["spec"][name] = replicas,
            (None, None) => return Err(absent(&paths)),
        }
        let stored = self.replace(request, kind, key, &before, after, false)?;
        scale_of(kind, &paths, &stored).map(Arc::new)
    }

    pub(super) fn patch_scale(
        &mut self,
        request: WriteRequest<'_>,
        kind: &ResourceKind,
        key: &ObjectKey,
        patch: &Patch,
    ) -> Result<Arc<Value>, ApiError> {
        // A patch may set replicas that the object does not have.
        let mut scale = match self.scale(key) {
            Err(error) if error.code == 500 => json!({}),
            scale => scale?,
        };
        match patch {
            Patch::Merge(patch) | Patch::Strategic(patch) | Patch::Apply { config: patch, .. } => {
                merge_patch(&mut scale, patch);
            }
            Patch::Json(patch) => json_patch(&mut scale, patch)?,
        }
        self.update_scale(request, kind, key, &scale)
    }
}

fn refused(kind: &ResourceKind, name: &str, replicas: &Value) -> ApiError {
    let why = "must be greater than or equal to 0";
    if !replicas.is_i64() {
        return ApiError::invalid_patch("spec.replicas is not a number");
    }
    if kind.is_custom() {
        return ApiError::invalid(
            kind,
            name,
            &[FieldError::invalid(".spec.replicas", replicas, why)],
        );
    }
    let scale = ResourceKind {
        id: ResourceId::fixed("autoscaling", "scales"),
        kind: "Scale".to_owned(),
        ..kind.clone()
    };
    ApiError::invalid(
        &scale,
        name,
        &[FieldError::invalid("spec.replicas", replicas, why)],
    )
}

fn paths(kind: &ResourceKind) -> Result<&ScalePaths, ApiError> {
    kind.scale.as_ref().ok_or_else(ApiError::no_resource)
}

fn absent(paths: &ScalePaths) -> ApiError {
    let path = paths.wanted.replace('/', ".");
    let why = format!("Internal error occurred: the spec replicas field {path:?} does not exist");
    let mut error = ApiError::new(500, "InternalError", why);
    error.details =
        json!({"causes": [{"message": format!("the spec replicas field {path:?} does not exist")}]});
    error
}

fn scale_of(kind: &ResourceKind, paths: &ScalePaths, object: &Value) -> Result<Value, ApiError> {
    let wanted = object.pointer(&paths.wanted).and_then(Value::as_i64);
    let Some(wanted) = wanted.or_else(|| (!kind.is_custom()).then_some(0)) else {
        return Err(absent(paths));
    };
    let counted = object.pointer(&paths.counted).and_then(Value::as_i64);
    let mut metadata = serde_json::Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {}, "status": {"replicas": counted.unwrap_or(0)},
    });
    if wanted != 0 {
        scale["spec"]["replicas"] = wanted.into();
    }
    let selector = paths.selector.as_ref().and_then(|path| object.pointer(path));
    if let Some(text) = selector.and_then(selector_text).filter(|text| !text.is_empty()) {
        scale["status"]["selector"] = text.into();
    }
    Ok(scale)
}

/// Returns a label selector as text; a custom resource has it as text already.
fn selector_text(selector: &Value) -> Option<String> {
    if let Some(text) = selector.as_str() {
        return Some(text.to_owned());
    }
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut parts: Vec<String> = labels
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str()?;
        let values = expression["values"].as_array().into_iter().flatten();
        let values: Vec<&str> = values.filter_map(Value::as_str).collect();
        parts.push(match expression["operator"].as_str()? {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    Some(parts.join(","))
}
