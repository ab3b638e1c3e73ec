//! The faults of the old holder, and their times.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use nix::sys::signal::Signal;
use redlock::clock;
use redlock::lease::BootInstant;

use crate::processes;
use crate::rows::Row;
use crate::stage::{BOUND, LEASE, Stage};
use redlock_testkit::eventually_blocking;

/// The time within which a killed guardian has a successor, unless the wrapper has not noticed.
const SUCCESSOR: Duration = Duration::from_secs(30);
/// A time in which the observer reads every master, also on a busy machine.
const SHOWN: Duration = Duration::from_secs(1);
/// The time for which the next holder is watched after its first write.
const AFTERMATH: Duration = Duration::from_millis(300);

/// The largest time between the wake-ups of two processes of a machine that wakes.
const WAKING: Duration = Duration::from_millis(10);

/// Processes that take the CPU from all others.
struct Spinners(Vec<Child>);

impl Spinners {
    fn start(count: u32) -> Self {
        // The script runs as long as this program lives, however it ends.
        let script = format!("while [ -d /proc/{} ]; do :; done", std::process::id());
        let spin = |_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap()
        };
        Self((0..count).map(spin).collect())
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sleeps until a moment of the boot clock. This is a pace of the trial, not a wait for a condition.
fn pause_until(moment: BootInstant) {
    thread::sleep(moment.left(clock::now()));
}

fn some(rng: &mut Rng, most: Duration) -> Duration {
    Duration::from_secs_f64(rng.f64() * most.as_secs_f64())
}

/// Waits for a random time, which may end at any point between two renewals.
pub fn pause_before(row: Row, rng: &mut Rng) {
    let wait = some(rng, LEASE);
    // The work that leaves a daemon ends by itself.
    if row != Row::DaemonLeft {
        pause_until(clock::now() + wait);
    }
}

/// Returns the end of the old holder's lease, as last shown by the masters.
pub fn valid_until(stage: &Stage) -> BootInstant {
    stage
        .observer
        .valid_until("old")
        .expect("a majority of the masters showed the old holder's lease")
}

/// Plays the row from its fault to its end: the new holder has written, and frozen processes are awake again. Returns the
/// time for which the guardian waited for a CPU, if the guardian exists when the new holder writes.
pub fn play(row: Row, stage: &Stage, rng: &mut Rng) -> Option<Duration> {
    let mut spinners = None;
    let mut frozen: Vec<i32> = Vec::new();
    match row {
        Row::NetworkCut | Row::TermIgnored | Row::DaemonInGroup | Row::GroupLeft | Row::GroupContained => {
            stage.cut()
        }
        Row::WrapperFrozen | Row::GroupContainedFrozen => frozen.push(stage.wrapper()),
        Row::WrapperKilled => processes::send(stage.wrapper(), Signal::SIGKILL),
        Row::ChildFrozen => {
            let work = stage.work();
            work.iter().for_each(|pid| stage.freeze(*pid));
            pause_until(clock::now() + some(rng, LEASE / 3));
            stage.cut();
            // No renewal extends the lease any more.
            pause_until(valid_until(stage));
            work.iter().for_each(|pid| stage.wake(*pid));
        }
        Row::GuardianKilled => {
            let first = stage.guardian();
            processes::send(first, Signal::SIGKILL);
            eventually_blocking(SUCCESSOR, "another guardian", || {
                processes::guardian(stage.wrapper())
                    .filter(|pid| *pid != first)
                    .ok_or(())
            });
            pause_until(clock::now() + Duration::from_millis(50));
            frozen.push(stage.wrapper());
        }
        Row::BothKilled => {
            // The process that is killed last has no time left to act.
            let mut both = [stage.guardian(), stage.wrapper()];
            rng.shuffle(&mut both);
            both.iter().for_each(|pid| processes::send(*pid, Signal::SIGKILL));
        }
        Row::MastersDown => {
            // The observer sees the last renewal before the masters are gone: the new ones depend on its end.
            stage.cut();
            pause_until(clock::now() + SHOWN);
            stage.kill_masters();
            stage.heal();
            pause_until(valid_until(stage) + LEASE / 10);
            stage.replace_masters();
        }
        // The work ends by itself.
        Row::DaemonLeft => {}
        Row::Starved | Row::StarvedFrozen => {
            spinners = Some(Spinners::start(rng.u32(16..=64)));
            pause_until(clock::now() + some(rng, LEASE / 2));
            match row {
                Row::Starved => stage.cut(),
                _ => frozen.push(stage.wrapper()),
            }
        }
        Row::AllFrozen => {
            frozen.extend([stage.guardian(), stage.wrapper()]);
            frozen.extend(stage.work());
        }
    }
    frozen.iter().for_each(|pid| stage.freeze(*pid));
    let first = stage.new_writes();
    pause_until(first + AFTERMATH);
    let waited = stage.guardian_waits();
    // The work is woken first, and the others a little later: the kernel may choose any order, and this is
    // the worst.
    for pid in frozen.iter().rev() {
        stage.wake(*pid);
        pause_until(clock::now() + some(rng, WAKING));
    }
    if !frozen.is_empty() {
        pause_until(clock::now() + AFTERMATH);
    }
    drop(spinners);
    end(row, stage);
    waited
}

/// Ends every writer of the old holder. A deserter has to be killed, because no process watches it.
fn end(row: Row, stage: &Stage) {
    if row == Row::GroupLeft {
        stage.work().into_iter().for_each(processes::kill_work);
    }
    let mut before = u64::MAX;
    eventually_blocking(BOUND, "the old holder's work is over", || {
        let now = crate::records::size(stage.folder(), "old");
        if std::mem::replace(&mut before, now) == now {
            Ok(())
        } else {
            Err(now)
        }
    });
}
