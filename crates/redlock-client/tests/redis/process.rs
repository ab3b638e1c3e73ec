//! Tests that a seal belongs to one process. Another process behind the same url, address or connection gives
//! no vote, whatever is stored there.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use redis::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::identity::{promote, replicate, seal_beside_a_backlog};
use crate::seal::{info_field, raw, register};
use redlock_testkit::masters::{config, open};
use redlock_testkit::{Persistence, RedisServer, RedisServers, ServerOptions, eventually};

const BOUND: Duration = Duration::from_secs(60);

/// A load balancer that moves live connections to another server: the client's socket stays open.
struct Switch {
    url: String,
    target: watch::Sender<SocketAddr>,
    task: JoinHandle<()>,
}

impl Switch {
    async fn to(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (target, targets) = watch::channel(address(server));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                connections.spawn(carry(client, targets.clone()));
            }
        });
        Self { url, target, task }
    }

    fn switch(&self, server: &RedisServer) {
        self.target.send(address(server)).unwrap();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn address(server: &RedisServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

async fn carry(mut client: TcpStream, mut targets: watch::Receiver<SocketAddr>) {
    client.set_nodelay(true).unwrap();
    loop {
        let target = *targets.borrow_and_update();
        let mut server = TcpStream::connect(target).await.unwrap();
        server.set_nodelay(true).unwrap();
        let (mut up, mut down) = ([0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                read = client.read(&mut up) => match read {
                    Ok(length) if length > 0 => server.write_all(&up[..length]).await.unwrap(),
                    _ => return,
                },
                read = server.read(&mut down) => match read {
                    Ok(length) if length > 0 => client.write_all(&down[..length]).await.unwrap(),
                    // The server has ended, which the client does not notice.
                    _ => {
                        let _ = targets.changed().await;
                        break;
                    }
                },
                changed = targets.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
            }
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Three sealed masters with append-only files, m0 behind a switch. m2 is stopped: there is no majority without m0.
async fn behind_a_switch() -> (RedisServers, Switch, redlock_testkit::masters::Opened) {
    let options = ServerOptions {
        persistence: Persistence::Aof,
        ..ServerOptions::default()
    };
    let servers = RedisServers::start(3, &options).unwrap();
    let switch = Switch::to(&servers[0]).await;
    let mut config = config(&servers);
    config.masters[0].url.clone_from(&switch.url);
    // A new seal would restore the vote.
    config.reseal = false;
    let masters = open(&config);
    masters.seal(&servers).await;
    assert!(masters.acquire_soon("a/b", "h").await.release().await.unwrap());
    servers[2].pause().unwrap();
    (servers, switch, masters)
}

/// Checks that `server` gives no vote, neither now nor after the masters were polled again.
async fn no_vote(masters: &redlock_testkit::masters::Opened, server: &RedisServer) {
    for _ in 0..20 {
        assert!(masters.try_acquire("a/b", "h").await.is_none());
    }
    masters
        .master(0, "not sealed", |master| {
            let of_now =
                |facts: &redlock_client::masters::MasterFacts| !facts.sealed() && !facts.seal.is_empty();
            master.facts.as_ref().is_some_and(of_now)
        })
        .await;
    assert!(masters.try_acquire("a/b", "h").await.is_none());
    let granted: Option<String> = redis::cmd("GET")
        .arg("redlock:lease:a/b")
        .query_async(&mut raw(server).await)
        .await
        .unwrap();
    assert_eq!(granted, None, "nothing was written");
}

#[tokio::test]
async fn connection_that_is_moved_to_a_copy_of_the_server_brings_no_vote_of_the_copy() {
    let (servers, switch, masters) = behind_a_switch().await;
    let copy_of = RedisServer::start(&ServerOptions {
        persistence: Persistence::Aof,
        ..ServerOptions::default()
    })
    .unwrap();
    copy_of.stop().unwrap();
    fs::remove_dir_all(copy_of.data_folder()).unwrap();
    copy(&servers[0].data_folder(), &copy_of.data_folder());
    copy_of.restart().unwrap();
    let seal = register(&servers[0], "seal").await;
    assert!(seal.is_some());
    assert_eq!(
        register(&copy_of, "seal").await,
        seal,
        "the copy carries the seal"
    );
    switch.switch(&copy_of);
    no_vote(&masters, &copy_of).await;
}

#[tokio::test]
async fn server_restarted_from_a_file_that_holds_the_old_seal_has_no_vote_on_the_same_connection() {
    let (servers, switch, masters) = behind_a_switch().await;
    let seal = register(&servers[0], "seal").await;
    servers[0].restart().unwrap();
    assert_eq!(
        register(&servers[0], "seal").await,
        seal,
        "the file holds the seal"
    );
    switch.switch(&servers[0]);
    no_vote(&masters, &servers[0]).await;
}

/// Returns the answer that a master gives before its next poll.
async fn code(server: &RedisServer) -> String {
    let script = redis::Script::new(concat!(
        include_str!("../../../redlock-core/src/scripts/fields_none.lua"),
        include_str!("../../../redlock-core/src/scripts/preamble.lua"),
        "return out",
    ));
    let mut call = script.key("redlock:meta");
    let stamp = register(server, "fingerprint").await.unwrap();
    call.arg(u64::MAX / 4096).arg(stamp);
    let reply: Vec<Value> = call.invoke_async(&mut raw(server).await).await.unwrap();
    redis::from_redis_value(reply[0].clone()).unwrap()
}

async fn detached(server: &RedisServer) {
    eventually(BOUND, "the replica is detached", async || {
        let attached = info_field(server, "connected_slaves").await;
        if attached == "0" { Ok(()) } else { Err(attached) }
    })
    .await;
}

#[tokio::test]
async fn server_gives_no_vote_from_the_moment_at_which_a_replica_is_attached() {
    let (servers, masters) = crate::seal::sealed(3, &ServerOptions::default()).await;
    drop(masters);
    assert_eq!(code(&servers[0]).await, "ok");
    let replica = RedisServer::start(&ServerOptions::default()).unwrap();
    replicate(&replica, &servers[0]).await;
    assert_eq!(code(&servers[0]).await, "unsealed", "while it is attached");
    assert_eq!(code(&replica).await, "unsealed", "the replica");
    drop(replica);
    detached(&servers[0]).await;
    assert_eq!(
        code(&servers[0]).await,
        "unsealed",
        "a copy of it may be a master now"
    );
}

/// A failover to a copy and back: the process is the same, and the leases since the copy are lost.
#[tokio::test]
async fn server_that_was_sealed_beside_a_backlog_has_no_vote_after_it_was_a_replica() {
    let (servers, masters) = crate::seal::sealed(3, &ServerOptions::default()).await;
    let copy = seal_beside_a_backlog(&servers, &masters).await;
    drop(masters);
    replicate(&copy, &servers[2]).await;
    promote(&copy).await;
    detached(&servers[2]).await;
    let _: () = redis::cmd("SET")
        .arg(&["redlock:lease:a/b", "held"])
        .query_async(&mut raw(&servers[2]).await)
        .await
        .unwrap();
    replicate(&servers[2], &copy).await;
    promote(&servers[2]).await;
    let lease: Option<String> = redis::cmd("GET")
        .arg("redlock:lease:a/b")
        .query_async(&mut raw(&servers[2]).await)
        .await
        .unwrap();
    assert_eq!(lease, None, "the copy lacked the lease");
    let seal = register(&servers[2], "seal").await.unwrap();
    assert_eq!(
        seal,
        info_field(&servers[2], "run_id").await,
        "the process is the same"
    );
    assert_eq!(code(&servers[2]).await, "unsealed");
}

#[tokio::test]
async fn retired_server_keeps_its_replication_id_and_has_no_vote() {
    let (servers, masters) = crate::seal::sealed(3, &ServerOptions::default()).await;
    drop(masters);
    let stamp = register(&servers[0], "fingerprint").await.unwrap();
    let run_id = register(&servers[0], "seal").await.unwrap();
    let retire = redis::Script::new(&redlock_core::script::RETIRE.source);
    let mut call = retire.key("redlock:meta");
    call.key("redlock:probe")
        .arg(u64::MAX / 4096)
        .arg(run_id)
        .arg(stamp)
        .arg("");
    let _: Vec<Value> = call.invoke_async(&mut raw(&servers[0]).await).await.unwrap();
    assert_eq!(register(&servers[0], "seal").await.as_deref(), Some(""));
    assert_eq!(code(&servers[0]).await, "unsealed");
}
