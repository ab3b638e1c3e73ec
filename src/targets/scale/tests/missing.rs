//! An object that was deleted without its pods, to a replica that has not seen it before.

use std::time::Duration;

use super::*;
use crate::clock;

/// An API server without the object, and with these pods; `None` if it does not answer a list.
struct OrphanServer {
    kind: &'static str,
    plural: &'static str,
    pods: Mutex<Option<Vec<Value>>>,
    deleted: Mutex<Vec<String>>,
}

impl OrphanServer {
    fn read(&self, path: &str, query: &str) -> Option<(StatusCode, Value)> {
        let resource = |name: &str, kind: &str| json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": []});
        let object = format!("/apis/apps/v1/namespaces/n/{}/web", self.plural);
        if path == "/apis/apps/v1" {
            let scale = format!("{}/scale", self.plural);
            let resources = [resource(self.plural, self.kind), resource(&scale, "Scale")];
            return Some((
                StatusCode::OK,
                json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": resources}),
            ));
        }
        if path == object || path == format!("{object}/scale") {
            return Some((
                StatusCode::NOT_FOUND,
                json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                    "message": "not found", "details": {"group": "apps", "kind": self.plural, "name": "web"},
                }),
            ));
        }
        if path != "/api/v1/namespaces/n/pods" {
            return None;
        }
        let wanted = query
            .split('&')
            .find_map(|part| part.strip_prefix("labelSelector="));
        let wanted = wanted.unwrap_or_default().replace("%2F", "/");
        let has = |pod: &&Value| !pod["metadata"]["labels"][&*wanted].is_null();
        let pods = self.pods.lock().unwrap().clone()?;
        let items: Vec<_> = pods.iter().filter(has).collect();
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
        Some((StatusCode::OK, list))
    }
}

async fn answer(State(server): State<Arc<OrphanServer>>, method: Method, uri: Uri) -> Response {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    if method == Method::DELETE {
        let name = path.rsplit('/').next().unwrap_or_default();
        server.deleted.lock().unwrap().push(name.to_owned());
        return Json(json!({"metadata": {"name": name}})).into_response();
    }
    let found = Some(query).filter(|query| !query.contains("watch="));
    found.and_then(|query| server.read(path, query)).map_or_else(
        || StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        |(code, body)| (code, Json(body)).into_response(),
    )
}

async fn missing_with(
    kind: &'static str,
    plural: &'static str,
    pods: Option<Vec<Value>>,
) -> (Scale, Arc<OrphanServer>) {
    let server = Arc::new(OrphanServer {
        kind,
        plural,
        pods: Mutex::new(pods),
        deleted: Mutex::default(),
    });
    let routes = Router::new().fallback(answer).with_state(server.clone());
    let (context, _) = target_context(fake_server(routes).await, &[]);
    let object = TargetRef {
        api_version: "apps/v1".into(),
        kind: kind.into(),
        name: "web".into(),
    };
    (Scale::new(context, &object, 1, 0), server)
}

async fn deployment(pods: Vec<Value>) -> (Scale, Arc<OrphanServer>) {
    missing_with("Deployment", "deployments", Some(pods)).await
}

async fn stateful_set(pods: Vec<Value>) -> (Scale, Arc<OrphanServer>) {
    missing_with("StatefulSet", "statefulsets", Some(pods)).await
}

fn pod(name: &str, labels: &Value, controller: Option<(&str, &str)>) -> Value {
    let owner = controller.map(|(kind, name)| {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true}])
    });
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels, "ownerReferences": owner},
        "spec": {"nodeName": "node"},
    })
}

/// A pod of a ReplicaSet with this hash.
fn of_set(name: &str, hash: &str, set: &str) -> Value {
    pod(
        name,
        &json!({"pod-template-hash": hash}),
        Some(("ReplicaSet", set)),
    )
}

fn of_stateful_set(name: &str) -> Value {
    pod(name, &json!({"statefulset.kubernetes.io/pod-name": name}), None)
}

fn terminating(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod
}

async fn stop(scale: &mut Scale) -> Result<Step, TargetError> {
    scale.stop(None, &StopPermit::new(|_| true)).await
}

#[tokio::test]
async fn missing_object_whose_pods_run_is_neither_stopped_nor_on_standby() {
    let bare = json!({"pod-template-hash": "5d4f"});
    for (mut scale, what) in [
        (
            deployment(vec![of_set("web-5d4f-abcde", "5d4f", "web-5d4f")])
                .await
                .0,
            "a pod of its ReplicaSet",
        ),
        (
            deployment(vec![pod("web-5d4f-abcde", &bare, None)]).await.0,
            "a pod whose ReplicaSet was orphaned, too, and deleted",
        ),
        (
            deployment(vec![terminating(of_set("web-5d4f-abcde", "5d4f", "web-5d4f"))])
                .await
                .0,
            "a pod that ends",
        ),
        (
            stateful_set(vec![of_stateful_set("web-0")]).await.0,
            "a pod of the StatefulSet",
        ),
    ] {
        let step = stop(&mut scale).await.unwrap();
        assert!(!step.is_stopped(), "{what}: {step:?}");
        assert_ne!(scale.observe().await.unwrap(), TargetState::Standby, "{what}");
        let Step::Trouble(why) = scale.start(&held()).await.unwrap() else {
            panic!("{what}");
        };
        assert_eq!(why.reason, ConditionReason::TargetNotFound, "{what}");
        assert_ne!(why.state, TargetState::Standby, "{what}");
        assert!(scale.unfenced().await.unwrap().is_some(), "{what}");
    }
}

