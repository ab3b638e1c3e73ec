//! Tests each step and argument of "Distributed Locks with Redis" (redis.io, the page that describes
//! Redlock). Each test is named after a step or an argument.

use std::time::Instant;

use redis::AsyncCommands;
use redlock_client::clock;
use redlock_client::lease::timing;
use redlock_client::masters::Renewal;

use crate::lease::{UNHURRIED, authority, eventually_values, three, unhurried, value};
use crate::renew::{MINUTE, held_for_a_minute};
use crate::seal::{raw, sealed};
use redlock_testkit::ServerOptions;
use redlock_testkit::masters::{LONGEST_LEASE, config, open};

#[tokio::test]
async fn safety_property_mutual_exclusion_at_any_moment_only_one_client_can_hold_a_lock() {
    let (servers, masters) = sealed(5, &ServerOptions::default()).await;
    let mut others = Vec::new();
    for _ in 0..3 {
        let other = open(&config(&servers));
        other.voters(5).await;
        others.push(other);
    }
    for round in 0..30 {
        let lock = format!("exclusive/{round}");
        let (a, b, c, d) = tokio::join!(
            masters.try_acquire(&lock, "a"),
            others[0].try_acquire(&lock, "b"),
            others[1].try_acquire(&lock, "c"),
            others[2].try_acquire(&lock, "d"),
        );
        let now = clock::now();
        let held = [a, b, c, d]
            .iter()
            .flatten()
            .filter(|l| l.authority_at(now).is_some())
            .count();
        assert!(held <= 1, "{held} holders of {lock}");
    }
}

#[tokio::test]
async fn liveness_property_a_deadlock_free_it_is_always_possible_to_acquire_even_if_the_holder_crashed() {
    let (_servers, masters) = three().await;
    std::mem::forget(masters.acquire_soon("a/b", "dead").await);
    assert!(masters.try_acquire("a/b", "next").await.is_none());
    let _next = masters.acquire_soon("a/b", "next").await;
}

#[tokio::test]
async fn liveness_property_b_fault_tolerance_as_long_as_the_majority_of_nodes_are_up() {
    let (servers, masters) = sealed(5, &ServerOptions::default()).await;
    servers[0].kill();
    servers[1].kill();
    let mut lease = masters.acquire_soon("a/b", "me").await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    servers[2].kill();
    assert!(
        masters.try_acquire("a/c", "me").await.is_none(),
        "two of five are no majority"
    );
}

#[tokio::test]
async fn single_instance_the_key_is_set_only_if_it_does_not_exist_with_an_expiry_and_a_random_value() {
    let (servers, masters) = three().await;
    let first = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    let one = value(&servers[0], "a/b").await.unwrap();
    assert!(
        masters.try_acquire("a/b", "me").await.is_none(),
        "also the same holder does not get it twice"
    );
    assert!(first.release().await.unwrap());
    let _second = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    let two = value(&servers[0], "a/b").await.unwrap();
    let nonce = |text: &str| text.split('|').nth(4).unwrap().to_owned();
    assert_ne!(
        nonce(&one),
        nonce(&two),
        "unique across all clients and all requests"
    );
}

#[tokio::test]
async fn single_instance_the_key_is_removed_only_if_it_holds_exactly_my_value() {
    let (servers, masters) = three().await;
    let lease = masters.acquire_soon("a/b", "slow").await;
    eventually_values(&servers, "a/b", 3).await;
    // Its lease expired in the meantime, and another client acquired the lock.
    let theirs = "1|test|test|them|000000000000000000000000000000ff|9";
    for server in servers.iter() {
        let _: () = raw(server)
            .await
            .pset_ex("redlock:lease:a/b", theirs, 60_000)
            .await
            .unwrap();
    }
    assert!(!lease.release().await.unwrap());
    eventually_values(&servers, "a/b", 3).await;
}

#[tokio::test]
async fn step_1_the_current_time_is_taken_before_anything_is_sent() {
    let (_servers, masters) = three().await;
    let before = clock::now();
    let lease = masters.acquire_soon("a/b", "me").await;
    let after = clock::now();
    let started = authority(&lease).valid_until + timing::drift(LONGEST_LEASE) - LONGEST_LEASE;
    assert!(before <= started && started <= after);
}

