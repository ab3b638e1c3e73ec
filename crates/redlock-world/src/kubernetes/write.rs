//! Creation, update and patch of objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    access::Verb,
    admission::AdmissionRequest,
    defaults,
    error::{ApiError, FieldError},
    jobs,
    managed::{self, FieldConflict, Manager},
    merge::{json_patch, merge_patch},
    metadata::{count_generation, keep_metadata, may_vanish},
    object::{ObjectKey, meta},
    registry::ResourceKind,
    resource::ResourceId,
    shape::Shape,
    state::{Author, State},
    strategic::strategic_patch,
    validate,
};

/// The part of an object that a request is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subresource {
    #[default]
    Main,
    Status,
    Scale,
    /// The finalizers of a namespace.
    Finalize,
}

impl Subresource {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
        }
    }
}

/// A patch, by its content type.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    Merge(Value),
    Json(Value),
    Strategic(Value),
    /// Server-side apply.
    Apply {
        config: Value,
        force: bool,
    },
}

/// The options of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// The field manager. Default: the caller.
    pub manager: Option<String>,
    pub subresource: Subresource,
    /// Whether an unknown field of a custom resource is refused; else it is dropped.
    pub is_strict: bool,
    pub is_dry_run: bool,
}

/// A write request, without its object.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteRequest<'a> {
    pub(super) caller: &'a str,
    pub(super) verb: Verb,
    pub(super) options: &'a WriteOptions,
}

impl WriteRequest<'_> {
    pub(super) fn author(&self) -> Author<'_> {
        Author {
            caller: self.caller,
            verb: self.verb,
            subresource: self.options.subresource.name(),
        }
    }

    fn manager(&self, kind: &ResourceKind, state: &State) -> Manager<'_> {
        Manager {
            name: self.options.manager.as_deref().unwrap_or(self.caller),
            api_version: kind.api_version(),
            subresource: self.options.subresource.name(),
            time: state.second(),
        }
    }
}

