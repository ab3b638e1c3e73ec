//! A stop that a policy denies, or that no controller carries out.

use std::sync::Arc;

use redlock_world::{
    controllers::ControllerKind,
    kubernetes::{AdmissionRefusal, ResourceId, Verb},
};
use serde_json::json;

use super::{ClusterWorld, LATE, SOON, has_condition, running_in, runs_elsewhere, with_running_work};
use crate::controller::world::observer::{condition_contains, status_text};

const DENIAL: &str = r#"admission webhook "freeze.example" denied the request: change freeze"#;

/// Denies every write of the scale of the work. Returns the number of the rule.
pub(super) fn deny_switches(cluster: &ClusterWorld) -> u64 {
    cluster.api.add_rule(Arc::new(|request| {
        let writes = matches!(request.verb, Verb::Patch | Verb::Update);
        (writes && request.subresource == "scale" && request.key.name == "web").then(|| AdmissionRefusal {
            code: 422,
            message: DENIAL.to_owned(),
        })
    }))
}

/// Forbids every request of an operator for the work. Returns the number of the rule.
fn forbid_reads(cluster: &ClusterWorld) -> u64 {
    cluster.api.add_rule(Arc::new(|request| {
        let is_work = request.key.resource == ResourceId::DEPLOYMENTS && request.caller.contains('#');
        is_work.then(|| AdmissionRefusal {
            code: 403,
            message: "deployments.apps is forbidden".to_owned(),
        })
    }))
}

/// The target is removed from the lock, and its stop is denied: the status must not report that all is as declared.
pub(super) async fn denied_removal(seed: u64) -> Result<(), String> {
    let (universe, cluster) = with_running_work(seed, 1).await?;
    let rule = deny_switches(&cluster);
    cluster.change_lock("web", json!({ "spec": { "targets": [] } }));
    universe
        .wait("the status names the denial", SOON, |_| {
            let named = |kind| condition_contains(&cluster, "web", kind, DENIAL);
            named("Ready") && named("Enforced")
        })
        .await
        .map_err(|text| format!("{text}: {}", status_text(&cluster, "web")))?;
    universe
        .keep(
            "the lock is not ready while the removed target runs",
            LATE,
            |_| !has_condition(&cluster, "web", "Ready") && !has_condition(&cluster, "web", "Enforced"),
        )
        .await?;
    cluster.api.remove_rule(rule);
    universe
        .wait(
            "the removed target is stopped, and the lock is ready",
            LATE,
            |_| cluster.running_pods("web") == 0 && has_condition(&cluster, "web", "Ready"),
        )
        .await?;
    Ok(())
}

/// The cluster steps down, and the stop is denied: no event claims a release.
pub(super) async fn denied_step_down(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 2).await?;
    let rule = deny_switches(&active);
    active.change_lock(
        "web",
        json!({ "spec": { "state": "SteppedDown", "reason": "a test" } }),
    );
    let emitted = |event: &str| active.events().iter().any(|emitted| emitted == event);
    universe
        .wait("events report the targets and the lease", LATE, |_| {
            emitted("TargetsLeft") && emitted("Abandoned")
        })
        .await
        .map_err(|text| format!("{text}: {:?}", active.events()))?;
    if emitted("Released") {
        return Err(format!("a lease that was not released: {:?}", active.events()));
    }
    universe
        .keep("the lock is not ready while its target runs", SOON, |_| {
            !has_condition(&active, "web", "Ready")
        })
        .await?;
    active.api.remove_rule(rule);
    universe
        .wait("the target is stopped, and the lock is ready", LATE, |_| {
            active.running_pods("web") == 0 && has_condition(&active, "web", "Ready")
        })
        .await?;
    Ok(())
}

/// The cluster steps down while the controller manager is down: the status names what the stop waits for.
pub(super) async fn unconfirmed_stop(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 1).await?;
    let manager = [ControllerKind::Deployment, ControllerKind::ReplicaSet];
    manager
        .iter()
        .for_each(|kind| active.set_controller(*kind, false));
    active.change_lock(
        "web",
        json!({ "spec": { "state": "SteppedDown", "reason": "a test" } }),
    );
    universe
        .wait("the status names the controller manager", LATE, |_| {
            condition_contains(&active, "web", "Ready", "controller manager")
        })
        .await
        .map_err(|text| format!("{text}: {}", status_text(&active, "web")))?;
    manager.iter().for_each(|kind| active.set_controller(*kind, true));
    universe
        .wait("the target is stopped, and the lock is ready", LATE, |_| {
            active.running_pods("web") == 0 && has_condition(&active, "web", "Ready")
        })
        .await?;
    Ok(())
}

/// The lock is deleted while a policy denies the stop, or every request for the target: the object, its lease and its
/// work stay in this cluster until the stop is allowed, or until the work is given up as it is.
pub(super) async fn denied_deletion(seed: u64) -> Result<(), String> {
    let (universe, active) = with_running_work(seed, 2).await?;
    let rule = if seed.is_multiple_of(2) {
        deny_switches(&active)
    } else {
        forbid_reads(&active)
    };
    active.delete_lock("web");
    universe
        .wait("the status gives the reason", SOON, |_| {
            !has_condition(&active, "web", "Enforced") && !has_condition(&active, "web", "Ready")
        })
        .await
        .map_err(|text| format!("{text}: {}", status_text(&active, "web")))?;
    universe
        .keep("the object and its work stay in this cluster", LATE, |universe| {
            active.lock("web").is_some() && running_in(universe, "web") == [active.name.clone()]
        })
        .await
        .map_err(|text| format!("{text}: {}", status_text(&active, "web")))?;
    if seed % 4 >= 2 {
        active.change_lock("web", json!({ "spec": { "deletionPolicy": "Orphan" } }));
        return universe
            .wait("the object is gone, and its work runs", SOON, |_| {
                active.lock("web").is_none() && active.running_pods("web") == 1
            })
            .await
            .map(|_| ());
    }
    active.api.remove_rule(rule);
    universe
        .wait("the other cluster runs the work", LATE, |universe| {
            active.lock("web").is_none() && runs_elsewhere(universe, &active)
        })
        .await
        .map(|_| ())
}
