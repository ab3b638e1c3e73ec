//! Replicas of one operator: who writes, when they are ready, how they leave.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::common::eventually;
use crate::fixture::{BOUND, Operator};
use crate::world::{World, lock, throughout};

const LOCKS: usize = 20;
/// Long enough for what is written now and then to show.
const STEADY: Duration = Duration::from_secs(10);
/// Less than is left of a lease of 10 s at any time, and more than a busy machine stands still.
const AT_ONCE: Duration = Duration::from_secs(5);

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
    // Leases that a busy machine does not lose: what is counted is what is written without a reason.
    // Nor does a master that answers late then lose its vote, which would be told.
    let patient = "  firstStart: Immediate\n  commandTimeoutMilliseconds: 2000\n";
    let quorum = world.quorum("default", patient);
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 10"));
    let long = |n| lock(&format!("l{n}"), "").replace("Seconds: 6", "Seconds: 10");
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
    println!("until all is told: {locks} writes of {LOCKS} locks, {quorums} of the quorum");
    // Each replica says at first that nothing is known, of which one gets through, and then one says who holds it.
    // On a busy machine some of them are tried again.
    assert!(locks <= 8 * LOCKS, "{locks}");
    throughout(STEADY, || {}).await;
    let (locks, quorums) = (
        world.writes("leaderlocks") - locks,
        world.writes("redisquorums") - quorums,
    );
    println!("in {STEADY:?}: {locks} writes of locks, {quorums} of the quorum");
    assert_eq!(locks, 0, "nothing changed");
    assert!(quorums <= 1, "one heartbeat in 30 s");

    // The first one has them all: it was there first.
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
    let (status, _) = leaving.child.wait(BOUND);
    println!("ended {:?} after SIGTERM with {status}", started.elapsed());
    assert!(status.success() && started.elapsed() < AT_ONCE, "{status}");

    without_masters(&world, &operators).await;
}

/// Nothing is written any more for a while.
async fn settled(world: &World) {
    let mut last = (0, Instant::now());
    eventually(BOUND, "the statuses are written", async || {
        let writes = world.writes("leaderlocks") + world.writes("redisquorums");
        if writes != last.0 {
            last = (writes, Instant::now());
        }
        if last.1.elapsed() > Duration::from_secs(2) {
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
    let third = world.operator("replica-4").await;
    third.wait_ready();
    for operator in operators.iter().chain([&third]) {
        for path in ["/readyz", "/livez", "/locks", "/metrics"] {
            let started = Instant::now();
            let (status, body) = operator.get(path);
            assert_eq!(status, 200, "{path}: {body}");
            assert!(started.elapsed() < AT_ONCE, "{path}");
        }
    }
}
