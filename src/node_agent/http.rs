//! Serves `/livez`, `/readyz` and `/metrics` of the node agent. Reads only.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::State as Shared,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use redlock_node::agent::{Agent, Report};
use tokio::time;

use crate::{
    clock,
    http_server::{LargeAnswers, read_only},
    operator::{
        error::ProcessError,
        http::{ANSWER, metrics_response},
    },
    telemetry::NodeMetrics,
};

struct State {
    agent: Agent,
    metrics: NodeMetrics,
}

/// # Errors
///
/// Returns an error if the metrics cannot be set up.
pub(super) fn routes(agent: Agent) -> Result<Router, ProcessError> {
    let metrics = NodeMetrics::new().map_err(ProcessError::Metrics)?;
    Ok(Router::new()
        .route("/livez", read_only(livez))
        .route("/readyz", read_only(readyz))
        .route("/metrics", get(scrape))
        .with_state(Arc::new(State { agent, metrics })))
}

impl State {
    /// Returns the report; `None` if the task that owns the records does not answer in time.
    async fn report(&self) -> Option<Report> {
        let answer = time::timeout(ANSWER, self.agent.report()).await;
        answer.ok().flatten()
    }
}

async fn livez(Shared(state): Shared<Arc<State>>) -> Response {
    match state.report().await {
        Some(_) => "ok\n".into_response(),
        None => unavailable("the task that owns the records of pods does not answer\n"),
    }
}

/// Reports whether agent and guardian guard the pods of this node: a pod starts only if both can freeze it.
async fn readyz(Shared(state): Shared<Arc<State>>) -> Response {
    if state.agent.ready() {
        return "ready\n".into_response();
    }
    match state.report().await {
        Some(report) => unavailable(&unready(&report)),
        None => unavailable("the task that owns the records of pods does not answer\n"),
    }
}

/// Returns the reason why the agent is not ready.
fn unready(report: &Report) -> String {
    if let Some(reason) = &report.cannot_freeze {
        return format!("the node agent can freeze no pod: {reason}\n");
    }
    if let Some(reason) = report
        .guardian
        .as_ref()
        .and_then(|guardian| guardian.node_unable.as_ref())
    {
        return format!("the node guardian can freeze no pod: {reason}\n");
    }
    let unguarded = report.pods.iter().filter(|pod| !pod.guarded);
    let unguarded: Vec<String> = unguarded
        .map(|pod| format!("{}/{}", pod.pod.namespace, pod.pod.name))
        .collect();
    if unguarded.is_empty() {
        return "no node guardian reports on this node, or another node agent acts\n".to_owned();
    }
    let pods = unguarded.join(", ");
    format!(
        "the node guardian has not acknowledged the records of these pods, or they cannot be frozen: {pods}\n"
    )
}

fn unavailable(text: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, text.to_owned()).into_response()
}

async fn scrape(Shared(state): Shared<Arc<State>>, Extension(large): Extension<LargeAnswers>) -> Response {
    let place = large.place().await;
    let Some(report) = state.report().await else {
        return unavailable("the task that owns the records of pods does not answer\n");
    };
    let text = state.metrics.scrape(&report, clock::now());
    metrics_response(place, text.map_err(|cause| cause.to_string()))
}
