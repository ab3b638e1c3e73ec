use axum::{Json, Router, http::StatusCode, response::IntoResponse, routing::get};
use kube::{Client, api::ApiResource};
use serde_json::{Value, json};

use super::*;
use crate::targets::{
    AllowedFields, LeaseFence,
    fake_server::fake_server,
    kind::{Kinds, Need},
    shared::Shared,
};

fn not_found(group: &str, kind: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": format!("{kind} \"web\" not found"),
        "details": {"group": group, "kind": kind, "name": "web"},
    })
}

/// Returns a server that does not find the scale of an object of this group and kind. The object itself
/// exists if `there`.
async fn server(resource: &ApiResource, scale: Value, there: bool) -> Client {
    let list = json!({
        "kind": "APIResourceList", "groupVersion": resource.api_version,
        "resources": [
            {"name": resource.plural, "kind": resource.kind, "namespaced": true, "singularName": "", "verbs": []},
            {"name": format!("{}/scale", resource.plural), "kind": "Scale", "namespaced": true, "singularName": "",
             "verbs": []},
        ],
    });
    let object = if there {
        let metadata = json!({"name": "web", "uid": "u", "resourceVersion": "7"});
        (
            StatusCode::OK,
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}),
        )
    } else {
        (
            StatusCode::NOT_FOUND,
            not_found(&resource.group, &resource.plural),
        )
    };
    let root = match &*resource.group {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/v1"),
    };
    let path = format!("{root}/namespaces/n/{}/web", resource.plural);
    let answer =
        |(code, body): (StatusCode, Value)| move || async move { (code, Json(body)).into_response() };
    let scale = answer((StatusCode::NOT_FOUND, scale));
    let routes = Router::new()
        .route(&root, get(answer((StatusCode::OK, list))))
        .route(&path, get(answer(object)))
        .route(&format!("{path}/scale"), get(scale.clone()).patch(scale));
    fake_server(routes).await
}

fn object(client: &Client, resource: ApiResource) -> Object {
    let reference = TargetRef {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        name: "web".into(),
    };
    Object {
        api: Api::namespaced_with(client.clone(), "n", &resource),
        followed: Shared::new(client.clone(), LeaseFence::default(), AllowedFields::default())
            .follow(&resource, "n", "web"),
        pods: Pods::new(client, "n", "web"),
        place: Place::of(client, &Kinds::default(), &reference, Need::Scale, resource),
        name: "web".into(),
        called: "Deployment n/web".into(),
    }
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{group}/v1")
    };
    ApiResource {
        group: group.into(),
        version: "v1".into(),
        api_version,
        kind: kind.into(),
        plural: plural.into(),
    }
}

fn snapshot() -> Snapshot {
    Snapshot {
        uid: Some("u".into()),
        version: Some("7".into()),
        wanted: 1,
        counted: 1,
        selector: None,
    }
}

#[tokio::test]
async fn scale_that_is_not_found_is_unknown_while_its_object_exists() {
    let deployments = resource("apps", "Deployment", "deployments");
    for scale in ["deployments/scale", "deployments"] {
        let client = server(&deployments, not_found("apps", scale), true).await;
        let object = object(&client, deployments.clone());
        let seen = object.read().await;
        assert!(matches!(seen, Err(TargetError::Api { .. })), "{scale}: {seen:?}");
        let written = object.stop(0, &snapshot(), Precondition::Version).await;
        assert!(
            written.is_err_and(|error| !error.is_refusal()),
            "{scale}: it may be done"
        );
    }
}

#[tokio::test]
async fn object_is_gone_when_its_own_404_shows_it() {
    let deployments = resource("apps", "Deployment", "deployments");
    let controllers = resource("", "ReplicationController", "replicationcontrollers");
    for (resource, group, kind) in [
        (deployments, "apps", "deployments/scale"),
        // Here the API server names the group of the scale.
        (controllers, "autoscaling", "replicationcontrollers/scale"),
    ] {
        let client = server(&resource, not_found(group, kind), false).await;
        let object = object(&client, resource);
        assert_eq!(object.read().await, Ok(None), "{kind}");
        assert_eq!(
            object.stop(0, &snapshot(), Precondition::Version).await,
            Ok(Write::Missing),
            "{kind}"
        );
    }
}
