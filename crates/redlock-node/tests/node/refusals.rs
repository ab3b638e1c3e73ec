//! Tests that calls that start no pod name the reason.

use std::fs;

use super::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_cannot_be_fulfilled_names_the_reason() {
    let Some(mut world) = World::guarded("refusals").await else {
        return;
    };
    let pod = world.pod();
    world.call(&pod, "missing");
    let line = world.line("refused").await;
    assert!(
        line.contains(r#"no lock "missing" in namespace "team""#),
        "{line}"
    );
    world.call(&pod, "plain");
    let line = world.lines("refused", 2).await.remove(1);
    assert!(
        line.contains("it has no fencing; expected fencing: Node"),
        "{line}"
    );
    let lost = world.pod();
    fs::remove_dir(&lost.cgroup).unwrap();
    world.call(&lost, "report");
    let line = world.line(&format!("refused {}", lost.uid)).await;
    assert!(line.contains("has no cgroup below"), "{line}");
    let twice = world.pod();
    let second = twice.cgroup.with_file_name(format!("pod{}", twice.uid));
    fs::create_dir(&second).unwrap();
    world.call(&twice, "report");
    let line = world.line(&format!("refused {}", twice.uid)).await;
    assert!(line.contains("several cgroups"), "{line}");
    let _holder = world.holder("here").await;
    world.call(&pod, "report");
    world.line(&format!("published {}", pod.uid)).await;
    world.call(&pod, "other");
    let line = world.lines(&format!("refused {}", pod.uid), 3).await.remove(2);
    assert!(
        line.contains("volumes of two locks, team/report and team/other"),
        "{line}"
    );
}
