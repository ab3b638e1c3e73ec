//! `redlock run`: a command that runs only while a lock is held.
//!
//! Three processes of this program take part. The wrapper contends for the lock, renews the lease and follows
//! the command; the launcher becomes the command; the guardian kills the command's process group when the
//! lease is about to end, and when the wrapper is gone. Even if the wrapper is frozen or killed, the command
//! does not run beyond the lease. A contained command has its own cgroup: a process that leaves the process
//! group is killed with it.
//!
//! The wrapper refuses to begin a command that it cannot stop in time, and to release a lock while a process
//! of the group runs.

mod claim;
mod election;
mod group;
mod guard;
mod guardian;
mod hold;
mod launcher;
mod once;
mod process;
mod progress;
mod record;
mod schedule;
mod signals;
mod terminal;
mod timings;
mod wait;
mod work;

use std::{ffi::OsString, io, process::ExitStatus, time::Duration};

use nix::sys::{prctl, signal::Signal};
use redlock_node::cgroup::CgroupError;
use thiserror::Error;

pub(crate) use claim::slot_now;
pub(crate) use election::Ended;
pub(crate) use guard::Unguarded;
pub(crate) use once::{OnCrash, OncePer, SlotConflict};
pub(crate) use process::dispatch;
pub(crate) use schedule::SlotSchedule;

use self::{
    claim::ClaimResult, election::Election, guard::Guard, launcher::Launcher, once::SlotClaim,
    progress::Progress, signals::Signals, terminal::Terminal, wait::Waited, work::End,
};
use crate::{
    clock,
    lease::{BootInstant, HolderIdentity, LockName, Nonce, Timings, timing::TimingError},
    masters::{AdoptError, ConfigError, Masters, MastersConfig},
};

/// The number of launchers that may end in succession before the command begins.
const LAUNCHERS: u32 = 4;

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Forever,
    For(Duration),
    Not,
}

/// The settings of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) lock: LockName,
    pub(crate) identity: HolderIdentity,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) patience: Patience,
    /// The slot that must be claimed before the command begins.
    pub(crate) once_per: Option<OncePer>,
    /// The time for which the lock is held at least, once it was acquired for the command.
    pub(crate) hold_at_least: Duration,
    /// Whether to contend again after a loss, and to start the command again.
    pub(crate) service: bool,
    pub(crate) lease_duration: Option<Duration>,
    /// The time that the command has to end after the stop signal.
    pub(crate) stop_grace: Option<Duration>,
    pub(crate) stop_signal: Signal,
    /// Whether the command has its own cgroup.
    pub(crate) contain: bool,
    pub(crate) quiet: bool,
}

impl Options {
    fn waits_for_masters(&self) -> bool {
        self.service || matches!(self.patience, Patience::For(_))
    }
}

/// The source of the masters. Both variants need `reseal`: this process runs as long as the command does, and
/// may be the only one that can seal a master again.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Bare urls: the longest lease and T_acquire are those that are stored on the masters.
    Urls(MastersConfig),
    /// A quorum that names its masters.
    Quorum(MastersConfig),
}

/// The result of a run.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The command ended with this status.
    Exited(ExitStatus),
    /// The lease was lost; the command was stopped before its end.
    Lost,
    /// Another process holds the lock.
    NotAcquired,
    /// The slot, as messages name it, can never belong to this run.
    SlotTaken { slot: String, taken: SlotConflict },
    /// Too few masters could be asked. `auth`: whether user, password or rights are a reason.
    NoQuorum { why: String, auth: bool },
    /// A signal asked this process to end before the command began.
    Interrupted(Signal),
}

