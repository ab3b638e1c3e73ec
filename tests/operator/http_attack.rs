//! Tests that hostile HTTP clients cost the operator no lease, and little memory.

use std::net::SocketAddr;

use crate::replica::{Folder, Replica, masters};
use redlock_testkit::{AttackedPaths, HttpAttack, attack_http, limit_open_files};

/// The default limit of many machines, below the connections of the largest attack.
const OPEN_FILES: u64 = 1_024;
const LOCKS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const PATHS: AttackedPaths = AttackedPaths {
    post: "/sibling",
    get: "/metrics",
};

async fn withstands(attack: HttpAttack) {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &LOCKS);
    let replica = Replica::start_with("r", &folder, |command| limit_open_files(command, OPEN_FILES));
    let before = LOCKS.map(|lock| replica.wait_active(lock));
    let address = SocketAddr::from(([127, 0, 0, 1], replica.port()));
    let report = attack_http(replica.child.pid(), address, attack, PATHS);
    let after = LOCKS.map(|lock| replica.wait_active(lock));
    assert_eq!(after, before, "0 leases lost");
    for lock in LOCKS {
        assert_eq!(replica.lock(lock)["leaseTransitions"], 0, "{lock}");
    }
    report.assert_within_bounds();
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_headers_cost_no_lease() {
    withstands(HttpAttack::UnfinishedHeaders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_cost_no_lease() {
    withstands(HttpAttack::SlowBodies).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn big_posts_cost_no_lease() {
    withstands(HttpAttack::BigPosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_cost_no_lease() {
    withstands(HttpAttack::IdleConnections).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_cost_no_lease() {
    withstands(HttpAttack::SlowReaders).await;
}
