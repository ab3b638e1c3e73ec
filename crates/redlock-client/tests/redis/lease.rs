//! Tests docs/protocol.md, sections 5, 6 and 8, on real servers: acquire, validity, undo.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use redis::AsyncCommands;
use redlock_client::clock;
use redlock_client::lease::{Authority, FencingToken, LeaseValue, Loss};
use redlock_client::lease::{
    command::Item,
    script::{Arguments, Payload},
};
use redlock_client::masters::{
    Acquired, Command, Completion, Ineligible, Keyspace, Lease, LeaseAttempt, MastersConfig, Renewal,
};

use crate::release::subscribed;
use crate::renew::{MINUTE, held_for_a_minute};
use crate::seal::{BOUND, raw, register, sealed};
use redlock_testkit::masters::{COMMAND_TIMEOUT, LONGEST_LEASE, Opened, config, identity, lock_name, open};
use redlock_testkit::{RedisServer, ServerOptions, eventually};

pub(crate) async fn three() -> (redlock_testkit::RedisServers, Opened) {
    sealed(3, &ServerOptions::default()).await
}

/// Longer than the stalls of a busy machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(5);
/// The command timeout where a test measures that no caller waits for it.
pub(crate) const UNHURRIED: Duration = Duration::from_secs(15);

/// Starts sealed servers, and masters with a long command timeout: a caller that waits for one is detected.
pub(crate) async fn unhurried(count: usize) -> (redlock_testkit::RedisServers, Opened) {
    let servers = redlock_testkit::RedisServers::start(count, &ServerOptions::default()).unwrap();
    let masters = open(&MastersConfig {
        command_timeout: UNHURRIED,
        acquire_limit: 2 * UNHURRIED,
        ..config(&servers)
    });
    masters.seal(&servers).await;
    (servers, masters)
}

pub(crate) async fn value(server: &RedisServer, lock: &str) -> Option<String> {
    raw(server)
        .await
        .get(format!("redlock:lease:{lock}"))
        .await
        .unwrap()
}

pub(crate) fn authority(lease: &Lease) -> Authority {
    lease.authority_at(clock::now()).expect("the lease is held")
}

pub(crate) async fn eventually_values(servers: &[RedisServer], lock: &str, count: usize) {
    eventually(
        BOUND,
        &format!("{count} masters with a lease of {lock}"),
        async || {
            let mut found = Vec::new();
            for server in servers {
                found.extend(value(server, lock).await);
            }
            if found.len() == count { Ok(()) } else { Err(found) }
        },
    )
    .await;
}

