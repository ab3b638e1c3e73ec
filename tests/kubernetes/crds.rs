//! Tests the definitions as the API server accepts them.

use kube::api::{Api, ListParams, PostParams};
use redlock::api::LeaderLock;
use serde_json::json;

use crate::fixture::{BOUND, ControlPlane};
use crate::table::{Kind, object};
use redlock_testkit::eventually;

#[tokio::test]
async fn kubectl_prints_the_columns_of_both_kinds() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("columns").await;
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests.yaml");
    let (name, quorum) = (namespace.name(), format!("of-{}", namespace.name()));
    let text = format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: {quorum}}}\nspec:\n  masters:\n  \
         - {{name: m0, url: \"redis://m0:6379\"}}\n  - {{name: m1, url: \"redis://m1:6379\"}}\n  \
         - {{name: m2, url: \"redis://m2:6379\"}}\n---\n\
         apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: report, namespace: {name}}}\n\
         spec: {{quorumRef: {{name: {quorum}}}}}\n"
    );
    std::fs::write(&manifests, text).unwrap();
    let applied = plane.kubectl(&["apply", "--filename", manifests.to_str().unwrap()]);
    assert!(applied.status.success(), "{applied:?}");

    let columns = |arguments: &[&str]| -> Vec<String> {
        let output = plane.kubectl(arguments);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        columns(&["get", "ll", "--namespace", name]),
        ["NAME", "READY", "ROLE", "HOLDER", "REASON", "AGE"]
    );
    let wide = columns(&["get", "ll", "--namespace", name, "--output", "wide"]);
    assert_eq!(wide[5..], ["TOKEN", "TRANSITIONS", "AGE"]);
    assert_eq!(
        columns(&["get", "redisquorums"]),
        [
            "NAME",
            "READY",
            "DEGRADED",
            "SAFE",
            "REPLICASREADY",
            "VOTES",
            "REASON",
            "AGE"
        ]
    );
}

#[tokio::test]
async fn field_selectors_of_the_operator_select_locks() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("selected").await;
    let locks = Api::<LeaderLock>::namespaced(plane.admin(), namespace.name());
    for (name, spec) in [
        ("plain", json!({})),
        ("frozen", json!({"state": "Frozen", "reason": "a test"})),
        ("of-agents", json!({"candidates": "Agents"})),
        ("elsewhere", json!({"quorumRef": {"name": "other"}})),
    ] {
        let spec = spec.as_object().cloned().unwrap();
        let lock = serde_json::from_value(object(Kind::LeaderLock, name, &spec)).unwrap();
        locks.create(&PostParams::default(), &lock).await.unwrap();
    }
    for (selector, wanted) in [
        ("spec.state=Frozen", "frozen"),
        ("spec.candidates=Agents", "of-agents"),
        ("spec.quorumRef.name=other", "elsewhere"),
        (
            "spec.quorumRef.name=default,spec.state=Enabled,spec.candidates=Operator",
            "plain",
        ),
    ] {
        let found = locks.list(&ListParams::default().fields(selector)).await.unwrap();
        let names: Vec<String> = found
            .items
            .into_iter()
            .filter_map(|lock| lock.metadata.name)
            .collect();
        assert_eq!(names, [wanted], "{selector}");
    }
    let get = ["get", "redlock", "--output", "name", "--namespace"];
    // kubectl finds a category by the aggregated discovery, which is updated last.
    eventually(BOUND, "the category has the lock", async || {
        let output = plane.kubectl(&[&get[..], &[namespace.name()]].concat());
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if text.contains("leaderlock.redlock.dev/frozen") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
}

/// A client that waits for readiness compares the generation: that of a new object must not appear current.
#[tokio::test]
async fn a_new_object_is_unvisited() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("unvisited").await;
    let locks = Api::<LeaderLock>::namespaced(plane.admin(), namespace.name());
    let lock = serde_json::from_value(object(Kind::LeaderLock, "new", &serde_json::Map::new())).unwrap();
    let made = locks.create(&PostParams::default(), &lock).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(
        made.status.and_then(|status| status.observed_generation),
        Some(-1)
    );
    let read = locks.get("new").await.unwrap();
    assert_eq!(
        read.status.and_then(|status| status.observed_generation),
        Some(-1)
    );
}
