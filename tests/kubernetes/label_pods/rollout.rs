//! Tests that in a rollout the label moves once, to a pod of the newest revision.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::{labelling, labels, web::Web, world};
use crate::fixture::kubelet::{Kubelet, Recorder};
use crate::fixture::{BOUND, seed};
use crate::world::{World, condition, throughout};
use redlock_testkit::eventually;

const SELECTOR: &str = "{matchLabels: {app: web}}";

fn of_revision(hash: &str) -> Value {
    let mut labels = labels();
    labels["pod-template-hash"] = hash.into();
    labels
}

/// Creates a pod whose time of creation, which has no fractions of a second, is after that of another.
async fn make_after(web: &Web, name: &str, hash: &str, other: &str) {
    let created = async |name: &str| web.get(name).await.creation_timestamp().unwrap().0;
    let before = created(other).await;
    eventually(BOUND, "a later second", async || {
        web.make(name, of_revision(hash)).await;
        if created(name).await > before {
            return Ok(());
        }
        web.delete(name).await;
        Err(())
    })
    .await;
}

/// Returns the pods that had the label, in order, and the times without a labelled pod between two of them.
fn journey(web: &Web, since: Instant) -> (Vec<String>, Vec<Duration>) {
    let all = web.sightings.all();
    let (mut path, mut gaps) = (Vec::new(), Vec::new());
    let mut without = None;
    for (at, names) in all.iter().filter(|(at, _)| *at >= since) {
        match names.first() {
            None => without = Some(*at),
            Some(name) => {
                gaps.extend(without.take().map(|since| *at - since));
                path.push(name.clone());
            }
        }
    }
    (path, gaps)
}

#[tokio::test(flavor = "multi_thread")]
async fn label_moves_once_in_a_rollout_and_once_in_a_rollback() {
    let world = world().await;
    let web = Web::of(&world);
    for name in ["old-0", "old-1"] {
        web.make(name, of_revision("a")).await;
    }
    web.ready("old-0", true).await;
    let _operator = world.operator("replica-1").await;
    world.apply(&labelling("web", "", SELECTOR));
    web.until(&["old-0"]).await;
    web.ready("old-1", true).await;

    // A pod that is not ready does not move the label; a ready pod does, before the old one ends.
    let began = Instant::now();
    make_after(&web, "new-0", "b", "old-1").await;
    web.ready("old-1", false).await;
    web.ready("old-1", true).await;
    assert_eq!(
        web.get("old-0").await.labels().get(super::ROLE).unwrap(),
        "active"
    );
    web.ready("new-0", true).await;
    web.until(&["new-0"]).await;
    web.delete("old-0").await;
    make_after(&web, "new-1", "b", "old-1").await;
    web.ready("new-1", true).await;
    web.delete("old-1").await;

    // Back to the previous revision: a new pod of the old hash.
    make_after(&web, "again-0", "a", "new-1").await;
    web.ready("again-0", true).await;
    web.until(&["again-0"]).await;
    let (path, gaps) = journey(&web, began);
    println!("{path:?}, without any label {gaps:?}");
    assert_eq!(path, ["new-0", "again-0"]);

    // The pod with the label becomes unready: another one gets it, although its revision is older.
    web.ready("again-0", false).await;
    web.until_one_of(&["new-0", "new-1"]).await;
    assert_eq!(web.sightings.doubles(), 0, "{:#?}", web.sightings.all());
}

#[tokio::test(flavor = "multi_thread")]
async fn label_does_not_follow_a_new_revision_that_gets_ready_and_unready() {
    let world = world().await;
    let web = Web::of(&world);
    web.make("old-0", of_revision("a")).await;
    web.ready("old-0", true).await;
    let _operator = world.operator("replica-1").await;
    world.apply(&labelling("web", "", SELECTOR));
    web.until(&["old-0"]).await;
    let began = Instant::now();
    make_after(&web, "new-0", "b", "old-0").await;
    for _ in 0..4 {
        web.ready_since("new-0", Timestamp::now()).await;
        throughout(Duration::from_millis(500), || {}).await;
        web.ready("new-0", false).await;
    }
    assert_eq!(journey(&web, began).0, Vec::<String>::new());

    // The pod becomes ready and stays ready.
    web.ready_since("new-0", Timestamp::now()).await;
    web.until(&["new-0"]).await;
    let (path, gaps) = journey(&web, began);
    println!("{path:?}, without any label {gaps:?}");
    assert_eq!(path, ["new-0"]);
    // If no Ready pod has the label, the next Ready pod gets it at once. This one has not been Ready for long enough
    // at any time of the test, so it would not get the label later.
    make_after(&web, "newer-0", "c", "new-0").await;
    web.ready_since("newer-0", Timestamp::now() + 2 * BOUND).await;
    web.delete("new-0").await;
    web.until(&["newer-0"]).await;
}

/// The controllers of Kubernetes and a kubelet without containers run it. `REDLOCK_ROLLOUTS=20` to measure.
#[tokio::test(flavor = "multi_thread")]
async fn label_leads_the_rollout_of_a_deployment() {
    let rollouts: usize = std::env::var("REDLOCK_ROLLOUTS").map_or(2, |count| count.parse().unwrap());
    let world = World::new(3).await;
    let namespace = world.namespace.name();
    world.plane.install_rbac_with(namespace, &super::RIGHTS).await;
    let _kubelet = Kubelet::start(&world.plane, "here", seed(), &Recorder::default());
    let quorum = world.quorum("default", "  firstStart: Immediate\n");
    world.apply(&quorum.replace("Seconds: 6", "Seconds: 10"));
    world.apply(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 3\n  \
         selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    \
         spec: {terminationGracePeriodSeconds: 1, containers: [{name: web, image: web}]}\n",
    );
    let web = Web::of(&world);
    let _operator = world.operator("replica-1").await;
    world.apply(&labelling("web", "", SELECTOR));
    let (mut moves, mut gaps) = (Vec::new(), Vec::new());
    for rollout in 0..rollouts {
        world.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
        world
            .lock_status("web", "is settled", |status| {
                condition(status, "Enforced").0 == "True"
            })
            .await;
        let began = Instant::now();
        // Does the same as `rollout restart`, which refuses a second restart within a second.
        let again = format!(
            r#"{{"spec":{{"template":{{"metadata":{{"annotations":{{"restarted":"{rollout}"}}}}}}}}}}"#
        );
        world.kubectl(&["patch", "deployment/web", "--patch", &again]);
        world.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
        let revision = rollout.to_string();
        eventually(BOUND, "a pod of the newest revision has the label", async || {
            let labelled = web.sightings.now();
            let pod = match labelled.first() {
                Some(name) => web.try_get(name).await,
                None => None,
            };
            match pod {
                Some(pod) if pod.annotations().get("restarted") == Some(&revision) => Ok(()),
                _ => Err(labelled),
            }
        })
        .await;
        let (path, without) = journey(&web, began);
        moves.push(path.len());
        gaps.push(without.into_iter().sum::<Duration>());
    }
    println!("moves a rollout {moves:?}, without any label {gaps:?}");
    // Pods of the same second have no order, so the label may move more often.
    assert!(moves.iter().all(|moves| (1..=3).contains(moves)), "{moves:?}");
    assert_eq!(web.sightings.doubles(), 0, "{:#?}", web.sightings.all());
}
