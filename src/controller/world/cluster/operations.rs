//! What users write to the API server of a cluster.

use std::sync::Arc;

use redlock_world::kubernetes::{ApiOptions, ApiSnapshot, DeleteOptions, ObjectKey, ResourceId};
use serde_json::{Value, json};

use super::{ClusterWorld, USER};
use crate::controller::world::{
    manifests::{self, NAMESPACE},
    workloads::Workload,
};

/// The field manager of the GitOps tool.
const GITOPS: &str = "gitops";

fn namespace_key() -> ObjectKey {
    ObjectKey::new(ResourceId::NAMESPACES, "", NAMESPACE)
}

fn lock_definition_key() -> ObjectKey {
    ObjectKey::new(ResourceId::DEFINITIONS, "", "leaderlocks.redlock.dev")
}

impl ClusterWorld {
    pub(in crate::controller::world) fn create_deployment(&self, name: &str, replicas: u32) {
        let deployment = manifests::deployment(NAMESPACE, name, replicas, 3);
        self.api
            .create(USER, &ResourceId::DEPLOYMENTS, deployment)
            .unwrap();
    }

    /// Creates a stopped Deployment whose pods take some seconds to end.
    pub(in crate::controller::world) fn create_slow_deployment(
        &self,
        name: &str,
        stop_seconds: u32,
        grace: u32,
    ) {
        let mut deployment = manifests::deployment(NAMESPACE, name, 0, grace);
        deployment["spec"]["template"]["metadata"]["annotations"] =
            json!({ "world/stop-seconds": stop_seconds.to_string() });
        self.api
            .create(USER, &ResourceId::DEPLOYMENTS, deployment)
            .unwrap();
    }

    /// Sets whether new pods of a workload become ready.
    pub(in crate::controller::world) fn set_ready(&self, name: &str, ready: bool) {
        let annotations = json!({ "world/ready": ready.to_string() });
        let patch = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
        self.api
            .merge(USER, &manifests::deployment_key(name), patch)
            .unwrap();
    }

    /// Scales a workload by hand.
    pub(in crate::controller::world) fn scale(&self, name: &str, replicas: i64) {
        self.api
            .scale(USER, &manifests::deployment_key(name), replicas)
            .unwrap();
    }

    pub(in crate::controller::world) fn create_lock(&self, lock: Value) {
        self.api.create(USER, &ResourceId::LEADER_LOCKS, lock).unwrap();
    }

    pub(in crate::controller::world) fn change_lock(&self, name: &str, patch: Value) {
        self.api.merge(USER, &manifests::lock_key(name), patch).unwrap();
    }

    pub(in crate::controller::world) fn delete_lock(&self, name: &str) {
        let key = manifests::lock_key(name);
        self.api.delete(USER, &key, &DeleteOptions::default()).unwrap();
    }

    pub(in crate::controller::world) fn lock(&self, name: &str) -> Option<Arc<Value>> {
        self.api.read(&manifests::lock_key(name))
    }

    pub(in crate::controller::world) fn annotate_lock(
        &self,
        name: &str,
        annotation: &str,
        value: Option<&str>,
    ) {
        self.change_lock(
            name,
            json!({ "metadata": { "annotations": { annotation: value } } }),
        );
    }

    pub(in crate::controller::world) fn create_workload(&self, workload: Workload) {
        self.api
            .create(USER, &workload.resource(), workload.stopped(&self.name))
            .unwrap();
    }

    /// Starts a workload by hand, if it exists.
    pub(in crate::controller::world) fn start_workload(&self, workload: Workload) {
        if let Some(start) = workload.start()
            && self.api.read(&workload.key()).is_some()
        {
            self.api.merge(USER, &workload.key(), start).unwrap();
        }
    }

    /// Reports whether a workload is declared to run.
    pub(in crate::controller::world) fn starts(&self, workload: Workload) -> bool {
        let object = self.api.read(&workload.key());
        object.is_some_and(|object| workload.is_started(&object))
    }

    /// Applies the manifest of a workload that exists, as a GitOps tool does.
    pub(in crate::controller::world) fn apply_workload(&self, workload: Workload) {
        if let Some(manifest) = workload.manifest()
            && self.api.read(&workload.key()).is_some()
        {
            self.api.apply(GITOPS, &workload.key(), manifest, true).unwrap();
        }
    }

    /// Applies the spec that a lock has, as a GitOps tool does after each edit.
    pub(in crate::controller::world) fn apply_lock(&self, name: &str) {
        let Some(object) = self.lock(name) else { return };
        let manifest = json!({
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "metadata": { "namespace": NAMESPACE, "name": name },
            "spec": object["spec"],
        });
        self.api
            .apply(GITOPS, &manifests::lock_key(name), manifest, true)
            .unwrap();
    }

    /// Reports whether the namespace of the workloads exists, and is not being deleted.
    pub(in crate::controller::world) fn has_namespace(&self) -> bool {
        let namespace = self.api.read(&namespace_key());
        namespace.is_some_and(|namespace| namespace["metadata"]["deletionTimestamp"].is_null())
    }

    pub(in crate::controller::world) fn delete_namespace(&self) {
        self.api
            .delete(USER, &namespace_key(), &DeleteOptions::default())
            .unwrap();
    }

    /// Creates the namespace of the workloads. Returns false if it exists.
    pub(in crate::controller::world) fn create_namespace(&self) -> bool {
        if self.api.read(&namespace_key()).is_some() {
            return false;
        }
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        self.api.create(USER, &ResourceId::NAMESPACES, namespace).unwrap();
        true
    }

    /// Reports whether the CRD of the locks exists, and is not being deleted.
    pub(in crate::controller::world) fn has_lock_definition(&self) -> bool {
        let definition = self.api.read(&lock_definition_key());
        definition.is_some_and(|definition| definition["metadata"]["deletionTimestamp"].is_null())
    }

    pub(in crate::controller::world) fn delete_lock_definition(&self) {
        self.api
            .delete(USER, &lock_definition_key(), &DeleteOptions::default())
            .unwrap();
    }

    /// Creates the CRD of the locks. Returns false if it exists.
    pub(in crate::controller::world) fn create_lock_definition(&self) -> bool {
        if self.api.read(&lock_definition_key()).is_some() {
            return false;
        }
        let definitions = ApiOptions::project_definitions();
        let name = lock_definition_key().name;
        let locks = definitions.iter().find(|one| one["metadata"]["name"] == *name);
        let definition = locks.expect("the CRD of the locks").as_ref().clone();
        self.api
            .create(USER, &ResourceId::DEFINITIONS, definition)
            .unwrap();
        true
    }

    /// Writes the password of the masters to its Secret.
    pub(in crate::controller::world) fn write_password(&self, password: &str) {
        let secret = manifests::password_secret(password);
        self.api
            .apply(USER, &manifests::secret_key(), secret, true)
            .unwrap();
    }

    /// Restores a copy of all objects.
    pub(in crate::controller::world) fn restore(&self, objects: &ApiSnapshot) {
        self.api.restore(objects);
        self.crashed.notify_one();
    }

    /// Sets the number of replicas of the operator.
    pub(in crate::controller::world) fn scale_operator(&self, replicas: u32) {
        let key = ObjectKey::new(
            ResourceId::DEPLOYMENTS,
            manifests::OPERATOR_NAMESPACE,
            manifests::OPERATOR,
        );
        self.api.scale(USER, &key, i64::from(replicas)).unwrap();
    }
}
