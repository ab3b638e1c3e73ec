//! Tests docs/protocol.md, P-28: another server, or another name for the same one.

use std::time::Instant;

use redlock_client::masters::{
    ConfigError, Ineligible, InitError, MasterStatus, MastersConfig, NotDone, OldServer, RetireOutcome, init,
};
use redlock_core::script::{PROBE, SEAL};

use crate::rekey::Held;
use crate::seal::{WAIT, info_field, probe_prefix, raw, register, sealed, server_run_id};
use redlock_testkit::masters::{Opened, config, open};
use redlock_testkit::{Mode, Persistence, Proxy, RedisServer, ServerOptions, free_port};

const MUST: OldServer = OldServer::MustAnswer;

fn server(options: &ServerOptions) -> RedisServer {
    RedisServer::start(options).unwrap()
}

fn plain() -> RedisServer {
    server(&ServerOptions::default())
}

async fn retire(masters: &Opened, old: &RedisServer, new: &RedisServer, stated: OldServer) -> RetireOutcome {
    let urls = (&*old.url(), &*new.url());
    masters.retire("m2", urls, stated).await.unwrap()
}

async fn seal_of(server: &RedisServer) -> String {
    register(server, "seal").await.unwrap_or_default()
}

async fn command(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    let _: redis::Value = command
        .arg(&words[1..])
        .query_async(&mut raw(server).await)
        .await
        .unwrap();
}

#[tokio::test]
async fn another_server_takes_over_a_name_and_the_old_one_never_votes_again() {
    let options = ServerOptions {
        persistence: Persistence::Aof,
        ..ServerOptions::default()
    };
    let (servers, one) = sealed(3, &options).await;
    let (old, new) = (&servers[2], plain());
    // Another cluster, which still uses the old url.
    let other = open(&config(&servers));
    other.voters(3).await;
    let held = Held::keep(&one, one.acquire_soon("a/b", "me").await);

    let retired = Instant::now();
    let outcome = retire(&one, old, &new, MUST).await;
    assert_eq!(outcome, RetireOutcome::Retired);
    one.replace_url("m2", &new.url()).unwrap();
    one.master(2, "inspected behind the new url", |m| {
        m.url == new.url() && m.facts.is_some()
    })
    .await;
    let status = other
        .master(2, "retired", |m| {
            matches!(m.ineligible, Some(Ineligible::Retired(_)))
        })
        .await;
    let text = status.ineligible.unwrap().to_string();
    assert!(
        text.contains("retired: m2 is the server") && text.contains(&new.url()),
        "{text}"
    );
    // The old server stays retired after a restart with its memory.
    old.restart().unwrap();

    one.voters(2).await;
    one.voters(3).await;
    assert!(retired.elapsed() >= WAIT, "sealed after {:?}", retired.elapsed());
    let life = held.life().await;
    assert_eq!((life.lost, life.fewest_voters), (0, 2), "{life:?}");
    assert!(life.renewed > 10, "{life:?}");
    other
        .master(2, "retired still", |m| {
            m.connected && matches!(m.ineligible, Some(Ineligible::Retired(_))) && m.sealing_left.is_none()
        })
        .await;
    other.voters(2).await;
    assert_eq!(seal_of(old).await, "");
    let no_init = init(&other).await.unwrap_err();
    assert!(
        matches!(&no_init, InitError::Ineligible { master, reason: Ineligible::Retired(_) } if master == "m2"),
        "{no_init}"
    );

    // The other cluster follows: no server is retired twice, and the new one keeps its seal.
    assert_eq!(retire(&other, old, &new, MUST).await, RetireOutcome::Retired);
    let stated = retire(&other, old, &new, OldServer::Stated).await;
    assert_eq!(stated, RetireOutcome::Retired);
    assert_ne!(seal_of(&new).await, "");
    one.voters(3).await;
    let followed = Instant::now();
    other.replace_url("m2", &new.url()).unwrap();
    other
        .master(2, "a voter behind the new url", |m| {
            m.url == new.url() && m.votes()
        })
        .await;
    assert!(followed.elapsed() < WAIT, "it was sealed already");
    assert!(other.try_acquire("c/d", "me").await.is_some());
}

#[tokio::test]
async fn a_retired_server_that_lost_its_data_is_not_sealed_by_processes_that_saw_it() {
    let (servers, one) = sealed(3, &ServerOptions::default()).await;
    let (old, new) = (&servers[2], plain());
    let other = open(&config(&servers));
    other.voters(3).await;
    assert_eq!(retire(&one, old, &new, MUST).await, RetireOutcome::Retired);
    one.replace_url("m2", &new.url()).unwrap();
    let retired = |m: &MasterStatus| m.connected && matches!(m.ineligible, Some(Ineligible::Retired(_)));
    other.master(2, "retired", retired).await;
    old.restart_empty().unwrap();
    let run_id = |m: &MasterStatus| m.facts.as_ref().map(|facts| facts.run_id.clone());
    let before = run_id(&other.status()[2]);
    other
        .master(2, "retired still, in its next run", |m| {
            retired(m) && run_id(m) != before
        })
        .await;
    // The test waits for longer than the wait for a seal.
    one.voters(2).await;
    one.voters(3).await;
    other.voters(2).await;
    let keys: u64 = redis::cmd("DBSIZE")
        .query_async(&mut raw(old).await)
        .await
        .unwrap();
    assert_eq!(keys, 0, "neither probe nor seal");
}

