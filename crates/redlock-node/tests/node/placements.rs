//! Tests pods whose processes a freeze of their cgroup does not reach.

use super::world::World;

/// The kubelet and the runtime may use different cgroup drivers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_containers_run_outside_its_cgroup_loses_its_permit_and_its_guard() {
    let Some(mut world) = World::guarded("a pod that runs elsewhere").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let mut pod = world.pod();
    world.call(&pod, "report");
    world.line(&format!("published {}", pod.uid)).await;
    world.until_reported("ready=true").await;
    // The image is pulled: no container runs, and the cgroup is empty.
    world.show_pods(&format!(r#""podsWithContainers":["{}"]"#, pod.uid));
    world.line(&format!("changed {} NotFenced", pod.uid)).await;
    world.until_reported("ready=false").await;
    // The permit ends although the masters would extend it. An empty cgroup does not show that the pod stands still.
    world.line(&format!("changed {} NotFrozen", pod.uid)).await;
    world.until_reported("state: Unconfirmed").await;
    assert_eq!(world.count(&format!("changed {} Fenced", pod.uid)), 0);
    // The node is repaired, and the container starts again in the cgroup of the pod.
    pod.start();
    world.until_reported("ready=true").await;
    pod.start();
    pod.writes().await;
}

/// The permit ends before the reads of the status have shown that the pod runs elsewhere, and the agent restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_of_an_empty_cgroup_counts_only_once_no_container_runs() {
    let Some(mut world) = World::guarded("a freeze of an empty cgroup").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.pod();
    world.show_pods(&format!(r#""podsWithContainers":["{}"]"#, pod.uid));
    world.call(&pod, "report");
    world.line(&format!("published {}", pod.uid)).await;
    world.cut();
    world.line(&format!("changed {} NotFrozen", pod.uid)).await;
    world.until_reported("state: Unconfirmed").await;
    assert_eq!(world.count(&format!("changed {} Fenced", pod.uid)), 0);
    world.agent().kill();
    world.start_agent().await;
    world.until_reported("state: Unconfirmed").await;
    let shown = world.path("locks.json");
    let text = std::fs::read_to_string(&shown).unwrap();
    std::fs::write(shown, text.replace(&pod.uid, "another")).unwrap();
    world.until_reported("state: Frozen").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_a_runtime_that_no_freeze_reaches_does_not_start() {
    let Some(mut world) = World::guarded("a runtime class").await else {
        return;
    };
    let pod = world.pod();
    world.show_pods(&format!(
        r#""podsThatCannotBeFenced":{{"{}":"runtimeClassName kata"}}"#,
        pod.uid
    ));
    let _holder = world.holder("here").await;
    world.call(&pod, "report");
    let line = world.line(&format!("ed {}", pod.uid)).await;
    assert!(line.starts_with("refused"), "{line}");
    assert!(line.contains("cannot be fenced: runtimeClassName kata"), "{line}");
}
