//! Tests docs/protocol.md, section 7: renew.

use std::time::Duration;

use redis::AsyncCommands;
use redlock_client::clock;
use redlock_client::masters::{Command, Completion, Lease, MastersConfig, Renewal};

use crate::lease::{authority, eventually_values, three, value};
use crate::seal::{BOUND, raw, register, sealed};
use redlock_testkit::masters::{LONGEST_LEASE, Opened, acquire_soon_for, config, lock_name, open};
use redlock_testkit::{RedisServers, ServerOptions, eventually};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Starts three sealed servers, and holds `a/b` there for a minute: a busy machine does not lose the lease.
pub(crate) async fn held_for_a_minute() -> (RedisServers, Opened, Lease) {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let masters = open(&MastersConfig {
        longest_lease: MINUTE,
        ..config(&servers)
    });
    masters.seal(&servers).await;
    let lease = acquire_soon_for(&masters, "a/b", "me", MINUTE).await;
    (servers, masters, lease)
}

const KEY: &str = "redlock:lease:a/b";

#[tokio::test]
async fn a_renewal_moves_the_end_and_the_expiry_of_every_key() {
    let (servers, masters) = three().await;
    let mut lease = masters.acquire_soon("a/b", "me").await;
    let before = authority(&lease);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let asked = clock::now();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    let after = authority(&lease);
    assert!(after.valid_until >= before.valid_until + Duration::from_millis(300));
    assert_eq!(after.token, before.token, "a renewal is no new grant");
    for server in servers.iter() {
        let left: u64 = raw(server).await.pttl(KEY).await.unwrap();
        // Read before now, so the key ends before this time.
        let ends = clock::now() + Duration::from_millis(left + 2);
        assert!(ends >= asked + LONGEST_LEASE, "{left}");
    }
}

/// The clock of a master was set back by an hour: an expiry is absolute.
#[tokio::test]
async fn a_key_that_outlives_the_longest_lease_is_shortened_by_scripts_that_write() {
    let (servers, masters) = three().await;
    let hour = 3_600_000_i64;
    let left = async |index: usize| -> i64 { raw(&servers[index]).await.pttl(KEY).await.unwrap() };
    let longest = i64::try_from(LONGEST_LEASE.as_millis()).unwrap();
    let mut other = raw(&servers[0]).await;
    let _: () = other
        .pset_ex(KEY, "2|another holder", u64::try_from(hour).unwrap())
        .await
        .unwrap();
    let observed = masters
        .ask(&masters.lock(&lock_name("a/b")), Command::Observe)
        .await
        .unwrap();
    assert!(matches!(observed, Completion::Observed(_)), "{observed:?}");
    assert!(left(0).await > longest, "an observation writes nothing");

    // The grant of the attempt that wins on the two others.
    let mut lease = masters.acquire_soon("a/b", "me").await;
    eventually(BOUND, "the key of the first master is shortened", async || {
        let left = left(0).await;
        if left <= longest { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(value(&servers[0], "a/b").await.unwrap(), "2|another holder");
    let _: () = raw(&servers[1]).await.pexpire(KEY, hour).await.unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    eventually(BOUND, "the own key is shortened", async || {
        let left = left(1).await;
        if left <= longest { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test]
async fn a_lease_missing_at_a_sealed_master_is_put_back_with_the_token() {
    let (servers, masters) = three().await;
    let mut lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    let token = authority(&lease).token.0;
    let mut connection = raw(&servers[1]).await;
    let _: () = connection.del(KEY).await.unwrap();
    let _: () = connection
        .hset("redlock:meta", "counter", token - 1)
        .await
        .unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    eventually_values(&servers, "a/b", 3).await;
    assert!(
        value(&servers[1], "a/b")
            .await
            .unwrap()
            .ends_with(&format!("|{token}"))
    );
    assert_eq!(
        register(&servers[1], "counter").await,
        Some(token.to_string()),
        "no later grant repeats the token"
    );
}

#[tokio::test]
async fn more_than_a_minority_of_refusals_is_lost_now() {
    let (servers, masters) = three().await;
    let mut lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    for server in &servers[..2] {
        let theirs = "1|test|test|them|000000000000000000000000000000ff|1";
        let _: () = raw(server).await.pset_ex(KEY, theirs, 60_000).await.unwrap();
    }
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    assert!(lease.authority_at(clock::now()).is_none());
}

#[tokio::test]
async fn s6_a_failed_renewal_deletes_nothing_and_moves_nothing() {
    let (servers, _masters, mut lease) = held_for_a_minute().await;
    eventually_values(&servers, "a/b", 3).await;
    let before = authority(&lease);
    servers[0].pause().unwrap();
    servers[1].pause().unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Undecided);
    assert_eq!(authority(&lease), before);
    servers[0].resume().unwrap();
    servers[1].resume().unwrap();
    eventually_values(&servers, "a/b", 3).await;
}

#[tokio::test]
async fn a_renewal_works_when_the_memory_of_the_masters_is_full() {
    let (servers, masters) = three().await;
    let mut lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    for server in servers.iter() {
        let mut connection = raw(server).await;
        let _: () = redis::cmd("CONFIG")
            .arg("SET")
            .arg("maxmemory")
            .arg("1")
            .query_async(&mut connection)
            .await
            .unwrap();
    }
    assert_eq!(lease.renew().await.unwrap(), Renewal::Renewed);
    assert!(
        masters.try_acquire("a/other", "me").await.is_none(),
        "a grant needs memory: unknown, not refused"
    );
}

#[tokio::test]
async fn a_reservation_without_a_candidate_refuses_the_holder_at_its_next_renewal() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let mut lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    let request = Command::Break {
        longest_lease: LONGEST_LEASE,
    };
    let Completion::Done { majority: true, .. } = masters
        .ask(&masters.lock(&lock_name("a/b")), request)
        .await
        .unwrap()
    else {
        panic!("the reservation was not set on a majority")
    };
    assert!(lease.authority_at(clock::now()).is_some());
    eventually_values(&servers, "a/b", 3).await;
    assert_eq!(
        lease.renew().await.unwrap(),
        Renewal::Lost,
        "`break` deletes no lease, it refuses the holder"
    );
    drop(lease);
    eventually_values(&servers, "a/b", 0).await;
    assert!(
        masters.try_acquire("a/b", "you").await.is_none(),
        "and nobody enters before the reservation ends"
    );
    let _theirs = masters.acquire_soon("a/b", "you").await;
}
