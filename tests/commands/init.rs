//! Tests `redlock init` and `redlock reseal`.

use crate::program::{quorum, redlock, urls};
use redlock_testkit::{RedisServers, ServerOptions, admin};

#[test]
fn new_masters_are_sealed_once() {
    let (servers, urls) = quorum();
    redlock(&["init", "--masters", &urls]).expect(78, &["m0 is in use", "redlock:meta"]);
    // Another prefix is another quorum on the same servers.
    let ran = redlock(&[
        "init",
        "--key-prefix",
        "two",
        "--max-lease-duration",
        "5s",
        "--masters",
        &urls,
    ]);
    ran.expect(
        0,
        &[
            "longestLeaseMilliseconds=5000",
            "m2 (redis://127.0.0.1:",
            "): sealed",
            "fencing tokens begin above",
            "the masters have the names m0, m1, m2: a RedisQuorum that uses them needs the same names",
        ],
    );
    redlock(&["status", "--key-prefix", "two", "--masters", &urls])
        .expect(0, &["longestLeaseMilliseconds=5000"]);
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
    redlock(&["init", "--key-prefix", "four", "--masters", &urls]).expect(69, &["m1 cannot be reached"]);
}

#[tokio::test]
async fn a_master_with_a_key_is_not_new() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let _: String = admin(&servers[1], &["SET", "redlock:lease:x", "y"]).await;
    redlock(&["init", "--masters", &urls(&servers)]).expect(78, &["m1 is in use", "redlock:lease:x"]);
}

#[test]
fn reseal_needs_the_accepted_loss_and_refuses_while_a_majority_votes() {
    let (servers, urls) = quorum();
    redlock(&["reseal", "--masters", &urls]).expect(64, &["--accept-loss"]);
    redlock(&["reseal", "--accept-loss", "--masters", &urls]).expect(0, &["nothing to do"]);
    servers[1].restart_empty().unwrap();
    redlock(&["reseal", "--accept-loss", "--masters", &urls]).expect(1, &["resealing is not needed for m1"]);
}

#[test]
fn reseal_seals_the_remaining_masters_when_a_majority_is_lost_for_good() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let urls = urls(&servers);
    redlock(&["init", "--max-lease-duration", "2s", "--masters", &urls]).expect(0, &[]);
    servers[0].kill();
    servers[1].restart_empty().unwrap();
    // 2 s × 1.02 + 2 × 2 s, rounded up.
    let ran = redlock(&["reseal", "--accept-loss", "--masters", &urls]);
    ran.expect(0, &["sealing m1, ", " s left", "m1: sealed"]);
    let output = format!("{}\n{}", ran.stdout, ran.stderr);
    let (_, left) = output.split_once("sealing m1, ").unwrap();
    let left: u64 = left.split(' ').next().unwrap().parse().unwrap();
    assert!((1..=7).contains(&left), "{output}");
    redlock(&["status", "--masters", &urls]).expect(0, &["2 of 3 masters vote"]);
}