#[tokio::test]
async fn missing_object_without_pods_of_its_own_is_stopped() {
    let other = json!({"pod-template-hash": "5d4f"});
    let pods = vec![
        of_set("web-api-5d4f-abcde", "5d4f", "web-api-5d4f"),
        of_set("web-5d4f-abcde", "77aa", "web-5d4f"),
        of_set("web-5d4f-abcdf", "5d4f", "api-5d4f"),
        pod("web-5d4f-abcde", &other, Some(("Rollout", "web-5d4f"))),
        pod("web-5d4f-abcde-x", &other, None),
        pod("web-5d4f-abcde", &json!({"app": "web"}), None),
    ];
    let (mut scale, _) = deployment(pods).await;
    assert_eq!(stop(&mut scale).await, Ok(Step::Done));
    assert_eq!(scale.observe().await, Ok(TargetState::Standby));
    let label = |name: &str| json!({"statefulset.kubernetes.io/pod-name": name});
    let pods = vec![
        pod("web-0", &label("web-1"), None),
        pod("web-0", &label("web-0"), Some(("StatefulSet", "other"))),
        pod("web-api-0", &label("web-api-0"), None),
        pod("web-x", &label("web-x"), None),
        pod("web-0", &json!({"app": "web"}), None),
    ];
    let (mut scale, _) = stateful_set(pods).await;
    assert_eq!(stop(&mut scale).await, Ok(Step::Done));
    assert_eq!(scale.observe().await, Ok(TargetState::Standby));
}

#[tokio::test]
async fn missing_object_whose_pods_cannot_be_read_is_unknown() {
    let (mut scale, _) = missing_with("Deployment", "deployments", None).await;
    assert!(stop(&mut scale).await.is_err());
    assert!(scale.observe().await.is_err());
}

#[tokio::test]
async fn pods_that_an_orphaned_replica_set_replaces_are_reported_and_not_deleted() {
    let (mut scale, server) = deployment(vec![of_set("web-5d4f-abcde", "5d4f", "web-5d4f")]).await;
    let by = Some(clock::now() + Duration::from_secs(1));
    let permit = StopPermit::new(|_| true);
    let first = scale.stop(by, &permit).await;
    assert_eq!(
        first,
        Ok(Step::Working(TargetState::Active)),
        "it may be collected"
    );
    let replaced = scale.replaced.as_mut().unwrap();
    replaced.first = replaced.first - Duration::from_secs(10);
    let Ok(Step::Trouble(why)) = scale.stop(by, &permit).await else {
        panic!("no trouble");
    };
    assert_eq!(
        (why.state, why.reason),
        (TargetState::Active, ConditionReason::TargetNotSafe)
    );
    for part in [
        "Deployment n/web does not exist",
        "web-5d4f-abcde",
        "delete ReplicaSet web-5d4f",
    ] {
        assert!(why.text.contains(part), "{}", why.text);
    }
    assert_eq!(*server.deleted.lock().unwrap(), [""; 0]);
    server.pods.lock().unwrap().clone_from(&Some(Vec::new()));
    let between = scale.stop(by, &permit).await;
    assert_eq!(between, Ok(Step::Working(TargetState::Changing)), "the next pod");
    let replaced = scale.replaced.as_mut().unwrap();
    replaced.last = replaced.last - Duration::from_secs(1);
    assert_eq!(scale.stop(by, &permit).await, Ok(Step::Done));
}

#[tokio::test]
async fn orphaned_pods_without_a_controller_are_deleted() {
    let pods = || {
        vec![
            of_stateful_set("web-0"),
            terminating(of_stateful_set("web-1")),
            pod(
                "other-0",
                &json!({"statefulset.kubernetes.io/pod-name": "other-0"}),
                None,
            ),
        ]
    };
    let (mut scale, server) = stateful_set(pods()).await;
    let refused = scale.stop(None, &StopPermit::new(|_| false)).await;
    assert_eq!(refused, Ok(Step::Working(TargetState::Active)));
    assert_eq!(*server.deleted.lock().unwrap(), [""; 0]);
    assert_eq!(stop(&mut scale).await, Ok(Step::Working(TargetState::Active)));
    assert_eq!(*server.deleted.lock().unwrap(), ["web-0"]);
}

/// A selector that was read finds pods of any kind; those that only match it are left until the end of the stop.
#[tokio::test]
async fn pods_of_a_remembered_selector_are_counted() {
    let pods = vec![
        pod("any", &json!({"app": "web"}), None),
        pod("of-another", &json!({"app": "web"}), Some(("Job", "other"))),
    ];
    let (mut scale, server) = deployment(pods).await;
    scale.selector = Some("app".into());
    assert_eq!(stop(&mut scale).await, Ok(Step::Working(TargetState::Active)));
    assert_eq!(*server.deleted.lock().unwrap(), [""; 0]);
    assert_eq!(scale.observe().await, Ok(TargetState::Active));
}

#[test]
fn name_of_a_pod_is_generated_from_the_name_of_its_controller() {
    use super::super::remains::is_generated;
    assert!(is_generated("web-5d4f-abcde", "web-5d4f"));
    for other in [
        "web-5d4f-abcd",
        "web-5d4f-abcdef",
        "web-5d4f-abc-e",
        "web-5d4f",
        "web-5d4-abcde",
    ] {
        assert!(!is_generated(other, "web-5d4f"), "{other}");
    }
    let long = "a".repeat(70);
    let short = format!("{}abcde", &long[..58]);
    assert!(is_generated(&short, &long));
    assert!(!is_generated(&format!("{long}-abcde"), &long));
}
