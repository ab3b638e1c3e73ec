//! Routes that are read.

use axum::{
    handler::Handler,
    http::header,
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, options},
};

/// Returns the route of a resource that is read. OPTIONS, which load balancers such as HAProxy send as their check, has the
/// status of GET and no body.
pub(crate) fn read_only<H, T, S>(handler: H) -> MethodRouter<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    let checks = options(handler.clone()).layer(map_response(status_alone));
    get(handler).merge(checks)
}

async fn status_alone(response: Response) -> Response {
    (response.status(), [(header::ALLOW, "GET, HEAD, OPTIONS")]).into_response()
}
