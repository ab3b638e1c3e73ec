//! Tests a second release in a cluster: the refusals, and the objects that it takes over.

use super::{chart, run_helm};
use crate::fixture::{ControlPlane, Options};

fn install(plane: &ControlPlane, namespace: &str, values: &[&str]) -> Result<String, String> {
    let chart = chart();
    let fixed = [
        "install",
        "redlock",
        chart.to_str().unwrap(),
        "--create-namespace",
        "--namespace",
        namespace,
    ];
    run_helm(plane, &[&fixed, values].concat())
}

fn assert_refused(plane: &ControlPlane, values: &[&str], why: &str) -> String {
    let dry = [&["--dry-run=server"], values].concat();
    let refused = install(plane, "second", &dry).unwrap_err();
    assert!(refused.contains(why), "{values:?}: {why}: {refused}");
    refused
}

fn upgrade(plane: &ControlPlane, namespace: &str, values: &[&str]) -> Result<String, String> {
    let chart = chart();
    let fixed = [
        "upgrade",
        "redlock",
        chart.to_str().unwrap(),
        "--namespace",
        namespace,
    ];
    run_helm(plane, &[&fixed, values].concat())
}

/// Asserts that neither release can be upgraded to a namespace of the other.
fn assert_upgrades_refused(plane: &ControlPlane) {
    for (release, values, why) in [
        (
            "first",
            &["--reset-values"][..],
            "in namespace second runs an operator that follows namespaces second, and this one would follow all",
        ),
        (
            "first",
            &["--set=watchNamespaces={shop,second}"],
            "would follow namespaces shop, second",
        ),
        (
            "second",
            &["--set=watchNamespaces={shop},crds.install=false"],
            "in namespace first runs an operator that follows namespaces shop",
        ),
        (
            "second",
            &["--set=crds.install=false"],
            "in namespace first runs an operator that follows namespaces shop",
        ),
    ] {
        let refused = upgrade(plane, release, values).unwrap_err();
        assert!(refused.contains(why), "{release} {values:?}: {why}: {refused}");
    }
}

#[tokio::test]
async fn a_second_release_has_namespaces_of_its_own_and_no_definitions() {
    let plane = ControlPlane::start(Options {
        controller_manager: false,
        ..Options::default()
    });
    for name in ["shop", "billing"] {
        plane.kubectl(&["create", "namespace", name]);
    }
    install(&plane, "first", &[]).unwrap();
    for values in [&[][..], &["--set=crds.install=false,watchNamespaces={shop}"]] {
        assert_refused(
            &plane,
            values,
            "release redlock in namespace first runs an operator that follows all namespaces",
        );
    }
    upgrade(&plane, "first", &["--set=watchNamespaces={shop,billing}"]).unwrap();

    let both = "follows namespaces shop, billing, and this one would follow namespaces data, shop";
    assert_refused(&plane, &["--set=watchNamespaces={data,shop}"], both);
    let own = "--set=watchNamespaces={second}";
    assert_refused(&plane, &[own], "which upgrades them: set crds.install=false");
    install(&plane, "second", &[own, "--set=crds.install=false"]).unwrap();
    assert_upgrades_refused(&plane);
    // A third release is compared with both, also with the one that has no definitions.
    let third = [
        "--dry-run=server",
        "--set=watchNamespaces={third,second},crds.install=false",
    ];
    let refused = install(&plane, "third", &third).unwrap_err();
    assert!(
        refused.contains("release redlock in namespace second runs"),
        "{refused}"
    );
    install(
        &plane,
        "third",
        &[&third[..], &["--set=overlapCheck=false"]].concat(),
    )
    .unwrap();
    // An upgrade that overlaps with no release.
    upgrade(
        &plane,
        "second",
        &["--set=watchNamespaces={second,default},crds.install=false"],
    )
    .unwrap();
    for release in ["second", "first"] {
        run_helm(
            &plane,
            &["uninstall", "redlock", "--no-hooks", "--namespace", release],
        )
        .unwrap();
    }

    // The definitions still belong to the first release.
    let refused = assert_refused(&plane, &[], "stayed from release redlock in namespace first");
    let (_, advice) = refused.split_once("kubectl annotate ").unwrap();
    let words: Vec<&str> = advice.split_whitespace().take(6).collect();
    let annotated = plane.kubectl(&[&["annotate"], &words[..]].concat());
    assert!(annotated.status.success(), "{words:?}: {annotated:?}");
    install(&plane, "second", &[]).unwrap();
}