/// The reason why a run ends without an outcome.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    #[error(transparent)]
    Masters(#[from] ConfigError),
    #[error(transparent)]
    Timings(#[from] TimingError),
    #[error("drawing the random number of the run: {0}")]
    Random(getrandom::Error),
    #[error(
        "--once-per: {slot} is {seconds} s ahead of the clocks of the masters, and would make them refuse every slot \
         before it: set the clock of this host (chrony, ntpd)"
    )]
    SlotAhead { slot: String, seconds: u64 },
    #[error("listening for signals")]
    Signals(#[source] io::Error),
    #[error("starting a process of redlock (/proc must be mounted)")]
    Start(#[source] io::Error),
    #[error("--contain cannot give the command a cgroup of its own")]
    Contain(#[source] CgroupError),
    #[error("killing the cgroup of the command")]
    Kill(#[source] CgroupError),
    #[error("searching for the remaining processes of the command")]
    Search(#[source] io::Error),
    #[error(
        "the launcher ended {LAUNCHERS} times before the command began, at last with {0}: check what kills it"
    )]
    NeverBegan(ExitStatus),
    #[error("waiting for the command")]
    Reap(#[source] io::Error),
    #[error(transparent)]
    Ended(Ended),
    #[error(transparent)]
    Unguarded(Unguarded),
}

/// State of the wrapper while it waits and while the command runs.
struct Wrapper {
    options: Options,
    signals: Signals,
    guard: Guard,
    progress: Progress,
    terminal: Option<Terminal>,
    /// The claim of the slot, if the run has one.
    claim: Option<SlotClaim>,
    /// The time of the next read of the slot, while this process waits for the lock.
    reads_slot_at: BootInstant,
    began: BootInstant,
    /// The time by which masters must answer a run that does not wait for them: first to be found, then to grant the lock.
    answers_by: BootInstant,
    /// Whether a majority of the masters has answered once. Later, the wrapper waits for unreachable masters.
    found: bool,
    /// The first signal that asked this process to end.
    asked_to_end: Option<Signal>,
}

/// Waits for the lock, runs the command while the lock is held, and releases it. Must be called on a runtime
/// with one thread, the main thread: the command dies with the thread that starts it, and the main thread
/// inherits its orphans.
///
/// # Errors
/// Returns an error if masters, timings or machine do not allow the run, or if a task or process ended too
/// early. No process of the command runs then, except that one may run after [`RunError::Search`].
pub(crate) async fn run(place: Place, options: Options) -> Result<Outcome, RunError> {
    let began = clock::now();
    hide_environment().map_err(RunError::Start)?;
    group::inherit_orphans().map_err(RunError::Start)?;
    let mut wrapper = Wrapper {
        signals: Signals::listen().map_err(RunError::Signals)?,
        guard: Guard::start(options.contain)?,
        progress: Progress::new(options.lock.clone(), options.quiet, began),
        terminal: Terminal::held(),
        claim: claim_of(&options)?,
        reads_slot_at: began,
        options,
        began,
        answers_by: began + Masters::FIRST_POLL_TIMEOUT,
        found: false,
        asked_to_end: None,
    };
    // Started before the masters are found, so that the launcher is ready when the lock is acquired.
    let launcher = wrapper.launcher()?;
    let opened = match place {
        Place::Quorum(config) => Masters::open(&config, None)?,
        Place::Urls(config) => match wrapper.find(&config, &launcher).await? {
            Waited::For(opened) => opened,
            Waited::Over(outcome) => return Ok(outcome),
        },
    };
    wrapper.expects_answers(&opened.0);
    let timings = timings::of(&wrapper.options, opened.0.fingerprint().longest_lease())?;
    let mut election = Election::start(opened, &wrapper.options, timings).await?;
    let end = wrapper.run(&mut election, launcher, &timings).await;
    // The guardian ends while the lock is released.
    let cleared = wrapper.guard.dismiss().map_err(RunError::Search);
    // Without an elector the lock cannot be released. A lock under which a process may run is left to expire.
    if matches!(end, Err(RunError::Ended(_) | RunError::Search(_))) {
        return end;
    }
    cleared?;
    election.close().await;
    end
}

/// Hides the environment of this process from the command, which has the same user: it may contain a password, and
/// `/proc/<pid>/environ` shows the environment of the start.
fn hide_environment() -> io::Result<()> {
    Ok(prctl::set_dumpable(false)?)
}

/// Returns the claim of the slot, with a random number that no other run has.
fn claim_of(options: &Options) -> Result<Option<SlotClaim>, RunError> {
    let Some(once) = options.once_per else {
        return Ok(None);
    };
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(RunError::Random)?;
    let nonce = Nonce(u128::from_le_bytes(bytes));
    Ok(Some(SlotClaim::new(once, &options.identity, nonce)))
}

impl Wrapper {
    /// Reports whether the signal asks this process to end. SIGHUP and SIGQUIT ask many services for something else, such
    /// as to read their configuration again.
    fn is_asked_to_end_by(&self, signal: Signal) -> bool {
        if self.options.service {
            signals::ends_service(signal)
        } else {
            signals::ends(signal)
        }
    }

    /// Gives the masters their time to answer an attempt to acquire the lock, where the run does not wait for them.
    fn expects_answers(&mut self, masters: &Masters) {
        let limit = masters.fingerprint().acquire_limit();
        self.answers_by = clock::now() + limit.max(Masters::FIRST_POLL_TIMEOUT);
    }

    fn launcher(&self) -> Result<Launcher, RunError> {
        Launcher::start(&self.options, self.guard.cgroup())
    }

    /// Starts another launcher, and reports why.
    fn launch_again(&mut self, why: &str) -> Result<Launcher, RunError> {
        self.progress.print(why);
        if self.options.service {
            // The limits of the wait apply to the first acquisition only.
            self.began = clock::now();
            self.options.patience = Patience::Forever;
        }
        self.launcher()
    }

    async fn run(
        &mut self,
        election: &mut Election,
        mut launcher: Launcher,
        timings: &Timings,
    ) -> Result<Outcome, RunError> {
        let mut launchers = 1;
        loop {
            let authority = match self.acquire(election, &launcher).await? {
                Waited::For(authority) => authority,
                Waited::Over(outcome) => return Ok(outcome),
            };
            let held_since = clock::now();
            let authority = match self.claim(election, &launcher, authority).await? {
                ClaimResult::Mine(renewed) => renewed,
                ClaimResult::LeaseEnded => {
                    self.expects_answers(&election.masters);
                    continue;
                }
                ClaimResult::Over(outcome) => return Ok(outcome),
            };
            match self.work(election, launcher, authority, timings).await? {
                End::Exited(status) => {
                    self.record_end(election, status).await;
                    let until = held_since + self.options.hold_at_least;
                    self.hold(election, authority, until).await;
                    return Ok(Outcome::Exited(status));
                }
                End::Asked(signal) => return Ok(Outcome::Interrupted(signal)),
                // No other run can have the slot of this one.
                End::TooLate if self.claim.is_some() => {
                    launchers = 1;
                    let why = "the lease ended before the command began; it is acquired again";
                    launcher = self.launch_again(why)?;
                    self.expects_answers(&election.masters);
                }
                End::Lost | End::TooLate if !self.options.service || self.asked_to_end.is_some() => {
                    return Ok(Outcome::Lost);
                }
                End::Lost | End::TooLate => {
                    launchers = 1;
                    launcher = self
                        .launch_again("the command was stopped; it is started again with the next lease")?;
                }
                End::NeverBegan(status) if launchers == LAUNCHERS => {
                    return Err(RunError::NeverBegan(status));
                }
                End::NeverBegan(status) => {
                    launchers += 1;
                    let ended = format!("the launcher ended before the command began ({status})");
                    launcher = self.launch_again(&format!("{ended}; another one is started"))?;
                }
            }
        }
    }
}
