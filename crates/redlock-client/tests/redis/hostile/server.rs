//! A master that answers as its server does until it attacks, on its own thread.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use redlock_testkit::TlsMaterial;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

/// An endless reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    /// A text without an end.
    Bulk,
    /// A line without an end.
    Line,
    /// Messages to no subscription.
    Push,
    /// Releases of locks, as a channel delivers them.
    Released,
    /// Confirmations of subscriptions that were not requested.
    Subscribed,
    /// An array in an array in an array.
    Nested,
    /// An array of a billion numbers.
    Array,
    /// Replies to no request.
    Replies,
    /// As many numbers as a list of registers may have, and no end of such lists.
    Registers,
}

/// 64 bytes of a list for each, and 1,024 more: docs/security.md, limits of replies.
const REGISTERS: usize = 4 * 1024 * 1024 / 64;

impl Attack {
    /// Reports whether the attack is the reply to a request. The others begin on an idle connection.
    fn replies(self) -> bool {
        match self {
            Self::Bulk | Self::Line | Self::Nested | Self::Array | Self::Registers => true,
            Self::Push | Self::Released | Self::Subscribed | Self::Replies => false,
        }
    }

    fn first(self) -> Vec<u8> {
        match self {
            Self::Bulk => b"$9000000000\r\n".to_vec(),
            Self::Line => b"+".to_vec(),
            Self::Array => b"*1000000000\r\n".to_vec(),
            Self::Registers => [
                format!("*{REGISTERS}\r\n").as_bytes(),
                &b":1\r\n".repeat(REGISTERS),
            ]
            .concat(),
            Self::Push | Self::Released | Self::Subscribed | Self::Nested | Self::Replies => Vec::new(),
        }
    }

    /// Returns the reason that the client reports.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Bulk => "the master sent a reply of more than",
            Self::Line => "the master sent a line of more than",
            Self::Push | Self::Released => "messages in one second",
            Self::Subscribed | Self::Replies => "the master sent a reply to no request",
            Self::Nested => "the master sent a value nested deeper than",
            Self::Array | Self::Registers => " values; the connection was closed",
        }
    }

    /// Returns the bytes that follow, which are repeated.
    fn further(self) -> Vec<u8> {
        let message: &[u8] = match self {
            Self::Bulk | Self::Line => b"aaaaaaaa",
            Self::Push => b">2\r\n+invalidate\r\n:1\r\n",
            Self::Released => b">3\r\n$7\r\nmessage\r\n$16\r\nredlock:released\r\n$3\r\na/b\r\n",
            Self::Subscribed => b">3\r\n+subscribe\r\n+channel\r\n:1\r\n",
            Self::Nested => b"*1\r\n",
            Self::Array | Self::Registers => b":1\r\n",
            Self::Replies => b"+OK\r\n",
        };
        message.repeat(64 * 1024 / message.len())
    }
}

#[derive(Debug)]
pub(super) struct HostileServer {
    url: String,
    attack: watch::Sender<Option<Attack>>,
    connections: Arc<AtomicUsize>,
    sent: Arc<AtomicUsize>,
}

trait Connection: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Connection for S {}

impl HostileServer {
    /// Starts a server before the one at `port`, with TLS if there are certificates.
    pub(super) fn before(port: u16, tls: Option<&TlsMaterial>) -> Self {
        let (attack, attacks) = watch::channel(None);
        let (connections, sent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (connections.clone(), sent.clone());
        let acceptor = tls.map(acceptor);
        let scheme = if acceptor.is_some() { "rediss" } else { "redis" };
        let (started, start) = std::sync::mpsc::channel();
        let serve = async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            started.send(listener.local_addr().unwrap()).unwrap();
            accept(&listener, port, acceptor, attacks, counts).await;
        };
        // Not a thread of the test's runtime: what the server does delays no task of the client.
        thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(serve);
        });
        let address: SocketAddr = start.recv().unwrap();
        Self {
            url: format!("{scheme}://{address}"),
            attack,
            connections,
            sent,
        }
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    pub(super) fn set(&self, attack: Option<Attack>) {
        self.attack.send_replace(attack);
    }

    /// Returns the number of connections, and of bytes of attacks, so far.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.connections.load(Relaxed), self.sent.load(Relaxed))
    }
}

fn acceptor(tls: &TlsMaterial) -> TlsAcceptor {
    let files = tls.server_files(false);
    let certificates = CertificateDer::pem_file_iter(&files.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(certificates.map(Result::unwrap).collect(), key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// Accepts connections until the sender of attacks is gone.
async fn accept(
    listener: &TcpListener,
    port: u16,
    acceptor: Option<TlsAcceptor>,
    mut attacks: watch::Receiver<Option<Attack>>,
    (connections, sent): (Arc<AtomicUsize>, Arc<AtomicUsize>),
) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            gone = attacks.changed() => match gone {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        connections.fetch_add(1, Relaxed);
        let (acceptor, mut attacks, sent) = (acceptor.clone(), attacks.clone(), sent.clone());
        tokio::spawn(async move {
            let stream: Pin<Box<dyn Connection>> = match acceptor {
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => Box::pin(stream),
                    Err(_) => return,
                },
                None => Box::pin(stream),
            };
            // Each end of a connection is an error of one side.
            let _ = serve(stream, port, &mut attacks, &sent).await;
        });
    }
}

/// Passes bytes both ways until an attack begins; of a later connection, it passes the reply to the greeting first.
async fn serve(
    mut client: Pin<Box<dyn Connection>>,
    port: u16,
    attacks: &mut watch::Receiver<Option<Attack>>,
    sent: &AtomicUsize,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut request, mut reply) = ([0; 16 * 1024], [0; 16 * 1024]);
    let mut greeted = false;
    loop {
        let attack = *attacks.borrow_and_update();
        let attack = attack.filter(|_| greeted);
        if let Some(attack) = attack.filter(|attack| !attack.replies()) {
            return flood(&mut client, attack, attacks, sent).await;
        }
        tokio::select! {
            read = client.read(&mut request) => match (read?, attack) {
                (0, _) => return Ok(()),
                (_, Some(attack)) => return flood(&mut client, attack, attacks, sent).await,
                (length, None) => server.write_all(&request[..length]).await?,
            },
            read = server.read(&mut reply) => match read? {
                0 => return Ok(()),
                length => {
                    client.write_all(&reply[..length]).await?;
                    client.flush().await?;
                    greeted = true;
                }
            },
            gone = attacks.changed() => if gone.is_err() {
                return Ok(());
            },
        }
    }
}

/// Writes without an end, until the client closes the connection or the attack is over.
async fn flood(
    client: &mut Pin<Box<dyn Connection>>,
    attack: Attack,
    attacks: &mut watch::Receiver<Option<Attack>>,
    sent: &AtomicUsize,
) -> std::io::Result<()> {
    let further = attack.further();
    client.write_all(&attack.first()).await?;
    loop {
        tokio::select! {
            written = client.write_all(&further) => written?,
            _ = attacks.changed() => return Ok(()),
        }
        sent.fetch_add(further.len(), Relaxed);
    }
}
