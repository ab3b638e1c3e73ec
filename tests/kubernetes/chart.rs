//! Tests the whole chart on a real API server: a namespace that restricts its pods accepts the objects
//! without a warning, and Helm installs, upgrades, rolls back and uninstalls the chart.

#[path = "chart/agents.rs"]
mod agents;
#[path = "chart/cluster_name.rs"]
mod cluster_name;
#[path = "chart/drain.rs"]
mod drain;
#[path = "chart/fencing.rs"]
mod fencing;
#[path = "chart/left_quorum.rs"]
mod left_quorum;
#[path = "chart/lifecycle.rs"]
mod lifecycle;
#[path = "chart/never_ran.rs"]
mod never_ran;
#[path = "chart/quorums.rs"]
mod quorums;
#[path = "chart/second_release.rs"]
mod second_release;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fixture::{BOUND, ControlPlane, SERVICE_ACCOUNT, helm};
use redlock_testkit::eventually;

pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/redlock-operator")
}

/// Runs Helm as the administrator; returns its output.
pub fn run_helm(plane: &ControlPlane, arguments: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(helm())
        .args(arguments)
        .env("HOME", home.path())
        .env("KUBECONFIG", plane.kubeconfig_admin())
        .stdin(Stdio::null())
        .output()
        .expect("helm runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(text)
    }
}

/// Waits until the API server applies the Role and the ClusterRole of the drain in this namespace.
async fn may_drain(plane: &ControlPlane, namespace: &str) {
    let account = format!("{SERVICE_ACCOUNT}-drain");
    let deployment = format!("deployments.apps/{SERVICE_ACCOUNT}");
    let own = ["get", &deployment, "--namespace", namespace];
    let everywhere = ["patch", "leaderlocks.redlock.dev", "--all-namespaces"];
    for question in [&own[..], &everywhere] {
        plane.until_permitted(true, namespace, &account, question).await;
    }
}

/// Enforces the Pod Security Standard `restricted` for the pods of the namespace. A client that creates a
/// workload that violates it gets a warning.
pub fn restrict(plane: &ControlPlane, namespace: &str) {
    let labels = ["enforce", "warn"].map(|mode| format!("pod-security.kubernetes.io/{mode}=restricted"));
    let output = plane.kubectl(&["label", "namespace", namespace, &labels[0], &labels[1]]);
    assert!(output.status.success(), "{output:?}");
}

/// Returns the manifests without the kinds that only a Prometheus operator defines.
fn known_kinds(manifests: &str) -> String {
    let documents = manifests.split("\n---\n");
    let known = documents.filter(|document| !document.contains("apiVersion: monitoring.coreos.com/"));
    known.collect::<Vec<_>>().join("\n---\n")
}

#[tokio::test]
async fn a_restricted_namespace_takes_every_object_without_a_warning() {
    let plane = ControlPlane::shared();
    plane.install_crds().await;
    let namespace = plane.namespace("chart").await;
    restrict(plane, namespace.name());
    for name in ["billing", "elsewhere", "shop"] {
        plane.kubectl(&["create", "namespace", name]);
    }
    let entries = chart().join("ci").read_dir().unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    let version = plane.admin().apiserver_version().await.unwrap().git_version;
    let version = format!("--kube-version={version}");
    // The node agent has hostPath volumes.
    let privileged = plane.namespace("nodes").await;
    for file in files {
        let fences = fs::read_to_string(&file).unwrap().contains("fencing:");
        let namespace = if fences { &privileged } else { &namespace };
        let chart = chart();
        let rendered = run_helm(
            plane,
            &[
                "template",
                SERVICE_ACCOUNT,
                chart.to_str().unwrap(),
                "--namespace",
                namespace.name(),
                "--values",
                file.to_str().unwrap(),
                &version,
                // The definitions exist already, with another owner.
                "--set=crds.install=false",
            ],
        );
        let manifests = known_kinds(&rendered.unwrap());
        let written = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        fs::write(written.path(), &manifests).unwrap();
        let path = written.path().display().to_string();
        let output = plane.kubectl(&[
            "apply",
            "--server-side",
            "--dry-run=server",
            "--warnings-as-errors",
            "--validate=strict",
            "--filename",
            &path,
        ]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && stderr.is_empty(),
            "{}: {stderr}",
            file.display()
        );
    }
}

#[tokio::test]
async fn a_pod_that_is_not_restricted_causes_a_warning() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("chart").await;
    restrict(plane, namespace.name());
    let image = [
        "create",
        "deployment",
        "loose",
        "--image=x",
        "--dry-run=server",
        "--namespace",
    ];
    // The admission plugin receives the labels through a watch, later than the write.
    eventually(BOUND, "a warning", async || {
        let output = plane.kubectl(&[&image[..], &[namespace.name(), "--warnings-as-errors"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() && stderr.contains("would violate PodSecurity") {
            Ok(())
        } else {
            Err(stderr)
        }
    })
    .await;
}
