//! Deletion: finalizers, grace periods, propagation and namespaces.

use http::Method;
use serde_json::json;

use super::support::*;
use crate::kubernetes::{DeleteOptions, ObjectKey, Propagation, ResourceId};

#[tokio::test(start_paused = true)]
async fn object_vanishes_with_its_last_finalizer() {
    let server = server();
    let mut object = lock_object("l");
    object["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
    server.create("u", &ResourceId::LEADER_LOCKS, object).unwrap();
    let at = key(ResourceId::LEADER_LOCKS, "l");
    let pending = server.delete("u", &at, &DeleteOptions::default()).unwrap();
    assert_eq!(pending["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(pending["metadata"]["generation"], 2);
    let again = server.delete("u", &at, &DeleteOptions::default()).unwrap();
    assert_eq!(version(&again), version(&pending));
    let added = server
        .merge("u", &at, json!({"metadata": {"finalizers": ["a/b", "new/one"]}}))
        .unwrap_err();
    assert!(
        added.code == 422 && added.message.contains("no new finalizers can be added"),
        "{added}"
    );
    server
        .merge("u", &at, json!({"metadata": {"finalizers": ["c/d"]}}))
        .unwrap();
    let last = server
        .merge("u", &at, json!({"metadata": {"finalizers": []}}))
        .unwrap();
    assert!(last["metadata"].get("finalizers").is_none());
    assert!(server.read(&at).is_none());
    let (history, _) = server.take_history();
    let end = history.last().unwrap();
    assert!(end.after.is_none() && end.before.is_some() && end.caller == "u");
}

#[tokio::test(start_paused = true)]
async fn pod_remains_for_its_grace_period_until_the_kubelet_removes_it() {
    let server = server();
    server.create("u", &ResourceId::PODS, pod("p", &[])).unwrap();
    let at = key(ResourceId::PODS, "p");
    let path = "/api/v1/namespaces/default/pods/p";
    let (code, pending) = send(&server, Method::DELETE, path, "application/json", json!({})).await;
    assert_eq!(
        (code, &pending["metadata"]["deletionGracePeriodSeconds"]),
        (200, &json!(30))
    );
    assert_eq!(pending["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    let short = json!({"gracePeriodSeconds": 5});
    let (_, shorter) = send(&server, Method::DELETE, path, "application/json", short).await;
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
    let long = json!({"gracePeriodSeconds": 60});
    let (_, same) = send(&server, Method::DELETE, path, "application/json", long).await;
    assert_eq!(
        same["metadata"]["resourceVersion"],
        shorter["metadata"]["resourceVersion"]
    );
    server.delete("kubelet", &at, &DeleteOptions::now()).unwrap();
    assert!(server.read(&at).is_none());
}

#[tokio::test(start_paused = true)]
async fn pod_without_node_vanishes_and_pod_with_finalizer_remains() {
    let server = server();
    let mut unbound = pod("p", &[]);
    unbound["spec"].as_object_mut().unwrap().remove("nodeName");
    server.create("u", &ResourceId::PODS, unbound).unwrap();
    server
        .delete("u", &key(ResourceId::PODS, "p"), &DeleteOptions::default())
        .unwrap();
    assert!(server.read(&key(ResourceId::PODS, "p")).is_none());
    server
        .create("u", &ResourceId::PODS, pod("kept", &["a/b"]))
        .unwrap();
    let at = key(ResourceId::PODS, "kept");
    let kept = server.delete("u", &at, &DeleteOptions::now()).unwrap();
    assert_eq!(kept["metadata"]["deletionGracePeriodSeconds"], 0);
    server
        .merge("u", &at, json!({"metadata": {"finalizers": null}}))
        .unwrap();
    assert!(server.read(&at).is_none());
}

#[tokio::test(start_paused = true)]
async fn preconditions_and_propagation_are_respected() {
    let server = server();
    server
        .create("u", &ResourceId::DEPLOYMENTS, deployment("web"))
        .unwrap();
    let at = key(ResourceId::DEPLOYMENTS, "web");
    let wrong = DeleteOptions {
        uid: Some("other".to_owned()),
        ..DeleteOptions::default()
    };
    assert!(server.delete("u", &at, &wrong).unwrap_err().is_conflict());
    let old = DeleteOptions {
        version: Some("1".to_owned()),
        ..DeleteOptions::default()
    };
    assert!(server.delete("u", &at, &old).unwrap_err().is_conflict());
    let foreground = DeleteOptions {
        propagation: Some(Propagation::Foreground),
        ..DeleteOptions::default()
    };
    let pending = server.delete("u", &at, &foreground).unwrap();
    assert_eq!(pending["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let path = "/apis/apps/v1/namespaces/default/deployments/web";
    let body = json!({"propagationPolicy": "Background"});
    let (code, status) = send(&server, Method::DELETE, path, "application/json", body).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
}

#[tokio::test(start_paused = true)]
async fn collection_is_deleted_by_its_selector() {
    let server = server();
    for name in ["a", "b"] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"name": name});
        server.create("u", &ResourceId::CONFIG_MAPS, object).unwrap();
    }
    let path = "/api/v1/namespaces/default/configmaps?labelSelector=name%3Da";
    let (code, list) = send(&server, Method::DELETE, path, "application/json", json!({})).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 1));
    assert_eq!(server.all(&ResourceId::CONFIG_MAPS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn namespace_that_is_deleted_takes_no_new_object_until_it_is_finalized() {
    let server = server();
    server
        .create("u", &ResourceId::NAMESPACES, json!({"metadata": {"name": "n"}}))
        .unwrap();
    let at = ObjectKey::new(ResourceId::NAMESPACES, "", "n");
    let pending = server.delete("u", &at, &DeleteOptions::default()).unwrap();
    assert_eq!(pending["status"]["phase"], "Terminating");
    let new = json!({"metadata": {"namespace": "n", "name": "a"}});
    let refused = server.create("u", &ResourceId::CONFIG_MAPS, new).unwrap_err();
    assert_eq!(
        (refused.code, &refused.details["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
    let mut done = (*pending).clone();
    done["spec"].as_object_mut().unwrap().remove("finalizers");
    let (code, _) = send(
        &server,
        Method::PUT,
        "/api/v1/namespaces/n/finalize",
        "application/json",
        done,
    )
    .await;
    assert_eq!(code, 200);
    assert!(server.read(&at).is_none());
    let system = ObjectKey::new(ResourceId::NAMESPACES, "", "kube-system");
    assert_eq!(
        server
            .delete("u", &system, &DeleteOptions::default())
            .unwrap_err()
            .code,
        403
    );
}
