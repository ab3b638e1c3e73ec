use std::pin::pin;

use axum::{Json, Router, routing::get};
use serde_json::json;

use super::*;
use crate::targets::fake_server::fake_server;

fn reference() -> TargetRef {
    TargetRef {
        api_version: "test.example/v1".into(),
        kind: "Gate".into(),
        name: "gate".into(),
    }
}

fn gates(version: &str) -> ApiResource {
    ApiResource {
        group: "test.example".into(),
        version: version.into(),
        api_version: format!("test.example/{version}"),
        kind: "Gate".into(),
        plural: "gates".into(),
    }
}

fn known(kinds: &Kinds, fresh: Duration) -> Option<Result<ApiResource, TargetError>> {
    kinds.answer(&reference(), Need::Scale, fresh)
}

#[test]
fn failed_discovery_keeps_the_last_result_in_doubt() {
    let kinds = Kinds::default();
    let mut changes = kinds.changes();
    let away = TargetError::Api {
        what: "discovering".into(),
        reason: "the server is away".into(),
        refusal: false,
    };
    let unknown = TargetError::UnknownKind {
        api_version: "test.example/v1".into(),
        kind: "Gate".into(),
    };
    let take = |found| kinds.take(&reference(), Need::Scale, found);
    assert!(take(Err(away.clone())).is_err());
    assert!(known(&kinds, REFRESHED).unwrap().is_err());
    assert_eq!(take(Ok(gates("v1"))), Ok(gates("v1")));
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert!(!kinds.is_stale(&reference(), Need::Scale));
    assert_eq!(take(Err(away)), Ok(gates("v1")));
    assert!(
        kinds.is_stale(&reference(), Need::Scale),
        "not confirmed by a failure"
    );
    assert_eq!(take(Ok(gates("v1"))), Ok(gates("v1")));
    assert!(!kinds.is_stale(&reference(), Need::Scale));
    assert!(!changes.has_changed().unwrap());
    assert_eq!(take(Err(unknown.clone())), Err(unknown));
    assert!(changes.has_changed().unwrap());
    assert_eq!(take(Ok(gates("v2"))), Ok(gates("v2")));
}

#[test]
fn discovery_is_repeated_when_it_is_old_or_in_doubt() {
    let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
    let entry = |doubted| Entry {
        found: Ok(gates("v1")),
        asked: at(1_000),
        used: at(1_000),
        doubted,
        refreshing: None,
    };
    for (doubted, now, fresh, valid) in [
        (false, 1_000, CONFIRMED, true),
        (false, 1_011, CONFIRMED, false),
        (false, 1_011, REFRESHED, true),
        (false, 1_301, REFRESHED, false),
        (true, 1_001, REFRESHED, true),
        (true, 1_003, REFRESHED, false),
    ] {
        let answer = entry(doubted).answer(at(now), fresh);
        assert_eq!(answer.is_some(), valid, "{doubted} {now} {fresh:?}");
    }
}

#[test]
fn resource_is_found_with_its_scale() {
    let list: APIResourceList = serde_json::from_value(serde_json::json!({
        "groupVersion": "test.example/v2",
        "resources": [
            {"name": "gates/scale", "kind": "Scale", "namespaced": true, "singularName": "", "verbs": []},
            {"name": "gates", "kind": "Gate", "namespaced": true, "singularName": "gate", "verbs": []},
            {"name": "doors", "kind": "Door", "namespaced": true, "singularName": "door", "verbs": []},
        ],
    }))
    .unwrap();
    let version = GroupVersion::gv("test.example", "v2");
    assert_eq!(resource(&list, &version, "Gate"), Some((gates("v2"), true, true)));
    assert!(!resource(&list, &version, "Door").unwrap().1);
    assert_eq!(resource(&list, &version, "Scale"), None);
}

#[tokio::test]
async fn kind_without_namespaces_is_refused() {
    let list = json!({
        "kind": "APIResourceList", "groupVersion": "test.example/v1",
        "resources": [{"name": "gates", "kind": "Gate", "namespaced": false, "singularName": "", "verbs": []}],
    });
    let routes = Router::new().route("/apis/test.example/v1", get(|| async { Json(list) }));
    let gate = TargetRef {
        api_version: "test.example/v1".into(),
        kind: "Gate".into(),
        name: "a".into(),
    };
    let found = discover(&fake_server(routes).await, &gate, Need::Served).await;
    assert!(
        matches!(found, Err(TargetError::ClusterScoped { .. })),
        "{found:?}"
    );
}

