//! Serves the HTTP API of the agent. Each answer is computed after the last await before the response.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{ConnectInfo, State as Shared},
    http::{HeaderMap, StatusCode, Uri},
    response::{
        IntoResponse, Response,
        sse::{KeepAlive, Sse},
    },
    routing::post as on_post,
};
use tokio::{sync::Semaphore, time};

use super::{
    answer::Answer,
    post::{Phase, Post, Yields},
    step_down::refusal,
    watch::events,
};
use crate::{
    clock,
    http_server::{LongAnswer, read_only},
    operator::http::{ANSWER, Role, health},
};

/// The limit of concurrent readers of `/v1/watch`, whose connections are not counted among those of short answers. Each
/// reader needs a file, and a process often has 1024 files in total.
pub(super) const READERS: usize = 256;

#[derive(Clone)]
struct Desk {
    post: Arc<Post>,
    readers: Arc<Semaphore>,
}

pub(super) fn routes(post: &Arc<Post>) -> Router {
    let desk = Desk {
        post: post.clone(),
        readers: Arc::new(Semaphore::new(READERS)),
    };
    Router::new()
        .route("/", read_only(leader))
        .route("/v1/lock", read_only(lock))
        .route("/v1/active", read_only(active))
        .route("/v1/watch", read_only(watch))
        .route("/v1/step-down", on_post(step_down))
        .with_state(desk)
        .merge(health().with_state(post.state.clone()))
}

async fn leader(Shared(desk): Shared<Desk>) -> Response {
    Json(Answer::at(&desk.post, clock::now()).leader()).into_response()
}

async fn lock(Shared(desk): Shared<Desk>) -> Json<Answer> {
    Json(Answer::at(&desk.post, clock::now()))
}

async fn active(Shared(desk): Shared<Desk>) -> Response {
    let answer = Answer::at(&desk.post, clock::now());
    let status = match answer.role {
        Role::Active => StatusCode::OK,
        Role::Standby => StatusCode::CONFLICT,
        Role::Unknown => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(answer)).into_response()
}

async fn watch(Shared(desk): Shared<Desk>) -> Response {
    let Ok(place) = desk.readers.try_acquire_owned() else {
        let message = format!("{READERS} clients already watch: request /v1/lock instead\n");
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    let stream = Sse::new(events(desk.post, place));
    let mut response = stream.keep_alive(KeepAlive::default()).into_response();
    response.extensions_mut().insert(LongAnswer);
    response
}

async fn step_down(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Shared(desk): Shared<Desk>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if let Some(message) = refusal(peer.ip(), &uri, &headers) {
        return (StatusCode::FORBIDDEN, message).into_response();
    }
    let post = &desk.post;
    if post.step_down(clock::now()) == Yields::NotYet {
        let message = "the masters are not known yet: the agent holds no lock\n";
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    }
    if post.stop_grace.is_zero() {
        let mut phase = post.phase();
        let done = phase.wait_for(|phase| !matches!(phase, Phase::Yielding(_)));
        if time::timeout(ANSWER, done).await.is_err() {
            let message = "the elector does not answer: the agent reports the lock as not held until the lease has expired\n";
            return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
        }
    }
    Json(Answer::at(post, clock::now())).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{
        elector::Elector,
        http_server::{ServedAddress, serve_on_thread},
        lease::{ClusterId, HolderIdentity, LockName},
        masters::{Credentials, MasterConfig, Masters, MastersConfig, ScriptLoading, Tls},
        operator::state::{InUse, InUseQuorum, Names, ProcessState},
    };

    fn nowhere() -> MastersConfig {
        let master = |index| MasterConfig {
            name: format!("m{index}"),
            url: format!("redis://127.0.0.1:{index}"),
        };
        MastersConfig {
            masters: (1..=3).map(master).collect(),
            key_prefix: "redlock".into(),
            credentials: Credentials::default(),
            tls: Tls::default(),
            cluster: ClusterId::default(),
            command_timeout: Duration::from_millis(100),
            longest_lease: Duration::from_secs(2),
            acquire_limit: Duration::from_millis(200),
            quorum: None,
            reseal: false,
            scripts: ScriptLoading::default(),
            transport: crate::transport::Transport::tcp(),
        }
    }

    async fn status(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{request} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn an_elector_that_is_gone_holds_nothing_and_is_reported() {
        let (masters, _notices, _tasks) = Masters::open(&nowhere(), None).unwrap();
        let identity = HolderIdentity::parse("a").unwrap();
        let state =
            ProcessState::new("agent", identity, ClusterId::default(), true, InUse::default()).unwrap();
        let post = Arc::new(Post::new(state, LockName::parse("l").unwrap(), Duration::ZERO));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve_on_thread(vec![ServedAddress {
            listener,
            routes: routes(&post),
        }]));
        assert_eq!(status(address, "GET /livez").await, "200");
        post.opened(InUse {
            quorums: vec![InUseQuorum {
                name: "q".into(),
                masters,
                elector: Elector::detached().0,
                meter: post.state.telemetry.quorum("q", Vec::new()),
                locks: Names::default(),
            }],
            ..InUse::default()
        });
        assert_eq!(status(address, "GET /livez").await, "503");
        assert_eq!(status(address, "GET /v1/active").await, "503");
        assert_eq!(status(address, "OPTIONS /v1/active").await, "503");
        // No task runs that could carry out the step-down.
        assert_eq!(status(address, "POST /v1/step-down").await, "503");
        serving.abort();
    }
}
