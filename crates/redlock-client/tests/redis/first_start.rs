//! Tests docs/protocol.md, P-74 to P-76: new masters, by the fallback and by `init`.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use redlock_client::lease::FencingToken;
use redlock_client::masters::{
    Blocked, Ineligible, InitError, MasterStatus, MastersConfig, Remembered, begin_init, init,
};

use crate::lease::authority;
use crate::seal::{BOUND, WAIT, probe_prefix, raw, register};
use redlock_testkit::masters::{config, open, remembered};
use redlock_testkit::{RedisServers, ServerOptions, eventually};

fn servers() -> RedisServers {
    RedisServers::start(3, &ServerOptions::default()).unwrap()
}

fn unix_seconds() -> u64 {
    redlock_client::clock::unix_time().as_secs()
}

#[tokio::test]
async fn masters_that_lost_their_memory_are_sealed_by_processes_that_remember_the_quorum_after_one_wait() {
    let (servers, begin, since) = (servers(), Instant::now(), unix_seconds());
    let (one, other) = (
        open(&remembered(config(&servers))),
        open(&remembered(config(&servers))),
    );
    for masters in [&one, &other] {
        masters
            .master(0, "sealing", |master| {
                master.sealing_left.is_some_and(|left| left > WAIT / 2)
            })
            .await;
    }
    assert!(
        one.try_acquire("a/b", "h").await.is_none(),
        "no vote before the wait"
    );
    one.voters(3).await;
    other.voters(3).await;
    let took = begin.elapsed();
    assert!(took >= WAIT && took < WAIT + BOUND / 2, "{took:?}");
    for server in servers.iter() {
        let number = async |field| register(server, field).await.unwrap().parse::<u64>().unwrap();
        assert!(number("counter").await >= since * 1_000);
        assert!(number("slotFloor").await >= since + 120);
        assert!(number("heldFloor").await >= since * 1_000);
        let probe: bool = raw(server).await.exists("redlock:probe").await.unwrap();
        assert!(!probe, "the seal takes the probe away");
    }
    assert!(one.try_acquire("a/b", "h").await.is_some());
}

#[tokio::test]
async fn new_masters_are_not_sealed_by_a_process_that_knows_no_quorum_and_the_reason_names_the_remedy() {
    let servers = servers();
    let masters = open(&config(&servers));
    let day = Duration::from_secs(86_400);
    let status = masters.master(0, "blocked", |master| {
        master.sealing_left.is_some_and(|left| left > day) && master.seal_blocked.is_some()
    });
    let why = status.await.seal_blocked.unwrap();
    assert_eq!(why, Blocked::NeverSeen);
    assert!(why.to_string().contains("`redlock init`"), "{why}");
    masters.seal(&servers).await;
    // From now on it knows the quorum.
    servers.iter().for_each(|server| server.restart_empty().unwrap());
    masters.voters(0).await;
    masters.voters(3).await;
    assert!(masters.try_acquire("a/b", "h").await.is_some());
}

/// The trace of P-74: the wait of the process with the shorter lease would end while the longer lease is valid.
#[tokio::test]
async fn a_process_with_another_longest_lease_never_seals_after_a_total_loss() {
    let servers = servers();
    let masters = open(&config(&servers));
    masters.seal(&servers).await;
    let other = open(&MastersConfig {
        longest_lease: Duration::from_secs(2),
        acquire_limit: Duration::from_millis(500),
        ..config(&servers)
    });
    let refused =
        |master: &MasterStatus| matches!(master.ineligible, Some(Ineligible::OtherFingerprint { .. }));
    for index in 0..3 {
        other
            .master(index, "sealed for the other fingerprint", refused)
            .await;
    }
    servers.iter().for_each(|server| server.restart_empty().unwrap());
    let blocked = |master: &MasterStatus| {
        matches!(master.seal_blocked, Some(Blocked::OtherFingerprint { .. }))
            && master.sealing_left.is_some_and(|left| left.is_zero())
    };
    // Its own wait is 3.04 s. It waits for the one that it saw, and does not seal after that, either.
    let status = other.master(0, "blocked after the wait", |master| {
        blocked(master) || master.ineligible.is_some()
    });
    status.await;
    masters.voters(3).await;
    other.master(0, "sealed for the other fingerprint", refused).await;
    assert_eq!(other.voters_now(), 0);
}

