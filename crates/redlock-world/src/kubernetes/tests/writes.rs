//! Creation, update, patches, generation and subresources.

use http::Method;
use serde_json::{Value, json};

use super::support::*;
use crate::kubernetes::{Patch, ResourceId, WriteOptions};

#[tokio::test(start_paused = true)]
async fn object_is_created_once_and_updated_in_its_version() {
    let server = server();
    let made = server
        .create("u", &ResourceId::CONFIG_MAPS, config_map("a"))
        .unwrap();
    assert_eq!(made["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(made["kind"], "ConfigMap");
    assert!(made["metadata"].get("generation").is_none());
    let twice = server
        .create("u", &ResourceId::CONFIG_MAPS, config_map("a"))
        .unwrap_err();
    assert_eq!((twice.code, &*twice.reason), (409, "AlreadyExists"));
    let at = key(ResourceId::CONFIG_MAPS, "a");
    let mut next = (*made).clone();
    next["data"]["a"] = "2".into();
    let updated = server.update("u", &at, next.clone()).unwrap();
    assert_ne!(version(&made), version(&updated));
    assert!(server.update("u", &at, next).unwrap_err().is_conflict());
    let same = server.update("u", &at, (*updated).clone()).unwrap();
    assert_eq!(
        version(&same),
        version(&updated),
        "an update without a change is no write"
    );
    let absent = server.update("u", &key(ResourceId::CONFIG_MAPS, "b"), config_map("b"));
    assert!(absent.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn names_are_generated_and_namespaces_must_exist() {
    let server = server();
    let named = json!({"metadata": {"namespace": "default", "generateName": "x-"}});
    let made = server.create("u", &ResourceId::CONFIG_MAPS, named).unwrap();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("x-") && name.len() == 7, "{name}");
    let lost = json!({"metadata": {"namespace": "gone", "name": "a"}});
    let error = server.create("u", &ResourceId::CONFIG_MAPS, lost).unwrap_err();
    assert_eq!(error.message, "namespaces \"gone\" not found");
    let (code, system) = read(&server, "/api/v1/namespaces/kube-system").await;
    assert_eq!(
        (code, &system["metadata"]["uid"]),
        (200, &json!(options().cluster_uid))
    );
}

#[tokio::test(start_paused = true)]
async fn generation_counts_changes_of_the_spec_only() {
    let server = server();
    let generation = |value: &Value| value["metadata"]["generation"].as_i64().unwrap();
    let at = key(ResourceId::DEPLOYMENTS, "web");
    let made = server
        .create("u", &ResourceId::DEPLOYMENTS, deployment("web"))
        .unwrap();
    assert_eq!((generation(&made), &made["spec"]["replicas"]), (1, &json!(1)));
    let grace = &made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
    assert_eq!(grace, &json!(30));
    let labelled = server
        .merge("u", &at, json!({"metadata": {"labels": {"a": "b"}}}))
        .unwrap();
    assert_eq!(generation(&labelled), 1);
    let ready = json!({"status": {"readyReplicas": 1}, "spec": {"replicas": 9}});
    let status = server.merge_status("c", &at, ready).unwrap();
    assert_eq!((generation(&status), &status["spec"]["replicas"]), (1, &json!(1)));
    let scaled = server.scale("u", &at, 0).unwrap();
    assert_eq!(
        (&scaled["kind"], scaled["spec"].get("replicas")),
        (&json!("Scale"), None)
    );
    let stored = server.read(&at).unwrap();
    assert_eq!((generation(&stored), &stored["spec"]["replicas"]), (2, &json!(0)));
    let ignored = server
        .merge("u", &at, json!({"status": {"readyReplicas": 7}}))
        .unwrap();
    assert_eq!(ignored["status"]["readyReplicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_validated_pruned_and_defaulted() {
    let server = server();
    let (code, made) = send(&server, Method::POST, LOCKS, "application/json", {
        let mut lock = lock_object("l");
        lock["spec"]["unknown"] = 1.into();
        lock["status"] = json!({"holder": "me"});
        lock
    })
    .await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        made["spec"],
        json!({"candidates": "Operator", "deletionPolicy": "StopThenRelease",
        "enforcement": "Enforce", "fencing": "None", "onQuorumLoss": "Stop", "quorumRef": {"name": "q"},
        "state": "Enabled"})
    );
    assert_eq!(made["status"], json!({"observedGeneration": -1}));
    for (spec, field) in [
        (json!({}), "spec.quorumRef: Required value"),
        (
            json!({"quorumRef": {"name": ""}}),
            "spec.quorumRef.name: Invalid value",
        ),
        (
            json!({"quorumRef": {"name": "q"}, "state": "Off"}),
            "spec.state: Unsupported value",
        ),
        (
            json!({"quorumRef": {"name": "q"}, "leaseDurationSeconds": 1}),
            "greater than or equal to 2",
        ),
        (
            json!({"quorumRef": {"name": "q"}, "targets": [{"name": "a", "action": "Scale"}, {"name": "a",
            "action": "Scale"}]}),
            "spec.targets[1]: Duplicate value",
        ),
    ] {
        let wrong = json!({"metadata": {"name": "w"}, "spec": spec});
        let (code, error) = send(&server, Method::POST, LOCKS, "application/json", wrong).await;
        assert_eq!((code, &error["reason"]), (422, &json!("Invalid")));
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
    let strict = format!("{LOCKS}/l?fieldValidation=Strict");
    let (code, error) = send(&server, Method::PATCH, &strict, MERGE, json!({"spec": {"x": 1}})).await;
    assert_eq!(code, 422);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .ends_with("strict decoding error: unknown field \"spec.x\"")
    );
    let unversioned = server.update("u", &key(ResourceId::LEADER_LOCKS, "l"), lock_object("l"));
    assert_eq!(unversioned.unwrap_err().code, 422);
}

#[tokio::test(start_paused = true)]
async fn merge_patch_checks_version_and_uid() {
    let server = server();
    let made = server
        .create("u", &ResourceId::LEADER_LOCKS, lock_object("l"))
        .unwrap();
    let path = format!("{LOCKS}/l/status");
    let patch = |version: &str| json!({"metadata": {"resourceVersion": version}, "status": {"holder": "x"}});
    let (code, written) = send(&server, Method::PATCH, &path, MERGE, patch(&version(&made))).await;
    assert_eq!((code, &written["status"]["holder"]), (200, &json!("x")));
    assert_eq!(written["metadata"]["generation"], 1);
    let (code, error) = send(&server, Method::PATCH, &path, MERGE, patch(&version(&made))).await;
    assert_eq!((code, &error["reason"]), (409, &json!("Conflict")));
    let other = json!({"metadata": {"uid": "other", "labels": {"a": "b"}}});
    let (code, error) = send(&server, Method::PATCH, &format!("{LOCKS}/l"), MERGE, other).await;
    assert_eq!(
        (code, &error["details"]["causes"][0]["field"]),
        (422, &json!("metadata.uid"))
    );
    let (code, _) = send(&server, Method::PATCH, &format!("{LOCKS}/none"), MERGE, json!({})).await;
    assert_eq!(code, 404);
}

#[tokio::test(start_paused = true)]
async fn scale_is_patched_in_its_version_and_only_where_it_exists() {
    let server = server();
    server
        .create("u", &ResourceId::DEPLOYMENTS, deployment("web"))
        .unwrap();
    let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
    let (code, scale) = read(&server, path).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(1)));
    assert_eq!(scale["status"]["selector"], "app=web");
    let uid = json!({"metadata": {"uid": scale["metadata"]["uid"]}, "spec": {"replicas": 3}});
    let (code, written) = send(&server, Method::PATCH, path, MERGE, uid).await;
    assert_eq!((code, &written["spec"]["replicas"]), (200, &json!(3)));
    let old = json!({"metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]}, "spec": {"replicas": 4}});
    assert_eq!(send(&server, Method::PATCH, path, MERGE, old).await.0, 409);
    let negative = json!({"spec": {"replicas": -1}});
    assert_eq!(send(&server, Method::PATCH, path, MERGE, negative).await.0, 422);
    assert_eq!(read(&server, &format!("{LOCKS}/l/scale")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn json_and_strategic_patches_change_lists() {
    let server = server();
    server
        .create("u", &ResourceId::DEPLOYMENTS, deployment("web"))
        .unwrap();
    let at = key(ResourceId::DEPLOYMENTS, "web");
    let steps = json!([{"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "c"}},
        {"op": "remove", "path": "/metadata/annotations/a~1b"}, {"op": "replace", "path": "/spec/replicas", "value": 2}]);
    let plain = WriteOptions::default();
    let patched = server
        .patch("u", &at, &Patch::Json(steps.clone()), &plain)
        .unwrap();
    assert_eq!(
        (
            &patched["spec"]["replicas"],
            patched["metadata"].get("annotations")
        ),
        (&json!(2), None)
    );
    assert_eq!(
        server
            .patch("u", &at, &Patch::Json(steps), &plain)
            .unwrap_err()
            .code,
        422
    );
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "new"}, {"name": "d"}]}}}});
    let patched = server.patch("u", &at, &Patch::Strategic(image), &plain).unwrap();
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    assert_eq!(
        (&containers[0]["image"], &containers[1]["name"]),
        (&json!("new"), &json!("d"))
    );
}

#[tokio::test(start_paused = true)]
async fn custom_resources_of_other_definitions_are_served_until_their_deletion() {
    let server = server();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "replicas": {"type": "integer"}}}, "status": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true}}});
    let definition = json!({"metadata": {"name": "apps.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "apps", "kind": "App"}, "versions": [{"name": "v1",
        "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}}]}});
    server.create("u", &ResourceId::DEFINITIONS, definition).unwrap();
    let apps = ResourceId::fixed("example.com", "apps");
    let (code, found) = read(&server, "/apis/example.com/v1").await;
    assert_eq!(
        (code, &found["resources"][2]["name"]),
        (200, &json!("apps/scale"))
    );
    let object = json!({"metadata": {"namespace": "default", "name": "a", "finalizers": ["x/y"]}, "spec": {"replicas": 1}});
    server.create("u", &apps, object).unwrap();
    server.scale("u", &key(apps.clone(), "a"), 2).unwrap();
    assert_eq!(
        server.read(&key(apps.clone(), "a")).unwrap()["spec"]["replicas"],
        2
    );
    let path = "/apis/example.com/v1/namespaces/default/apps?watch=true&resourceVersion=0";
    let mut watched = watch(&server, "r1", path).await;
    assert_eq!(event_text(&mut watched).await, "ADDED a");
    let at = crate::kubernetes::ObjectKey::new(ResourceId::DEFINITIONS, "", "apps.example.com");
    server.delete("u", &at, &Default::default()).unwrap();
    assert!(server.read(&at).is_some(), "an object with a finalizer is left");
    server
        .merge(
            "u",
            &key(apps.clone(), "a"),
            json!({"metadata": {"finalizers": []}}),
        )
        .unwrap();
    assert!(server.read(&at).is_none());
    assert!(server.kind(&apps).unwrap_err().is_not_found());
    assert_eq!(read(&server, "/apis/example.com/v1").await.0, 404);
    // All changes are delivered before the watch ends.
    let mut events = Vec::new();
    while events.last().is_none_or(|last| last != "end") {
        events.push(event_text(&mut watched).await);
    }
    assert_eq!(events, ["MODIFIED a", "DELETED a", "end"]);
}

#[tokio::test(start_paused = true)]
async fn discovery_health_and_reviews_are_answered() {
    let server = server();
    assert_eq!(read(&server, "/livez").await.0, 200);
    let (_, groups) = read(&server, "/apis").await;
    let names: Vec<&str> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|group| group["name"].as_str())
        .collect();
    assert!(
        names.contains(&"apps") && names.contains(&"redlock.dev"),
        "{names:?}"
    );
    let (_, core) = read(&server, "/api/v1").await;
    assert!(
        core["resources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["name"] == "pods/status")
    );
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let token = json!({"spec": {"token": "t"}});
    let (code, review) = send(&server, Method::POST, path, "application/json", token).await;
    assert_eq!((code, &review["status"]["authenticated"]), (201, &json!(true)));
}
