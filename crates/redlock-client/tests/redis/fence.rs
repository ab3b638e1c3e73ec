//! Tests docs/protocol.md, section 15: fenced locks on real servers, and the readings of the agent of a node.

use std::{sync::Arc, time::Duration};

use redis::{AsyncCommands, aio::MultiplexedConnection};
use redlock_client::clock;
use redlock_client::lease::{
    BootInstant, ClusterId, FencingToken, Keyspace, Mark, QuorumSize, Won,
    fence::{Finding, MarkRegister, Observation, Reading, Withheld, readings},
    reply::{Reply, Value},
    script::{self, Arguments},
};
use redlock_client::masters::{Command, Completion, LeaseAttempt, Masters};

use crate::lease::{PATIENT, eventually_values, value};
use crate::seal::{BOUND, raw, register, set_register};
use redlock_testkit::masters::{Opened, config, identity, lock_name, open};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions, eventually};

const LOCK: &str = "a/b";
const MARK: &str = "slot:a/b/!mark";
const RESERVED: &str = "redlock:reserved:a/b";
const LEASE: Duration = Duration::from_secs(20);
const HELD: Mark = Mark::Held {
    delay: Duration::from_secs(1),
};

fn here() -> ClusterId {
    ClusterId::new("here", "uid-here").unwrap()
}

fn there() -> ClusterId {
    ClusterId::new("there", "uid-there").unwrap()
}

/// Opens the masters as this cluster. With a longest lease of a minute, nothing ends before the test does.
async fn of(servers: &[RedisServer], cluster: ClusterId) -> Opened {
    let mut config = config(servers);
    (config.cluster, config.longest_lease) = (cluster, Duration::from_secs(60));
    // Each write must reach every master, and is not repeated.
    (config.command_timeout, config.acquire_limit) = (PATIENT, 2 * PATIENT);
    open(&config)
}

async fn three() -> (RedisServers, Opened) {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let masters = of(&servers, here()).await;
    masters.seal(&servers).await;
    (servers, masters)
}

async fn ask(masters: &Masters, command: Command) -> Completion {
    masters
        .ask(&masters.lock(&lock_name(LOCK)), command)
        .await
        .unwrap()
}

async fn done(masters: &Masters, command: Command) -> bool {
    match ask(masters, command).await {
        Completion::Done { majority, .. } => majority,
        other => panic!("{other:?}"),
    }
}

/// Acquires a fenced lock on all masters.
async fn hold(servers: &[RedisServer], masters: &Masters, cluster: ClusterId) -> (Arc<LeaseAttempt>, Won) {
    let longest = Duration::from_secs(60);
    let attempt = LeaseAttempt::fenced(masters.stem(&identity("me")), longest, cluster);
    let attempt = Arc::new(attempt);
    let acquire = Command::Acquire {
        attempt: attempt.clone(),
        lease_duration: LEASE,
    };
    let completion = ask(masters, acquire).await;
    let Completion::Won(won) = completion else {
        panic!("{completion:?}")
    };
    eventually_values(servers, LOCK, 3).await;
    (attempt, won)
}

async fn mark(masters: &Masters, (attempt, won): &(Arc<LeaseAttempt>, Won), mark: Mark) -> bool {
    let (attempt, token) = (attempt.clone(), won.token);
    done(masters, Command::Mark { attempt, token, mark }).await
}

async fn renew(masters: &Masters, (attempt, won): &(Arc<LeaseAttempt>, Won)) -> Completion {
    let command = Command::Renew {
        attempt: attempt.clone(),
        token: won.token,
        lease_duration: LEASE,
    };
    ask(masters, command).await
}

/// Returns the reservation and its remaining milliseconds.
async fn reserved(server: &RedisServer) -> (Option<String>, i64) {
    let found = redis::pipe()
        .get(RESERVED)
        .pttl(RESERVED)
        .query_async(&mut raw(server).await)
        .await;
    found.unwrap()
}

