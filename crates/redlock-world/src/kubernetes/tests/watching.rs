//! Lists, watches, bookmarks, expiry and restoration.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::support::*;
use crate::kubernetes::{ApiServer, DeleteOptions, ResourceId};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn watch_maps(server: &ApiServer, parameters: &str) -> crate::kubernetes::WatchStream {
    let path = format!(
        "{MAPS}?watch=true&resourceVersion={}{parameters}",
        server.revision()
    );
    watch(server, "r1", &path).await
}

fn make(server: &ApiServer, name: &str) {
    server
        .create("u", &ResourceId::CONFIG_MAPS, config_map(name))
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn watch_delivers_changes_in_order() {
    let server = server();
    let mut maps = watch_maps(&server, "").await;
    make(&server, "a");
    server
        .create("u", &ResourceId::DEPLOYMENTS, deployment("other"))
        .unwrap();
    let changed = server
        .merge(
            "u",
            &key(ResourceId::CONFIG_MAPS, "a"),
            json!({"data": {"a": "2"}}),
        )
        .unwrap();
    server
        .delete("u", &key(ResourceId::CONFIG_MAPS, "a"), &DeleteOptions::default())
        .unwrap();
    assert_eq!(event_text(&mut maps).await, "ADDED a");
    assert_eq!(
        event(&mut maps).await.unwrap().unwrap(),
        ("MODIFIED".to_owned(), (*changed).clone())
    );
    let (kind, last) = event(&mut maps).await.unwrap().unwrap();
    assert_eq!((&*kind, &last["data"]["a"]), ("DELETED", &json!("2")));
    assert_eq!(
        last["metadata"]["resourceVersion"],
        server.revision().to_string(),
        "the revision of the deletion"
    );
}

#[tokio::test(start_paused = true)]
async fn watch_wakes_for_a_later_change() {
    let server = server();
    let mut maps = watch_maps(&server, "").await;
    let other = server.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        make(&other, "late");
    });
    let began = Instant::now();
    assert_eq!(event_text(&mut maps).await, "ADDED late");
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn selected_objects_appear_and_disappear_by_their_labels() {
    let server = server();
    let mut maps = watch_maps(&server, "&labelSelector=on").await;
    make(&server, "a");
    let at = key(ResourceId::CONFIG_MAPS, "a");
    for on in [json!("1"), json!(null)] {
        server
            .merge("u", &at, json!({"metadata": {"labels": {"on": on}}}))
            .unwrap();
    }
    assert_eq!(event_text(&mut maps).await, "ADDED a");
    assert_eq!(event_text(&mut maps).await, "DELETED a");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_follow_the_revision_and_the_watch_ends() {
    let server = server();
    let began = Instant::now();
    let mut maps = watch_maps(&server, "&allowWatchBookmarks=true&timeoutSeconds=100").await;
    server
        .create("u", &ResourceId::DEPLOYMENTS, deployment("other"))
        .unwrap();
    let (kind, bookmark) = event(&mut maps).await.unwrap().unwrap();
    assert_eq!((&*kind, began.elapsed().as_secs()), ("BOOKMARK", 60));
    assert_eq!(
        bookmark["metadata"]["resourceVersion"],
        server.revision().to_string()
    );
    assert_eq!(event(&mut maps).await.unwrap().unwrap().0, "BOOKMARK");
    assert_eq!(began.elapsed().as_secs(), 98);
    assert_eq!(event_text(&mut maps).await, "end");
    assert_eq!(began.elapsed().as_secs(), 100);
    drop(maps);
    assert_eq!(server.open_watches(), []);
}

#[tokio::test(start_paused = true)]
async fn too_old_version_is_gone() {
    let server = server();
    let old = server.revision();
    make(&server, "a");
    server.compact();
    let path = format!("{MAPS}?watch=true&resourceVersion={old}");
    let mut late = watch(&server, "r1", &path).await;
    let (kind, status) = event(&mut late).await.unwrap().unwrap();
    assert_eq!(
        (&*kind, &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    assert_eq!(event_text(&mut late).await, "end");
    let mut present = watch_maps(&server, "").await;
    make(&server, "b");
    assert_eq!(event_text(&mut present).await, "ADDED b");
}

#[tokio::test(start_paused = true)]
async fn window_of_changes_is_bounded() {
    let mut options = options();
    options.event_window = 2;
    let server = ApiServer::new(options);
    let mut slow = watch_maps(&server, "").await;
    ["a", "b", "c"].iter().for_each(|name| make(&server, name));
    assert_eq!(event_text(&mut slow).await, "ERROR 410");
    assert_eq!(event_text(&mut slow).await, "end");
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_revision() {
    let server = server();
    ["a", "b", "c"].iter().for_each(|name| make(&server, name));
    let (_, first) = read(&server, &format!("{MAPS}?limit=2")).await;
    assert_eq!(
        (&first["kind"], first["items"].as_array().unwrap().len()),
        (&json!("ConfigMapList"), 2)
    );
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    server
        .delete("u", &key(ResourceId::CONFIG_MAPS, "c"), &DeleteOptions::default())
        .unwrap();
    make(&server, "d");
    let token = first["metadata"]["continue"]
        .as_str()
        .unwrap()
        .replace('|', "%7C");
    let (_, second) = read(&server, &format!("{MAPS}?limit=2&continue={token}")).await;
    let names: Vec<_> = second["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!(names, ["c"], "as it was at the first page");
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    server.compact();
    assert_eq!(
        read(&server, &format!("{MAPS}?limit=2&continue={token}")).await.0,
        410
    );
    let (_, all) = read(
        &server,
        "/api/v1/configmaps?fieldSelector=metadata.name%3Dd&resourceVersion=0",
    )
    .await;
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_read_and_watched() {
    let server = server();
    make(&server, "a");
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let mut list = request(http::Method::GET, MAPS, "", &json!(null));
    list.accept = accept.to_owned();
    let (_, list) = unary(server.handle("r1", list).await.unwrap());
    assert_eq!(
        (&list["kind"], &list["items"][0]["metadata"]["name"]),
        (&json!("PartialObjectMetadataList"), &json!("a"))
    );
    assert!(list["items"][0].get("data").is_none());
}

#[tokio::test(start_paused = true)]
async fn restored_server_is_at_an_older_revision() {
    let server = server();
    make(&server, "kept");
    let copy = server.snapshot();
    make(&server, "lost");
    let future = server.revision();
    let mut maps = watch_maps(&server, "").await;
    server.restore(&copy);
    assert_eq!(event_text(&mut maps).await, "broken");
    assert_eq!(event_text(&mut maps).await, "end");
    assert_eq!(server.revision(), copy.revision());
    assert_eq!(server.all(&ResourceId::CONFIG_MAPS).len(), 1);
    let path = format!("{MAPS}?watch=true&timeoutSeconds=5&resourceVersion={future}");
    let mut blind = watch(&server, "r1", &path).await;
    make(&server, "hidden");
    assert_eq!(
        event_text(&mut blind).await,
        "end",
        "a watch from the future does not show the changes before it"
    );
    let old = watch(
        &server,
        "r1",
        &format!("{MAPS}?watch=true&resourceVersion={}", copy.revision() - 1),
    )
    .await;
    let mut old = old;
    assert_eq!(event_text(&mut old).await, "ERROR 410");
}

#[tokio::test(start_paused = true)]
async fn one_seed_yields_one_history() {
    let run = || {
        let server = server();
        make(&server, "a");
        let made = server.create("u", &ResourceId::PODS, pod("p", &[])).unwrap();
        (made, server.take_history().0.len())
    };
    assert_eq!(run(), run());
}

#[tokio::test(start_paused = true)]
async fn controllers_follow_the_revision_without_a_watch() {
    let server = server();
    let since = server.revision();
    let other = server.clone();
    let waiting = tokio::spawn(async move { other.changed(since).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    make(&server, "a");
    assert_eq!(waiting.await.unwrap(), since + 1);
    let events = server.events_since(&ResourceId::CONFIG_MAPS, since).unwrap();
    assert_eq!(
        events
            .iter()
            .map(|event| event.key.name.clone())
            .collect::<Vec<_>>(),
        ["a"]
    );
    server.compact();
    assert_eq!(
        server
            .events_since(&ResourceId::CONFIG_MAPS, since)
            .unwrap_err()
            .code,
        410
    );
}

#[tokio::test(start_paused = true)]
async fn event_objects_expire_after_an_hour() {
    let server = server();
    let event = |name: &str| {
        json!({"metadata": {"namespace": "default", "name": name}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "c", "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal"})
    };
    server.create("u", &ResourceId::EVENTS, event("old")).unwrap();
    tokio::time::advance(Duration::from_secs(3_601)).await;
    server.create("u", &ResourceId::EVENTS, event("new")).unwrap();
    let left = server.all(&ResourceId::EVENTS);
    assert_eq!((left.len(), &left[0]["metadata"]["name"]), (1, &json!("new")));
}
