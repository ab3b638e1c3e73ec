//! A program that is not Redis: it speaks RESP, and reports the facts that a test gives it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// The answer to `EVALSHA` and `EVAL`.
#[derive(Clone, Debug)]
pub enum Scripts {
    /// Answers like a program without Lua.
    Unknown,
    /// Replies to a read of the server like a master that has this role and whose `INFO` has no `run_id`.
    Facts { role: &'static str },
}

/// A fake server, which listens on loopback until it is dropped.
#[derive(Debug)]
pub struct FakeServer {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The lines of `INFO server`; `None` if the user may not run INFO.
    info: Option<String>,
    scripts: Scripts,
    ended: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl FakeServer {
    /// Starts a server. `info` has the lines of `INFO server`; without them the command is not permitted.
    ///
    /// # Panics
    /// Panics if no port of loopback is free.
    #[must_use]
    pub fn start(info: Option<&str>, scripts: Scripts) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let shared = Arc::new(Shared {
            info: info.map(|info| format!("# Server\r\n{}\r\n", info.replace('\n', "\r\n"))),
            scripts,
            ended: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let listening = {
            let shared = shared.clone();
            thread::spawn(move || listen(&listener, &shared))
        };
        Self {
            port,
            shared,
            listening: Some(listening),
        }
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut serving = Vec::new();
    for stream in listener.incoming().flatten() {
        if shared.ended.load(Ordering::SeqCst) {
            break;
        }
        if let Ok(copy) = stream.try_clone() {
            shared
                .open
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(copy);
        }
        let shared = shared.clone();
        serving.push(thread::spawn(move || drop(serve(&stream, &shared))));
    }
    for stream in &*shared.open.lock().unwrap_or_else(PoisonError::into_inner) {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for connection in serving {
        let _ = connection.join();
    }
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let command = command(&mut reader)?;
        writer.write_all(shared.answer(&command).as_bytes())?;
    }
}

impl Shared {
    fn answer(&self, command: &[String]) -> String {
        let verb = command
            .first()
            .map(|verb| verb.to_uppercase())
            .unwrap_or_default();
        match (&*verb, &self.info, &self.scripts) {
            ("HELLO", ..) => "%1\r\n+proto\r\n:3\r\n".into(),
            ("INFO", Some(info), _) => bulk(info),
            ("INFO", None, _) => {
                "-NOPERM User default has no permissions to run the 'info' command\r\n".into()
            }
            ("EVALSHA" | "EVAL", _, Scripts::Facts { role }) => {
                facts(self.info.as_deref().unwrap_or_default(), role)
            }
            ("SUBSCRIBE", ..) => ">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n".into(),
            ("PING", ..) => "+PONG\r\n".into(),
            _ => format!("-ERR unknown command '{verb}'\r\n"),
        }
    }
}

/// Returns the fields of the script `FACTS`, in its order.
fn facts(info: &str, role: &str) -> String {
    let program = format!("{info}role:{role}\r\n");
    let fields = [
        "ok",
        "1",
        "0",
        "0",
        "",
        &*program,
        role,
        "noeviction",
        "0",
        "0",
        "0",
        "",
        "",
        "0",
        "",
        "0",
        "b1",
        "0",
        "",
    ];
    let fields: String = fields.iter().map(|field| bulk(field)).collect();
    format!("*19\r\n{fields}")
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn command(reader: &mut impl BufRead) -> io::Result<Vec<String>> {
    let count = length(reader)?;
    (0..count)
        .map(|_| {
            let mut text = vec![0; length(reader)? + 2];
            reader.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            Ok(String::from_utf8_lossy(&text).into_owned())
        })
        .collect()
}

/// Reads the number after `*` or `$`.
fn length(reader: &mut impl BufRead) -> io::Result<usize> {
    let mut line = String::new();
    reader.take(32).read_line(&mut line)?;
    let number = line.trim_end().get(1..).and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
