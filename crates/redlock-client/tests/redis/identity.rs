//! Tests which server is a master of this quorum: replicas, promoted replicas, and servers of another quorum.

use std::time::Duration;

use redis::AsyncCommands;
use redlock_client::masters::{Ineligible, MasterStatus, MastersConfig, QuorumId};
use redlock_core::script::SEAL;

use crate::seal::{WAIT, info_field, probe_prefix, raw, register, sealed};
use redlock_testkit::masters::{Opened, config, open};
use redlock_testkit::{Persistence, RedisServer, RedisServers, ServerOptions, eventually};

const BOUND: Duration = Duration::from_secs(60);
/// A url at which no server listens.
const NOWHERE: &str = "redis://127.0.0.1:1";

fn new_server() -> RedisServer {
    RedisServer::start(&ServerOptions::default()).unwrap()
}

/// Returns the configuration with some masters at other urls, or unreachable.
fn with(config: &MastersConfig, urls: &[(usize, &str)]) -> MastersConfig {
    let mut config = config.clone();
    for (master, url) in urls {
        (*url).clone_into(&mut config.masters[*master].url);
    }
    config
}

pub(crate) async fn replicate(replica: &RedisServer, of: &RedisServer) {
    let _: () = redis::cmd("REPLICAOF")
        .arg("127.0.0.1")
        .arg(of.port())
        .query_async(&mut raw(replica).await)
        .await
        .unwrap();
    eventually(BOUND, "a replica in step", async || {
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut raw(replica).await)
            .await
            .map_err(|error| error.to_string())?;
        let link: Option<String> = info.get("master_link_status");
        if link.as_deref() == Some("up") {
            Ok(())
        } else {
            Err(format!("{link:?}"))
        }
    })
    .await;
}

pub(crate) async fn promote(replica: &RedisServer) {
    let _: () = redis::cmd("REPLICAOF")
        .arg("NO")
        .arg("ONE")
        .query_async(&mut raw(replica).await)
        .await
        .unwrap();
}

/// Reports which of two candidates that try for the same lock hold it.
async fn holders(first: &Opened, second: &Opened) -> (bool, bool) {
    let one = first.try_acquire("a/b", "h1").await;
    let other = second.try_acquire("a/b", "h2").await;
    (one.is_some(), other.is_some())
}

#[tokio::test]
async fn promoted_replica_does_not_vote_beside_its_former_master() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let all = config(&servers);
    drop(masters);
    let promoted = new_server();
    replicate(&promoted, &servers[0]).await;
    promote(&promoted).await;
    // Some candidates reach the promoted server under the name m0, and seal it.
    let url = promoted.url();
    let sealer = open(&with(&all, &[(0, &url)]));
    sealer.voters(3).await;
    let first = open(&with(&all, &[(2, NOWHERE)]));
    let second = open(&with(&all, &[(0, &url), (1, NOWHERE)]));
    second.voters(2).await;
    first
        .master(1, "inspected", |master| master.facts.is_some())
        .await;
    first
        .master(0, "inspected", |master| master.facts.is_some())
        .await;
    assert_eq!(holders(&first, &second).await, (false, true));
}

#[tokio::test]
async fn server_of_another_quorum_with_the_same_fingerprint_has_no_vote() {
    let production = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let staging = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let all = config(&production);
    for (servers, config) in [(&production, &all), (&staging, &config(&staging))] {
        let masters = open(config);
        masters.seal(servers).await;
    }
    let url = staging[1].url();
    let first = open(&with(&all, &[(2, NOWHERE)]));
    let second = open(&with(&all, &[(1, &url)]));
    first.voters(2).await;
    for master in 0..3 {
        second
            .master(master, "inspected", |master| master.facts.is_some())
            .await;
    }
    second.master(0, "votes", |master| master.votes()).await;
    assert_eq!(holders(&first, &second).await, (true, false));
}

#[tokio::test]
async fn master_with_replicas_has_no_vote_until_it_is_sealed_again() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let replica = new_server();
    replicate(&replica, &servers[2]).await;
    let attached = masters.master(2, "refused", |master| {
        master.ineligible == Some(Ineligible::HasReplicas(1))
    });
    attached.await;
    masters.voters(2).await;
    promote(&replica).await;
    // The promoted server may vote elsewhere, so the former master stays refused.
    let detached = masters.master(2, "still refused", |master| {
        master.ineligible == Some(Ineligible::HasReplicas(0))
    });
    let text = detached.await.ineligible.unwrap().to_string();
    assert!(text.contains("restart this server"), "{text}");
    servers[2].restart().unwrap();
    masters.voters(3).await;
}

