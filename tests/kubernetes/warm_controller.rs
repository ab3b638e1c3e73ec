//! Tests the controller of `examples/warm-controller`: a controller-runtime manager, which leads where the lock is held.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::common::forget_variables;
use crate::fixture::{BOUND, go_program};
use crate::leader_lease::RIGHTS;
use crate::targets::replica;
use crate::world::{World, lock, throughout};
use redlock_testkit::ChildGuard;

const LEADS: &str = "reconciled by the leader";

fn controller(world: &World, program: &Path) -> ChildGuard {
    let mut command = Command::new(program);
    forget_variables(&mut command);
    command
        .env("KUBECONFIG", world.plane.kubeconfig_admin())
        .env("POD_NAMESPACE", world.namespace.name());
    ChildGuard::spawn("controller", &mut command)
}

fn declare(world: &World, more: &str) {
    let target = "targets: [{name: leader, action: Lease, stopSeconds: 28, \
                  ref: {apiVersion: coordination.k8s.io/v1, kind: Lease, name: fleet-controller}}]";
    let fleet = lock("fleet", &format!(", {target}{more}"));
    world.apply(&fleet.replace("leaseDurationSeconds: 6", "leaseDurationSeconds: 60"));
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_runtime_manager_leads_where_the_lock_is_held() {
    let world = World::small(3).await;
    let namespace = world.namespace.name();
    world.plane.install_rbac_with(namespace, &RIGHTS).await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 60"));
    let _operator = replica(&world, "replica-1").await;
    declare(&world, "");
    let maps: Api<ConfigMap> = Api::namespaced(world.plane.admin(), namespace);
    let map = serde_json::from_value(json!({"metadata": {"name": "fleet"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let program = go_program("examples/warm-controller/controller", "go.mod", "warm-controller");
    let mut leader = controller(&world, &program);
    leader.wait_for_line(BOUND, LEADS);

    // The manager ends when it no longer leads, and Kubernetes starts it again.
    declare(&world, ", state: SteppedDown, reason: test");
    let (status, _) = leader.wait(BOUND);
    assert!(!status.success(), "{status}");
    let mut standby = controller(&world, &program);
    standby.wait_for_line(BOUND, "Attempting to acquire leader lease");
    let stopped = |status: &Value| status["targets"][0]["observed"] == "Standby";
    world
        .lock_status("fleet", "has its target Standby", stopped)
        .await;
    throughout(Duration::from_secs(3), || {
        let lines = standby.stderr();
        assert!(!lines.iter().any(|line| line.contains(LEADS)), "{lines:#?}");
    })
    .await;
}
