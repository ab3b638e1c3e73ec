//! Tests docs/protocol.md, section 11: a master that lost its memory, from the loss to its vote.

use std::time::{Duration, Instant};

use redis::{AsyncCommands, aio::MultiplexedConnection};
use redlock_client::lease::FencingToken;
use redlock_client::masters::{Command, Completion, Lease, Registers, ResealError, reseal};
use redlock_core::script::{PROBE, SEAL};

use redlock_testkit::masters::{ACQUIRE_LIMIT, LONGEST_LEASE, Opened, config, lock_name, open};
use redlock_testkit::{Persistence, RedisServer, RedisServers, ServerOptions, eventually, patient};

/// Longest lease × 1.02 + 2 × T_acquire.
pub(crate) const WAIT: Duration = Duration::from_millis(14_160);
pub(crate) const BOUND: Duration = Duration::from_secs(60);
/// Beyond the floor of the slots, which is a minute ahead of the clock.
pub(crate) const SLOT: u64 = 40_000_000_000;

pub(crate) async fn raw(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    patient(&client).await.unwrap()
}

pub(crate) async fn server_run_id(server: &RedisServer) -> String {
    info_field(server, "run_id").await
}

/// Returns a field of `INFO`.
pub(crate) async fn info_field(server: &RedisServer, name: &str) -> String {
    let info: redis::InfoDict = redis::cmd("INFO")
        .query_async(&mut raw(server).await)
        .await
        .unwrap();
    info.get(name).unwrap()
}

/// Returns how a probe of the present process of a server begins.
pub(crate) async fn probe_prefix(server: &RedisServer) -> String {
    let replication_id = info_field(server, "master_replid").await;
    format!("{}|{replication_id}|", server_run_id(server).await)
}

pub(crate) async fn register(server: &RedisServer, field: &str) -> Option<String> {
    raw(server).await.hget("redlock:meta", field).await.unwrap()
}

pub(crate) async fn set_register(server: &RedisServer, field: &str, value: &str) {
    let _: () = raw(server)
        .await
        .hset("redlock:meta", field, value)
        .await
        .unwrap();
}

async fn counter(server: &RedisServer) -> u64 {
    register(server, "counter")
        .await
        .map_or(0, |text| text.parse().unwrap())
}

/// Starts servers and seals all of them.
pub(crate) async fn sealed(count: usize, options: &ServerOptions) -> (RedisServers, Opened) {
    let servers = RedisServers::start(count, options).unwrap();
    let masters = open(&config(&servers));
    masters.seal(&servers).await;
    (servers, masters)
}

fn token(lease: &Lease) -> FencingToken {
    lease.authority_at(redlock_client::clock::now()).unwrap().token
}

async fn claim(masters: &Opened, slot: u64, job: &str) -> bool {
    let request = Command::Claim {
        object: "report".into(),
        slot,
        job: job.into(),
    };
    match masters
        .ask(&masters.lock(&lock_name("a/b")), request)
        .await
        .unwrap()
    {
        Completion::Done { majority, .. } => majority,
        other => panic!("{other:?}"),
    }
}

/// Waits until this master has waited long enough and still cannot be sealed.
async fn blocked(masters: &Opened, index: usize) -> String {
    let status = masters.master(index, "blocked for good", |master| {
        master.seal_blocked.is_some() && master.sealing_left == Some(Duration::ZERO)
    });
    status.await.seal_blocked.unwrap().to_string()
}

/// Returns how often the registers of a master were read.
async fn register_reads(server: &RedisServer) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut raw(server).await)
        .await
        .unwrap();
    let line = stats.lines().find(|line| line.starts_with("cmdstat_hscan:"));
    let calls = line.and_then(|line| line.split("calls=").nth(1)?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// Each of them waits as long, and is ready to seal at the same moment.
#[tokio::test]
async fn one_process_of_many_reads_the_registers_and_seals() {
    const PROCESSES: usize = 8;
    let (servers, first) = sealed(3, &ServerOptions::default()).await;
    let mut all = vec![first];
    for _ in 1..PROCESSES {
        let opened = open(&config(&servers));
        opened.voters(3).await;
        all.push(opened);
    }
    let before = register_reads(&servers[0]).await;
    servers[2].restart_empty().unwrap();
    for opened in &all {
        opened.voters(2).await;
    }
    for opened in &all {
        opened.voters(3).await;
    }
    let reads = register_reads(&servers[0]).await - before;
    assert!((1..=2).contains(&reads), "{reads} reads by {PROCESSES} processes");
}

#[tokio::test]
async fn a_master_that_lost_its_memory_has_no_vote_until_the_wait_is_over_and_then_knows_everything_again() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let first = masters.acquire_soon("a/b", "h1").await;
    assert!(claim(&masters, SLOT, "job-1").await);
    set_register(&servers[1], "held:a/b", "17").await;
    let (first_token, lost) = (token(&first), Instant::now());

    servers[0].restart_empty().unwrap();
    masters.voters(2).await;
    let status = masters.master(0, "sealing", |m| {
        m.sealing_left.is_some_and(|left| !left.is_zero())
    });
    assert!(status.await.sealing_left.unwrap() <= WAIT);
    // A grant during the wait must be in the floor, which is read after the wait.
    // On a busy machine, the lease may already be over.
    first.release().await.unwrap();
    let during = masters.acquire_soon("c/d", "h1").await;
    let during_token = token(&during);
    assert!(claim(&masters, SLOT + 1, "job-2").await);
    assert_eq!(register(&servers[0], "counter").await, None, "not yet");

    masters.voters(3).await;
    assert!(lost.elapsed() >= WAIT, "sealed after {:?}", lost.elapsed());
    assert!(during_token > first_token);
    assert!(counter(&servers[0]).await >= during_token.0);
    let slot = register(&servers[0], "slot:a/b/report").await.unwrap();
    assert_eq!(slot, format!("{}|job-2", SLOT + 1));
    assert_eq!(register(&servers[0], "held:a/b").await.as_deref(), Some("17"));
    assert!(masters.status().iter().all(|m| m.sealing_left.is_none()));
    let after = masters.acquire_soon("e/f", "h2").await;
    assert!(token(&after) > during_token);
}

