//! Starts and stops an object with a scale, and checks the writes.

mod missing;

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::*;
use crate::targets::{
    Action, Note,
    fake_server::{fake_server, held, target_context},
};

/// An API server with one StatefulSet.
struct Server {
    replicas: i64,
    /// The policy of its volumes.
    policy: Value,
    annotations: Value,
    writes: Mutex<Vec<Value>>,
    /// The number of lists of pods.
    lists: Mutex<usize>,
}

impl Server {
    fn metadata(&self) -> Value {
        json!({
            "name": "db", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "annotations": self.annotations,
            "managedFields": [{
                "manager": "client", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                "time": "2026-01-01T12:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}},
            }],
        })
    }

    fn read(&self, path: &str) -> Option<Value> {
        let resource = |name: &str, kind: &str| json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": []});
        Some(match path {
            "/apis/apps/v1" => json!({
                "kind": "APIResourceList", "groupVersion": "apps/v1",
                "resources": [resource("statefulsets", "StatefulSet"), resource("statefulsets/scale", "Scale")],
            }),
            "/apis/apps/v1/namespaces/n/statefulsets/db" => json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": self.metadata(),
                "spec": {"replicas": self.replicas, "persistentVolumeClaimRetentionPolicy": self.policy},
                "status": {"observedGeneration": 1},
            }),
            "/apis/apps/v1/namespaces/n/statefulsets/db/scale" => json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": "db", "namespace": "n", "uid": "u", "resourceVersion": "7"},
                "spec": {"replicas": self.replicas}, "status": {"replicas": self.replicas, "selector": "app=db"},
            }),
            "/api/v1/namespaces/n/pods" => json!({"kind": "PodList", "metadata": {}, "items": []}),
            _ => return None,
        })
    }
}

async fn answer(State(server): State<Arc<Server>>, method: Method, uri: Uri, body: Bytes) -> Response {
    if method != Method::GET {
        let body: Value = serde_json::from_slice(&body).unwrap();
        server
            .writes
            .lock()
            .unwrap()
            .push(body["spec"]["replicas"].clone());
    }
    *server.lists.lock().unwrap() += usize::from(uri.path().ends_with("/pods"));
    let found = Some(uri.path()).filter(|_| !uri.query().unwrap_or_default().contains("watch="));
    found.and_then(|path| server.read(path)).map_or_else(
        || StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        |found| Json(found).into_response(),
    )
}

struct Outcome {
    steps: Vec<Step>,
    writes: Vec<Value>,
    notes: Vec<Note>,
}

impl Outcome {
    fn is_refused(&self) -> bool {
        let not_safe =
            |step: &Step| matches!(step, Step::Trouble(why) if why.reason == ConditionReason::TargetNotSafe);
        self.writes.is_empty() && self.steps.iter().all(not_safe)
    }
}

enum Switch {
    Start,
    Stop,
}

async fn switch(server: Server, switch: Switch) -> Outcome {
    let server = Arc::new(server);
    let routes = Router::new().fallback(answer).with_state(server.clone());
    let (context, mut noted) = target_context(fake_server(routes).await, &[]);
    let object = TargetRef {
        api_version: "apps/v1".into(),
        kind: "StatefulSet".into(),
        name: "db".into(),
    };
    let work = TargetWork::Scale {
        object,
        active_replicas: 1,
        standby_replicas: 0,
    };
    let mut action = Action::new(context, &work);
    let step = match switch {
        Switch::Start => action.start(&held()).await,
        Switch::Stop => action.stop(None, &StopPermit::new(|_| true)).await,
    };
    let mut notes = Vec::new();
    while let Ok(note) = noted.try_recv() {
        notes.push(note);
    }
    let writes = server.writes.lock().unwrap().clone();
    Outcome {
        steps: vec![step.unwrap()],
        writes,
        notes,
    }
}

fn set(replicas: i64, when_scaled: &str, annotations: Value) -> Server {
    Server {
        replicas,
        policy: json!({"whenScaled": when_scaled, "whenDeleted": "Retain"}),
        annotations,
        writes: Mutex::default(),
        lists: Mutex::default(),
    }
}

#[tokio::test]
async fn object_whose_volumes_a_stop_deletes_is_neither_started_nor_stopped() {
    for (replicas, to) in [(0, Switch::Start), (1, Switch::Start), (1, Switch::Stop)] {
        let found = switch(set(replicas, "Delete", json!({})), to).await;
        assert!(
            found.is_refused(),
            "{replicas}: {:?} {:?}",
            found.steps,
            found.writes
        );
    }
    let accepted = || json!({"redlock.dev/accept-volume-deletion": "true"});
    for (server, to, wanted) in [
        (set(0, "Retain", json!({})), Switch::Start, 1),
        (set(0, "Delete", accepted()), Switch::Start, 1),
        (set(1, "Retain", json!({})), Switch::Stop, 0),
        (set(1, "Delete", accepted()), Switch::Stop, 0),
    ] {
        assert_eq!(switch(server, to).await.writes, [wanted]);
    }
}

#[tokio::test]
async fn number_of_the_creation_is_not_lowered_and_the_creator_is_named() {
    let found = switch(set(3, "Retain", json!({})), Switch::Start).await;
    assert_eq!(found.writes, [0; 0]);
    let reasons: Vec<EventReason> = found.notes.iter().map(|note| note.reason).collect();
    assert_eq!(reasons, [EventReason::ReplicasLeft]);
    assert!(
        found.notes[0].text.contains("\"client\""),
        "{}",
        found.notes[0].text
    );
}

/// At rest, the pods of an object that exists are not listed.
#[tokio::test]
async fn observation_of_an_object_reads_no_pods() {
    let server = Arc::new(set(0, "Retain", json!({})));
    let routes = Router::new().fallback(answer).with_state(server.clone());
    let (context, _) = target_context(fake_server(routes).await, &[]);
    let object = TargetRef {
        api_version: "apps/v1".into(),
        kind: "StatefulSet".into(),
        name: "db".into(),
    };
    let mut scale = Scale::new(context, &object, 1, 0);
    assert_eq!(scale.observe().await, Ok(TargetState::Standby));
    assert_eq!(*server.lists.lock().unwrap(), 0);
}
