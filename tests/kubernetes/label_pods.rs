//! Tests LabelPods: one pod of a selector has the label where the lock is held, and no pod elsewhere.

#[path = "label_pods/agent.rs"]
mod agent;
#[path = "label_pods/agents.rs"]
mod agents;
#[path = "label_pods/lost.rs"]
mod lost;
#[path = "label_pods/process.rs"]
mod process;
#[path = "label_pods/rollout.rs"]
mod rollout;
#[path = "label_pods/sightings.rs"]
mod sightings;
#[path = "label_pods/web.rs"]
mod web;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::fixture::BOUND;
use crate::world::{World, condition, lock, message};
pub use agent::Agent;
use redlock_testkit::eventually;
use web::Web;

const ROLE: &str = "redlock.dev/role";
const TOKEN: &str = "redlock.dev/fencing-token";
const BY: &str = "redlock.dev/labelled-by";
/// The label must be gone in the last part of the lease, which is longer than a busy machine pauses.
const LEASE: Duration = Duration::from_secs(10);
/// The values of the chart that grant the rights.
pub const RIGHTS: [&str; 2] = ["targetKinds[0].group=", "targetKinds[0].resource=pods"];
const SELECTOR: &str =
    "{matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [a, b]}]}";

/// Starts a world without controllers: the test creates the pods itself.
async fn world() -> World {
    let world = World::small(3).await;
    let namespace = world.namespace.name();
    world.plane.install_rbac_with(namespace, &RIGHTS).await;
    world.kubectl(&["create", "serviceaccount", "default"]);
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 10"));
    world
}

/// Returns a lock that labels pods by this selector.
pub fn labelling(name: &str, more: &str, selector: &str) -> String {
    let target =
        format!(", targets: [{{name: web, action: LabelPods, labelPods: {{selector: {selector}}}}}]{more}");
    lock(name, &target).replace("Seconds: 6", "Seconds: 10")
}

fn labels() -> Value {
    json!({"app": "web", "tier": "a"})
}

/// Covers the test of rights: a pod gets the label and loses it.
pub async fn use_every_right(world: &World) {
    let web = Web::of(world);
    web.make("web-0", labels()).await;
    web.ready("web-0", true).await;
    world.apply(&labelling("web", "", SELECTOR));
    web.until(&["web-0"]).await;
    world.kubectl(&["delete", "ll", "web", "--timeout=60s"]);
    web.until(&[]).await;
}

