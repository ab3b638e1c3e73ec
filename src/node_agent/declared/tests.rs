use kube::core::DeserializeGuard;
use serde_json::{Value, json};

use super::*;
use crate::targets::Origin;

fn guarded<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn quorum() -> Value {
    json!({
        "apiVersion": "redlock.dev/v1alpha1", "kind": "RedisQuorum",
        "metadata": {"name": "default"},
        "spec": {"masters": [
            {"name": "m0", "url": "redis://a:6379"},
            {"name": "m1", "url": "redis://b:6379"},
            {"name": "m2", "url": "redis://c:6379"},
        ]},
        "status": {"quorumId": "00112233445566778899aabbccddeeff"},
    })
}

fn lock(name: &str, spec: &Value) -> Value {
    let mut lock = json!({
        "apiVersion": "redlock.dev/v1alpha1", "kind": "LeaderLock",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"quorumRef": {"name": "default"}, "fencing": "Node"},
    });
    for (field, value) in spec.as_object().unwrap() {
        lock["spec"][field] = value.clone();
    }
    lock
}

fn seen<K>(object: DeserializeGuard<K>) -> Change<DeserializeGuard<K>> {
    Change::Seen(object, Origin::Watch)
}

/// Returns these locks of the namespace `team`, and a quorum.
fn declared(locks: &[Value]) -> Declared {
    let mut declared = Declared::new(&[]);
    declared.set_cluster(ClusterId::new("eu-1", "uid-1").unwrap());
    declared.quorums.take(seen(guarded(quorum())));
    declared.quorums.take(Change::Synced);
    let all = declared.locks.get_mut("").unwrap();
    for lock in locks {
        all.take(seen(guarded(lock.clone())));
    }
    all.take(Change::Synced);
    declared
}

#[test]
fn a_fenced_lock_is_resolved_with_its_timings_and_masters() {
    let declared = declared(&[lock("report", &json!({}))]);
    let spec = declared.resolve("team", "report").unwrap();
    assert_eq!(
        serde_json::to_value(&spec).unwrap(),
        json!({
            "name": "team/report",
            "cluster": {"name": "eu-1", "uid": "uid-1"},
            "leaseMilliseconds": 15_000,
            "retryMilliseconds": spec.retry_milliseconds,
            "quorum": {
                "name": "default",
                "masters": [
                    {"name": "m0", "url": "redis://a:6379"},
                    {"name": "m1", "url": "redis://b:6379"},
                    {"name": "m2", "url": "redis://c:6379"},
                ],
                "keyPrefix": "redlock",
                "longestLeaseMilliseconds": 60_000,
                "acquireLimitMilliseconds": 2_000,
                "authenticated": false,
                "commandTimeoutMilliseconds": 500,
                "id": "00112233445566778899aabbccddeeff",
            },
        })
    );
}

#[test]
fn a_lock_that_cannot_fence_is_refused_with_the_reason() {
    let declared = declared(&[
        lock("plain", &json!({"fencing": "None"})),
        lock("lost", &json!({"quorumRef": {"name": "other"}})),
        lock("wrong", &json!({"leaseDurationSeconds": 1})),
        lock("unread", &json!({"targets": 7})),
    ]);
    let refused = |name: &str| declared.resolve("team", name).unwrap_err().to_string();
    for (name, reason) in [
        (
            "none",
            "there is no lock \"none\" in namespace \"team\": create the LeaderLock",
        ),
        (
            "plain",
            "its spec.fencing is not Node, so its holder never writes the mark",
        ),
        (
            "lost",
            "there is no RedisQuorum \"other\": create it, or correct spec.quorumRef",
        ),
        ("wrong", "its spec is not valid: spec.leaseDurationSeconds: 1"),
        ("unread", "this version cannot read it: "),
    ] {
        let text = refused(name);
        assert!(text.contains(reason), "{name}: {text}");
    }
}

#[test]
fn a_lock_is_not_unknown_before_the_first_list() {
    let mut declared = declared(&[]);
    declared.locks.insert(String::new(), Followed::default());
    let waits = |declared: &Declared| {
        matches!(
            declared.resolve("team", "report"),
            Err(Unresolved::NotReady { .. })
        )
    };
    assert!(waits(&declared), "no list of locks");
    let all = declared.locks.get_mut("").unwrap();
    all.take(seen(guarded(lock("report", &json!({})))));
    assert!(waits(&declared), "the list is not complete");
    declared.locks.get_mut("").unwrap().take(Change::Synced);
    assert!(declared.resolve("team", "report").is_ok());
    declared.quorums = Followed::default();
    assert!(waits(&declared), "no list of quorums");
    declared.quorums.take(seen(guarded(quorum())));
    declared.quorums.take(Change::Synced);
    declared.cluster = None;
    assert!(waits(&declared), "no UID of the cluster");
}

#[test]
fn a_watch_that_fails_keeps_the_listed_objects() {
    let mut declared = declared(&[lock("report", &json!({}))]);
    let all = declared.locks.get_mut("").unwrap();
    all.take(Change::Failed(kube::runtime::watcher::Error::NoResourceVersion));
    assert!(declared.resolve("team", "report").is_ok());
    let key = ObjectKey {
        namespace: "team".to_owned(),
        name: "report".to_owned(),
    };
    declared.locks.get_mut("").unwrap().take(Change::Gone(key));
    assert!(matches!(
        declared.resolve("team", "report"),
        Err(Unresolved::Unknown { .. })
    ));
}

#[test]
fn a_namespace_that_is_not_followed_is_refused() {
    let mut declared = Declared::new(&["team".to_owned(), String::new()]);
    declared.locks.get_mut("team").unwrap().take(Change::Synced);
    let text = declared.resolve("other", "report").unwrap_err().to_string();
    assert!(
        text.contains("follows the namespaces team only: add other to watchNamespaces"),
        "{text}"
    );
    assert!(matches!(
        declared.resolve("team", "report"),
        Err(Unresolved::Unknown { .. })
    ));
}

#[test]
fn a_changed_url_is_used_once_the_operator_uses_it() {
    let mut declared = declared(&[lock("report", &json!({}))]);
    let urls = |declared: &Declared| -> Vec<String> {
        let masters = declared.resolve("team", "report").unwrap().quorum.masters;
        masters.into_iter().map(|master| master.url).collect()
    };
    let mut changed = quorum();
    changed["spec"]["masters"][0]["url"] = json!("redis://d:6379");
    for (in_use, wanted) in [
        ("redis://a:6379", "redis://a:6379"),
        ("redis://d:6379", "redis://d:6379"),
    ] {
        changed["status"]["masters"] = json!([{"name": "m0", "url": in_use}, {"name": "m1"}]);
        declared.quorums.take(seen(guarded(changed.clone())));
        assert_eq!(urls(&declared), [wanted, "redis://b:6379", "redis://c:6379"]);
    }
}
