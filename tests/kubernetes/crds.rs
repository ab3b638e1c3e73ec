//! The definitions as the API server takes them.

use crate::fixture::ControlPlane;

#[tokio::test]
async fn kubectl_prints_the_columns_of_both_kinds() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("columns").await;
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests.yaml");
    let (name, quorum) = (namespace.name(), format!("of-{}", namespace.name()));
    let text = format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: {quorum}}}\nspec:\n  masters:\n  \
         - {{name: m0, url: \"redis://m0:6379\"}}\n  - {{name: m1, url: \"redis://m1:6379\"}}\n  \
         - {{name: m2, url: \"redis://m2:6379\"}}\n---\n\
         apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: report, namespace: {name}}}\n\
         spec: {{quorumRef: {{name: {quorum}}}}}\n"
    );
    std::fs::write(&manifests, text).unwrap();
    let applied = plane.kubectl(&["apply", "--filename", manifests.to_str().unwrap()]);
    assert!(applied.status.success(), "{applied:?}");

    let columns = |arguments: &[&str]| -> Vec<String> {
        let output = plane.kubectl(arguments);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        columns(&["get", "ll", "--namespace", name]),
        [
            "NAME",
            "READY",
            "ROLE",
            "HOLDER",
            "QUORUM",
            "TOKEN",
            "TRANSITIONS",
            "AGE"
        ]
    );
    assert_eq!(columns(&["get", "redisquorums"])[0], "NAME");
}
