//! Tests that each recipe in `examples/` works as its page describes.

use std::fs;
use std::path::PathBuf;

use kube::api::Api;
use redlock::api::LeaderLock;
use serde_json::Value;

use crate::fixture::kubelet::{Kubelet, Recorder};
use crate::fixture::{BOUND, FENCING};
use crate::patch::{allowed, install_crds};
use crate::typed::{commands, typed};
use crate::world::{World, condition};
use redlock_testkit::eventually;

/// The folders that are not recipes: two are for the README, and separate tests run the others.
const NOT_RECIPES: [&str; 5] = [
    "agent",
    "fenced-resource",
    "kubernetes",
    "quickstart",
    "standalone",
];
const RIGHTS: [&str; 17] = [
    FENCING,
    "targetKinds[0].group=apps",
    "targetKinds[0].resource=deployments",
    "targetKinds[1].group=apps",
    "targetKinds[1].resource=statefulsets",
    "targetKinds[2].group=batch",
    "targetKinds[2].resource=cronjobs",
    "targetKinds[3].group=",
    "targetKinds[3].resource=pods",
    "targetKinds[4].group=coordination.k8s.io",
    "targetKinds[4].resource=leases",
    "targetFields[0].group=kustomize.toolkit.fluxcd.io",
    "targetFields[0].resource=kustomizations",
    "targetFields[0].path=/spec/suspend",
    "targetFields[1].group=keda.sh",
    "targetFields[1].resource=scaledobjects",
    "targetFields[1].path=/metadata/annotations/autoscaling.keda.sh~1paused-replicas",
];
/// The fields, as the chart passes them to the operator.
const FIELDS: [(&str, &str, &str); 2] = [
    ("kustomize.toolkit.fluxcd.io", "kustomizations", "/spec/suspend"),
    (
        "keda.sh",
        "scaledobjects",
        "/metadata/annotations/autoscaling.keda.sh~1paused-replicas",
    ),
];

fn recipes() -> Vec<PathBuf> {
    let folders = fs::read_dir("examples")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_recipe =
        |folder: &PathBuf| folder.is_dir() && NOT_RECIPES.iter().all(|other| !folder.ends_with(other));
    folders.filter(is_recipe).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recipe_runs_where_the_lock_is_held() {
    let world = World::new(3).await;
    world
        .plane
        .install_rbac_with(world.namespace.name(), &RIGHTS)
        .await;
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("maxLeaseDurationSeconds: 6", "maxLeaseDurationSeconds: 60"));
    let _kubelet = Kubelet::start(&world.plane, "test", 1, &Recorder::default());
    install_crds(&world, &["kustomizations", "scaledobjects"]).await;
    let fields = allowed(&FIELDS);
    let operator = world.operator_with("replica-1", |command| {
        command.env("REDLOCK_TARGET_FIELDS", &fields);
    });
    let _operator = operator.await;
    let recipes = recipes();
    assert!(recipes.len() >= 5, "{recipes:?}");
    for recipe in &recipes {
        let page = recipe.join("README.md");
        for line in commands(page.to_str().unwrap(), "tests/kubernetes/examples.rs") {
            typed(&world.plane, &line);
        }
    }
    let locks = Api::<LeaderLock>::all(world.plane.admin());
    eventually(
        BOUND,
        "every lock of the recipes has what it switches running",
        async || {
            let all = locks.list(&Default::default()).await.unwrap().items;
            let status = |lock: &LeaderLock| -> Value { serde_json::to_value(&lock.status).unwrap() };
            let runs = |status: &Value| {
                status["role"] == "Active"
                    && condition(status, "Ready").0 == "True"
                    && condition(status, "Enforced").0 == "True"
            };
            let states: Vec<Value> = all.iter().map(status).collect();
            if states.len() == recipes.len() && states.iter().all(runs) {
                Ok(())
            } else {
                Err(states)
            }
        },
    )
    .await;
    // Pods of a Deployment that ran before its lock was held may still end.
    for (namespace, selector, count) in [
        ("billing", "app=consumer", 2),
        ("ledger", "app=writer", 1),
        ("ledger", "app=api", 3),
        ("ledger", "app=api,redlock.dev/role=active", 1),
        ("external-dns", "app=external-dns", 2),
        // The kubelet of this test publishes no volume: this tests only the manifests and the operator.
        ("reports", "app=report", 2),
    ] {
        let line = format!("kubectl get pods -n {namespace} -l {selector} -o name");
        eventually(BOUND, &line, async || {
            match typed(&world.plane, &line).lines().count() {
                found if found == count => Ok(()),
                found => Err(found),
            }
        })
        .await;
    }

    // A user starts a Job by hand, as the page of the CronJob describes, and the Job begins.
    typed(
        &world.plane,
        "kubectl create job -n billing --from=cronjob/nightly-report nightly-report-now",
    );
    eventually(BOUND, "the Job made by hand begins", async || {
        let line = "kubectl get job -n billing nightly-report-now -o jsonpath='{.spec.suspend}'";
        match typed(&world.plane, line).as_str() {
            "false" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
}
