//! Hostile HTTP clients, and the measurement of the program that they attack.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as BlockingStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time;

/// The pause of a client between two connections, so that the clients do not take all CPU time from the program.
const RECONNECT: Duration = Duration::from_millis(200);
/// The pause between two bytes of a slow client.
const TRICKLE: Duration = Duration::from_millis(250);
/// The interval of the probes, and the limit of each: the kubelet's default time-out is one second.
const PROBE: Duration = Duration::from_millis(100);
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// The clients of one attack. All of them connect again when the program closes their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpAttack {
    /// 700 clients that send 256 KiB of headers, then one byte from time to time.
    UnfinishedHeaders,
    /// 200 clients that announce 200 KB of body, and send one byte from time to time.
    SlowBodies,
    /// 24 clients that post 1.85 MB of JSON.
    BigPosts,
    /// 1,500 clients that send nothing.
    IdleConnections,
    /// 200 clients that request the largest answer and never read.
    SlowReaders,
}

impl HttpAttack {
    pub const ALL: [Self; 5] = [
        Self::UnfinishedHeaders,
        Self::SlowBodies,
        Self::BigPosts,
        Self::IdleConnections,
        Self::SlowReaders,
    ];

    const fn clients(self) -> usize {
        match self {
            Self::UnfinishedHeaders => 700,
            Self::SlowBodies | Self::SlowReaders => 200,
            Self::BigPosts => 24,
            Self::IdleConnections => 1_500,
        }
    }
}

/// The endpoints that an attack uses.
#[derive(Clone, Copy, Debug)]
pub struct AttackedPaths {
    /// The path of posts.
    pub post: &'static str,
    /// The path with the largest answer.
    pub get: &'static str,
}

/// The answers of `/livez` during an attack, and the memory of the program.
#[derive(Clone, Copy, Debug)]
pub struct AttackReport {
    pub attack: HttpAttack,
    pub probes: u64,
    /// The probes that got no 200 within five seconds.
    pub failed_probes: u64,
    pub slowest_probe: Duration,
    /// Connections that the clients opened.
    pub connections: u64,
    /// The largest resident memory of the program so far, in KiB (`VmHWM`).
    pub peak_resident_kib: u64,
}

impl AttackReport {
    /// Asserts that the program stayed within its bounds: no probe failed, less than 100 MiB, and, where the time of the attack
    /// is given, each probe within one second. Beside other tests, the clients of an attack wait for the CPU.
    pub fn assert_within_bounds(&self) {
        assert_eq!(self.failed_probes, 0, "{self:?}");
        assert!(
            given_time().is_none() || self.slowest_probe < Duration::from_secs(1),
            "{self:?}"
        );
        assert!(self.peak_resident_kib < 100 * 1024, "{self:?}");
    }
}

/// Returns the time of one attack: 2 s, or `REDLOCK_ATTACK_SECONDS`.
fn attack_time() -> Duration {
    given_time().unwrap_or(Duration::from_secs(2))
}

fn given_time() -> Option<Duration> {
    let given = std::env::var("REDLOCK_ATTACK_SECONDS").ok()?;
    Some(Duration::from_secs(given.parse().expect("a number of seconds")))
}

/// Attacks the program `pid` at this address for [`attack_time`], and probes its `/livez` meanwhile.
pub fn attack_http(pid: u32, address: SocketAddr, attack: HttpAttack, paths: AttackedPaths) -> AttackReport {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let connections = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let until = begun + attack_time();
    let counted = connections.clone();
    let clients = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        // The clients never end by themselves.
        let attacked =
            async { time::timeout_at(until.into(), clients(address, attack, paths, &counted)).await };
        runtime.block_on(attacked).is_err()
    });
    let mut report = AttackReport {
        attack,
        probes: 0,
        failed_probes: 0,
        slowest_probe: Duration::ZERO,
        connections: 0,
        peak_resident_kib: 0,
    };
    while Instant::now() < until {
        let sent = Instant::now();
        report.probes += 1;
        match is_alive(address) {
            true => report.slowest_probe = report.slowest_probe.max(sent.elapsed()),
            false => report.failed_probes += 1,
        }
        thread::sleep(PROBE.saturating_sub(sent.elapsed()));
    }
    assert!(clients.join().unwrap(), "the clients attacked until the end");
    report.connections = connections.load(Relaxed);
    report.peak_resident_kib = peak_resident_kib(pid);
    println!("{report:?}");
    report
}

