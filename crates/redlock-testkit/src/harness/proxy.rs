//! Simulates a network that breaks on demand, between clients and one address.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::Instant;

/// The treatment of bytes, on existing and on new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Every byte is delayed by this time, in each direction; order and throughput do not change.
    Delay(Duration),
    /// Connections are accepted and all bytes are dropped.
    BlackHole,
    /// Requests are dropped; messages that the server sends unasked arrive.
    LoseRequests,
    /// Requests arrive, replies are dropped.
    LoseReplies,
    /// Connections end with RST, new ones as soon as they are accepted.
    Reset,
    /// The clock of the server appears this many seconds ahead, as to a client whose own clock stood still for that long.
    Ahead(u64),
}

/// A mode for all clients, and another one for the connections of one process.
#[derive(Clone, Copy, Debug)]
struct Modes {
    all: Mode,
    one: Option<(u32, Mode)>,
    /// The number of connections, from the first one, that stay in the black hole.
    stranded: usize,
}

/// One connection of a client to the proxy.
struct Accepted {
    number: usize,
    /// The ports of the client and of the proxy.
    ports: (u16, u16),
    /// A process, and whether the connection belongs to it. Cached: the owner does not change, and is costly to find.
    owner: Option<(u32, bool)>,
}

impl Accepted {
    async fn mode(&mut self, modes: Modes) -> Mode {
        match modes.one {
            _ if self.number < modes.stranded => Mode::BlackHole,
            Some((process, mode)) if self.is_of(process).await => mode,
            _ => modes.all,
        }
    }

    /// A separate thread reads the table of connections, while the runtime carries the bytes of other connections.
    async fn is_of(&mut self, process: u32) -> bool {
        if let Some((known, own)) = self.owner
            && known == process
        {
            return own;
        }
        let (client, proxy) = self.ports;
        let own = spawn_blocking(move || has_connection(process, client, proxy)).await;
        let own = own.expect("the table of connections is read");
        self.owner = Some((process, own));
        own
    }
}

/// Reports whether a process has the TCP connection between these ports, by the inodes of its sockets. Two processes may
/// have the same local port, towards different servers.
fn has_connection(process: u32, local: u16, remote: u16) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap_or_default();
    // The table has a line for each connection of the machine. Most lines are rejected before they are parsed.
    let (local, remote) = (format!(":{local:04X} "), format!(":{remote:04X} "));
    let lines = table
        .lines()
        .filter(|line| line.contains(&local) && line.contains(&remote));
    let inodes: BTreeSet<String> = lines
        .filter_map(|line| {
            let mut columns = line.split(' ').filter(|column| !column.is_empty());
            let own = columns.nth(1)?.ends_with(local.trim_end());
            let other = columns.next()?.ends_with(remote.trim_end());
            let inode = columns.nth(6)?;
            (own && other).then(|| format!("socket:[{inode}]"))
        })
        .collect();
    let links = std::fs::read_dir(format!("/proc/{process}/fd"));
    let mut links = links.into_iter().flatten().flatten();
    !inodes.is_empty()
        && links.any(|entry| {
            let link = std::fs::read_link(entry.path()).ok();
            link.is_some_and(|link| link.to_str().is_some_and(|name| inodes.contains(name)))
        })
}

