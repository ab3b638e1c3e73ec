//! Serves HTTP/1 to clients that may be hostile: bounded connections, time, headers and bodies.
//!
//! One connection carries one request. A request must be complete within [`ConnectionLimits::request`], and its answer
//! taken within [`ConnectionLimits::answer`]. A connection above the limit takes the place of the oldest one in the phase,
//! request or answer, that has more connections: a probe is answered while other clients hold all places.

mod body;
mod connection;
mod connection_table;
mod large_answers;
mod read_only;
mod server_thread;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use axum::{Extension, Router, extract::DefaultBodyLimit, serve::Listener};
use tokio::{
    task::{self, JoinSet},
    time,
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    connection::LongAnswer,
    large_answers::{LargeAnswerPlace, LargeAnswers},
    read_only::read_only,
    server_thread::{ServedAddress, bind, serve_on_thread},
};
use self::{connection::serve_connection, connection_table::OpenConnections};

/// The largest body of a request, in bytes. The client of a larger one gets 413.
pub(crate) const LARGEST_BODY: usize = 256 * 1024;

/// The bounds of the connections of one listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// The maximum number of open connections, without those that stream a [`LongAnswer`].
    pub(crate) connections: usize,
    /// The time from the acceptance of a connection to the end of its request, with the body.
    pub(crate) request: Duration,
    /// The time from the end of the request to the end of the answer.
    pub(crate) answer: Duration,
    /// The largest head of a request, in bytes. The client of a larger one gets 431.
    pub(crate) head: usize,
    /// The time that answers have left to end when the server stops.
    pub(crate) shutdown: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            request: Duration::from_secs(5),
            // A Prometheus server waits ten seconds by default.
            answer: Duration::from_secs(10),
            head: 16 * 1024,
            shutdown: Duration::from_millis(200),
        }
    }
}

/// Serves the routes until `stop` is cancelled; the requests that are under way then have [`ConnectionLimits::shutdown`] to
/// end. Owns and joins a task for each connection.
///
/// Handlers read the address of the client as `ConnectInfo<L::Addr>`.
pub(crate) async fn serve_http<L>(
    mut listener: L,
    routes: Router,
    limits: ConnectionLimits,
    stop: CancellationToken,
) where
    L: Listener,
    L::Addr: Clone + fmt::Debug + Sync + 'static,
{
    let routes = routes
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(Extension(LargeAnswers::default()));
    let open = OpenConnections::new(limits.connections);
    let mut connections = JoinSet::new();
    loop {
        let (io, peer) = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let place = open.admit();
        connections.spawn(serve_connection(
            io,
            peer,
            routes.clone(),
            limits,
            place,
            stop.clone(),
        ));
        // A connection that lost its place is closed before the next one is accepted.
        task::yield_now().await;
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if time::timeout(limits.shutdown, ended).await.is_err() {
        connections.shutdown().await;
    }
}