impl State {
    pub(super) fn create(
        &mut self,
        request: WriteRequest<'_>,
        id: &ResourceId,
        namespace: &str,
        mut object: Value,
        config: Option<&Value>,
    ) -> Result<Arc<Value>, ApiError> {
        let kind = self.kind(id)?;
        let named = meta(&object, "name").to_owned();
        if kind.is_namespaced {
            self.check_namespace(id, namespace, &named)?;
        }
        self.begin_metadata(&kind, namespace, &mut object)?;
        let name = meta(&object, "name").to_owned();
        let key = ObjectKey::new(id.clone(), if kind.is_namespaced { namespace } else { "" }, name);
        if kind.is_custom() && self.is_definition_ending(id) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::new(405, "MethodNotAllowed", why));
        }
        complete(&kind, &mut object, request)?;
        new_status(&kind, &mut object);
        if id == &ResourceId::JOBS {
            jobs::label(&mut object);
        }
        if id == &ResourceId::NAMESPACES {
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = key.name.clone().into();
        }
        validate::check(&kind, None, &object)?;
        self.admit(request, &key, None, Some(&object))?;
        if self.find(&key).is_some() {
            return Err(ApiError::already_exists(id, &key.name));
        }
        self.own_new(&kind, request, &mut object, config);
        fill_status(&kind, &mut object);
        if request.options.is_dry_run {
            return Ok(Arc::new(object));
        }
        Ok(self.commit(request.author(), &key, Some(object)))
    }

    /// Records the owners of a new object.
    fn own_new(
        &self,
        kind: &ResourceKind,
        request: WriteRequest<'_>,
        object: &mut Value,
        config: Option<&Value>,
    ) {
        let (shape, manager) = (Shape::of(kind.schema.as_deref()), request.manager(kind, self));
        let nothing = json!({});
        let Some(config) = config else {
            let mut owned = object.clone();
            if kind.has_status
                && let Some(fields) = owned.as_object_mut()
            {
                fields.remove("status");
            }
            managed::update(&nothing, &mut owned, shape, &manager);
            object["metadata"]["managedFields"] = owned["metadata"]["managedFields"].take();
            return;
        };
        let config = of_subresource(kind, Subresource::Main, config);
        if let Ok(mut applied) = managed::apply(&nothing, &config, shape, &manager, true) {
            object["metadata"]["managedFields"] = applied["metadata"]["managedFields"].take();
        }
    }

    /// Replaces an object.
    pub(super) fn update(
        &mut self,
        request: WriteRequest<'_>,
        key: &ObjectKey,
        object: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let kind = self.kind(&key.resource)?;
        if request.options.subresource == Subresource::Scale {
            return self.update_scale(request, &kind, key, &object);
        }
        let created_by_update = ["leases", "events"].contains(&&*key.resource.plural);
        if created_by_update && self.find(key).is_none() {
            let mut object = object;
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            return self.create(request, &key.resource, &key.namespace, object, None);
        }
        let before = self.get(key)?;
        let needs_version = kind.is_custom() || key.resource == ResourceId::LEASES;
        let mut after = object;
        keep_metadata(&kind, &before, &mut after, needs_version)?;
        self.replace(request, &kind, key, &before, after, false)
    }

    pub(super) fn patch(
        &mut self,
        request: WriteRequest<'_>,
        key: &ObjectKey,
        patch: &Patch,
    ) -> Result<Arc<Value>, ApiError> {
        let kind = self.kind(&key.resource)?;
        if request.options.subresource == Subresource::Scale {
            return self.patch_scale(request, &kind, key, patch);
        }
        let before = match (self.find(key), patch) {
            (Some(before), _) => before.clone(),
            (None, Patch::Apply { config, .. }) if request.options.subresource == Subresource::Main => {
                return self.create_applied(request, key, config);
            }
            (None, _) => return Err(ApiError::not_found(&key.resource, &key.name)),
        };
        let mut after;
        let is_apply = matches!(patch, Patch::Apply { .. });
        match patch {
            Patch::Apply { config, force } => {
                let config = of_subresource(&kind, request.options.subresource, config);
                let shape = Shape::of(kind.schema.as_deref());
                let manager = request.manager(&kind, self);
                let applied = managed::apply(&before, &config, shape, &manager, *force);
                after = applied.map_err(|conflicts| apply_conflict(&conflicts))?;
                let managed = after["metadata"]["managedFields"].clone();
                keep_metadata(&kind, &before, &mut after, false)?;
                after["metadata"]["managedFields"] = managed;
            }
            Patch::Strategic(_) if kind.is_custom() => {
                let why = "the body of the request was in an unknown format - accepted media types include: \
                           application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                return Err(ApiError::new(415, "UnsupportedMediaType", why));
            }
            patch => {
                after = (*before).clone();
                change(&kind, &mut after, patch)?;
                keep_metadata(&kind, &before, &mut after, false)?;
            }
        }
        self.replace(request, &kind, key, &before, after, is_apply)
    }

    fn create_applied(
        &mut self,
        request: WriteRequest<'_>,
        key: &ObjectKey,
        config: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let uid = meta(config, "uid");
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(ApiError::conflict(&key.resource, &key.name, &why));
        }
        let mut object = config.clone();
        object["metadata"]["name"] = key.name.clone().into();
        self.create(request, &key.resource, &key.namespace, object, Some(config))
    }

    /// Stores the new version of an object whose metadata is checked. `is_owned` is whether its owners are recorded.
    pub(super) fn replace(
        &mut self,
        request: WriteRequest<'_>,
        kind: &ResourceKind,
        key: &ObjectKey,
        before: &Arc<Value>,
        mut after: Value,
        is_owned: bool,
    ) -> Result<Arc<Value>, ApiError> {
        complete(kind, &mut after, request)?;
        restrict(kind, request.options.subresource, before, &mut after);
        validate::check(kind, Some(before), &after)?;
        count_generation(kind, before, &mut after);
        self.admit(request, key, Some(before), Some(&after))?;
        if !is_owned {
            let (shape, manager) = (Shape::of(kind.schema.as_deref()), request.manager(kind, self));
            managed::update(before, &mut after, shape, &manager);
        }
        fill_status(kind, &mut after);
        if after == **before {
            return Ok(before.clone());
        }
        if request.options.is_dry_run {
            return Ok(Arc::new(after));
        }
        if may_vanish(kind, &after) {
            self.commit(request.author(), key, None);
            return Ok(Arc::new(after));
        }
        Ok(self.commit(request.author(), key, Some(after)))
    }

    pub(super) fn admit(
        &self,
        request: WriteRequest<'_>,
        key: &ObjectKey,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Result<(), ApiError> {
        self.rules.check(&AdmissionRequest {
            caller: request.caller,
            verb: request.verb,
            key,
            subresource: request.options.subresource.name(),
            before,
            after,
        })
    }
}

fn change(kind: &ResourceKind, object: &mut Value, patch: &Patch) -> Result<(), ApiError> {
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
fn complete(kind: &ResourceKind, object: &mut Value, request: WriteRequest<'_>) -> Result<(), ApiError> {
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

fn new_status(kind: &ResourceKind, object: &mut Value) {
    if !kind.has_status {
        return;
    }
    let status = if kind.is_custom() {
        None
    } else {
        defaults::status(kind, object)
    };
    if let Some(fields) = object.as_object_mut() {
        super::object::put(fields, "status", status);
    }
}

/// Sets the default of an absent status, which a read would set.
fn fill_status(kind: &ResourceKind, object: &mut Value) {
    if let Some(schema) = &kind.schema {
        schema.fill(object);
    }
}

/// Keeps the fields that the subresource does not cover.
fn restrict(kind: &ResourceKind, subresource: Subresource, before: &Value, after: &mut Value) {
    let keep = |after: &mut Value, field: &str| {
        if let Some(fields) = after.as_object_mut() {
            super::object::put(fields, field, before.get(field).cloned());
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
                super::object::put(fields, "status", status);
            }
            super::object::put(super::object::metadata_of(after), "managedFields", managed);
        }
        Subresource::Status => {
            keep(after, "spec");
            let metadata = super::object::metadata_of(after);
            for field in ["labels", "ownerReferences"] {
                super::object::put(metadata, field, before["metadata"].get(field).cloned());
            }
        }
    }
}

/// Returns the part of an applied configuration that the subresource covers.
fn of_subresource(kind: &ResourceKind, subresource: Subresource, config: &Value) -> Value {
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

fn apply_conflict(conflicts: &[FieldConflict]) -> ApiError {
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
