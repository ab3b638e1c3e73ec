//! Requests over HTTP, with the faults of their callers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    access::Verb,
    delete::{DeleteOptions, Deleted},
    discovery, encode,
    error::ApiError,
    list::ListRequest,
    registry::ResourceKind,
    request::{ObjectRoute, Parameters, Route},
    reviews,
    server::ApiServer,
    state::State,
    watch::{WatchRequest, WatchStream},
    write::{Patch, Subresource, WriteRequest},
};

/// A request.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub content_type: String,
    pub accept: String,
    pub body: Vec<u8>,
}

/// An answer; its content type is `application/json`.
#[derive(Debug)]
pub struct ApiResponse {
    pub status: u16,
    pub body: ApiBody,
}

#[derive(Debug)]
pub enum ApiBody {
    Unary(Bytes),
    Watch(WatchStream),
}

/// The connection broke. The request may have been executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnected;

impl std::fmt::Display for Disconnected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection reset by peer")
    }
}

impl std::error::Error for Disconnected {}

/// The direction of a message.
#[derive(Clone, Copy)]
enum Way {
    Request,
    Answer,
}

impl ApiRequest {
    /// Returns the request with these HTTP headers and this body.
    pub fn from_http(parts: &http::request::Parts, body: Vec<u8>) -> Self {
        let header = |name| {
            let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        Self {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            content_type: header(http::header::CONTENT_TYPE),
            accept: header(http::header::ACCEPT),
            body,
        }
    }

    fn is_partial(&self) -> bool {
        self.accept.contains(encode::PARTIAL)
    }

    fn json(&self) -> Result<Value, ApiError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        let invalid = |error: String| ApiError::bad_request(format!("the body cannot be decoded: {error}"));
        match serde_json::from_slice(&self.body) {
            Ok(value) => Ok(value),
            Err(error) if self.content_type.contains("yaml") => {
                serde_yaml::from_slice(&self.body).map_err(|_| invalid(error.to_string()))
            }
            Err(error) => Err(invalid(error.to_string())),
        }
    }

    fn patch(&self, parameters: &Parameters) -> Result<Patch, ApiError> {
        let body = self.json()?;
        match self.content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Ok(Patch::Merge(body)),
            "application/json-patch+json" => Ok(Patch::Json(body)),
            "application/strategic-merge-patch+json" => Ok(Patch::Strategic(body)),
            "application/apply-patch+yaml" if parameters.text("fieldManager").is_empty() => {
                let why = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
                Err(ApiError::new(422, "Invalid", why))
            }
            "application/apply-patch+yaml" => Ok(Patch::Apply {
                config: body,
                force: parameters.flag("force"),
            }),
            other => Err(ApiError::new(
                415,
                "UnsupportedMediaType",
                format!("the body of the request was in an unknown format: {other:?}"),
            )),
        }
    }
}

impl ApiServer {
    /// Handles a request. Fails if the connection breaks, before or after the request was executed.
    pub async fn handle(&self, caller: &str, request: ApiRequest) -> Result<ApiResponse, Disconnected> {
        let (breaks, latency, is_lost) = {
            let state = &mut *self.lock();
            let faults = state.faults.of(caller);
            let (latency, lost) = (faults.latency, faults.lost_requests);
            let total = latency.draw(&mut state.rng);
            let forth = total.mul_f64(state.rng.f64());
            let is_lost = draw(state, lost);
            (
                state.faults.breaks(caller),
                (forth, total.saturating_sub(forth)),
                is_lost,
            )
        };
        self.travel(caller, breaks, Way::Request, latency.0).await?;
        if is_lost {
            return Err(Disconnected);
        }
        let (answer, is_lost) = {
            let state = &mut *self.lock();
            let answer = match refusal(state, caller, &request) {
                Some(refused) => Err(refused),
                None => self.execute(state, caller, &request),
            };
            state.end_definitions();
            let lost = state.faults.of(caller).lost_answers;
            (answer, draw(state, lost))
        };
        self.travel(caller, breaks, Way::Answer, latency.1).await?;
        if is_lost {
            return Err(Disconnected);
        }
        Ok(answer.unwrap_or_else(|error| unary(error.code, &error.status())))
    }

