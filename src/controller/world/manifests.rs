//! The objects that users of a world write.

use k8s_openapi::ByteString;
use redlock_world::kubernetes::{ObjectKey, ResourceId};
use serde_json::{Value, json};

pub(super) const OPERATOR: &str = "redlock-operator";
pub(super) const OPERATOR_NAMESPACE: &str = "redlock-system";
pub(super) const OPERATOR_PORT: u16 = 8080;
const SECRET: &str = "redis-auth";
/// The namespace of the workloads and their locks.
pub(super) const NAMESPACE: &str = "team";
/// The namespace of another tenant.
pub(super) const OTHER_NAMESPACE: &str = "other-team";

/// The Deployment of the operator, as the chart renders it in outline.
pub(super) fn operator(replicas: u32) -> Value {
    let mut operator = deployment(OPERATOR_NAMESPACE, OPERATOR, replicas, 60);
    // The process decides when its pod ends, within the grace period.
    operator["spec"]["template"]["metadata"]["annotations"]["world/stop-seconds"] = "3600".into();
    operator
}

/// A Deployment whose pods take `grace` seconds at most to end.
pub(super) fn deployment(namespace: &str, name: &str, replicas: u32, grace: u32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": {
                    "terminationGracePeriodSeconds": grace,
                    "containers": [{
                        "name": "main",
                        "image": name,
                        "ports": [{ "name": "http", "containerPort": OPERATOR_PORT }],
                    }],
                },
            },
        },
    })
}

/// A quorum of these masters, which are sealed at once.
pub(super) fn quorum(name: &str, masters: &[(String, String)]) -> Value {
    let masters = masters
        .iter()
        .map(|(name, url)| json!({ "name": name, "url": url }));
    json!({
        "apiVersion": "redlock.dev/v1alpha1",
        "kind": "RedisQuorum",
        "metadata": { "name": name },
        "spec": {
            "masters": masters.collect::<Vec<_>>(),
            "auth": { "secretRef": { "namespace": OPERATOR_NAMESPACE, "name": SECRET } },
            "firstStart": "Immediate",
        },
    })
}

/// A lock of its own name that scales these Deployments.
pub(super) fn lock(name: &str, deployments: &[&str]) -> Value {
    let targets = deployments.iter().map(|deployment| {
        json!({
            "name": deployment,
            "action": "Scale",
            "stopSeconds": 5,
            "ref": { "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment },
        })
    });
    json!({
        "apiVersion": "redlock.dev/v1alpha1",
        "kind": "LeaderLock",
        "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": {
            "quorumRef": { "name": "default" },
            "targets": targets.collect::<Vec<_>>(),
        },
    })
}

/// The Secret with the password of the masters.
pub(super) fn password_secret(password: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "namespace": OPERATOR_NAMESPACE, "name": SECRET },
        "data": { "password": ByteString(password.as_bytes().to_vec()) },
    })
}

pub(super) fn secret_key() -> ObjectKey {
    ObjectKey::new(ResourceId::SECRETS, OPERATOR_NAMESPACE, SECRET)
}

pub(super) fn lock_key(name: &str) -> ObjectKey {
    ObjectKey::new(ResourceId::LEADER_LOCKS, NAMESPACE, name)
}

pub(super) fn deployment_key(name: &str) -> ObjectKey {
    ObjectKey::new(ResourceId::DEPLOYMENTS, NAMESPACE, name)
}