#[tokio::test]
async fn tokens_increase_and_a_slot_is_claimed_once_while_each_master_in_turn_loses_its_memory() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    assert!(claim(&masters, SLOT, "job-1").await);
    let mut last = FencingToken(0);
    for server in servers.iter() {
        server.restart_empty().unwrap();
        for voters in [2, 3] {
            masters.voters(voters).await;
            let lease = masters.acquire_soon("a/b", "h").await;
            assert!(token(&lease) > last, "{:?} after {last:?}", token(&lease));
            last = token(&lease);
            assert!(lease.release().await.unwrap());
            assert!(!claim(&masters, SLOT, "job-2").await, "claimed twice");
        }
    }
    assert!(claim(&masters, SLOT, "job-1").await, "the same claim again");
}

#[tokio::test]
async fn a_restart_with_memory_is_another_run_and_waits_like_one_without() {
    let options = ServerOptions {
        persistence: Persistence::Aof,
        ..ServerOptions::default()
    };
    let (servers, masters) = sealed(3, &options).await;
    let before = counter(&servers[0]).await;
    let lost = Instant::now();
    servers[0].restart().unwrap();
    masters.voters(2).await;
    assert_eq!(counter(&servers[0]).await, before, "its registers are there");
    masters.voters(3).await;
    assert!(lost.elapsed() >= WAIT, "sealed after {:?}", lost.elapsed());
}

#[tokio::test]
async fn flushall_takes_the_seal_with_the_registers() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let lease = masters.acquire_soon("a/b", "h").await;
    let lost = Instant::now();
    let _: () = redis::cmd("FLUSHALL")
        .query_async(&mut raw(&servers[0]).await)
        .await
        .unwrap();
    masters.voters(2).await;
    masters.voters(3).await;
    assert!(lost.elapsed() >= WAIT, "sealed after {:?}", lost.elapsed());
    assert!(counter(&servers[0]).await >= token_ever(&lease));
}

/// Returns the token of the lease, which may already be over; the caller does not test its release.
fn token_ever(lease: &Lease) -> u64 {
    lease
        .authority_at(redlock_client::lease::BootInstant::default())
        .unwrap()
        .token
        .0
}

#[tokio::test]
async fn a_master_started_empty_while_another_is_down_never_gives_a_second_holder_nor_a_token_again() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let rival = open(&config(&servers));
    rival.voters(3).await;
    let lease = masters.acquire_soon("a/b", "h1").await;
    let first = token(&lease);

    servers[2].pause().unwrap();
    servers[0].restart_empty().unwrap();
    // The lock is free at the empty master and unknown at the one that is down: no majority, during the lease
    // and after it.
    let blocked_for_good = eventually(BOUND, "blocked for good", async || {
        assert!(rival.try_acquire("a/b", "h2").await.is_none(), "a second holder");
        let status = rival.status().swap_remove(0);
        let over = status.seal_blocked.is_some() && status.sealing_left == Some(Duration::ZERO);
        if over { Ok(status) } else { Err(status) }
    });
    assert!(!blocked_for_good.await.votes());

    servers[2].resume().unwrap();
    rival.voters(3).await;
    let second = rival.acquire_soon("a/b", "h2").await;
    assert!(token(&second) > first);
}

#[tokio::test]
async fn unreachable_is_not_unsealed() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    servers[1].pause().unwrap();
    servers[2].pause().unwrap();
    servers[0].restart_empty().unwrap();
    let why = blocked(&masters, 0).await;
    assert!(
        why.starts_with("waiting until 2 more sealed masters can be read"),
        "{why}"
    );
    assert_eq!(register(&servers[0], "seal").await, None);

    servers[1].resume().unwrap();
    servers[2].resume().unwrap();
    masters.voters(3).await;
    assert_eq!(
        register(&servers[0], "heldFloor").await,
        None,
        "not by the fallback"
    );
}