    /// Waits for the latency, and for the end of a partition.
    async fn travel(
        &self,
        caller: &str,
        breaks: u64,
        way: Way,
        latency: Duration,
    ) -> Result<(), Disconnected> {
        if !latency.is_zero() {
            sleep(latency).await;
        }
        loop {
            let changed = {
                let state = self.lock();
                if state.faults.breaks(caller) != breaks {
                    return Err(Disconnected);
                }
                let partition = state.faults.of(caller).partition;
                let is_stopped = match way {
                    Way::Request => partition.stops_requests(),
                    Way::Answer => partition.stops_answers(),
                };
                if !is_stopped {
                    return Ok(());
                }
                state.faults_changed.clone().notified_owned()
            };
            changed.await;
        }
    }

    fn execute(
        &self,
        state: &mut State,
        caller: &str,
        request: &ApiRequest,
    ) -> Result<ApiResponse, ApiError> {
        let route = Route::parse(&request.path).ok_or_else(ApiError::no_resource)?;
        let answer = match route {
            Route::Health => {
                return Ok(ApiResponse {
                    status: 200,
                    body: ApiBody::Unary(Bytes::from_static(b"ok")),
                });
            }
            Route::Version => discovery::version(),
            Route::CoreVersions => discovery::core_versions(),
            Route::Groups => state.group_list(),
            Route::Group(name) => state.group(&name)?,
            Route::Resources { group, version } => state.resource_list(&group, &version)?,
            Route::Object(route) => return self.object(state, caller, request, &route),
        };
        Ok(unary(200, &answer))
    }

    fn object(
        &self,
        state: &mut State,
        caller: &str,
        request: &ApiRequest,
        route: &ObjectRoute,
    ) -> Result<ApiResponse, ApiError> {
        if request.method == Method::POST
            && let Some(answer) = reviews::answer(&route.resource, request.json()?)
        {
            return Ok(unary(201, &answer));
        }
        let kind = state.kind(&route.resource)?;
        if kind.version != route.version || (route.namespace.is_some() && !kind.is_namespaced) {
            return Err(ApiError::no_resource());
        }
        let parameters = Parameters::parse(&request.query);
        match (&request.method, route.name.is_empty()) {
            (&Method::GET, true) if parameters.flag("watch") => {
                let key = route.key();
                state.check_read(caller, Verb::Watch, &key)?;
                let watch = watch_request(&kind, request, route, &parameters)?;
                let watch = WatchStream::open(&self.state, state, caller, &kind, watch)?;
                Ok(ApiResponse {
                    status: 200,
                    body: ApiBody::Watch(watch),
                })
            }
            (&Method::GET, true) => list(state, caller, request, route, &kind, &parameters),
            (&Method::GET, false) => get(state, caller, request, route, &kind),
            (&Method::DELETE, true) => delete_all(state, caller, request, route, &kind, &parameters),
            (&Method::DELETE, false) => {
                let options = delete_options(request, &parameters)?;
                let deleted = state.delete(caller, &route.key(), &options)?;
                Ok(deletion(&kind, request, &deleted))
            }
            _ => write(state, caller, request, route, &kind, &parameters),
        }
    }
}

fn draw(state: &mut State, probability: f64) -> bool {
    probability > 0.0 && state.rng.f64() < probability
}

