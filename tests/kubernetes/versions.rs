//! Tests a target whose version, or whole kind, the API server no longer serves.

use std::time::Duration;

use serde_json::json;

use crate::fixture::BOUND;
use crate::targets::{GATE, GATE_KIND, Gates, guarded, install};
use crate::world::{World, condition, lasting, throughout};
use redlock_testkit::{RedisServer, eventually};

/// Returns the same kind with a second version.
fn two_versions() -> String {
    let versions = GATE_KIND.find("  - name: v1").unwrap();
    let second = GATE_KIND[versions..]
        .replace("- name: v1", "- name: v2")
        .replace("storage: true", "storage: false");
    format!("{GATE_KIND}{second}")
}

/// Serves these versions, and waits until requests show the change.
async fn serve(world: &World, versions: [bool; 2]) {
    let change = |(index, served)| {
        let path = format!("/spec/versions/{index}/served");
        json!({"op": "replace", "path": path, "value": served})
    };
    let patch: Vec<_> = versions.into_iter().enumerate().map(change).collect();
    let patch = json!(patch).to_string();
    world.kubectl(&[
        "patch",
        "crd",
        "gates.test.example",
        "--type=json",
        "--patch",
        &patch,
    ]);
    for (version, wanted) in ["v1", "v2"].into_iter().zip(versions) {
        let path = format!(
            "/apis/test.example/{version}/namespaces/{}/gates",
            world.namespace.name()
        );
        let what = format!("{version} is served: {wanted}");
        eventually(BOUND, &what, async || {
            let answer = world.plane.kubectl(&["get", "--raw", &path]);
            if answer.status.success() == wanted {
                Ok(())
            } else {
                Err(answer)
            }
        })
        .await;
    }
}

/// Returns the largest value of a register of a lock on any master. A mark needs a majority, so one of the masters
/// may lack it.
pub fn register(world: &World, name: &str) -> u64 {
    let of = |master: &RedisServer| {
        let client = redis::Client::open(master.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut command = redis::cmd("HGET");
        let found: Option<u64> = command
            .arg("redlock:meta")
            .arg(name)
            .query(&mut connection)
            .unwrap();
        found.unwrap_or(0)
    };
    world.masters.iter().map(of).max().unwrap_or(0)
}

fn marks(world: &World) -> (u64, u64) {
    let of = |mark: &str| register(world, &format!("{mark}:{}/report", world.namespace.name()));
    (of("held"), of("clean"))
}

fn is_guarded(world: &World) -> bool {
    let finalizers = world.kubectl(&["get", "ll", "report", "-o", "jsonpath={.metadata.finalizers}"]);
    finalizers.contains("redlock.dev/targets")
}

fn wants(world: &World, wanted: bool) {
    let spec = if wanted {
        json!({"state": "Enabled", "reason": null})
    } else {
        json!({"state": "SteppedDown", "reason": "test"})
    };
    let patch = json!({ "spec": spec }).to_string();
    world.kubectl(&["patch", "ll", "report", "--type=merge", "--patch", &patch]);
}

async fn until_clean(world: &World) {
    eventually(BOUND, "the end is clean, and the finalizer is gone", async || {
        let (held, clean) = marks(world);
        if held > 0 && held == clean && !is_guarded(world) {
            Ok(())
        } else {
            Err((held, clean))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn target_of_an_unserved_version_is_unknown_and_never_stopped() {
    let world = World::new(3).await;
    install(&world).await;
    world.apply(&two_versions());
    serve(&world, [true, true]).await;
    // The end of a lost lease is never clean.
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    let gates = Gates::of(&world);
    let mut before = world.operator("replica-1").await;
    world.apply(GATE);
    world.apply(&lasting(&guarded("report", "gate")));
    gates.count("gate", 1).await;
    // The gate has its replica from the beginning: the lock adopts it.
    before.until_role("report", "Active").await;
    // A lock under which nothing was started is left to clusters that serve the kind.
    eventually(BOUND, "the lock has its finalizer", async || {
        if is_guarded(&world) { Ok(()) } else { Err(()) }
    })
    .await;
    before.child.signal(nix::sys::signal::Signal::SIGKILL);
    before.child.wait(BOUND);

    // No version is served: the target runs, and the operator cannot see it.
    serve(&world, [false, false]).await;
    let operator = world.operator("replica-2").await;
    operator.until_role("report", "Active").await;
    wants(&world, false);
    // Longer than the lease, the stop time and the takeover delay together: the end of none of them confirms the stop.
    throughout(Duration::from_secs(22), || {
        let (held, clean) = marks(&world);
        assert!(held > clean, "the stop was confirmed: held {held}, clean {clean}");
        assert!(is_guarded(&world), "the finalizer was removed");
    })
    .await;
    let status = world
        .lock_status("report", "does not know its target", |status| {
            condition(status, "Enforced") == ("False", "KindUnknown")
                && status["targets"][0]["observed"] == "Unknown"
        })
        .await;
    println!("{status:#}");

    // Another version is served: the operator finds the target there, and stops it.
    serve(&world, [false, true]).await;
    let now = Gates::at(&world, "v2");
    now.until("gate", 0).await;
    assert!(is_guarded(&world), "one is still counted");
    now.count("gate", 0).await;
    eventually(BOUND, "the finalizer is gone", async || {
        if is_guarded(&world) { Err(()) } else { Ok(()) }
    })
    .await;

    // The target is started and stopped in that version.
    wants(&world, true);
    now.until("gate", 1).await;
    now.count("gate", 1).await;
    // The versions change while it runs.
    serve(&world, [true, false]).await;
    wants(&world, false);
    gates.until("gate", 0).await;
    gates.count("gate", 0).await;
    until_clean(&world).await;
    drop(operator);
}

/// A deleted LeaderLock does not wait for a kind forever.
#[tokio::test(flavor = "multi_thread")]
async fn lock_on_a_kind_that_was_removed_is_deleted_in_its_time() {
    let world = World::new(3).await;
    install(&world).await;
    // The deletion ends after the stop and a lease: far later than the check below.
    let long = |manifest: &str| manifest.replace("Seconds: 6", "Seconds: 15");
    world.apply(&long(&world.quorum("default", "  firstStart: Immediate\n")));
    let gates = Gates::of(&world);
    let operator = world.operator("replica-1").await;
    world.apply(GATE);
    world.apply(&long(&guarded("report", "gate")));
    gates.count("gate", 1).await;
    operator.until_role("report", "Active").await;
    // The gate has its replica from the beginning, and the lock is held before the finalizer is written.
    eventually(BOUND, "the finalizer is there", async || {
        if is_guarded(&world) { Ok(()) } else { Err(()) }
    })
    .await;
    world.kubectl(&["delete", "crd", "gates.test.example"]);
    world.kubectl(&["delete", "ll", "report", "--wait=false"]);
    throughout(Duration::from_secs(4), || assert!(is_guarded(&world))).await;
    world.kubectl(&["wait", "--for=delete", "ll/report", "--timeout=60s"]);
    let (held, clean) = marks(&world);
    assert!(held > clean, "no replica has confirmed the stop");
}
