//! Tests that the line of docs/redis-acl.md permits every operation of the library, and no unneeded
//! operation.

use std::sync::Arc;
use std::time::Duration;

use redlock_client::lease::Mark;
use redlock_client::masters::{
    self, Command, Completion, LeaseAttempt, MastersConfig, Notice, Renewal, ScriptLoading,
};

use redlock_testkit::acl::{PASSWORD, as_user, line, line_of, servers};
use redlock_testkit::masters::{LONGEST_LEASE, identity, lock_name, open};
use redlock_testkit::{RedisServer, admin, eventually};

use crate::fence;
use crate::seal::raw;

const BOUND: Duration = Duration::from_secs(30);

#[tokio::test]
async fn the_documented_user_can_do_everything() {
    let servers = servers(vec![line()]);
    let config = as_user(&servers, "redlock");
    let mut opened = open(&config);
    opened.seal(&servers).await;

    // Acquire, renew, heal.
    let mut lease = opened.acquire_soon("a/b", "me").await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    let _: i64 = admin(&servers[0], &["DEL", "redlock:lease:a/b"]).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    eventually(BOUND, "the lease is put back", async || {
        match admin::<i64>(&servers[0], &["EXISTS", "redlock:lease:a/b"]).await {
            1 => Ok(()),
            other => Err(other),
        }
    })
    .await;

    // Release, and its message.
    assert!(lease.release().await.unwrap());
    eventually(BOUND, "the release is heard", async || {
        match opened.notices.try_recv() {
            Ok(Notice::Released { lock, .. }) if lock == lock_name("a/b") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    // Mark, claim, observe, reserve, break.
    let lock = opened.lock(&lock_name("c/d"));
    let attempt = Arc::new(LeaseAttempt::new(opened.stem(&identity("me")), LONGEST_LEASE));
    let acquire = Command::Acquire {
        attempt: attempt.clone(),
        lease_duration: LONGEST_LEASE,
    };
    let Completion::Won(won) = opened.ask(&lock, acquire).await.unwrap() else {
        panic!("not won");
    };
    let mark = Command::Mark {
        attempt: attempt.clone(),
        token: won.token,
        mark: Mark::Held { delay: LONGEST_LEASE },
    };
    let claim = Command::Claim {
        object: "t".into(),
        slot: redlock_client::clock::unix_time().as_secs() + 3_600,
        job: "job".into(),
    };
    let reserve = Command::Reserve {
        attempt,
        cluster: opened.cluster().clone(),
    };
    let longest_lease = LONGEST_LEASE;
    for request in [mark, claim, reserve, Command::Break { longest_lease }] {
        let request_text = format!("{request:?}");
        match opened.ask(&lock, request).await.unwrap() {
            Completion::Done { majority: true, .. } => {}
            other => panic!("{request_text}: {other:?}"),
        }
    }
    match opened.ask(&lock, Command::Observe).await.unwrap() {
        Completion::Observed(view) => assert!(view.blocked()),
        other => panic!("{other:?}"),
    }

    // The reporting clusters.
    let reporter = masters::reporter_lock(opened.cluster()).unwrap();
    let reports = opened
        .acquire(&reporter, &identity("me"), LONGEST_LEASE)
        .await
        .unwrap();
    let reporters = opened.clusters(BOUND).await;
    assert!(reporters.clusters.contains(opened.cluster()), "{reporters:?}");
    assert_eq!(reporters.complete, 3);
    drop(reports);

    // The seal of a master that lost its memory.
    servers[1].restart_empty().unwrap();
    opened.voters(2).await;
    opened.voters(3).await;
}

/// A missing permission may lead to a missing seal or a missing vote, but these are not the cause to report.
#[tokio::test]
async fn a_missing_permission_is_reported_as_such_and_not_as_a_missing_seal() {
    let line = line();
    let without = |word: &str| {
        let user = line.replacen("redlock", &format!("without-{word}"), 1);
        user.replace(&format!(" +{word} "), " ")
    };
    // `hset` ends its line.
    let unsealing = line.replacen("redlock", "without-hset", 1).replace(" +hset", "");
    let servers = servers(vec![line.clone(), without("info"), unsealing, without("set")]);

    let opened = open(&as_user(&servers, "without-info"));
    opened.wait_for_first_poll(BOUND, |_| false).await;
    for master in opened.status() {
        let why = master.no_vote.map(|why| why.to_string()).unwrap_or_default();
        for part in ["server error NOPERM", "the ACL rule +info", "the script facts"] {
            assert!(why.contains(part), "{part} is not in {why:?}");
        }
    }

    let opened = open(&as_user(&servers, "without-hset"));
    let error = masters::init(&opened.masters).await.unwrap_err().to_string();
    assert!(
        error.contains("the ACL rule +hset, which the script seal needs"),
        "{error}"
    );
    let master = opened.master(0, "shows what it refused", |m| m.not_permitted.is_some());
    assert!(master.await.auth());
    drop(opened);

    let opened = open(&as_user(&servers, "redlock"));
    opened.seal(&servers).await;
    let blind = open(&as_user(&servers, "without-set"));
    blind.voters(3).await;
    assert!(blind.try_acquire("a/b", "me").await.is_none());
    let master = blind.master(0, "shows what it refused", |m| m.not_permitted.is_some());
    let master = master.await;
    assert!(master.votes() && !master.grants(), "{master:?}");
    let why = master.not_permitted.unwrap().to_string();
    assert!(
        why.contains("the ACL rule +set, which the script grant needs"),
        "{why}"
    );
}

#[tokio::test]
async fn other_keys_and_channels_are_refused() {
    let documented = line();
    let silent = documented
        .replacen("redlock", "silent", 1)
        .replace("&redlock:released", "&other:released");
    let servers = servers(vec![documented, silent]);
    for (user, prefix, script) in [
        // Not even the first poll is permitted.
        ("redlock", "other", "facts"),
        ("redlock", "redlock2", "facts"),
        ("silent", "redlock", "reserve"),
    ] {
        let config = MastersConfig {
            key_prefix: prefix.to_owned(),
            ..as_user(&servers, user)
        };
        let opened = open(&config);
        opened.wait_for_first_poll(BOUND, |_| false).await;
        for trial in opened.try_scripts().await {
            let error = trial.unwrap_err();
            assert_eq!(error.script, script, "{user} {prefix}: {error}");
            assert!(error.reason.is_auth(), "{user} {prefix}: {error}");
        }
    }
}

/// Opens a connection as this user.
async fn connection(server: &RedisServer, user: &str) -> redis::aio::MultiplexedConnection {
    let mut connection = raw(server).await;
    let authenticated = redis::cmd("AUTH")
        .arg(user)
        .arg(PASSWORD)
        .query_async(&mut connection)
        .await;
    let () = authenticated.unwrap();
    connection
}

#[tokio::test]
async fn the_user_of_a_node_reads_every_lock_and_writes_none() {
    let node = line_of("redlock-node");
    let servers = servers(vec![line(), node.clone()]);
    let opened = open(&as_user(&servers, "redlock"));
    opened.seal(&servers).await;
    let lease = opened.acquire_soon("a/b", "me").await;

    let by_hash = MastersConfig {
        reseal: false,
        scripts: ScriptLoading::ByHash,
        ..as_user(&servers, "redlock-node")
    };
    let reading = open(&by_hash);
    reading.voters(3).await;
    let refused = redis::cmd("EVAL")
        .arg("while true do end")
        .arg(0)
        .query_async::<redis::Value>(&mut connection(&servers[0], "redlock-node").await)
        .await;
    assert_eq!(refused.unwrap_err().code(), Some("NOPERM"));
    let mut connection = connection(&servers[0], "redlock-node").await;
    let readings = fence::read_by(&mut connection, &servers[0], &["a/b"])
        .await
        .unwrap();
    assert!(readings[0].lease.is_some(), "{readings:?}");

    assert!(reading.try_acquire("c/d", "me").await.is_none());
    for trial in reading.try_scripts().await {
        let reason = trial.unwrap_err().reason;
        assert!(reason.is_auth() || reason.is_no_script(), "{reason}");
    }
    let writing = [
        "set", "del", "pexpire", "hset", "publish", "flushall", "acl", "config",
    ];
    for word in node.split(' ').filter_map(|word| word.strip_prefix('+')) {
        assert!(!writing.contains(&word), "{word}");
    }
    for command in [
        &["SET", "redlock:lease:c/d", "x"][..],
        &["DEL", "redlock:lease:a/b"],
    ] {
        let mut call = redis::cmd(command[0]);
        let done: redis::RedisResult<redis::Value> =
            call.arg(&command[1..]).query_async(&mut connection).await;
        assert_eq!(done.unwrap_err().code(), Some("NOPERM"), "{command:?}");
    }
    assert!(lease.release().await.unwrap());

    // The cache is lost, and the other process fills it again.
    let () = admin(&servers[0], &["SCRIPT", "FLUSH"]).await;
    eventually(BOUND, "the lock is read at each master", async || {
        let round = reading.read_fences(&[reading.lock(&lock_name("a/b"))]).await;
        let readings = round.readings.into_iter().collect::<Result<Vec<_>, _>>();
        readings.map(drop).map_err(|unknown| unknown.to_string())
    })
    .await;
}

#[tokio::test]
async fn each_command_of_the_user_of_a_node_is_needed() {
    let node = line_of("redlock-node");
    // The connections need the other commands: a script by its hash, the probe of the gate, the channel.
    let by_the_script = ["info", "time", "hmget", "mget", "pttl"];
    let without = |word: &str| {
        let words: Vec<&str> = node
            .split(' ')
            .filter(|other| *other != format!("+{word}"))
            .collect();
        words
            .join(" ")
            .replacen("redlock-node", &format!("without-{word}"), 1)
    };
    let users = [line()].into_iter().chain(by_the_script.map(without));
    let servers = servers(users.collect());
    let opened = open(&as_user(&servers, "redlock"));
    opened.seal(&servers).await;
    for word in by_the_script {
        let mut connection = connection(&servers[0], &format!("without-{word}")).await;
        let refused = fence::read_by(&mut connection, &servers[0], &["a/b"])
            .await
            .unwrap_err()
            .to_lowercase();
        assert!(
            ["noperm", "can't run this command", "no permissions to run"]
                .iter()
                .any(|words| refused.contains(words)),
            "{word}: {refused}"
        );
    }
}