fn refusal(state: &mut State, caller: &str, request: &ApiRequest) -> Option<ApiError> {
    let refusals = state.faults.of(caller).refusals.clone();
    let is_write = request.method != Method::GET;
    let refused = refusals
        .iter()
        .filter(|refusal| is_write || !refusal.only_writes)
        .find(|refusal| draw(state, refusal.probability))?;
    let (reason, message) = match refused.code {
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        500 => (
            "InternalError",
            "Internal error occurred: etcdserver: request timed out",
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        _ => ("Unknown", "the server refused the request"),
    };
    let mut error = ApiError::new(refused.code, reason, message);
    if refused.code == 429 {
        error.details = json!({"retryAfterSeconds": 1});
    }
    Some(error)
}

fn unary(status: u16, body: &Value) -> ApiResponse {
    ApiResponse {
        status,
        body: ApiBody::Unary(encode::bytes(body)),
    }
}

fn one(status: u16, object: &Value, request: &ApiRequest) -> ApiResponse {
    if request.is_partial() {
        unary(status, &encode::partial(object))
    } else {
        unary(status, object)
    }
}

fn watch_request(
    kind: &ResourceKind,
    request: &ApiRequest,
    route: &ObjectRoute,
    parameters: &Parameters,
) -> Result<WatchRequest, ApiError> {
    Ok(WatchRequest {
        namespace: route.namespace.clone(),
        selector: parameters.selector(kind)?,
        version: parameters.text("resourceVersion").to_owned(),
        has_bookmarks: parameters.flag("allowWatchBookmarks"),
        sends_initial: parameters.flag("sendInitialEvents"),
        timeout: parameters.seconds("timeoutSeconds"),
        is_partial: request.is_partial(),
    })
}

fn get(
    state: &State,
    caller: &str,
    request: &ApiRequest,
    route: &ObjectRoute,
    kind: &ResourceKind,
) -> Result<ApiResponse, ApiError> {
    let key = route.key();
    state.check_read(caller, Verb::Get, &key)?;
    match subresource(kind, &route.subresource)? {
        Subresource::Scale => Ok(unary(200, &state.scale(&key)?)),
        Subresource::Main | Subresource::Status | Subresource::Finalize => {
            Ok(one(200, &*state.get(&key)?, request))
        }
    }
}

fn list_request(
    kind: &ResourceKind,
    route: &ObjectRoute,
    parameters: &Parameters,
) -> Result<ListRequest, ApiError> {
    let limit = parameters.number("limit").unwrap_or_default();
    Ok(ListRequest {
        namespace: route.namespace.clone(),
        selector: parameters.selector(kind)?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        continue_token: parameters.text("continue").to_owned(),
    })
}

fn list(
    state: &State,
    caller: &str,
    request: &ApiRequest,
    route: &ObjectRoute,
    kind: &ResourceKind,
    parameters: &Parameters,
) -> Result<ApiResponse, ApiError> {
    state.check_read(caller, Verb::List, &route.key())?;
    let page = state.list(kind, &list_request(kind, route, parameters)?)?;
    let is_partial = request.is_partial();
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
        } else if serde_json::to_writer(&mut body, &**item).is_err() {
            return Err(ApiError::new(500, "InternalError", "an object cannot be encoded"));
        }
    }
    body.extend_from_slice(b"]}");
    Ok(ApiResponse {
        status: 200,
        body: ApiBody::Unary(body.into()),
    })
}

fn subresource(kind: &ResourceKind, name: &str) -> Result<Subresource, ApiError> {
    match name {
        "" => Ok(Subresource::Main),
        "status" if kind.has_status => Ok(Subresource::Status),
        "scale" if kind.scale.is_some() => Ok(Subresource::Scale),
        "finalize" if kind.kind == "Namespace" => Ok(Subresource::Finalize),
        _ => Err(ApiError::no_resource()),
    }
}

fn write(
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
        state.delete(caller, &route.key(), &DeleteOptions::read(&body["deleteOptions"]))?;
        return Ok(unary(
            201,
            &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
        ));
    }
    let options = parameters.write_options(subresource(kind, &route.subresource)?);
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
            return Err(ApiError::new(405, "MethodNotAllowed", why));
        }
    };
    Ok(one(if is_new { 201 } else { 200 }, &written, request))
}

fn delete_options(request: &ApiRequest, parameters: &Parameters) -> Result<DeleteOptions, ApiError> {
    let mut options = DeleteOptions::read(&request.json()?);
    let grace = parameters
        .number("gracePeriodSeconds")
        .and_then(|seconds| i64::try_from(seconds).ok());
    options.grace_seconds = options.grace_seconds.or(grace);
    options.is_dry_run |= parameters.text("dryRun") == "All";
    Ok(options)
}

fn deletion(kind: &ResourceKind, request: &ApiRequest, deleted: &Deleted) -> ApiResponse {
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

fn delete_all(
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
    let items: Vec<&Value> = page.items.iter().map(AsRef::as_ref).collect();
    let name = format!("{}List", kind.kind);
    Ok(unary(
        200,
        &json!({"kind": name, "apiVersion": kind.api_version(), "metadata": page.metadata(), "items": items}),
    ))
}
