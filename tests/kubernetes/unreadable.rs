//! Tests objects that this version of the operator cannot read.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::fixture::{BOUND, Operator};
use crate::targets::{GATE, Gates, guarded, install};
use crate::versions::register;
use crate::world::{World, lasting, lock, throughout};
use redlock_testkit::eventually;

/// Sets whether the API server accepts any text for `candidates`.
async fn any_candidates(world: &World, any: bool) {
    let odd =
        lock("trial", ", candidates: Everybody").replace("name: trial", "name: trial, namespace: default");
    any_text(world, "candidates", &["Operator", "Agents"], &odd, any).await;
}

/// Sets whether the API server accepts any text for this field of a spec, or only these; `odd` has another.
async fn any_text(world: &World, field: &str, values: &[&str], odd: &str, any: bool) {
    let crds = Api::<CustomResourceDefinition>::all(world.plane.admin());
    let path = &format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{field}");
    let crd = serde_json::to_value(crds.get("leaderlocks.redlock.dev").await.unwrap()).unwrap();
    let mut field = crd.pointer(path).unwrap().clone();
    if any {
        field.as_object_mut().unwrap().remove("enum");
    } else {
        field["enum"] = json!(values);
    }
    let mut patched = crd;
    *patched.pointer_mut(path).unwrap() = field;
    patched["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    let parameters = PatchParams::apply("test").force();
    crds.patch("leaderlocks.redlock.dev", &parameters, &Patch::Apply(&patched))
        .await
        .unwrap();
    eventually(BOUND, "the definition is in use", async || {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), odd).unwrap();
        let path = file.path().display().to_string();
        let output = world
            .plane
            .kubectl(&["create", "--dry-run=server", "--filename", &path]);
        if output.status.success() == any {
            Ok(())
        } else {
            Err(output)
        }
    })
    .await;
}

async fn unreadable(operator: &Operator, name: &str, wanted: bool) {
    let series = "redlock_object_unreadable{kind=\"LeaderLock\",object_namespace=";
    eventually(BOUND, &format!("{name} unreadable: {wanted}"), async || {
        let (_, metrics) = operator.get("/metrics");
        let mut lines = metrics.lines().filter(|line| line.starts_with(series));
        let found = lines.any(|line| line.contains(&format!("object=\"{name}\"")));
        if found == wanted { Ok(()) } else { Err(metrics) }
    })
    .await;
}