#[tokio::test]
async fn a_total_loss_is_sealed_above_all_that_was() {
    let servers = servers();
    let masters = open(&config(&servers));
    masters.seal(&servers).await;
    let lease = masters.acquire_soon("a/b", "h").await;
    let before = lease
        .authority_at(redlock_client::lease::BootInstant::default())
        .unwrap()
        .token;
    servers[0].restart_empty().unwrap();
    servers[1].restart_empty().unwrap();
    masters.voters(1).await;
    masters.voters(3).await;
    let after = masters.acquire_soon("a/b", "h").await;
    let after = after
        .authority_at(redlock_client::lease::BootInstant::default())
        .unwrap()
        .token;
    assert!(after > before);
}

/// A quorum of one master: each restart is a total loss.
#[tokio::test]
async fn one_master_grants_and_after_a_restart_is_sealed_above_all_that_was_after_one_wait() {
    let servers = RedisServers::start(1, &ServerOptions::default()).unwrap();
    let masters = open(&config(&servers));
    masters.seal(&servers).await;
    let lease = masters.acquire_soon("a/b", "h").await;
    let before = authority(&lease).token;
    assert!(masters.try_acquire("a/b", "other").await.is_none(), "held");
    let began = Instant::now();
    servers[0].restart_empty().unwrap();
    masters.voters(0).await;
    assert!(masters.try_acquire("a/b", "other").await.is_none(), "no vote");
    masters.voters(1).await;
    assert!(began.elapsed() >= WAIT, "{:?}", began.elapsed());
    let after = masters.acquire_soon("a/b", "other").await;
    assert!(authority(&after).token > before);
}

#[tokio::test]
async fn a_total_loss_is_sealed_above_a_token_that_was_remembered_and_no_grant_is() {
    let servers = servers();
    let masters = open(&config(&servers));
    let now = || u64::try_from(redlock_client::clock::unix_time().as_millis()).unwrap();
    let (hour, day) = (3_600_000, 86_400_000);
    let remembered = FencingToken(now() + hour);
    assert_eq!(masters.largest_counter().await, None, "not sealed");
    masters.seal(&servers).await;
    assert_eq!(masters.remember_token(remembered), Remembered::Taken);
    assert_eq!(
        masters.remember_token(FencingToken(now() + day + hour)),
        Remembered::Implausible
    );
    let lease = masters.acquire_soon("a/b", "h").await;
    let token = authority(&lease).token;
    assert!(token < remembered, "no floor of a grant");
    let largest = masters.largest_counter().await;
    assert!(
        largest >= Some(token) && largest < Some(remembered),
        "{largest:?}"
    );

    servers[1].restart_empty().unwrap();
    servers[2].restart_empty().unwrap();
    masters.voters(1).await;
    assert_eq!(masters.largest_counter().await, None, "of one master");
    masters.voters(3).await;
    let floor = masters.largest_counter().await;
    assert!(
        floor >= Some(remembered) && floor < Some(FencingToken(remembered.0 + hour)),
        "{floor:?}"
    );
    for server in servers.iter().skip(1) {
        let held_floor = register(server, "heldFloor").await.unwrap();
        assert_eq!(held_floor, remembered.0.to_string());
    }
    let after = masters.acquire_soon("a/b", "h").await;
    assert!(authority(&after).token > remembered);
}

#[tokio::test]
async fn init_seals_new_masters_at_once_and_states_that_nothing_was_held() {
    let servers = servers();
    // Foreign keys do not matter, even more of them than one step of a scan reads; nor does a probe.
    for server in servers.iter() {
        let fill = "for i = 1, 3000 do redis.call('SET', 'redlocks:' .. i, 1) end";
        let _: () = redis::Script::new(fill)
            .invoke_async(&mut raw(server).await)
            .await
            .unwrap();
        let _: () = raw(server)
            .await
            .set("redlock:probe", "other run|x")
            .await
            .unwrap();
    }
    let masters = open(&config(&servers));
    masters.master(0, "connected", |master| master.connected).await;
    let begin = Instant::now();
    let report = masters.seal(&servers).await;
    assert!(begin.elapsed() < WAIT, "nobody waits: {:?}", begin.elapsed());
    assert_eq!(report.sealed, ["m0", "m1", "m2"]);
    assert!(report.slot_floor >= unix_seconds() + 119);
    for server in servers.iter() {
        assert_eq!(register(server, "heldFloor").await, None);
        assert_eq!(
            register(server, "counter").await,
            Some(report.counter.to_string())
        );
    }
    let lease = masters.acquire_soon("a/b", "h").await;
    drop(lease);

    let again = InitError::InUse {
        master: "m0".into(),
        key: "redlock:meta".into(),
    };
    assert_eq!(init(&masters).await, Err(again));
}

