//! Tests pods that an administrator releases.

use std::{fs, time::Duration};

use redlock_client::clock;
use redlock_node::{
    listing::{self, PodState},
    release::{By, Guardian, Plan, Released},
};
use redlock_testkit::eventually;
use tokio::task::spawn_blocking;

use super::world::{BOUND, Pod, World};

async fn release(world: &World, pod: &Pod) -> Result<Released, String> {
    let (state, uid) = (world.state(), pod.uid.clone());
    let released = spawn_blocking(move || Plan::make(&state, &uid)?.carry_out("INC-42")).await;
    released.unwrap().map_err(|error| error.to_string())
}

fn state(world: &World, pod: &Pod) -> (PodState, String) {
    let options = listing::Options {
        state_dir: world.state(),
        kubelet_dir: Some(world.kubelet()),
    };
    let listing = listing::read(&options).unwrap();
    let row = listing.pods.into_iter().find(|row| row.uid == pod.uid).unwrap();
    (row.state, row.reason)
}

async fn is(world: &World, pod: &Pod, wanted: PodState) -> String {
    eventually(BOUND, &format!("the pod is {wanted:?}"), async || {
        let (state, reason) = state(world, pod);
        if state == wanted {
            Ok(reason)
        } else {
            Err((state, reason))
        }
    })
    .await
}

/// Neither the agent nor the guardian freezes a released pod, even after both have restarted. Another cluster
/// that comes later ends the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_pod_runs_without_a_permit_until_another_cluster_comes() {
    let Some(mut world) = World::guarded("a release").await else {
        return;
    };
    let (holder, _) = world.holder("here").await;
    let waits = world.pod();
    let pod = world.run_pod().await;
    assert_eq!(state(&world, &pod), (PodState::Running, String::new()));
    let refused = release(&world, &pod).await.unwrap_err();
    assert!(refused.contains("has a permit"), "{refused}");
    world.cut();
    pod.frozen().await;
    // The guardian may have frozen it a moment before the agent stores the reason.
    eventually(BOUND, "the reason of the freeze", async || {
        match state(&world, &pod) {
            (PodState::Frozen, reason) if !reason.contains("stored no reason") => Ok(()),
            other => Err(other),
        }
    })
    .await;
    world.call(&waits, "report");
    is(&world, &waits, PodState::Waiting).await;
    let refused = release(&world, &waits).await.unwrap_err();
    assert!(refused.contains("no record"), "{refused}");

    let released = release(&world, &pod).await.unwrap();
    let expected = Released {
        by: By::Agent,
        guardian: Guardian::Acknowledged,
        thawed: true,
    };
    assert_eq!(released, expected);
    world.line(&format!("changed {} Released", pod.uid)).await;
    pod.writes().await;
    let watch = pod.watch();
    world.guardian.as_mut().unwrap().kill();
    world.start_guardian();
    world.agent().kill();
    world.start_agent().await;
    let process = format!("\"process\":{},", world.guardian.as_ref().unwrap().pid());
    // The guardian reports after it has read all entries.
    eventually(BOUND, "the guardian is another process", async || {
        let text = fs::read_to_string(world.state().join("guardian")).unwrap();
        if text.contains(&process) {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    world.until_reported("state: Released").await;
    pod.writes().await;
    watch.assert_never_frozen();
    let (_, reason) = state(&world, &pod);
    assert_eq!(reason, "released by hand: INC-42");

    holder.vanish();
    let _other = world.holder("there").await;
    world.heal();
    pod.empty().await;
    pod.frozen().await;
    is(&world, &pod, PodState::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_released_beside_the_guardian_alone_and_fenced_again_by_a_permit() {
    let Some(mut world) = World::guarded("a release without an agent").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.cut();
    pod.frozen().await;
    world.agent().kill();
    let released = release(&world, &pod).await.unwrap();
    assert_eq!(
        (released.by, released.guardian),
        (By::Command, Guardian::Acknowledged)
    );
    let begun = clock::now();
    // The guardian repeats a freeze every second, and nothing would thaw the pod.
    eventually(BOUND, "the pod runs on", async || {
        let last = pod.last();
        if last > Some(begun + Duration::from_secs(2)) {
            Ok(())
        } else {
            Err((last, begun))
        }
    })
    .await;
    is(&world, &pod, PodState::Released).await;
    world.start_agent().await;
    pod.writes().await;
    world.heal();
    // The pod continues its lineage, or starts afresh.
    is(&world, &pod, PodState::Running).await;
    world.cut();
    pod.frozen().await;
    is(&world, &pod, PodState::Frozen).await;
}

/// A full table forces the agent to delete the entry of a release that has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guardian_freezes_a_released_pod_whose_entry_is_deleted() {
    let Some(mut world) = World::guarded("a deleted release").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.cut();
    pod.frozen().await;
    world.agent().kill();
    let released = release(&world, &pod).await.unwrap();
    assert_eq!(released.guardian, Guardian::Acknowledged);
    pod.writes().await;
    fs::remove_file(world.state().join("pods").join(&pod.uid)).unwrap();
    pod.frozen().await;
}
