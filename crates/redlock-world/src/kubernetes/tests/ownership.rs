//! The owners of fields, and server-side apply.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::support::*;
use crate::kubernetes::{Patch, ResourceId, Subresource, WriteOptions};

fn entry<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries
        .iter()
        .find(|entry| entry["manager"] == manager)
        .unwrap_or(&Value::Null)
}

#[tokio::test(start_paused = true)]
async fn last_writer_of_a_field_owns_it() {
    let server = server();
    let made = server
        .create("kubectl", &ResourceId::DEPLOYMENTS, deployment("web"))
        .unwrap();
    let creator = entry(&made, "kubectl");
    assert_eq!(creator["operation"], "Update");
    assert_eq!(creator["fieldsV1"]["f:spec"]["f:replicas"], json!({}));
    assert!(creator["fieldsV1"].get("f:status").is_none());
    let container = r#"k:{"name":"c"}"#;
    let template = &creator["fieldsV1"]["f:spec"]["f:template"];
    assert_eq!(
        template["f:spec"]["f:containers"][container]["f:image"],
        json!({})
    );
    assert_eq!(
        creator["fieldsV1"]["f:spec"]["f:selector"],
        json!({}),
        "a selector is one value"
    );
    tokio::time::advance(Duration::from_secs(60)).await;
    let options = WriteOptions {
        manager: Some("redlock-operator-scale".to_owned()),
        subresource: Subresource::Scale,
        ..WriteOptions::default()
    };
    let at = key(ResourceId::DEPLOYMENTS, "web");
    server
        .patch(
            "r1",
            &at,
            &Patch::Merge(json!({"spec": {"replicas": 3}})),
            &options,
        )
        .unwrap();
    let stored = server.read(&at).unwrap();
    let scaler = entry(&stored, "redlock-operator-scale");
    assert_eq!(scaler["subresource"], "scale");
    assert!(scaler.get("time").is_none(), "a scale records no time");
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert!(
        entry(&stored, "kubectl")["fieldsV1"]["f:spec"]
            .get("f:replicas")
            .is_none()
    );
    assert_eq!(entry(&stored, "kubectl")["time"], "2026-01-01T00:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn applied_fields_conflict_and_vanish_when_they_are_no_longer_applied() {
    let server = server();
    let at = key(ResourceId::CONFIG_MAPS, "a");
    let config = |data: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "a"}, "data": data})
    };
    server
        .apply("flux", &at, config(json!({"x": "1", "y": "1"})), false)
        .unwrap();
    let conflict = server
        .apply("argo", &at, config(json!({"x": "2"})), false)
        .unwrap_err();
    assert_eq!(conflict.code, 409);
    assert_eq!(conflict.details["causes"][0]["field"], ".data.x");
    assert!(
        conflict.message.contains("conflict with \"flux\": .data.x"),
        "{conflict}"
    );
    let shared = server
        .apply("argo", &at, config(json!({"x": "1"})), false)
        .unwrap();
    assert_eq!(shared["data"], json!({"x": "1", "y": "1"}));
    let same = server
        .apply("argo", &at, config(json!({"x": "1"})), false)
        .unwrap();
    assert_eq!(version(&same), version(&shared), "the same again is no write");
    let dropped = server.apply("flux", &at, config(json!({})), false).unwrap();
    assert_eq!(
        dropped["data"],
        json!({"x": "1"}),
        "x has another owner, y has none"
    );
    let forced = server
        .apply("flux", &at, config(json!({"x": "3"})), true)
        .unwrap();
    assert_eq!(forced["data"]["x"], "3");
    assert!(entry(&forced, "argo").is_null());
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_merged_and_removed_by_apply() {
    let server = server();
    let mut object = lock_object("l");
    object["metadata"]["finalizers"] = json!(["other/one"]);
    let made = server.create("u", &ResourceId::LEADER_LOCKS, object).unwrap();
    let path = format!("{LOCKS}/l?fieldManager=redlock-operator-finalizer&force=true");
    let patch = |uid: &Value, finalizers: &[&str]| {
        json!({"apiVersion": "redlock.dev/v1alpha1", "kind": "LeaderLock",
        "metadata": {"name": "l", "uid": uid, "finalizers": finalizers}})
    };
    let uid = &made["metadata"]["uid"];
    let (code, added) = send(
        &server,
        Method::PATCH,
        &path,
        APPLY,
        patch(uid, &["redlock.dev/stop"]),
    )
    .await;
    assert_eq!(
        (code, &added["metadata"]["finalizers"]),
        (200, &json!(["other/one", "redlock.dev/stop"]))
    );
    let owner = &entry(&added, "redlock-operator-finalizer")["fieldsV1"];
    assert_eq!(
        owner["f:metadata"]["f:finalizers"]["v:\"redlock.dev/stop\""],
        json!({})
    );
    assert_eq!(added["metadata"]["generation"], 1);
    let (code, _) = send(
        &server,
        Method::PATCH,
        &path,
        APPLY,
        patch(&json!("old"), &["redlock.dev/stop"]),
    )
    .await;
    assert_eq!(code, 422, "another UID");
    let (code, removed) = send(&server, Method::PATCH, &path, APPLY, patch(uid, &[])).await;
    assert_eq!(
        (code, &removed["metadata"]["finalizers"]),
        (200, &json!(["other/one"]))
    );
    let path = format!("{LOCKS}/gone?fieldManager=m&force=true");
    let (code, _) = send(&server, Method::PATCH, &path, APPLY, patch(uid, &["a/b"])).await;
    assert_eq!(code, 409, "an object with a UID is not created");
}