#[tokio::test]
async fn a_grant_is_the_documented_text_on_every_master_with_an_expiry() {
    let (servers, _masters, lease) = held_for_a_minute().await;
    eventually_values(&servers, "a/b", 3).await;
    for server in servers.iter() {
        let text = value(server, "a/b").await.unwrap();
        let parsed: LeaseValue = text.parse().unwrap();
        assert_eq!((parsed.cluster.name(), parsed.identity.as_str()), ("test", "me"));
        assert_eq!(parsed.grant, authority(&lease).token.0, "{text}");
        let left: u128 = raw(server).await.pttl("redlock:lease:a/b").await.unwrap();
        assert!((1..=MINUTE.as_millis()).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn equal_numbers_of_a_majority_take_one_round_trip() {
    let (servers, masters) = three().await;
    let _first = masters.try_acquire("a/warm", "me").await.unwrap();
    // A grant that arrives later than those of the majority would be counted.
    eventually_values(&servers, "a/warm", 3).await;
    let calls = async |server: &RedisServer| -> u64 {
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut raw(server).await)
            .await
            .unwrap();
        let stats = |name: &str| {
            let line = info
                .lines()
                .find_map(|l| l.strip_prefix(&format!("cmdstat_{name}:calls=")))?;
            line.split(',').next()?.parse::<u64>().ok()
        };
        stats("set").unwrap_or(0)
    };
    let before = calls(&servers[0]).await;
    let confirmed = register(&servers[0], "counter").await;
    let lease = masters.try_acquire("a/one", "me").await.unwrap();
    eventually_values(&servers, "a/one", 3).await;
    assert_eq!(calls(&servers[0]).await - before, 1, "one SET, of the grant");
    assert!(Some(authority(&lease).token.0.to_string()) > confirmed);
}

#[tokio::test]
async fn different_numbers_are_confirmed_with_the_largest_on_a_majority() {
    let (servers, masters) = three().await;
    let base = authority(&masters.acquire_soon("a/first", "me").await).token.0;
    // Foreign grants moved two counters to different values; this process has not seen them.
    for (server, ahead) in servers.iter().zip([0_u64, 1_000, 2_000]) {
        let _: i64 = raw(server)
            .await
            .hset("redlock:meta", "counter", base + ahead)
            .await
            .unwrap();
    }
    let other = open(&config(&servers));
    other.voters(3).await;
    let lease = other.acquire_soon("a/second", "you").await;
    let token = authority(&lease).token.0;
    assert!(token > base, "{token} {base}");
    let mut counters = Vec::new();
    for server in servers.iter() {
        counters.push(register(server, "counter").await.unwrap().parse::<u64>().unwrap());
    }
    let confirmed = counters.iter().filter(|c| **c >= token).count();
    assert!(confirmed >= 2, "token {token}, counters {counters:?}");
}

/// The scripts count in doubles. A master with a forged counter must not raise the other counters to their limit.
#[tokio::test]
async fn a_counter_beyond_the_last_token_is_no_floor_and_its_master_has_no_vote() {
    let (servers, masters) = three().await;
    let last = (1_u64 << 53) - 1;
    let first = masters.acquire_soon("a/first", "me").await;
    let mut tokens = vec![authority(&first).token.0];
    for written in [
        last - 12,
        last,
        last + 1,
        last + 2,
        last + 1_000,
        u64::MAX / 2,
        u64::MAX,
    ] {
        let _: () = raw(&servers[0])
            .await
            .hset("redlock:meta", "counter", written.to_string())
            .await
            .unwrap();
        let newcomer = open(&config(&servers));
        eventually(BOUND, "a majority votes", async || match newcomer.voters_now() {
            2.. => Ok(()),
            _ => Err(newcomer.status()),
        })
        .await;
        if written <= last {
            // The master is named.
            newcomer
                .master(0, "has an implausible counter", |master| {
                    matches!(master.ineligible, Some(Ineligible::CounterAhead { found, .. }) if found == written)
                })
                .await;
        }
        for (candidate, lock) in [(&masters, "a/second"), (&newcomer, "a/third")] {
            let lease = candidate.acquire_soon(lock, &format!("{written}")).await;
            tokens.push(authority(&lease).token.0);
            lease.release().await.unwrap();
        }
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(tokens.last().unwrap() < &last, "no floor: {tokens:?}");

    // Two of three masters show numbers that no other one reached: no candidate gets a lock, and no token is issued twice.
    let _: () = raw(&servers[1])
        .await
        .hset("redlock:meta", "counter", last - 2)
        .await
        .unwrap();
    for attempt in 0..10 {
        let lease = masters.try_acquire(&format!("a/last-{attempt}"), "me").await;
        tokens.extend(lease.map(|lease| authority(&lease).token.0));
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(tokens.last().unwrap() <= &last, "{tokens:?}");
}

#[tokio::test]
async fn a_held_lock_is_refused_with_its_holder_and_the_remaining_time() {
    let (servers, masters) = three().await;
    let lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    let acquired = masters
        .acquire(&lock_name("a/b"), &identity("you"), LONGEST_LEASE)
        .await
        .unwrap();
    let Acquired::Lost(Loss::Refused(view)) = acquired else {
        panic!("{acquired:?}")
    };
    let holder = view.holder().unwrap();
    assert_eq!(
        (holder.identity.as_str(), holder.token),
        ("me", authority(&lease).token)
    );
    assert!(holder.ends.left(clock::now()) <= LONGEST_LEASE);
    assert!(
        authority(&lease).valid_until <= view.free_at().unwrap(),
        "S3: valid for no longer than it is kept"
    );
}

#[tokio::test]
async fn authority_ends_before_the_keys_do() {
    let (servers, masters) = three().await;
    let lease = masters.acquire_soon("a/b", "me").await;
    let valid_until = authority(&lease).valid_until;
    eventually_values(&servers, "a/b", 3).await;
    for server in servers.iter() {
        let mut connection = raw(server).await;
        let before = clock::now();
        let left: u64 = connection.pttl("redlock:lease:a/b").await.unwrap();
        // The key was read after `before`, so it ends at this moment or later.
        let ends = before + Duration::from_millis(left);
        assert!(valid_until < ends, "S3: {valid_until:?} {ends:?}");
    }
    clock::sleep_until(valid_until).await;
    assert!(lease.authority_at(clock::now()).is_none());
}

#[tokio::test]
async fn s5_a_lost_attempt_leaves_no_key_behind() {
    let (servers, masters) = three().await;
    // Two of three masters show the lease of another candidate.
    for server in &servers[..2] {
        let theirs = "1|test|test|them|000000000000000000000000000000ff|1";
        let _: () = raw(server)
            .await
            .pset_ex("redlock:lease:a/b", theirs, 60_000)
            .await
            .unwrap();
    }
    assert!(masters.try_acquire("a/b", "me").await.is_none());
    eventually(BOUND, "the third master free again", async || {
        match value(&servers[2], "a/b").await {
            None => Ok(()),
            Some(left) => Err(left),
        }
    })
    .await;
    assert!(
        value(&servers[0], "a/b").await.unwrap().contains("|them|"),
        "nobody else's lease was touched"
    );
}

#[tokio::test]
async fn s5_a_cancelled_attempt_leaves_no_key_behind() {
    let (servers, masters) = three().await;
    for round in 0..50 {
        let (lock, holder) = (lock_name(&format!("a/{round}")), identity("me"));
        let attempt = masters.acquire(&lock, &holder, LONGEST_LEASE);
        // Dropped at a different time in each round: before, during and after the win.
        let patience = Duration::from_micros(20 * round);
        if let Ok(Ok(Acquired::Won(lease))) = tokio::time::timeout(patience, attempt).await {
            drop(lease);
        }
    }
    for round in 0..50 {
        eventually_values(&servers, &format!("a/{round}"), 0).await;
    }
}

#[tokio::test]
async fn a_master_that_does_not_answer_does_not_slow_an_attempt() {
    let (servers, masters) = unhurried(5).await;
    servers[0].pause().unwrap();
    let started = std::time::Instant::now();
    let lease = masters.try_acquire("a/b", "me").await.unwrap();
    // The answers of four masters take well under the deadline of a command.
    assert!(started.elapsed() < UNHURRIED * 3 / 4, "{:?}", started.elapsed());
    drop(lease);
    servers[0].resume().unwrap();
}

#[tokio::test]
async fn no_majority_is_an_outcome_in_bounded_time() {
    let (servers, masters) = three().await;
    servers[0].pause().unwrap();
    servers[1].kill();
    let acquired = masters
        .acquire(&lock_name("a/b"), &identity("me"), LONGEST_LEASE)
        .await
        .unwrap();
    assert!(
        matches!(acquired, Acquired::Lost(Loss::NoQuorum(_) | Loss::TooLate)),
        "{acquired:?}"
    );
    eventually_values(&servers[2..], "a/b", 0).await;
    servers[0].resume().unwrap();
}

#[tokio::test]
async fn a_grant_queued_in_the_socket_of_a_stopped_master_writes_nothing_when_it_resumes() {
    let (servers, masters) = three().await;
    let one = &servers[2];
    one.pause().unwrap();
    // Sent to all three masters, won on two.
    let lease = masters.acquire_soon("a/b", "me").await;
    assert!(lease.authority_at(clock::now()).is_some());
    // The client dies: no undo, no release, its connections are reset.
    std::mem::forget(lease);
    drop(masters);
    // Wait until the command is too late.
    tokio::time::sleep(COMMAND_TIMEOUT + Duration::from_millis(100)).await;
    one.resume().unwrap();
    let mut connection = raw(one).await;
    // A later command is answered once all queued commands have run.
    let _: String = redis::cmd("PING").query_async(&mut connection).await.unwrap();
    let left: Option<String> = connection.get("redlock:lease:a/b").await.unwrap();
    assert_eq!(left, None, "the late grant wrote a key");
}

#[tokio::test]
async fn an_undo_is_repeated_after_the_connection_of_the_grant_was_lost() {
    let (servers, masters) = three().await;
    let lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    // The lease is released while one master does not answer.
    servers[0].pause().unwrap();
    let _ = lease.release().await.unwrap();
    servers[0].resume().unwrap();
    eventually_values(&servers, "a/b", 0).await;
}

/// Waits for the keys to be deleted before they would expire.
async fn soon_no_values(servers: &[RedisServer], lock: &str) {
    let soon = LONGEST_LEASE * 3 / 4;
    eventually(soon, &format!("no lease of {lock} is left"), async || {
        for server in servers {
            if let Some(left) = value(server, lock).await {
                return Err(left);
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn s5_an_attempt_that_is_dropped_after_it_was_won_leaves_no_key_behind() {
    let (servers, masters) = three().await;
    let (lock, holder) = (lock_name("a/b"), identity("me"));
    let mut attempt = Box::pin(masters.acquire(&lock, &holder, LONGEST_LEASE));
    assert!(attempt.as_mut().now_or_never().is_none());
    // The lease is won and delivered, but not read.
    eventually_values(&servers, "a/b", 3).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(attempt);
    soon_no_values(&servers, "a/b").await;
}

#[tokio::test]
async fn a_lease_that_was_lost_is_given_back_where_it_is_left() {
    let (servers, masters) = three().await;
    let mut lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    for server in &servers[..2] {
        let theirs = "1|test|test|them|000000000000000000000000000000ff|1";
        let _: () = raw(server)
            .await
            .pset_ex("redlock:lease:a/b", theirs, 60_000)
            .await
            .unwrap();
    }
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    drop(lease);
    soon_no_values(&servers[2..], "a/b").await;
    assert!(value(&servers[0], "a/b").await.unwrap().contains("|them|"));
}

#[tokio::test]
async fn no_lease_is_longer_than_a_seal_waits_for() {
    let (servers, masters) = three().await;
    let (lock, holder) = (lock_name("a/b"), identity("me"));
    let acquired = masters.acquire(&lock, &holder, Duration::from_secs(3_600)).await;
    let Acquired::Won(lease) = acquired.unwrap() else {
        panic!("not won")
    };
    assert!(authority(&lease).valid_until < clock::now() + LONGEST_LEASE);
    let left: u128 = raw(&servers[0]).await.pttl("redlock:lease:a/b").await.unwrap();
    assert!(left <= LONGEST_LEASE.as_millis(), "{left}");
}

/// The masters forget the lease while its holder relies on it.
#[tokio::test]
async fn a_caller_waits_for_the_observed_end_of_a_lease_that_the_masters_forgot() {
    let (servers, masters) = three().await;
    let other = open(&config(&servers));
    other.voters(3).await;
    let lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    let (lock, holder) = (lock_name("a/b"), identity("you"));
    let attempt = async || other.acquire(&lock, &holder, LONGEST_LEASE).await.unwrap();
    let Acquired::Lost(Loss::Refused(seen)) = attempt().await else {
        panic!("not refused")
    };
    for server in servers.iter() {
        let _: () = raw(server).await.del("redlock:lease:a/b").await.unwrap();
    }
    let valid_until = authority(&lease).valid_until;
    let next = eventually(2 * BOUND, "the lock is acquired", async || {
        match attempt().await {
            Acquired::Won(lease) => Ok(lease),
            Acquired::Lost(loss) => Err(loss),
        }
    })
    .await;
    let now = clock::now();
    assert!(now >= seen.free_at().unwrap() && now >= valid_until);
    drop((lease, next));
}

#[tokio::test]
async fn a_release_ends_the_wait_of_a_caller_that_was_refused() {
    let (servers, masters) = three().await;
    let other = open(&config(&servers));
    other.voters(3).await;
    subscribed(&servers, 2).await;
    let lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(other.try_acquire("a/b", "you").await.is_none());
    let end = authority(&lease).valid_until;
    assert!(lease.release().await.unwrap());
    let next = other.acquire_soon("a/b", "you").await;
    assert!(clock::now() < end, "long before the end of the lease");
    drop(next);
}

/// The drift of a shorter lease covers no step of a clock that is not noticed.
#[tokio::test]
async fn a_lease_that_is_shorter_than_the_shortest_is_refused() {
    let (servers, masters) = three().await;
    let (lock, holder) = (lock_name("a/b"), identity("me"));
    for lease_duration in [Duration::ZERO, Duration::from_millis(1_999)] {
        let error = masters.acquire(&lock, &holder, lease_duration).await.unwrap_err();
        let expected = format!(
            "cannot acquire the lock \"a/b\": lease duration {} s is shorter than 2 s, the shortest lease",
            lease_duration.as_secs_f64()
        );
        assert_eq!(error.to_string(), expected);
    }
    eventually_values(&servers, "a/b", 0).await;
    let shortest = masters.acquire(&lock, &holder, Duration::from_secs(2)).await;
    assert!(matches!(shortest, Ok(Acquired::Won(_))), "{shortest:?}");
}

#[tokio::test]
async fn a_released_lease_can_be_acquired_again_at_once() {
    let (_servers, masters) = three().await;
    for _ in 0..20 {
        let lease = masters.try_acquire("a/b", "me").await.expect("free");
        drop(lease);
    }
}

struct Appended<'a>(&'a mut redis::Cmd);

impl Arguments for Appended<'_> {
    fn text(&mut self, text: &str) {
        self.0.arg(text);
    }

    fn number(&mut self, number: u64) {
        self.0.arg(number);
    }
}

#[tokio::test]
async fn a_confirm_holds_only_where_the_lease_is_exactly_the_one_that_was_granted() {
    let (servers, masters) = three().await;
    let lock = masters.lock(&lock_name("a/b"));
    let attempt = Arc::new(LeaseAttempt::new(masters.stem(&identity("me")), LONGEST_LEASE));
    let request = Command::Acquire {
        attempt: attempt.clone(),
        lease_duration: LONGEST_LEASE,
    };
    let Completion::Won(won) = masters.ask(&lock, request).await.unwrap() else {
        panic!("nobody else wants it")
    };
    eventually_values(&servers, "a/b", 3).await;
    let number = won.token.0;
    let confirm = async |granted: Vec<(usize, u64)>, token: u64| {
        let item = Item::Confirm {
            attempt: attempt.clone(),
            token: FencingToken(token),
            granted,
        };
        let payload = Payload {
            operation: item.operation(),
            items: vec![(lock.clone(), item)].into(),
            keys: Keyspace::new("redlock"),
            cluster: "".into(),
            floor: 0,
        };
        let mut acknowledged = 0;
        for (master, server) in servers.iter().enumerate() {
            let stamp = register(server, "fingerprint").await.unwrap();
            let mut command = redis::cmd("EVAL");
            command.arg(&payload.script().source);
            payload.write(&mut Appended(&mut command), 1 << 52, &stamp, master, &[0]);
            let reply: Vec<redis::Value> = command.query_async(&mut raw(server).await).await.unwrap();
            acknowledged += usize::from(reply[4] == redis::Value::Int(1));
        }
        acknowledged >= 2
    };
    assert!(confirm((0..3).map(|m| (m, number)).collect(), number).await);
    // With a number that was not granted, or without the lease, nothing is confirmed and no counter moves.
    assert!(!confirm((0..3).map(|m| (m, number + 1)).collect(), number + 50).await);
    for server in servers.iter() {
        let _: () = raw(server).await.del("redlock:lease:a/b").await.unwrap();
    }
    assert!(!confirm((0..3).map(|m| (m, number)).collect(), number + 50).await);
    for server in servers.iter() {
        assert_eq!(register(server, "counter").await, Some(number.to_string()));
    }
}
