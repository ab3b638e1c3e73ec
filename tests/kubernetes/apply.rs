//! Applies manifests without a process of kubectl for each: the tests apply some hundred manifests.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde::Deserialize;

use crate::fixture::ControlPlane;

/// The field manager of kubectl.
const MANAGER: &str = "kubectl";

/// The kinds by name, which are the same on each control plane.
static KINDS: LazyLock<Mutex<HashMap<GroupVersionKind, (ApiResource, Scope)>>> =
    LazyLock::new(Mutex::default);

/// Applies each object of the manifest, in `namespace` if the object names none. Blocks, even if the caller's
/// runtime has only one thread.
pub fn apply(plane: &ControlPlane, namespace: &str, manifest: &str) -> Result<(), String> {
    let applies = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let client = plane.admin();
            for document in serde_yaml::Deserializer::from_str(manifest) {
                let object = DynamicObject::deserialize(document).map_err(|error| error.to_string())?;
                apply_one(&client, namespace, &object).await?;
            }
            Ok(())
        })
    };
    std::thread::scope(|scope| scope.spawn(applies).join().unwrap())
}

async fn apply_one(client: &Client, namespace: &str, object: &DynamicObject) -> Result<(), String> {
    let types = object.types.as_ref().ok_or("an object without a kind")?;
    let kind = GroupVersionKind::try_from(types).map_err(|error| error.to_string())?;
    let (resource, scope) = resource(client, &kind).await?;
    let api: Api<DynamicObject> = match (scope, &object.metadata.namespace) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (Scope::Namespaced, Some(own)) => Api::namespaced_with(client.clone(), own, &resource),
        (Scope::Namespaced, None) => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let name = object
        .metadata
        .name
        .as_deref()
        .ok_or("an object without a name")?;
    let parameters = PatchParams::apply(MANAGER).force().validation_strict();
    let applied = api.patch(name, &parameters, &Patch::Apply(object)).await;
    applied
        .map(drop)
        .map_err(|error| format!("{} {name}: {error}", kind.kind))
}

async fn resource(client: &Client, kind: &GroupVersionKind) -> Result<(ApiResource, Scope), String> {
    let known = || KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known().get(kind) {
        return Ok(found.clone());
    }
    let found = pinned_kind(client, kind).await;
    let (resource, capabilities) = found.map_err(|error| format!("{}: {error}", kind.kind))?;
    let found = (resource, capabilities.scope);
    known().insert(kind.clone(), found.clone());
    Ok(found)
}