/// A proxy on a loopback port of its own that forwards to one address. Stops on drop.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    modes: watch::Sender<Modes>,
    accepted: Arc<AtomicUsize>,
    /// Each open connection holds a clone.
    open: Arc<()>,
    listener: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in `Mode::Pass`.
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port for a proxy");
        let address = listener.local_addr().unwrap();
        let (modes, followed) = watch::channel(Modes {
            all: Mode::Pass,
            one: None,
            stranded: 0,
        });
        let accepted = Arc::new(AtomicUsize::new(0));
        let open = Arc::default();
        let counted = (Arc::clone(&accepted), Arc::clone(&open));
        let listener = tokio::spawn(accept(listener, target, followed, counted));
        Self {
            address,
            modes,
            accepted,
            open,
            listener,
        }
    }

    /// Starts a proxy to a port of 127.0.0.1.
    pub async fn to_port(port: u16) -> Self {
        Self::to(SocketAddr::from(([127, 0, 0, 1], port))).await
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub fn set(&self, mode: Mode) {
        self.modes.send_modify(|modes| modes.all = mode);
    }

    /// Sets the mode for the connections of this process alone, once the proxy has found them.
    pub fn set_for(&self, process: u32, mode: Mode) {
        self.modes.send_modify(|modes| modes.one = Some((process, mode)));
    }

    /// Ends the special mode of a process.
    pub fn set_alike(&self) {
        self.modes.send_modify(|modes| modes.one = None);
    }

    /// Returns to `Mode::Pass`. A connection that lost bytes ends with RST: the rest would make no sense to its peer.
    pub fn heal(&self) {
        self.set(Mode::Pass);
    }

    /// Returns to `Mode::Pass` for new connections. Existing connections pass no more bytes, and neither side learns of
    /// it, as behind a firewall that has lost its state.
    pub fn strand(&self) {
        let accepted = self.accepted();
        self.modes.send_modify(|modes| {
            (modes.all, modes.stranded) = (Mode::Pass, accepted);
        });
    }

    /// Returns the number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that neither side has closed.
    pub fn open(&self) -> usize {
        // This value holds one clone, and the accepting task another.
        Arc::strong_count(&self.open) - 2
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The accepting task owns the connection tasks, so they end with it.
        self.listener.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    modes: watch::Receiver<Modes>,
    (accepted, open): (Arc<AtomicUsize>, Arc<()>),
) {
    let mut connections = JoinSet::new();
    let proxy = listener.local_addr().expect("own address").port();
    loop {
        let (client, from) = listener.accept().await.expect("accept");
        let number = accepted.fetch_add(1, Ordering::Relaxed);
        while connections.try_join_next().is_some() {}
        let mut modes = modes.clone();
        let stands = Arc::clone(&open);
        connections.spawn(async move {
            let _stands = stands;
            let mut accepted = Accepted {
                number,
                ports: (from.port(), proxy),
                owner: None,
            };
            let first = *modes.borrow_and_update();
            let (own, mode) = watch::channel(accepted.mode(first).await);
            let following = async {
                while modes.changed().await.is_ok() {
                    let changed = *modes.borrow_and_update();
                    let mode = accepted.mode(changed).await;
                    own.send_if_modified(|before| std::mem::replace(before, mode) != mode);
                }
                std::future::pending().await
            };
            tokio::select! {
                () = serve(client, target, mode) => {}
                () = following => {}
            }
        });
    }
}

async fn serve(mut client: TcpStream, target: SocketAddr, mut modes: watch::Receiver<Mode>) {
    let mode = *modes.borrow_and_update();
    // In the black hole the server sees nothing of the connection, which can only end.
    let server = match mode {
        Mode::Reset => None,
        Mode::BlackHole => {
            discard(&mut client, &mut modes).await;
            None
        }
        Mode::Pass | Mode::Delay(_) | Mode::LoseRequests | Mode::LoseReplies | Mode::Ahead(_) => {
            TcpStream::connect(target).await.ok()
        }
    };
    let Some(mut server) = server else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = client.set_nodelay(true).and(server.set_nodelay(true));
    let lost = AtomicBool::new(false);
    let broken = {
        let ((client_read, client_write), (server_read, server_write)) = (client.split(), server.split());
        let requests = Direction {
            modes: modes.clone(),
            replies: false,
            lost: &lost,
        };
        let replies = Direction {
            modes: modes.clone(),
            replies: true,
            lost: &lost,
        };
        tokio::select! {
            _ = requests.carry(client_read, server_write) => false,
            _ = replies.carry(server_read, client_write) => false,
            () = until_broken(&mut modes, &lost) => true,
        }
    };
    if broken || lost.load(Ordering::Relaxed) {
        let _ = client.set_zero_linger();
        let _ = server.set_zero_linger();
    }
}

/// Discards all bytes until the mode changes or the client disconnects.
async fn discard(client: &mut TcpStream, modes: &mut watch::Receiver<Mode>) {
    let mut bytes = [0; 4096];
    loop {
        tokio::select! {
            _ = modes.changed() => return,
            read = client.read(&mut bytes) => if !read.is_ok_and(|length| length > 0) { return },
        }
    }
}

async fn until_broken(modes: &mut watch::Receiver<Mode>, lost: &AtomicBool) {
    loop {
        match *modes.borrow_and_update() {
            Mode::Reset => return,
            Mode::Pass | Mode::Delay(_) | Mode::Ahead(_) if lost.load(Ordering::Relaxed) => return,
            _ => {}
        }
        if modes.changed().await.is_err() {
            return;
        }
    }
}

struct Direction<'a> {
    modes: watch::Receiver<Mode>,
    replies: bool,
    lost: &'a AtomicBool,
}

