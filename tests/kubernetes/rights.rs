//! Tests the rights of the ServiceAccount of the chart, and their limits.

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use kube::Client;
use kube::api::{Api, ListParams};
use redlock::api::{LeaderLock, RedisQuorum};

use crate::fixture::{BOUND, ControlPlane, SERVICE_ACCOUNT, client_of};
use redlock_testkit::eventually;

/// Returns a client with the rights of the operator whose release is in this namespace.
pub async fn operator(plane: &ControlPlane, namespace: &str, server: Option<String>) -> Client {
    let path = plane
        .service_account_kubeconfig(namespace, SERVICE_ACCOUNT, server)
        .await;
    client_of(&path).await
}

/// Reports whether the answer is 403; panics on any other failure.
fn refused<T>(answer: kube::Result<T>) -> bool {
    match answer {
        Ok(_) => false,
        Err(kube::Error::Api(status)) if status.code == 403 => true,
        Err(other) => panic!("{other}"),
    }
}

/// Waits until the API server applies the granted rights: in the whole cluster, and for the Secrets of a namespace.
async fn in_force(client: &Client, namespace: &str) {
    let (all, secrets) = (
        Api::<LeaderLock>::all(client.clone()),
        Api::<Secret>::namespaced(client.clone(), namespace),
    );
    eventually(BOUND, "the rights are in force", async || {
        let parameters = ListParams::default();
        let locks = refused(all.list(&parameters).await);
        let secrets = refused(secrets.list(&parameters).await);
        if locks || secrets {
            Err((locks, secrets))
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test]
async fn the_operator_reads_only_needed_objects() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let (own, other) = (plane.namespace("own").await, plane.namespace("other").await);
    plane.install_rbac(own.name()).await;
    let client = operator(plane, own.name(), None).await;
    let all = ListParams::default();

    in_force(&client, own.name()).await;
    assert!(!refused(Api::<LeaderLock>::all(client.clone()).list(&all).await));
    assert!(!refused(Api::<RedisQuorum>::all(client.clone()).list(&all).await));
    assert!(refused(Api::<Node>::all(client.clone()).list(&all).await));
    let namespaces = Api::<Namespace>::all(client.clone());
    assert!(!refused(namespaces.get("kube-system").await));
    assert!(refused(namespaces.get(other.name()).await));
    for (namespace, wanted) in [(own.name(), false), (other.name(), true), ("kube-system", true)] {
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        assert_eq!(
            refused(secrets.list(&all).await),
            wanted,
            "secrets of {namespace}"
        );
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        assert_eq!(refused(pods.list(&all).await), wanted, "pods of {namespace}");
    }
}

#[tokio::test]
async fn secrets_are_read_in_the_namespaces_that_were_named() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let (own, named) = (plane.namespace("own").await, plane.namespace("named").await);
    let value = format!("secretNamespaces={{{}}}", named.name());
    plane.install_rbac_with(own.name(), &[&value]).await;
    let client = operator(plane, own.name(), None).await;
    in_force(&client, named.name()).await;
    for (namespace, wanted) in [(own.name(), true), (named.name(), false)] {
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        let answer = secrets.list(&ListParams::default()).await;
        assert_eq!(refused(answer), wanted, "secrets of {namespace}");
    }
}
