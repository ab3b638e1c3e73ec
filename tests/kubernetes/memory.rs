//! Tests the memory of a replica with many locks, and with locks as large as the API server accepts, at the first list
//! and after a restart.

use std::fs;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use redlock::api::LeaderLock;
use serde_json::{Value, json};

use crate::fixture::Operator;
use crate::world::{World, lasting};
use redlock_testkit::eventually;

/// The memory that a replica may use at its peak, in MiB: the chart limits it to 256.
const BOUND: f64 = 200.0;
/// The time for a replica to read and report all locks of a long measurement.
const PATIENCE: Duration = Duration::from_secs(900);
/// The number of concurrent requests while objects are created.
const AT_ONCE: usize = 8;

/// Returns the resident memory now and at its peak, in MiB.
pub fn memory(operator: &Operator) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{}/status", operator.child.pid())).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let kib: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
        kib / 1024.0
    };
    (of("VmRSS:"), of("VmHWM:"))
}

/// Returns a number of objects from the environment.
fn count(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |count| count.parse().unwrap())
}

async fn ready_world() -> World {
    let world = World::small(3).await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&lasting(&quorum).replace("Seconds: 12", "Seconds: 60"));
    world
}

async fn create(world: &World, locks: impl Iterator<Item = Value>) -> usize {
    let kind = ApiResource::erase::<LeaderLock>(&());
    let api = Api::<DynamicObject>::namespaced_with(world.plane.admin(), world.namespace.name(), &kind);
    let created = stream::iter(locks).map(|lock| {
        let api = api.clone();
        async move {
            let lock = serde_json::from_value(lock).unwrap();
            match api.create(&PostParams::default(), &lock).await {
                Ok(_) => {}
                // The client repeats a request whose answer was lost.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    created.buffer_unordered(AT_ONCE).count().await
}

fn lock(name: &str, annotations: &Value, targets: &Value) -> Value {
    json!({
        "apiVersion": "redlock.dev/v1alpha1", "kind": "LeaderLock",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"quorumRef": {"name": "default"}, "leaseDurationSeconds": 40, "targets": targets},
    })
}

/// Returns a lock with annotations of 255 kB, the most that the API server accepts.
fn annotated(name: &str) -> Value {
    let half = "x".repeat(127_000);
    lock(name, &json!({"note": half, "redlock.dev/note": half}), &json!([]))
}

/// Returns a lock that sets a field to a value of more than 1 MB.
fn patching(name: &str, value: &Value) -> Value {
    let target = json!({
        "name": "it", "action": "Patch", "stopSeconds": 5,
        "ref": {"apiVersion": "a.example/v1", "kind": "Queue", "name": "it"},
        "patch": {"fields": [{"path": "/spec/a", "active": value}]},
    });
    lock(name, &json!({}), &json!([target]))
}

/// Returns a lock with 32 targets, which together are about as large as the operator accepts.
fn declaring(name: &str) -> Value {
    let labels: serde_json::Map<String, Value> = (0..3)
        .map(|label| (format!("example.com/{name}-{label}"), json!("v".repeat(63))))
        .collect();
    let target = |index: usize| {
        let mut labels = labels.clone();
        labels.insert("target".to_owned(), json!(format!("{name}-{index}")));
        json!({"name": format!("t{index}"), "action": "LabelPods", "labelPods": {"selector": {"matchLabels": labels}}})
    };
    let targets: Vec<Value> = (0..32).map(target).collect();
    lock(
        name,
        &json!({"redlock.dev/paused": "x".repeat(100_000), "note": "x".repeat(150_000)}),
        &json!(targets),
    )
}

/// Starts a replica, waits until it has judged `judged` locks, and prints its memory.
async fn measure(world: &World, identity: &str, what: &str, judged: usize) -> Operator {
    let operator = world.operator(identity).await;
    eventually(
        PATIENCE,
        &format!("{identity} is ready"),
        async || match operator.get("/readyz") {
            (200, _) => Ok(()),
            other => Err(other),
        },
    )
    .await;
    eventually(
        PATIENCE,
        &format!("{identity} holds {judged} locks"),
        async || {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let locks = operator.locks();
            let held = locks
                .iter()
                .filter(|lock| lock["holderIdentity"] == *identity)
                .count();
            if held >= judged { Ok(()) } else { Err(held) }
        },
    )
    .await;
    let (resident, most) = memory(&operator);
    println!("| {what} | {resident:.0} MiB | {most:.0} MiB |");
    operator
}

/// Set `REDLOCK_LOCKS=10000` to measure, as in docs/kubernetes.md.
#[tokio::test(flavor = "multi_thread")]
async fn memory_with_many_locks_is_bounded_also_after_a_restart() {
    let count = count("REDLOCK_LOCKS", 300);
    let world = ready_world().await;
    let names = (0..count).map(|index| lock(&format!("lock-{index:05}"), &json!({}), &json!([])));
    assert_eq!(create(&world, names).await, count);
    for identity in ["replica-1", "replica-2"] {
        let mut operator = measure(&world, identity, &format!("{count} locks, {identity}"), count).await;
        let (_, most) = memory(&operator);
        assert!(most < BOUND, "{most} MiB");
        operator.child.kill();
    }
}

/// Set `REDLOCK_LARGE_LOCKS=1000` to measure, as in docs/kubernetes.md.
#[tokio::test(flavor = "multi_thread")]
async fn memory_with_the_largest_locks_is_bounded_also_after_a_restart() {
    let count = count("REDLOCK_LARGE_LOCKS", 120);
    let world = ready_world().await;
    let text = json!({"a": "x".repeat(1_200_000)});
    let large = (0..count).map(|index| {
        let name = format!("lock-{index:05}");
        match index % 3 {
            0 => annotated(&name),
            1 => patching(&name, &text),
            _ => declaring(&name),
        }
    });
    assert_eq!(create(&world, large).await, count);
    for identity in ["replica-1", "replica-2"] {
        // The locks with large values are not held.
        let held = count - count.div_ceil(3);
        let what = format!("{count} large locks, {identity}");
        let mut operator = measure(&world, identity, &what, held).await;
        let (_, most) = memory(&operator);
        assert!(most < BOUND, "{most} MiB");
        operator.child.kill();
    }
}
