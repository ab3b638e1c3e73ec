//! The verbs of requests over HTTP, and the form of their answers.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::{
    access::Verb,
    delete::{DeleteOptions, Deleted, Propagation},
    encode,
    error::{ApiError, FieldError},
    handle::{ApiBody, ApiRequest, ApiResponse},
    list::{ListPage, ListRequest},
    registry::ResourceKind,
    request::{ObjectRoute, Parameters},
    state::State,
    watch::WatchRequest,
    write::{Subresource, WriteRequest},
};

pub(super) fn unary(status: u16, body: &Value) -> ApiResponse {
    ApiResponse {
        status,
        body: ApiBody::Unary(encode::bytes(body)),
    }
}

pub(super) fn one(status: u16, object: &Value, request: &ApiRequest) -> ApiResponse {
    if request.is_partial() {
        unary(status, &encode::partial(object))
    } else {
        unary(status, object)
    }
}

pub(super) fn watch_request(
    kind: &ResourceKind,
    request: &ApiRequest,
    route: &ObjectRoute,
    parameters: &Parameters,
) -> Result<WatchRequest, ApiError> {
    let sends_initial = parameters.flag("sendInitialEvents");
    if sends_initial && parameters.text("resourceVersionMatch") != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        let error = FieldError {
            field: "resourceVersionMatch".to_owned(),
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {why}"),
        };
        return Err(ApiError::invalid_options("ListOptions", error));
    }
    Ok(WatchRequest {
        namespace: route.namespace.clone(),
        selector: parameters.selector(kind)?,
        version: parameters.text("resourceVersion").to_owned(),
        has_bookmarks: parameters.flag("allowWatchBookmarks"),
        sends_initial,
        timeout: parameters.seconds("timeoutSeconds"),
        is_partial: request.is_partial(),
    })
}

pub(super) fn get(
    state: &State,
    caller: &str,
    request: &ApiRequest,
    route: &ObjectRoute,
    kind: &ResourceKind,
) -> Result<ApiResponse, ApiError> {
    let key = route.key();
    state.check_read(caller, Verb::Get, &key)?;
    match subresource(kind, &route.name, &route.subresource)? {
        Subresource::Scale => Ok(unary(200, &state.scale(&key)?)),
        Subresource::Main | Subresource::Status | Subresource::Finalize => {
            Ok(one(200, &*state.get(&key)?, request))
        }
    }
}

pub(super) fn list_request(
    kind: &ResourceKind,
    route: &ObjectRoute,
    parameters: &Parameters,
) -> Result<ListRequest, ApiError> {
    let limit = parameters.number("limit").unwrap_or_default();
    let version = parameters.text("resourceVersion");
    if !version.is_empty() && version.parse::<u64>().is_err() {
        return Err(ApiError::bad_request("resourceVersion: Invalid value"));
    }
    let is_exact = parameters.text("resourceVersionMatch") == "Exact";
    Ok(ListRequest {
        exact: version.parse().ok().filter(|_| is_exact),
        namespace: route.namespace.clone(),
        selector: parameters.selector(kind)?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        continue_token: parameters.text("continue").to_owned(),
    })
}

pub(super) fn list(
    state: &State,
    caller: &str,
    request: &ApiRequest,
    route: &ObjectRoute,
    kind: &ResourceKind,
    parameters: &Parameters,
) -> Result<ApiResponse, ApiError> {
    state.check_read(caller, Verb::List, &route.key())?;
    let page = state.list(kind, &list_request(kind, route, parameters)?)?;
    list_body(kind, &page, request.is_partial())
}

fn list_body(kind: &ResourceKind, page: &ListPage, is_partial: bool) -> Result<ApiResponse, ApiError> {
    let (name, version) = if is_partial {
        (
            "PartialObjectMetadataList".to_owned(),
            "meta.k8s.io/v1".to_owned(),
        )
    } else {
        (format!("{}List", kind.kind), kind.api_version())
    };
    // Written piece by piece: the objects are not copied.
    let mut body = serde_json::to_vec(&json!({
        "kind": name, "apiVersion": version, "metadata": page.metadata(),
    }))
    .unwrap_or_default();
    body.pop();
    body.extend_from_slice(b",\"items\":[");
    for (index, item) in page.items.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        if is_partial {
            body.extend_from_slice(&encode::bytes(&encode::partial(item)));
        } else if encode::item(kind, item, &mut body).is_err() {
            return Err(ApiError::new(500, "InternalError", "an object cannot be encoded"));
        }
    }
    body.extend_from_slice(b"]}");
    Ok(ApiResponse {
        status: 200,
        body: ApiBody::Unary(body.into()),
    })
}

