//! Tests workloads of an earlier operator under a lock that the next one cannot use; and two locks that name one
//! target.

use std::time::Duration;

use serde_json::Value;

use crate::fixture::{BOUND, Operator};
use crate::targets::{GATE, Gates, guarded, install, replica, world_with};
use crate::world::{World, condition, lasting, message, throughout, timed};
use redlock_testkit::{RedisServer, ServerOptions, eventually};

const USER: &str = "app on >first ~redlock:* &redlock:* +@all";
const SECRET: &str =
    "apiVersion: v1\nkind: Secret\nmetadata: {name: masters}\nstringData: {username: app, password: first}\n";
const FINALIZER: &str = "redlock.dev/targets";
const RESTARTS: usize = 4;

fn gate(name: &str) -> String {
    GATE.replace("name: gate", &format!("name: {name}"))
}

async fn stopped(gates: &Gates, name: &str, why: &str) {
    timed(&format!("{name} is stopped: {why}"), async || {
        match gates.replicas(name).await {
            0 => Ok(()),
            found => Err(found),
        }
    })
    .await;
}

fn finalizers(world: &World, name: &str) -> String {
    world.kubectl(&["get", "ll", name, "-o", "jsonpath={.metadata.finalizers}"])
}

async fn released(world: &World, name: &str) {
    eventually(BOUND, &format!("{name} loses its finalizer"), async || {
        let found = finalizers(world, name);
        if found.contains(FINALIZER) {
            Err(found)
        } else {
            Ok(())
        }
    })
    .await;
}

fn patch(world: &World, name: &str, patch: &str) {
    world.kubectl(&["patch", "ll", name, "--type=merge", "--patch", patch]);
}

