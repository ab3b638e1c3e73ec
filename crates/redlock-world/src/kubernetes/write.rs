//! Creation, update and patch of objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    access::Verb,
    admission::AdmissionRequest,
    content::{
        apply_conflict, change, check_config, complete, fill_status, new_status, of_subresource, restrict,
    },
    error::ApiError,
    jobs,
    managed::{self, Manager},
    metadata::{check_patched_metadata, count_generation, keep_metadata, may_vanish},
    object::{ObjectKey, meta, metadata_of, put},
    registry::ResourceKind,
    resource::ResourceId,
    shape::Shape,
    state::{Author, State},
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
            return Err(ApiError::forbidden(id, &key.name, why));
        }
        complete(&kind, &mut object, request)?;
        new_status(&kind, &mut object);
        self.own_new(&kind, request, &mut object, config);
        if id == &ResourceId::JOBS {
            jobs::label(&mut object);
        }
        if id == &ResourceId::NAMESPACES {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
        }
        self.mutate(request, &key, None, &mut object);
        validate::check(&kind, None, &object)?;
        self.admit(request, &key, None, Some(&object))?;
        if self.find(&key).is_some() {
            return Err(ApiError::already_exists(id, &key.name));
        }
        fill_status(&kind, &mut object);
        if request.options.is_dry_run {
            return Ok(Arc::new(object));
        }
        let made = self.commit(request.author(), &key, Some(object));
        if id.plural == "events" {
            self.expire_events(&key);
        }
        Ok(made)
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
            put(metadata_of(object), "managedFields", managed::of(&owned));
            return;
        };
        let config = of_subresource(kind, Subresource::Main, config);
        if let Ok(applied) = managed::apply(&nothing, &config, shape, &manager, true) {
            put(metadata_of(object), "managedFields", managed::of(&applied));
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
                check_config(&kind, config)?;
                let config = of_subresource(&kind, request.options.subresource, config);
                let shape = Shape::of(kind.schema.as_deref());
                let manager = request.manager(&kind, self);
                let applied = managed::apply(&before, &config, shape, &manager, *force);
                after = applied.map_err(|conflicts| apply_conflict(&conflicts))?;
                let managed = after["metadata"]["managedFields"].clone();
                check_patched_metadata(&kind, &before, &after)?;
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
                check_patched_metadata(&kind, &before, &after)?;
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
        check_config(&*self.kind(&key.resource)?, config)?;
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
        self.mutate(request, key, Some(before), &mut after);
        validate::check(kind, Some(before), &after)?;
        count_generation(kind, request.options.subresource, before, &mut after);
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

    fn mutate(&self, request: WriteRequest<'_>, key: &ObjectKey, before: Option<&Value>, object: &mut Value) {
        let admission = AdmissionRequest {
            caller: request.caller,
            verb: request.verb,
            key,
            subresource: request.options.subresource.name(),
            before,
            after: None,
        };
        self.rules.mutate(&admission, object);
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
