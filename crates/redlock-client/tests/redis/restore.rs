//! Tests docs/protocol.md, section 11, with more registers than one call reads or writes.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use redis::AsyncCommands;
use redlock_client::{
    clock,
    masters::{Lease, Renewal},
};
use redlock_core::script::{RESTORE, SEAL, Script};
use tokio::time;

use redlock_testkit::{
    Persistence, RedisServer, ServerOptions,
    masters::{LONGEST_LEASE, config, open},
};

use crate::{
    model::number,
    seal::{SLOT, WAIT, probe_prefix, raw, register, sealed},
};

const META: &str = "redlock:meta";
const PROBE: &str = "redlock:probe";
const TURN: &str = "redlock:turn";

async fn set_registers(server: &RedisServer, count: u64) {
    let fields: Vec<(String, u64)> = (0..count)
        .map(|lock| (format!("held:team/lock-{lock}"), lock + 1))
        .collect();
    let _: () = raw(server).await.hset_multiple(META, &fields).await.unwrap();
}

#[tokio::test]
async fn thousands_of_registers_are_restored_page_by_page() {
    const COUNT: u64 = 12_000;
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    for server in &servers[1..] {
        set_registers(server, COUNT).await;
    }
    servers[0].restart_empty().unwrap();
    masters.voters(2).await;
    masters.voters(3).await;
    let pages: u64 = register(&servers[0], "restored").await.unwrap().parse().unwrap();
    assert!((12..14).contains(&(pages % (1 << 20))), "{pages}");
    let mut all = masters.registers().await.into_iter().map(Result::unwrap);
    let restored = all.next().unwrap();
    for lock in 0..COUNT {
        assert_eq!(restored.number(&format!("held:team/lock-{lock}")), lock + 1);
    }
    assert_eq!(restored.number("restored"), 0, "no register");
    assert!(all.all(|source| source.numbers.len() == restored.numbers.len()));
}

async fn run(server: &RedisServer, script: &Script, arguments: &[&str]) -> String {
    let mut connection = raw(server).await;
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(&mut connection).await.unwrap();
    let mut call = redis::cmd("EVAL");
    call.arg(&script.source).arg(3).arg(META).arg(PROBE).arg(TURN);
    call.arg((seconds + 60) * 1_000_000).arg(arguments);
    let reply: Vec<redis::Value> = call.query_async(&mut connection).await.unwrap();
    redis::from_redis_value(reply[0].clone()).unwrap()
}

/// A master whose registers were deleted between two pages would be sealed with the later ones alone.
#[tokio::test]
async fn master_is_not_sealed_after_pages_that_were_deleted_or_restored_by_another_process() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let probe = probe_prefix(&server).await + "1";
    let _: () = raw(&server).await.set(PROBE, &probe).await.unwrap();
    let restore = async |before: &str, page: &str, register: &str| {
        run(
            &server,
            &RESTORE,
            &[&probe, before, page, "p", "60000", register, "5"],
        )
        .await
    };
    let seal = async |page: &str| run(&server, &SEAL, &[&probe, "f", page, "counter", "9"]).await;

    assert_eq!(restore("", "71", "held:a").await, "ok");
    let _: i64 = raw(&server).await.del(META).await.unwrap();
    assert_eq!(restore("71", "72", "held:b").await, "disturbed");
    assert_eq!(seal("71").await, "disturbed");
    assert_eq!(register(&server, "held:b").await, None);

    assert_eq!(restore("", "71", "held:a").await, "ok");
    assert_eq!(restore("", "81", "held:a").await, "ok", "it begins anew");
    assert_eq!(restore("71", "72", "held:b").await, "disturbed");
    assert_eq!(restore("81", "82", "held:b").await, "ok");
    assert_eq!(
        run(&server, &RESTORE, &["0|1", "82", "83", "x", "1"]).await,
        "restarted"
    );
    assert_eq!(seal("82").await, "ok");
    assert_eq!(restore("82", "83", "held:c").await, "sealed");
    for (field, value) in [("held:a", Some("5")), ("held:b", Some("5")), ("held:c", None)] {
        assert_eq!(register(&server, field).await.as_deref(), value, "{field}");
    }
}

/// All processes are ready to restore at the same moment, and each restores three pages.
#[tokio::test]
async fn one_process_of_many_restores_after_a_total_loss() {
    let options = ServerOptions {
        persistence: Persistence::Aof,
        ..ServerOptions::default()
    };
    let (servers, first) = sealed(3, &options).await;
    let mut all = vec![first];
    for _ in 1..8 {
        let opened = open(&config(&servers));
        opened.voters(3).await;
        all.push(opened);
    }
    for server in &servers[..] {
        set_registers(server, 5_000).await;
    }
    for server in &servers[..] {
        server.restart().unwrap();
    }
    for opened in &all {
        opened.voters(0).await;
    }
    for opened in &all {
        opened.voters(3).await;
    }
    for server in &servers[..] {
        let held = register(server, "held:team/lock-4999").await;
        assert_eq!(held.as_deref(), Some("5000"));
    }
}

/// The time of a server that one call may take.
const MOST_SERVER_TIME: Duration = Duration::from_millis(5);

/// Has the server count the calls that take longer.
async fn slower_than(server: &RedisServer, limit: Duration) {
    let limit = limit.as_micros().to_string();
    let mut call = redis::cmd("CONFIG");
    call.arg("SET").arg("slowlog-log-slower-than").arg(limit);
    let _: () = call.query_async(&mut raw(server).await).await.unwrap();
}

