//! Tests `redlock run` under a lock that is an object.

use crate::world::{World, lock};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_under_a_declared_lock_of_agents() {
    let world = World::new(3).await;
    let _operator = world.operator("replica-1").await;
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    world.apply(&lock("work", ", candidates: Agents"));
    world.apply(&lock("report", ""));
    world
        .lock_status("report", "is held", |status| {
            status["holderIdentity"] == "replica-1"
        })
        .await;
    let namespace = world.namespace.name().to_owned();
    let run = |lock: &str, flags: &[&str]| {
        let command = ["--", "sh", "-c", "echo $REDLOCK_LOCK by $REDLOCK_HOLDER"];
        let place = ["run", lock, "--namespace", &namespace, "--identity", "me"];
        world.redlock(&[&place[..], flags, &command].concat())
    };
    run("work", &[]).expect(0, &[&format!("{namespace}/work by me")]);
    // A value that does not fit into the lease of the object is reported with the length of the lease.
    run("work", &["--stop-grace", "8s"]).expect(78, &["--lease-duration 6 s does not leave 8 s"]);
    run("report", &[]).expect(78, &["set spec.candidates: Agents"]);
    run("none", &[]).expect(78, &[&format!("there is no LeaderLock {namespace}/none")]);
    // This cluster leaves the lock to others.
    world.apply(&lock(
        "work",
        ", candidates: Agents, state: SteppedDown, reason: maintenance",
    ));
    run("work", &[]).expect(75, &["its state is SteppedDown"]);
    run("work", &["-E", "3"]).expect(3, &["its state is SteppedDown"]);
}
