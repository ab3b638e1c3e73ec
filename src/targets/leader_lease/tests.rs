//! Stops a target whose Lease does not exist, and checks the writes.

use std::sync::Mutex;

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::*;
use crate::targets::{
    Action,
    fake_server::{fake_server, target_context},
};

async fn answer(
    State(writes): State<Arc<Mutex<Vec<Value>>>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    if method != Method::GET {
        let created: Value = serde_json::from_slice(&body).unwrap();
        writes.lock().unwrap().push(created.clone());
        return Json(created).into_response();
    }
    if uri.path() == "/apis/coordination.k8s.io/v1" {
        let leases =
            json!({"name": "leases", "kind": "Lease", "namespaced": true, "singularName": "", "verbs": []});
        let list = json!({"kind": "APIResourceList", "groupVersion": "coordination.k8s.io/v1", "resources": [leases]});
        return Json(list).into_response();
    }
    let details = json!({"group": "coordination.k8s.io", "kind": "leases", "name": "web"});
    let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "",
                        "details": details});
    (StatusCode::NOT_FOUND, Json(status)).into_response()
}

/// Takes three steps of a stop whose stop time is over at once. Returns the number of writes, and the last step.
async fn stop(leaves: bool) -> (usize, Step) {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let routes = Router::new().fallback(answer).with_state(writes.clone());
    let (context, _noted) = target_context(fake_server(routes).await, &[]);
    let work = TargetWork::Lease {
        object: TargetRef {
            api_version: "coordination.k8s.io/v1".into(),
            kind: "Lease".into(),
            name: "web".into(),
        },
        stop: Some(Duration::ZERO),
    };
    let mut action = Action::new(context, &work);
    if leaves {
        action.undeclare();
    }
    let permit = StopPermit::new(|_| true);
    for _ in 0..2 {
        action.stop(None, &permit).await.unwrap();
    }
    let last = action.stop(None, &permit).await.unwrap();
    let writes = writes.lock().unwrap().len();
    (writes, last)
}

#[tokio::test]
async fn missing_lease_is_created_on_standby_and_not_for_a_target_that_leaves() {
    assert!(stop(false).await.0 > 0);
    assert_eq!(stop(true).await, (0, Step::Done));
}