#[tokio::test]
async fn equal_slots_with_different_uids_merge_to_no_job() {
    let options = ServerOptions {
        persistence: Persistence::Aof,
        ..ServerOptions::default()
    };
    let (servers, masters) = sealed(3, &options).await;
    // The values differ between two sources, and between the floor and the master's own registers.
    let (sources, own) = ("slot:a/b/sources", "slot:a/b/own");
    for (server, field, uid) in [
        (1, sources, "u"),
        (2, sources, "v"),
        (0, own, "u"),
        (1, own, "v"),
        (2, own, "v"),
    ] {
        set_register(&servers[server], field, &format!("{SLOT}|{uid}")).await;
    }
    set_register(&servers[0], "slot:a/b/larger", "7|u").await;
    set_register(&servers[1], "slot:a/b/larger", "6|v").await;
    servers[0].restart().unwrap();
    masters.voters(2).await;
    masters.voters(3).await;
    for field in [sources, own] {
        assert_eq!(
            register(&servers[0], field).await,
            Some(format!("{SLOT}|nobody")),
            "{field}"
        );
    }
    assert_eq!(
        register(&servers[0], "slot:a/b/larger").await.as_deref(),
        Some("7|u")
    );
    let registers: Vec<Registers> = masters
        .registers()
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(registers[0].slots[own].uid, "nobody");
}

#[tokio::test]
async fn reseal_is_the_way_out_when_a_sealed_master_is_gone_for_good() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let lease = masters.acquire_soon("a/b", "h").await;
    let tool = open(&redlock_client::masters::MastersConfig {
        reseal: false,
        ..config(&servers)
    });
    let refused = reseal(&tool, false, |_| {}).await;
    assert_eq!(refused, Err(ResealError::LossNotAccepted));
    let nothing = reseal(&tool, true, |_| {}).await;
    assert_eq!(nothing, Err(ResealError::NothingUnsealed { missing: vec![] }));

    servers[1].restart_empty().unwrap();
    tool.voters(2).await;
    let open_way = ResealError::OrdinaryWayOpen {
        masters: vec!["m1".into()],
        readable: 2,
    };
    assert_eq!(reseal(&tool, true, |_| {}).await, Err(open_way));

    servers[2].kill();
    let why = blocked(&masters, 1).await;
    assert!(why.starts_with("waiting until 1 more sealed master"), "{why}");
    let (started, mut updates) = (Instant::now(), Vec::new());
    let report = reseal(&tool, true, |progress| updates.push(progress))
        .await
        .unwrap();
    assert!(
        started.elapsed() >= WAIT,
        "the wait comes first: {:?}",
        started.elapsed()
    );
    assert_eq!(
        (report.sealed, report.not_sealed),
        (vec!["m1".to_owned()], vec![])
    );
    assert!(
        updates.iter().any(|progress| progress.masters == ["m1"]),
        "{updates:?}"
    );
    masters.voters(2).await;
    let next = masters.acquire_soon("a/b", "h").await;
    assert!(token(&next).0 > token_ever(&lease));
    assert!(
        register(&servers[1], "heldFloor").await.is_some(),
        "each lock waits one takeover delay"
    );
}

#[tokio::test]
async fn a_probe_or_a_seal_that_arrives_too_late_writes_nothing() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let mut connection = raw(&server).await;
    let run_id = server_run_id(&server).await;
    let process = probe_prefix(&server).await;
    let promoted = format!("{run_id}|{}|", "0".repeat(40));
    let probe = redis::Script::new(&PROBE.source);
    let seal = redis::Script::new(&SEAL.source);
    let (late, in_time) = (1_u64, u64::MAX / 4096);
    for (script, not_after, run, expected) in [
        (&probe, late, &*process, "late"),
        (&probe, in_time, "another|", "restarted"),
        (&probe, in_time, &promoted, "restarted"),
        (&seal, in_time, &process, "probe"),
        (&probe, in_time, &process, "ok"),
        (&seal, late, &process, "late"),
        (&seal, in_time, "another|", "restarted"),
        (&seal, in_time, &promoted, "restarted"),
        (&seal, in_time, &process, "ok"),
        (&seal, in_time, &process, "sealed"),
        (&probe, in_time, &process, "sealed"),
    ] {
        let mut call = script.key("p:meta");
        call.key("p:probe").arg(not_after).arg(format!("{run}x"));
        let third = if std::ptr::eq(script, &raw const probe) {
            "keep"
        } else {
            "fingerprint"
        };
        let reply: Vec<redis::Value> = call
            .arg(third)
            .arg("")
            .invoke_async(&mut connection)
            .await
            .unwrap();
        let code: String = redis::from_redis_value(reply[0].clone()).unwrap();
        assert_eq!(code, expected, "not_after {not_after}, run {run}");
        let keys: Vec<String> = connection.keys("p:*").await.unwrap();
        assert!(
            expected == "ok" || expected == "sealed" || !keys.contains(&"p:meta".to_owned()),
            "{keys:?}"
        );
    }
}

#[test]
fn the_wait_of_these_tests_is_the_one_of_the_protocol() {
    assert_eq!(LONGEST_LEASE * 102 / 100 + 2 * ACQUIRE_LIMIT, WAIT);
}
