//! Switches an object of an API server that has a schema, while the declaration of the target changes.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    api::{lock_status::TargetState::Active, pointer::Pointer},
    targets::{
        Action, StopPermit,
        fake_server::{fake_server, held, target_context},
    },
};

/// The fields of `spec` in the schema, each of which is a boolean.
const SCHEMA: [&str; 3] = ["open", "lit", "loud"];

/// An API server with one Gate.
#[derive(Default)]
struct Server {
    spec: Mutex<Map<String, Value>>,
    version: Mutex<u64>,
    patches: Mutex<usize>,
}

impl Server {
    fn with(spec: &Value) -> Arc<Self> {
        let server = Self::default();
        *server.spec.lock().unwrap() = spec.as_object().unwrap().clone();
        Arc::new(server)
    }

    fn spec(&self) -> Value {
        self.spec.lock().unwrap().clone().into()
    }

    fn gate(&self) -> Value {
        let version = self.version.lock().unwrap().to_string();
        json!({
            "apiVersion": "test.example/v1", "kind": "Gate",
            "metadata": {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": version},
            "spec": self.spec(),
        })
    }

    /// Applies a merge patch of `spec` by strict validation.
    fn patch(&self, patch: &Value) -> Response {
        *self.patches.lock().unwrap() += 1;
        let changes = patch["spec"].as_object().unwrap();
        for (name, value) in changes {
            let message = if !SCHEMA.contains(&&**name) {
                format!("strict decoding error: unknown field \"spec.{name}\"")
            } else if !value.is_boolean() && !value.is_null() {
                format!("spec.{name}: Invalid value: \"string\": must be of type boolean")
            } else {
                continue;
            };
            let status = json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": message});
            return (StatusCode::UNPROCESSABLE_ENTITY, Json(status)).into_response();
        }
        for (name, value) in changes {
            let mut spec = self.spec.lock().unwrap();
            if value.is_null() {
                spec.remove(name);
            } else {
                spec.insert(name.clone(), value.clone());
            }
        }
        *self.version.lock().unwrap() += 1;
        Json(self.gate()).into_response()
    }
}

async fn answer(State(server): State<Arc<Server>>, method: Method, uri: Uri, body: Bytes) -> Response {
    match (method, uri.path()) {
        (Method::GET, "/apis/test.example/v1") => Json(json!({
            "kind": "APIResourceList", "groupVersion": "test.example/v1",
            "resources": [{"name": "gates", "kind": "Gate", "namespaced": true, "singularName": "", "verbs": []}],
        }))
        .into_response(),
        (Method::GET, "/apis/test.example/v1/namespaces/n/gates/web") => Json(server.gate()).into_response(),
        (Method::PATCH, _) => server.patch(&serde_json::from_slice(&body).unwrap()),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

struct Gate {
    action: Action,
}

/// Returns a target with these fields: path, active, standby.
fn work(fields: &[(&str, Value, Value)]) -> TargetWork {
    let value = |value: &Value| Some(value.clone()).filter(|value| !value.is_null());
    let field = |(path, active, standby): &(&str, Value, Value)| FieldPlan {
        path: Pointer::parse(path).unwrap(),
        active: value(active),
        standby: value(standby),
    };
    TargetWork::Patch {
        object: TargetRef {
            api_version: "test.example/v1".into(),
            kind: "Gate".into(),
            name: "web".into(),
        },
        patch: PatchPlan {
            fields: fields.iter().map(field).collect(),
            stopped_when: Vec::new(),
            trusts_status: false,
        },
        stop: Duration::ZERO,
    }
}

impl Gate {
    async fn new(server: &Arc<Server>, work: &TargetWork) -> Self {
        let routes = Router::new().fallback(answer).with_state(server.clone());
        let fields = [
            "gates.test.example:/spec/open",
            "gates.test.example:/spec/lit",
            "gates.test.example:/spec/opne",
        ];
        let (context, _noted) = target_context(fake_server(routes).await, &fields);
        Self {
            action: Action::new(context, work),
        }
    }

    fn declare(&mut self, work: &TargetWork) {
        self.action.declare(work);
    }

    /// Takes two steps of a start, and returns the trouble of the second: an object that is not followed is
    /// trouble of this server, which has no watches.
    async fn start(&mut self) -> Option<String> {
        let permit = held();
        drop(self.action.start(&permit).await);
        trouble(self.action.start(&permit).await)
    }

    async fn stop(&mut self) -> Option<String> {
        let permit = StopPermit::new(|_| true);
        for _ in 0..3 {
            drop(self.action.stop(None, &permit).await);
        }
        trouble(self.action.stop(None, &permit).await)
    }
}

fn trouble(step: Result<Step, TargetError>) -> Option<String> {
    match step {
        Ok(Step::Trouble(trouble)) if trouble.text.contains("500") => None,
        Ok(Step::Trouble(trouble)) => Some(trouble.text),
        Ok(Step::Done | Step::Waiting(_) | Step::Working(_) | Step::Contested(_)) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// Sets `open` where the lock is held.
fn opens() -> TargetWork {
    work(&[("/spec/open", json!(true), json!(false))])
}

/// Like [`opens`], with an error in the path, which the schema does not have.
fn mistyped() -> TargetWork {
    work(&[("/spec/opne", json!(true), json!(false))])
}

#[tokio::test]
async fn corrected_field_of_a_running_target_is_set_at_once() {
    let server = Server::with(&json!({"open": false}));
    let mut gate = Gate::new(&server, &opens()).await;
    assert_eq!(gate.start().await, None);
    assert_eq!(server.spec(), json!({"open": true}));
    gate.declare(&mistyped());
    let text = gate.start().await.unwrap();
    assert!(text.contains("unknown field"), "{text}");
    assert_eq!(
        server.spec(),
        json!({"open": true}),
        "a refused edit changes nothing"
    );
    gate.declare(&work(&[("/spec/lit", json!(true), json!(false))]));
    assert_eq!(gate.start().await, None);
    assert_eq!(server.spec(), json!({"open": false, "lit": true}));
    assert_eq!(gate.stop().await, None);
    assert_eq!(server.spec(), json!({"open": false, "lit": false}));
}

#[tokio::test]
async fn target_with_a_wrong_field_is_stopped_by_its_others() {
    let both = work(&[
        ("/spec/open", json!(true), json!(false)),
        ("/spec/opne", json!(true), json!(false)),
    ]);
    // The same replica makes the edit, or another one adopts the target after it.
    for adopts in [false, true] {
        let server = Server::with(&json!({"open": true}));
        let first = if adopts { both.clone() } else { opens() };
        let mut gate = Gate::new(&server, &first).await;
        gate.start().await;
        gate.declare(&both);
        assert!(gate.start().await.unwrap().contains("unknown field"));
        let text = gate.stop().await.unwrap();
        assert!(text.contains("unknown field"), "{text}");
        assert_eq!(server.spec(), json!({"open": false}), "adopts: {adopts}");
        // The target is removed: the wrong field was never set.
        gate.action.undeclare();
        assert_eq!(gate.stop().await, None);
        let end = gate.action.stop(None, &StopPermit::new(|_| true)).await;
        assert!(end.unwrap().is_stopped());
    }
}

#[tokio::test]
async fn field_that_may_not_be_set_keeps_no_other_from_its_value() {
    let server = Server::with(&json!({"open": false}));
    let mut gate = Gate::new(&server, &opens()).await;
    gate.start().await;
    gate.declare(&work(&[
        ("/spec/open", json!(true), json!(false)),
        ("/spec/loud", json!(true), json!(false)),
    ]));
    assert!(gate.start().await.unwrap().contains("/spec/loud"));
    let text = gate.stop().await.unwrap();
    assert!(text.contains("/spec/loud"), "{text}");
    assert_eq!(server.spec(), json!({"open": false}));
    gate.declare(&opens());
    assert_eq!(gate.start().await, None);
    assert_eq!(server.spec(), json!({"open": true}));
}

#[tokio::test]
async fn target_that_was_never_set_is_not_touched_while_a_field_may_not_be_set() {
    let server = Server::with(&json!({"open": true}));
    let both = work(&[
        ("/spec/open", json!(true), json!(false)),
        ("/spec/loud", json!(true), json!(false)),
    ]);
    let mut gate = Gate::new(&server, &both).await;
    assert!(gate.stop().await.unwrap().contains("/spec/loud"));
    assert_eq!(*server.patches.lock().unwrap(), 0);
    // A replica that was started since the start knows of no field that was set.
    gate.action.undeclare();
    assert_eq!(gate.stop().await, None);
    assert_eq!(server.spec(), json!({"open": false}));
}

#[tokio::test]
async fn stop_writes_the_earlier_value_where_the_edited_one_is_refused() {
    let server = Server::with(&json!({}));
    let mut gate = Gate::new(&server, &opens()).await;
    gate.start().await;
    gate.declare(&work(&[("/spec/open", json!(true), json!("no"))]));
    assert_eq!(gate.start().await, None);
    let text = gate.stop().await.unwrap();
    assert!(text.contains("must be of type boolean"), "{text}");
    assert_eq!(server.spec(), json!({"open": false}));
}

#[tokio::test]
async fn absent_field_that_the_schema_lacks_is_no_trouble_after_its_removal() {
    // The active value of the wrong field is no value, so that a start finds it set.
    let wrong = work(&[("/spec/opne", Value::Null, json!(true))]);
    let server = Server::with(&json!({}));
    let mut gate = Gate::new(&server, &wrong).await;
    assert_eq!(gate.start().await, None);
    gate.declare(&opens());
    assert_eq!(gate.start().await, None);
    assert_eq!(server.spec(), json!({"open": true}));
    let patches = *server.patches.lock().unwrap();
    assert_eq!(gate.start().await, None);
    assert_eq!(
        *server.patches.lock().unwrap(),
        patches,
        "nothing is left to restore"
    );
}

#[tokio::test]
async fn field_that_another_writer_changed_is_left_alone_after_its_removal() {
    let two = work(&[
        ("/spec/open", json!(true), json!(false)),
        ("/spec/lit", json!(true), Value::Null),
    ]);
    let server = Server::with(&json!({}));
    let mut gate = Gate::new(&server, &two).await;
    gate.start().await;
    *server.spec.lock().unwrap() = [("open".into(), json!(true)), ("lit".into(), json!(false))]
        .into_iter()
        .collect();
    gate.declare(&opens());
    assert_eq!(gate.start().await, None);
    assert_eq!(server.spec(), json!({"open": true, "lit": false}));
    assert_eq!(gate.action.observe().await.ok(), Some(Active));
}
