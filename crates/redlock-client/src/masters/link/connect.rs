//! Opens a connection whose reads and writes are done by the driver: a call is written, and its reply
//! handled, without a switch to another task. One poll of a connection delays the others by little: [`Paced`] bounds the
//! bytes that it reads, and [`BoundedStream`] the values that it parses.

use std::{
    any::Any,
    collections::BTreeSet,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
};

use futures_util::future::{AbortHandle, Abortable, FutureExt};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult, aio::MultiplexedConnection};
use redlock_core::ConnectionId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::{
    Dial,
    bounded::{BoundedStream, ReplyBounds},
    paced::{Paced, Reads},
};
use crate::masters::shared::Shared;

/// A connection to a master.
pub(super) struct Open {
    pub(super) connection: MultiplexedConnection,
    pub(super) id: ConnectionId,
    /// The version of the dial that opened it.
    pub(super) version: u32,
    /// Cancelled when the connection is given up. A connection lasts while a request waits for it, so a
    /// server that never replies would otherwise keep it open forever.
    pub(super) closed: CancellationToken,
    /// The scripts that ran on this connection. Other scripts are sent with their source: calls that are sent
    /// after a NOSCRIPT would overtake the retry.
    pub(super) ran: Arc<Mutex<BTreeSet<&'static str>>>,
    pub(super) carrier: Arc<Carrier>,
    /// The bounds of what the master sends.
    pub(super) bounds: ReplyBounds,
}

impl Open {
    /// Returns the same connection under another number.
    pub(super) fn renumbered(&self, id: ConnectionId) -> Self {
        Self {
            connection: self.connection.clone(),
            id,
            version: self.version,
            closed: self.closed.clone(),
            ran: self.ran.clone(),
            carrier: self.carrier.clone(),
            bounds: self.bounds.clone(),
        }
    }
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.id.0)
    }
}

/// Ends a connection when its last [`Open`] is dropped. The client library keeps a connection while a request
/// waits for it.
#[derive(Debug)]
pub(super) struct Carrier(AbortHandle);

impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens a connection, with TLS if the dial has certificates.
pub(super) async fn connect(
    dial: &Dial,
    config: AsyncConnectionConfig,
    bounds: ReplyBounds,
    master: &str,
    shared: &Shared,
) -> RedisResult<(MultiplexedConnection, Carrier)> {
    let client = &dial.client;
    let stream = dial.transport.connect(&client.host, client.port).await?;
    stream.set_nodelay(true)?;
    match &client.certificates {
        Some(certificates) => {
            let stream = Box::new(certificates.greet(&client.host, stream).await?);
            carry(&client.settings, config, (stream, bounds), master, shared).await
        }
        None => carry(&client.settings, config, (stream, bounds), master, shared).await,
    }
}

/// Makes the driver read and write a stream.
async fn carry<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    settings: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
    (stream, bounds): (S, ReplyBounds),
    master: &str,
    shared: &Shared,
) -> RedisResult<(MultiplexedConnection, Carrier)> {
    let reads = Reads::default();
    let stream = Paced {
        stream,
        reads: reads.clone(),
    };
    let stream = BoundedStream::new(stream, bounds);
    let opening = MultiplexedConnection::new_with_config(settings, stream, config);
    let (connection, carried) = reads.clone().renewed_for(opening).await?;
    let (handle, registration) = AbortHandle::new_pair();
    let carried = Abortable::new(reads.renewed_for(carried), registration);
    let carried = contained(master.to_owned(), carried.map(drop));
    if let Err(carried) = shared.carry(Box::pin(carried)) {
        // The task ends with its carrier.
        tokio::spawn(carried);
    }
    Ok((connection, Carrier(handle)))
}

/// Contains a panic: it ends this connection as if it were lost, but not the driver, which carries all
/// connections.
async fn contained(master: String, carried: impl Future<Output = ()>) {
    if let Err(panic) = AssertUnwindSafe(carried).catch_unwind().await {
        let error = message(&*panic);
        tracing::error!(master, error, "connection to the master ended by a panic");
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use std::{
        future::{poll_fn, ready},
        task::Poll,
    };

    use futures_util::stream::{FuturesUnordered, StreamExt};

    use super::*;

    #[tokio::test]
    async fn a_panic_of_one_connection_ends_no_other() {
        // The futures are held like the connections of the driver.
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        let panics = poll_fn(move |_| -> Poll<()> {
            let _held = &ended;
            panic!("a reply that the library cannot read");
        });
        let connections = FuturesUnordered::new();
        connections.push(contained("m0".into(), panics.boxed()));
        connections.push(contained("m1".into(), ready(()).boxed()));
        let ends: Vec<()> = connections.collect().await;
        assert_eq!(ends.len(), 2);
        // The library detects the end of a connection by the end of the future.
        assert!(end.await.is_err());
    }

    #[test]
    fn the_message_of_a_panic_is_reported() {
        let message = |panic: Box<dyn Any + Send>| message(&*panic).to_owned();
        assert_eq!(message(Box::new("fixed")), "fixed");
        assert_eq!(message(Box::new("made".to_owned())), "made");
        assert_eq!(message(Box::new(7)), "a panic without a message");
    }
}