#[tokio::test(start_paused = true)]
async fn apply_creates_and_owns_no_default() {
    let server = server();
    let mut config = lock_object("l");
    config["apiVersion"] = "redlock.dev/v1alpha1".into();
    config["kind"] = "LeaderLock".into();
    let path = format!("{LOCKS}/l?fieldManager=gitops");
    let (code, made) = send(&server, Method::PATCH, &path, APPLY, config).await;
    assert_eq!((code, &made["spec"]["state"]), (201, &json!("Enabled")));
    let fields = &entry(&made, "gitops")["fieldsV1"];
    assert_eq!(fields, &json!({"f:spec": {"f:quorumRef": {"f:name": {}}}}));
    let status = json!({"status": {"holder": "x", "conditions": [{"type": "Ready", "status": "True", "reason": "A",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let written = server
        .merge_status("r1", &key(ResourceId::LEADER_LOCKS, "l"), status)
        .unwrap();
    let owned = entry(&written, "r1");
    assert_eq!(owned["subresource"], "status");
    assert_eq!(owned["fieldsV1"]["f:status"]["f:holder"], json!({}));
    assert!(
        owned["fieldsV1"]["f:status"]["f:conditions"][r#"k:{"type":"Ready"}"#].is_object(),
        "{owned}"
    );
}

#[tokio::test(start_paused = true)]
async fn old_updates_are_combined() {
    let server = server();
    server
        .create("u", &ResourceId::CONFIG_MAPS, config_map("a"))
        .unwrap();
    for number in 0..15 {
        tokio::time::advance(Duration::from_secs(1)).await;
        let change = json!({"data": {format!("k{number}"): "v"}});
        server
            .merge(&format!("m{number}"), &key(ResourceId::CONFIG_MAPS, "a"), change)
            .unwrap();
    }
    let stored = server.read(&key(ResourceId::CONFIG_MAPS, "a")).unwrap();
    assert_eq!(stored["metadata"]["managedFields"].as_array().unwrap().len(), 10);
    assert!(
        entry(&stored, "ancient-changes")["fieldsV1"]["f:data"]
            .get("f:a")
            .is_some()
    );
}
