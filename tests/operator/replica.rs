//! A replica of the operator, its folder of manifests, and its masters.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use redlock::lease::timing::DEFAULT_ACQUIRE_LIMIT;
use redlock::masters::Credentials;
use redlock_testkit::RedisServer;
use serde_json::Value;

use crate::common::http;
use redlock_testkit::masters::{config, open};
use redlock_testkit::{ChildGuard, ServerOptions, eventually_blocking, free_port};

/// Generous, for a busy machine; a correct run stays far below.
pub const BOUND: Duration = Duration::from_secs(30);
/// The lease of every lock, and the longest of the quorum: a busy machine does not lose it.
pub const LEASE: Duration = Duration::from_secs(10);

/// Starts servers that were never used.
pub fn servers(count: usize) -> Vec<RedisServer> {
    servers_with(count, &ServerOptions::default())
}

pub fn servers_with(count: usize, options: &ServerOptions) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start(options).unwrap()).collect()
}

/// Starts servers that are already sealed, for manifests of [`quorum`].
pub async fn masters(count: usize) -> Vec<RedisServer> {
    let servers = servers(count);
    seal(&servers, Credentials::default()).await;
    servers
}

pub async fn seal(servers: &[RedisServer], credentials: Credentials) {
    let mut config = config(servers);
    config.longest_lease = LEASE;
    config.acquire_limit = DEFAULT_ACQUIRE_LIMIT;
    config.command_timeout = Duration::from_secs(10);
    config.credentials = credentials;
    config.reseal = false;
    open(&config).seal(servers).await;
}

/// Returns a manifest of quorum `default` on these servers, with `more` lines of its spec.
pub fn quorum(servers: &[RedisServer], more: &str) -> String {
    let masters: String = servers
        .iter()
        .enumerate()
        .map(|(index, server)| format!("  - {{name: m{index}, url: \"{}\"}}\n", server.url()))
        .collect();
    format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: RedisQuorum\nmetadata: {{name: default}}\nspec:\n  masters:\n{masters}  \
         maxLeaseDurationSeconds: {}\n{more}",
        LEASE.as_secs()
    )
}

/// Returns a manifest of lock `ns/<name>`, with a lease of 10 s and `more` fields of its spec.
pub fn lock(name: &str, more: &str) -> String {
    format!(
        "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\nmetadata: {{name: {name}, namespace: ns}}\n\
         spec: {{quorumRef: {{name: default}}, leaseDurationSeconds: {}{more}}}\n",
        LEASE.as_secs()
    )
}

/// A folder of manifests.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (file, text) in files {
            folder.write(file, text);
        }
        folder
    }

    /// Creates a folder with one quorum and these locks, one file each.
    pub fn with(servers: &[RedisServer], locks: &[&str]) -> Self {
        let folder = Self::new(&[("quorum.yaml", &quorum(servers, ""))]);
        for name in locks {
            folder.write(&format!("{name}.yaml"), &lock(name, ""));
        }
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, file: &str, text: &str) {
        // The write is atomic: a reader of the folder could see one half of a plain write.
        let beside = tempfile::NamedTempFile::new_in(self.path().parent().unwrap()).unwrap();
        fs::write(beside.path(), text).unwrap();
        beside.persist(self.path().join(file)).unwrap();
    }

    pub fn remove(&self, file: &str) {
        fs::remove_file(self.path().join(file)).unwrap();
    }
}

/// Returns the command that starts a replica on this port.
pub fn command(name: &str, folder: &Path, port: u16) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command
        .args([
            "operator",
            "--log-format",
            "json",
            "--identity",
            name,
            "--standalone",
        ])
        .arg(folder)
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .env_remove("RUST_LOG");
    command
}

/// A running operator; killed on drop.
pub struct Replica {
    pub name: String,
    pub child: ChildGuard,
    port: u16,
}

impl Replica {
    pub fn start(name: &str, folder: &Folder) -> Self {
        Self::start_with(name, folder, |_| {})
    }

    pub fn start_with(name: &str, folder: &Folder, change: impl FnOnce(&mut Command)) -> Self {
        let port = free_port().unwrap();
        let mut command = command(name, folder.path(), port);
        change(&mut command);
        let mut child = ChildGuard::spawn(name, &mut command);
        child.wait_for_line(BOUND, "operator started");
        let name = name.to_owned();
        Self { name, child, port }
    }

    /// Returns the status and the body of the response.
    pub fn get(&self, path: &str) -> (u16, String) {
        http::get(self.port, path).unwrap()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn wait_alive(&self) {
        http::wait_alive(self.port);
    }

    pub fn locks(&self) -> Vec<Value> {
        let (status, body) = self.get("/locks");
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        body["locks"].as_array().unwrap().clone()
    }

    /// Returns one lock by the name of its object; `Null` if it does not exist.
    pub fn lock(&self, name: &str) -> Value {
        let found = self.locks().into_iter().find(|lock| lock["name"] == name);
        found.unwrap_or(Value::Null)
    }

    pub fn is_active(&self, name: &str) -> bool {
        let lock = self.lock(name);
        lock["role"] == "Active" && lock["validForMilliseconds"].as_u64() > Some(0)
    }

    /// Waits until the replica is active, and returns its token.
    pub fn wait_active(&self, name: &str) -> u64 {
        eventually_blocking(BOUND, &format!("{} is active for {name}", self.name), || {
            let lock = self.lock(name);
            match lock["role"] == "Active" {
                true => Ok(lock["fencingToken"].as_u64().unwrap()),
                false => Err(lock),
            }
        })
    }

    pub fn wait_ready(&self) {
        eventually_blocking(BOUND, &format!("{} is ready", self.name), || {
            match self.get("/readyz") {
                (200, _) => Ok(()),
                other => Err(other),
            }
        });
    }
}

/// Reports whether a replica that has ended, with this log, released its locks. A replica stops its attempt after
/// 1.2 s, which is too short on a busy machine.
pub fn released_in_time(lines: &[String]) -> bool {
    let late = "not every lock was released in time";
    !lines.iter().any(|line| line.contains(late))
}

/// Waits until a replica is active for a lock, and returns this replica.
pub fn active<'a>(replicas: &'a [Replica], name: &str) -> &'a Replica {
    eventually_blocking(BOUND, &format!("a replica is active for {name}"), || {
        let active: Vec<&Replica> = replicas.iter().filter(|r| r.is_active(name)).collect();
        match active[..] {
            [one] => Ok(one),
            _ => Err(active.iter().map(|r| r.name.clone()).collect::<Vec<_>>()),
        }
    })
}