#[tokio::test]
async fn the_same_server_by_another_name_is_only_connected_anew() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let held = Held::keep(&masters, masters.acquire_soon("a/b", "me").await);
    let by_name = servers[2].url().replace("127.0.0.1", "localhost");
    let urls = (&*servers[2].url(), &*by_name);
    let outcome = masters.retire("m2", urls, MUST).await.unwrap();
    assert_eq!(outcome, RetireOutcome::SameServer);
    let changed = Instant::now();
    masters.replace_url("m2", &by_name).unwrap();
    masters
        .master(2, "a voter by its name", |m| m.url == by_name && m.votes())
        .await;
    assert!(changed.elapsed() < WAIT, "it kept its seal");
    let life = held.life().await;
    assert_eq!(life.lost, 0, "{life:?}");
    // The url of another master is refused.
    let taken = masters.replace_url("m2", &servers[1].url()).unwrap_err();
    assert!(matches!(taken, ConfigError::SameServer { .. }), "{taken}");
    let unknown = masters.replace_url("m7", &by_name).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no master has the name \"m7\"; the masters are m0, m1, m2"
    );
}

#[tokio::test]
async fn an_obstacle_is_named_and_the_old_server_keeps_its_vote() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let (old, new) = (&servers[2], plain());
    let seal = seal_of(old).await;
    let nowhere = format!("redis://127.0.0.1:{}", free_port().unwrap());

    let outcome = masters.retire("m2", (&old.url(), &nowhere), MUST).await.unwrap();
    assert!(
        matches!(outcome, RetireOutcome::NewUnreachable { .. }),
        "{outcome:?}"
    );
    let duplicate = RetireOutcome::NewRefused {
        reason: Ineligible::Duplicate,
    };
    assert_eq!(retire(&masters, old, &servers[1], MUST).await, duplicate);
    let evicting = server(&ServerOptions {
        eviction_policy: Some("allkeys-lru".into()),
        ..ServerOptions::default()
    });
    let outcome = retire(&masters, old, &evicting, MUST).await;
    assert!(
        matches!(
            outcome,
            RetireOutcome::NewRefused {
                reason: Ineligible::EvictionPolicy(_)
            }
        ),
        "{outcome:?}"
    );
    command(old, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let outcome = retire(&masters, old, &new, MUST).await;
    assert!(
        matches!(
            outcome,
            RetireOutcome::OldRefused {
                reason: NotDone::Unknown(_)
            }
        ),
        "{outcome:?}"
    );
    command(old, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    masters.voters(3).await;
    servers[0].pause().unwrap();
    masters.voters(2).await;
    let missing = RetireOutcome::OthersMissing { voting: 1, needed: 2 };
    assert_eq!(retire(&masters, old, &new, MUST).await, missing);
    servers[0].resume().unwrap();
    masters.voters(3).await;
    assert_eq!(seal_of(old).await, seal, "it kept its vote");

    let outcome = masters.retire("m2", (&nowhere, &new.url()), MUST).await.unwrap();
    assert!(
        matches!(outcome, RetireOutcome::OldUnreachable { .. }),
        "{outcome:?}"
    );
    assert!(!outcome.allows_new_url());
    let urls = (&*nowhere, &*new.url());
    let outcome = masters.retire("m2", urls, OldServer::Stated).await.unwrap();
    assert_eq!(outcome, RetireOutcome::StatedStopped);
    assert!(outcome.allows_new_url());
}

#[tokio::test]
async fn a_server_of_another_quorum_is_left_alone() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let theirs = [plain(), plain(), plain()];
    let other = open(&MastersConfig {
        longest_lease: std::time::Duration::from_secs(5),
        ..config(&theirs)
    });
    other.seal(&theirs).await;
    let seal = seal_of(&theirs[0]).await;
    let outcome = retire(&masters, &servers[2], &theirs[0], MUST).await;
    assert!(
        matches!(
            outcome,
            RetireOutcome::NewRefused {
                reason: Ineligible::OtherFingerprint { .. }
            }
        ),
        "{outcome:?}"
    );
    let outcome = retire(&masters, &theirs[0], &plain(), MUST).await;
    assert_eq!(outcome, RetireOutcome::NotOurs);
    assert_eq!(seal_of(&theirs[0]).await, seal);
    // With the end of its backlog the server has no seal any more, and a process with the old url may seal it.
    let ended = format!("{}|0|backlog", "b".repeat(40));
    command(&theirs[0], &["HSET", "redlock:meta", "replication", &ended]).await;
    let outcome = retire(&masters, &theirs[0], &plain(), MUST).await;
    assert_eq!(outcome, RetireOutcome::Retired);
}

