//! Tests a release from its installation to its uninstall, with the real Helm and pods that run nothing.

use serde_json::Value;

use super::{chart, restrict, run_helm};
use crate::fixture::kubelet::Recorder;
use crate::fixture::{BOUND, ControlPlane, Kubelet, Options, seed};
use crate::typed::{commands, typed};
use redlock_testkit::eventually;

const THIS: &str = "tests/kubernetes/chart/lifecycle.rs";
const NAMESPACE: &str = "redlock";
/// Values with which pods end within seconds, and the pod of the hook within a fraction of a second.
const VALUES: [&str; 2] = [
    "--set=terminationGracePeriodSeconds=5",
    "--set-string=drain.podAnnotations.test\\.example/run-seconds=0.2",
];
/// No operator runs here, so no operator handles this lock.
const LOCK: &str = r#"--set-json=extraObjects=[{"apiVersion": "redlock.dev/v1alpha1", "kind": "LeaderLock",
    "metadata": {"name": "nobody", "namespace": "redlock"}, "spec": {"quorumRef": {"name": "default"}}}]"#;

fn helm(plane: &ControlPlane, arguments: &[&str], timeout: &str) -> Result<String, String> {
    let fixed = ["--namespace", NAMESPACE, "--wait", "--timeout", timeout];
    run_helm(plane, &[arguments, &fixed].concat())
}

fn get(plane: &ControlPlane, arguments: &[&str]) -> Value {
    let output = plane.kubectl(&[&["get", "--output=json", "--namespace", NAMESPACE], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns kind and name of the remaining objects of this release.
fn remains(plane: &ControlPlane) -> Vec<String> {
    let kinds = "deployments,replicasets,jobs,services,configmaps,serviceaccounts,roles,rolebindings,clusterroles,\
                 clusterrolebindings,poddisruptionbudgets,networkpolicies,secrets";
    let found = get(
        plane,
        &[
            kinds,
            "--all-namespaces",
            "--selector=app.kubernetes.io/instance=redlock",
        ],
    );
    let items = found["items"].as_array().unwrap().iter();
    items
        .map(|item| format!("{}/{}", item["kind"], item["metadata"]["name"]))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_installed_upgraded_rolled_back_and_uninstalled() {
    let plane = ControlPlane::start(Options::default());
    let _kubelet = Kubelet::start(&plane, "test", seed(), &Recorder::default());
    plane.kubectl(&["create", "namespace", NAMESPACE]);
    restrict(&plane, NAMESPACE);
    let chart = chart();
    let release = ["redlock", chart.to_str().unwrap(), VALUES[0], VALUES[1]];
    helm(&plane, &[&["install"], &release[..]].concat(), "3m").unwrap();
    let deployment = || get(&plane, &["deployment", "redlock-operator"]);
    assert_eq!(deployment()["status"]["readyReplicas"], 2, "Helm did not wait");

    // Helm must not consider an object of the project's kinds ready before an operator has visited it.
    let early = helm(&plane, &[&["upgrade"], &release[..], &[LOCK]].concat(), "5s").unwrap_err();
    assert!(early.contains("nobody") || early.contains("deadline"), "{early}");

    // Helm forgets objects that a failed upgrade created.
    assert!(
        plane
            .kubectl(&["delete", "leaderlock", "nobody", "--namespace", NAMESPACE])
            .status
            .success()
    );

    let more = [
        "--set=replicas=3",
        "--set=log.level=debug",
        "--set=rbac.aggregate=false",
    ];
    helm(&plane, &[&["upgrade"], &release[..], &more].concat(), "3m").unwrap();
    assert_eq!(deployment()["status"]["readyReplicas"], 3);
    assert_eq!(deployment()["status"]["updatedReplicas"], 3);
    let cluster_roles = || {
        remains(&plane)
            .iter()
            .filter(|name| name.contains("\"ClusterRole\""))
            .count()
    };
    assert_eq!(cluster_roles(), 1);
    helm(&plane, &["rollback", "redlock", "1"], "3m").unwrap();
    assert_eq!(deployment()["status"]["replicas"], 2);
    assert_eq!(cluster_roles(), 4);

    // Objects of the user, not of the release.
    let lock = format!("{}/examples/kubernetes", env!("CARGO_MANIFEST_DIR"));
    assert!(plane.kubectl(&["apply", "--filename", &lock]).status.success());
    for line in commands("docs/install.md", THIS) {
        typed(&plane, &line);
    }
    // The garbage collector deletes dependent objects later.
    eventually(BOUND, "nothing of it remains", async || {
        let left = remains(&plane);
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(
        get(&plane, &["leaderlocks", "--all-namespaces"])["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    // A new installation, as on the page of the quickstart, takes over the remaining objects.
    for line in commands("examples/quickstart/README.md", THIS) {
        typed(&plane, &line);
    }
    assert_eq!(
        get(&plane, &["leaderlocks", "--all-namespaces"])["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let masters = get(&plane, &["statefulset", "redlock-operator-quickstart"]);
    assert_eq!(masters["status"]["readyReplicas"], 3, "Helm did not wait");
}
