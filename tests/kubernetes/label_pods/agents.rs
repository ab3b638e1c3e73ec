//! Tests `candidates: Agents`: the pod of the agent that holds the lock has the label, and changes of the lock are
//! reported.

use std::time::Instant;

use redlock::lease::ClusterId;

use super::agent::own_cluster;
use super::process::AgentProcess;
use super::web::Web;
use super::{LEASE, SELECTOR, enforced, labelling, labels, world};
use crate::world::message;

#[tokio::test(flavor = "multi_thread")]
async fn of_agents_the_pod_that_holds_the_lock_has_the_label() {
    let world = world().await;
    let web = Web::of(&world);
    let namespace = world.namespace.name();
    let mut uids = Vec::new();
    for name in ["web-0", "web-1"] {
        uids.push(web.make(name, labels()).await);
    }
    // The readiness of pods does not show the holder of the lock.
    web.ready("web-1", true).await;
    let one = world.operator("replica-1").await;
    let two = world.operator("replica-2").await;
    world.apply(&labelling("web", ", candidates: Agents", SELECTOR));
    let own = own_cluster(&world).await;
    let start = |pod: usize, cluster: &ClusterId| {
        AgentProcess::start(&world, ["web-0", "web-1"][pod], &uids[pod], cluster, LEASE)
    };
    let status_of = async |what: &str, role: &str, holder: &str| {
        world
            .lock_status("web", what, |status| {
                status["role"] == role && status["holderIdentity"] == holder
            })
            .await
    };
    let identity = |pod: usize| format!("{namespace}/web-{pod}/{}", uids[pod]);
    let first = start(0, &own);
    first.holds().await;
    web.until(&["web-0"]).await;
    status_of("is active", "Active", &identity(0)).await;
    let note = world.event_message("web", "Acquired").await;
    assert!(
        note.contains(&identity(0)) && note.contains("acquired the lock"),
        "{note}"
    );

    // The same is true if another agent takes it, which is reported, or if the holder is killed, which is
    // not.
    let second = start(1, &own);
    second.stands_by().await;
    let asked = Instant::now();
    first.release();
    web.until(&["web-1"]).await;
    println!("moved {:?} after SIGTERM", asked.elapsed());
    let status = status_of("is active", "Active", &identity(1)).await;
    println!("{}", message(&status, "Held"));
    second.kill();
    let asked = Instant::now();
    web.until(&[]).await;
    println!("taken off {:?} after the holder was killed", asked.elapsed());
    assert!(asked.elapsed() < LEASE * 2);
    let note = world.event_message("web", "LeaseLost").await;
    assert!(note.contains(&identity(1)), "{note}");

    // The pod of an agent of another cluster does not count, even under the same name; nor does a pod that was
    // created again.
    let other = ClusterId::new(own.name(), "another-uid").unwrap();
    let elsewhere = start(0, &other);
    elsewhere.holds().await;
    let status = status_of("stands by", "Standby", &identity(0)).await;
    assert_eq!(
        status["holderCluster"],
        other.to_string(),
        "its UID is reported, too"
    );
    elsewhere.release();
    let stranger = AgentProcess::start(&world, "web-0", "another-uid", &own, LEASE);
    stranger.holds().await;
    let status = enforced(&world, "HolderNotSelected").await;
    println!("{}", message(&status, "Enforced"));
    assert_eq!(web.sightings.now().len(), 0);
    stranger.release();

    // The holder is killed while another agent waits.
    let first = start(0, &own);
    first.holds().await;
    web.until(&["web-0"]).await;
    let second = start(1, &own);
    second.stands_by().await;
    first.kill();
    web.until(&["web-1"]).await;
    let note = world.event_message("web", "TakenOver").await;
    assert!(note.contains(&identity(1)), "{note}");
    second.release();
    web.until(&[]).await;
    let note = world.event_message("web", "Released").await;
    assert!(note.contains("released the lock"), "{note}");

    // Either replica may be the first to write. A replica that has just started, and has seen no lease yet,
    // may once remove the label that the other replica set.
    let seen: Vec<Vec<String>> = web
        .sightings
        .all()
        .into_iter()
        .map(|(_, names)| names.into_iter().collect())
        .collect();
    println!("{seen:?}");
    assert!(
        (9..=13).contains(&seen.len()),
        "they undo what the other does: {seen:?}"
    );
    // The same pod gets the lock repeatedly: no other writer gave it the label.
    for _ in 0..3 {
        let again = start(1, &own);
        again.holds().await;
        web.until(&["web-1"]).await;
        again.release();
        web.until(&[]).await;
    }
    assert_eq!(world.events("web", "StoppedAgain").await, [""; 0]);
    assert_eq!(web.sightings.doubles(), 0);
    drop((one, two));
}
