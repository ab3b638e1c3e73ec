//! Opens a connection whose reads and writes are the driver's: a call is written, and its reply handled, without a switch to
//! another task.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures_util::future::{AbortHandle, Abortable, select_ok};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisResult, aio::MultiplexedConnection};
use redlock_core::ConnectionId;
use tokio::net::{TcpStream, lookup_host};
use tokio_util::sync::CancellationToken;

use crate::masters::shared::Shared;

/// A connection to a master.
pub(super) struct Open {
    pub(super) connection: MultiplexedConnection,
    pub(super) id: ConnectionId,
    /// Of the dial that it was opened by.
    pub(super) version: u32,
    /// Cancelled when the connection is given up. It stands for as long as a request waits for it, and a server that
    /// swallows requests would keep it for ever.
    pub(super) closed: CancellationToken,
    /// The scripts that ran here. Others go with their source: what is sent after a NOSCRIPT would overtake the retry.
    pub(super) ran: Arc<Mutex<BTreeSet<&'static str>>>,
    pub(super) carrier: Option<Arc<Carrier>>,
}

impl Open {
    /// The same connection under another number.
    pub(super) fn renumbered(&self, id: ConnectionId) -> Self {
        Self {
            connection: self.connection.clone(),
            id,
            version: self.version,
            closed: self.closed.clone(),
            ran: self.ran.clone(),
            carrier: self.carrier.clone(),
        }
    }
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.id.0)
    }
}

/// Ends a connection with its last [`Open`]. The client library keeps a connection for as long as a
/// request waits for it.
#[derive(Debug)]
pub(super) struct Carrier(AbortHandle);

impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One with TLS is carried by the client library, in a task of its own: it alone makes them.
pub(super) async fn connect(
    client: &Client,
    config: AsyncConnectionConfig,
    shared: &Shared,
) -> RedisResult<(MultiplexedConnection, Option<Carrier>)> {
    let info = client.get_connection_info();
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        return Ok((connection.await?, None));
    };
    // Not an empty list: that is an error.
    let addresses = lookup_host((&**host, *port)).await?;
    let (stream, _) = select_ok(addresses.map(|address| Box::pin(TcpStream::connect(address)))).await?;
    stream.set_nodelay(info.tcp_settings().nodelay())?;
    let (connection, carried) =
        MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await?;
    let (handle, registration) = AbortHandle::new_pair();
    let carried = Abortable::new(carried, registration);
    let carried = async { _ = carried.await };
    if let Err(carried) = shared.carry(Box::pin(carried)) {
        // Ends with its carrier.
        tokio::spawn(carried);
    }
    Ok((connection, Some(Carrier(handle))))
}
