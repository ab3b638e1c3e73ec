//! Requests over HTTP, with the faults of their callers.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tokio::time::sleep;

use super::{
    access::Verb,
    discovery, encode,
    error::{ApiError, FieldError},
    faults::Refusal,
    request::{ObjectRoute, Parameters, Route},
    reviews,
    server::ApiServer,
    state::State,
    verbs::{delete_all, delete_options, deletion, get, list, unary, watch_request, write},
    watch::WatchStream,
    write::Patch,
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
    Watch(Box<WatchStream>),
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

    pub(super) fn is_partial(&self) -> bool {
        self.accept.contains(encode::PARTIAL)
    }

    pub(super) fn json(&self) -> Result<Value, ApiError> {
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

    pub(super) fn patch(&self, parameters: &Parameters) -> Result<Patch, ApiError> {
        let body = self.json()?;
        match self.content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Ok(Patch::Merge(body)),
            "application/json-patch+json" => Ok(Patch::Json(body)),
            "application/strategic-merge-patch+json" => Ok(Patch::Strategic(body)),
            "application/apply-patch+yaml" if parameters.text("fieldManager").is_empty() => {
                let mut error = FieldError::required("fieldManager");
                error.message.push_str(": is required for apply patch");
                Err(ApiError::invalid_options("PatchOptions", error))
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
            state.count_request(caller, &request);
            let faults = state.faults.of(caller);
            let (latency, lost) = (faults.latency, faults.lost_requests);
            let total = latency.draw(&mut state.rng);
            // In whole milliseconds, the resolution of a timer.
            let millis = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
            let forth = Duration::from_millis(state.rng.u64(0..=millis));
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
                // A read has no effect; and a watch must not be dropped under the lock.
                Some(refusal) if refusal.is_executed && request.method != Method::GET => {
                    drop(self.execute(state, caller, &request));
                    Err(refused(refusal.code))
                }
                Some(refusal) => Err(refused(refusal.code)),
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
        if !state.serves(&route.resource.group, &route.version) {
            return Ok(not_served());
        }
        let kind = state.kind(&route.resource)?;
        if kind.is_custom() && route.namespace.is_some() && !kind.is_namespaced {
            return Ok(not_served());
        }
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
                    body: ApiBody::Watch(Box::new(watch)),
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

/// The answer to a path of a group or version that is not served: it is not JSON.
fn not_served() -> ApiResponse {
    ApiResponse {
        status: 404,
        body: ApiBody::Unary(Bytes::from_static(b"404 page not found\n")),
    }
}

fn draw(state: &mut State, probability: f64) -> bool {
    probability > 0.0 && state.rng.f64() < probability
}

fn refusal(state: &mut State, caller: &str, request: &ApiRequest) -> Option<Refusal> {
    let refusals = state.faults.of(caller).refusals.clone();
    let is_write = request.method != Method::GET;
    let mut refusals = refusals
        .into_iter()
        .filter(|refusal| is_write || !refusal.only_writes);
    refusals.find(|refusal| draw(state, refusal.probability))
}

fn refused(code: u16) -> ApiError {
    let message = match code {
        429 => "the server has received too many requests and has asked us to try again later",
        500 => "Internal error occurred: etcdserver: request timed out",
        503 => "the server is currently unable to handle the request",
        _ => "the server refused the request",
    };
    ApiError::refused(code, message)
}