/// Restarts the only replica after `change`, and waits for `settled` and until the replica is active for the lock.
/// Asserts that no replica writes to the gate meanwhile. A replica that sees no holder in the first second after its
/// start stops the gate, which can happen on a busy machine: the restart is then repeated.
async fn restarted(
    world: &World,
    mut operator: Operator,
    lock: &str,
    gate: &str,
    change: impl Fn(),
    settled: impl AsyncFn(),
) -> Operator {
    let gates = Gates::of(world);
    for _ in 0..RESTARTS {
        operator.child.kill();
        change();
        let generation = gates.generation(gate).await;
        operator = replica(world, "replica-1").await;
        settled().await;
        operator.until_role(lock, "Active").await;
        gates.until(gate, 1).await;
        if gates.generation(gate).await == generation {
            return operator;
        }
        println!("{gate} was stopped after the restart");
    }
    panic!("{gate} was stopped after each of {RESTARTS} restarts");
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_of_a_lock_that_became_unusable_is_stopped() {
    let options = ServerOptions {
        users: vec![USER.into()],
        ..ServerOptions::default()
    };
    let masters = (0..3).map(|_| RedisServer::start(&options).unwrap()).collect();
    let world = World::of(masters, World::small_options()).await;
    install(&world).await;
    let gates = Gates::of(&world);
    world.apply(SECRET);
    let auth = format!(
        "  firstStart: Immediate\n  auth: {{secretRef: {{name: masters, namespace: {}}}}}\n",
        world.namespace.name()
    );
    let quorum = world.quorum("default", &auth);
    world.apply(&quorum);
    for name in ["good", "wrong", "deleted"] {
        world.apply(&gate(name));
        world.apply(&guarded(name, name));
    }
    let operator = replica(&world, "replica-1").await;
    for name in ["good", "wrong", "deleted"] {
        world
            .lock_status(name, "runs", |status| status["role"] == "Active")
            .await;
    }

    // The spec is invalid now: the operator only observes the lock, and stops its workload. The others are adopted
    // within their leases: no replica writes to them.
    let change = || patch(&world, "wrong", r#"{"spec": {"leaseDurationSeconds": 20}}"#);
    let mut operator = restarted(&world, operator, "good", "good", change, async || {
        stopped(&gates, "wrong", "its spec is wrong").await;
        released(&world, "wrong").await;
    })
    .await;
    let status = world
        .lock_status("wrong", "is refused", |status| {
            condition(status, "Ready").1 == "InvalidSpec"
        })
        .await;
    println!("            {}", message(&status, "Ready"));
    // After its repair, the lock runs again.
    patch(&world, "wrong", r#"{"spec": {"leaseDurationSeconds": 6}}"#);
    gates.until("wrong", 1).await;

    // No master can be reached: the holder of each lock is unknown.
    operator.child.kill();
    world.kubectl(&["delete", "secret", "masters"]);
    gates.count("deleted", 1).await;
    world.kubectl(&["delete", "ll", "deleted", "--wait=false"]);
    patch(
        &world,
        "wrong",
        r#"{"metadata": {"annotations": {"redlock.dev/paused": "test"}}}"#,
    );
    let _operator = replica(&world, "replica-1").await;
    stopped(&gates, "good", "the Secret is gone").await;
    released(&world, "good").await;
    stopped(&gates, "deleted", "so is its lock").await;
    assert!(
        finalizers(&world, "deleted").contains(FINALIZER),
        "something of it may still run"
    );
    gates.count("deleted", 0).await;
    world.kubectl(&["wait", "--for=delete", "ll/deleted", "--timeout=60s"]);
    assert_eq!(gates.replicas("wrong").await, 1, "hands off");
    assert!(finalizers(&world, "wrong").contains(FINALIZER));
    // With the Secret restored, the lock runs again.
    world.apply(SECRET);
    gates.until("good", 1).await;
}

fn taken(by: &str) -> impl Fn(&Value) -> bool {
    let by = format!("is already a target of LeaderLock {by}");
    move |status| condition(status, "Ready").1 == "TargetTaken" && message(status, "Ready").contains(&by)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_the_target_of_one_lock() {
    let world = world_with(lasting).await;
    let gates = Gates::of(&world);
    let namespace = world.namespace.name();
    let (older, younger) = (format!("{namespace}/older"), format!("{namespace}/younger"));
    let operator = replica(&world, "replica-1").await;
    world.apply(GATE);
    world.apply(&gate("other"));
    world.apply(&lasting(&guarded("older", "gate")));
    world
        .lock_status("older", "runs", |status| status["role"] == "Active")
        .await;
    gates.count("gate", 1).await;
    // The age of an object is compared in seconds, then by its name.
    world.apply(&lasting(&guarded("younger", "gate")));
    let status = world.lock_status("younger", "is refused", taken(&older)).await;
    println!("            {}", message(&status, "Ready"));

    // A restarted operator refuses the lock, too, even if the younger lock may have run the target. Another client
    // writes the finalizer, as the restore of a backup does.
    let finalizer = format!(r#"{{"metadata": {{"finalizers": ["{FINALIZER}"]}}}}"#);
    let change = || patch(&world, "younger", &finalizer);
    let _operator = restarted(&world, operator, "older", "gate", change, async || {
        released(&world, "younger").await;
    })
    .await;

    // The older lock drops the target: the younger one waits until all of its pods are gone.
    world.apply(&lasting(&guarded("older", "other")));
    gates.until("other", 1).await;
    gates.until("gate", 0).await;
    throughout(Duration::from_secs(1), || ()).await;
    assert_eq!(gates.replicas("gate").await, 0, "its pods are still there");
    world.lock_status("younger", "waits", taken(&older)).await;
    gates.count("gate", 0).await;
    gates.until("gate", 1).await;
    gates.count("gate", 1).await;
    world
        .lock_status("younger", "runs", |status| status["role"] == "Active")
        .await;

    // The target returns to the older lock.
    world.apply(&lasting(&guarded("older", "gate")));
    gates.until("gate", 0).await;
    world.lock_status("older", "waits", taken(&younger)).await;
    gates.count("gate", 0).await;
    gates.until("gate", 1).await;
    world.lock_status("younger", "is refused", taken(&older)).await;
    world
        .lock_status("older", "runs", |status| status["role"] == "Active")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_kept_until_a_target_that_was_taken_out_of_it_is_stopped() {
    // A lease that a busy machine does not lose: without it, the finalizer would go.
    let long = |manifest: &str| manifest.replace("Seconds: 6", "Seconds: 15");
    let world = world_with(long).await;
    let gates = Gates::of(&world);
    let _operator = replica(&world, "replica-1").await;
    world.apply(GATE);
    world.apply(&long(&guarded("gate", "gate")));
    world
        .lock_status("gate", "runs", |status| status["role"] == "Active")
        .await;
    gates.count("gate", 1).await;
    patch(&world, "gate", r#"{"spec": {"targets": []}}"#);
    gates.until("gate", 0).await;
    world.kubectl(&["delete", "ll", "gate", "--wait=false"]);
    throughout(Duration::from_secs(3), || {
        let found = finalizers(&world, "gate");
        assert!(found.contains(FINALIZER), "its pods are still there");
    })
    .await;
    gates.count("gate", 0).await;
    world.kubectl(&["wait", "--for=delete", "ll/gate", "--timeout=60s"]);
}
