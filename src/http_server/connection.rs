//! Serves one connection: one request, within the limits.

use std::{convert::Infallible, pin::pin, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    response::Response,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time,
};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::{
    ConnectionLimits,
    body::RequestBody,
    connection_table::{ConnectionPhase, ConnectionPlace},
};

/// An extension of responses that last as long as the client reads, such as server-sent events. They have no bound of time,
/// and their handler bounds their number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongAnswer;

/// Serves one request. Returns at the end of the connection, which the limits bound.
pub(super) async fn serve_connection<I, A>(
    io: I,
    peer: A,
    routes: Router,
    limits: ConnectionLimits,
    place: ConnectionPlace,
    stop: CancellationToken,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Clone + Send + Sync + 'static,
{
    let place = Arc::new(place);
    let mut phases = place.phases();
    let of_request = place.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        answer(request, peer.clone(), routes.clone(), of_request.clone())
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        // The limits bound the time of the head together with that of the body.
        .header_read_timeout(None)
        .max_buf_size(limits.head)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let mut stopping = false;
    loop {
        let phase = *phases.borrow_and_update();
        tokio::select! {
            // An error is that of the client, such as a malformed request.
            _ = connection.as_mut() => return,
            () = place.closed() => return,
            () = time_is_over(phase, &limits) => return,
            // The place owns the sender, so this does not fail.
            _ = phases.changed() => {}
            () = stop.cancelled(), if !stopping => {
                connection.as_mut().graceful_shutdown();
                stopping = true;
            }
        }
    }
}

async fn answer<A>(
    request: Request<Incoming>,
    peer: A,
    mut routes: Router,
    place: Arc<ConnectionPlace>,
) -> Result<Response, Infallible>
where
    A: Clone + Send + Sync + 'static,
{
    let mut request = request.map(|body| Body::new(RequestBody::new(body, place.clone())));
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = routes.call(request).await?;
    // A handler may answer without the body, which is then not read.
    place.enter(match response.extensions().get::<LongAnswer>() {
        Some(LongAnswer) => ConnectionPhase::Streaming,
        None => ConnectionPhase::Answering,
    });
    Ok(response)
}

/// Waits for the end of the time of a phase, which has just begun.
async fn time_is_over(phase: ConnectionPhase, limits: &ConnectionLimits) {
    match phase {
        ConnectionPhase::Reading => time::sleep(limits.request).await,
        ConnectionPhase::Answering => time::sleep(limits.answer).await,
        ConnectionPhase::Streaming => std::future::pending().await,
    }
}
