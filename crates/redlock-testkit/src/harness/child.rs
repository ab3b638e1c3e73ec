//! Runs a program under test as a child process that ends with its test.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::eventually_blocking;

/// The bound for all threads to stop after SIGSTOP.
const STOPPED: Duration = Duration::from_secs(10);

type Lines = Arc<Mutex<Vec<String>>>;

/// A child process whose stdout and stderr are collected. Drop kills and reaps it, and prints its output if the test
/// has failed.
#[derive(Debug)]
pub struct ChildGuard {
    name: String,
    child: Child,
    stdout: Lines,
    stderr: Lines,
    readers: Vec<JoinHandle<()>>,
}

impl ChildGuard {
    /// Starts the command without stdin. `name` labels its output.
    pub fn spawn(name: &str, command: &mut Command) -> Self {
        Self::spawn_with(name, command, Stdio::null())
    }

    /// Starts the command with a stdin for [`Self::send_line`].
    pub fn spawn_with_input(name: &str, command: &mut Command) -> Self {
        Self::spawn_with(name, command, Stdio::piped())
    }

    fn spawn_with(name: &str, command: &mut Command, stdin: Stdio) -> Self {
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("starting {name} ({command:?}): {error}"));
        let (stdout, stderr) = (Lines::default(), Lines::default());
        let readers = vec![
            collect(child.stdout.take().expect("stdout"), Arc::clone(&stdout)),
            collect(child.stderr.take().expect("stderr"), Arc::clone(&stderr)),
        ];
        Self {
            name: name.to_owned(),
            child,
            stdout,
            stderr,
            readers,
        }
    }

    /// Writes one line to its stdin.
    pub fn send_line(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("started with an input");
        writeln!(stdin, "{line}").unwrap_or_else(|error| panic!("writing to {}: {error}", self.name));
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns all lines of stdout so far.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.lock().unwrap().clone()
    }

    /// Returns all lines of stderr so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits for a line, on stdout or stderr, that contains `text`, and returns the first such line.
    pub fn wait_for_line(&mut self, bound: Duration, text: &str) -> String {
        let what = format!("{} prints {text:?}", self.name);
        eventually_blocking(bound, &what, || {
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() {
                // Lines written before the exit count, and may not have been collected yet.
                self.join_readers();
            }
            let (stdout, stderr) = (self.stdout(), self.stderr());
            let found = stdout
                .iter()
                .chain(&stderr)
                .find(|line| line.contains(text))
                .cloned();
            match (found, ended) {
                (Some(line), _) => Ok(line),
                (None, Some(status)) => panic!("{what}: it ended with {status} without"),
                (None, None) => Err((stdout.last().cloned(), stderr.last().cloned())),
            }
        })
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap());
        signal::kill(pid, signal).unwrap_or_else(|error| panic!("{signal} to {}: {error}", self.name));
    }

    /// Sends SIGSTOP and waits until no thread runs: a thread on another core may run shortly after the signal.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let folder = format!("/proc/{}/task", self.pid());
        let what = format!("{} stands still", self.name);
        eventually_blocking(STOPPED, &what, || {
            let tasks = fs::read_dir(&folder).unwrap();
            let states: Vec<String> = tasks
                .filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok())
                .collect();
            // The format is `pid (name) state …`. The name may contain anything, so the last parenthesis counts.
            let stopped = |stat: &String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
            if states.iter().all(stopped) {
                Ok(())
            } else {
                Err(states)
            }
        });
    }

    /// Returns the exit status, and reaps the child, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends SIGKILL and reaps the child.
    pub fn kill(&mut self) {
        self.child
            .kill()
            .unwrap_or_else(|error| panic!("killing {}: {error}", self.name));
        self.child.wait().unwrap();
    }

    /// Waits for the end of the child and for all its lines. Returns how long that took.
    pub fn wait(&mut self, bound: Duration) -> (ExitStatus, Duration) {
        let started = Instant::now();
        let what = format!("{} ends", self.name);
        let status = eventually_blocking(bound, &what, || {
            self.child.try_wait().unwrap().ok_or("still running")
        });
        let took = started.elapsed();
        self.join_readers();
        (status, took)
    }

    fn join_readers(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            // The readers are not joined: a grandchild may hold the pipes open. `eprintln!` is used because
            // the test harness captures it.
            for (stream, lines) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
                for line in lines
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .iter()
                {
                    eprintln!("[{} {stream}] {line}", self.name);
                }
            }
        }
    }
}

fn collect(stream: impl Read + Send + 'static, lines: Lines) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            lines
                .lock()
                .unwrap()
                .push(String::from_utf8_lossy(&line).trim_end().to_owned());
            line.clear();
        }
    })
}
