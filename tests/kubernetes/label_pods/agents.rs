//! `candidates: Agents`: the pod of whoever holds the lock has the label.

use std::time::Instant;

use redlock::lease::ClusterId;

use super::agent::{Agent, own_cluster};
use super::web::Web;
use super::{LEASE, SELECTOR, enforced, labelling, labels, world};
use crate::world::message;

#[tokio::test(flavor = "multi_thread")]
async fn of_agents_the_pod_that_holds_the_lock_has_the_label() {
    let world = world().await;
    let web = Web::of(&world);
    let namespace = world.namespace.name();
    let mut identities = Vec::new();
    for name in ["web-0", "web-1"] {
        let uid = web.make(name, labels()).await;
        identities.push(format!("{namespace}/{name}/{uid}"));
    }
    // The readiness of pods says nothing of who holds the lock.
    web.ready("web-1", true).await;
    let one = world.operator("replica-1").await;
    let two = world.operator("replica-2").await;
    world.apply(&labelling("web", ", candidates: Agents", SELECTOR));
    let own = own_cluster(&world).await;
    let first = Agent::start(&world, "web", &identities[0], own.clone()).await;
    first.holds().await;
    web.until(&["web-0"]).await;
    let status = world
        .lock_status("web", "is active", |status| status["role"] == "Active")
        .await;
    assert_eq!(status["holderIdentity"], identities[0]);
    // Also when another one takes it, which is told, and when the holder is killed, which nobody tells.
    let second = Agent::start(&world, "web", &identities[1], own.clone()).await;
    let asked = Instant::now();
    first.release().await;
    web.until(&["web-1"]).await;
    println!("moved {:?} after the release", asked.elapsed());
    second.kill();
    let asked = Instant::now();
    web.until(&[]).await;
    println!("taken off {:?} after the holder was killed", asked.elapsed());
    assert!(asked.elapsed() < LEASE * 2);
    // Another cluster's is not ours, whatever its name; nor is a pod that was made anew.
    let other = ClusterId::new("elsewhere", "elsewhere").unwrap();
    let elsewhere = Agent::start(&world, "web", &identities[0], other).await;
    elsewhere.holds().await;
    elsewhere.release().await;
    let gone = format!("{namespace}/web-0/another-uid");
    let stranger = Agent::start(&world, "web", &gone, own).await;
    stranger.holds().await;
    let status = enforced(&world, "HolderNotSelected").await;
    println!("{}", message(&status, "Enforced"));
    assert_eq!(web.sightings.now().len(), 0);
    stranger.release().await;
    // By whichever replica was first. One that has only just started, and has seen no lease yet, may take off once what the
    // other gave.
    let seen: Vec<Vec<String>> = web
        .sightings
        .all()
        .into_iter()
        .map(|(_, names)| names.into_iter().collect())
        .collect();
    println!("{seen:?}");
    assert!(
        (5..=9).contains(&seen.len()),
        "they undo what the other does: {seen:?}"
    );
    assert_eq!(web.sightings.doubles(), 0);
    drop((one, two));
}
