//! Renders values with `helm template`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;

use crate::common::tools;

/// The namespace of all tests: no cluster has it.
pub const NAMESPACE: &str = "redlock";

pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/redlock-operator")
}

/// Returns the values files that continuous integration installs, by name.
pub fn values_files() -> Vec<PathBuf> {
    let entries = chart().join("ci").read_dir().expect("ci/ of the chart");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(
        files
            .iter()
            .all(|file| file.to_string_lossy().ends_with("-values.yaml"))
    );
    files
}

/// Returns the standard output of Helm, or its standard error if it fails.
pub fn helm(arguments: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().expect("a folder");
    let output = Command::new(tools::helm())
        .args(arguments)
        .env("HOME", home.path())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .output()
        .expect("helm runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr) + &text(output.stdout))
    }
}

/// Returns the objects of a release called `redlock`, or the error of Helm.
pub fn try_render(arguments: &[&str]) -> Result<Vec<Value>, String> {
    try_render_chart(&chart(), arguments)
}

/// Renders the chart with these values.
pub fn try_render_values(values: &Value) -> Result<Vec<Value>, String> {
    try_render_chart_values(&chart(), values)
}

/// Renders the chart in this folder, such as a parent of the chart, with these values.
pub fn try_render_chart_values(chart: &Path, values: &Value) -> Result<Vec<Value>, String> {
    let file = tempfile::Builder::new()
        .suffix(".yaml")
        .tempfile()
        .expect("a file");
    fs::write(file.path(), values.to_string()).expect("it is written");
    try_render_chart(chart, &[&format!("--values={}", file.path().display())])
}

fn try_render_chart(chart: &Path, arguments: &[&str]) -> Result<Vec<Value>, String> {
    let fixed = [
        "template",
        "redlock",
        chart.to_str().expect("a path"),
        "--namespace",
        NAMESPACE,
        "--kube-version=1.33.0",
    ];
    let text = helm(&[&fixed, arguments].concat())?;
    let documents = serde_yaml::Deserializer::from_str(&text);
    let objects = documents.map(|document| Value::deserialize(document).expect("yaml"));
    Ok(objects.filter(|object| !object.is_null()).collect())
}

/// Renders the chart with values as `name=value`.
pub fn render(values: &[&str]) -> Vec<Value> {
    let flags: Vec<String> = values.iter().map(|value| format!("--set={value}")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    try_render(&flags).unwrap_or_else(|error| panic!("{values:?}: {error}"))
}

pub fn render_file(values: &Path) -> Vec<Value> {
    let flag = format!("--values={}", values.display());
    try_render(&[&flag]).unwrap_or_else(|error| panic!("{}: {error}", values.display()))
}

/// Returns the defaults of the values.
pub fn defaults() -> Value {
    let text = fs::read_to_string(chart().join("values.yaml")).expect("values.yaml");
    serde_yaml::from_str(&text).expect("yaml")
}

/// Returns the metadata and spec of each pod, hooks and tests included, with its component.
pub fn pods(objects: &[Value]) -> Vec<(String, Value)> {
    let pods = objects
        .iter()
        .filter_map(|object| match object["kind"].as_str()? {
            "Pod" => Some(object),
            "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => Some(&object["spec"]["template"]),
            _ => None,
        });
    pods.map(|pod| {
        let component = pod["metadata"]["labels"]["app.kubernetes.io/component"].as_str();
        (component.expect("a component").to_owned(), pod.clone())
    })
    .collect()
}

/// Returns the objects of this kind that stay after the installation, which excludes hooks.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let is_hook = |object: &Value| object["metadata"]["annotations"]["helm.sh/hook"].is_string();
    let all = objects.iter().filter(|object| object["kind"] == kind);
    all.filter(|object| !is_hook(object)).collect()
}

/// Returns the object of this kind that belongs to the operator.
pub fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    match of_kind(objects, kind)[..] {
        [one] => one,
        ref all => panic!("{} of {kind}", all.len()),
    }
}
