//! Tests the changes that users make to locks: share names, change timings, freeze, step down, delete.

use serde_json::Value;

use crate::fixture::{BOUND, Operator};
use crate::world::{World, condition, lasting, message, timed};
use redlock_testkit::eventually;

/// Returns a lock whose lease outlasts a pause of a busy machine: the tests compare tokens.
fn lock(name: &str, more: &str) -> String {
    lasting(&crate::world::lock(name, more))
}

fn quorum(world: &World, more: &str) -> String {
    lasting(&world.quorum("default", more))
}

async fn status(world: &World, name: &str) -> Value {
    serde_json::to_value(world.locks().get(name).await.unwrap().status).unwrap()
}

async fn becomes(world: &World, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let (status, _) = timed(&format!("{name} {what}"), async || {
        let status = status(world, name).await;
        if wanted(&status) { Ok(status) } else { Err(status) }
    })
    .await;
    status
}

fn active(status: &Value) -> bool {
    status["role"] == "Active" && condition(status, "Held").0 == "True"
}

fn set(world: &World, name: &str, spec: &str) {
    let patch = format!("{{\"spec\": {spec}}}");
    world.kubectl(&["patch", "leaderlock", name, "--type=merge", "--patch", &patch]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_follows_its_object() {
    let world = World::small(3).await;
    let namespace = world.namespace.name().to_owned();
    let shared = format!(
        "  firstStart: Immediate\n  sharedLockNames:\n  - {{prefix: shared/, namespaces: [{namespace}]}}\n"
    );
    world.apply(&quorum(&world, &shared));
    world.apply(&lock("report", ""));
    let operator = world.operator("replica-1").await;
    let token = becomes(&world, "report", "is held", active).await["fencingToken"].clone();

    timings(&world, &operator, &token).await;
    names(&world, &operator).await;
    states(&world, &operator).await;
    deletion(&world, &operator, &token).await;
}

/// Timings that change while the lock is held take effect without a transition.
async fn timings(world: &World, operator: &Operator, token: &Value) {
    world.apply(
        &world
            .quorum("long", "  keyPrefix: long\n  firstStart: Immediate\n")
            .replace("Seconds: 6", "Seconds: 30"),
    );
    let named = lock("long", "").replace("name: default", "name: long");
    world.apply(&named);
    let before = becomes(world, "long", "is held", active).await;
    assert_eq!(before["timings"]["leaseDurationMilliseconds"], 12_000);
    for (seconds, least, most) in [(20, 10_000, 20_000), (12, 500, 12_000)] {
        set(world, "long", &format!("{{\"leaseDurationSeconds\": {seconds}}}"));
        let wanted = seconds * 1000;
        let after = becomes(world, "long", "has other timings", |status| {
            status["timings"]["leaseDurationMilliseconds"] == wanted
        })
        .await;
        assert_eq!(after["fencingToken"], before["fencingToken"]);
        assert_eq!(after["leaseTransitions"], 0);
        eventually(BOUND, "the lease has that length", async || {
            let left = operator.assert_holds("long", &before["fencingToken"]);
            if (least..=most).contains(&left) {
                Ok(())
            } else {
                Err(left)
            }
        })
        .await;
    }
    operator.assert_holds("report", token);
    // A lock that is too impatient for its quorum is refused by name, and changes nothing for the others.
    let impatient = lock("impatient", "").replace("Seconds: 12", "Seconds: 2");
    world.apply(&impatient);
    let status = becomes(world, "impatient", "is refused", |status| {
        condition(status, "Ready") == ("False", "InvalidSpec")
    })
    .await;
    let text = message(&status, "Ready");
    assert!(
        text.contains("spec.renewDeadlineSeconds: 1.335") && text.contains("commandTimeoutMilliseconds"),
        "{text}"
    );
    let log = operator.child.stderr();
    assert!(!log.iter().any(|line| line.contains("command timeout changed")));
}

async fn names(world: &World, operator: &Operator) {
    let (worked, output) = world.try_apply(&lock("report", ", lockName: else/where"));
    assert!(!worked && output.contains("cannot change"), "{output}");
    // A lock can use the name of another namespace only if the quorum shares the name.
    world.apply(&lock("foreign", ", lockName: other/report"));
    let status = becomes(world, "foreign", "is refused", |status| {
        condition(status, "Ready").1 == "InvalidSpec"
    })
    .await;
    assert!(
        message(&status, "Ready").contains("sharedLockNames"),
        "{status:#}"
    );
    assert_eq!(condition(&status, "Stalled").0, "True");
    world.apply(&lock("shared", ", lockName: shared/report"));
    let held = becomes(world, "shared", "is held", active).await;
    let token = held["fencingToken"].clone();
    // The younger of two locks has to wait until the older one is gone.
    world.apply(&lock("twin", ", lockName: shared/report"));
    becomes(world, "twin", "is refused", |status| {
        condition(status, "Ready").1 == "DuplicateLockName"
    })
    .await;
    operator.assert_holds("shared", &token);
    // The name is no longer shared: a held lock stays held, and the status reports the error.
    world.apply(&quorum(world, "  firstStart: Immediate\n"));
    let status = becomes(world, "shared", "is invalid", |status| {
        condition(status, "Ready").1 == "InvalidSpec"
    })
    .await;
    println!(
        "            {}; {}",
        message(&status, "Ready"),
        message(&status, "Held")
    );
    assert_eq!(status["role"], "Unknown", "not Standby: it is still held");
    for field in [
        "holder",
        "holderIdentity",
        "holderCluster",
        "acquireTime",
        "leaseTransitions",
        "timings",
    ] {
        assert_eq!(status[field], held[field], "{field}");
    }
    operator.assert_holds("shared", &token);
    let namespace = world.namespace.name();
    let shared = format!(
        "  firstStart: Immediate\n  sharedLockNames:\n  - {{prefix: shared/, namespaces: [{namespace}]}}\n"
    );
    world.apply(&quorum(world, &shared));
    let again = becomes(world, "shared", "is held", active).await;
    assert_eq!(
        again["leaseTransitions"], held["leaseTransitions"],
        "the same lease"
    );
    operator.assert_holds("shared", &token);
    world.kubectl(&["delete", "leaderlock", "shared"]);
    becomes(world, "twin", "is held", active).await;
}

async fn states(world: &World, operator: &Operator) {
    let free = |status: &Value| status["role"] == "Standby" && condition(status, "Held").0 == "False";
    set(world, "report", "{\"state\": \"Frozen\", \"reason\": \"a test\"}");
    let frozen = becomes(world, "report", "is frozen and held", |status| {
        active(status) && status["observedGeneration"] == 2
    })
    .await;
    operator.assert_holds("report", &frozen["fencingToken"]);
    set(world, "report", "{\"state\": \"SteppedDown\"}");
    becomes(world, "report", "is given up", free).await;
    println!("            {}", world.event_message("report", "Released").await);
    // This cluster held it last, so no takeover delay applies.
    set(world, "report", "{\"state\": \"Enabled\", \"reason\": null}");
    let again = becomes(world, "report", "is held again", active).await;
    assert!(again["fencingToken"].as_u64() > frozen["fencingToken"].as_u64());
    // A lock that was never held by this cluster is not acquired.
    world.apply(&lock("frozen", ", state: Frozen, reason: a test"));
    becomes(world, "frozen", "is not taken", free).await;
    assert_eq!(operator.lock("frozen")["role"], "Standby");
}

async fn deletion(world: &World, operator: &Operator, token: &Value) {
    let started = std::time::Instant::now();
    world.kubectl(&["delete", "leaderlock", "report"]);
    eventually(BOUND, "it is given up", async || match operator.lock("report") {
        Value::Null => Ok(()),
        lock => Err(lock),
    })
    .await;
    println!("gone {:?} after the deletion", started.elapsed());
    world.apply(&lock("report", ""));
    let status = becomes(world, "report", "is held anew", active).await;
    assert!(status["fencingToken"].as_u64() > token.as_u64());
    assert_eq!(status["leaseTransitions"], 0, "a new object");
    // The lock is deleted, and created again at once.
    world.kubectl(&["delete", "leaderlock", "report", "--wait=false"]);
    world.apply(&lock("report", ""));
    let again = becomes(world, "report", "is held once more", active).await;
    assert!(again["fencingToken"].as_u64() > status["fencingToken"].as_u64());
    // The quorum is deleted and created again, too.
    let release = r#"{"metadata": {"finalizers": null}}"#;
    let patch = [
        "patch",
        "redisquorum",
        "default",
        "--type=merge",
        "--patch",
        release,
    ];
    world.kubectl(&["delete", "redisquorum", "default", "--wait=false"]);
    // Only a user removes the finalizer while a lock names the quorum.
    world.kubectl(&patch);
    becomes(world, "report", "has no quorum", |status| {
        condition(status, "Ready").1 == "QuorumNotFound"
    })
    .await;
    world.apply(&quorum(world, ""));
    let last = becomes(world, "report", "is held at last", active).await;
    assert!(last["fencingToken"].as_u64() > again["fencingToken"].as_u64());
}
