//! Tests that the label is lost with the holder: neither too early nor too late.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use redlock::lease::ClusterId;

use super::agent::Agent;
use super::web::Web;
use super::{LEASE, SELECTOR, TOKEN, labelling, labels, world};
use crate::fixture::{BOUND, Operator};
use crate::world::{World, throughout};
use redlock_testkit::{RedisServer, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lock_leaves_no_label_behind_before_its_lease_has_run_out() {
    let world = world().await;
    let web = Web::of(&world);
    web.make("web-0", labels()).await;
    web.ready("web-0", true).await;
    let operator = world.operator("replica-1").await;
    world.apply(&labelling("web", "", SELECTOR));
    web.until(&["web-0"]).await;
    let token = web.get("web-0").await.annotations()[TOKEN].clone();
    let other = ClusterId::new("elsewhere", "elsewhere").unwrap();
    let elsewhere = Agent::start(&world, "web", "there", other).await;

    // One master remains, which would accept a release at once.
    for master in &world.masters[1..] {
        master.pause().unwrap();
    }
    let mut promised = Instant::now();
    eventually(BOUND, "no label", async || {
        let asked = Instant::now();
        let seen = operator.lock("web");
        if seen["role"] == "Active" {
            // Each answer gives a lower bound, which a late answer makes smaller.
            let valid = Duration::from_millis(seen["validForMilliseconds"].as_u64().unwrap());
            promised = promised.max(asked + valid);
        }
        let labelled = web.sightings.now();
        if labelled.is_empty() {
            Ok(())
        } else {
            Err((labelled, seen))
        }
    })
    .await;
    let (gone, _) = web.sightings.all().last().cloned().unwrap();
    println!(
        "taken off {:?} before valid_until",
        promised.saturating_duration_since(gone)
    );
    assert!(gone < promised);
    web.bare("web-0").await;
    let left = lease_of(&world, &world.masters[0]);
    assert!(left.contains("replica-1"), "released before it ran out: {left:?}");
    for master in &world.masters[1..] {
        master.resume().unwrap();
    }
    // Whichever cluster holds it: one lease, one label, and this cluster has the label only with the lock.
    let held = eventually(BOUND, "held again", async || {
        let seen = operator.lock("web");
        match seen["holderIdentity"].as_str() {
            Some(holder) => Ok(holder.to_owned()),
            None => Err(seen),
        }
    })
    .await;
    println!("held again by {held}");
    if held == "there" {
        elsewhere.holds().await;
        assert!(web.sightings.now().is_empty());
    }
    // The other cluster releases the lock: the pod is adopted here, under a larger token.
    elsewhere.release().await;
    web.until(&["web-0"]).await;
    let anew = web.get("web-0").await.annotations()[TOKEN].clone();
    assert!(
        anew.parse::<u64>().unwrap() > token.parse().unwrap(),
        "{token} then {anew}"
    );
    assert_eq!(web.sightings.doubles(), 0);
}

/// Returns the lease on one master, read with a plain command.
fn lease_of(world: &World, master: &RedisServer) -> String {
    let key = format!("redlock:lease:{}/web", world.namespace.name());
    let url = master.url();
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_connection().unwrap();
    let found: Option<String> = redis::cmd("GET").arg(key).query(&mut connection).unwrap();
    found.unwrap_or_default()
}

/// Returns a new replica that has seen the lease of the holder.
async fn sibling(world: &World, web: &Web, identity: &str, holder: &str) -> Operator {
    let replica = world.operator(identity).await;
    replica.until_holder("web", holder).await;
    // A replica that has started, and has seen no lease yet, may remove the label once.
    throughout(Duration::from_secs(3), || ()).await;
    web.until(&["web-0"]).await;
    replica
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sibling_adopts_the_label_and_takes_it_off_where_it_cannot_win() {
    let world = world().await;
    let web = Web::of(&world);
    for name in ["web-0", "web-1"] {
        web.make(name, labels()).await;
        web.ready(name, true).await;
    }
    let mut first = world.operator("replica-1").await;
    world.apply(&labelling("web", "", SELECTOR));
    web.until(&["web-0"]).await;
    let mut second = sibling(&world, &web, "replica-2", "replica-1").await;

    // One of two operators crashes: a watcher of the Service sees no change.
    let before = (
        web.sightings.all().len(),
        web.get("web-0").await.annotations()[TOKEN].clone(),
    );
    first.child.kill();
    eventually(BOUND, "the token of the sibling", async || {
        let token = web.get("web-0").await.annotations().get(TOKEN).cloned();
        if token.as_ref().is_some_and(|token| *token != before.1) {
            Ok(())
        } else {
            Err(token)
        }
    })
    .await;
    assert_eq!(web.sightings.all().len(), before.0, "{:?}", web.sightings.all());

    // No replica here can win: another cluster might, 5 s after the lease has ended uncleanly.
    let _third = sibling(&world, &web, "replica-3", "replica-2").await;
    for master in &world.masters {
        master.pause().unwrap();
    }
    // The time before the question: an answer that arrives late would move the end of the lease.
    let asked = Instant::now();
    let valid = second.lock("web")["validForMilliseconds"].as_u64().unwrap();
    let until = asked + Duration::from_millis(valid);
    second.child.kill();
    web.until(&[]).await;
    let (gone, _) = web.sightings.all().last().cloned().unwrap();
    println!(
        "taken off {:?} after the lease had ended",
        gone.saturating_duration_since(until)
    );
    assert!(gone > until, "a sibling that could still adopt it took it off");
    assert!(gone < until + LEASE, "long after another cluster has begun");
    for master in &world.masters {
        master.resume().unwrap();
    }
    web.until(&["web-0"]).await;
    assert_eq!(web.sightings.doubles(), 0);
}
