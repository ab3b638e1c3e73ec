//! What the ServiceAccount of the chart may do, and what not.

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use redlock::api::{LeaderLock, RedisQuorum};

use crate::fixture::{ControlPlane, SERVICE_ACCOUNT};

/// A client with the rights of the operator whose release is in this namespace.
pub async fn operator(plane: &ControlPlane, namespace: &str, server: Option<String>) -> Client {
    let path = plane
        .service_account_kubeconfig(namespace, SERVICE_ACCOUNT, server)
        .await;
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// Whether the answer is 403; panics at every other failure.
fn refused<T>(answer: kube::Result<T>) -> bool {
    match answer {
        Ok(_) => false,
        Err(kube::Error::Api(status)) if status.code == 403 => true,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_operator_reads_what_it_needs_and_nothing_else() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let (own, other) = (plane.namespace("own").await, plane.namespace("other").await);
    plane.install_rbac(own.name()).await;
    let client = operator(plane, own.name(), None).await;
    let all = ListParams::default();

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
    let (own, named) = (plane.namespace("own").await, plane.namespace("named").await);
    let value = format!("secretNamespaces={{{}}}", named.name());
    plane.install_rbac_with(own.name(), &[&value]).await;
    let client = operator(plane, own.name(), None).await;
    for (namespace, wanted) in [(own.name(), true), (named.name(), false)] {
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        let answer = secrets.list(&ListParams::default()).await;
        assert_eq!(refused(answer), wanted, "secrets of {namespace}");
    }
}
