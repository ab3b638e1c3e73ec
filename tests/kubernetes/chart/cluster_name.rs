//! Tests the name of the cluster in an upgrade: kept, or changed on purpose.

use super::{chart, run_helm};
use crate::fixture::{ControlPlane, Options};

#[tokio::test]
async fn an_upgrade_renames_the_cluster_only_on_request() {
    let plane = ControlPlane::start(Options {
        controller_manager: false,
        ..Options::default()
    });
    let chart = chart();
    let helm = |command: &str, values: &[&str]| {
        let fixed = [command, "redlock", chart.to_str().unwrap(), "--namespace=redlock"];
        run_helm(&plane, &[&fixed, values].concat())
    };
    let name = || {
        let path =
            "--output=jsonpath={.spec.template.spec.containers[0].env[?(@.name=='REDLOCK_CLUSTER')].value}";
        let output = plane.kubectl(&[
            "get",
            "deployment",
            "--namespace=redlock",
            "redlock-operator",
            path,
        ]);
        String::from_utf8(output.stdout).unwrap()
    };
    helm("install", &["--create-namespace", "--set=clusterName=eu-1"]).unwrap();

    for (values, wanted) in [
        (&["--set=replicas=3"][..], "local"),
        (&["--set=clusterName=us-1"], "us-1"),
        (
            &["--set=clusterName=us-1", "--set=fullnameOverride=other"],
            "us-1",
        ),
        (&["--set=clusterName=us-1", "--dry-run=server"], "us-1"),
    ] {
        let refused = helm("upgrade", values).unwrap_err();
        for part in [
            &format!("runs as cluster \"eu-1\", and this upgrade would rename it to \"{wanted}\""),
            "--set clusterName=eu-1",
            "redlock drain --namespace redlock --deployment redlock-operator",
            "--set allowClusterRename=true",
        ] {
            assert!(refused.contains(part), "{values:?}: {part}: {refused}");
        }
    }
    for kept in ["--set=clusterName=eu-1,replicas=3", "--reuse-values"] {
        helm("upgrade", &[kept]).unwrap();
    }
    assert_eq!(name(), "eu-1");

    // Without a cluster the previous name is unknown.
    helm("template", &["--is-upgrade", "--set=clusterName=us-1"]).unwrap();
    helm("upgrade", &["--dry-run=client", "--set=clusterName=us-1"]).unwrap();

    helm("upgrade", &["--set=clusterName=us-1,allowClusterRename=true"]).unwrap();
    assert_eq!(name(), "us-1");
    run_helm(&plane, &["rollback", "redlock", "1", "--namespace=redlock"]).unwrap();
    assert_eq!(name(), "eu-1", "Helm renders nothing for a rollback");
}
