//! Runs an HTTP server on its own thread, so that its clients delay no task of the process.

use std::{io, net::SocketAddr, thread, time::Duration};

use axum::{
    Router,
    serve::{Listener, ListenerExt},
};
use futures_util::future::join_all;
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime::Builder,
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

use super::{ConnectionLimits, serve_http};

/// The time that the text of a scrape has left to end when the server has stopped.
const BLOCKING_TASKS: Duration = Duration::from_millis(200);
/// The threads that compute the texts of scrapes.
const BLOCKING_THREADS: usize = 2;
/// The time within which a client must take data; the kernel then ends the connection. A stream of events has no other
/// bound, and sends a comment every 15 s.
const UNTAKEN_DATA: Duration = Duration::from_secs(30);

/// The connections that wait in the kernel to be accepted, up to `net.core.somaxconn`. The kernel drops further ones, whose
/// clients try again after a second, longer than the time-out of a probe.
const WAITING_CONNECTIONS: u32 = 4_096;

/// Binds an address.
///
/// # Errors
///
/// Returns the error of the operating system.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restarted process binds the address of connections that the kernel still closes.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_CONNECTIONS)
}

/// A bound address and the routes that are served there.
#[derive(Debug)]
pub(crate) struct ServedAddress {
    pub(crate) listener: TcpListener,
    pub(crate) routes: Router,
}

/// Serves these addresses on one thread until the server ends by itself. Drop of the future stops the server and joins the
/// thread, which takes less than a second.
///
/// # Errors
///
/// Returns an error if the thread cannot be started, or if the server ended.
pub(crate) async fn serve_on_thread(served: Vec<ServedAddress>) -> io::Result<()> {
    HttpServer::start(served)?.ended().await
}

/// An HTTP server on its own thread. Drop stops the server and joins the thread.
#[derive(Debug)]
struct HttpServer {
    stop: CancellationToken,
    end: oneshot::Receiver<io::Result<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl HttpServer {
    fn start(served: Vec<ServedAddress>) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let served = served.into_iter().map(DetachedAddress::new);
        let served = served.collect::<io::Result<Vec<_>>>()?;
        let (sender, end) = oneshot::channel();
        let thread = thread::Builder::new().name("http".into()).spawn(move || {
            // The owner may no longer wait for the end.
            let _ = sender.send(serve_until(served, &stopped));
        })?;
        Ok(Self {
            stop,
            end,
            thread: Some(thread),
        })
    }

    async fn ended(mut self) -> io::Result<()> {
        let end = (&mut self.end).await;
        end.unwrap_or_else(|_| Err(io::Error::other("the thread of the HTTP server panicked")))
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // `ended` reports a panic of the thread.
            let _ = thread.join();
        }
    }
}

fn serve_until(served: Vec<DetachedAddress>, stop: &CancellationToken) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let end = runtime.block_on(async {
        let mut servers = Vec::new();
        for address in served {
            let (listener, routes) = address.attach()?;
            servers.push(serve_http(
                listener,
                routes,
                ConnectionLimits::default(),
                stop.clone(),
            ));
        }
        join_all(servers).await;
        Ok(())
    });
    runtime.shutdown_timeout(BLOCKING_TASKS);
    end
}

/// An address whose socket belongs to no runtime.
struct DetachedAddress {
    socket: std::net::TcpListener,
    routes: Router,
}

impl DetachedAddress {
    fn new(served: ServedAddress) -> io::Result<Self> {
        Ok(Self {
            socket: served.listener.into_std()?,
            routes: served.routes,
        })
    }

    /// Registers the socket with the runtime of this thread.
    fn attach(self) -> io::Result<(impl Listener<Addr = SocketAddr>, Router)> {
        let listener = TcpListener::from_std(self.socket)?;
        let limit = u32::try_from(UNTAKEN_DATA.as_millis()).unwrap_or(u32::MAX);
        let listener = listener.tap_io(move |stream| {
            if let Err(cause) = rustix::net::sockopt::set_tcp_user_timeout(&*stream, limit) {
                tracing::debug!(%cause, "the time-out of untaken data could not be set");
            }
        });
        Ok((listener, self.routes))
    }
}
