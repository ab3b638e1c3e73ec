//! Tests the replicas of one operator: which replica writes, when they are ready, and how they leave.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::common::http::wait_alive;
use crate::fixture::{BOUND, Operator};
use crate::world::{World, lock, throughout};
use redlock_testkit::eventually;

const LOCKS: usize = 20;
/// Long enough for periodic writes to show.
const STEADY: Duration = Duration::from_secs(10);
/// Less than the time that is left of a lease of 30 s at any moment, and longer than a busy machine pauses.
const AT_ONCE: Duration = Duration::from_secs(15);

fn active(operators: &[Operator]) -> Vec<usize> {
    let count = |operator: &Operator| {
        operator
            .locks()
            .iter()
            .filter(|lock| lock["role"] == "Active")
            .count()
    };
    operators.iter().map(count).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_write_nothing_but_heartbeats_and_leave_at_once() {
    let world = World::small(3).await;
    // Leases that a busy machine does not lose: only writes without a reason are counted. With this time-out a slow
    // master does not lose its vote either, which would be reported.
    let patient = "  firstStart: Immediate\n  commandTimeoutMilliseconds: 2000\n";
    let quorum = world.quorum("default", patient);
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 30"));
    let long = |n| lock(&format!("l{n}"), "").replace("Seconds: 6", "Seconds: 30");
    let manifests: Vec<String> = (0..LOCKS).map(long).collect();
    world.apply(&manifests.join("---\n"));
    let mut operators = Vec::new();
    for name in ["replica-1", "replica-2", "replica-3"] {
        operators.push(world.operator(name).await);
    }
    for operator in &operators {
        operator.wait_ready();
    }
    for n in 0..LOCKS {
        world
            .lock_status(&format!("l{n}"), "is held", |status| status["role"] == "Active")
            .await;
    }
    settled(&world).await;

    let (locks, quorums) = (world.writes("leaderlocks"), world.writes("redisquorums"));
    println!("until all is reported: {locks} writes of {LOCKS} locks, {quorums} of the quorum");
    // Each replica first reports that nothing is known, of which one write succeeds, and then one reports the holder.
    // On a busy machine some writes are retried.
    assert!(locks <= 8 * LOCKS, "{locks}");
    throughout(STEADY, || {}).await;
    let (locks, quorums) = (
        world.writes("leaderlocks") - locks,
        world.writes("redisquorums") - quorums,
    );
    println!("in {STEADY:?}: {locks} writes of locks, {quorums} of the quorum");
    assert_eq!(locks, 0, "nothing changed");
    assert!(quorums <= 1, "one heartbeat in 30 s");

    // The first replica has them all, since it started first.
    assert_eq!(active(&operators).iter().sum::<usize>(), LOCKS);
    let holder = active(&operators).iter().position(|&count| count > 0).unwrap();
    let mut leaving = operators.remove(holder);
    let started = Instant::now();
    leaving.child.signal(Signal::SIGTERM);
    eventually(BOUND, "siblings hold every lock", async || {
        let counts = active(&operators);
        if counts.iter().sum::<usize>() == LOCKS {
            Ok(())
        } else {
            Err(counts)
        }
    })
    .await;
    println!("every lock is held again {:?} after SIGTERM", started.elapsed());
    assert!(started.elapsed() < AT_ONCE, "not before the leases ran out");
    // On a busy machine, the end of the process was seen 10 s after this line.
    leaving.child.wait_for_line(BOUND, "operator ended");
    println!("ended {:?} after SIGTERM", started.elapsed());
    assert!(started.elapsed() < AT_ONCE);
    let (status, _) = leaving.child.wait(BOUND);
    assert!(status.success(), "{status}");

    without_masters(&world, &operators).await;
}

/// Waits until no status is written for a while.
pub async fn settled(world: &World) {
    let mut last = (0, Instant::now());
    eventually(BOUND, "the statuses are written", async || {
        let writes = world.writes("leaderlocks") + world.writes("redisquorums");
        if writes != last.0 {
            last = (writes, Instant::now());
        }
        if last.1.elapsed() > Duration::from_secs(5) {
            Ok(())
        } else {
            Err(writes)
        }
    })
    .await;
}

async fn without_masters(world: &World, operators: &[Operator]) {
    for master in &world.masters {
        master.kill();
    }
    let new = world.operator("replica-4").await;
    // A replica that has never seen a majority is not ready, so a rollout stalls; the others stay ready.
    eventually(BOUND, "the new replica names the quorum", async || {
        let (status, body) = new.get("/readyz");
        let waits = status == 503 && body.contains("quorum default: 0 of 3 masters vote");
        if waits { Ok(()) } else { Err((status, body)) }
    })
    .await;
    for (operator, ready) in operators
        .iter()
        .map(|operator| (operator, 200))
        .chain([(&new, 503)])
    {
        for path in ["/readyz", "/locks", "/metrics"] {
            let started = Instant::now();
            let (status, body) = operator.get(path);
            let wanted = if path == "/readyz" { ready } else { 200 };
            assert_eq!(status, wanted, "{path}: {body}");
            assert!(started.elapsed() < AT_ONCE, "{path}");
        }
        let started = Instant::now();
        wait_alive(operator.port());
        assert!(started.elapsed() < AT_ONCE, "/livez");
    }
}

/// Simulates two releases of the chart with different `watchNamespaces`.
#[tokio::test(flavor = "multi_thread")]
async fn operators_that_watch_different_namespaces_both_write_statuses() {
    let world = World::small(3).await;
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    let other = world.plane.namespace("other").await;
    let namespaces = [world.namespace.name(), other.name()];
    let watches = |name: &'static str, namespace: &str| {
        let namespace = namespace.to_owned();
        world.operator_with(name, move |command| {
            command.args(["--watch-namespaces", &namespace]);
        })
    };
    let _one = watches("one", namespaces[0]).await;
    let _other = watches("other", namespaces[1]).await;
    // No replica holds them: a reporter has to write their statuses.
    for namespace in namespaces {
        let idle: redlock::api::LeaderLock = serde_json::from_value(serde_json::json!({
            "apiVersion": "redlock.dev/v1alpha1",
            "kind": "LeaderLock",
            "metadata": {"name": "idle"},
            "spec": {"quorumRef": {"name": "default"}, "leaseDurationSeconds": 6, "state": "SteppedDown", "reason": "a test"},
        }))
        .unwrap();
        let locks = kube::Api::<redlock::api::LeaderLock>::namespaced(world.plane.admin(), namespace);
        locks
            .create(&kube::api::PostParams::default(), &idle)
            .await
            .unwrap();
    }
    for namespace in namespaces {
        let locks = kube::Api::<redlock::api::LeaderLock>::namespaced(world.plane.admin(), namespace);
        eventually(BOUND, "its status is written", async || {
            let status = locks.get("idle").await.unwrap().status.unwrap_or_default();
            let ready = status
                .conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True");
            if ready { Ok(()) } else { Err(status) }
        })
        .await;
    }
    let quorum = world
        .quorum_status("default", "has one reporter", |status| {
            status["reporters"].is_array()
        })
        .await;
    assert_eq!(
        quorum["reporters"].as_array().unwrap().len(),
        1,
        "they are one cluster"
    );
}
