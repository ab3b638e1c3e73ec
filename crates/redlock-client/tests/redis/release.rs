//! Tests docs/protocol.md, sections 8 and 9 (release, undo, reserve) and 10 (observations of a standby).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use redis::AsyncCommands;
use redlock_client::clock;
use redlock_client::elector::{Elector, Silent};
use redlock_client::lease::{ClusterId, Participation, ReleaseMode, Terms, Timings};
use redlock_client::masters::{Call, Command, Completion, LeaseAttempt, Masters, MastersConfig, Notice};

use crate::fence::eventually_reserved;
use crate::lease::{PATIENT, eventually_values, three};
use crate::renew::MINUTE;
use crate::seal::{BOUND, raw};
use redlock_testkit::masters::{LONGEST_LEASE, Opened, config, identity, lock_name, open};
use redlock_testkit::{Mode, Proxy, RedisServers, ServerOptions, eventually};

const KEY: &str = "redlock:lease:a/b";
const RESERVED: &str = "redlock:reserved:a/b";

async fn hold(masters: &Masters, lock: &str) -> Arc<LeaseAttempt> {
    hold_for(masters, lock, LONGEST_LEASE).await
}

/// Acquires the longest lease of these masters.
async fn hold_for(masters: &Masters, lock: &str, lease_duration: Duration) -> Arc<LeaseAttempt> {
    let attempt = Arc::new(LeaseAttempt::new(masters.stem(&identity("me")), lease_duration));
    let request = Command::Acquire {
        attempt: attempt.clone(),
        lease_duration,
    };
    let completion = masters
        .ask(&masters.lock(&lock_name(lock)), request)
        .await
        .unwrap();
    assert!(matches!(completion, Completion::Won(_)), "{completion:?}");
    attempt
}

async fn ask(masters: &Masters, request: Command) -> bool {
    match masters
        .ask(&masters.lock(&lock_name("a/b")), request)
        .await
        .unwrap()
    {
        Completion::Done { majority, .. } => majority,
        other => panic!("{other:?}"),
    }
}

async fn of_cluster(servers: &[redlock_testkit::RedisServer], name: &str) -> Opened {
    let opened = open(&redlock_client::masters::MastersConfig {
        cluster: ClusterId::new(name, name).unwrap(),
        ..config(servers)
    });
    opened.voters(servers.len()).await;
    opened
}

/// Waits until this number of processes is subscribed to the releases of every server.
pub(crate) async fn subscribed(servers: &[redlock_testkit::RedisServer], processes: usize) {
    let what = format!("{processes} processes subscribed everywhere");
    eventually(BOUND, &what, async || {
        let mut counts = Vec::new();
        for server in servers {
            let (_, count): (String, usize) = redis::cmd("PUBSUB")
                .arg("NUMSUB")
                .arg("redlock:released")
                .query_async(&mut raw(server).await)
                .await
                .unwrap();
            counts.push(count);
        }
        if counts.iter().all(|count| *count == processes) {
            Ok(())
        } else {
            Err(counts)
        }
    })
    .await;
}

/// Waits until each of three masters has published the release of this lock, and of no other lock.
async fn released_everywhere(standby: &mut Opened, lock: &str) {
    let mut publishers = BTreeSet::new();
    while publishers.len() < 3 {
        let notice = tokio::time::timeout(BOUND, standby.notices.recv()).await;
        let notice =
            notice.unwrap_or_else(|_| panic!("the release of {lock} was published by {publishers:?} only"));
        if let Notice::Released {
            master,
            lock: released,
        } = notice.unwrap()
        {
            assert_eq!(released, lock_name(lock));
            publishers.insert(master);
        }
    }
}

#[tokio::test]
async fn an_undo_notifies_standbys_unless_its_attempt_was_lost() {
    let (servers, masters) = three().await;
    let mut standby = open(&config(&servers));
    standby.voters(3).await;
    subscribed(&servers, 2).await;
    for (lock, publish) in [("a/lost", false), ("a/b", true)] {
        let attempt = hold(&masters, lock).await;
        eventually_values(&servers, lock, 3).await;
        let undo = Command::Undo { attempt, publish };
        masters.ask(&masters.lock(&lock_name(lock)), undo).await.unwrap();
        eventually_values(&servers, lock, 0).await;
    }
    released_everywhere(&mut standby, "a/b").await;
}

