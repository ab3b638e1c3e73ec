//! Tests that a lock gives its author no right: the operator sets only the fields that the chart allows, and the policy of
//! the chart accepts a lock only from a user with permission to patch its targets.

use super::{FLUX, FLUX_FIELD, STANDBY, enforced, operator, stored, world};
use crate::author_check::{accepted, apply, apply_template, grant, refused};
use crate::fixture::BOUND;
use crate::world::lock;
use redlock_testkit::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn field_that_the_chart_does_not_allow_is_not_set() {
    let world = world(&["kustomizations"], &FLUX_FIELD).await;
    let _operator = operator(&world, &FLUX_FIELD).await;
    world.apply(FLUX.manifest);
    let before = stored(&world, "kustomization", "it");
    // The operator has the right to patch the object, for another field.
    let suspend = "{path: /spec/suspend, active: false, standby: true}";
    let account = "{path: /spec/serviceAccountName, active: admin, standby: none}";
    let target = FLUX.target("stopSeconds: 1");
    let target = target.replace(suspend, &format!("{suspend}, {account}"));
    for state in [STANDBY, ""] {
        world.apply(&lock("report", &format!(", targets: [{target}]{state}")));
        let text = enforced(&world, "Forbidden").await;
        assert!(
            text.contains("field /spec/serviceAccountName of kustomizations may not be switched")
                && text.contains("path: \"/spec/serviceAccountName\"}]"),
            "{text}"
        );
    }
    let after = stored(&world, "kustomization", "it");
    assert_eq!(
        before["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
    // The operator did not even read the object.
    let read = |event: &crate::fixture::audit::Event| {
        let object = event.object_ref.as_ref();
        object.is_some_and(|object| object.resource == "kustomizations" && object.name == "it")
    };
    assert_eq!(world.requests().iter().filter(|event| read(event)).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn object_outside_of_namespaces_is_not_switched() {
    let field = [("", "namespaces", "/metadata/annotations/x")];
    let world = world(&[], &[]).await;
    // The operator refuses the resource itself.
    let refused = world.redlock(&[
        "operator",
        "--cluster",
        "test",
        "--target-fields",
        &super::allowed(&field),
    ]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.stderr.contains("never switches"), "{refused:?}");
    let _operator = operator(&world, &[]).await;
    let target = "{name: t, action: Patch, ref: {apiVersion: v1, kind: Namespace, name: default}, stopSeconds: 1, \
                  patch: {fields: [{path: /metadata/annotations/x, standby: \"1\"}]}}";
    world.apply(&lock("report", &format!(", targets: [{target}]")));
    let text = enforced(&world, "KindClusterScoped").await;
    assert!(text.contains("belongs to no namespace"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_accepted_from_users_that_may_patch_its_fields() {
    let world = world(&["kustomizations"], &FLUX_FIELD).await;
    apply_template(
        &world,
        "author-check",
        &["--set=admission.authorCheck.enabled=true"],
    );
    let verbs = "get,list,create,update,patch,delete";
    for user in ["alice", "bob"] {
        let role = format!("locks-of-{user}");
        grant(&world, user, &role, verbs, "leaderlocks.redlock.dev", &[]);
    }
    let name = ["--resource-name=it"];
    let resource = "kustomizations.kustomize.toolkit.fluxcd.io";
    grant(&world, "bob", "flux", "patch", resource, &name);
    let flux = lock(
        "report",
        &format!(", targets: [{}]", FLUX.target("stopSeconds: 1")),
    );
    eventually(BOUND, "the policy is in effect", async || {
        match apply(&world, "alice", &flux) {
            (false, output) if output.contains("may not do by hand") => Ok(()),
            other => {
                world.kubectl(&["delete", "leaderlock", "report", "--ignore-not-found"]);
                Err(other)
            }
        }
    })
    .await;
    let expected = "patch kustomizations.kustomize.toolkit.fluxcd.io it in namespace";
    refused(
        apply(&world, "alice", &flux),
        &["alice may not do by hand", expected],
    );
    accepted(apply(&world, "bob", &flux));
    // A right on one object does not cover another.
    let other = flux.replace(
        "kind: Kustomization, name: it",
        "kind: Kustomization, name: other",
    );
    refused(
        apply(&world, "bob", &other),
        &["kustomize.toolkit.fluxcd.io other"],
    );
    // A kind whose plural is not known cannot be checked.
    let widget = flux.replace("kind: Kustomization", "kind: Widget");
    refused(
        apply(&world, "bob", &widget),
        &["Widget.kustomize.toolkit.fluxcd.io"],
    );
}
