//! Tests the chart as a dependency of another chart.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::nulls::nulls;
use crate::render::{chart, defaults, pods, render, try_render_chart_values};

const NAME: &str = "redlock-operator";

/// Creates a chart that depends on this one.
fn parent() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let dependency = json!({"name": NAME, "version": "*", "condition": "redlock-operator.enabled"});
    let parent = json!({
        "apiVersion": "v2",
        "name": "platform",
        "version": "1.0.0",
        "dependencies": [dependency],
    });
    fs::write(folder.path().join("Chart.yaml"), parent.to_string()).unwrap();
    fs::create_dir(folder.path().join("charts")).unwrap();
    symlink(chart(), folder.path().join("charts").join(NAME)).unwrap();
    folder
}

fn render_parent(values: &Value) -> Vec<Value> {
    let parent = parent();
    let objects = try_render_chart_values(parent.path(), values);
    objects.unwrap_or_else(|error| panic!("{values}: {error}"))
}

#[test]
fn a_dependency_is_the_same_release() {
    assert!(render_parent(&json!({})) == render(&[]));
}

#[test]
fn a_condition_leaves_the_chart_out() {
    let objects = render_parent(&json!({NAME: {"enabled": false}}));
    assert!(objects.is_empty(), "{objects:?}");
}

#[test]
fn keys_of_a_dependency_may_be_null() {
    let defaults = defaults();
    let map = defaults.as_object().unwrap();
    assert!(render_parent(&nulls(map, &[NAME.to_owned()])) == render(&[]));
}

#[test]
fn the_registry_and_the_secrets_of_a_parent_apply_to_every_pod() {
    let objects = render_parent(&json!({
        "global": {
            "imageRegistry": "registry.example:5000/mirror/",
            "imagePullSecrets": ["one", {"name": "two"}],
        },
        NAME: {
            "quickstart": {"enabled": true},
            "fencing": {"enabled": true},
            "image": {"pullSecrets": [{"name": "two"}, {"name": "three"}]},
        },
    }));
    let program = format!(
        "registry.example:5000/mirror/redlock-operator/redlock-operator:{}",
        env!("CARGO_PKG_VERSION")
    );
    let pods = pods(&objects);
    assert_eq!(pods.len(), 7, "{pods:?}");
    for (component, pod) in pods {
        let secrets = json!([{"name": "two"}, {"name": "three"}, {"name": "one"}]);
        assert_eq!(pod["spec"]["imagePullSecrets"], secrets, "{component}");
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
        if component == "quickstart-master" {
            assert!(
                image.starts_with("registry.example:5000/mirror/library/redis:"),
                "{image}"
            );
        } else {
            assert_eq!(image, program, "{component}");
        }
    }
}

/// A repository without a registry is one of the default registry.
#[test]
fn only_a_registry_is_replaced() {
    for (repository, wanted) in [
        ("library/redlock", "r.example/library/redlock:dev"),
        ("localhost/redlock", "r.example/redlock:dev"),
        ("localhost:5000/a/redlock", "r.example/a/redlock:dev"),
        ("redlock", "r.example/redlock:dev"),
    ] {
        let objects = render(&[
            "global.imageRegistry=r.example",
            "image.tag=dev",
            &format!("image.repository={repository}"),
        ]);
        for (component, pod) in pods(&objects) {
            assert_eq!(pod["spec"]["containers"][0]["image"], wanted, "{component}");
        }
    }
}
