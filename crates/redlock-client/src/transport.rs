//! Opens connections to other processes: by TCP, or within the network of a simulated world.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::future::select_ok;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
};

#[cfg(all(feature = "virtual", debug_assertions))]
pub use self::in_memory::{InMemoryNetwork, InMemoryStream};

/// The way to other processes. The default is TCP; clones lead to the same network.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    #[cfg(all(feature = "virtual", debug_assertions))]
    network: Option<std::sync::Arc<dyn InMemoryNetwork>>,
}

impl Transport {
    #[must_use]
    pub const fn tcp() -> Self {
        Self {
            #[cfg(all(feature = "virtual", debug_assertions))]
            network: None,
        }
    }

    /// Resolves the host and connects to the first address that answers.
    ///
    /// # Errors
    ///
    /// Returns an error if the host has no address, or if none accepts the connection.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<Stream> {
        #[cfg(all(feature = "virtual", debug_assertions))]
        if let Some(network) = &self.network {
            return network.connect(host.to_owned(), port).await.map(Stream::InMemory);
        }
        let stream = reach(host, lookup_host((host, port)).await?).await?;
        Ok(Stream::Tcp(stream))
    }

    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// Returns an error if the address does not accept the connection.
    pub async fn connect_to(&self, address: SocketAddr) -> io::Result<Stream> {
        #[cfg(all(feature = "virtual", debug_assertions))]
        if let Some(network) = &self.network {
            let host = address.ip().to_string();
            return network.connect(host, address.port()).await.map(Stream::InMemory);
        }
        TcpStream::connect(address).await.map(Stream::Tcp)
    }
}

/// Connects to the first address that answers.
async fn reach(host: &str, addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let tries: Vec<_> = addresses
        .map(|address| Box::pin(TcpStream::connect(address)))
        .collect();
    if tries.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no address found for host {host}"),
        ));
    }
    let (stream, _) = select_ok(tries).await?;
    Ok(stream)
}

/// A connection of a [`Transport`].
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    #[cfg(all(feature = "virtual", debug_assertions))]
    InMemory(Box<dyn InMemoryStream>),
}

impl Stream {
    /// Sets whether small writes are sent at once. A connection in memory never delays them.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket does not accept the option.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(nodelay),
            #[cfg(all(feature = "virtual", debug_assertions))]
            Self::InMemory(_) => Ok(()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(all(feature = "virtual", debug_assertions))]
            Self::InMemory(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(all(feature = "virtual", debug_assertions))]
            Self::InMemory(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(all(feature = "virtual", debug_assertions))]
            Self::InMemory(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(all(feature = "virtual", debug_assertions))]
            Self::InMemory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(all(feature = "virtual", debug_assertions))]
mod in_memory {
    use std::{fmt::Debug, io, sync::Arc};

    use futures_util::future::BoxFuture;
    use tokio::io::{AsyncRead, AsyncWrite};

    use super::Transport;

    /// A connection of a simulated network.
    pub trait InMemoryStream: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

    impl<S: AsyncRead + AsyncWrite + Debug + Send + Unpin> InMemoryStream for S {}

    /// A simulated network, as one process reaches it.
    pub trait InMemoryNetwork: Debug + Send + Sync {
        fn connect(&self, host: String, port: u16)
        -> BoxFuture<'static, io::Result<Box<dyn InMemoryStream>>>;
    }

    impl Transport {
        /// Returns the transport of a process in a simulated network.
        #[must_use]
        pub fn in_memory(network: Arc<dyn InMemoryNetwork>) -> Self {
            Self {
                network: Some(network),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_without_an_address_is_an_error() {
        let error = reach("redis.invalid", std::iter::empty()).await.unwrap_err();
        assert_eq!(error.to_string(), "no address found for host redis.invalid");
    }
}
