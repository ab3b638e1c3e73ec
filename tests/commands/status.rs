//! Tests `redlock status`.

use std::time::Duration;

use redlock::masters::{Agreement, adopt};

use crate::program::{quorum, redlock, redlock_until, urls};
use redlock_testkit::masters::{acquire_soon_for, config};
use redlock_testkit::{RedisServers, ServerOptions, admin, eventually};

const BOUND: Duration = Duration::from_secs(60);

#[tokio::test]
async fn shows_the_holders_by_the_answer_of_each_master() {
    let (servers, urls) = quorum();
    let adopted = adopt(config(&servers), Agreement::Majority).await.unwrap();
    let (masters, _notices, _tasks) = adopted.open().unwrap();
    masters
        .wait_for_first_poll(Duration::from_secs(20), |_| false)
        .await;
    let lease_duration = Duration::from_secs(30);
    let lease = acquire_soon_for(&masters, "billing/nightly", "pod-1", lease_duration).await;
    // The grant of one master may arrive later than those of the majority.
    eventually(BOUND, "the lease at m2 is deleted", async || {
        match admin(&servers[2], &["DEL", "redlock:lease:billing/nightly"]).await {
            1 => Ok(()),
            other => Err::<(), i64>(other),
        }
    })
    .await;
    let _: String = admin(&servers[2], &["SET", "redlock:lease:other", "by hand"]).await;

    let table = redlock_until(
        &["status", "--masters", &urls],
        0,
        &[
            "3 of 3 masters vote",
            "quorum id: ",
            "billing/nightly",
            "pod-1",
            "test/test",
            "2/3",
            "  at m2",
            "noeviction",
        ],
    );
    assert!(
        !table.stdout.contains("at m0"),
        "m0 shows what all show: {table:#?}"
    );

    let arguments = [
        "status",
        "billing/nightly",
        "other",
        "--registers",
        "-o",
        "json",
        "--masters",
        &urls,
    ];
    // What the first and the last master answered.
    let json = redlock_until(&arguments, 0, &["\"pod-1\"", "\"by hand\""]).json();
    let lock = &json["locks"][0];
    assert_eq!(lock["state"], "held");
    assert_eq!(lock["holderIdentity"], "pod-1");
    assert_eq!(lock["holderCluster"], "test/test");
    assert_eq!(lock["fencingToken"], json["masters"][0]["counter"]);
    let left = lock["remainingMilliseconds"].as_u64().unwrap();
    assert!((1..=30_000).contains(&left), "{left}");
    assert_eq!(lock["accounts"][2]["holder"], serde_json::Value::Null);
    assert_eq!(json["locks"][1]["accounts"][2]["unreadable"], "by hand");
    assert!(json["masters"][0]["registers"]["slotFloor"].is_string());
    assert_eq!(json["masters"][1]["sealed"], true);
    drop(lease);
}

#[tokio::test]
async fn one_master_away_is_shown_and_two_are_no_quorum() {
    let (servers, urls) = quorum();
    servers[1].pause().unwrap();
    redlock_until(
        &["status", "--masters", &urls],
        0,
        &["2 of 3 masters vote", "unreachable", "m1: no answer within"],
    );
    servers[0].kill();
    redlock_until(
        &["status", "--masters", &urls],
        69,
        &[
            "0 of 3 masters vote",
            "refused",
            "too few masters answer to exclude one",
        ],
    );
    servers[1].kill();
    servers[2].kill();
    redlock(&["status", "x", "--masters", &urls]).expect(69, &["unknown"]);
}

#[test]
fn new_masters_are_not_sealed_and_shown_as_such() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let urls = urls(&servers);
    redlock_until(
        &["status", "--masters", &urls],
        0,
        &["not sealed", "no lock is held", "not read from the masters"],
    );
}

#[tokio::test]
async fn a_master_under_quarantine_shows_the_seconds_that_are_left() {
    let (servers, urls) = quorum();
    let adopted = adopt(config(&servers), Agreement::Majority).await.unwrap();
    // A client that seals masters.
    let (_masters, _notices, _tasks) = adopted.open().unwrap();
    servers[1].restart_empty().unwrap();
    eventually(BOUND, "sealing", async || {
        let ran = redlock(&["status", "-o", "json", "--masters", &urls]);
        if ran.code != Some(0) {
            return Err(ran);
        }
        match ran.json()["masters"][1]["sealSecondsLeft"].as_u64() {
            Some(left) if (1..=66).contains(&left) => Ok(()),
            _ => Err(ran),
        }
    })
    .await;
    redlock_until(&["status", "--masters", &urls], 0, &["sealing, ", " s left"]);
    redlock_until(&["doctor", "--masters", &urls], 1, &["✗ sealed", "sealing, "]);
}
