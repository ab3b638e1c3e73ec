//! Serves `/livez`, `/readyz`, `/locks` and `/metrics`. Reads only; every answer is computed on request.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::State as Shared,
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::future::join_all;
use serde::Serialize;
use tokio::{task::spawn_blocking, time};

use super::{
    guarded::{Reviewer, guarded},
    sibling,
    state::ProcessState,
};
use crate::{
    clock,
    elector::LockView,
    http_server::{LargeAnswerPlace, LargeAnswers, read_only},
    lease::BootInstant,
};

/// The timeout of an elector's answer, which takes milliseconds even with thousands of locks. The probes of
/// the kubelet have a timeout of a second.
pub(crate) const ANSWER: Duration = Duration::from_millis(800);

/// Returns the advice for an address that cannot be bound.
pub(crate) fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "another process listens there: give another port",
        io::ErrorKind::PermissionDenied => "not permitted: give a port of 1024 or above",
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: give one of its own, or 0.0.0.0"
        }
        _ => "give an address of this machine and a free port",
    }
}

const METRICS_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The address of `/metrics` and `/locks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DetailsPlace {
    WithProbes,
    Separate,
}

/// The routes of each address of the operator.
#[derive(Debug)]
pub(crate) struct OperatorRoutes {
    /// The probes and `/sibling`, and `/metrics` and `/locks` unless these have their own address.
    pub(crate) public: Router,
    /// `/metrics` and `/locks`, if they have their own address.
    pub(crate) details: Option<Router>,
}

impl OperatorRoutes {
    /// Serves `/metrics` and `/locks` to the clients that the reviewer allows; without a reviewer, to all clients.
    pub(crate) fn new(
        state: Arc<ProcessState>,
        reviewer: Option<Arc<dyn Reviewer>>,
        details: DetailsPlace,
    ) -> Self {
        let private = Router::new()
            .route("/metrics", get(metrics))
            .route("/locks", get(locks));
        let private = guarded(private, reviewer);
        let of_this_cluster = middleware::from_fn_with_state(state.clone(), sibling::refuse_other_clusters);
        let siblings = Router::new()
            .route(sibling::PATH, post(sibling::answer))
            .route_layer(of_this_cluster);
        let public = probes().merge(siblings);
        match details {
            DetailsPlace::Separate => Self {
                public: public.with_state(state.clone()),
                details: Some(private.with_state(state)),
            },
            DetailsPlace::WithProbes => Self {
                public: public.merge(private).with_state(state),
                details: None,
            },
        }
    }
}

/// Returns the routes of every long-running process that contends.
pub(crate) fn health() -> Router<Arc<ProcessState>> {
    probes().route("/metrics", get(metrics))
}

fn probes() -> Router<Arc<ProcessState>> {
    Router::new()
        .route("/livez", read_only(livez))
        .route("/readyz", read_only(readyz))
}

/// Reports whether the elector of every quorum is alive.
async fn livez(Shared(state): Shared<Arc<ProcessState>>) -> Response {
    let in_use = state.in_use.load_full();
    if in_use.stopping {
        return "stopping\n".into_response();
    }
    let questions = in_use.quorums.iter().map(|quorum| async {
        let answer = time::timeout(ANSWER, quorum.elector.answers()).await;
        (!matches!(answer, Ok(true))).then_some(quorum.name.as_str())
    });
    let silent: Vec<&str> = join_all(questions).await.into_iter().flatten().collect();
    // A quorum that was closed in the meantime need not answer.
    if silent.is_empty() || !Arc::ptr_eq(&in_use, &state.in_use.load_full()) {
        return "ok\n".into_response();
    }
    let message = format!("the elector does not answer for: {}\n", silent.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, message).into_response()
}

async fn readyz(Shared(state): Shared<Arc<ProcessState>>) -> Response {
    let readiness = state.readiness();
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(readiness)).into_response()
}

async fn metrics(
    Shared(state): Shared<Arc<ProcessState>>,
    Extension(large): Extension<LargeAnswers>,
) -> Response {
    let place = large.place().await;
    // With 10,000 locks this takes a while, during which no probe would be answered.
    let text = spawn_blocking(move || state.scrape()).await;
    let text = text.map_err(|broken| broken.to_string());
    metrics_response(
        place,
        text.and_then(|text| text.map_err(|cause| cause.to_string())),
    )
}

/// Returns the answer to a scrape.
pub(crate) fn metrics_response(place: LargeAnswerPlace, text: Result<String, String>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_FORMAT)], place.body(text)).into_response(),
        Err(cause) => {
            let message = format!("writing the metrics: {cause}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}

#[derive(Debug, Serialize)]
struct Locks {
    locks: Vec<Lock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Role {
    Active,
    Standby,
    /// Not known: no majority votes.
    Unknown,
}

/// One lock, as this process sees it. The names of the fields are stable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lock {
    namespace: String,
    name: String,
    lock_name: String,
    role: Role,
    holder_identity: Option<String>,
    holder_cluster: Option<String>,
    fencing_token: Option<u64>,
    /// The time for which this process may still act for the lock: 0 for a standby, regardless of the
    /// holder's lease.
    valid_for_milliseconds: u64,
    quorum: String,
    lease_transitions: u64,
}

async fn locks(
    Shared(state): Shared<Arc<ProcessState>>,
    Extension(large): Extension<LargeAnswers>,
) -> Response {
    let place = large.place().await;
    match serde_json::to_vec(&locks_of(&state)) {
        Ok(text) => {
            let json = [(header::CONTENT_TYPE, "application/json")];
            (json, place.body(text)).into_response()
        }
        Err(cause) => {
            let message = format!("writing the locks: {cause}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}

fn locks_of(state: &ProcessState) -> Locks {
    let in_use = state.in_use.load_full();
    let mut locks = Vec::new();
    for quorum in &in_use.quorums {
        let (voting, size) = (quorum.masters.voters(), quorum.masters.size());
        let granting = quorum.masters.granting();
        let shown = format!("{granting}/{}", size.masters());
        for (lock, standing) in quorum.elector.standings() {
            // A lock that was removed is still being released.
            let Some((namespace, name)) = quorum.locks.get(&lock) else {
                continue;
            };
            let named = (namespace, name, lock.to_string());
            let seen = voting >= size.majority();
            let decided = seen && (granting >= size.majority() || standing.holder_at(clock::now()).is_some());
            locks.push(Lock::new(named, &standing, state, decided, shown.clone()));
        }
    }
    locks.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Locks { locks }
}

impl Lock {
    fn new(
        (namespace, name, lock_name): (String, String, String),
        standing: &LockView,
        state: &ProcessState,
        decided: bool,
        quorum: String,
    ) -> Self {
        let now = clock::now();
        let left = |until: BootInstant| until.left(now).as_millis().try_into().unwrap_or(u64::MAX);
        let mut lock = Self {
            namespace,
            name,
            lock_name,
            role: if decided { Role::Standby } else { Role::Unknown },
            holder_identity: None,
            holder_cluster: None,
            fencing_token: standing.last_token().map(|token| token.0),
            valid_for_milliseconds: 0,
            quorum,
            lease_transitions: standing.transitions,
        };
        if let Some(authority) = standing.authority_at(now) {
            lock.role = Role::Active;
            lock.holder_identity = Some(state.identity.to_string());
            lock.holder_cluster = Some(state.cluster.name().to_owned());
            lock.fencing_token = Some(authority.token.0);
            lock.valid_for_milliseconds = left(authority.valid_until);
        } else if let Some(holder) = standing.holder_at(now) {
            lock.holder_identity = Some(holder.identity.clone());
            lock.holder_cluster = Some(holder.cluster.name().to_owned());
        }
        lock
    }
}
