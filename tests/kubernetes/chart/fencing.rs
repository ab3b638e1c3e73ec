//! Tests node fencing in a release: its namespace must admit it, and the driver stays while pods use its
//! volume.

use super::{chart, may_drain, run_helm};
use crate::fixture::{ControlPlane, Options, SERVICE_ACCOUNT};
use crate::world::redlock_as;

const ENABLED: &str = "--set=fencing.enabled=true";
const FENCED: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: reports}
---
apiVersion: v1
kind: Pod
metadata: {name: fenced, namespace: reports}
spec:
  containers:
  - name: work
    image: busybox:1
    volumeMounts: [{name: redlock, mountPath: /run/redlock}]
  volumes:
  - name: redlock
    csi: {driver: fencing.redlock.dev, readOnly: true, volumeAttributes: {lock: report}}
";

fn label(plane: &ControlPlane, standard: &str) {
    let label = format!("pod-security.kubernetes.io/enforce={standard}");
    let output = plane.kubectl(&["label", "--overwrite", "namespace", "redlock", &label]);
    assert!(output.status.success(), "{output:?}");
}

fn apply(plane: &ControlPlane, manifests: &str) {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), manifests).unwrap();
    let output = plane.kubectl(&["apply", "--filename", file.path().to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_stays_while_pods_mount_its_volume() {
    let plane = ControlPlane::start(Options {
        controller_manager: false,
        ..Options::default()
    });
    let chart = chart();
    let helm = |command: &str, values: &[&str]| {
        let fixed = [
            command,
            SERVICE_ACCOUNT,
            chart.to_str().unwrap(),
            "--namespace=redlock",
        ];
        run_helm(&plane, &[&fixed, values].concat())
    };
    for name in ["redlock", "reports"] {
        plane.kubectl(&["create", "namespace", name]);
    }
    label(&plane, "restricted");
    let refused = helm("install", &[ENABLED]).unwrap_err();
    for part in [
        "namespace redlock enforces the Pod Security Standard \"restricted\"",
        "kubectl label --overwrite namespace redlock pod-security.kubernetes.io/enforce=privileged",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    label(&plane, "privileged");
    helm("install", &[ENABLED]).unwrap();
    apply(&plane, FENCED);
    let refused = helm("upgrade", &["--set=fencing.enabled=false"]).unwrap_err();
    assert!(
        refused.contains("would remove the node agent") && refused.contains("reports/fenced"),
        "{refused}"
    );
    helm("upgrade", &[ENABLED, "--set=log.level=debug"]).unwrap();

    let account = format!("{SERVICE_ACCOUNT}-drain");
    let show = "--show-only=templates/drain.yaml";
    let hooks = helm("template", &[ENABLED, show]).unwrap();
    let rights: Vec<&str> = hooks
        .split("\n---\n")
        .filter(|text| !text.contains("kind: Job"))
        .collect();
    apply(&plane, &rights.join("\n---\n"));
    may_drain(&plane, "redlock").await;
    let kubeconfig = plane.service_account_kubeconfig("redlock", &account, None).await;
    // The Deployment of the operator has no pods here: no controller runs.
    let drain = || {
        let operator = ["drain", "-n", "redlock", "--deployment", SERVICE_ACCOUNT];
        let arguments = [&operator[..], &["--fencing", "--timeout", "2s"]].concat();
        redlock_as(&kubeconfig, &arguments, &[])
    };
    drain().expect(1, &["pod reports/fenced mounts a volume of fencing.redlock.dev"]);
    let delete = [
        "delete",
        "pod",
        "fenced",
        "--namespace=reports",
        "--force",
        "--grace-period=0",
    ];
    assert!(plane.kubectl(&delete).status.success());
    drain().expect(0, &["drained"]);
    helm("upgrade", &["--set=fencing.enabled=false"]).unwrap();
}
