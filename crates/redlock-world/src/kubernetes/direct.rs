//! Access without HTTP, for the users, controllers and observers of a world. It meets no latency and no partition, but
//! the same validation, rules and conflicts.

use std::sync::Arc;

use serde_json::Value;

use super::{
    access::Verb,
    admission::AdmissionRequest,
    delete::{DeleteOptions, Deleted},
    error::ApiError,
    list::ListRequest,
    object::{ObjectKey, meta},
    resource::ResourceId,
    selector::Selector,
    server::ApiServer,
    state::State,
    write::{Patch, Subresource, WriteOptions, WriteRequest},
};

impl State {
    pub(super) fn check_read(&self, caller: &str, verb: Verb, key: &ObjectKey) -> Result<(), ApiError> {
        self.rules.check(&AdmissionRequest {
            caller,
            verb,
            key,
            subresource: "",
            before: None,
            after: None,
        })
    }
}

impl ApiServer {
    pub fn get(&self, caller: &str, key: &ObjectKey) -> Result<Arc<Value>, ApiError> {
        let state = self.lock();
        state.kind(&key.resource)?;
        state.check_read(caller, Verb::Get, key)?;
        state.get(key)
    }

    /// Returns all objects that a label selector selects, in one namespace or in all.
    pub fn list(
        &self,
        caller: &str,
        resource: &ResourceId,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Arc<Value>>, ApiError> {
        let state = self.lock();
        let kind = state.kind(resource)?;
        let key = ObjectKey::new(resource.clone(), namespace.unwrap_or_default(), "");
        state.check_read(caller, Verb::List, &key)?;
        let request = ListRequest {
            namespace: namespace.map(str::to_owned),
            selector: Selector::parse(&kind, labels, "")?,
            ..ListRequest::default()
        };
        Ok(state.list(&kind, &request)?.items)
    }

    /// Returns an object, for an observer: no rule applies.
    pub fn read(&self, key: &ObjectKey) -> Option<Arc<Value>> {
        self.lock().find(key).cloned()
    }

    /// Returns all objects of a resource, for an observer: no rule applies.
    pub fn all(&self, resource: &ResourceId) -> Vec<Arc<Value>> {
        let state = self.lock();
        state
            .objects
            .get(resource)
            .into_iter()
            .flatten()
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Creates an object in the namespace of its metadata.
    pub fn create(&self, caller: &str, resource: &ResourceId, object: Value) -> Result<Arc<Value>, ApiError> {
        self.create_with(caller, resource, object, &WriteOptions::default())
    }

    pub fn create_with(
        &self,
        caller: &str,
        resource: &ResourceId,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let namespace = meta(&object, "namespace").to_owned();
        self.write(caller, Verb::Create, options, |state, request| {
            state.create(request, resource, &namespace, object, None)
        })
    }

    /// Replaces an object. A `resourceVersion` in its metadata is a precondition.
    pub fn update(&self, caller: &str, key: &ObjectKey, object: Value) -> Result<Arc<Value>, ApiError> {
        self.update_with(caller, key, object, &WriteOptions::default())
    }

    /// Replaces the status of an object.
    pub fn update_status(
        &self,
        caller: &str,
        key: &ObjectKey,
        object: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let options = WriteOptions {
            subresource: Subresource::Status,
            ..WriteOptions::default()
        };
        self.update_with(caller, key, object, &options)
    }

    pub fn update_with(
        &self,
        caller: &str,
        key: &ObjectKey,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        self.write(caller, Verb::Update, options, |state, request| {
            state.update(request, key, object)
        })
    }

    /// Applies a JSON merge patch to an object.
    pub fn merge(&self, caller: &str, key: &ObjectKey, patch: Value) -> Result<Arc<Value>, ApiError> {
        self.patch(caller, key, &Patch::Merge(patch), &WriteOptions::default())
    }

    /// Applies a JSON merge patch to the status of an object: the patch has the field `status`.
    pub fn merge_status(&self, caller: &str, key: &ObjectKey, patch: Value) -> Result<Arc<Value>, ApiError> {
        let options = WriteOptions {
            subresource: Subresource::Status,
            ..WriteOptions::default()
        };
        self.patch(caller, key, &Patch::Merge(patch), &options)
    }

    /// Sets the replicas of an object by its scale.
    pub fn scale(&self, caller: &str, key: &ObjectKey, replicas: i64) -> Result<Arc<Value>, ApiError> {
        let options = WriteOptions {
            subresource: Subresource::Scale,
            ..WriteOptions::default()
        };
        let patch = serde_json::json!({"spec": {"replicas": replicas}});
        self.patch(caller, key, &Patch::Merge(patch), &options)
    }

    /// Applies a configuration by server-side apply.
    pub fn apply(
        &self,
        caller: &str,
        key: &ObjectKey,
        config: Value,
        force: bool,
    ) -> Result<Arc<Value>, ApiError> {
        self.patch(
            caller,
            key,
            &Patch::Apply { config, force },
            &WriteOptions::default(),
        )
    }

    pub fn patch(
        &self,
        caller: &str,
        key: &ObjectKey,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        self.write(caller, Verb::Patch, options, |state, request| {
            state.patch(request, key, patch)
        })
    }

    /// Deletes an object. Returns its last state if it is gone, else the state in which it remains.
    pub fn delete(
        &self,
        caller: &str,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let mut state = self.lock();
        let deleted = state.delete(caller, key, options);
        state.end_definitions();
        match deleted? {
            Deleted::Pending(object) | Deleted::Gone(object) => Ok(object),
        }
    }

    fn write(
        &self,
        caller: &str,
        verb: Verb,
        options: &WriteOptions,
        write: impl FnOnce(&mut State, WriteRequest<'_>) -> Result<Arc<Value>, ApiError>,
    ) -> Result<Arc<Value>, ApiError> {
        let mut state = self.lock();
        let request = WriteRequest {
            caller,
            verb,
            options,
        };
        let written = write(&mut state, request);
        state.end_definitions();
        written
    }
}