/// A majority may have granted the attempt: standbys that were refused wait for the end of its lease.
#[tokio::test]
async fn a_candidate_that_leaves_while_it_acquires_notifies_standbys() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let mut direct = config(&servers);
    (direct.command_timeout, direct.acquire_limit) = (PATIENT, 2 * PATIENT);
    let mut standby = open(&direct);
    standby.seal(&servers).await;
    let (mut proxies, mut far) = (Vec::new(), direct.clone());
    for (server, master) in servers.iter().zip(&mut far.masters) {
        let proxy = Proxy::to_port(server.port()).await;
        master.url = proxy.url();
        proxies.push(proxy);
    }
    let far = open(&far);
    far.voters(3).await;
    subscribed(&servers, 2).await;
    // The answers arrive this much later than the grants, so the candidate can leave in between.
    for proxy in &proxies {
        proxy.set(Mode::Delay(Duration::from_millis(600)));
    }
    let Opened {
        masters,
        notices,
        tasks: _tasks,
    } = far;
    let (elector, _task) = Elector::start(masters, notices, identity("me"), Arc::new(Silent));
    let lock = lock_name("a/b");
    elector.put(
        lock.clone(),
        Terms {
            cluster: direct.cluster.clone(),
            timings: Timings {
                lease_duration: LONGEST_LEASE,
                renew_deadline: LONGEST_LEASE / 2,
                retry_period: Duration::from_millis(500),
                stop: Duration::ZERO,
            },
            participation: Participation::Contend,
            ordered_delay: Duration::ZERO,
            guards: false,
            siblings_first: false,
            fenced: false,
        },
    );
    eventually_values(&servers, "a/b", 3).await;
    let acquired = elector
        .watch(&lock)
        .is_some_and(|seen| seen.borrow().authority_at(clock::now()).is_some());
    println!("left {} its answers", if acquired { "after" } else { "before" });
    elector.remove(lock, ReleaseMode::Release);
    released_everywhere(&mut standby, "a/b").await;
    eventually_values(&servers, "a/b", 0).await;
}

#[tokio::test]
async fn a_release_deletes_only_the_own_lease_and_notifies_all_candidates() {
    let (servers, masters) = three().await;
    let mut standby = open(&config(&servers));
    standby.voters(3).await;
    subscribed(&servers, 2).await;
    let lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(lease.release().await.unwrap());
    released_everywhere(&mut standby, "a/b").await;
    eventually_values(&servers, "a/b", 0).await;
}

/// Standbys that the minority woke were refused by the other masters, and wait for the end of the lease there.
#[tokio::test]
async fn a_release_that_reached_a_minority_is_published_where_it_is_repeated() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let mut far = config(&servers);
    // The lease must outlast the test.
    far.longest_lease = MINUTE;
    let mut standby = open(&far);
    standby.seal(&servers).await;
    let mut proxies = Vec::new();
    for (server, master) in servers.iter().zip(&mut far.masters).take(2) {
        let proxy = Proxy::to_port(server.port()).await;
        master.url = proxy.url();
        proxies.push(proxy);
    }
    let masters = open(&far);
    masters.voters(3).await;
    subscribed(&servers, 2).await;
    let attempt = hold_for(&masters, "a/b", MINUTE).await;
    eventually_values(&servers, "a/b", 3).await;
    for proxy in &proxies {
        proxy.set(Mode::BlackHole);
    }
    assert!(!ask(&masters, Command::Release { attempt }).await, "a minority");
    for proxy in &proxies {
        proxy.heal();
    }
    released_everywhere(&mut standby, "a/b").await;
    eventually_values(&servers, "a/b", 0).await;
}

#[tokio::test]
async fn a_release_is_idempotent_and_leaves_the_lease_of_another() {
    let (servers, masters) = three().await;
    let attempt = hold(&masters, "a/b").await;
    assert!(
        ask(
            &masters,
            Command::Release {
                attempt: attempt.clone()
            }
        )
        .await
    );
    let _theirs = masters.acquire_soon("a/b", "them").await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(
        !ask(&masters, Command::Release { attempt }).await,
        "nothing of mine is left"
    );
    eventually_values(&servers, "a/b", 3).await;
}

