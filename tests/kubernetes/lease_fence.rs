//! Tests the admission policies of two releases in one cluster together: each operator makes all its writes, each component
//! of Kubernetes and each administrator deletes, and no one else changes a Lease that an operator holds.

use std::fs;

use serde_json::{Value, json};

use crate::chart::{chart, run_helm};
use crate::fixture::{BOUND, ControlPlane, Options, SERVICE_ACCOUNT};
use redlock_testkit::eventually;

/// The namespaces of the releases, each with the one that it follows.
const RELEASES: [(&str, &str); 2] = [("first", "shop"), ("second", "billing")];
/// The reason of a refusal.
const FENCED: &str = "only the operator may free it";
/// The components of Kubernetes that delete objects without an owner or in a deleted namespace.
const COMPONENTS: [&str; 3] = [
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
];
const POLICIES: [&str; 3] = ["lease-fence", "standby-guard", "author-check"];

fn apply(plane: &ControlPlane, manifests: &str) {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), manifests).unwrap();
    let path = file.path().display().to_string();
    let output = plane.kubectl(&["apply", "--server-side", "--filename", &path]);
    assert!(output.status.success(), "{output:?}");
}

/// Applies all admission policies of a release that follows this namespace.
fn install_policies(plane: &ControlPlane, release: &str, followed: &str) {
    let chart = chart();
    let mut arguments = vec![
        "template",
        SERVICE_ACCOUNT,
        chart.to_str().unwrap(),
        "--namespace",
        release,
    ];
    let followed = format!("--set=watchNamespaces={{{followed}}}");
    arguments.push(&followed);
    let shown = POLICIES.map(|policy| format!("--show-only=templates/{policy}.yaml"));
    arguments.extend(shown.iter().map(String::as_str));
    arguments.extend([
        "--set=admission.leaseFence.enabled=true",
        "--set=admission.standbyGuard.enabled=true",
        "--set=admission.authorCheck.enabled=true",
    ]);
    apply(plane, &run_helm(plane, &arguments).unwrap());
}

fn operator_of(release: &str) -> String {
    format!("system:serviceaccount:{release}:{SERVICE_ACCOUNT}")
}

/// Returns the holder identity that the operator of this release writes.
fn holder_of(release: &str) -> String {
    format!("redlock.dev/test/{release}.{SERVICE_ACCOUNT}")
}

/// Runs kubectl in a namespace as a user.
fn kubectl(plane: &ControlPlane, user: &str, namespace: &str, arguments: &[&str]) -> Result<String, String> {
    let user = format!("--as={user}");
    let output = plane.kubectl(&[&[&user, "--namespace", namespace], arguments].concat());
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(text)
    }
}

fn patch(
    plane: &ControlPlane,
    user: &str,
    namespace: &str,
    lease: &str,
    change: &Value,
) -> Result<String, String> {
    let change = format!("--patch={change}");
    kubectl(
        plane,
        user,
        namespace,
        &["patch", "lease", lease, "--type=merge", &change],
    )
}

fn delete(plane: &ControlPlane, user: &str, namespace: &str, lease: &str) -> Result<String, String> {
    kubectl(
        plane,
        user,
        namespace,
        &["delete", "lease", lease, "--wait=false"],
    )
}

/// Creates a Lease with this holder as a user.
fn create(plane: &ControlPlane, user: &str, namespace: &str, lease: &str, holder: &str) {
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": i32::MAX});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": lease}, "spec": spec});
    fs::write(file.path(), lease.to_string()).unwrap();
    let path = file.path().display().to_string();
    kubectl(plane, user, namespace, &["create", "--filename", &path]).unwrap();
}

fn assert_fenced(answer: Result<String, String>) {
    let refusal = answer.expect_err("the change was accepted");
    assert!(refusal.contains(FENCED), "{refusal}");
}

/// The fields of each write of the operator to a Lease: take, renew, free.
fn writes(holder: &str) -> [Value; 3] {
    let time = "2026-01-01T12:00:00.000000Z";
    let later = "2026-01-01T12:00:05.000000Z";
    [
        json!({
            "metadata": {"annotations": {"redlock.dev/former-holder": "web-0_a"}},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": i32::MAX, "acquireTime": time, "renewTime": time},
        }),
        json!({"spec": {"renewTime": later}}),
        json!({
            "metadata": {"annotations": {"redlock.dev/former-holder": null}},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": later, "renewTime": later},
        }),
    ]
}

