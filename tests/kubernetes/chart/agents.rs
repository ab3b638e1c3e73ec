//! Tests that the ConfigMap of the agents outlives its release: agents hold their locks without the operator.

use super::{chart, run_helm};
use crate::fixture::{ControlPlane, Options};

#[tokio::test]
async fn agents_keep_their_config_map_when_the_release_is_uninstalled() {
    let plane = ControlPlane::start(Options {
        controller_manager: false,
        ..Options::default()
    });
    plane.kubectl(&["create", "namespace", "shop"]);
    let chart = chart();
    let install = |release: &str, uid: &str| {
        let uid = format!("--set=agents.clusterUID={uid}");
        let fixed = [
            "install",
            release,
            chart.to_str().unwrap(),
            "--namespace=redlock",
            "--create-namespace",
        ];
        run_helm(
            &plane,
            &[&fixed[..], &["--set=agents.namespaces={shop}", &uid]].concat(),
        )
    };
    let uninstall = || {
        run_helm(
            &plane,
            &["uninstall", "redlock", "--namespace=redlock", "--no-hooks"],
        )
        .unwrap()
    };
    let stored = || {
        let data = "--output=jsonpath={.data.REDLOCK_CLUSTER}";
        let output = plane.kubectl(&["get", "configmap", "redlock-agent", "--namespace=shop", data]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    install("redlock", "8f0c-1").unwrap();
    assert_eq!(stored(), "local/8f0c-1");
    uninstall();
    assert_eq!(stored(), "local/8f0c-1");
    // The next installation takes it over, and changes it.
    install("redlock", "8f0c-2").unwrap();
    assert_eq!(stored(), "local/8f0c-2");
    uninstall();
    plane.kubectl(&[
        "delete",
        "crd",
        "leaderlocks.redlock.dev",
        "redisquorums.redlock.dev",
    ]);
    let refused = install("other", "8f0c-1").unwrap_err();
    assert!(
        refused.contains("redlock-agent") && refused.contains("meta.helm.sh/release-name"),
        "{refused}"
    );
}
