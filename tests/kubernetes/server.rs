//! Tests the fixture: the server, the controllers, and the ways to break them.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::fixture::{BOUND, ControlPlane, Options, audit};
use redlock_testkit::{Mode, Proxy, eventually};

#[tokio::test]
async fn the_version_is_the_one_that_was_asked_for() {
    let version = ControlPlane::shared().admin().apiserver_version().await.unwrap();
    assert_eq!(version.major, "1", "{version:?}");
    let (_, rest) = version
        .git_version
        .split_once("v1.")
        .expect("a version of Kubernetes");
    assert!(rest.starts_with(&format!("{}.", version.minor)), "{version:?}");
    if let Ok(asked) = std::env::var("KUBE_VERSION") {
        assert!(asked.is_empty() || version.git_version == format!("v{}", asked.trim_start_matches('v')));
    }
}

#[tokio::test]
async fn the_controllers_run() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("controllers").await;
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web"}]},
            },
        },
    }))
    .unwrap();
    let deployments = Api::<Deployment>::namespaced(plane.admin(), namespace.name());
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .unwrap();
    let sets = Api::<ReplicaSet>::namespaced(plane.admin(), namespace.name());
    eventually(
        BOUND,
        "the Deployment has a ReplicaSet, and that a pod",
        async || {
            let sets = sets.list(&ListParams::default()).await.unwrap().items;
            let pods = sets
                .first()
                .and_then(|set| set.status.as_ref())
                .map(|status| status.replicas);
            if pods == Some(1) { Ok(()) } else { Err(sets) }
        },
    )
    .await;
}

#[tokio::test]
async fn restarted_server_has_all_its_data() {
    let plane = ControlPlane::start(Options {
        audit: true,
        controller_manager: false,
        ..Options::default()
    });
    assert_ne!(plane.port(), ControlPlane::shared().port());
    let name = plane.namespace("kept").await.name().to_owned();
    let admin = plane.admin();
    plane.stop_api_server();
    assert!(admin.apiserver_version().await.is_err(), "nobody answers");
    plane.start_api_server();
    let output = plane.kubectl(&["get", "namespace", &name]);
    assert!(output.status.success(), "{output:?}");

    plane.pause_api_server();
    let asked = tokio::spawn(async move { admin.apiserver_version().await });
    plane.resume_api_server();
    asked.await.unwrap().unwrap();

    eventually(BOUND, "each request is written down", async || {
        let events = audit::events(&plane.audit_log());
        let made = events.iter().any(|event| {
            let object = event.object_ref.clone().unwrap_or_default();
            event.verb == "create" && object.resource == "namespaces" && event.user.username == "admin"
        });
        let read = events.iter().any(|event| {
            let object = event.object_ref.clone().unwrap_or_default();
            event.verb == "get" && object.name == name && event.response_status.as_ref().unwrap().code == 200
        });
        if made && read { Ok(()) } else { Err((made, read)) }
    })
    .await;
}

#[tokio::test]
async fn a_proxy_stands_before_the_server() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("proxy").await;
    plane.install_rbac(namespace.name()).await;
    let proxy = Proxy::to(plane.address()).await;
    let server = format!("https://localhost:{}", proxy.port());
    let client = super::rights::operator(plane, namespace.name(), Some(server)).await;
    client.apiserver_version().await.unwrap();
    assert!(proxy.accepted() > 0);
    proxy.set(Mode::Reset);
    assert!(client.apiserver_version().await.is_err(), "cut off");
}
