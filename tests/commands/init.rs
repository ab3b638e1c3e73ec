//! Tests `redlock init` and `redlock reseal`.

use std::time::Duration;

use crate::program::{init, init_each, quorum, redlock, redlock_until, urls};
use redlock_testkit::{RedisServers, ServerOptions, admin, eventually_blocking};

#[test]
fn new_masters_are_sealed_once() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let urls = urls(&servers);
    // Another prefix is another quorum on the same servers.
    let two = ["--key-prefix", "two", "--max-lease-duration", "5s"];
    let rans = init_each(&servers, &[&[], &two], &[]);
    rans[1].expect(
        0,
        &[
            "longestLeaseMilliseconds=5000",
            "m2 (redis://127.0.0.1:",
            "): sealed",
            "fencing tokens begin above",
            "the masters have the names m0, m1, m2: a RedisQuorum that uses them needs the same names",
        ],
    );
    redlock_until(
        &["init", "--masters", &urls],
        78,
        &["m0 is in use", "redlock:meta"],
    );
    redlock_until(
        &["status", "--key-prefix", "two", "--masters", &urls],
        0,
        &["longestLeaseMilliseconds=5000"],
    );
    let ran = redlock(&[
        "init",
        "--key-prefix",
        "three",
        "--max-lease-duration",
        "1s",
        "--masters",
        &urls,
    ]);
    ran.expect(78, &["--max-lease-duration 1s", "2s"]);
    servers[1].kill();
    redlock_until(
        &["init", "--key-prefix", "four", "--masters", &urls],
        69,
        &["m1 cannot be reached"],
    );
}

#[tokio::test]
async fn a_master_with_a_key_is_not_new() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let _: String = admin(&servers[1], &["SET", "redlock:lease:x", "y"]).await;
    redlock_until(
        &["init", "--masters", &urls(&servers)],
        78,
        &["m1 is in use", "redlock:lease:x"],
    );
}

#[test]
fn reseal_needs_the_accepted_loss_and_refuses_while_a_majority_votes() {
    let (servers, urls) = quorum();
    redlock(&["reseal", "--masters", &urls]).expect(64, &["--accept-loss"]);
    let reseal = ["reseal", "--accept-loss", "--masters", &urls];
    redlock_until(&reseal, 0, &["nothing to do"]);
    servers[1].restart_empty().unwrap();
    redlock_until(&reseal, 1, &["resealing is not needed for m1"]);
}

#[test]
fn reseal_seals_the_remaining_masters_when_a_majority_is_lost_for_good() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let urls = urls(&servers);
    init(&servers, &["--max-lease-duration", "2s"], &[]);
    servers[0].kill();
    // After a late answer, m1 may have a seal already: each attempt begins with an empty m1.
    let ran = eventually_blocking(Duration::from_secs(60), "m1 is sealed", || {
        servers[1].restart_empty().unwrap();
        let ran = redlock(&["reseal", "--accept-loss", "--masters", &urls]);
        if matches!(ran.code, Some(1 | 69)) {
            Err(ran)
        } else {
            Ok(ran)
        }
    });
    // 2 s × 1.02 + 2 × 2 s, rounded up.
    ran.expect(0, &["sealing m1, ", " s left", "m1: sealed"]);
    let output = format!("{}\n{}", ran.stdout, ran.stderr);
    let (_, left) = output.split_once("sealing m1, ").unwrap();
    let left: u64 = left.split(' ').next().unwrap().parse().unwrap();
    assert!((1..=7).contains(&left), "{output}");
    redlock_until(&["status", "--masters", &urls], 0, &["2 of 3 masters vote"]);
}