async fn enforced(world: &World, reason: &str) -> Value {
    world
        .lock_status("web", reason, |status| condition(status, "Enforced").1 == reason)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_ready_pod_of_the_selector_has_the_label_and_it_moves() {
    // More moves to measure, as in docs/targets.md.
    let moves: usize = std::env::var("REDLOCK_MOVES").map_or(6, |count| count.parse().unwrap());
    let world = world().await;
    let web = Web::of(&world);
    for name in ["web-0", "web-1", "web-2"] {
        web.make(name, labels()).await;
    }
    web.make("other", json!({"app": "web", "tier": "c"})).await;
    web.ready("other", true).await;
    let _operator = world.operator("replica-1").await;
    world.apply(&labelling("web", "", SELECTOR));
    let status = enforced(&world, "NoReadyPod").await;
    println!("{}", message(&status, "Enforced"));
    assert_eq!(
        (&status["role"], &status["targets"][0]["observed"]),
        (&"Activating".into(), &"Changing".into())
    );

    // The first ready pod gets the label, and keeps it.
    let asked = web.ready("web-1", true).await;
    web.until(&["web-1"]).await;
    println!("labelled {:?} after it was ready", asked.elapsed());
    let status = enforced(&world, "AsDeclared").await;
    assert_eq!(
        (&status["role"], &status["targets"][0]["observed"]),
        (&"Active".into(), &"Active".into())
    );
    for name in ["web-0", "web-2"] {
        web.ready(name, true).await;
    }
    carries_the_token(&world, &web, &status["fencingToken"]).await;
    let taken = it_moves(&web, moves).await;
    println!("{}", world.event_message("web", "PodLabelled").await);
    a_terminating_pod_loses_the_label(&web, &taken).await;
    assert_eq!(web.sightings.doubles(), 0, "{:#?}", web.sightings.all());
    a_renewal_causes_no_request(&world).await;
    pod_events_cause_no_list(&world, &web).await;
    other_hands(&world, &web).await;
    another_selector(&world, &web).await;

    // The lock is given up: the label is removed before the release.
    let stepped = "state: SteppedDown, reason: test";
    world.apply(&labelling(
        "web",
        &format!(", {stepped}"),
        "{matchLabels: {app: api}}",
    ));
    web.until(&[]).await;
    web.bare("web-0").await;
    world
        .lock_status("web", "stands by", |status| status["role"] == "Standby")
        .await;
    web.change("web-2", json!({"labels": {ROLE: "active"}})).await;
    web.change("web-0", json!({"labels": {ROLE: "active"}})).await;
    web.until(&["web-2"]).await;
    world.apply(&labelling("web", "", "{matchLabels: {app: api}}"));
    web.until(&["web-0", "web-2"]).await;
    world.kubectl(&["delete", "ll", "web", "--timeout=60s"]);
    web.until(&["web-2"]).await;
}

/// Asserts that the pod has the token, and which client wrote the annotation.
async fn carries_the_token(world: &World, web: &Web, token: &Value) {
    let pod = web.get("web-1").await;
    assert_eq!(pod.annotations()[TOKEN], token.to_string());
    assert_eq!(
        pod.annotations()[BY],
        format!("{}/web/web", world.namespace.name())
    );
    let owners: Vec<_> = pod
        .managed_fields()
        .iter()
        .filter(|entry| entry.fields_v1.as_ref().unwrap().0.to_string().contains(ROLE))
        .map(|entry| {
            (
                entry.manager.as_deref().unwrap(),
                entry.operation.as_deref().unwrap(),
            )
        })
        .collect();
    assert_eq!(owners, [("redlock-operator-label-pods", "Update")]);
}

fn shares(what: &str, mut all: Vec<Duration>) {
    all.sort_unstable();
    let at = |share: usize| all[(all.len() * share / 100).min(all.len() - 1)];
    println!("{what}: p50 {:?}, p99 {:?} (n = {})", at(50), at(99), all.len());
}

/// Moves the label from a pod that becomes unready to another one; returns the last one with the label.
async fn it_moves(web: &Web, moves: usize) -> String {
    let (mut moved, mut gaps) = (Vec::new(), Vec::new());
    let mut active = "web-1".to_owned();
    let all = ["web-0", "web-1", "web-2"];
    for _ in 0..moves {
        let asked = web.ready(&active, false).await;
        let others: Vec<&str> = all.into_iter().filter(|name| *name != active).collect();
        let next = web.until_one_of(&others).await;
        let (none, given) = web.sightings.gap_after(asked).unwrap();
        moved.push(given - asked);
        gaps.push(given - none);
        web.bare(&active).await;
        web.ready(&active, true).await;
        active = next;
    }
    shares("from unready to the label on another", moved);
    shares("without any label", gaps);
    active
}

/// Deletes the active pod: its process may still run, and the pod may even be ready.
async fn a_terminating_pod_loses_the_label(web: &Web, active: &str) {
    web.change(active, json!({"finalizers": ["test.example/hold"]}))
        .await;
    web.delete(active).await;
    let others: Vec<&str> = ["web-0", "web-1", "web-2"]
        .into_iter()
        .filter(|name| *name != active)
        .collect();
    web.until_one_of(&others).await;
    web.bare(active).await;
    web.change(active, json!({"finalizers": null})).await;
    eventually(BOUND, "it is gone", async || {
        let names = web.names().await;
        if names.contains(active) {
            Err(names)
        } else {
            Ok(())
        }
    })
    .await;
    web.make(active, labels()).await;
    web.ready(active, true).await;
}

/// Asserts that a renewal causes no request.
async fn a_renewal_causes_no_request(world: &World) {
    let pods = |world: &World| {
        let requests = world.requests().into_iter();
        requests
            .filter(|event| {
                event
                    .object_ref
                    .as_ref()
                    .is_some_and(|object| object.resource == "pods")
            })
            .count()
    };
    enforced(world, "AsDeclared").await;
    // Waits for the last events of the previous part.
    eventually(BOUND, "nothing is asked any more", async || {
        let before = pods(world);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = pods(world);
        if now == before { Ok(()) } else { Err((before, now)) }
    })
    .await;
    let before = pods(world);
    let renewed = Instant::now();
    eventually(BOUND, "two renewals", async || {
        if renewed.elapsed() > LEASE {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    assert_eq!(pods(world), before, "pods are asked for although nothing changes");
}

/// Changes of readiness cause no list while another pod has the label.
async fn pod_events_cause_no_list(world: &World, web: &Web) {
    let all = ["web-0", "web-1", "web-2"];
    let active = web.until_one_of(&all).await;
    let other = all.into_iter().find(|name| *name != active).unwrap();
    let lists = || {
        let requests = world.requests().into_iter();
        let of_pods = |event: &crate::fixture::audit::Event| {
            event.verb == "list"
                && event
                    .object_ref
                    .as_ref()
                    .is_some_and(|object| object.resource == "pods")
        };
        requests.filter(of_pods).count()
    };
    let before = lists();
    for ready in [false, true, false, true, false, true, false, true] {
        web.ready(other, ready).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let made = lists() - before;
    println!("{made} lists of pods for 8 pod events");
    // One evaluation of two lists may have been due at the same time.
    assert!(made <= 2, "{made} lists for 8 events");
}

/// Asserts that the operator corrects changes of other clients.
async fn other_hands(world: &World, web: &Web) {
    let all = BTreeSet::from(["web-0", "web-1", "web-2"]);
    let active = web.until_one_of(&["web-0", "web-1", "web-2"]).await;
    // A second label by hand: the watcher may see two, and the operator removes it.
    let second = all.iter().find(|name| **name != active).unwrap();
    let asked = Instant::now();
    web.change(second, json!({"labels": {ROLE: "active"}})).await;
    eventually(BOUND, "the watcher saw two", async || {
        if web.sightings.doubles() > 0 {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    web.until(&[&active]).await;
    println!("a second label by hand was gone after {:?}", asked.elapsed());
    let note = world.event_message("web", "LabelRemoved").await;
    assert!(note.contains("kubectl-label") && note.contains(second), "{note}");

    // The label is removed by hand, and a pod is removed from the selector.
    let asked = Instant::now();
    web.change(&active, json!({"labels": {ROLE: null}})).await;
    eventually(BOUND, "given anew", async || {
        web.sightings.gap_after(asked).ok_or(web.sightings.now())
    })
    .await;
    let active = web.until_one_of(&["web-0", "web-1", "web-2"]).await;
    web.change(&active, json!({"labels": {"app": "quarantine"}}))
        .await;
    let others: Vec<&str> = all.iter().copied().filter(|name| *name != active).collect();
    let next = web.until_one_of(&others).await;
    web.bare(&active).await;
    web.change(&active, json!({"labels": {"app": "web"}})).await;
    web.until(&[&next]).await;

    // A template that contains the label.
    web.make("born", json!({"app": "web", "tier": "b", ROLE: "active"}))
        .await;
    web.until(&[&next]).await;
    let note = world.event_message("web", "TargetNotSafe").await;
    assert!(note.contains("remove the label from the pod template"), "{note}");
    web.delete("born").await;
    enforced(world, "AsDeclared").await;
    web.make("born", json!({"app": "web", "tier": "b", ROLE: "active"}))
        .await;
    web.ready("born", true).await;
    for name in all {
        web.ready(name, false).await;
    }
    web.until(&["born"]).await;
    // The label of another lock.
    web.delete("born").await;
    web.change(
        "web-0",
        json!({"labels": {ROLE: "active"}, "annotations": {BY: "ns/else/web"}}),
    )
    .await;
    web.ready("web-1", true).await;
    let status = enforced(world, "EnforcementConflict").await;
    assert!(message(&status, "Enforced").contains("ns/else/web"), "{status:#}");
    web.until(&["web-0", "web-1"]).await;
    web.change(
        "web-0",
        json!({"labels": {ROLE: null}, "annotations": {BY: null}}),
    )
    .await;
    enforced(world, "AsDeclared").await;
}

async fn another_selector(world: &World, web: &Web) {
    web.change("web-0", json!({"labels": {"app": "api"}})).await;
    web.ready("web-0", true).await;
    world.apply(&labelling("web", "", "{matchLabels: {app: api}}"));
    web.until(&["web-0"]).await;
    web.bare("web-1").await;
}
