//! Tests restarts of agent and guardian, and the loss of the table.

use std::fs;

use redlock_client::clock;
use redlock_testkit::eventually;

use super::{
    pods::no_code_after,
    world::{BOUND, World},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_agent_and_guardian_freezes_nothing() {
    let Some(mut world) = World::guarded("a restart").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    let watch = pod.watch();
    for _ in 0..2 {
        world.agent().kill();
        world.start_agent().await;
        let until = pod.stored_until(&world);
        eventually(BOUND, "the permit is renewed", async || {
            if pod.stored_until(&world) > until {
                Ok(())
            } else {
                Err(())
            }
        })
        .await;
        world.guardian.as_mut().unwrap().kill();
        world.start_guardian();
        eventually(BOUND, "agent and guardian are ready", async || {
            let last = world.report().await;
            if last.contains("ready=true") && last.contains("guarded: true") {
                Ok(())
            } else {
                Err(last)
            }
        })
        .await;
    }
    pod.writes().await;
    watch.assert_never_frozen();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_agent_writes_a_lost_table_again() {
    let Some(mut world) = World::guarded("a lost table").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    let watch = pod.watch();
    world.lose_table();
    let acknowledged = world.state().join("acknowledged").join(&pod.uid);
    eventually(BOUND, "the entry is back and acknowledged", async || {
        if acknowledged.exists() { Ok(()) } else { Err(()) }
    })
    .await;
    pod.writes().await;
    watch.assert_never_frozen();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_entry_is_lost_is_frozen_by_a_restarted_agent() {
    let Some(mut world) = World::guarded("a lost table and a restarted agent").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.guardian.as_mut().unwrap().kill();
    world.agent().kill();
    world.lose_table();
    world.start_agent().await;
    pod.frozen().await;
    // The permit may belong to another lineage: the pod stays frozen until it is killed, and then starts
    // afresh.
    let last = pod.last();
    world.start_guardian();
    world.line(&format!("changed {} Killed", pod.uid)).await;
    assert_eq!(pod.last(), last);
    world.line(&format!("changed {} Started", pod.uid)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_the_kubelet_publishes_after_a_reboot_waits_for_a_permit() {
    let Some(mut world) = World::start("a reboot").await else {
        return;
    };
    // The data of the volume is on disk; the table and the cgroup are gone.
    let mut pod = world.pod();
    fs::remove_dir(&pod.cgroup).unwrap();
    world.start_guardian();
    world.start_agent().await;
    world.call(&pod, "report");
    let refused = world.line(&format!("refused {}", pod.uid)).await;
    assert!(refused.contains("no cgroup"), "{refused}");
    fs::create_dir(&pod.cgroup).unwrap();
    world.call(&pod, "report");
    world.until_reported("state: Waiting").await;
    pod.frozen().await;
    assert_eq!(world.count("published"), 0);
    let _holder = world.holder("here").await;
    world.line(&format!("published {}", pod.uid)).await;
    pod.start();
    pod.writes().await;
    assert_eq!(world.count("Killed"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guardian_alone_freezes_pods_whose_entries_are_lost() {
    let Some(mut world) = World::guarded("a lost table without an agent").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.agent().kill();
    let until = pod.stored_until(&world);
    world.lose_table();
    // The guardian has read the entry, and keeps its end.
    pod.frozen().await;
    no_code_after(pod.last(), until);
    // The pod is thawed by hand, and the next guardian is another process, which has never read an entry.
    world.guardian.as_mut().unwrap().kill();
    fs::write(pod.cgroup.join("cgroup.freeze"), "0").unwrap();
    pod.writes().await;
    world.start_guardian();
    pod.frozen().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_cannot_be_read_freezes_its_pod() {
    let Some(mut world) = World::guarded("a torn entry").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.agent().kill();
    fs::write(world.state().join("pods").join(&pod.uid), "{\"version\":1,").unwrap();
    pod.frozen().await;
    assert!(pod.last().unwrap() < pod.valid_until());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_agent_takes_over_without_a_freeze() {
    let Some(mut world) = World::guarded("an upgrade of the agent").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    let watch = pod.watch();
    let mut older = world.agent.take().unwrap();
    world.start_agent().await;
    eventually(BOUND, "the older agent ends its turn", async || {
        let lines = older.stderr();
        let found = lines.iter().any(|line| line.contains("a newer agent takes over"));
        if found { Ok(()) } else { Err(lines.last().cloned()) }
    })
    .await;
    let until = pod.stored_until(&world);
    eventually(BOUND, "the newer agent renews the permit", async || {
        let last = world.report().await;
        if last.contains(&pod.uid) && pod.stored_until(&world) > until {
            Ok(())
        } else {
            Err(last)
        }
    })
    .await;
    // The newer agent dies: the older agent continues.
    world.agent().kill();
    let until = pod.stored_until(&world);
    eventually(BOUND, "the older agent renews the permit", async || {
        if pod.stored_until(&world) > until {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    pod.writes().await;
    watch.assert_never_frozen();
    older.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_delays_no_freeze_of_a_restarted_agent() {
    let Some(mut world) = World::guarded("a disk that hangs").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.guardian.as_mut().unwrap().kill();
    world.agent().kill();
    let until = pod.stored_until(&world);
    eventually(BOUND, "the permit has ended", async || {
        if clock::now() > until { Ok(()) } else { Err(()) }
    })
    .await;
    pod.writes().await;
    // Another pod, whose data the agent reads until data is written into the FIFO.
    let waiting = world.pod();
    let data = waiting.target.with_file_name("vol_data.json");
    fs::remove_file(&data).unwrap();
    nix::unistd::mkfifo(&data, nix::sys::stat::Mode::S_IRWXU).unwrap();
    world.start_agent().await;
    pod.frozen().await;
    // A call waits: the pod may be one that ran before.
    world.start_guardian();
    world.call(&waiting, "report");
    world.line(&format!("changed {} Thawed", pod.uid)).await;
    assert_eq!(world.count(&waiting.uid), 0);
    fs::write(&data, r#"{"driverName":"fencing.redlock.dev"}"#).unwrap();
    world.line(&format!("published {}", waiting.uid)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_keeps_its_memory_where_it_may() {
    let Some(world) = World::guarded("locked memory").await else {
        return;
    };
    let agent = world.agent.as_ref().unwrap();
    eventually(
        BOUND,
        "its memory is locked, or the reason is reported",
        async || {
            let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
            let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
            let locked = locked.map(str::trim).unwrap_or_default().to_owned();
            let refused = agent
                .stderr()
                .iter()
                .any(|line| line.contains("memory cannot be locked"));
            if locked != "0 kB" || refused {
                Ok(())
            } else {
                Err(locked)
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guardian_guards_the_pod_of_an_agent_of_a_later_version() {
    let Some(mut world) = World::guarded("an agent of a later version").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let pod = world.run_pod().await;
    world.agent().kill();
    // The agent of the later version has a state and fields that this guardian does not know.
    let entry = world.state().join("pods").join(&pod.uid);
    let text = fs::read_to_string(&entry).unwrap();
    let later = text
        .replace("\"version\":1", "\"version\":2,\"field\":{}")
        .replace("\"permitted\"", "\"allowed\"")
        .replace(
            "\"leaseMilliseconds\"",
            "\"graceMilliseconds\":1,\"leaseMilliseconds\"",
        );
    let until = pod.stored_until(&world);
    let renamed = world.state().join("pods").join(".later");
    fs::write(&renamed, &later).unwrap();
    fs::rename(&renamed, &entry).unwrap();
    let acknowledged = world.state().join("acknowledged").join(&pod.uid);
    eventually(BOUND, "the guardian acknowledges the entry", async || {
        let read = fs::read_to_string(&acknowledged).unwrap_or_default();
        if read == later { Ok(()) } else { Err(read) }
    })
    .await;
    pod.frozen().await;
    let last = pod.last().unwrap();
    no_code_after(Some(last), until);
    // The guardian did not freeze the pod at once, as it freezes one of which it knows nothing. On a loaded machine, the
    // pod may write seldom.
    let early = until.since(last);
    assert!(
        early < std::time::Duration::from_secs(5),
        "{early:?} before its end"
    );
    let lines = world.guardian.as_ref().unwrap().stderr();
    let unknown = lines
        .iter()
        .any(|line| line.contains("nothing is known of the pod"));
    assert!(!unknown, "{lines:?}");
}
