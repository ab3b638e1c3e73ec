//! Tests that a pod that does not end is deleted with the remaining time, and is gone before the lease ends.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};

use crate::fixture::kubelet::{IGNORES_SIGTERM, Recorder};
use crate::fixture::{BOUND, Kubelet, Operator, seed};
use crate::guard::{assert_writes, metric};
use crate::stop_times::Switched;
use crate::world::{World, lock};
use redlock_testkit::eventually;

/// Asserts that the metrics show this number of stops with a deadline, and that they had time left.
async fn leaves_a_margin(operator: &Operator, stops: f64) {
    let read = |part: &str| {
        let name = format!("redlock_stop_margin_seconds_{part}");
        metric(&operator.get("/metrics").1, &name, "action=\"Scale\"")
    };
    eventually(BOUND, "the stops are confirmed", async || match read("count") {
        Some(count) if count >= stops => Ok(()),
        other => Err(other),
    })
    .await;
    let margin = read("sum");
    println!("redlock_stop_margin_seconds {margin:?}");
    assert!(margin > Some(0.0), "{margin:?}");
}

/// Asserts that the operator deleted two pods, with grace periods that end before the lease does.
fn deleted_in_time(world: &World, lease_end: Timestamp) {
    // A deletion that is not answered in time is repeated.
    let graces: Vec<_> = world
        .requests()
        .into_iter()
        .filter(|event| event.verb == "delete")
        .map(|event| {
            let grace = event.request_object.unwrap()["gracePeriodSeconds"]
                .as_i64()
                .unwrap();
            let end = event.request_received_timestamp + SignedDuration::from_secs(grace);
            (event.object_ref.unwrap().name, grace, end)
        })
        .collect();
    println!("deleted with grace periods in seconds and ends of {graces:?}, the lease ends at {lease_end}");
    let pods: BTreeSet<_> = graces.iter().map(|(pod, ..)| pod).collect();
    assert_eq!(pods.len(), 2, "{graces:?}");
    // A busy API server receives a request later than the operator has computed its grace period. One second is the
    // shortest grace period, which an operator that is delayed uses also if no time is left.
    let slack = SignedDuration::from_secs(3);
    let is_in_time = |grace: i64, end: Timestamp| (1..=3).contains(&grace) && end < lease_end + slack;
    assert!(
        graces.iter().all(|(_, grace, end)| is_in_time(*grace, *end)),
        "{graces:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_ignores_sigterm_gets_the_grace_that_is_left() {
    let world = World::new(3).await;
    world.grant_targets("apps", "deployments").await;
    let recorder = Recorder::default();
    let _kubelet = Kubelet::start(&world.plane, "here", seed(), &recorder);
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 20"));
    let operator = world.operator("replica-1").await;
    world.apply(&format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: 0\n  \
         selector: {{matchLabels: {{app: web}}}}\n  template:\n    \
         metadata: {{labels: {{app: web}}, annotations: {{{IGNORES_SIGTERM}: \"true\"}}}}\n    \
         spec: {{terminationGracePeriodSeconds: 600, containers: [{{name: web, image: web}}]}}\n"
    ));
    // A zero in the manifest would have a field manager.
    world.kubectl(&["scale", "deployment/web", "--replicas=2"]);
    let targets = ", targets: [{name: web, action: Scale, stopSeconds: 5, scale: {activeReplicas: 2}, \
                   ref: {apiVersion: apps/v1, kind: Deployment, name: web}}]";
    world.apply(&lock("report", targets).replace("Seconds: 6", "Seconds: 20"));
    let running = || {
        let all = recorder.running("here", world.namespace.name());
        all.iter()
            .filter(|run| run.owner.starts_with("ReplicaSet web-"))
            .count()
    };
    eventually(BOUND, "two pods run under the lock", async || {
        let held = operator.lock("report")["role"] == "Active";
        if held && running() == 2 {
            Ok(())
        } else {
            Err((held, running()))
        }
    })
    .await;
    let enforced = || metric(&operator.get("/metrics").1, "redlock_target_enforced", "web");
    eventually(BOUND, "the target is as it should be", async || {
        if enforced() == Some(1.0) {
            Ok(())
        } else {
            Err(enforced())
        }
    })
    .await;
    let by_template = Switched::start(&world, &recorder).await;
    by_template.edit().await;
    for master in &world.masters {
        master.pause().unwrap();
    }
    let left = operator.lock("report")["validForMilliseconds"].as_u64().unwrap();
    let left = Duration::from_millis(left);
    let (paused, lease_end) = (Instant::now(), Timestamp::now() + left);
    eventually(BOUND, "no pod runs", async || {
        if running() == 0 { Ok(()) } else { Err(running()) }
    })
    .await;
    let took = paused.elapsed();
    println!("the masters hung {left:?} before the lease ends; no pod ran after {took:?}");
    // The kubelet of this process may end the pods late on a busy machine. The times of the deletions are exact.
    assert!(took < left + Duration::from_secs(5), "{took:?} of {left:?}");
    deleted_in_time(&world, lease_end);
    by_template.ends(paused).await;
    leaves_a_margin(&operator, 2.0).await;
    assert_writes(&world);
    for master in &world.masters {
        master.resume().unwrap();
    }
}
