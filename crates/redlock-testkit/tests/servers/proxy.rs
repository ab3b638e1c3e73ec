//! Tests that each mode of the proxy breaks the network as documented.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use redlock_testkit::{Mode, Proxy, RedisServer, ServerOptions, eventually};

/// Generous for a busy machine.
const BOUND: Duration = Duration::from_secs(30);
/// Long enough for an answer, and short enough to wait for one that does not arrive.
const SILENCE: Duration = Duration::from_secs(1);

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap()
}

/// Sends a request and returns its answer, which must arrive.
async fn ask(stream: &mut TcpStream, request: &str) -> std::io::Result<Option<String>> {
    answer(stream, request, BOUND).await
}

/// Sends a request whose answer must not arrive.
async fn silence(stream: &mut TcpStream, request: &str) -> std::io::Result<Option<String>> {
    answer(stream, request, SILENCE).await
}

async fn answer(
    stream: &mut TcpStream,
    request: &str,
    patience: Duration,
) -> std::io::Result<Option<String>> {
    stream.write_all(format!("{request}\r\n").as_bytes()).await?;
    let mut answer = [0; 64];
    match timeout(patience, stream.read(&mut answer)).await {
        Err(_) => Ok(None),
        Ok(Ok(0)) => Err(std::io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => Ok(Some(String::from_utf8_lossy(&answer[..read?]).trim().to_owned())),
    }
}

#[tokio::test]
async fn passes_and_counts() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let proxy = Proxy::to_port(server.port()).await;
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, "PING").await.unwrap().as_deref(), Some("+PONG"));
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn delays_each_direction_without_stopping_the_flow() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let proxy = Proxy::to_port(server.port()).await;
    let mut stream = connect(&proxy).await;
    proxy.set(Mode::Delay(Duration::from_millis(500)));
    let started = Instant::now();
    // Each request is sent without waiting for the one before: one delay there and one back for all of them. One after
    // the other, they would take longer than a minute.
    for _ in 0..100 {
        stream.write_all(b"PING\r\n").await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answers = [0; 700];
    stream.read_exact(&mut answers).await.unwrap();
    let took = started.elapsed();
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(30),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_black_hole_takes_old_and_new_connections_and_heals_for_new_ones() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let proxy = Proxy::to_port(server.port()).await;
    let mut old = connect(&proxy).await;
    assert_eq!(ask(&mut old, "PING").await.unwrap().as_deref(), Some("+PONG"));
    proxy.set(Mode::BlackHole);
    let mut new = connect(&proxy).await;
    assert_eq!(silence(&mut old, "SET lost 1").await.unwrap(), None);
    assert_eq!(silence(&mut new, "PING").await.unwrap(), None);
    proxy.heal();
    for stream in [&mut old, &mut new] {
        eventually(
            BOUND,
            "a connection that lost bytes ends",
            async || match silence(stream, "PING").await {
                Ok(answer) => Err(answer),
                Err(_) => Ok(()),
            },
        )
        .await;
    }
    let mut healed = connect(&proxy).await;
    assert_eq!(
        ask(&mut healed, "GET lost").await.unwrap().as_deref(),
        Some("$-1")
    );
}

#[tokio::test]
async fn a_mode_for_a_process_is_not_for_another_one_with_the_same_local_port() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let proxy = Proxy::to_port(server.port()).await;
    // The server listens at this port of 127.0.0.1, so it is a local port of its process.
    let socket = TcpSocket::new_v4().unwrap();
    let same = SocketAddr::from(([127, 0, 0, 2], server.port()));
    socket.bind(same).unwrap();
    proxy.set_for(server.pid().unwrap(), Mode::BlackHole);
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    let mut stream = socket.connect(address).await.unwrap();
    assert_eq!(ask(&mut stream, "PING").await.unwrap().as_deref(), Some("+PONG"));

    proxy.set_for(std::process::id(), Mode::BlackHole);
    eventually(
        BOUND,
        "the connections of this process carry nothing",
        async || silence(&mut stream, "PING").await.unwrap().map_or(Ok(()), Err),
    )
    .await;
}

#[tokio::test]
async fn a_lost_reply_is_of_a_request_that_arrived() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let proxy = Proxy::to_port(server.port()).await;
    let mut stream = connect(&proxy).await;
    proxy.set(Mode::LoseReplies);
    assert_eq!(silence(&mut stream, "SET arrived 1").await.unwrap(), None);
    proxy.heal();
    let mut other = connect(&proxy).await;
    eventually(BOUND, "it arrived", async || {
        let found = ask(&mut other, "GET arrived").await.unwrap();
        if found.as_deref() == Some("$1\r\n1") {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
}

#[tokio::test]
async fn a_lost_request_does_not_arrive_and_a_push_of_the_server_does() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let proxy = Proxy::to_port(server.port()).await;
    let (mut listener, mut writer) = (connect(&proxy).await, connect(&proxy).await);
    let subscribed = ask(&mut listener, "SUBSCRIBE news").await.unwrap();
    assert!(subscribed.unwrap().contains("subscribe"));
    proxy.set(Mode::LoseRequests);
    assert_eq!(silence(&mut writer, "SET lost 1").await.unwrap(), None);
    let mut direct = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    assert_eq!(
        ask(&mut direct, "PUBLISH news x").await.unwrap().as_deref(),
        Some(":1")
    );
    let mut message = [0; 64];
    let length = timeout(BOUND, listener.read(&mut message))
        .await
        .unwrap()
        .unwrap();
    assert!(String::from_utf8_lossy(&message[..length]).contains("message"));
    assert_eq!(
        ask(&mut direct, "GET lost").await.unwrap().as_deref(),
        Some("$-1")
    );
}

#[tokio::test]
async fn a_reset_ends_old_and_new_connections_at_once() {
    let server = RedisServer::start(&ServerOptions::default()).unwrap();
    let proxy = Proxy::to_port(server.port()).await;
    let mut old = connect(&proxy).await;
    assert_eq!(ask(&mut old, "PING").await.unwrap().as_deref(), Some("+PONG"));
    proxy.set(Mode::Reset);
    let mut new = connect(&proxy).await;
    for stream in [&mut old, &mut new] {
        let ended = timeout(BOUND, stream.read(&mut [0; 8])).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
    proxy.heal();
    assert_eq!(
        ask(&mut connect(&proxy).await, "PING").await.unwrap().as_deref(),
        Some("+PONG")
    );
}