#[tokio::test]
async fn after_a_reserve_only_candidates_of_that_cluster_may_enter() {
    let (servers, masters) = three().await;
    let (here, there) = (
        of_cluster(&servers, "eu-1").await,
        of_cluster(&servers, "us-1").await,
    );
    let attempt = hold(&masters, "a/b").await;
    eventually_values(&servers, "a/b", 3).await;
    let cluster = ClusterId::new("us-1", "us-1").unwrap();
    assert!(ask(&masters, Command::Reserve { attempt, cluster }).await);
    // The rest of the lease.
    eventually_reserved(&servers, Some("us-1/us-1"), 1..8_001).await;
    assert!(here.try_acquire("a/b", "here").await.is_none());
    let lease = there.try_acquire("a/b", "there").await.unwrap();
    // The release also deletes the reservation for the own cluster.
    assert!(lease.release().await.unwrap());
    let _theirs = here.acquire_soon("a/b", "here").await;
}

#[tokio::test]
async fn a_reservation_is_for_the_uid_of_a_cluster_whatever_its_name() {
    let (servers, masters) = three().await;
    let renamed = open(&redlock_client::masters::MastersConfig {
        cluster: ClusterId::new("us-west", "us-1").unwrap(),
        ..config(&servers)
    });
    renamed.voters(3).await;
    let namesake = open(&redlock_client::masters::MastersConfig {
        cluster: ClusterId::new("us-1", "another").unwrap(),
        ..config(&servers)
    });
    namesake.voters(3).await;
    let attempt = hold(&masters, "a/b").await;
    eventually_values(&servers, "a/b", 3).await;
    let cluster = ClusterId::new("us-1", "us-1").unwrap();
    assert!(ask(&masters, Command::Reserve { attempt, cluster }).await);
    assert!(namesake.try_acquire("a/b", "namesake").await.is_none());
    let lease = renamed.try_acquire("a/b", "renamed").await.unwrap();
    assert!(lease.release().await.unwrap());
    // A release of the cluster deletes the reservation.
    eventually_reserved(&servers, None, -2..-1).await;
}

#[tokio::test]
async fn a_lock_is_passed_back_while_its_reservation_still_stands() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    // The reservation must outlast the test.
    let config = MastersConfig {
        longest_lease: MINUTE,
        ..config(&servers)
    };
    let masters = open(&config);
    masters.seal(&servers).await;
    let cluster = ClusterId::new("us-1", "us-1").unwrap();
    let there = open(&MastersConfig {
        cluster: cluster.clone(),
        ..config
    });
    there.voters(3).await;
    let attempt = hold_for(&masters, "a/b", MINUTE).await;
    eventually_values(&servers, "a/b", 3).await;
    assert!(ask(&masters, Command::Reserve { attempt, cluster }).await);
    eventually_reserved(&servers, Some("us-1/us-1"), 1..60_001).await;
    let attempt = hold_for(&there, "a/b", MINUTE).await;
    eventually_values(&servers, "a/b", 3).await;
    eventually_reserved(&servers, Some("us-1/us-1"), 1..60_001).await;
    let cluster = ClusterId::new("eu-1", "eu-1").unwrap();
    assert!(ask(&there, Command::Reserve { attempt, cluster }).await);
    eventually_reserved(&servers, Some("eu-1/eu-1"), 1..60_001).await;
}

#[tokio::test]
async fn a_failed_attempt_of_a_sibling_does_not_destroy_a_reservation() {
    let (servers, masters) = three().await;
    let here = of_cluster(&servers, "eu-1").await;
    let attempt = hold(&masters, "a/b").await;
    eventually_values(&servers, "a/b", 3).await;
    let cluster = ClusterId::new("eu-1", "eu-1").unwrap();
    assert!(ask(&masters, Command::Reserve { attempt, cluster }).await);
    eventually_reserved(&servers, Some("eu-1/eu-1"), 1..8_001).await;
    // Another candidate takes two masters: the sibling's attempt is lost and undone.
    for server in &servers[..2] {
        let theirs = "1|x|x|them|000000000000000000000000000000ff|1";
        let _: () = raw(server).await.pset_ex(KEY, theirs, 60_000).await.unwrap();
    }
    assert!(here.try_acquire("a/b", "sibling").await.is_none());
    let left: Option<String> = raw(&servers[2]).await.get(RESERVED).await.unwrap();
    assert_eq!(left.as_deref(), Some("eu-1/eu-1"));
}