pub(crate) async fn eventually_reserved(
    servers: &[RedisServer],
    by: Option<&str>,
    milliseconds: std::ops::Range<i64>,
) {
    eventually(BOUND, "the reservation on each master", async || {
        let mut found = Vec::new();
        for server in servers {
            found.push(reserved(server).await);
        }
        let good =
            |(text, left): &(Option<String>, i64)| text.as_deref() == by && milliseconds.contains(left);
        if found.iter().all(good) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
}

pub(crate) async fn eventually_marked(servers: &[RedisServer], field: &str, text: &str) {
    eventually(BOUND, "the register on each master", async || {
        let mut found = Vec::new();
        for server in servers {
            found.push(register(server, field).await.unwrap_or_default());
        }
        if found.iter().all(|found| found == text) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
}

const GONE: std::ops::Range<i64> = -2..-1;
/// The lease and 5 s, less the time that a test may take.
const KEPT: std::ops::Range<i64> = 10_000..25_001;

/// Acquires and marks a lease, and reserves the lock for this cluster, on all masters.
async fn keep(servers: &[RedisServer], masters: &Masters) -> (Arc<LeaseAttempt>, Won) {
    let held = hold(servers, masters, here()).await;
    assert!(mark(masters, &held, HELD).await);
    assert!(matches!(renew(masters, &held).await, Completion::Renewed { .. }));
    eventually_reserved(servers, Some("here/uid-here"), KEPT).await;
    held
}

async fn stops(masters: &Masters, held: &(Arc<LeaseAttempt>, Won)) {
    assert!(mark(masters, held, Mark::Closed).await);
    assert!(mark(masters, held, Mark::Clean).await);
}

#[tokio::test]
async fn the_mark_held_writes_the_fence_mark_and_a_renewal_keeps_the_lock_for_the_cluster() {
    let (servers, masters) = three().await;
    let held = hold(&servers, &masters, here()).await;
    let token = held.1.token;
    assert_eq!(held.1.succession.unwrap().first, token);
    // An unmarked lease is renewed without a mark and without a reservation.
    assert!(matches!(renew(&masters, &held).await, Completion::Renewed { .. }));
    eventually_reserved(&servers, None, GONE).await;
    assert!(mark(&masters, &held, HELD).await);
    let text = format!("{token}|{token},uid-here,{}", held.0.stem.nonce());
    eventually_marked(&servers, MARK, &text).await;
    eventually_marked(&servers, "held:a/b", &token.to_string()).await;
    eventually_marked(&servers, "delay:a/b", &format!("{token}|1000")).await;
    assert!(matches!(renew(&masters, &held).await, Completion::Renewed { .. }));
    eventually_reserved(&servers, Some("here/uid-here"), KEPT).await;
}

#[tokio::test]
async fn a_renewal_repeats_the_mark_where_it_is_missing_or_older() {
    let (servers, masters) = three().await;
    let held = hold(&servers, &masters, here()).await;
    assert!(mark(&masters, &held, HELD).await);
    let text = held.0.fence().unwrap().mark().unwrap().to_string();
    eventually_marked(&servers, MARK, &text).await;
    let _: () = raw(&servers[0]).await.hdel("redlock:meta", MARK).await.unwrap();
    set_register(&servers[1], MARK, "1|1,uid-there,0").await;
    // A mark with an equal token stays: the valid one is unknown.
    let split = format!("{}|nobody", held.1.token);
    set_register(&servers[2], MARK, &split).await;
    assert!(matches!(renew(&masters, &held).await, Completion::Renewed { .. }));
    eventually_marked(&servers[..2], MARK, &text).await;
    assert_eq!(register(&servers[2], MARK).await, Some(split));
}

#[tokio::test]
async fn a_renewal_that_is_refused_keeps_nothing_for_the_cluster() {
    let (servers, masters) = three().await;
    let held = hold(&servers, &masters, here()).await;
    assert!(mark(&masters, &held, HELD).await);
    let other = "1|there|uid-there|other|000000000000000000000000000000ff|9";
    for server in &servers[..2] {
        let _: () = raw(server)
            .await
            .set_ex("redlock:lease:a/b", other, 60)
            .await
            .unwrap();
    }
    assert!(matches!(renew(&masters, &held).await, Completion::RenewalRefused));
    eventually_reserved(&servers[2..], Some("here/uid-here"), KEPT).await;
    eventually_reserved(&servers[..2], None, GONE).await;
}

/// The release of such a lease would delete the reservation of the later lease.
#[tokio::test]
async fn a_lease_is_not_put_back_where_a_later_one_is_marked() {
    let (servers, masters) = three().await;
    let held = hold(&servers, &masters, here()).await;
    assert!(mark(&masters, &held, HELD).await);
    let later = format!("{}|1,uid-here,{}", held.1.token.0 + 1, held.0.stem.nonce());
    for server in servers.iter() {
        set_register(server, MARK, &later).await;
        let () = raw(server).await.del("redlock:lease:a/b").await.unwrap();
    }
    assert!(matches!(renew(&masters, &held).await, Completion::RenewalRefused));
    eventually_values(&servers, LOCK, 0).await;
    eventually_reserved(&servers, None, GONE).await;
}

/// A reservation without the mark would extend the permits by an earlier mark.
#[tokio::test]
async fn a_full_memory_extends_no_reservation_whose_mark_it_refuses() {
    let (servers, masters) = three().await;
    let held = keep(&servers, &masters).await;
    for server in servers.iter() {
        // The lease needs no extension, so the mark is the first write of the script.
        let () = redis::pipe()
            .hdel("redlock:meta", MARK)
            .pexpire("redlock:lease:a/b", 50_000)
            .pexpire(RESERVED, 12_000)
            .cmd("CONFIG")
            .arg(&["SET", "maxmemory", "1"])
            .query_async(&mut raw(server).await)
            .await
            .unwrap();
    }
    assert!(matches!(renew(&masters, &held).await, Completion::Renewed { .. }));
    for server in servers.iter() {
        let (by, left) = reserved(server).await;
        assert_eq!(by.as_deref(), Some("here/uid-here"));
        assert!(left <= 12_000, "{left} ms are left");
    }
}

#[tokio::test]
async fn standbys_of_the_cluster_count_leases_only_and_others_the_reservation_too() {
    let (servers, masters) = three().await;
    let elsewhere = of(&servers, there()).await;
    elsewhere.voters(3).await;
    let held = keep(&servers, &masters).await;
    let ends = async |masters: &Masters| match ask(masters, Command::Observe).await {
        Completion::Observed(view) => view.free_at().unwrap().since(clock::now()),
        other => panic!("{other:?}"),
    };
    let (here, there) = (ends(&masters).await, ends(&elsewhere).await);
    assert!(here <= LEASE && there > LEASE, "{here:?} {there:?}");
    // The lease has run out.
    for server in servers.iter() {
        let _: () = raw(server).await.del("redlock:lease:a/b").await.unwrap();
    }
    let observed = async |masters: &Masters| match ask(masters, Command::Observe).await {
        Completion::Observed(view) => (view.free(), view.reserved_for_us()),
        other => panic!("{other:?}"),
    };
    assert_eq!(observed(&masters).await, (true, true));
    assert_eq!(observed(&elsewhere).await, (false, false));
    let (_, won) = hold(&servers, &masters, ClusterId::new("renamed", "uid-here").unwrap()).await;
    let succession = won.succession.unwrap();
    assert_eq!((succession.first, succession.is_sibling()), (held.1.token, true));
}

#[tokio::test]
async fn only_a_confirmed_stop_removes_a_marked_lease_and_the_reservation() {
    let (servers, masters) = three().await;
    let held = keep(&servers, &masters).await;
    let release = |held: &(Arc<LeaseAttempt>, Won)| Command::Release {
        attempt: held.0.clone(),
    };
    assert!(!done(&masters, release(&held)).await);
    assert!(value(&servers[0], LOCK).await.is_some());
    // A sibling wins after the lease ended, and releases the lock before it writes a mark.
    for server in servers.iter() {
        let _: () = raw(server).await.del("redlock:lease:a/b").await.unwrap();
    }
    let sibling = hold(&servers, &masters, here()).await;
    assert!(done(&masters, release(&sibling)).await);
    eventually_values(&servers, LOCK, 0).await;
    eventually_reserved(&servers, Some("here/uid-here"), KEPT).await;
    let last = hold(&servers, &masters, here()).await;
    assert!(mark(&masters, &last, HELD).await);
    stops(&masters, &last).await;
    eventually_marked(&servers, "closed:a/b", &last.1.token.to_string()).await;
    assert!(done(&masters, release(&last)).await);
    eventually_values(&servers, LOCK, 0).await;
    eventually_reserved(&servers, None, GONE).await;
}

#[tokio::test]
async fn neither_a_reserve_nor_a_break_shortens_an_own_reservation() {
    let (servers, masters) = three().await;
    let held = keep(&servers, &masters).await;
    for server in servers.iter() {
        let _: () = raw(server)
            .await
            .pexpire("redlock:lease:a/b", 9_000)
            .await
            .unwrap();
    }
    let reserve = |cluster| Command::Reserve {
        attempt: held.0.clone(),
        cluster,
    };
    assert!(
        !done(&masters, reserve(there())).await,
        "the stop is not confirmed"
    );
    assert!(done(&masters, reserve(here())).await);
    eventually_reserved(&servers, Some("here/uid-here"), KEPT).await;
    let longest_lease = Duration::from_secs(2);
    assert!(done(&masters, Command::Break { longest_lease }).await);
    eventually_reserved(&servers, Some("nobody"), KEPT).await;
}

#[tokio::test]
async fn a_lock_that_is_passed_on_after_a_confirmed_stop_is_kept_for_the_other_cluster() {
    let (servers, masters) = three().await;
    let held = keep(&servers, &masters).await;
    stops(&masters, &held).await;
    let reserve = Command::Reserve {
        attempt: held.0.clone(),
        cluster: there(),
    };
    assert!(done(&masters, reserve).await);
    eventually_reserved(&servers, Some("there/uid-there"), KEPT).await;
}

struct Packed(redis::Cmd);

impl Arguments for Packed {
    fn text(&mut self, text: &str) {
        self.0.arg(text);
    }

    fn number(&mut self, number: u64) {
        self.0.arg(number);
    }
}

fn convert(value: redis::Value) -> Value {
    match value {
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(text) => Value::Text(text),
        redis::Value::SimpleString(text) => text.as_str().into(),
        redis::Value::Array(items) => Value::Array(items.into_iter().map(convert).collect()),
        _ => Value::Nil,
    }
}

/// Returns the readings of the agent for these locks at one master.
async fn read(server: &RedisServer, locks: &[&str], not_after: u64) -> Result<Vec<Reading>, String> {
    read_on(&mut raw(server).await, server, locks, not_after).await
}

/// Reads the same on a connection of another user.
pub(crate) async fn read_by(
    connection: &mut MultiplexedConnection,
    server: &RedisServer,
    locks: &[&str],
) -> Result<Vec<Reading>, String> {
    read_on(connection, server, locks, NEVER_LATE).await
}

async fn read_on(
    connection: &mut MultiplexedConnection,
    server: &RedisServer,
    locks: &[&str],
    not_after: u64,
) -> Result<Vec<Reading>, String> {
    let stamp = register(server, "fingerprint").await.unwrap();
    let keys = Keyspace::new("redlock");
    let locks: Vec<_> = locks.iter().map(|name| keys.lock(&lock_name(name))).collect();
    let call = |verb: &str, body: &str| {
        let mut call = redis::cmd(verb);
        call.arg(body);
        let mut call = Packed(call);
        script::write_fence_call(&mut call, &keys, (not_after, &stamp), &locks);
        call.0
    };
    let hash = redis::Script::new(&script::FENCE.source).get_hash().to_owned();
    let mut value: redis::RedisResult<redis::Value> = call("EVALSHA", &hash).query_async(connection).await;
    if value
        .as_ref()
        .is_err_and(|error| error.code() == Some("NOSCRIPT"))
    {
        value = call("EVAL", &script::FENCE.source).query_async(connection).await;
    }
    let value = value.map_err(|error| error.to_string())?;
    let reply = Reply::parse(convert(value)).unwrap();
    readings(&reply, (locks.len(), crate::renew::MINUTE), clock::now()).map_err(|unknown| unknown.to_string())
}

const NEVER_LATE: u64 = u64::MAX / 2048;

async fn observe(servers: &[RedisServer], sent: BootInstant) -> Observation {
    let mut observation = Observation::new(QuorumSize::new(3).unwrap(), sent);
    for (master, server) in servers.iter().enumerate() {
        let mut readings = read(server, &[LOCK], NEVER_LATE).await.unwrap();
        observation.record(master, readings.remove(0));
    }
    observation
}

async fn finding(servers: &[RedisServer], cluster: &ClusterId) -> Finding {
    observe(servers, clock::now()).await.finding(cluster)
}

#[tokio::test]
async fn the_agent_reads_a_permit_from_marked_leases_and_reservations() {
    let (servers, masters) = three().await;
    assert_eq!(finding(&servers, &here()).await, Finding::Unheld);
    let held = hold(&servers, &masters, here()).await;
    assert_eq!(finding(&servers, &here()).await, Finding::Unheld, "not marked");
    assert!(mark(&masters, &held, HELD).await);
    let text = held.0.fence().unwrap().mark().unwrap().to_string();
    eventually_marked(&servers, MARK, &text).await;
    let permitted = async |cluster| match finding(&servers, &cluster).await {
        Finding::Permit(permit) => (permit.until.since(permit.sent), permit.first, permit.closed),
        other => panic!("{other:?}"),
    };
    let (left, first, closed) = permitted(here()).await;
    assert!(left < LEASE && left > LEASE / 2, "{left:?}");
    assert_eq!((first, closed), (held.1.token, false));
    assert!(matches!(renew(&masters, &held).await, Completion::Renewed { .. }));
    eventually_reserved(&servers, Some("here/uid-here"), KEPT).await;
    let (left, ..) = permitted(here()).await;
    assert!(left > LEASE, "{left:?}");
    assert!(mark(&masters, &held, Mark::Closed).await);
    assert!(permitted(here()).await.2, "no pod starts any more");
    let foreign = finding(&servers, &there()).await;
    assert!(matches!(foreign, Finding::Foreign { .. }), "{foreign:?}");
    // A holder that does not fence.
    set_register(&servers[0], "held:a/b", "999999999999999").await;
    let older = finding(&servers, &here()).await;
    assert!(
        matches!(older, Finding::Withheld(Withheld::MarkIsOlder { .. })),
        "{older:?}"
    );
}

#[tokio::test]
async fn one_call_of_the_agent_carries_all_its_locks_and_writes_nothing() {
    let (servers, masters) = three().await;
    let held = hold(&servers, &masters, here()).await;
    assert!(mark(&masters, &held, HELD).await);
    eventually_marked(&servers, "held:a/b", &held.1.token.to_string()).await;
    let changes = async || -> Vec<String> {
        let info: String = redis::cmd("INFO")
            .arg("persistence")
            .query_async(&mut raw(&servers[0]).await)
            .await
            .unwrap();
        let lines = info.lines().filter(|line| line.starts_with("rdb_changes"));
        lines.map(str::to_owned).collect()
    };
    let before = changes().await;
    let found = read(&servers[0], &["a/other", LOCK], NEVER_LATE).await.unwrap();
    let [other, reading] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((other.held, &other.mark), (0, &MarkRegister::Never));
    assert!(other.lease.is_none() && other.reservation.is_none());
    assert_eq!(reading.held, held.1.token.0);
    assert_eq!(reading.mark.token(), held.1.token);
    assert_eq!(
        (reading.delay.token, reading.delay.milliseconds),
        (held.1.token.0, 1_000)
    );
    assert_eq!(reading.closed, FencingToken(0));
    assert_eq!(changes().await, before);
}

#[tokio::test]
async fn a_master_that_may_not_vote_gives_no_reading() {
    let (servers, masters) = three().await;
    let held = hold(&servers, &masters, here()).await;
    assert!(mark(&masters, &held, HELD).await);
    assert!(read(&servers[0], &[LOCK], 0).await.is_err(), "too late");
    set_register(&servers[0], "replication", "|0").await;
    set_register(&servers[0], "seal", "of another process").await;
    assert!(
        read(&servers[0], &[LOCK], NEVER_LATE).await.is_err(),
        "not sealed"
    );
}