#[tokio::test]
async fn master_with_an_attached_replica_is_not_sealed() {
    let (server, replica) = (new_server(), new_server());
    let mut connection = raw(&server).await;
    replicate(&replica, &server).await;
    // The poll of this master showed no replica.
    let probe = probe_prefix(&server).await + "x";
    let _: () = connection.set("p:probe", &probe).await.unwrap();
    let seal = redis::Script::new(&SEAL.source);
    let mut call = seal.key("p:meta");
    call.key("p:probe")
        .arg(u64::MAX / 4096)
        .arg(&probe)
        .arg("fingerprint")
        .arg("");
    let reply: Vec<redis::Value> = call.invoke_async(&mut connection).await.unwrap();
    let code: String = redis::from_redis_value(reply[0].clone()).unwrap();
    assert_eq!(code, "replicas");
    let keys: Vec<String> = connection.keys("p:*").await.unwrap();
    assert_eq!(keys, ["p:probe"]);
}

/// Seals m2 again while the backlog of a former replica stands.
pub(crate) async fn seal_beside_a_backlog(servers: &RedisServers, masters: &Opened) -> RedisServer {
    let replica = new_server();
    replicate(&replica, &servers[2]).await;
    promote(&replica).await;
    let _: () = redis::cmd("DEL")
        .arg("redlock:meta")
        .query_async(&mut raw(&servers[2]).await)
        .await
        .unwrap();
    masters.voters(2).await;
    masters.voters(3).await;
    let stored = register(&servers[2], "replication").await.unwrap();
    assert!(stored.ends_with("|backlog"), "{stored}");
    replica
}

#[tokio::test]
async fn master_that_was_sealed_beside_a_backlog_is_sealed_again_when_the_backlog_ends() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let _replica = seal_beside_a_backlog(&servers, &masters).await;
    let _: () = redis::cmd("CONFIG")
        .arg(&["SET", "repl-backlog-ttl", "1"])
        .query_async(&mut raw(&servers[2]).await)
        .await
        .unwrap();
    masters
        .master(2, "without a seal", |master| {
            master.facts.as_ref().is_some_and(|facts| !facts.sealed())
        })
        .await;
    assert_eq!(info_field(&servers[2], "repl_backlog_active").await, "0");
    assert_eq!(masters.status()[2].ineligible, None);
    masters.voters(3).await;
    let stored = register(&servers[2], "replication").await.unwrap();
    assert!(stored.ends_with("|1"), "{stored}");
}

#[tokio::test]
async fn server_of_another_quorum_is_named_and_is_not_sealed_after_a_restart() {
    let options = ServerOptions {
        persistence: Persistence::Aof,
        ..ServerOptions::default()
    };
    let (servers, production) = sealed(3, &options).await;
    let (others, staging) = sealed(3, &options).await;
    let (own, other) = (quorum_id(&production), quorum_id(&staging));
    assert_ne!(own, other);
    drop((production, staging));
    let masters = open(&with(&config(&servers), &[(2, &others[2].url())]));
    let named = |master: &MasterStatus| matches!(&master.ineligible, Some(Ineligible::OtherQuorum { found, own: ours }) if *found == other && ours.to_string() == own);
    masters.master(2, "of another quorum", named).await;
    masters.voters(2).await;
    others[2].restart().unwrap();
    masters
        .master(2, "restarted", |master| {
            master.facts.as_ref().is_some_and(|facts| !facts.sealed()) && named(master)
        })
        .await;
    tokio::time::sleep(WAIT + Duration::from_secs(2)).await;
    masters.voters(2).await;
    // Once emptied, the server is a new master like any other.
    let _: () = redis::cmd("DEL")
        .arg("redlock:meta")
        .query_async(&mut raw(&others[2]).await)
        .await
        .unwrap();
    masters.voters(3).await;
    let stored = register(&others[2], "fingerprint").await.unwrap();
    assert!(stored.ends_with(&own), "{stored}");
}

#[tokio::test]
async fn remembered_quorum_id_wins_over_a_majority_of_strangers() {
    let (servers, masters) = sealed(3, &ServerOptions::default()).await;
    let mut config = config(&servers);
    drop(masters);
    config.quorum = QuorumId::parse(&"a".repeat(32));
    let masters = open(&config);
    for master in 0..3 {
        masters
            .master(master, "of another quorum", |master| {
                matches!(master.ineligible, Some(Ineligible::OtherQuorum { .. }))
            })
            .await;
    }
    assert_eq!(masters.voters_now(), 0);
    assert!(masters.try_acquire("a/b", "h").await.is_none());
}

/// Two processes find a total loss at once, and no server shows the id that both remember.
#[tokio::test]
async fn total_loss_found_by_two_processes_leaves_one_quorum() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let (first, second) = (open(&config(&servers)), open(&config(&servers)));
    first.seal(&servers).await;
    second.voters(3).await;
    assert_eq!(quorum_id(&first), quorum_id(&second));
    let id = quorum_id(&first);
    for server in servers.iter() {
        server.restart_empty().unwrap();
    }
    first.voters(0).await;
    first.voters(3).await;
    for server in servers.iter() {
        assert!(register(server, "fingerprint").await.unwrap().ends_with(&id));
    }
}

fn quorum_id(masters: &Opened) -> String {
    masters.quorum_id().unwrap().to_string()
}