/// Returns the longest time without an answer of this server, until `end` is set.
async fn longest_silence(server: &RedisServer, end: &AtomicBool) -> Duration {
    let mut connection = raw(server).await;
    let mut longest = Duration::ZERO;
    while !end.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let _: String = redis::cmd("PING").query_async(&mut connection).await.unwrap();
        longest = longest.max(asked.elapsed());
        time::sleep(Duration::from_millis(2)).await;
    }
    longest
}

/// Renews a lease until `end` is set. Returns whether it was lost.
async fn is_lost(mut lease: Lease, end: &AtomicBool) -> bool {
    while !end.load(Ordering::Relaxed) {
        time::sleep(LONGEST_LEASE / 4).await;
        let renewed = lease.renew().await;
        if !matches!(renewed, Ok(Renewal::Renewed)) && lease.authority_at(clock::now()).is_none() {
            return true;
        }
    }
    false
}

/// Measures the loss of one master in a quorum with many processes and locks: REDLOCK_PROCESSES, REDLOCK_LOCKS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; `make soak-registers` runs it"]
async fn many_processes_and_locks() {
    let processes = number("REDLOCK_PROCESSES").unwrap_or(150);
    let locks = number("REDLOCK_LOCKS").unwrap_or(50_000);
    let (servers, first) = sealed(3, &ServerOptions::default()).await;
    for server in &servers[..] {
        let mut connection = raw(server).await;
        for lock in 0..locks {
            let (token, name) = (lock + 1, format!("team-{}/lock-{lock}", lock % 100));
            let fields = [
                (format!("held:{name}"), token.to_string()),
                (format!("clean:{name}"), token.to_string()),
                (format!("delay:{name}"), format!("{token}|40000")),
                (format!("slot:{name}/report"), format!("{SLOT}|job-{lock}@eu")),
            ];
            let _: () = connection.hset_multiple(META, &fields).await.unwrap();
        }
    }
    let mut all = vec![first];
    for _ in 1..processes {
        let opened = open(&config(&servers));
        opened.voters(3).await;
        all.push(opened);
    }
    let mut leases = Vec::new();
    for (number, opened) in all.iter().enumerate() {
        leases.push(opened.acquire_soon(&format!("soak/{number}"), "h").await);
    }
    for server in &servers[1..] {
        slower_than(server, MOST_SERVER_TIME).await;
    }
    let end = AtomicBool::new(false);
    let restarted = Instant::now();
    servers[0].restart_empty().unwrap();
    slower_than(&servers[0], MOST_SERVER_TIME).await;
    let sealed = async {
        for voters in [2, 3] {
            for opened in &all {
                opened.voters(voters).await;
            }
        }
        let took = restarted.elapsed();
        end.store(true, Ordering::Relaxed);
        took
    };
    let lost = leases.into_iter().map(|lease| is_lost(lease, &end));
    let (took, lost, one, other) = tokio::join!(
        sealed,
        futures_util::future::join_all(lost),
        longest_silence(&servers[1], &end),
        longest_silence(&servers[2], &end),
    );
    let lost = lost.into_iter().filter(|lost| *lost).count();
    let mut slow = Vec::new();
    for server in &servers[..] {
        let calls: u64 = redis::cmd("SLOWLOG")
            .arg("LEN")
            .query_async(&mut raw(server).await)
            .await
            .unwrap();
        slow.push(calls);
    }
    println!(
        "{processes} processes, {locks} locks: sealed after {took:.1?} (wait {WAIT:.1?}), {lost} leases lost, longest \
         silence of the other masters {one:.1?} and {other:.1?}, calls of more than {MOST_SERVER_TIME:?} {slow:?}"
    );
    assert_eq!(lost, 0);
    assert!(took <= WAIT + Duration::from_secs(5), "{took:?}");
}

/// The second removal finds no `held` any more.
#[tokio::test]
async fn registers_of_ended_locks_are_removed_and_no_others() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let set = async |server: usize, registers: &[(&str, &str)]| {
        let _: () = raw(&servers[server])
            .await
            .hset_multiple(META, registers)
            .await
            .unwrap();
    };
    for server in 0..3 {
        set(
            server,
            &[
                ("held:a/ended", "7"),
                ("clean:a/ended", "7"),
                ("delay:a/ended", "7|40000"),
            ],
        )
        .await;
        set(
            server,
            &[
                ("held:a/crashed", "8"),
                ("clean:a/crashed", "7"),
                ("slot:a/ended/t", "9|u@c"),
            ],
        )
        .await;
        set(server, &[("held:a/leased", "7"), ("clean:a/leased", "7")]).await;
        set(
            server,
            &[
                ("held:a/fenced", "7"),
                ("clean:a/fenced", "7"),
                ("closed:a/fenced", "7"),
            ],
        )
        .await;
    }
    let lease = masters.acquire_soon("a/leased", "h").await;
    let rest = [
        "held:a/crashed",
        "held:a/fenced",
        "held:a/leased",
        "slot:a/ended/t",
    ];
    for (removed, clean) in [(6, true), (3, false)] {
        assert_eq!(masters.forget_ended().await, Ok(removed));
        for server in servers.iter() {
            for gone in ["held:a/ended", "delay:a/ended"] {
                assert_eq!(register(server, gone).await, None, "{gone}");
            }
            for kept in rest {
                assert!(register(server, kept).await.is_some(), "{kept}");
            }
            assert_eq!(register(server, "clean:a/ended").await.is_some(), clean);
        }
    }
    assert_eq!(masters.forget_ended().await, Ok(0));
    lease.release().await.unwrap();
    assert_eq!(masters.forget_ended().await, Ok(3));

    servers[2].kill();
    masters.voters(2).await;
    let refused = masters.forget_ended().await.unwrap_err().to_string();
    assert!(refused.contains("m2"), "{refused}");
}
