//! Tests the life of a pod: it starts by a permit, is frozen at its end, and is then thawed or killed.

use std::time::Duration;

use redlock_client::{clock, lease::BootInstant};
use redlock_testkit::eventually;

use super::world::{BOUND, LEASE, World, timings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_starts_only_by_a_permit() {
    let Some(mut world) = World::guarded("the start of a pod").await else {
        return;
    };
    let pod = world.pod();
    world.call(&pod, "report");
    let candidate = world.candidate("here").await;
    // The lease alone permits nothing: an unmarked lease may be undone.
    world.until_reported("state: Waiting").await;
    assert_eq!(world.count("published"), 0);
    let begun = clock::now();
    let token = candidate.hold().await;
    world.line(&format!("published {}", pod.uid)).await;
    let took = clock::now().since(begun);
    assert!(took < BOUND, "{took:?}");
    assert_eq!(pod.file("lock"), "team/report");
    assert_eq!(pod.file("token"), token.to_string());
    assert_eq!(pod.file("holder-cluster"), "here");
    let first = pod.valid_until();
    assert!(first > clock::now());
    // Each renewal moves the end.
    eventually(BOUND, "the permit is renewed", async || {
        let until = pod.valid_until();
        if until > first + Duration::from_secs(2) {
            Ok(())
        } else {
            Err(until.since(first))
        }
    })
    .await;
    // The kubelet calls again.
    world.call(&pod, "report");
    world.lines(&format!("published {}", pod.uid), 2).await;
    world.unpublish(&pod);
    world.line(&format!("unpublished {}", pod.uid)).await;
    assert!(!pod.target.exists());
    let entry = world.state().join("pods").join(&pod.uid);
    eventually(BOUND, "the entry is removed", async || {
        if entry.exists() { Err(()) } else { Ok(()) }
    })
    .await;
}

/// Checks that no user code ran after the permit had ended.
pub(super) fn no_code_after(last: Option<BootInstant>, until: BootInstant) {
    let last = last.unwrap();
    assert!(
        last < until,
        "ran {:?} after the end of the permit",
        last.since(until)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_frozen_at_the_end_of_its_permit_and_thawed_by_the_next_one() {
    let Some(mut world) = World::guarded("a freeze").await else {
        return;
    };
    let (_holder, token) = world.holder("here").await;
    let pod = world.run_pod().await;
    world.cut();
    pod.frozen().await;
    no_code_after(pod.last(), pod.valid_until());
    world.line(&format!("changed {} Fenced", pod.uid)).await;
    // A running pod cannot be unpublished: nothing would fence it.
    world.unpublish(&pod);
    world.line(&format!("kept {}", pod.uid)).await;
    world.heal();
    pod.writes().await;
    world.line(&format!("changed {} Thawed", pod.uid)).await;
    assert_eq!(pod.file("token"), token.to_string());
    assert_eq!(world.count("Killed"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_killed_when_another_cluster_holds_the_lock_and_starts_afresh_later() {
    let Some(mut world) = World::guarded("a kill").await else {
        return;
    };
    let (here, _) = world.holder("here").await;
    let mut pod = world.run_pod().await;
    here.vanish();
    let (until, began) = (pod.valid_until(), clock::now());
    let (there, of_there) = world.holder("there").await;
    pod.empty().await;
    world.line(&format!("changed {} Killed", pod.uid)).await;
    // No code of the pod ran once the other cluster could hold the lock.
    let last = pod.last().unwrap();
    assert!(
        last < until.max(began + Duration::from_secs(6)),
        "{:?}",
        last.since(until)
    );
    // The kubelet starts the container again, in the frozen cgroup: it is killed.
    pod.start();
    let events = pod.events();
    assert!(pod.last() == Some(last), "{events:?}");
    there.end_cleanly(of_there).await;
    let (_here, token) = world.holder("here").await;
    eventually(BOUND, "the pod starts afresh", async || {
        let line = format!("changed {} Started", pod.uid);
        if world.count(&line) == 2 {
            Ok(())
        } else {
            Err(world.agent.as_ref().unwrap().stdout())
        }
    })
    .await;
    pod.start();
    pod.writes().await;
    eventually(BOUND, "the token of the new lease", async || {
        let read = pod.file("token");
        if read == token.to_string() {
            Ok(())
        } else {
            Err(read)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_frozen_for_30_s_is_killed() {
    let Some(mut world) = World::guarded("a kill after 30 s").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.cut();
    pod.frozen().await;
    let frozen = pod.last().unwrap();
    pod.empty().await;
    let took = clock::now().since(frozen);
    assert!(
        took > Duration::from_secs(29) && took < Duration::from_secs(40),
        "{took:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_runs_follows_the_changed_urls_of_its_masters() {
    let Some(mut world) = World::guarded("changed urls of masters").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    let watch = pod.watch();
    // The lock was also edited since then: the pod keeps its timings.
    world.write_locks(&world.servers(), LEASE + Duration::from_secs(1));
    let agent = world.agent.as_ref().unwrap();
    eventually(BOUND, "the agent uses the changed urls", async || {
        let lines = agent.stderr();
        let found = lines
            .iter()
            .any(|line| line.contains("the urls of masters or the id of the quorum have changed"));
        if found { Ok(()) } else { Err(lines.last().cloned()) }
    })
    .await;
    world.cut();
    let until = pod.stored_until(&world);
    eventually(BOUND, "the permit is renewed", async || {
        let stored = pod.stored_until(&world);
        // Later than any permit of the earlier urls.
        if stored.since(until) > timings().lease_duration {
            Ok(())
        } else {
            Err(stored)
        }
    })
    .await;
    pod.writes().await;
    watch.assert_never_frozen();
}