#[tokio::test]
async fn step_2_the_same_key_and_value_in_all_instances_and_a_down_instance_does_not_block() {
    let (servers, masters) = unhurried(5).await;
    servers[4].pause().unwrap();
    let started = Instant::now();
    let _lease = masters.try_acquire("a/b", "me").await.unwrap();
    assert!(
        started.elapsed() < UNHURRIED * 3 / 4,
        "nobody waits for it: {:?}",
        started.elapsed()
    );
    eventually_values(&servers[..4], "a/b", 4).await;
    let mut texts = Vec::new();
    for server in &servers[..4] {
        texts.push(value(server, "a/b").await.unwrap());
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    servers[4].resume().unwrap();
}

#[tokio::test]
async fn step_3_acquired_only_with_a_majority_and_less_time_elapsed_than_the_validity() {
    let (servers, masters) = three().await;
    for server in &servers[..2] {
        server.pause().unwrap();
    }
    assert!(
        masters.try_acquire("a/b", "me").await.is_none(),
        "one of three is no majority"
    );
    for server in &servers[..2] {
        server.resume().unwrap();
    }
}

#[tokio::test]
async fn step_4_the_validity_is_the_initial_one_minus_the_time_elapsed_minus_the_drift() {
    let (_servers, _masters, lease) = held_for_a_minute().await;
    let left = authority(&lease).valid_until.left(clock::now());
    assert!(left < MINUTE - timing::drift(MINUTE));
    assert!(left > MINUTE / 2, "a round takes less than half a minute");
}

#[tokio::test]
async fn step_5_a_client_that_failed_unlocks_all_instances_even_those_it_believes_it_did_not_lock() {
    let (servers, masters) = three().await;
    // This master runs the grant, but its answer does not arrive in time.
    servers[2].pause().unwrap();
    let theirs = "1|test|test|them|000000000000000000000000000000ff|1";
    let _: () = raw(&servers[0])
        .await
        .pset_ex("redlock:lease:a/b", theirs, 60_000)
        .await
        .unwrap();
    assert!(masters.try_acquire("a/b", "me").await.is_none());
    servers[2].resume().unwrap();
    eventually_values(&servers[1..], "a/b", 0).await;
}

#[tokio::test]
async fn releasing_a_lock_is_for_all_instances_whether_or_not_the_client_believes_it_locked_them() {
    let (servers, masters) = three().await;
    let lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(lease.release().await.unwrap());
    eventually_values(&servers, "a/b", 0).await;
}

#[tokio::test]
async fn retry_on_failure_clients_that_compete_are_not_blocked_by_each_other_for_good() {
    let (servers, masters) = sealed(5, &ServerOptions::default()).await;
    let (a, b) = (open(&config(&servers)), open(&config(&servers)));
    a.voters(5).await;
    b.voters(5).await;
    // The remains of a split are undone at once, so a candidate wins long before a lease would have expired.
    let started = Instant::now();
    for round in 0..20 {
        let lock = format!("split/{round}");
        let (x, y, z) = tokio::join!(
            masters.try_acquire(&lock, "x"),
            a.try_acquire(&lock, "y"),
            b.try_acquire(&lock, "z")
        );
        if [&x, &y, &z].iter().all(|lease| lease.is_none()) {
            let _winner = masters.acquire_soon(&lock, "x").await;
        }
    }
    assert!(started.elapsed() < LONGEST_LEASE * 10, "{:?}", started.elapsed());
}

#[tokio::test]
async fn extending_a_lock_needs_a_majority_and_a_lease_that_is_still_valid() {
    let (servers, masters) = three().await;
    let mut lease = masters.acquire_soon("a/b", "me").await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    clock::sleep_until(authority(&lease).valid_until).await;
    assert_eq!(
        lease.renew().await.unwrap(),
        Renewal::Lost,
        "the lease has ended for its holder, also if masters still store it"
    );
    drop(servers);
}

#[tokio::test]
async fn performance_crash_recovery_a_restarted_master_grants_no_held_lock() {
    let (servers, masters) = three().await;
    let _lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    // Master 1 loses its memory, master 2 is not reachable: the page's own example of a second holder.
    servers[0].restart_empty().unwrap();
    servers[1].pause().unwrap();
    assert!(masters.try_acquire("a/b", "other").await.is_none());
    servers[1].resume().unwrap();
}
