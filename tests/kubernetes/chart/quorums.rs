//! Tests RedisQuorums that the values declare, applied by an operator with the rights that the chart grants for them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fixture::{BOUND, Operator};
use crate::world::{World, condition};
use redlock_testkit::eventually;

/// The quickstart declares `default`.
const VALUES: [&str; 2] = ["quickstart.enabled=true", "quorums.misspelt.masters[0].name=m0"];

fn spec(world: &World, name: &str) -> Value {
    let found = world.kubectl(&["get", "redisquorum", name, "--output=json"]);
    serde_json::from_str::<Value>(&found).unwrap()["spec"].clone()
}

fn write(file: &Path, manifests: &[&str]) {
    // The file is replaced atomically, like a mounted ConfigMap.
    let next = file.with_extension("next");
    fs::write(&next, manifests.join("---\n")).unwrap();
    fs::rename(next, file).unwrap();
}

async fn logged(operator: &Operator, what: &str) {
    eventually(BOUND, &format!("the log has {what}"), async || {
        let log = operator.child.stderr();
        if log.iter().any(|line| line.contains(what)) {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_quorums_are_applied_and_followed() {
    let world = World::small(3).await;
    world
        .plane
        .install_rbac_with(world.namespace.name(), &VALUES)
        .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("quorums.yaml");
    let good = world.quorum("default", "  firstStart: Immediate\n");
    let misspelt = world.quorum(
        "misspelt",
        "  keyPrefix: other\n  comandTimeoutMilliseconds: 300\n",
    );
    let foreign = world.quorum("foreign", "  keyPrefix: foreign\n");
    write(&file, &["kind: Secret\n", &misspelt, &foreign, &good]);
    let secret = format!("{}/masters", world.namespace.name());
    let operator = world
        .operator_with("replica-1", |command| {
            command.arg("--quorums-file").arg(&file);
            command.args(["--new-password-secret", &secret]);
        })
        .await;
    world
        .quorum_status("default", "is ready", |status| {
            condition(status, "Ready").0 == "True"
        })
        .await;
    for what in [
        "comandTimeoutMilliseconds",
        "\\\"foreign\\\" is forbidden",
        "document 1: is a",
    ] {
        logged(&operator, what).await;
    }
    logged(&operator, "Secret created").await;
    let password = || world.kubectl(&["get", "secret", "masters", "--output=jsonpath={.data.password}"]);
    let first = password();
    assert_eq!(first.len(), 88, "64 hex digits in base64");

    let listed = world.kubectl(&["get", "redisquorums", "--output=name"]);
    assert_eq!(listed.trim(), "redisquorum.redlock.dev/default");

    let faster = world.quorum(
        "default",
        "  firstStart: Immediate\n  commandTimeoutMilliseconds: 300\n",
    );
    write(&file, &[&faster]);
    eventually(BOUND, "the change is applied", async || {
        let spec = spec(&world, "default");
        if spec["commandTimeoutMilliseconds"] == 300 {
            Ok(())
        } else {
            Err(spec)
        }
    })
    .await;

    // A field that another manager has set stays as it is, and is reported.
    let theirs = r#"{"spec": {"commandTimeoutMilliseconds": 400}}"#;
    world.kubectl(&[
        "patch",
        "redisquorum",
        "default",
        "--type=merge",
        "--patch",
        theirs,
    ]);
    write(&file, &[&faster.replace("300", "350")]);
    logged(&operator, "kubectl-patch").await;
    assert_eq!(spec(&world, "default")["commandTimeoutMilliseconds"], 400);

    // A quorum that is no longer declared stays: locks may depend on it.
    write(&file, &["kind: ConfigMap\n"]);
    logged(&operator, "ConfigMap").await;
    assert_eq!(spec(&world, "default")["commandTimeoutMilliseconds"], 400);

    // An existing Secret counts: a replica that starts later does not create another one.
    let second = world.operator_with("replica-2", |command| {
        command.args(["--new-password-secret", &secret]);
    });
    second.await.wait_ready();
    assert_eq!(password(), first);
}