#[tokio::test]
async fn a_reserve_needs_a_majority_of_leases_that_are_mine() {
    let (servers, masters) = three().await;
    let attempt = hold(&masters, "a/b").await;
    eventually_values(&servers, "a/b", 3).await;
    for server in &servers[..2] {
        let _: () = raw(server).await.del(KEY).await.unwrap();
    }
    let cluster = ClusterId::new("eu-1", "eu-1").unwrap();
    assert!(!ask(&masters, Command::Reserve { attempt, cluster }).await);
}

/// An undo there would admit another cluster as soon as the shortest of the reservations has run out.
#[tokio::test]
async fn a_reserve_without_a_reply_is_repeated_and_the_lease_stays_until_then() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let proxy = Proxy::to_port(servers[0].port()).await;
    let mut here = config(&servers);
    // The lease must outlast the test.
    here.longest_lease = Duration::from_secs(60);
    open(&here).seal(&servers).await;
    here.masters[0].url = proxy.url();
    let masters = open(&here);
    masters.voters(3).await;
    let attempt = Arc::new(LeaseAttempt::new(
        masters.stem(&identity("me")),
        here.longest_lease,
    ));
    let request = Command::Acquire {
        attempt: attempt.clone(),
        lease_duration: here.longest_lease,
    };
    let completion = masters.ask(&masters.lock(&lock_name("a/b")), request).await;
    assert!(matches!(completion.unwrap(), Completion::Won(_)));
    eventually_values(&servers, "a/b", 3).await;
    proxy.set(Mode::BlackHole);
    let cluster = ClusterId::new("us-1", "us-1").unwrap();
    assert!(ask(&masters, Command::Reserve { attempt, cluster }).await);
    proxy.heal();
    eventually(BOUND, "the reservation is everywhere", async || {
        let found: (Option<String>, Option<String>) = redis::pipe()
            .get(KEY)
            .get(RESERVED)
            .query_async(&mut raw(&servers[0]).await)
            .await
            .unwrap();
        assert!(
            found.0.is_some() || found.1.is_some(),
            "a master has neither a lease nor a reservation"
        );
        if found == (None, Some("us-1/us-1".to_owned())) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
}

#[tokio::test]
async fn observe_reads_holder_and_remaining_time_and_writes_nothing() {
    let (servers, masters) = three().await;
    let lock = masters.lock(&lock_name("a/b"));
    let Completion::Observed(view) = masters.ask(&lock, Command::Observe).await.unwrap() else {
        panic!()
    };
    assert!(view.free() && view.holder().is_none());
    let lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 3).await;
    let dirty = async || -> Vec<String> {
        let mut all = Vec::new();
        for server in servers.iter() {
            let info: String = redis::cmd("INFO")
                .arg("persistence")
                .query_async(&mut raw(server).await)
                .await
                .unwrap();
            all.extend(
                info.lines()
                    .filter(|l| l.starts_with("rdb_changes_since_last_save"))
                    .map(str::to_owned),
            );
        }
        all
    };
    let before = dirty().await;
    let Completion::Observed(view) = masters.ask(&lock, Command::Observe).await.unwrap() else {
        panic!()
    };
    assert_eq!(view.holder().unwrap().identity, "me");
    assert_eq!(dirty().await, before);
    drop(lease);
}

#[tokio::test]
async fn calls_of_many_locks_that_arrive_together_travel_together() {
    let (servers, masters) = three().await;
    let calls = async || -> u64 {
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut raw(&servers[0]).await)
            .await
            .unwrap();
        let line = info
            .lines()
            .find_map(|l| l.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|l| l.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    let _warm = masters.acquire_soon("warm/up", "me").await;
    let before = calls().await;
    let (sender, mut delivered) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..1_000_u64 {
        let attempt = Arc::new(LeaseAttempt::new(masters.stem(&identity("me")), LONGEST_LEASE));
        let request = Command::Acquire {
            attempt,
            lease_duration: LONGEST_LEASE,
        };
        let lock = masters.lock(&lock_name(&format!("many/{number}")));
        masters
            .submit(Call::tagged(lock, request, number, sender.clone()))
            .unwrap();
    }
    for _ in 0..1_000 {
        let (tag, completion) = tokio::time::timeout(BOUND, delivered.recv())
            .await
            .unwrap()
            .unwrap();
        assert!(matches!(completion, Completion::Won(_)), "{tag}: {completion:?}");
    }
    let spent = calls().await - before;
    assert!(spent < 100, "{spent} script calls for 1,000 locks at one master");
}
