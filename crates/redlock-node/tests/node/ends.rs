//! Tests that, while agent or guardian is gone or stands still, the other one freezes on time.

use std::fs;

use nix::{
    sys::{signal::Signal, stat::Mode},
    unistd::mkfifo,
};
use redlock_client::clock;

use super::{pods::no_code_after, world::World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guardian_freezes_on_time_when_the_agent_is_killed() {
    let Some(mut world) = World::guarded("a killed agent").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.agent().kill();
    let until = pod.stored_until(&world);
    pod.frozen().await;
    no_code_after(pod.last(), until);
    // Once restarted, the agent finds the holder and thaws the pod.
    world.start_agent().await;
    pod.writes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_cannot_be_read_delay_no_freeze_of_another_pod() {
    let Some(mut world) = World::guarded("unreadable entries of other pods").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    let entry = |uid: &str| world.state().join("pods").join(uid);
    let garbled = fs::read_to_string(entry(&pod.uid)).unwrap();
    mkfifo(&entry("pipe"), Mode::S_IRWXU).unwrap();
    fs::create_dir(entry("directory")).unwrap();
    fs::write(entry("not a uid"), &garbled).unwrap();
    fs::write(entry("uid-1"), garbled.replace("cgroup", "group")).unwrap();
    let watch = pod.watch();
    let until = pod.stored_until(&world);
    redlock_testkit::eventually(
        super::world::BOUND,
        "the guardian keeps a later permit",
        async || {
            let stored = fs::read(entry(&pod.uid)).unwrap();
            let acknowledged = fs::read(world.state().join("acknowledged").join(&pod.uid)).unwrap();
            if pod.stored_until(&world) > until && acknowledged == stored {
                Ok(())
            } else {
                Err(until)
            }
        },
    )
    .await;
    watch.assert_never_frozen();
    world.agent().kill();
    let until = pod.stored_until(&world);
    pod.frozen().await;
    no_code_after(pod.last(), until);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guardian_freezes_on_time_when_the_agent_stands_still() {
    let Some(mut world) = World::guarded("a stopped agent").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.agent().freeze();
    let until = pod.stored_until(&world);
    pod.frozen().await;
    no_code_after(pod.last(), until);
    world.agent().signal(Signal::SIGCONT);
    pod.writes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_freezes_on_time_when_the_guardian_is_killed_and_starts_no_pod() {
    let Some(mut world) = World::guarded("a killed guardian").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.guardian.as_mut().unwrap().kill();
    // A permit that no guardian keeps starts no pod.
    let next = world.pod();
    world.call(&next, "report");
    world.cut();
    pod.frozen().await;
    no_code_after(pod.last(), pod.valid_until());
    assert_eq!(world.count(&format!("published {}", next.uid)), 0);
    world.heal();
    pod.writes().await;
    world.start_guardian();
    world.line(&format!("published {}", next.uid)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guardian_that_stood_still_does_not_freeze_by_an_earlier_record() {
    let Some(mut world) = World::guarded("a stopped guardian").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.guardian.as_mut().unwrap().freeze();
    let until = pod.stored_until(&world);
    // Wait beyond the end that the guardian has read.
    redlock_testkit::eventually(super::world::BOUND, "the permit is renewed", async || {
        if clock::now() > until {
            Ok(())
        } else {
            Err(until.since(clock::now()))
        }
    })
    .await;
    let watch = pod.watch();
    world.guardian.as_mut().unwrap().signal(Signal::SIGCONT);
    pod.writes().await;
    let next = pod.stored_until(&world);
    redlock_testkit::eventually(super::world::BOUND, "another renewal", async || {
        if pod.stored_until(&world) > next {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    pod.writes().await;
    assert_eq!(world.count("Fenced"), 0);
    watch.assert_never_frozen();
}
