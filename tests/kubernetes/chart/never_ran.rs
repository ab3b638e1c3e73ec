//! Tests a release whose pods never start, as with an image that no node can pull: nothing runs pods here.

use serde_json::Value;

use super::{chart, restrict, run_helm};
use crate::fixture::{BOUND, ControlPlane, Options};
use crate::typed::{commands, typed};
use redlock_testkit::eventually;

const THIS: &str = "tests/kubernetes/chart/never_ran.rs";
const PAGE: &str = "docs/troubleshooting.md";
const NAMESPACE: &str = "redlock";

/// Returns kind and name of all objects of the release.
fn of_the_release(plane: &ControlPlane) -> Vec<String> {
    let kinds = "deployments,statefulsets,replicasets,jobs,pods,services,configmaps,serviceaccounts,roles,rolebindings,\
                 clusterroles,clusterrolebindings,poddisruptionbudgets,secrets";
    let selector = "--selector=app.kubernetes.io/instance=redlock";
    let output = plane.kubectl(&["get", kinds, "--all-namespaces", selector, "--output=json"]);
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let items = found["items"].as_array().unwrap().iter();
    items
        .map(|item| format!("{}/{}", item["kind"], item["metadata"]["name"]))
        .collect()
}

/// Returns the error of Helm that the page shows.
fn shown() -> String {
    let page = std::fs::read_to_string(format!("{}/{PAGE}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let line = page.lines().find(|line| line.contains("-can-start not ready"));
    line.unwrap_or_else(|| panic!("{PAGE} shows no error of Helm"))
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_never_ran_is_uninstalled_as_documented() {
    let plane = ControlPlane::start(Options::default());
    plane.kubectl(&["create", "namespace", NAMESPACE]);
    restrict(&plane, NAMESPACE);
    let chart = chart();
    let namespace = ["--namespace", NAMESPACE];
    let install = [
        "install",
        "redlock",
        chart.to_str().unwrap(),
        "--set=quickstart.enabled=true,drain.startSeconds=5",
    ];
    run_helm(&plane, &[&install[..], &namespace].concat()).unwrap();
    let before = of_the_release(&plane);

    let uninstall = ["uninstall", "redlock", "--timeout=4m"];
    let refused = run_helm(&plane, &[&uninstall[..], &namespace].concat()).unwrap_err();
    println!("{refused}");
    assert!(!refused.contains("context deadline exceeded"), "{refused}");
    assert!(
        refused.contains(&shown()),
        "{refused}\nis not what {PAGE} shows:\n{}",
        shown()
    );
    // The pods of the release, if any, are unchanged; nothing of the hooks remains.
    eventually(BOUND, "nothing was touched", async || {
        let mut now = of_the_release(&plane);
        let mut before = before.clone();
        let pod = |name: &String| name.contains("Pod\"") || name.contains("ReplicaSet\"");
        now.retain(|name| !pod(name));
        before.retain(|name| !pod(name));
        if now == before { Ok(()) } else { Err((now, before)) }
    })
    .await;

    for line in commands(PAGE, THIS) {
        typed(&plane, &line);
    }
    eventually(BOUND, "nothing of it remains", async || {
        let left = of_the_release(&plane);
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}
