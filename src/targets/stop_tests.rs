//! Stops each action against an API server whose state changes during a request, and checks the writes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{
        plan::{FieldPlan, PatchPlan},
        pointer::Pointer,
        target::TargetRef,
    },
    clock,
    lease::HolderIdentity,
    telemetry::Origin,
};

/// An API server with one object of each kind, all of which run.
#[derive(Default)]
struct Server {
    reads: AtomicUsize,
    /// Whether no replica of this cluster is known to hold the lock.
    may_stop: AtomicBool,
    /// Whether a sibling wins the lock while a read is answered, which ends `may_stop`.
    read_ends_leave: AtomicBool,
    /// Whether the objects change all the time, so that a write for a version that was read finds another
    /// one.
    busy: AtomicBool,
    /// Whether a sibling wins the lock while a conflict is answered.
    conflict_ends_leave: AtomicBool,
    writes: Mutex<Vec<(Method, String, Value)>>,
}

const WEB: &str = "namespaces/n/";

fn object(kind: &str, version: usize, spec: &Value) -> Value {
    json!({
        "apiVersion": if kind == "Deployment" { "apps/v1" } else { "batch/v1" }, "kind": kind,
        "metadata": {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": version.to_string(), "generation": 1},
        "spec": spec,
        "status": {"observedGeneration": 1},
    })
}

fn pod(version: usize) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"});
    json!({
        "metadata": {
            "name": "web-1", "namespace": "n", "uid": "p", "resourceVersion": version.to_string(),
            "labels": {"app": "web", "redlock.dev/role": "active", "batch.kubernetes.io/job-name": "web-29000000"},
            "annotations": {"redlock.dev/labelled-by": "lock/it", "redlock.dev/fencing-token": "3"},
        },
        "status": {"phase": "Running", "conditions": [ready]},
    })
}

fn lease(version: usize) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": version.to_string()},
        "spec": {"holderIdentity": "web-1_x", "leaseDurationSeconds": 15},
    })
}

fn job(version: usize) -> Value {
    let mut job = object("Job", version, &json!({"template": {}}));
    job["metadata"]["name"] = json!("web-29000000");
    job["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "web", "uid": "u", "controller": true}]);
    job
}

fn list(kind: &str, items: &[Value]) -> Value {
    json!({"kind": kind, "metadata": {"resourceVersion": "1"}, "items": items})
}

impl Server {
    fn read(&self, path: &str, query: &str) -> Option<Value> {
        let version = self.reads.load(Ordering::SeqCst);
        let path = path.trim_start_matches("/apis/").trim_start_matches("/api/");
        let resource = |name: &str, kind: &str| json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": []});
        Some(match path.replace(WEB, "").as_str() {
            "apps/v1" => json!({
                "kind": "APIResourceList", "groupVersion": "apps/v1",
                "resources": [resource("deployments", "Deployment"), resource("deployments/scale", "Scale")],
            }),
            _ if query.contains("watch=") => return None,
            "apps/v1/deployments/web" => object("Deployment", version, &json!({"replicas": 1})),
            "apps/v1/deployments/web/scale" => json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": version.to_string()},
                "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "app=web"},
            }),
            "batch/v1/cronjobs/web" => object(
                "CronJob",
                version,
                &json!({"schedule": "* * * * *", "jobTemplate": {}}),
            ),
            "batch/v1/jobs/web" => object("Job", version, &json!({"template": {}})),
            "batch/v1/jobs" => list("JobList", &[job(version)]),
            "v1/pods" => list("PodList", &[pod(version)]),
            "coordination.k8s.io/v1/leases/web" => lease(version),
            "test.example/v1" => json!({
                "kind": "APIResourceList", "groupVersion": "test.example/v1",
                "resources": [resource("gates", "Gate")],
            }),
            "test.example/v1/gates/web" => json!({
                "apiVersion": "test.example/v1", "kind": "Gate",
                "metadata": {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": version.to_string()},
                "spec": {"open": true},
            }),
            _ => return None,
        })
    }
}

async fn answer(State(server): State<Arc<Server>>, method: Method, uri: Uri, body: Bytes) -> Response {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    if method == Method::GET {
        server.reads.fetch_add(1, Ordering::SeqCst);
        let found = server.read(path, query);
        if path.contains(WEB) && server.read_ends_leave.load(Ordering::SeqCst) {
            server.may_stop.store(false, Ordering::SeqCst);
        }
        return found.map_or_else(
            || StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            |found| Json(found).into_response(),
        );
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let late = server.busy.load(Ordering::SeqCst) && body["metadata"]["resourceVersion"].is_string();
    server
        .writes
        .lock()
        .unwrap()
        .push((method, path.to_owned(), body));
    if late {
        if server.conflict_ends_leave.load(Ordering::SeqCst) {
            server.may_stop.store(false, Ordering::SeqCst);
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409});
        return (StatusCode::CONFLICT, Json(status)).into_response();
    }
    Json(server.read(path, "").unwrap_or_default()).into_response()
}