fn active(status: &Value) -> bool {
    status["role"] == "Active"
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_object_is_named_and_the_others_continue() {
    let world = World::small(3).await;
    world.apply(&lasting(&world.quorum("default", "  firstStart: Immediate\n")));
    // The tokens of two locks are compared, and the writes of all are counted.
    let lock = |name: &str, more: &str| lasting(&lock(name, more));
    world.apply(&lock("good", ""));
    world.apply(&lock("edited", ""));
    let mut operator = world.operator("replica-1").await;
    let token = world.lock_status("good", "is held", active).await["fencingToken"].clone();
    let edited = world.lock_status("edited", "is held", active).await["fencingToken"].clone();

    any_candidates(&world, true).await;
    world.apply(&lock("odd", ", candidates: Everybody"));
    world.apply(&lock("edited", ", candidates: Everybody"));
    any_candidates(&world, false).await;
    unreadable(&operator, "odd", true).await;
    unreadable(&operator, "edited", true).await;
    let line = operator.child.wait_for_line(BOUND, "/odd");
    println!("{line}");
    assert!(
        line.contains("cannot be read by this version") && line.contains("Everybody"),
        "{line}"
    );

    // The other locks continue, and the last valid version of the edited one stays in force.
    world.apply(&lock("late", ""));
    world.lock_status("late", "is held", active).await;
    operator.assert_holds("good", &token);
    operator.assert_holds("edited", &edited);
    // The unreadable object causes no retries.
    world.kubectl(&["annotate", "leaderlock", "odd", "edited", "test=1"]);
    let before = world.writes("leaderlocks");
    world.apply(&lock("later", ""));
    world.lock_status("later", "is held", active).await;
    let writes = world.writes("leaderlocks") - before;
    assert!(writes < 10, "{writes} writes");

    // The same applies to a replica that starts now.
    let second = world.operator("replica-2").await;
    unreadable(&second, "odd", true).await;
    second.wait_ready();
    operator.child.kill();
    world
        .lock_status("good", "is taken over", |status| {
            status["holderIdentity"] == "replica-2"
        })
        .await;

    // The object is used once it is repaired.
    world.apply(&lock("odd", ", candidates: Operator"));
    world.lock_status("odd", "is held", active).await;
    unreadable(&second, "odd", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_object_that_is_deleted_is_stopped_and_let_go() {
    let world = World::small(3).await;
    world.apply(&world.quorum("default", "  firstStart: Immediate\n"));
    install(&world).await;
    let gates = Gates::of(&world);
    let names = ["known", "restarted"];
    for name in names {
        world.apply(&GATE.replace("name: gate", &format!("name: {name}")));
        world.apply(&guarded(name, name));
    }
    let mut operator = world.operator("replica-1").await;
    for name in names {
        world.lock_status(name, "runs", active).await;
    }
    any_candidates(&world, true).await;
    for name in names {
        let odd = guarded(name, name).replace("Seconds: 6", "Seconds: 6, candidates: Everybody");
        world.apply(&odd);
    }
    any_candidates(&world, false).await;
    for name in names {
        unreadable(&operator, name, true).await;
    }

    // The lock is deleted by a replica that knows the last valid version.
    world.kubectl(&["delete", "ll", "known", "--wait=false"]);
    gates.until("known", 0).await;
    world.kubectl(&["wait", "--for=delete", "ll/known", "--timeout=60s"]);
    unreadable(&operator, "known", false).await;
    gates.count("restarted", 1).await;

    // The lock is deleted by a replica that was never able to read it.
    operator.child.kill();
    world.kubectl(&["delete", "ll", "restarted", "--wait=false"]);
    let second = world.operator("replica-2").await;
    gates.until("restarted", 0).await;
    world.kubectl(&["wait", "--for=delete", "ll/restarted", "--timeout=60s"]);
    unreadable(&second, "restarted", false).await;
    // The declaration of the present spec is unknown, so no end of these leases was recorded as clean.
    for name in names {
        let of = |mark: &str| register(&world, &format!("{mark}:{}/{name}", world.namespace.name()));
        let (held, clean) = (of("held"), of("clean"));
        assert!(held > clean, "{name}: held {held}, clean {clean}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_that_cannot_read_a_target_leaves_the_deletion_to_the_holder() {
    let world = World::small(3).await;
    // The deletion ends after the stop and a lease: far later than the check below.
    let long = |manifest: &str| manifest.replace("Seconds: 6", "Seconds: 15");
    world.apply(&long(&world.quorum("default", "  firstStart: Immediate\n")));
    install(&world).await;
    let gates = Gates::of(&world);
    world.apply(GATE);
    let declared = long(&guarded("gate", "gate"));
    world.apply(&declared);
    let holder = world.operator("replica-1").await;
    world.lock_status("gate", "runs", active).await;
    gates.count("gate", 1).await;

    // The target stays in force at the holder, but a replica that starts now cannot read it.
    let actions = ["Scale", "Suspend", "OncePerSchedule", "LabelPods"];
    let field = "targets/items/properties/action";
    let odd = declared.replace("action: Scale, stopSeconds: 1", "action: Teleport");
    let trial = odd.replace("{name: gate}", "{name: trial, namespace: default}");
    any_text(&world, field, &actions, &trial, true).await;
    world.apply(&odd);
    any_text(&world, field, &actions, &trial, false).await;
    unreadable(&holder, "gate", true).await;
    let mut second = world.operator("replica-2").await;
    unreadable(&second, "gate", true).await;

    world.kubectl(&["delete", "ll", "gate", "--wait=false"]);
    let line = second.child.wait_for_line(BOUND, "TargetsLeft");
    println!("            {line}");
    gates.until("gate", 0).await;
    throughout(Duration::from_secs(4), || {
        let finalizers = world.kubectl(&["get", "ll", "gate", "-o", "jsonpath={.metadata.finalizers}"]);
        assert!(
            finalizers.contains("redlock.dev/targets"),
            "its pods are still there"
        );
    })
    .await;
    gates.count("gate", 0).await;
    world.kubectl(&["wait", "--for=delete", "ll/gate", "--timeout=60s"]);
}
