//! Tests `redlock doctor`.

use std::time::Duration;

use crate::program::{init, init_each, quorum, redlock, redlock_until, redlock_until_with, urls};
use redlock_testkit::{
    FakeServer, Persistence, RedisServers, Scripts, ServerOptions, admin, eventually_blocking,
};

#[tokio::test]
async fn healthy_masters_are_reported_healthy_and_no_key_remains() {
    let options = ServerOptions {
        persistence: Persistence::Aof,
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let urls = urls(&servers);
    redlock_until(
        &["doctor", "--masters", &urls],
        69,
        &["✗ sealed", "redlock init", "0 of 3 masters vote"],
    );
    init(&servers, &[], &[]);
    let ran = redlock_until(
        &["doctor", "--verbose", "--masters", &urls],
        0,
        &[
            "✓ version          ",
            "✓ scripts",
            "✓ sealed",
            "✓ persistence",
            "quorum id: ",
            "healthy: 3 of 3 masters vote",
        ],
    );
    let short = redlock_until(
        &["doctor", "--masters", &urls],
        0,
        &["CHECKED", "m2 ", "healthy: 3 of 3 masters vote"],
    );
    assert!(!short.stdout.contains('✓'), "{short:#?}");
    let quiet = redlock_until(&["doctor", "--quiet", "--masters", &urls], 0, &[]);
    assert_eq!(quiet.stdout, "", "{quiet:#?}");
    // On a busy machine an answer may take long, which is reported as a warning.
    let mut lines = ran.stdout.lines().filter(|line| !line.contains("latency"));
    assert!(lines.all(|line| !line.contains(['✗', '!'])), "{ran:#?}");
    let keys: Vec<String> = admin(&servers[0], &["KEYS", "*"]).await;
    assert_eq!(keys, ["redlock:meta"]);

    let ran = redlock_until(
        &["doctor", "--take-turns", "-o", "json", "--masters", &urls],
        0,
        &[],
    );
    let turns = ran.json()["turns"].clone();
    let tokens: Vec<u64> = serde_json::from_value(turns["tokens"].clone()).unwrap();
    assert!(tokens.len() == 3 && tokens.is_sorted_by(|a, b| a < b), "{turns}");
    let keys: Vec<String> = admin(&servers[0], &["KEYS", "*"]).await;
    assert_eq!(keys, ["redlock:meta"]);
    redlock_until(
        &["doctor", "--take-turns", "--masters", &urls],
        0,
        &["✓ a real lock was acquired", "healthy"],
    );

    let json = redlock_until(&["doctor", "-o", "json", "--masters", &urls], 0, &[]).json();
    assert_eq!(json["healthy"], true);
    assert_eq!(json["masters"][2]["checks"][0]["name"], "reachable");
    assert_eq!(json["masters"][2]["checks"][0]["level"], "good");
}

#[test]
fn programs_that_cannot_be_masters_are_refused_by_name() {
    let (servers, _) = quorum();
    let scripts = Scripts::Facts { role: "master" };
    let dragonfly = FakeServer::start(Some("redis_version:7.4.0\ndragonfly_version:df-v1.40.1"), scripts);
    let garnet = FakeServer::start(
        Some("garnet_version:1.1.9\nredis_version:7.4.3"),
        Scripts::Unknown,
    );
    let urls = [dragonfly.url(), servers[0].url(), garnet.url()].join(",");
    let ran = redlock_until(
        &["doctor", "--masters", &urls],
        69,
        &[
            "✗ version",
            "Dragonfly df-v1.40.1 cannot be a master: its INFO has no run_id",
            "Garnet 1.1.9 cannot be a master",
            "use Redis 6.2, Valkey 7.2 or newer",
            "docs/servers.md",
        ],
    );
    assert!(!ran.stdout.contains("same server"), "{ran:#?}");
    let status = redlock_until(
        &["status", "-o", "json", "--masters", &urls],
        0,
        &["\"Dragonfly\""],
    )
    .json();
    assert_eq!(status["masters"][0]["server"], "Dragonfly", "{status:#}");
    assert_eq!(status["masters"][0]["version"], "df-v1.40.1", "{status:#}");
    redlock_until(
        &["status", "--masters", &urls],
        0,
        &["Dragonfly df-v1.40.1", "refused"],
    );
}

#[test]
fn a_hung_master_and_then_no_majority() {
    let (servers, urls) = quorum();
    servers[2].pause().unwrap();
    redlock_until(
        &["doctor", "--masters", &urls],
        1,
        &["✗ reachable", "no answer within", "→", "2 of 3"],
    );
    // A master that answers slowly is also reported.
    eventually_blocking(Duration::from_secs(60), "only m2 is reported", || {
        let quiet = redlock_until(
            &["doctor", "--quiet", "--masters", &urls],
            1,
            &["m2: reachable: "],
        );
        let only = quiet.stdout.lines().all(|line| line.starts_with("m2: "));
        if only { Ok(()) } else { Err(quiet) }
    });
    redlock(&["doctor", "--quiet", "--verbose", "--masters", &urls]).expect(64, &["--verbose"]);
    servers[1].pause().unwrap();
    redlock_until(
        &["doctor", "--take-turns", "--masters", &urls],
        69,
        &["sealed in quorum", "0 of 3", "✗ a real lock was not passed on"],
    );
}

#[tokio::test]
async fn a_replica_an_evicting_master_and_a_server_twice_are_named() {
    let (servers, urls) = quorum();
    let port = servers[0].port().to_string();
    let _: String = admin(&servers[1], &["REPLICAOF", "127.0.0.1", &port]).await;
    redlock_until(
        &["doctor", "--masters", &urls],
        69,
        &[
            "✗ role",
            "the server is a slave",
            "a replica is attached",
            "REPLICAOF NO ONE",
            "✗ scripts",
            "READONLY",
        ],
    );
    let _: String = admin(&servers[1], &["REPLICAOF", "NO", "ONE"]).await;
    let _: String = admin(&servers[2], &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    redlock_until(
        &["doctor", "--masters", &urls],
        69,
        &[
            "✗ eviction",
            "allkeys-lru",
            "CONFIG SET",
            "a replica was attached to the server since it was sealed",
        ],
    );

    let twice = format!(
        "{},redis://localhost:{port},{}",
        servers[0].url(),
        servers[1].url()
    );
    redlock_until(
        &["doctor", "--masters", &twice],
        69,
        &["✗ own server", "same server"],
    );
}

#[test]
fn wrong_password_is_reported_and_never_shown() {
    let options = ServerOptions {
        password: Some("the-right-one".into()),
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let urls = urls(&servers);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "the-wrong-one\n").unwrap();
    let file = file.to_str().unwrap();
    for command in ["doctor", "status", "init"] {
        let arguments = [command, "--masters", &urls, "--password-file", file];
        redlock_until(&arguments, 77, &["WRONGPASS"]).keeps("the-wrong-one");
        redlock_until(&[command, "--masters", &urls], 77, &["NOAUTH"]);
    }
    let password = [("REDLOCK_PASSWORD", "the-right-one")];
    init_each(&servers, &[&[]], &password)[0].keeps("the-right-one");
    redlock_until_with(&["doctor", "--masters", &urls], &password, 0, &[]).keeps("the-right-one");
    let arguments = ["break", "l", "--yes", "--reason", "x", "--masters", &urls];
    redlock_until(&arguments, 77, &["NOAUTH"]);
    // One server has another password: the others vote.
    let missing = [
        "status",
        "--masters",
        &urls,
        "--password-file",
        "/nonexistent/password",
    ];
    redlock(&missing).expect(78, &["--password-file /nonexistent/password: cannot be read"]);
}

#[test]
fn a_lease_that_the_quorum_does_not_grant_is_refused() {
    let (_servers, urls) = quorum();
    let refused = |duration: &str, code, texts: &[&str]| {
        let arguments = ["doctor", "--lease-duration", duration, "--masters", &urls];
        redlock_until(&arguments, code, texts);
    };
    refused("61s", 78, &["61 s", "60 s"]);
    refused("1s", 78, &["--lease-duration 1s", "2s"]);
    refused("15", 64, &["15s, 1500ms, 2m or 1m30s"]);
}

/// A script that counts in doubles would issue the same token twice.
#[tokio::test]
async fn a_counter_that_was_written_to_is_named_and_costs_that_master_its_vote() {
    let (servers, urls) = quorum();
    let beyond = (1_u64 << 53).to_string();
    let _: i64 = admin(&servers[0], &["HSET", "redlock:meta", "counter", &beyond]).await;
    let doctor = ["doctor", "--masters", &urls];
    redlock_until(
        &doctor,
        1,
        &[
            "token of at most 2^53 - 1 expected",
            "redlock:meta",
            "2 of 3 masters vote",
        ],
    );
    let _: i64 = admin(&servers[0], &["DEL", "redlock:meta"]).await;
    redlock_until(&doctor, 1, &["not sealed", "2 of 3 masters vote"]);
}

/// The lock is free and not reserved: only the user has no permission to take it.
#[test]
fn a_missing_permission_is_named_with_its_rule() {
    let of = |name: &str, but: &str| {
        format!("{name} on >secret resetkeys resetchannels ~redlock:* &redlock:released +@all {but}")
    };
    let options = ServerOptions {
        users: vec![of("no-set", "-set"), of("no-info", "-info")],
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let urls = urls(&servers);
    init(&servers, &[], &[]);
    let by = |user: &str, arguments: &[&str], code, texts: &[&str]| {
        let place = ["--masters", &urls, "--username", user];
        let (command, rest) = arguments.split_at(1);
        let arguments = [command, &place, rest].concat();
        redlock_until_with(&arguments, &[("REDLOCK_PASSWORD", "secret")], code, texts)
    };
    for command in ["doctor", "status"] {
        let texts = ["NOPERM", "the ACL rule +info", "docs/redis-acl.md"];
        let ran = by("no-info", &[command], 77, &texts);
        assert!(!ran.stdout.contains("not sealed"), "{ran:#?}");
    }
    let texts = ["✗ scripts", "the ACL rule +set", "docs/redis-acl.md"];
    by("no-set", &["doctor"], 1, &texts);
    let texts = ["NOPERM", "the ACL rule +set, which the script grant needs"];
    by("no-set", &["run", "a/b", "-w", "3", "--", "true"], 77, &texts);
}
