//! Tests docs/protocol.md, P-4: every class of error is an unknown vote, never a refusal and never a grant.

use std::time::Duration;

use redis::AsyncCommands;
use redlock_client::lease::{Loss, View};
use redlock_client::masters::{Acquired, Answer, Command, Completion, Unknown};

use crate::lease::{UNHURRIED, eventually_values, three, unhurried};
use crate::seal::{raw, sealed};
use redlock_testkit::masters::{LONGEST_LEASE, Opened, config, identity, lock_name, open};
use redlock_testkit::{Mode, Proxy, RedisServer, ServerOptions, TlsMaterial, eventually};

const BOUND: Duration = Duration::from_secs(30);

async fn command(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    let _: redis::Value = command.query_async(&mut raw(server).await).await.unwrap();
}

/// Returns the answer of the first master to an observation of a lock, and checks that the two others decide without
/// it.
async fn answer_of_the_first(masters: &Opened) -> Answer {
    let lock = masters.lock(&lock_name("some/lock"));
    let Completion::Done {
        answers, majority, ..
    } = masters.ask(&lock, Command::Inspect).await.unwrap()
    else {
        panic!()
    };
    assert!(majority, "{answers:?}");
    answers.into_iter().next().flatten().unwrap()
}

async fn server_error(masters: &Opened) -> String {
    match answer_of_the_first(masters).await {
        Answer::Unknown(Unknown::Server { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_forgotten_script_is_loaded_again_within_the_same_attempt() {
    let (servers, masters) = three().await;
    for server in servers.iter() {
        command(server, &["SCRIPT", "FLUSH"]).await;
    }
    let lease = masters.try_acquire("a/b", "me").await;
    assert!(lease.is_some());
    eventually_values(&servers, "a/b", 3).await;
}

#[tokio::test]
async fn noreplicas() {
    let (servers, masters) = three().await;
    command(&servers[0], &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 2).await;
    drop(lease);
}

#[tokio::test]
async fn noperm() {
    let (servers, masters) = three().await;
    command(&servers[0], &["ACL", "SETUSER", "default", "-mget"]).await;
    assert_eq!(server_error(&masters).await, "NOPERM");
}

#[tokio::test]
async fn oom() {
    let (servers, masters) = three().await;
    command(&servers[0], &["CONFIG", "SET", "maxmemory", "1"]).await;
    let lease = masters.acquire_soon("a/b", "me").await;
    eventually_values(&servers, "a/b", 2).await;
    drop(lease);
}

#[tokio::test]
async fn busy() {
    let (servers, masters) = three().await;
    command(&servers[0], &["CONFIG", "SET", "lua-time-limit", "1"]).await;
    let mut endless = raw(&servers[0]).await;
    let script = tokio::spawn(async move {
        let _: redis::RedisResult<redis::Value> = redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query_async(&mut endless)
            .await;
    });
    redlock_testkit::eventually(crate::seal::BOUND, "the first master busy", async || {
        match answer_of_the_first(&masters).await {
            Answer::Unknown(Unknown::Server { code, .. }) if code == "BUSY" => Ok(()),
            other => Err(other),
        }
    })
    .await;
    command(&servers[0], &["SCRIPT", "KILL"]).await;
    script.await.unwrap();
}

#[tokio::test]
async fn a_lost_connection() {
    let (servers, masters) = three().await;
    servers[0].kill();
    let answer = answer_of_the_first(&masters).await;
    let lost = matches!(
        &answer,
        Answer::Unknown(Unknown::NotConnected(_) | Unknown::ConnectionLost(_))
    );
    assert!(lost, "{answer:?}");
}

#[tokio::test]
async fn a_time_out_and_then_no_vote_is_asked_for_until_it_answers_again() {
    let (servers, masters) = unhurried(3).await;
    servers[0].pause().unwrap();
    let answer = answer_of_the_first(&masters).await;
    // A poll may have detected the silence first.
    let silent = match &answer {
        Answer::Unknown(Unknown::TimedOut(after)) => *after == UNHURRIED.as_millis(),
        Answer::Unknown(unknown) => matches!(unknown, Unknown::Silent),
        _ => false,
    };
    assert!(silent, "{answer:?}");
    masters.voters(2).await;
    let started = std::time::Instant::now();
    let answer = answer_of_the_first(&masters).await;
    assert!(
        matches!(
            answer,
            Answer::Unknown(Unknown::Silent | Unknown::NotConnected(_))
        ),
        "{answer:?}"
    );
    assert!(
        started.elapsed() < UNHURRIED * 3 / 4,
        "nobody waits for it: {:?}",
        started.elapsed()
    );
    servers[0].resume().unwrap();
    masters.voters(3).await;
}

#[tokio::test]
async fn not_sealed() {
    let (servers, masters) = three().await;
    let _: () = raw(&servers[0]).await.hdel("redlock:meta", "seal").await.unwrap();
    let answer = answer_of_the_first(&masters).await;
    assert!(
        matches!(answer, Answer::Unknown(Unknown::NotSealed)),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_reply_of_another_shape() {
    let (servers, masters) = three().await;
    // A lease key that is not a string makes the script fail.
    let _: () = raw(&servers[0])
        .await
        .hset("redlock:lease:some/lock", "a", "b")
        .await
        .unwrap();
    let lock = masters.lock(&lock_name("some/lock"));
    let Completion::Observed(view) = masters.ask(&lock, Command::Observe).await.unwrap() else {
        panic!()
    };
    assert!(view.free(), "{view:?}");
}

#[tokio::test]
async fn unknown_votes_of_a_majority_are_no_refusal() {
    let (servers, masters) = three().await;
    servers[0].kill();
    servers[1].kill();
    let unknown = |view: &View| view.unknown();
    let lost = masters
        .acquire(&lock_name("a/b"), &identity("me"), LONGEST_LEASE)
        .await
        .unwrap();
    let Acquired::Lost(Loss::NoQuorum(view)) = lost else {
        panic!("{lost:?}")
    };
    assert!(unknown(&view) >= 2);
}

#[tokio::test]
async fn a_master_that_comes_back_votes_again_without_a_restart_of_the_client() {
    let (servers, masters) = three().await;
    servers[0].kill();
    masters.voters(2).await;
    servers[0].restart().unwrap();
    masters.voters(3).await;
}

#[tokio::test]
async fn tls_with_a_client_certificate() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let material = TlsMaterial::new();
    let options = ServerOptions {
        tls: Some(material.server_files(true)),
        ..ServerOptions::default()
    };
    let servers = redlock_testkit::RedisServers::start(3, &options).unwrap();
    let pem = |path: std::path::PathBuf| {
        redlock_client::masters::Secret::new(std::fs::read_to_string(path).unwrap())
    };
    let mut with = config(&servers);
    with.tls.ca = Some(pem(material.ca()));
    let without_certificate = open(&with);
    with.tls.client = Some((pem(material.client_certificate()), pem(material.client_key())));
    let masters = open(&with);
    masters.seal(&servers).await;
    assert!(masters.try_acquire("a/b", "me").await.is_some());
    let status = without_certificate
        .master(0, "refused", |s| s.trouble.is_some() && !s.connected)
        .await;
    assert!(!status.votes());
}

#[tokio::test]
async fn user_and_password() {
    let users = vec![
        "app on >s3cret-of-app ~* &* +@all".to_owned(),
        "default off".to_owned(),
    ];
    let servers = redlock_testkit::RedisServers::start(
        3,
        &ServerOptions {
            users,
            ..ServerOptions::default()
        },
    )
    .unwrap();
    let mut with = config(&servers);
    with.credentials.username = Some("app".into());
    with.credentials.password = Some(redlock_client::masters::Secret::new("wrong-s3cret".into()));
    let wrong = open(&with);
    let status = wrong.master(0, "refused", |s| s.trouble.is_some()).await;
    assert!(status.trouble.as_ref().unwrap().is_auth(), "{status:?}");
    assert!(
        !format!("{status:?} {with:?}").contains("s3cret"),
        "a secret was shown"
    );
    with.credentials.password = Some(redlock_client::masters::Secret::new("s3cret-of-app".into()));
    let masters = open(&with);
    masters.seal(&servers).await;
}

#[tokio::test]
async fn a_clock_step_of_a_master_is_seen_and_nothing_is_written() {
    // The clock of a real server cannot be stepped alone; its TIME can be forged by a slow reply in one
    // direction only. A table test of `offset` covers steps. This test covers an honest clock under load,
    // which must not count as stepped.
    let (_servers, masters) = sealed(3, &ServerOptions::default()).await;
    let end = std::time::Instant::now() + Duration::from_secs(2);
    while std::time::Instant::now() < end {
        let mut all = Vec::new();
        for number in 0..50 {
            all.push(masters.try_acquire(&format!("a/{number}"), "me").await);
        }
    }
    let all = masters.status();
    assert!(all.iter().all(|master| master.ineligible.is_none()), "{all:?}");
    masters.voters(3).await;
}

/// The client library keeps a connection while a call waits for it, and this master never answers.
#[tokio::test]
async fn connection_that_was_given_up_is_closed_although_calls_wait_on_it() {
    let (servers, _sealed) = sealed(3, &ServerOptions::default()).await;
    let proxy = Proxy::to_port(servers[0].port()).await;
    let mut through = config(&servers);
    through.masters[0].url = proxy.url();
    let masters = open(&through);
    masters.voters(3).await;
    let lease = masters.acquire_soon("a/b", "me").await;
    assert_eq!(proxy.open(), 1);
    proxy.set(Mode::BlackHole);
    drop(lease);
    // Each further connection attempt lasts at most a second, with a pause before the next one.
    eventually(BOUND, "no connection is left", async || match proxy.open() {
        0 => Ok(()),
        open => Err(open),
    })
    .await;
}
