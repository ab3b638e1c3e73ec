//! Tests a RedisQuorum that remained from an earlier release, usually of the quickstart, and the installation after
//! it.

use super::{chart, run_helm};
use crate::fixture::ControlPlane;

/// Returns the masters of a quorum as values for Helm, with hosts that begin with `host`.
fn masters(quorum: &str, host: &str) -> String {
    let all: Vec<String> = (0..3)
        .map(|index| format!(r#"{{"name": "m{index}", "url": "redis://{host}-{index}:6379"}}"#))
        .collect();
    format!(
        r#"--set-json=quorums.{quorum}={{"masters": [{}]}}"#,
        all.join(",")
    )
}

fn install(plane: &ControlPlane, namespace: &str, values: &[&str]) -> Result<String, String> {
    let chart = chart();
    let fixed = [
        "install",
        "redlock",
        chart.to_str().unwrap(),
        "--namespace",
        namespace,
        "--dry-run=server",
        // The definitions exist already, with another owner.
        "--set=crds.install=false",
    ];
    run_helm(plane, &[&fixed, values].concat())
}

fn left_behind(plane: &ControlPlane, quorum: &str, host: &str) {
    let masters: String = (0..3)
        .map(|index| format!("  - {{name: m{index}, url: \"redis://{host}-{index}:6379\"}}\n"))
        .collect();
    let manifest = format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: {quorum}}}\nspec:\n  masters:\n{masters}"
    );
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), manifest).unwrap();
    let applied = plane.kubectl(&["apply", "--filename", file.path().to_str().unwrap()]);
    assert!(applied.status.success(), "{applied:?}");
}

#[tokio::test]
async fn one_with_other_masters_is_named_before_anything_is_installed() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("left").await;
    let quorum = "left-behind";
    left_behind(plane, quorum, "quickstart");
    let same = masters(quorum, "quickstart");
    install(plane, namespace.name(), &[&same]).unwrap();

    let other = masters(quorum, "production");
    let refused = install(plane, namespace.name(), &[&other]).unwrap_err();
    for what in [
        "quorums.left-behind: RedisQuorum left-behind is in this cluster with other masters",
        "m0=redis://quickstart-0:6379, m1=redis://quickstart-1:6379",
        "than the values have (m0=redis://production-0:6379",
    ] {
        assert!(refused.contains(what), "{what}: {refused}");
    }
    let advice = "kubectl delete redisquorum left-behind";
    assert!(refused.contains(advice), "{refused}");
    let words: Vec<&str> = advice.split(' ').skip(1).collect();
    assert!(plane.kubectl(&words).status.success());
    install(plane, namespace.name(), &[&other]).unwrap();
}

#[tokio::test]
async fn the_masters_of_another_quickstart_are_other_masters() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("left").await;
    left_behind(plane, "left-by-another", "redlock-operator-quickstart");
    let quickstart = "--set=quickstart.enabled=true,quickstart.quorumName=left-by-another";
    let refused = install(plane, namespace.name(), &[quickstart]).unwrap_err();
    assert!(
        refused.contains("kubectl delete redisquorum left-by-another"),
        "{refused}"
    );
    plane.kubectl(&["delete", "redisquorum", "left-by-another"]);
}
