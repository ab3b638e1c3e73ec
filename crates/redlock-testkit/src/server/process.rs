//! Runs one `redis-server` process that cannot outlive this one.
//!
//! A small shell runs between the two: it starts the server and reads from a pipe whose other end only this
//! program holds. When the pipe closes, by order or because this program died, the shell kills the server.
//! Simpler means fail: the parent-death signal of Linux fires when the *thread* that started the child ends,
//! and a handler in this program does not run on SIGKILL.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// Arguments: the server, its folder, its log. Descriptor 4 is a copy of the shell's stdout that only the
/// server keeps: its end shows that the server has ended. The shell reaps the server, so the process id stays
/// valid until the server has ended. If no order to stop arrives, this program has died, and only the shell
/// can remove the folder.
///
/// SIGHUP: when this program dies while the server is paused, the kernel sends it to the whole group, because no
/// process remains that could wake the stopped member. The shell must survive it to kill the server.
const SHELL: &str = r#"
trap '' HUP
"$1" "$2/redis.conf" </dev/null 4>&1 >>"$3" 2>&1 &
server=$!
echo "$server"
exec >&- 2>/dev/null
read -r order
kill -KILL "$server"
wait "$server"
test "$order" = stop || rm -rf "$2"
"#;

#[derive(Debug)]
pub(super) struct Process {
    shell: Child,
    order: Option<ChildStdin>,
    pid: i32,
    ended: Mutex<Receiver<()>>,
}

impl Process {
    pub(super) fn spawn(program: &Path, folder: &Path, log: &Path) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SHELL, "redlock-redis"])
            .args([program, folder, log])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own: Ctrl-C reaches this program first, which decides when the servers end.
            .process_group(0)
            .spawn()?;
        let order = shell.stdin.take();
        let stdout = shell
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("the shell has no stdout"))?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let pid = line
            .trim()
            .parse()
            .map_err(|_| io::Error::other(format!("the shell printed {line:?} in place of a process id")))?;
        let (ends, ended) = mpsc::channel();
        thread::Builder::new()
            .name(format!("redis-server {pid}"))
            .spawn(move || {
                // End of file or error: the server has closed its copy. Closing the channel reports that, too.
                let _ = io::copy(&mut stdout, &mut io::sink());
                drop(ends);
            })?;
        Ok(Self {
            shell,
            order,
            pid,
            ended: Mutex::new(ended),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Waits until the server has ended; returns false when it still runs after `bound`.
    pub(super) fn ended_within(&self, bound: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(ended.recv_timeout(bound), Err(RecvTimeoutError::Disconnected))
    }

    pub(super) fn signal(&self, signal: Signal) -> nix::Result<()> {
        signal::kill(Pid::from_raw(self.pid), signal)
    }

    /// Waits until a SIGSTOP has taken effect, which happens after `kill` has returned. Does not wait without `/proc`.
    pub(super) fn wait_until_stopped(&self, bound: Duration) {
        const TICK: Duration = Duration::from_millis(1);
        let mut left = bound;
        while !left.is_zero() && state(self.pid).is_some_and(|state| state != 'T') {
            if self.ended_within(TICK) {
                return;
            }
            left = left.saturating_sub(TICK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut order) = self.order.take() {
            // A failed write means that the shell has already ended; the closed pipe has the same effect.
            let _ = order.write_all(b"stop\n");
        }
        // Ends as soon as the kernel has ended the server: the server cannot delay SIGKILL.
        let _ = self.shell.wait();
    }
}

/// Returns the letter that the kernel shows for the state of a process; `None` without `/proc`.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program comes before the state, in parentheses, and may contain anything.
    stat.rsplit_once(") ")?.1.chars().next()
}
