use serde_json::{Value, json};

use super::*;

fn lock() -> Value {
    json!({
        "apiVersion": "redlock.dev/v1alpha1", "kind": "LeaderLock",
        "metadata": {
            "name": "l", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-07-20T10:00:00Z", "deletionTimestamp": "2026-07-20T11:00:00Z",
            "finalizers": ["redlock.dev/targets"],
            "labels": {"a": "b"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "o"}],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
            "annotations": {"note": "x".repeat(250_000), "redlock.dev/paused": "night shift", "redlock.dev/other": "y"},
        },
        "spec": {"quorumRef": {"name": "q"}, "targets": [{"name": "t", "action": "LabelPods"}]},
        "status": {"observedGeneration": 2, "holder": "eu/a"},
    })
}

fn read(object: &Value) -> Result<LeaderLock, Box<InvalidObject>> {
    read_in_parts(&object.to_string()).unwrap().0.map_err(Box::new)
}

#[test]
fn parts_that_are_read_are_those_of_the_whole_object() {
    let mut whole: LeaderLock = serde_json::from_value(lock()).unwrap();
    trim(&mut whole.metadata);
    assert_eq!(read(&lock()).unwrap(), whole);
    let annotations = whole.metadata.annotations.unwrap();
    assert_eq!(
        annotations.into_iter().collect::<Vec<_>>(),
        [("redlock.dev/paused".to_owned(), "night shift".to_owned())]
    );
    let quorum = json!({
        "metadata": {"name": "q", "annotations": null},
        "spec": {"masters": [{"name": "a", "url": "redis://a"}]},
        "status": null,
    });
    let read: RedisQuorum = read_in_parts(&quorum.to_string()).unwrap().0.unwrap();
    assert_eq!(read.spec.masters[0].name, "a");
    assert_eq!((read.status, read.metadata.annotations), (None, None));
}

#[test]
fn annotations_are_cut_when_they_are_read() {
    let mut object = lock();
    for (name, limit) in [
        ("paused", 512),
        ("abstain", 512),
        ("hand-over", 1_024),
        ("in-force", 32_768),
    ] {
        object["metadata"]["annotations"] = json!({ format!("redlock.dev/{name}"): "é".repeat(100_000) });
        let metadata = read(&object).unwrap().metadata;
        let lengths: Vec<usize> = metadata.annotations.unwrap().values().map(String::len).collect();
        assert_eq!(lengths, [limit], "{name}");
    }
}

#[test]
fn spec_that_is_too_long_is_not_read_and_named_with_its_length() {
    let mut object = lock();
    for value in [json!("x".repeat(1_200_000)), json!(vec![0; 500_000])] {
        object["spec"]["targets"][0]["patch"] =
            json!({"fields": [{"path": "/spec/a", "active": {"a": value}}]});
        let length = object["spec"].to_string().len();
        let invalid = read(&object).unwrap_err();
        let wanted = format!("invalid spec: has {length} bytes of JSON: use at most 16384 bytes");
        assert!(invalid.error.starts_with(&wanted), "{}", invalid.error);
        let (name, finalizers) = (
            invalid.metadata.name.unwrap(),
            invalid.metadata.finalizers.unwrap(),
        );
        assert_eq!((&*name, &*finalizers[0]), ("l", "redlock.dev/targets"));
        assert!(invalid.metadata.deletion_timestamp.is_some());
    }
}

#[test]
fn spec_that_is_as_long_as_allowed_is_read() {
    let mut object = lock();
    object["spec"]["reason"] = json!("");
    let rest = object["spec"].to_string().len();
    object["spec"]["reason"] = json!("x".repeat(LOCK_SPEC_LIMIT - rest));
    read(&object).unwrap();
    object["spec"]["reason"] = json!("x".repeat(LOCK_SPEC_LIMIT - rest + 1));
    read(&object).unwrap_err();
}

#[test]
fn unreadable_object_has_the_reason_and_its_metadata() {
    let mut object = lock();
    object["spec"]["candidates"] = json!("Everybody");
    let invalid = read(&object).unwrap_err();
    assert!(invalid.error.contains("Everybody"), "{}", invalid.error);
    assert_eq!(invalid.metadata.name.as_deref(), Some("l"));
    let absent = json!({"metadata": {"name": "l"}});
    assert_eq!(read(&absent).unwrap_err().metadata.name.as_deref(), Some("l"));
    assert!(read_in_parts::<LeaderLock>("{}").is_err());
}

#[test]
fn status_of_another_writer_that_is_too_long_is_left_out() {
    let mut object = lock();
    object["status"]["holder"] = json!("x".repeat(STATUS_LIMIT));
    assert_eq!(read(&object).unwrap().status, None);
}

#[test]
fn outline_of_a_spec_that_is_too_long_names_the_targets_that_are_too_long() {
    let mut object = lock();
    let target = |name: &str| {
        json!({
            "name": name, "action": "Patch", "stopSeconds": 5,
            "ref": {"apiVersion": "a.example/v1", "kind": "Queue", "name": "q"},
            "patch": {"fields": [{"path": "/spec/a", "active": 1}]},
        })
    };
    let (short, mut long) = (target("short"), target("long"));
    long["patch"]["fields"][0]["active"] = json!({"a": vec![0; 500_000]});
    object["spec"]["targets"] = json!([short, long]);
    object["spec"]["reason"] = json!("x".repeat(FIELD_LIMIT));
    let outline = outline(&object.to_string()).unwrap();
    let salvaged = crate::api::salvage::salvage(&outline).unwrap();
    assert_eq!(salvaged.lost, ["long"]);
    let spec = salvaged.object.spec;
    assert_eq!((&*spec.quorum_ref.name, spec.reason), ("q", None));
    let names: Vec<&str> = spec.targets.iter().map(|target| &*target.name).collect();
    assert_eq!(names, ["short"]);
    assert!(salvaged.object.metadata.deletion_timestamp.is_some());
    assert_eq!(super::outline("7"), None);
}
