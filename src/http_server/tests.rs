//! Tests the limits against clients on the loopback address.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    response::Response,
    routing::{get, post},
};
use futures_util::{StreamExt, stream};
use redlock_testkit::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
    time,
};

use super::*;

/// Generous, for a busy machine.
const BOUND: Duration = Duration::from_secs(20);
/// More than the buffers of both sockets hold.
const LARGE: usize = 32 * 1024 * 1024;

fn routes() -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route(
            "/echo",
            post(|Json(body): Json<serde_json::Value>| async { Json(body) }),
        )
        .route("/large", get(large))
        .route("/events", get(events))
}

async fn large(Extension(large): Extension<LargeAnswers>) -> Response {
    let place = large.place().await;
    Response::new(place.body(vec![b'x'; LARGE]))
}

async fn events() -> Response {
    let first = stream::iter([Ok::<_, io::Error>("data\n")]);
    let mut response = Response::new(Body::from_stream(first.chain(stream::pending())));
    response.extensions_mut().insert(LongAnswer);
    response
}

/// A server with these limits; stopped on drop.
struct ServedRoutes {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl ServedRoutes {
    async fn start(limits: ConnectionLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve_http(listener, routes(), limits, stop.clone()));
        Self { address, stop, task }
    }

    /// Opens a connection with a small buffer, and sends `text`.
    async fn send(&self, text: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Returns the answer up to the end of the connection.
    async fn answer(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        answer(stream).await
    }

    async fn is_alive(&self) -> bool {
        self.answer("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .ends_with("ok\n")
    }
}

impl Drop for ServedRoutes {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn answer(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = time::timeout(BOUND, stream.read_to_end(&mut answer)).await;
    // A reset, after unread data, ends the answer as well.
    let _ = read.expect("the server ends the connection");
    String::from_utf8(answer).unwrap()
}

fn brief() -> ConnectionLimits {
    ConnectionLimits {
        request: Duration::from_millis(300),
        answer: Duration::from_millis(300),
        ..ConnectionLimits::default()
    }
}

#[tokio::test]
async fn one_connection_carries_one_request() {
    let served = ServedRoutes::start(ConnectionLimits::default()).await;
    let request = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = served.answer(&request.repeat(2)).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn an_incomplete_request_is_ended() {
    let served = ServedRoutes::start(brief()).await;
    let body =
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    for text in ["", "GET /livez HTTP/1.1\r\nHost: a\r\n", body] {
        let answer = served.answer(text).await;
        assert!(!answer.contains(" 200 "), "{text:?}: {answer}");
    }
    assert!(served.is_alive().await);
}

#[tokio::test]
async fn large_heads_and_bodies_are_refused() {
    let served = ServedRoutes::start(ConnectionLimits::default()).await;
    let header = |length| format!("X: {}\r\n", "x".repeat(length));
    let head = |length| format!("GET /livez HTTP/1.1\r\nHost: a\r\n{}\r\n", header(length));
    assert!(served.answer(&head(15 * 1024)).await.contains(" 200 "));
    assert!(served.answer(&head(16 * 1024)).await.contains(" 431 "));
    let body = |length: usize| {
        let body = format!("\"{}\"", "x".repeat(length - 2));
        format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    assert!(served.answer(&body(LARGEST_BODY)).await.contains(" 200 "));
    assert!(served.answer(&body(LARGEST_BODY + 1)).await.contains(" 413 "));
}

#[tokio::test]
async fn probes_are_answered_while_other_clients_take_all_connections() {
    let served = ServedRoutes::start(ConnectionLimits::default()).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(served.send("GET /livez HTTP/1.1\r\n").await);
    }
    assert!(served.is_alive().await);
    // The oldest ones gave way.
    assert_eq!(answer(idle.remove(0)).await, "");
    // 64 clients that do not read are no obstacle either.
    let mut slow = Vec::new();
    for _ in 0..64 {
        slow.push(served.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await);
    }
    assert!(served.is_alive().await);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_ended() {
    let served = ServedRoutes::start(ConnectionLimits {
        answer: Duration::from_secs(1),
        ..brief()
    })
    .await;
    let large = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(served.send(large).await);
    }
    // The places for large answers are free again.
    eventually(BOUND, "a whole large answer", async || {
        let answer = served.answer(large).await;
        (answer.len() > LARGE).then_some(()).ok_or(answer.len())
    })
    .await;
    for stream in slow {
        assert!(answer(stream).await.len() < LARGE);
    }
}

#[tokio::test]
async fn a_long_answer_outlasts_the_bounds_and_takes_no_place() {
    let served = ServedRoutes::start(ConnectionLimits {
        connections: 1,
        ..brief()
    })
    .await;
    let mut events = served.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut seen = String::new();
    while !seen.contains("data") {
        let mut buffer = [0; 512];
        let read = time::timeout(BOUND, events.read(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        assert_ne!(read, 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    // This connection is ended after the bounds of the first one.
    assert_eq!(served.answer("").await, "");
    assert!(served.is_alive().await);
    let more = time::timeout(Duration::from_millis(50), events.read(&mut [0])).await;
    assert!(more.is_err(), "the stream continues: {more:?}");
}

#[tokio::test]
async fn the_server_ends_its_connections_when_it_stops() {
    let mut served = ServedRoutes::start(ConnectionLimits::default()).await;
    let idle = served.send("").await;
    let slow = served.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(served.is_alive().await);
    served.stop.cancel();
    time::timeout(BOUND, &mut served.task).await.unwrap().unwrap();
    assert_eq!(answer(idle).await, "");
    assert!(answer(slow).await.len() < LARGE);
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn a_server_thread_ends_with_its_task() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_on_thread(vec![ServedAddress {
        listener,
        routes: routes(),
    }]));
    let mut client = TcpStream::connect(address).await.unwrap();
    client
        .write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    assert!(answer(client).await.ends_with("ok\n"));
    tasks.shutdown().await;
    assert!(TcpStream::connect(address).await.is_err());
}
