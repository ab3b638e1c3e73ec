//! Tests that a RedisQuorum stays while LeaderLocks name it, and that a declared one is created again.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use redlock_testkit::{RedisServer, eventually};

use crate::fixture::{BOUND, Operator};
use crate::targets::{GATE, Gates, guarded, install, ready_pod};
use crate::world::{World, condition, lasting, quorum_of, throughout};

const FIRST: &str = "  firstStart: Immediate\n";

/// Returns a quorum whose leases outlast a pause of a busy machine.
fn long(world: &World) -> String {
    lasting(&world.quorum("default", FIRST))
}

fn lock(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{quorumRef: {{name: default}}, leaseDurationSeconds: 12}}\n"
    )
}

/// Returns the quorum; null if it is gone.
fn quorum(world: &World) -> Value {
    let found = world.kubectl(&[
        "get",
        "redisquorum",
        "default",
        "--ignore-not-found",
        "--output=json",
    ]);
    if found.is_empty() {
        return Value::Null;
    }
    serde_json::from_str(&found).unwrap()
}

fn finalizers(world: &World) -> Vec<String> {
    let found = quorum(world)["metadata"]["finalizers"].clone();
    serde_json::from_value(found).unwrap_or_default()
}

async fn has_finalizers(world: &World, count: usize) {
    eventually(BOUND, &format!("{count} finalizers are there"), async || {
        let all = finalizers(world);
        if all.len() == count { Ok(()) } else { Err(all) }
    })
    .await;
}

async fn is_gone(world: &World) {
    eventually(BOUND, "the quorum is gone", async || match quorum(world) {
        Value::Null => Ok(()),
        quorum => Err(quorum),
    })
    .await;
}

