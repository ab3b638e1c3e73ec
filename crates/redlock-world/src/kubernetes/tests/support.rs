//! A server with a paused clock, and requests as the client of the operator sends them.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::kubernetes::{
    ApiBody, ApiOptions, ApiRequest, ApiResponse, ApiServer, Disconnected, ObjectKey, ResourceId, WatchStream,
};

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";
pub(super) const LOCKS: &str = "/apis/redlock.dev/v1alpha1/namespaces/default/leaderlocks";

pub(super) fn options() -> ApiOptions {
    ApiOptions::starting_at("2026-01-01T00:00:00Z".parse().unwrap(), 7)
}

pub(super) fn server() -> ApiServer {
    ApiServer::new(options())
}

pub(super) fn key(resource: ResourceId, name: &str) -> ObjectKey {
    ObjectKey::new(resource, "default", name)
}

pub(super) fn config_map(name: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "data": {"a": "1"}})
}

pub(super) fn lock_object(name: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": {"quorumRef": {"name": "q"}}})
}

pub(super) fn deployment(name: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})
}

pub(super) fn pod(name: &str, finalizers: &[&str]) -> Value {
    json!({"metadata": {"namespace": "default", "name": name, "finalizers": finalizers},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c"}]}})
}

pub(super) fn request(method: Method, path: &str, kind: &str, body: &Value) -> ApiRequest {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    ApiRequest {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        content_type: kind.to_owned(),
        accept: "application/json".to_owned(),
        body: if body.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(body).unwrap()
        },
    }
}

/// Sends a request and returns code and body of its answer.
pub(super) async fn send(
    server: &ApiServer,
    method: Method,
    path: &str,
    kind: &str,
    body: Value,
) -> (u16, Value) {
    let answer = server
        .handle("r1", request(method, path, kind, &body))
        .await
        .unwrap();
    unary(answer)
}

pub(super) fn unary(answer: ApiResponse) -> (u16, Value) {
    match answer.body {
        ApiBody::Unary(bytes) => (
            answer.status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        ),
        ApiBody::Watch(watch) => panic!("expected one answer: {watch:?}"),
    }
}

pub(super) async fn read(server: &ApiServer, path: &str) -> (u16, Value) {
    send(server, Method::GET, path, "", Value::Null).await
}

pub(super) async fn watch(server: &ApiServer, caller: &str, path: &str) -> WatchStream {
    let answer = server
        .handle(caller, request(Method::GET, path, "", &Value::Null))
        .await
        .unwrap();
    match answer.body {
        ApiBody::Watch(watch) => *watch,
        ApiBody::Unary(bytes) => panic!("expected a watch: {bytes:?}"),
    }
}

/// Returns the type of the next event and its object.
pub(super) async fn event(watch: &mut WatchStream) -> Option<Result<(String, Value), Disconnected>> {
    let chunk = watch.next().await?;
    Some(chunk.map(|chunk| {
        assert!(chunk.ends_with(b"\n"));
        let mut event: Value = serde_json::from_slice(&chunk).unwrap();
        (event["type"].as_str().unwrap().to_owned(), event["object"].take())
    }))
}

/// Returns the next event as text, such as `ADDED web`.
pub(super) async fn event_text(watch: &mut WatchStream) -> String {
    match event(watch).await {
        Some(Ok((kind, object))) => match object["metadata"]["name"].as_str() {
            Some(name) => format!("{kind} {name}"),
            None => format!("{kind} {}", object["code"]),
        },
        Some(Err(Disconnected)) => "broken".to_owned(),
        None => "end".to_owned(),
    }
}

pub(super) fn version(object: &Arc<Value>) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}
