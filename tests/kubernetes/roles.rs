//! Compares the rights of the chart with the requests of the operator, and tests the namespaces that it follows.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{Api, ListParams};

use crate::fixture::{BOUND, Operator, SERVICE_ACCOUNT};
use crate::label_pods;
use crate::program::until;
use crate::suspend;
use crate::targets::{self, GATE, Gates, guarded};
use crate::world::{World, condition, lock, redlock_as};
use redlock_testkit::eventually;

/// A right: group, resource with subresource, and verb.
type Right = (String, String, String);

/// Rights that no test can use: the admission plugin that needs them is disabled in most clusters, and here.
const FOR_OTHERS: [(&str, &str, &str); 2] = [
    ("redlock.dev", "leaderlocks/finalizers", "update"),
    // After a conflict with another replica.
    ("coordination.k8s.io", "leases", "get"),
];

fn rights(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut all = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    all.insert((group.clone(), resource.clone(), verb.clone()));
                }
            }
        }
    }
    all
}

async fn granted(world: &World) -> BTreeSet<Right> {
    let named = ListParams::default().labels("app.kubernetes.io/name=redlock-operator");
    let cluster = Api::<ClusterRole>::all(world.plane.admin())
        .list(&named)
        .await
        .unwrap();
    let roles = Api::<Role>::all(world.plane.admin()).list(&named).await.unwrap();
    let cluster = cluster.items.into_iter().filter_map(|role| role.rules);
    let rules = cluster.chain(roles.items.into_iter().filter_map(|role| role.rules));
    rules.flat_map(|rules| rights(&rules)).collect()
}

/// `doctor` reads this group if its user has the right, which the operator does not need.
const FOR_PEOPLE: &str = "admissionregistration.k8s.io";

/// Returns the requested rights, and those that were refused.
fn asked(world: &World) -> (BTreeSet<Right>, Vec<String>) {
    let (mut used, mut refused) = (BTreeSet::new(), Vec::new());
    for event in world.requests() {
        let Some(object) = event.object_ref else { continue };
        if object.api_group == FOR_PEOPLE && event.verb == "list" {
            continue;
        }
        let resource = match object.subresource.as_str() {
            "" => object.resource,
            part => format!("{}/{part}", object.resource),
        };
        if event.response_status.is_some_and(|status| status.code == 403) {
            refused.push(format!("{} {}", event.verb, event.uri));
        }
        used.insert((object.api_group, resource, event.verb));
    }
    (used, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_right_of_the_chart_is_unused_and_none_is_missing() {
    let world = World::small(3).await;
    let namespace = world.namespace.name().to_owned();
    targets::install(&world).await;
    let gates = [
        "targetKinds[2].group=test.example",
        "targetKinds[2].resource=gates",
    ];
    let pods = ["targetKinds[3].group=", "targetKinds[3].resource=pods"];
    let fields = [
        "targetFields[0].group=test.example",
        "targetFields[0].resource=gates",
        "targetFields[0].path=/spec/replicas",
    ];
    let grant = [&suspend::RIGHTS[..], &gates, &pods, &fields].concat();
    world.plane.install_rbac_with(&namespace, &grant).await;
    world.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: masters}\nstringData: {password: none}\n");
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    // LabelPods needs leases of this length.
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 10"));
    let auth = format!(
        "  firstStart: Immediate\n  keyPrefix: other\n  auth: {{secretRef: {{name: masters, namespace: {namespace}}}}}\n"
    );
    world.apply(&world.quorum("with-password", &auth));
    world.apply(&lock("report", ""));
    let kubeconfig_of_operator = world.kubeconfig(None).await;
    let mut operator = Operator::start_with(&kubeconfig_of_operator, &namespace, "replica-1", |command| {
        targets::siblings(command);
        command.env("REDLOCK_TARGET_FIELDS", "gates.test.example:/spec/replicas");
        command.env("REDLOCK_COORDINATION_LEASE", SERVICE_ACCOUNT);
    });
    a_target_with_a_pod_that_does_not_go(&world).await;
    a_field_of_a_target(&world).await;
    suspend::use_every_right(&world).await;
    label_pods::use_every_right(&world).await;
    // The operator also answers a meaningless request.
    world.kubectl(&["annotate", "ll", "report", "redlock.dev/hand-over=nothing"]);
    world
        .lock_status("report", "is held", |status| status["role"] == "Active")
        .await;
    // The same event twice within minutes is one object, which is patched.
    for _ in 0..2 {
        for master in &world.masters[..2] {
            master.pause().unwrap();
        }
        world
            .quorum_status("default", "is lost", |status| {
                condition(status, "Ready").0 == "False"
            })
            .await;
        for master in &world.masters[..2] {
            master.resume().unwrap();
        }
        world
            .quorum_status("default", "is back", |status| {
                condition(status, "Ready").0 == "True"
            })
            .await;
    }
    // A request for a hand-over is answered even after the end of the lease.
    let request = r#"redlock.dev/hand-over={"id":"x","to":"other/uid","token":1,"notAfter":99999999999}"#;
    world.kubectl(&["annotate", "leaderlock", "report", request]);
    // A command in its pod has its rights.
    let kubeconfig = world.kubeconfig(None).await;
    let lock = ["status", "--namespace", &namespace, "report"];
    // The quorum recovers before the lease does.
    eventually(BOUND, "the lock is held again", async || {
        let ran = redlock_as(&kubeconfig, &lock, &[]);
        if ran.code == Some(0) && ran.stdout.contains("replica-1") {
            Ok(())
        } else {
            Err(ran)
        }
    })
    .await;
    world
        .quorum_status("with-password", "is ready", |status| {
            condition(status, "Ready").0 == "True"
        })
        .await;
    let doctor = ["doctor", "--quorum", "with-password"];
    until(|| redlock_as(&kubeconfig, &doctor, &[]), 0, &["healthy"]);
    let granted = granted(&world).await;
    assert!(granted.len() > 10, "{granted:?}");
    let for_others = FOR_OTHERS.map(|(group, resource, verb)| (group.into(), resource.into(), verb.into()));
    // Events are written after everything else, and so is an answer.
    let what = format!("all that is granted to {SERVICE_ACCOUNT} is asked for");
    eventually(BOUND, &what, async || {
        let (used, refused) = asked(&world);
        assert_eq!(refused, Vec::<String>::new(), "403");
        let missing: Vec<_> = used.difference(&granted).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let mut unused: BTreeSet<Right> = granted.difference(&used).cloned().collect();
        unused.retain(|right| !for_others.contains(right));
        if unused.is_empty() { Ok(()) } else { Err(unused) }
    })
    .await;
    operator.child.kill();

    followed_namespaces(&world).await;
}

/// Switches a target on, and deletes its lock: the target is stopped even if its pod does not end.
async fn a_target_with_a_pod_that_does_not_go(world: &World) {
    let gates = Gates::of(world);
    world.apply(GATE);
    world.apply(&guarded("switching", "gate"));
    world
        .lock_status("switching", "is active", |status| status["role"] == "Active")
        .await;
    // No controllers here: the test creates the account of the pod itself.
    world.kubectl(&["create", "serviceaccount", "default"]);
    world.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: of-the-gate, labels: {app: gate}}\n\
         spec: {containers: [{name: work, image: work}]}\n",
    );
    gates.select("gate", "app=gate").await;
    world.kubectl(&["delete", "ll", "switching", "--wait=false"]);
    world.kubectl(&["wait", "--for=delete", "ll/switching", "--timeout=60s"]);
    // The target starts a second time, after its stop: to start it, the operator reads its owner.
    world.apply(&guarded("switching", "gate"));
    gates.until("gate", 1).await;
    world.kubectl(&["delete", "ll", "switching"]);
    let pods = world.kubectl(&["get", "pods", "--selector", "app=gate", "--output", "name"]);
    assert_eq!(pods.trim(), "", "its pod was not deleted in the end");
}