#[tokio::test]
async fn two_successors_of_one_server_never_both_vote() {
    let (servers, one) = sealed(3, &ServerOptions::default()).await;
    let other = open(&config(&servers));
    other.voters(3).await;
    let (first, second) = (plain(), plain());
    assert_eq!(
        retire(&one, &servers[2], &first, MUST).await,
        RetireOutcome::Retired
    );
    let outcome = retire(&other, &servers[2], &second, MUST).await;
    match &outcome {
        RetireOutcome::RetiredForAnother { retirement } => {
            assert!(retirement.contains(&first.url()), "{retirement}")
        }
        _ => panic!("{outcome:?}"),
    }
    // The administrator states that it is the right server.
    assert_eq!(
        retire(&other, &servers[2], &second, OldServer::Stated).await,
        RetireOutcome::Retired
    );
    // A return to the old server is refused, because it was retired.
    let outcome = retire(&one, &first, &servers[2], MUST).await;
    assert!(
        matches!(
            outcome,
            RetireOutcome::NewRefused {
                reason: Ineligible::Retired(_)
            }
        ),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_new_server_with_a_seal_of_an_earlier_time_waits_for_another() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let (old, new) = (&servers[2], plain());
    // The new server was m2 once, and was not retired when it was replaced.
    let run_id = server_run_id(&new).await;
    let replication_id = info_field(&new, "master_replid").await;
    let fingerprint = register(old, "fingerprint").await.unwrap();
    command(
        &new,
        &[
            "HSET",
            "redlock:meta",
            "seal",
            &run_id,
            "fingerprint",
            &fingerprint,
            "replication",
            &format!("{replication_id}|0"),
            "counter",
            "5",
        ],
    )
    .await;
    let retired = Instant::now();
    assert_eq!(retire(&masters, old, &new, MUST).await, RetireOutcome::Retired);
    masters.replace_url("m2", &new.url()).unwrap();
    masters.voters(2).await;
    masters.voters(3).await;
    assert!(retired.elapsed() >= WAIT, "sealed after {:?}", retired.elapsed());
    let counter: u64 = register(&new, "counter").await.unwrap().parse().unwrap();
    assert!(counter > 5, "{counter}");
}

#[tokio::test]
async fn a_seal_that_was_under_way_does_not_bring_a_retired_server_back() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let (old, new) = (&servers[2], plain());
    assert_eq!(retire(&masters, old, &new, MUST).await, RetireOutcome::Retired);
    let probe = probe_prefix(old).await + "x";
    command(old, &["SET", "redlock:probe", &probe]).await;
    for (script, third) in [(&PROBE, "keep"), (&SEAL, "v=1 fingerprint")] {
        let script = redis::Script::new(&script.source);
        let mut call = script.key("redlock:meta");
        call.key("redlock:probe")
            .arg(u64::MAX / 4096)
            .arg(&probe)
            .arg(third);
        let reply: Vec<redis::Value> = call.invoke_async(&mut raw(old).await).await.unwrap();
        let code: String = redis::from_redis_value(reply[0].clone()).unwrap();
        assert_eq!(code, "retired", "{third}");
    }
    assert_eq!(seal_of(old).await, "");
}

#[tokio::test]
async fn a_vote_is_taken_within_the_time_of_an_attempt_or_not_at_all() {
    let servers: Vec<_> = (0..3).map(|_| plain()).collect();
    let mut config = config(&servers);
    config.command_timeout = config.acquire_limit * 5;
    let one = open(&config);
    one.seal(&servers).await;
    // A round trip takes longer than an attempt may, and less than a command may.
    let slow = Proxy::to_port(servers[2].port()).await;
    slow.set(Mode::Delay(config.acquire_limit * 3 / 5));
    let new = plain();
    let outcome = one.retire("m2", (&slow.url(), &new.url()), MUST).await.unwrap();
    assert!(
        matches!(outcome, RetireOutcome::OldUnreachable { .. }),
        "{outcome:?}"
    );
    assert!(!seal_of(&servers[2]).await.is_empty(), "it keeps its vote");
}

#[tokio::test]
async fn sealed_server_is_not_judged_without_the_quorum_id() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    drop(masters);
    let mut config = config(&servers);
    for master in &mut config.masters[..2] {
        master.url = format!("redis://127.0.0.1:{}", free_port().unwrap());
    }
    let (one, new) = (open(&config), plain());
    one.master(2, "inspected", |m| m.facts.is_some()).await;
    for stated in [MUST, OldServer::Stated] {
        let outcome = retire(&one, &servers[2], &new, stated).await;
        let missing = RetireOutcome::OthersMissing { voting: 0, needed: 2 };
        assert_eq!(outcome, missing, "{stated:?}");
    }
    assert_ne!(seal_of(&servers[2]).await, "");
}