/// Starts a cluster with the policies of both releases, and in each followed namespace a lock that names the Lease
/// `controller`. All users may write Leases, and the user `root` may do everything without the group system:masters.
async fn cluster() -> ControlPlane {
    let plane = ControlPlane::start(Options::default());
    plane.install_crds().await;
    for (binding, role, subject) in [
        ("leases", "leases", "--group=system:authenticated"),
        ("root", "cluster-admin", "--user=root"),
    ] {
        if role == "leases" {
            let verbs = "--verb=get,list,create,update,patch,delete,deletecollection";
            plane.kubectl(&[
                "create",
                "clusterrole",
                role,
                verbs,
                "--resource=leases.coordination.k8s.io",
            ]);
        }
        let role = format!("--clusterrole={role}");
        let output = plane.kubectl(&["create", "clusterrolebinding", binding, &role, subject]);
        assert!(output.status.success(), "{output:?}");
    }
    for (release, followed) in RELEASES {
        plane.kubectl(&["create", "namespace", followed]);
        install_policies(&plane, release, followed);
        apply(
            &plane,
            &format!(
                "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: report, namespace: {followed}}}\n\
                 spec:\n  quorumRef: {{name: default}}\n  targets:\n  - name: controller\n    action: Lease\n    \
                 ref: {{apiVersion: coordination.k8s.io/v1, kind: Lease, name: controller}}\n"
            ),
        );
        create(&plane, "root", followed, "controller", &holder_of(release));
        eventually(BOUND, "the policy is in effect", async || {
            let dry = ["delete", "lease", "controller", "--dry-run=server"];
            match kubectl(&plane, "alice", followed, &dry) {
                Err(refusal) if refusal.contains(FENCED) => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }
    plane
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_two_releases_admit_both_operators_and_refuse_others() {
    let plane = cluster().await;
    for (release, followed) in RELEASES {
        let (operator, holder) = (operator_of(release), holder_of(release));
        for write in writes(&holder).iter().chain(writes(&holder).iter()) {
            patch(&plane, &operator, followed, "controller", write).unwrap();
        }
        // A missing Lease is created and held.
        delete(&plane, &operator, followed, "controller").unwrap();
        create(&plane, &operator, followed, "controller", &holder);
        let [taken, renewed, freed] = writes("web-1_b");
        for change in [taken, renewed, freed, json!({"spec": null})] {
            assert_fenced(patch(&plane, "alice", followed, "controller", &change));
        }
        assert_fenced(delete(&plane, "alice", followed, "controller"));
        let all = format!("--raw=/apis/coordination.k8s.io/v1/namespaces/{followed}/leases");
        assert_fenced(kubectl(&plane, "alice", followed, &["delete", &all]));
        let labels = json!({"metadata": {"labels": {"team": "a"}}});
        patch(&plane, "alice", followed, "controller", &labels).unwrap();
        // A record of an earlier version, which did not name the release.
        let earlier = json!({"spec": {"holderIdentity": "redlock.dev/test"}});
        patch(&plane, &operator, followed, "controller", &earlier).unwrap();
        assert_fenced(delete(&plane, "alice", followed, "controller"));
        patch(&plane, &operator, followed, "controller", &writes(&holder)[0]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_and_its_administrators_delete_every_lease() {
    let plane = cluster().await;
    for (release, followed) in RELEASES {
        let holder = holder_of(release);
        for user in COMPONENTS.into_iter().chain(["root"]) {
            delete(&plane, user, followed, "controller")
                .unwrap_or_else(|refusal| panic!("{user}: {refusal}"));
            create(&plane, "root", followed, "controller", &holder);
        }
        let output = plane.kubectl(&["delete", "lease", "controller", "--namespace", followed]);
        assert!(
            output.status.success(),
            "an administrator of the group system:masters: {output:?}"
        );

        // No lock names it: its owner does with it as before, whatever the holder is called.
        for holder in ["redlock.dev/x", &holder] {
            create(&plane, "alice", followed, "own", "web-0_a");
            let taken = json!({"spec": {"holderIdentity": holder}});
            patch(&plane, "alice", followed, "own", &taken).unwrap();
            patch(
                &plane,
                "alice",
                followed,
                "own",
                &json!({"spec": {"holderIdentity": "web-0_a"}}),
            )
            .unwrap();
            patch(&plane, "alice", followed, "own", &taken).unwrap();
            delete(&plane, "alice", followed, "own").unwrap();
        }

        // The garbage collector deletes an object without its owner, and a namespace does not stay Terminating.
        plane.kubectl(&["create", "configmap", "owner", "--namespace", followed]);
        let read = ["get", "configmap", "owner", "--output=jsonpath={.metadata.uid}"];
        let uid = kubectl(&plane, "root", followed, &read).unwrap();
        create(&plane, "root", followed, "controller", &holder);
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid});
        let owned = json!({"metadata": {"ownerReferences": [owner]}});
        patch(&plane, "alice", followed, "controller", &owned).unwrap();
        plane.kubectl(&["delete", "configmap", "owner", "--namespace", followed]);
        eventually(
            2 * BOUND,
            "the Lease has gone with its owner",
            async || match kubectl(&plane, "root", followed, &["get", "lease", "controller"]) {
                Err(answer) if answer.contains("NotFound") => Ok(()),
                other => Err(other),
            },
        )
        .await;
        create(&plane, "root", followed, "controller", &holder);
        let bound = format!("--timeout={}s", (2 * BOUND).as_secs());
        let output = plane.kubectl(&["delete", "namespace", followed, &bound]);
        assert!(output.status.success(), "{output:?}");
    }
}