/// Runs one step of a stop whose end is near, and returns the writes.
async fn stop(work: &TargetWork, server: Arc<Server>) -> Vec<(Method, String, Value)> {
    let routes = Router::new().fallback(answer).with_state(server.clone());
    let client = fake_server::fake_server(routes).await;
    let cluster = ClusterId::new("here", "c").unwrap();
    let origin = Origin {
        component: "operator",
        identity: HolderIdentity::parse("a").unwrap(),
        cluster: cluster.clone(),
    };
    let (notes, _noted) = mpsc::unbounded_channel();
    let allowed = ["gates.test.example:/spec/open".parse().unwrap()]
        .into_iter()
        .collect();
    let fence = LeaseFence {
        enforced: true,
        release: None,
    };
    let context = TargetContext {
        fenced: false,
        shared: Arc::new(Shared::new(client.clone(), fence, allowed)),
        client,
        namespace: "n".into(),
        object: "lock".into(),
        lock: LockName::parse("lock").unwrap(),
        target: "it".into(),
        cluster,
        elector: Elector::detached().0,
        telemetry: Telemetry::new(origin, false).unwrap(),
        notes,
    };
    let mut action = Action::new(context, work);
    server.may_stop.store(true, Ordering::SeqCst);
    let permit = {
        let server = server.clone();
        StopPermit::new(move |_| server.may_stop.load(Ordering::SeqCst))
    };
    let by = clock::now() + Duration::from_secs(1);
    let end = tokio::time::timeout(Duration::from_secs(10), action.stop(Some(by), &permit)).await;
    let step = end.expect("a step ends");
    println!("{work:?}: {step:?}");
    server.writes.lock().unwrap().clone()
}

/// Returns one target for each action that is undone in a cluster that does not hold the lock.
fn works() -> [TargetWork; 6] {
    let object = |api_version: &str, kind: &str| TargetRef {
        api_version: api_version.into(),
        kind: kind.into(),
        name: "web".into(),
    };
    let labels = [("app".to_owned(), "web".to_owned())].into_iter().collect();
    let selector = LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    };
    [
        TargetWork::Scale {
            object: object("apps/v1", "Deployment"),
            active_replicas: 1,
            standby_replicas: 0,
        },
        TargetWork::Suspend {
            object: object("batch/v1", "Job"),
        },
        TargetWork::Suspend {
            object: object("batch/v1", "CronJob"),
        },
        TargetWork::LabelPods { selector },
        TargetWork::Lease {
            object: object("coordination.k8s.io/v1", "Lease"),
            stop: Some(Duration::from_secs(1)),
        },
        TargetWork::Patch {
            object: object("test.example/v1", "Gate"),
            patch: PatchPlan {
                fields: vec![FieldPlan {
                    path: Pointer::parse("/spec/open").unwrap(),
                    active: Some(json!(true)),
                    standby: None,
                }],
                stopped_when: Vec::new(),
                trusts_status: false,
            },
            stop: Duration::from_secs(1),
        },
    ]
}

#[tokio::test]
async fn nothing_is_stopped_after_a_sibling_won_the_lock_during_a_read() {
    for work in works() {
        let server = Arc::new(Server::default());
        server.read_ends_leave.store(true, Ordering::SeqCst);
        assert_eq!(stop(&work, server).await, [], "{work:?}");
    }
}

#[tokio::test]
async fn a_stop_is_at_first_for_the_version_that_was_read_last() {
    for work in works() {
        let server = Arc::new(Server::default());
        let written = stop(&work, server.clone()).await;
        let (_, _, first) = &written[0];
        assert!(
            first["metadata"]["resourceVersion"].is_string(),
            "{work:?}: {first}"
        );
    }
}

#[tokio::test]
async fn nothing_is_stopped_after_a_sibling_won_the_lock_during_a_conflict() {
    for work in works() {
        let server = Arc::new(Server::default());
        server.busy.store(true, Ordering::SeqCst);
        server.conflict_ends_leave.store(true, Ordering::SeqCst);
        let written = stop(&work, server).await;
        assert_eq!(written.len(), 1, "{work:?}: {written:?}");
    }
}

/// All writes are made in one step: the next step may have only half a second.
#[tokio::test]
async fn an_object_that_changes_all_the_time_is_stopped() {
    let mut refused = Vec::new();
    // A label or a Lease that changes is read again in the next step.
    let objects =
        |work: &TargetWork| !matches!(work, TargetWork::LabelPods { .. } | TargetWork::Lease { .. });
    for work in works().into_iter().filter(objects) {
        let server = Arc::new(Server::default());
        server.busy.store(true, Ordering::SeqCst);
        let written = stop(&work, server.clone()).await;
        let lands = |end: &str| {
            let of_it = |(_, path, body): &&(Method, String, Value)| {
                path.ends_with(end) && body["metadata"]["resourceVersion"].is_null()
            };
            let landed = written.iter().find(of_it);
            landed.is_some_and(|(_, _, body)| body["metadata"]["uid"] == "u")
        };
        let ends: &[&str] = match &work {
            TargetWork::Scale { .. } => &["deployments/web/scale"],
            TargetWork::Suspend { object } if object.kind == "Job" => &["jobs/web"],
            TargetWork::Patch { .. } => &["gates/web"],
            _ => &["cronjobs/web", "jobs/web-29000000"],
        };
        refused.extend(ends.iter().filter(|end| !lands(end)).copied());
    }
    assert_eq!(refused, [""; 0]);
}
