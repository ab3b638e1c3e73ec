//! Tests volumes in which the kubelet has created directories for the `subPath` of a container.

use std::{fs, process::Command};

use redlock_testkit::eventually;

use super::world::{BOUND, CgroupMount, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_with_directories_of_sub_paths_is_renewed_and_unpublished() {
    let Some(mut world) = World::guarded("a volume with subPath").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.pod();
    world.call(&pod, "report");
    world.line(&format!("published {}", pod.uid)).await;
    for name in [".token", ".valid-until-boot-milliseconds", "logs/a"] {
        fs::create_dir_all(pod.target.join(name)).unwrap();
    }
    let until = pod.valid_until();
    eventually(BOUND, "the volume shows a later permit", async || {
        let shown = pod.valid_until();
        if shown > until { Ok(()) } else { Err(shown) }
    })
    .await;
    world.unpublish(&pod);
    world.line(&format!("unpublished {}", pod.uid)).await;
    assert!(!pod.target.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_removal_of_a_volume_crosses_no_mount() {
    if !CgroupMount::is_possible("a mount in a volume") {
        return;
    }
    let Some(mut world) = World::guarded("a mount in a volume").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.pod();
    world.call(&pod, "report");
    world.line(&format!("published {}", pod.uid)).await;
    let (outside, inside) = (world.path("outside"), pod.target.join("data"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&inside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    let mount = Command::new("mount")
        .arg("--bind")
        .args([&outside, &inside])
        .status();
    assert!(mount.unwrap().success());
    world.unpublish(&pod);
    let line = world.line(&format!("kept {}", pod.uid)).await;
    let unmount = Command::new("umount").arg(&inside).status();
    assert!(unmount.unwrap().success());
    assert!(outside.join("kept").exists(), "{line}");
    world.unpublish(&pod);
    world.line(&format!("unpublished {}", pod.uid)).await;
    assert!(!pod.target.exists());
}