fn delete(world: &World) {
    world.kubectl(&["delete", "redisquorum", "default", "--wait=false"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_stays_until_the_last_lock_that_names_it_is_gone() {
    let world = World::small(3).await;
    let namespace = world.namespace.name().to_owned();
    world.apply(&long(&world));
    world.apply(&lock(&namespace, "report"));
    let operator = world.operator("replica-1").await;
    let held = world
        .lock_status("report", "is held", |status| status["role"] == "Active")
        .await;
    has_finalizers(&world, 1).await;
    assert_eq!(finalizers(&world), ["redlock.dev/in-use-all"]);

    delete(&world);
    let named = format!("LeaderLocks use the quorum ({namespace}/report)");
    world
        .quorum_status("default", "names the lock", |status| {
            let conditions = status["conditions"].as_array();
            conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "Terminating"
                    && condition["reason"] == "InUse"
                    && condition["message"].as_str().unwrap().contains(&named)
            })
        })
        .await;
    // The name cannot be used for other masters, and held locks stay held.
    let (applied, output) = world.try_apply(&long(&world).replace("name: m0", "name: other"));
    assert!(
        !applied && output.contains("cannot be renamed, added or removed"),
        "{output}"
    );
    let now = world
        .lock_status("report", "is held", |status| status["role"] == "Active")
        .await;
    assert_eq!(now["fencingToken"], held["fencingToken"]);

    world.kubectl(&["delete", "leaderlock", "report"]);
    is_gone(&world).await;
    assert_eq!(operator.lock("report"), Value::Null);

    // A quorum that no lock names is deleted at once.
    world.apply(&long(&world));
    world.kubectl(&["delete", "redisquorum", "default"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_set_of_namespaces_keeps_the_quorums_of_its_own_locks() {
    let world = World::small(3).await;
    let (own, other) = (
        world.namespace.name().to_owned(),
        world.plane.namespace("other").await,
    );
    world.apply(&long(&world));
    world.apply(&lock(&own, "report"));
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), lock(other.name(), "billing")).unwrap();
    let applied = world
        .plane
        .kubectl(&["apply", "--filename", file.path().to_str().unwrap()]);
    assert!(applied.status.success(), "{applied:?}");
    let watching = async |identity: &str, namespaces: &str| -> Operator {
        world
            .operator_with(identity, |command| {
                command.env("REDLOCK_WATCH_NAMESPACES", namespaces);
            })
            .await
    };
    let _one = watching("replica-1", &own).await;
    let _two = watching("replica-2", other.name()).await;
    has_finalizers(&world, 2).await;
    delete(&world);
    world.kubectl(&["delete", "leaderlock", "report"]);
    has_finalizers(&world, 1).await;
    let deleted = world
        .plane
        .kubectl(&["delete", "leaderlock", "billing", "--namespace", other.name()]);
    assert!(deleted.status.success(), "{deleted:?}");
    is_gone(&world).await;
}

/// Locks depend on the quorum, and an operator that starts later would not know it.
#[tokio::test(flavor = "multi_thread")]
async fn a_declared_quorum_that_is_deleted_is_created_again() {
    let world = World::small(3).await;
    world
        .plane
        .install_rbac_with(world.namespace.name(), &["quorums.default.masters[0].name=m0"])
        .await;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), world.quorum("default", FIRST)).unwrap();
    let _operator = world
        .operator_with("replica-1", |command| {
            command.arg("--quorums-file").arg(file.path());
        })
        .await;
    let ready = |status: &Value| condition(status, "Ready").0 == "True";
    world.quorum_status("default", "is ready", ready).await;
    let uid = || quorum(&world)["metadata"]["uid"].clone();
    let is_recreated = async |before: Value| {
        eventually(BOUND, "it is there again", async || {
            let now = uid();
            if now.is_null() || now == before {
                Err(now)
            } else {
                Ok(())
            }
        })
        .await;
    };
    let first = uid();
    world.kubectl(&["delete", "redisquorum", "default"]);
    is_recreated(first).await;
    world.quorum_status("default", "is ready again", ready).await;

    // All objects are deleted with the definition; the operator is not restarted when it exists again.
    let second = uid();
    world.kubectl(&["delete", "customresourcedefinition", "redisquorums.redlock.dev"]);
    let definition = format!(
        "{}/crds/redlock.dev_redisquorums.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    world.kubectl(&["apply", "--server-side", "--filename", &definition]);
    is_recreated(second).await;
}

/// Long enough for a replica to ask its siblings several times.
const STEADY: Duration = Duration::from_secs(3);

/// Starts a replica of a release, with its pod. It watches these namespaces, or all if the list is empty.
async fn replica(world: &World, name: &str, namespaces: &str) -> Operator {
    let operator = world
        .operator_with(name, |command| {
            command.args(["--pod-selector", "app=redlock"]);
            command.env("REDLOCK_WATCH_NAMESPACES", namespaces);
        })
        .await;
    ready_pod(world, &operator);
    operator
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_watches_other_namespaces_removes_the_finalizer_of_those_before() {
    let world = World::small(3).await;
    world.kubectl(&["create", "serviceaccount", "default"]);
    let own = world.namespace.name().to_owned();
    let other = world.plane.namespace("other").await;
    world.apply(&long(&world));
    world.apply(&lock(&own, "report"));
    let mut before = replica(&world, "replica-1", &own).await;
    has_finalizers(&world, 1).await;
    let old = finalizers(&world);

    // A rolling update: the previous replica uses the quorum until it ends.
    let both = format!("{own},{}", other.name());
    let _now = replica(&world, "replica-2", &both).await;
    has_finalizers(&world, 2).await;
    throughout(STEADY, || assert_eq!(finalizers(&world).len(), 2)).await;
    before.child.signal(Signal::SIGTERM);
    assert!(before.child.wait(BOUND).0.success());
    world.kubectl(&["delete", "pod", "replica-1", "--force"]);
    has_finalizers(&world, 1).await;
    assert_ne!(finalizers(&world), old);

    delete(&world);
    world.kubectl(&["delete", "leaderlock", "report"]);
    is_gone(&world).await;
}

/// Returns the number of successful writes of finalizers of a quorum.
fn finalizer_writes(world: &World, quorum: &str) -> usize {
    let requests = world.requests().into_iter();
    let writes = requests.filter(|event| {
        let object = event.object_ref.as_ref();
        event.verb == "patch"
            && event.stage == "ResponseComplete"
            && event
                .response_status
                .as_ref()
                .is_some_and(|status| status.code == 200)
            && object.is_some_and(|object| {
                object.resource == "redisquorums" && object.name == quorum && object.subresource.is_empty()
            })
    });
    writes.count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_stays_until_the_last_replica_has_left_the_quorum() {
    let world = World::small(6).await;
    world.kubectl(&["create", "serviceaccount", "default"]);
    install(&world).await;
    let urls: Vec<String> = world.masters.iter().map(RedisServer::url).collect();
    world.apply(&quorum_of("default", &urls[..3], FIRST));
    world.apply(&quorum_of("second", &urls[3..], FIRST));
    let first = replica(&world, "replica-1", "").await;
    let gates = Gates::of(&world);
    world.apply(GATE);
    world.apply(&guarded("report", "gate").replace("stopSeconds: 1", "stopSeconds: 3"));
    gates.until("gate", 1).await;
    gates.count("gate", 1).await;
    first.until_role("report", "Active").await;
    let second = replica(&world, "replica-2", "").await;
    second.until_holder("report", "replica-1").await;
    has_finalizers(&world, 1).await;
    assert_eq!(finalizer_writes(&world, "default"), 1);

    // The standby leaves the quorum while the stopped holder has not released its lease.
    let patch = r#"{"spec": {"quorumRef": {"name": "second"}}}"#;
    world.kubectl(&["patch", "leaderlock", "report", "--type=merge", "--patch", patch]);
    gates.until("gate", 0).await;
    first.child.signal(Signal::SIGSTOP);
    gates.count("gate", 0).await;
    second.until_role("report", "Active").await;
    throughout(STEADY, || assert_eq!(finalizers(&world).len(), 1)).await;
    first.child.signal(Signal::SIGCONT);
    has_finalizers(&world, 0).await;
    println!("{} writes of the finalizer", finalizer_writes(&world, "default"));
    assert_eq!(
        finalizer_writes(&world, "default"),
        2,
        "added once, and removed once"
    );
}
