//! Tests every set of values that the chart must accept.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::render::{NAMESPACE, chart, helm, one, render, render_file, values_files};

#[test]
fn helm_lint_accepts_the_chart() {
    let chart = chart();
    for file in values_files() {
        let values = format!("--values={}", file.display());
        let output = helm(&["lint", "--strict", chart.to_str().unwrap(), &values]);
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(!output.contains("[WARNING]"), "{}: {output}", file.display());
    }
}

#[test]
fn every_object_is_complete_and_there_once() {
    for file in values_files() {
        let mut names = BTreeSet::new();
        for object in render_file(&file) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let metadata = &object["metadata"];
            let name = [&object["kind"], &metadata["namespace"], &metadata["name"]].map(text);
            assert!(
                object["apiVersion"].is_string() && !name[2].is_empty(),
                "{object}"
            );
            // `kubectl apply` and GitOps must not depend on a current namespace.
            let namespaced = !matches!(
                &*name[0],
                "CSIDriver"
                    | "ClusterRole"
                    | "ClusterRoleBinding"
                    | "CustomResourceDefinition"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
                    | "MutatingAdmissionPolicy"
                    | "MutatingAdmissionPolicyBinding"
            );
            assert_eq!(metadata["namespace"].is_string(), namespaced, "{name:?}");
            if metadata["name"] != "an-extra-object" {
                assert_eq!(
                    metadata["labels"]["app.kubernetes.io/instance"], "redlock",
                    "{name:?}"
                );
            }
            assert!(names.insert(name.clone()), "{}: {name:?} twice", file.display());
        }
        assert!(names.len() >= 10, "{}: {names:?}", file.display());
    }
}

#[test]
fn the_same_values_give_the_same_objects() {
    for file in values_files() {
        assert_eq!(render_file(&file), render_file(&file), "{}", file.display());
    }
}

#[test]
fn a_release_is_called_as_its_chart() {
    assert_eq!(
        one(&render(&[]), "Deployment")["metadata"]["name"],
        "redlock-operator"
    );
    assert_eq!(
        one(&render(&[]), "Deployment")["metadata"]["namespace"],
        NAMESPACE
    );
    let other = render(&["fullnameOverride=other"]);
    assert_eq!(one(&other, "Deployment")["metadata"]["name"], "other");
    assert_eq!(one(&other, "ServiceAccount")["metadata"]["name"], "other");
}

#[test]
fn definitions_stay_unless_configured_otherwise() {
    let policies = |values: &[&str]| -> Vec<Value> {
        let objects = render(values);
        let crds = objects
            .iter()
            .filter(|object| object["kind"] == "CustomResourceDefinition");
        crds.map(|crd| crd["metadata"]["annotations"]["helm.sh/resource-policy"].clone())
            .collect()
    };
    assert_eq!(policies(&[]), ["keep", "keep"]);
    assert_eq!(policies(&["crds.keep=false"]), [Value::Null, Value::Null]);
    assert_eq!(policies(&["crds.install=false"]), [Value::Null; 0]);
}