/// Sets a field of a target by the action Patch, which writes the object itself.
async fn a_field_of_a_target(world: &World) {
    // The manifest omits the field: an applied field is left to its manager.
    world.apply(
        &GATE
            .replace("name: gate", "name: patched")
            .replace("{replicas: 1}", "{}"),
    );
    let target = "{name: gate, action: Patch, stopSeconds: 1, ref: {apiVersion: test.example/v1, kind: Gate, name: patched}, \
                  patch: {fields: [{path: /spec/replicas, active: 7, standby: 0}]}}";
    world.apply(&lock("patching", &format!(", targets: [{target}]")));
    Gates::of(world).until("patched", 7).await;
    world.kubectl(&["delete", "ll", "patching"]);
}

/// Tests `--watch-namespaces`: the operator ignores the other namespaces.
async fn followed_namespaces(world: &World) {
    let other = world.plane.namespace("other").await;
    let elsewhere = lock("elsewhere", "").replace(
        "name: elsewhere",
        &format!("name: elsewhere, namespace: {}", other.name()),
    );
    let own = world.namespace.name().to_owned();
    world.plane.kubectl(&["version"]);
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), elsewhere).unwrap();
    let output = world
        .plane
        .kubectl(&["apply", "--filename", &file.path().display().to_string()]);
    assert!(output.status.success(), "{output:?}");
    let before = Timestamp::now();
    let names = format!("{own},nowhere-yet");
    let operator = world.operator_with("replica-2", |command| {
        command.args(["--watch-namespaces", &names]);
    });
    let operator = operator.await;
    operator.wait_ready();
    world
        .lock_status("report", "is held", |status| {
            status["holderIdentity"] == "replica-2"
        })
        .await;
    let locks: Vec<String> = operator
        .locks()
        .iter()
        .map(|lock| lock["namespace"].to_string())
        .collect();
    assert_eq!(locks, [format!("\"{own}\"")]);
    // A watch of the killed operator may end only now.
    let requests = world.requests().into_iter();
    let asked: BTreeSet<String> = requests
        .filter(|event| event.request_received_timestamp > before)
        .filter_map(|event| event.object_ref)
        .filter(|object| object.resource == "leaderlocks")
        .map(|object| object.namespace)
        .collect();
    assert_eq!(asked, BTreeSet::from([own, "nowhere-yet".to_owned()]));
}