fn subresource(kind: &ResourceKind, object: &str, name: &str) -> Result<Subresource, ApiError> {
    match name {
        "" => Ok(Subresource::Main),
        "status" if kind.has_status => Ok(Subresource::Status),
        "scale" if kind.scale.is_some() => Ok(Subresource::Scale),
        "finalize" if kind.kind == "Namespace" => Ok(Subresource::Finalize),
        _ if kind.is_custom() => Err(ApiError::no_subresource(&kind.id, object)),
        _ => Err(ApiError::no_resource()),
    }
}

pub(super) fn write(
    state: &mut State,
    caller: &str,
    request: &ApiRequest,
    route: &ObjectRoute,
    kind: &ResourceKind,
    parameters: &Parameters,
) -> Result<ApiResponse, ApiError> {
    let is_eviction = kind.kind == "Pod" && route.subresource == "eviction" && request.method == Method::POST;
    if is_eviction {
        let body = request.json()?;
        state.delete(
            caller,
            &route.key(),
            &DeleteOptions::read(&body["deleteOptions"])?,
        )?;
        return Ok(unary(
            201,
            &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "code": 201}),
        ));
    }
    let options = parameters.write_options(subresource(kind, &route.name, &route.subresource)?);
    let of = |verb| WriteRequest {
        caller,
        verb,
        options: &options,
    };
    let is_new = state.find(&route.key()).is_none();
    let written: Arc<Value> = match (&request.method, route.name.is_empty()) {
        (&Method::POST, true) => {
            let namespace = route.namespace.as_deref().unwrap_or_default();
            state.create(of(Verb::Create), &kind.id, namespace, request.json()?, None)?
        }
        (&Method::PUT, false) => state.update(of(Verb::Update), &route.key(), request.json()?)?,
        (&Method::PATCH, false) => {
            let patch = request.patch(parameters)?;
            state.patch(of(Verb::Patch), &route.key(), &patch)?
        }
        _ => {
            let why = "the server does not allow this method on the requested resource";
            let mut error = ApiError::new(405, "MethodNotAllowed", why);
            error.details = json!({});
            return Err(error);
        }
    };
    Ok(one(if is_new { 201 } else { 200 }, &written, request))
}

pub(super) fn delete_options(
    request: &ApiRequest,
    parameters: &Parameters,
) -> Result<DeleteOptions, ApiError> {
    let mut options = DeleteOptions::read(&request.json()?)?;
    let propagation = Propagation::read(parameters.text("propagationPolicy"))?;
    options.propagation = options.propagation.or(propagation);
    let grace = parameters
        .number("gracePeriodSeconds")
        .and_then(|seconds| i64::try_from(seconds).ok());
    options.grace_seconds = options.grace_seconds.or(grace);
    options.is_dry_run |= parameters.text("dryRun") == "All";
    Ok(options)
}

pub(super) fn deletion(kind: &ResourceKind, request: &ApiRequest, deleted: &Deleted) -> ApiResponse {
    match deleted {
        Deleted::Pending(object) => one(200, object, request),
        Deleted::Gone(object) if kind.kind == "Pod" => one(200, object, request),
        Deleted::Gone(object) => {
            let metadata = &object["metadata"];
            let mut details =
                json!({"name": metadata["name"], "kind": kind.id.plural, "uid": metadata["uid"]});
            if !kind.id.group.is_empty() {
                details["group"] = kind.id.group.to_string().into();
            }
            unary(
                200,
                &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": details}),
            )
        }
    }
}

pub(super) fn delete_all(
    state: &mut State,
    caller: &str,
    request: &ApiRequest,
    route: &ObjectRoute,
    kind: &ResourceKind,
    parameters: &Parameters,
) -> Result<ApiResponse, ApiError> {
    let options = delete_options(request, parameters)?;
    let page = state.list(kind, &list_request(kind, route, parameters)?)?;
    for item in &page.items {
        let key = super::object::ObjectKey::new(
            kind.id.clone(),
            super::object::meta(item, "namespace"),
            super::object::meta(item, "name"),
        );
        state.delete(caller, &key, &options)?;
    }
    list_body(kind, &page, false)
}
