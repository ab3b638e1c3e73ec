//! Starts an agent and its masters.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::http;
use crate::program::init;
use redlock_testkit::{ChildGuard, RedisServers, ServerOptions, eventually_blocking, free_port};

/// Generous, for a busy machine; a correct run stays far below.
pub const BOUND: Duration = Duration::from_secs(30);
/// The longest lease of the masters, so that a busy machine does not lose it.
pub const LEASE: Duration = Duration::from_secs(10);
pub const LOCK: &str = "ns/api";

/// Starts three servers that vote and grant leases of up to 10 s; returns them and their urls.
pub fn masters() -> (RedisServers, String) {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let urls = servers.urls().join(",");
    init(&servers, &["--max-lease-duration", "10s"], &[]);
    (servers, urls)
}

/// Returns a command that starts an agent, without any variable of a pod or of redlock.
pub fn command(urls: &str, port: u16) -> Command {
    command_at(urls, &format!("127.0.0.1:{port}"))
}

/// Does the same for an agent that listens at this address.
pub fn command_at(urls: &str, listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    let ours = |name: &String| name.starts_with("REDLOCK_") || name.starts_with("POD_") || name == "RUST_LOG";
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command.args(["agent", LOCK, "--log-format", "json", "--masters", urls]);
    command.args(["--listen", listen]);
    command
}

/// A running agent; killed on drop.
pub struct Agent {
    pub name: String,
    pub child: ChildGuard,
    pub port: u16,
}

impl Agent {
    /// Starts an agent with a lease of [`LEASE`].
    pub fn start(name: &str, urls: &str) -> Self {
        Self::start_with(name, urls, |command| {
            command.args(["--identity", name, "--lease-duration", "10s"]);
        })
    }

    pub fn start_with(name: &str, urls: &str, change: impl FnOnce(&mut Command)) -> Self {
        let port = free_port().unwrap();
        let mut command = command(urls, port);
        change(&mut command);
        let mut child = ChildGuard::spawn(name, &mut command);
        child.wait_for_line(BOUND, "agent started");
        let name = name.to_owned();
        Self { name, child, port }
    }

    /// Returns the status and the body of the response.
    pub fn get(&self, path: &str) -> (u16, String) {
        http::get(self.port, path).unwrap()
    }

    pub fn wait_ready(&self) {
        eventually_blocking(BOUND, "the agent is ready", || match self.get("/readyz") {
            (200, _) => Ok(()),
            other => Err(other),
        });
    }

    pub fn wait_alive(&self) {
        http::wait_alive(self.port);
    }

    pub fn json(&self, path: &str) -> Value {
        let (_, body) = self.get(path);
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    pub fn lock(&self) -> Value {
        self.json("/v1/lock")
    }

    pub fn post(&self, path: &str) -> (u16, String) {
        http::post(self.port, path).unwrap()
    }

    /// Requests a step-down until it is confirmed, and returns the answer. On a busy machine, the elector and the
    /// masters may answer too late.
    pub fn step_down(&self) -> String {
        let what = format!("{} steps down", self.name);
        eventually_blocking(BOUND, &what, || match self.post("/v1/step-down") {
            (200, body) if !body.contains("\"role\":\"Unknown\"") => Ok(body),
            other => Err(other),
        })
    }

    /// Waits until `/v1/active` has this status.
    pub fn wait(&self, status: u16) -> Value {
        eventually_blocking(BOUND, &format!("{}: {status}", self.name), || {
            match self.get("/v1/active") {
                (seen, body) if seen == status => Ok(serde_json::from_str(&body).unwrap()),
                other => Err(other),
            }
        })
    }

    /// Waits until the agent is active; returns its token.
    pub fn wait_active(&self) -> u64 {
        self.wait(200)["token"].as_u64().unwrap()
    }

    /// Waits until the agent reports this holder.
    pub fn wait_knows(&self, holder: &str) {
        eventually_blocking(BOUND, &format!("{} knows {holder}", self.name), || {
            let lock = self.lock();
            (lock["holder"] == holder).then_some(()).ok_or(lock)
        });
    }
}

/// The events that a reader of `/v1/watch` received.
#[derive(Clone)]
pub struct Events {
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    ended: Arc<Mutex<bool>>,
}

impl Events {
    pub fn of(agent: &Agent) -> Self {
        let events = Self {
            seen: Arc::default(),
            ended: Arc::default(),
        };
        let lines = BufReader::new(reader(agent)).lines();
        let of_thread = events.clone();
        thread::spawn(move || {
            let mut name = String::new();
            for line in lines.map_while(Result::ok) {
                if let Some(event) = line.strip_prefix("event: ") {
                    event.clone_into(&mut name);
                } else if let Some(data) = line.strip_prefix("data: ") {
                    let data = serde_json::from_str(data).unwrap();
                    of_thread.seen.lock().unwrap().push((name.clone(), data));
                }
            }
            *of_thread.ended.lock().unwrap() = true;
        });
        events
    }

    pub fn all(&self) -> Vec<(String, Value)> {
        self.seen.lock().unwrap().clone()
    }

    pub fn have_ended(&self) -> bool {
        *self.ended.lock().unwrap()
    }

    /// Returns the role and the holder of each change so far.
    pub fn changes(&self) -> Vec<(String, String)> {
        let all = self.all().into_iter().filter(|(name, _)| name == "changed");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.map(|(_, lock)| (text(&lock["role"]), text(&lock["holder"])))
            .collect()
    }

    /// Waits until the last event meets this condition.
    pub fn until(&self, what: &str, wanted: impl Fn(&(String, Value)) -> bool) {
        eventually_blocking(BOUND, what, || {
            let all = self.all();
            all.last().is_some_and(&wanted).then_some(()).ok_or(all)
        });
    }
}

/// Opens a connection to `/v1/watch` without reading from it. Uses HTTP/1.0, whose body has no chunks.
pub fn reader(agent: &Agent) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", agent.port)).unwrap();
    write!(stream, "GET /v1/watch HTTP/1.0\r\n\r\n").unwrap();
    stream
}