impl Direction<'_> {
    /// Reads continuously and writes when due, so that each byte is delayed independently of the bytes before it.
    async fn carry(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let (send, mut due) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
        let read = async move {
            let mut bytes = vec![0; 64 * 1024];
            loop {
                let length = from.read(&mut bytes).await?;
                if length == 0 {
                    return Ok(());
                }
                let delay = match *self.modes.borrow() {
                    Mode::Delay(delay) => delay,
                    _ => Duration::ZERO,
                };
                if send
                    .send((Instant::now() + delay, bytes[..length].to_vec()))
                    .is_err()
                {
                    return Ok(());
                }
            }
        };
        let write = async move {
            while let Some((at, mut bytes)) = due.recv().await {
                tokio::time::sleep_until(at).await;
                if let (true, Mode::Ahead(seconds)) = (self.replies, *self.modes.borrow()) {
                    set_ahead(&mut bytes, seconds);
                }
                if self.swallows() {
                    self.lost.store(true, Ordering::Relaxed);
                } else {
                    to.write_all(&bytes).await?;
                }
            }
            io::Result::Ok(())
        };
        // The end of the reader closes the channel, and the writer delivers the pending bytes.
        tokio::try_join!(read, write).map(|_| ())
    }

    fn swallows(&self) -> bool {
        match *self.modes.borrow() {
            Mode::BlackHole => true,
            Mode::LoseRequests => !self.replies,
            Mode::LoseReplies => self.replies,
            Mode::Pass | Mode::Delay(_) | Mode::Reset | Mode::Ahead(_) => false,
        }
    }
}

/// Shifts each `TIME` in the replies of scripts, the second and the third text of an array. A server writes a reply of
/// this size at once, so none of them is split here.
fn set_ahead(replies: &mut [u8], seconds: u64) {
    const BEFORE: &[u8] = b"\r\n$10\r\n";
    const DIGITS: usize = 10;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    for start in BEFORE.len()..replies.len().saturating_sub(DIGITS) {
        let (before, after) = replies.split_at_mut(start);
        let shown = std::str::from_utf8(&after[..DIGITS]).ok();
        let shown = shown.and_then(|digits| digits.parse::<u64>().ok());
        // Other texts are not current times.
        let shown = shown.filter(|shown| before.ends_with(BEFORE) && shown.abs_diff(now) < 60);
        if let Some(shown) = shown {
            after[..DIGITS].copy_from_slice(format!("{:010}", shown + seconds).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_ahead_changes_the_seconds_of_a_time_alone() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let reply = |time: u64| {
            format!("*4\r\n$2\r\nok\r\n$10\r\n{time}\r\n$6\r\n123456\r\n$10\r\n0000000007\r\n:{now}\r\n")
        };
        let mut replies = (reply(now) + &reply(now + 1)).into_bytes();
        set_ahead(&mut replies, 20);
        assert_eq!(
            String::from_utf8(replies).unwrap(),
            reply(now + 20) + &reply(now + 21)
        );
    }
}