/// Serves gates of `test.example/v1`, and an aggregated API that accepts requests and does not answer.
async fn half_hung_server() -> Client {
    let gates = json!({
        "kind": "APIResourceList", "groupVersion": "test.example/v1",
        "resources": [
            {"name": "gates", "kind": "Gate", "namespaced": true, "singularName": "gate", "verbs": []},
            {"name": "gates/scale", "kind": "Scale", "namespaced": true, "singularName": "", "verbs": []},
        ],
    });
    let routes = Router::new()
        .route("/apis/test.example/v1", get(|| async { Json(gates) }))
        .route("/apis/hung.example/v1", get(std::future::pending::<()>));
    fake_server(routes).await
}

fn hung() -> TargetRef {
    TargetRef {
        api_version: "hung.example/v1".into(),
        ..reference()
    }
}

/// Far longer than an answer takes, and shorter than a discovery that hangs.
const AT_ONCE: Duration = Duration::from_secs(2);
/// Generous, for a busy machine: an answer after this time never arrives.
const HANGS: Duration = Duration::from_secs(60);

#[tokio::test]
async fn hung_discovery_blocks_no_other_kind() {
    let client = half_hung_server().await;
    let kinds = Kinds::default();
    let (of_hung, of_gates) = (hung(), reference());
    let mut blocked = pin!(kinds.find(&client, &of_hung, Need::Scale));
    tokio::select! {
        biased;
        () = time::sleep(Duration::from_millis(100)) => {}
        found = &mut blocked => panic!("it does not hang: {found:?}"),
    }
    // On a busy machine both may have ended by the next poll: the other kind counts first.
    let other = tokio::select! {
        biased;
        found = kinds.find(&client, &of_gates, Need::Scale) => found,
        found = &mut blocked => panic!("it ends before the other kind is found: {found:?}"),
    };
    assert_eq!(other, Ok(gates("v1")));
    let blocked = time::timeout(HANGS, blocked).await;
    assert!(!blocked.unwrap().unwrap_err().is_about_kind(), "unknown");
}

#[tokio::test]
async fn known_kind_is_used_while_its_discovery_hangs() {
    let client = half_hung_server().await;
    let kinds = Kinds::default();
    let known = ApiResource {
        group: "hung.example".into(),
        api_version: "hung.example/v1".into(),
        ..gates("v1")
    };
    kinds.take(&hung(), Need::Scale, Ok(known.clone())).unwrap();
    {
        let mut entries = kinds.entries();
        let entry = entries.get_mut(&key(&hung(), Need::Scale)).unwrap();
        (entry.asked, entry.doubted) = (BootInstant::from_nanos(0), true);
    }
    for _ in 0..2 {
        let found = time::timeout(AT_ONCE, kinds.find(&client, &hung(), Need::Scale)).await;
        assert_eq!(found.unwrap(), Ok(known.clone()));
    }
    let refreshes = kinds.0.refreshes.lock().unwrap().len();
    assert_eq!(refreshes, 1, "one discovery at a time");
    // Only a kind that needs confirmation waits, and it stays unconfirmed.
    let of_hung = hung();
    let confirmed = kinds.is_served(&client, &of_hung, Need::Scale, &known);
    let confirmed = time::timeout(HANGS, confirmed).await;
    assert_eq!(confirmed.unwrap(), Ok(false));
}

#[tokio::test]
async fn api_version_that_is_a_path_is_not_requested() {
    let client = fake_server(Router::new()).await;
    for api_version in ["../v1", "v1/..", "..", "a/b/v1"] {
        let reference = TargetRef {
            api_version: api_version.into(),
            ..reference()
        };
        let found = Kinds::default().find(&client, &reference, Need::Served).await;
        assert!(
            matches!(found, Err(TargetError::ApiVersion { .. })),
            "{api_version}: {found:?}"
        );
    }
}