fn is_alive(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = BlockingStream::connect_timeout(&address, PROBE_LIMIT)?;
        stream.set_read_timeout(Some(PROBE_LIMIT))?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer.starts_with(b"HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

/// Makes the command start with at most `count` open files, the default of many machines.
pub fn limit_open_files(command: &mut Command, count: u64) {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", &format!("ulimit -n {count}; exec \"$0\" \"$@\"")])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    *command = limited;
}

/// Returns the largest resident memory of a process so far.
pub fn peak_resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.expect("a line VmHWM").trim();
    words.trim_end_matches(" kB").parse().unwrap()
}

async fn clients(
    address: SocketAddr,
    attack: HttpAttack,
    paths: AttackedPaths,
    connections: &Arc<AtomicU64>,
) {
    let mut clients = JoinSet::new();
    let first: Arc<[u8]> = first_bytes(attack, paths).into();
    for _ in 0..attack.clients() {
        let (first, connections) = (first.clone(), connections.clone());
        clients.spawn(async move {
            loop {
                if let Ok(stream) = connect(address).await {
                    connections.fetch_add(1, Relaxed);
                    // The program may end the connection at any point.
                    let _ = client(stream, attack, &first).await;
                }
                time::sleep(RECONNECT).await;
            }
        });
    }
    clients.join_all().await;
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // A small buffer, so that an answer waits in the program.
    socket.set_recv_buffer_size(4 * 1024)?;
    socket.connect(address).await
}

fn first_bytes(attack: HttpAttack, paths: AttackedPaths) -> Vec<u8> {
    let AttackedPaths { post, get } = paths;
    let posted = |length: usize| {
        format!(
            "POST {post} HTTP/1.1\r\nHost: a\r\nRedlock-Cluster: local\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    match attack {
        HttpAttack::UnfinishedHeaders => {
            let mut head = b"GET /livez HTTP/1.1\r\nHost: a\r\n".to_vec();
            for number in 0..64 {
                head.extend(format!("X-{number}: {}\r\n", "x".repeat(4 * 1024)).as_bytes());
            }
            head
        }
        HttpAttack::SlowBodies => posted(200_000).into_bytes(),
        HttpAttack::BigPosts => {
            let names: Vec<String> = (0..185_000).map(|number| format!("\"{number:07}\"")).collect();
            let body = format!(r#"{{"cluster":"a","quorums":{{"q":[{}]}}}}"#, names.join(","));
            (posted(body.len()) + &body).into_bytes()
        }
        HttpAttack::IdleConnections => Vec::new(),
        HttpAttack::SlowReaders => format!("GET {get} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes(),
    }
}

async fn client(mut stream: TcpStream, attack: HttpAttack, first: &[u8]) -> std::io::Result<()> {
    stream.write_all(first).await?;
    match attack {
        HttpAttack::UnfinishedHeaders | HttpAttack::SlowBodies => loop {
            time::sleep(TRICKLE).await;
            stream.write_all(b"x").await?;
        },
        HttpAttack::BigPosts | HttpAttack::IdleConnections => {
            stream.read_to_end(&mut Vec::new()).await?;
            Ok(())
        }
        HttpAttack::SlowReaders => {
            // The error of a connection that the program ended, without a read.
            while stream.take_error()?.is_none() {
                time::sleep(TRICKLE).await;
                stream.write_all(b"\r\n").await?;
            }
            Ok(())
        }
    }
}