#[tokio::test]
async fn init_refuses_when_one_master_is_not_reached_and_writes_nothing() {
    let servers = servers();
    servers[2].pause().unwrap();
    let mut config = config(&servers);
    config.reseal = false;
    let masters = open(&config);
    let error = init(&masters).await.unwrap_err();
    assert!(
        matches!(&error, InitError::Unreachable { master, .. } if master == "m2"),
        "{error}"
    );
    for server in &servers[..2] {
        let keys: Vec<String> = raw(server).await.keys("*").await.unwrap();
        assert!(keys.is_empty(), "{keys:?}");
    }
}

#[tokio::test]
async fn init_refuses_a_master_with_a_key_under_the_prefix() {
    let servers = servers();
    let masters = open(&config(&servers));
    for (key, index) in [("redlock:lease:a/b", 1), ("redlock:meta", 2)] {
        let mut connection = raw(&servers[index]).await;
        let _: () = connection.hset(key, "counter", 5).await.unwrap();
        let in_use = InitError::InUse {
            master: format!("m{index}"),
            key: key.into(),
        };
        assert_eq!(init(&masters).await, Err(in_use));
        let _: () = connection.del(key).await.unwrap();
    }
    masters.seal(&servers).await;
}

#[tokio::test]
async fn others_do_not_seal_a_master_under_an_init_probe_before_a_full_wait() {
    let servers = servers();
    let masters = open(&remembered(config(&servers)));
    masters
        .master(0, "about to be sealed", |m| {
            m.sealing_left.is_some_and(|left| left < WAIT / 2)
        })
        .await;
    // Like an init that wrote its probes and died.
    for server in servers.iter() {
        let mut connection = raw(server).await;
        let probe = probe_prefix(server).await + "init|x";
        let _: () = connection.set("redlock:probe", probe).await.unwrap();
    }
    let written = Instant::now();
    masters.voters(3).await;
    assert!(written.elapsed() >= WAIT, "sealed after {:?}", written.elapsed());
}

/// An operator is killed between the probes of `init` and the seals.
#[tokio::test]
async fn masters_whose_init_ended_half_way_are_sealed_after_the_wait_by_a_process_that_never_saw_them() {
    let servers = servers();
    let mut unsealing = config(&servers);
    unsealing.reseal = false;
    let first = open(&unsealing);
    begin_init(&first).await.unwrap();
    // Another replica does not disturb the first one.
    let mut probes = Vec::new();
    for server in servers.iter() {
        probes.push(raw(server).await.get::<_, String>("redlock:probe").await.unwrap());
    }
    begin_init(&open(&unsealing)).await.unwrap();
    for (server, probe) in servers.iter().zip(&probes) {
        assert_eq!(
            &raw(server).await.get::<_, String>("redlock:probe").await.unwrap(),
            probe
        );
    }
    drop(first);
    let masters = open(&config(&servers));
    masters.voters(3).await;
    let _lease = masters.acquire_soon("a/b", "h").await;
}

#[tokio::test]
async fn two_inits_at_once_leave_one_quorum() {
    let servers = servers();
    let (one, other) = (
        open(&remembered(config(&servers))),
        open(&remembered(config(&servers))),
    );
    let results = tokio::join!(init(&one), init(&other));
    // Each init may fail. Whatever state they leave, all masters eventually vote and agree.
    eventually(BOUND, "three voters", async || {
        if one.voters_now() == 3 {
            Ok(())
        } else {
            Err((one.status(), results.clone()))
        }
    })
    .await;
    let _lease = one.acquire_soon("a/b", "h").await;
}
