//! Tests a process whose standard error is not read.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::http;
use crate::replica::{BOUND, Folder, LEASE, command, masters};
use redlock_testkit::{eventually_blocking, free_port};

/// The default capacity of a pipe on Linux.
const PIPE: usize = 64 * 1024;

/// A process that is killed on drop.
struct Unread(Child);

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_full_stderr_pipe_does_not_block_the_operator() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    // Each of these files causes one line in the log.
    for number in 0..600 {
        folder.write(&format!("broken-{number}.yaml"), "kind: RedisQuorum\n");
    }
    let port = free_port().unwrap();
    let mut command = command("first", folder.path(), port);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = Unread(command.spawn().unwrap());

    let token = |bound, what: &str| {
        eventually_blocking(bound, what, || {
            let (status, body) = http::get(port, "/locks").map_err(|error| error.to_string())?;
            let body: Value = serde_json::from_str(&body).unwrap();
            let lock = &body["locks"][0];
            let active = status == 200 && lock["role"] == "Active";
            active
                .then(|| lock["fencingToken"].as_u64().unwrap())
                .ok_or(body.to_string())
        })
    };
    let first = token(BOUND, "the lock is held while stderr is not read");
    let until = Instant::now() + LEASE + LEASE / 2;
    while Instant::now() < until {
        assert_eq!(token(BOUND, "the lease is renewed"), first, "the lease was lost");
        http::wait_alive(port);
        thread::sleep(Duration::from_millis(200));
    }
    let (_, metrics) = http::get(port, "/metrics").unwrap();
    let dropped = metrics
        .lines()
        .find(|line| line.starts_with("redlock_log_lines_dropped_total"));
    assert_eq!(
        dropped,
        Some("redlock_log_lines_dropped_total 0"),
        "the buffer is larger"
    );

    // Queued lines are written once the pipe is read, to the last line before the exit.
    let stderr = BufReader::new(child.0.stderr.take().unwrap());
    let reader = thread::spawn(move || stderr.lines().map(Result::unwrap).collect::<Vec<_>>());
    signal::kill(
        Pid::from_raw(i32::try_from(child.0.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    let status = eventually_blocking(BOUND, "it ends", || child.0.try_wait().unwrap().ok_or(()));
    assert!(status.success(), "{status}");
    let lines = reader.join().unwrap();
    let length: usize = lines.iter().map(|line| line.len() + 1).sum();
    assert!(length > PIPE, "{length} bytes do not fill a pipe");
    for line in &lines {
        let event: Result<Value, _> = serde_json::from_str(line);
        assert!(event.is_ok(), "a line was cut: {line}");
    }
    assert!(
        lines.iter().any(|line| line.contains("SIGTERM")),
        "{:?}",
        lines.last()
    );
}
