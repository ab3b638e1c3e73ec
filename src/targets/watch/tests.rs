use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use axum::{Json, Router, extract::RawQuery, http::StatusCode, response::IntoResponse, routing::get};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, ResourceExt, core::DeserializeGuard};
use serde_json::json;

use super::*;
use crate::targets::fake_server::fake_server;

/// An API server with one object in its lists, whose resourceVersion is lower in each list. A watch cannot be started.
async fn restored_server() -> Client {
    let lists = Arc::new(AtomicUsize::new(0));
    let answer = move |RawQuery(query): RawQuery| async move {
        if query.is_some_and(|query| query.contains("watch=")) {
            return (StatusCode::INTERNAL_SERVER_ERROR, "away").into_response();
        }
        let version = (1_000 - lists.fetch_add(1, SeqCst)).to_string();
        Json(json!({
            "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": version},
            "items": [{"metadata": {"name": "a", "resourceVersion": version}}],
        }))
        .into_response()
    };
    fake_server(Router::new().route("/api/v1/configmaps", get(answer))).await
}

fn object(name: &str, uid: &str) -> ConfigMap {
    let metadata = json!({"namespace": "n", "name": name, "uid": uid});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn at(seconds: u64) -> BootInstant {
    BootInstant::default() + Duration::from_secs(seconds)
}

/// Returns the changes for consumers as text, such as `list a=u` and `gone a`.
fn learn<K: Resource>(present: &mut Present, events: Vec<watcher::Result<Event<K>>>) -> Vec<String> {
    let changes = events.into_iter().flat_map(|event| present.take(event, at(7)));
    let text = |change| match change {
        Change::Seen(object, origin) => {
            let object: K = object;
            let (name, uid) = (object.meta().name.clone(), object.meta().uid.clone());
            let origin = match origin {
                Origin::List(requested) if requested == at(7) => "list",
                Origin::Watch => "watch",
                other => panic!("{other:?}"),
            };
            format!("{origin} {}={}", name.unwrap(), uid.unwrap())
        }
        Change::Gone(key) => format!("gone {}", key.name),
        Change::Synced => "synced".to_owned(),
        Change::Failed(_) => "failed".to_owned(),
    };
    changes.map(text).collect()
}

const fn failed<K>() -> watcher::Result<Event<K>> {
    Err(watcher::Error::NoResourceVersion)
}

#[test]
fn object_that_a_complete_list_lacks_is_gone() {
    let mut present = Present::default();
    let (a, b) = (|| object("a", "1"), || object("b", "1"));
    let first = vec![Ok(Event::Init), Ok(Event::InitApply(a())), Ok(Event::InitDone)];
    assert_eq!(learn(&mut present, first), ["list a=1", "synced"]);
    assert_eq!(learn(&mut present, vec![Ok(Event::Apply(b()))]), ["watch b=1"]);
    // The object was deleted, and created again with another UID.
    let again = vec![
        failed(),
        Ok(Event::Init),
        Ok(Event::InitApply(object("a", "2"))),
        Ok(Event::InitDone),
    ];
    assert_eq!(
        learn(&mut present, again),
        ["failed", "list a=2", "gone b", "synced"]
    );
    let deleted = vec![
        Ok(Event::Delete(object("a", "2"))),
        Ok(Event::Init),
        Ok(Event::InitDone),
    ];
    assert_eq!(learn(&mut present, deleted), ["gone a", "synced"]);
}

#[test]
fn list_that_breaks_off_makes_no_object_gone() {
    let mut present = Present::default();
    let (a, b) = (|| object("a", "1"), || object("b", "1"));
    let first = vec![
        Ok(Event::Init),
        Ok(Event::InitApply(a())),
        Ok(Event::InitApply(b())),
        Ok(Event::InitDone),
    ];
    learn(&mut present, first);
    let broken = vec![
        Ok(Event::Init),
        Ok(Event::InitApply(a())),
        Ok(Event::InitApply(object("c", "1"))),
        failed(),
    ];
    assert_eq!(learn(&mut present, broken), ["list a=1", "list c=1", "failed"]);
    // The objects of the aborted list count no more than the others.
    let complete = vec![Ok(Event::Init), Ok(Event::InitApply(b())), Ok(Event::InitDone)];
    assert_eq!(
        learn(&mut present, complete),
        ["list b=1", "gone a", "gone c", "synced"]
    );
}

#[test]
fn object_that_cannot_be_read_is_there() {
    let malformed = || -> DeserializeGuard<ConfigMap> {
        let text = json!({"metadata": {"namespace": "n", "name": "a", "uid": "1"}, "data": 7});
        serde_json::from_value(text).unwrap()
    };
    assert!(malformed().0.is_err());
    let mut present = Present::default();
    let list = || {
        vec![
            Ok(Event::Init),
            Ok(Event::InitApply(malformed())),
            Ok(Event::InitDone),
        ]
    };
    assert_eq!(learn(&mut present, list()), ["list a=1", "synced"]);
    assert_eq!(learn(&mut present, list()), ["list a=1", "synced"]);
    let empty: Vec<watcher::Result<Event<DeserializeGuard<ConfigMap>>>> =
        vec![Ok(Event::Init), Ok(Event::InitDone)];
    assert_eq!(learn(&mut present, empty), ["gone a", "synced"]);
}

#[test]
fn list_replaces_newer_versions_and_single_objects_do_not() {
    assert!(!Origin::Watch.replaces(true, None));
    assert!(Origin::Watch.replaces(false, None));
    assert!(Origin::List(at(1)).replaces(true, None));
}

#[test]
fn answer_to_a_write_outlasts_the_list_that_was_under_way() {
    assert!(Origin::Answer.replaces(false, None));
    let answered = Some(at(2));
    assert!(!Origin::List(at(1)).replaces(true, answered));
    assert!(Origin::List(at(1)).replaces(false, answered));
    // The list failed and was requested again: it contains the write.
    assert!(Origin::List(at(3)).replaces(true, answered));
    // etcd was restored: the version of the write is older than the known one, and is dropped.
    assert!(!Origin::Answer.replaces(true, None));
}

#[tokio::test]
async fn watch_that_cannot_be_started_again_begins_with_a_list() {
    let api = Api::<ConfigMap>::all(restored_server().await);
    let events = watch_events(Requests::new(api, watcher::Config::default(), decode));
    let versions = events.filter_map(|event| async {
        match event {
            Ok(Event::InitApply(object)) => object.resource_version(),
            _ => None,
        }
    });
    let mut versions = pin!(versions);
    let first = versions.next().await;
    let second = time::timeout(Duration::from_secs(60), versions.next()).await;
    assert_eq!(first.as_deref(), Some("1000"));
    assert_eq!(second, Ok(Some("999".to_owned())), "listed again");
}
