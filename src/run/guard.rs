//! The wrapper's side of the guardian: starts it, informs it of the group to guard, replaces it when it dies.

use std::{
    fs::File,
    io::{self, PipeWriter, Write},
    mem,
    os::fd::OwnedFd,
    process::{Child, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::unistd::Pid;
use redlock_node::cgroup::Cgroup;
use thiserror::Error;
use tokio::{io::AsyncReadExt, net::unix::pipe};

use super::{
    RunError, process,
    record::{Order, Record},
};
use crate::{clock, lease::BootInstant};

/// A guardian answers in a millisecond. A guardian that takes longer than this is stopped, or is useless.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// The time between two attempts to start a guardian: a machine may be short of processes for a moment.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of consecutive replacements of a guardian that does not answer. The command continues unguarded meanwhile.
const ATTEMPTS: u32 = 4;
/// The processes of a killed cgroup end within milliseconds, except one that waits for a device.
const EMPTY_WITHIN: Duration = Duration::from_millis(500);

/// The guardian cannot be kept running. No command may run without it.
#[derive(Debug, Error)]
#[error("the guardian cannot be kept running: {0}")]
pub(crate) struct Unguarded(String);

/// The guardian of a run. Dropping this value dismisses the guardian, which then kills nothing.
#[derive(Debug)]
pub(super) struct Guard {
    record: Record,
    /// The cgroup of a contained command. It is removed here, or by the guardian.
    cgroup: Option<Arc<Cgroup>>,
    order: Option<Order>,
    running: Option<Running>,
    /// Number of attempts since the last answer of a guardian.
    attempts: u32,
    trouble: String,
    /// Time of the next attempt. An instant and not a duration: every signal and renewal interrupts the wait, which
    /// must not start over.
    again_at: BootInstant,
    /// Whether a guardian has read the record since the record names the present group.
    armed: bool,
}

#[derive(Debug)]
struct Running {
    process: Child,
    /// The only write end of the guardian's pipe. Closing it ends the guardian.
    life: PipeWriter,
    answers: pipe::Receiver,
    /// The time by which the guardian must answer.
    answer_by: BootInstant,
    /// Number of bytes that the guardian has not answered yet.
    unanswered: usize,
}

impl Guard {
    /// Starts a guardian without waiting for it. If the command is to be contained, creates a cgroup first.
    pub(super) fn start(contain: bool) -> Result<Self, RunError> {
        let record = Record::new().map_err(RunError::Start)?;
        let name = format!("redlock-{}-{:x}", std::process::id(), clock::now().as_nanos());
        let cgroup = contain.then(|| Cgroup::create(&name)).transpose();
        let mut guard = Self {
            record,
            cgroup: cgroup.map_err(RunError::Contain)?.map(Arc::new),
            order: None,
            running: None,
            attempts: 1,
            trouble: String::new(),
            again_at: BootInstant::default(),
            armed: false,
        };
        guard.running = Some(guard.start_one().map_err(RunError::Start)?);
        Ok(guard)
    }

    fn start_one(&self) -> io::Result<Running> {
        Running::start(&self.record, self.cgroup.as_deref())
    }

    /// Returns the cgroup of a contained command.
    pub(super) fn cgroup(&self) -> Option<Arc<Cgroup>> {
        self.cgroup.clone()
    }

    /// Returns the process of the guardian, which is reaped here.
    pub(super) fn process(&self) -> Option<Pid> {
        let running = self.running.as_ref()?;
        Some(Pid::from_raw(i32::try_from(running.process.id()).ok()?))
    }

    /// Waits until a guardian guards this group.
    pub(super) async fn arm(&mut self, order: Order) -> Result<(), Unguarded> {
        self.armed = false;
        self.set(Some(order))?;
        if let Some(running) = &mut self.running {
            running.ask();
        }
        while !self.armed {
            self.turn().await?;
        }
        Ok(())
    }

    /// Moves the deadline. Takes effect immediately: the guardian reads the record before it acts.
    pub(super) fn extend(&mut self, order: Order) -> Result<(), Unguarded> {
        match self.order {
            Some(before) if before != order => self.set(Some(order)),
            _ => Ok(()),
        }
    }

    /// Clears the order. Must be called before the leader of the group is reaped.
    pub(super) fn disarm(&mut self) -> Result<(), Unguarded> {
        self.set(None)
    }

    /// Removes the cgroup, and ends the guardian without waiting for it. There must be nothing to guard.
    ///
    /// # Errors
    /// Returns an error if the cgroup is not known to be empty. The guardian then kills and removes it after
    /// this process has ended.
    pub(super) fn dismiss(&mut self) -> io::Result<()> {
        let cleared = self.cgroup.take().map_or(Ok(()), |cgroup| clear(&cgroup));
        if cleared.is_err() {
            mem::forget(self.running.take());
        } else if let Some(running) = &mut self.running {
            let _ = running.process.kill();
        }
        cleared
    }

    fn set(&mut self, order: Option<Order>) -> Result<(), Unguarded> {
        self.order = order;
        let written = self.record.write(order.filter(|_| !switched_off()));
        written.map_err(|error| Unguarded(format!("the shared memory cannot be written: {error}")))
    }

    /// Keeps a guardian running while the future is polled. Returns when that is impossible.
    pub(super) async fn keep(&mut self) -> Unguarded {
        loop {
            if let Err(unguarded) = self.turn().await {
                return unguarded;
            }
        }
    }

    /// Takes one step. Cancel safe.
    async fn turn(&mut self) -> Result<(), Unguarded> {
        let Some(running) = &mut self.running else {
            return self.start_again().await;
        };
        match running.turn().await {
            Ok(()) => {
                self.armed = running.unanswered == 0;
                self.attempts = 0;
            }
            Err(trouble) => {
                self.running = None;
                self.fails(trouble);
            }
        }
        Ok(())
    }

    async fn start_again(&mut self) -> Result<(), Unguarded> {
        if self.attempts >= ATTEMPTS {
            return Err(Unguarded(std::mem::take(&mut self.trouble)));
        }
        clock::sleep_until(self.again_at).await;
        self.attempts += 1;
        match self.start_one() {
            Ok(running) => self.running = Some(running),
            Err(error) => self.fails(error.to_string()),
        }
        Ok(())
    }

    /// Sets the time of the next attempt. A guardian that answered before is replaced immediately.
    fn fails(&mut self, trouble: String) {
        self.trouble = trouble;
        let pause = if self.attempts == 0 { Duration::ZERO } else { PAUSE };
        self.again_at = clock::now() + pause;
    }
}

impl Running {
    /// Starts a guardian with a first question, which it answers when it has read the record.
    fn start(record: &Record, cgroup: Option<&Cgroup>) -> io::Result<Self> {
        let (alive, life) = io::pipe()?;
        let (answers, answer) = io::pipe()?;
        // Opened before the guardian starts: a failure afterwards would end the guardian, and thus the group.
        let answers = pipe::Receiver::from_file(File::from(OwnedFd::from(answers)))?;
        let process = process::own(process::GUARDIAN)
            .args(cgroup.map(Cgroup::path))
            .env_clear()
            .stdin(alive)
            .stdout(answer)
            .stderr(Stdio::from(record.share()?))
            .spawn()?;
        let mut running = Self {
            process,
            life,
            answers,
            answer_by: BootInstant::NEVER,
            unanswered: 0,
        };
        running.ask();
        Ok(running)
    }

    fn ask(&mut self) {
        // The write fails if the guardian has ended; its answers are then closed, too.
        let _ = self.life.write_all(&[0]);
        self.unanswered += 1;
        self.answer_by = clock::now() + ANSWERS_WITHIN;
    }

    /// Waits for an answer. Returns an error if no answer arrives in time, or can arrive any more.
    async fn turn(&mut self) -> Result<(), String> {
        let mut answers = [0; 16];
        let late = clock::sleep_until(self.answer_by);
        tokio::select! {
            biased;
            read = self.answers.read(&mut answers) => match read {
                Ok(0) => Err("the process ended".to_owned()),
                Ok(count) => {
                    self.unanswered = self.unanswered.saturating_sub(count);
                    if self.unanswered == 0 {
                        self.answer_by = BootInstant::NEVER;
                    }
                    Ok(())
                }
                Err(error) => Err(format!("its answers cannot be read: {error}")),
            },
            () = late => Err("no answer in time".to_owned()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.dismiss();
    }
}

/// Kills the processes of the cgroup, and removes it once it is empty.
fn clear(cgroup: &Cgroup) -> io::Result<()> {
    if !cgroup.is_empty().map_err(io::Error::other)? {
        cgroup.kill().map_err(io::Error::other)?;
        if !cgroup.is_empty_within(EMPTY_WITHIN).map_err(io::Error::other)? {
            let path = cgroup.path().display();
            return Err(io::Error::other(format!(
                "the cgroup {path} has processes that do not end"
            )));
        }
    }
    if let Err(error) = cgroup.remove() {
        let _ = writeln!(
            io::stderr(),
            "redlock: the empty cgroup cannot be removed: {error}"
        );
    }
    Ok(())
}

impl Drop for Running {
    fn drop(&mut self) {
        // The guardian is killed before its pipe is closed, even if it is stopped: at the end of the pipe it
        // would kill the group that the next guardian guards.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reports whether a test runs without a guardian, to show that it detects broken guarantees of
/// `docs/run.md`. Release builds ignore the variable.
fn switched_off() -> bool {
    cfg!(debug_assertions) && std::env::var_os("REDLOCK_TEST_WITHOUT_GUARDIAN").is_some()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Uses plain files instead of the kernel's: a process that waits for a device cannot be created in a test.
    #[test]
    fn only_a_cgroup_that_is_known_to_be_empty_is_cleared() {
        for (events, cleared) in [
            ("populated 0\n", true),
            ("populated 1\n", false),
            ("frozen 0\n", false),
            ("", false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("cgroup.kill"), "").unwrap();
            fs::write(folder.path().join("cgroup.events"), events).unwrap();
            let cgroup = Cgroup::open(folder.path().to_owned()).unwrap();
            assert_eq!(clear(&cgroup).is_ok(), cleared, "{events:?}");
        }
    }
}
