//! Tests agent and guardian that are asked to end, as at a shutdown of the node.

use std::time::Duration;

use nix::sys::signal::Signal;
use redlock_testkit::eventually;

use super::{
    pods::no_code_after,
    world::{BOUND, World},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_of_the_node_ends_agent_and_guardian_after_the_permits_of_its_pods() {
    let Some(mut world) = World::guarded("a shutdown of the node").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.guardian.as_ref().unwrap().signal(Signal::SIGTERM);
    world.agent().send_line("end");
    pod.frozen().await;
    no_code_after(pod.last(), pod.valid_until());
    for process in [&mut world.guardian, &mut world.agent] {
        let (status, _) = process.as_mut().unwrap().wait(BOUND);
        assert!(status.success(), "{status}");
    }
    assert!(pod.events()["frozen"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guardian_that_is_asked_to_end_still_freezes_the_pods_of_a_killed_agent() {
    let Some(mut world) = World::guarded("a guardian that ends").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.guardian.as_ref().unwrap().signal(Signal::SIGTERM);
    world.agent().kill();
    let until = pod.stored_until(&world);
    pod.frozen().await;
    no_code_after(pod.last(), until);
    let (status, _) = world.guardian.as_mut().unwrap().wait(BOUND);
    assert!(status.success(), "{status}");
}

/// The successor may have acknowledged the start, and the agent has thawed the pod since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guardian_that_is_asked_to_end_starts_no_pod() {
    let Some(mut world) = World::guarded("a guardian that ends beside a start").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    let watch = pod.watch();
    let mut older = world.guardian.take().unwrap();
    older.signal(Signal::SIGTERM);
    eventually(BOUND, "the guardian is asked to end", async || {
        let lines = older.stderr();
        let asked = lines.iter().any(|line| line.contains("the guardian ends once"));
        if asked { Ok(()) } else { Err(lines) }
    })
    .await;
    let next = world.pod();
    world.call(&next, "report");
    let entry = world.state().join("pods").join(&next.uid);
    eventually(BOUND, "the start is stored", async || {
        entry.exists().then_some(()).ok_or(())
    })
    .await;
    // The guardian reads each entry within a second.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!world.state().join("acknowledged").join(&next.uid).exists());
    assert_eq!(world.count(&format!("published {}", next.uid)), 0);
    world.start_guardian();
    world.line(&format!("published {}", next.uid)).await;
    let (status, _) = older.wait(BOUND);
    assert!(status.success(), "{status}");
    watch.assert_never_frozen();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_of_agent_and_guardian_ends_each_at_once_and_freezes_nothing() {
    let Some(mut world) = World::guarded("an update").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    let watch = pod.watch();
    let mut older = world.guardian.take().unwrap();
    world.start_guardian();
    older.signal(Signal::SIGTERM);
    let (status, _) = older.wait(BOUND);
    assert!(status.success(), "{status}");
    world.until_reported("ready=true").await;
    // The guardian guards the pod alone until the next agent starts.
    world.agent().send_line("end");
    let (status, _) = world.agent().wait(BOUND);
    assert!(status.success(), "{status}");
    world.start_agent().await;
    world.until_reported("ready=true").await;
    pod.writes().await;
    watch.assert_never_frozen();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_asked_to_end_without_a_guardian_freezes_its_pods_first() {
    let Some(mut world) = World::guarded("an agent that ends alone").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.guardian.as_mut().unwrap().kill();
    world.agent().send_line("end");
    let (status, _) = world.agent().wait(BOUND);
    assert!(status.success(), "{status}");
    let events = pod.events();
    assert!(events["frozen"] && events["populated"], "{events:?}");
    no_code_after(pod.last(), pod.valid_until());
}
