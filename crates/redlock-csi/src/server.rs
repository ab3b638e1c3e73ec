//! Serves the driver and its registration on two sockets until the shutdown.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::Server;

use crate::{
    node::Node,
    registration::Registration,
    rpc::{Endpoint, Methods},
    sockets::{Socket, SocketError},
    volumes::Volumes,
};

/// The time to wait at the shutdown: answers that are on their way take less. The server does not wait longer
/// for a client that keeps its connection open.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// The node and the sockets of the driver.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the Node object; the kubelet stores it in the CSINode object.
    pub node_name: String,
    /// The directory of the kubelet (`--root-dir`), at the same path as the kubelet sees it.
    pub kubelet_dir: PathBuf,
    /// The socket of the driver, as the kubelet sees it.
    pub csi_socket: PathBuf,
    /// The socket in the directory that the kubelet watches for plugins.
    pub registration_socket: PathBuf,
}

impl Options {
    /// Returns options with the sockets at the usual places below the directory of the kubelet.
    pub fn new(node_name: impl Into<String>, kubelet_dir: impl Into<PathBuf>) -> Self {
        let kubelet_dir = kubelet_dir.into();
        let name = crate::DRIVER_NAME;
        Self {
            node_name: node_name.into(),
            csi_socket: kubelet_dir.join("plugins").join(name).join("csi.sock"),
            // The kubelet sends the percent-encoded path of this socket as the HTTP/2 authority, and the
            // server accepts percent signs only before an `@`.
            registration_socket: kubelet_dir
                .join("plugins_registry")
                .join(format!("csi@{name}-reg.sock")),
            kubelet_dir,
        }
    }
}

/// The reason why the driver is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("serving the CSI driver failed")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves until the shutdown, then ends the calls in progress and removes the sockets.
///
/// # Errors
/// Returns an error if a socket cannot be bound, or if the transport fails.
pub async fn serve<V: Volumes>(
    volumes: V,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let tasks = TaskTracker::new();
    let _end = shutdown.clone().drop_guard();
    let driver = Endpoint::new(Node {
        volumes,
        node_name: options.node_name,
        kubelet_dir: options.kubelet_dir,
        calls: Arc::default(),
        tasks: tasks.clone(),
        shutdown: shutdown.clone(),
    });
    let (_driver_socket, driver_listener) = Socket::bind(&options.csi_socket)?;
    let registration = Endpoint::new(Registration {
        endpoint: options.csi_socket.clone(),
    });
    // Bound after the driver's socket: the kubelet calls the driver as soon as it finds the registration.
    let (_registration_socket, registration_listener) = Socket::bind(&options.registration_socket)?;
    let serving = async {
        tokio::try_join!(
            listen(driver, driver_listener, &shutdown),
            listen(registration, registration_listener, &shutdown),
        )
    };
    let served = serving.await;
    shutdown.cancel();
    tasks.close();
    tasks.wait().await;
    served?;
    Ok(())
}

async fn listen<M: Methods>(
    methods: Endpoint<M>,
    listener: tokio::net::UnixListener,
    shutdown: &CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let incoming = UnixListenerStream::new(listener);
    let serving = Server::builder().serve_with_incoming_shutdown(methods, incoming, shutdown.cancelled());
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => served,
        () = shutdown.cancelled() => timeout(LAST_ANSWERS, serving).await.unwrap_or(Ok(())),
    }
}
