//! Tests a node on which agent or guardian cannot freeze.

use super::world::{CgroupMount, Pod, World};

/// Starts a world whose processes may have the cgroups mounted for themselves.
async fn start_with_mounts(untested: &str) -> Option<World> {
    let world = World::start(untested).await?;
    CgroupMount::is_possible(untested).then_some(world)
}

/// Calls for a pod, and checks that it is refused because this process cannot freeze it.
async fn assert_start_is_refused(world: &mut World, by: &str) -> Pod {
    let pod = world.pod();
    world.call(&pod, "report");
    let line = world.line(&format!("ed {}", pod.uid)).await;
    assert!(line.starts_with("refused"), "{line}");
    let reason = format!("{by} cannot freeze");
    assert!(
        line.contains(&reason) && line.contains("Read-only file system"),
        "{line}"
    );
    world.until_reported("ready=false").await;
    assert_eq!(world.count("published"), 0);
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_starts_only_where_the_agent_can_freeze_it() {
    let Some(mut world) = start_with_mounts("an agent that cannot write to cgroups").await else {
        return;
    };
    world.start_guardian();
    world.start_agent_with(Some(CgroupMount::ReadOnly)).await;
    let _holder = world.holder("here").await;
    assert_start_is_refused(&mut world, "node agent").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_starts_only_where_the_guardian_can_freeze_it() {
    let Some(mut world) = start_with_mounts("a guardian that cannot write to cgroups").await else {
        return;
    };
    world.start_guardian_with(Some(CgroupMount::ReadOnly));
    world.start_agent().await;
    let _holder = world.holder("here").await;
    let pod = assert_start_is_refused(&mut world, "node guardian").await;
    // The kubelet calls again once the node is repaired.
    CgroupMount::ReadWrite.remount(world.guardian.as_ref().unwrap(), &world.root.0);
    world.call(&pod, "report");
    world.line(&format!("published {}", pod.uid)).await;
    world.until_reported("ready=true").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_that_fails_is_reported_and_repeated() {
    let Some(mut world) = start_with_mounts("a freeze that fails").await else {
        return;
    };
    world.start_guardian_with(Some(CgroupMount::ReadWrite));
    world.start_agent_with(Some(CgroupMount::ReadWrite)).await;
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    for process in [&world.agent, &world.guardian] {
        CgroupMount::ReadOnly.remount(process.as_ref().unwrap(), &world.root.0);
    }
    world.until_reported("guarded: false").await;
    world.until_reported("ready=false").await;
    world.cut();
    world.line(&format!("changed {} NotFrozen", pod.uid)).await;
    world.until_reported("state: NotFrozen").await;
    assert_eq!(world.count(&format!("changed {} Fenced", pod.uid)), 0);
    // The report is true.
    pod.writes().await;
    // Checks and freezes fail for different reasons in turn.
    let lines = world.guardian.as_ref().unwrap().stderr();
    let logged = lines
        .iter()
        .filter(|line| line.contains("the guardian cannot freeze the pod"));
    assert_eq!(logged.count(), 1, "{lines:?}");
    for process in [&world.agent, &world.guardian] {
        CgroupMount::ReadWrite.remount(process.as_ref().unwrap(), &world.root.0);
    }
    pod.frozen().await;
    world.line(&format!("changed {} Fenced", pod.uid)).await;
    world.until_reported("state: Frozen").await;
}

/// On such a node, no fenced pod can start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_on_a_node_without_cgroup_v2_is_not_ready() {
    let Some(mut world) = World::start("a node without cgroup v2").await else {
        return;
    };
    let root = world.path("version-1");
    std::fs::create_dir(&root).unwrap();
    world.use_cgroup_root(root);
    world.start_guardian();
    world.start_agent().await;
    // The guardian reports each second, and the agent reads the report each second.
    world.until_reported("guardian: Some").await;
    world.until_reported("cannot_freeze: Some").await;
    let report = world.report().await;
    assert!(report.starts_with("ready=false"), "{report}");
    assert!(report.contains("cgroup v1"), "{report}");
}
