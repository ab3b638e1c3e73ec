//! `redlock run`.

use std::{ffi::OsString, os::unix::process::ExitStatusExt, process, time::Duration};

use clap::{Args, ValueEnum};
use nix::sys::signal::Signal;

use super::{
    Exit, Failure, PlaceArgs, empty,
    place::Place,
    process::{level, on_this_host},
    session,
};
use crate::{
    api::leader_lock::{Candidates, LockState},
    lease::{
        HolderIdentity, LockName,
        timing::{TimingError, TimingField},
    },
    masters::MastersConfig,
    run::{self, OnCrash, OncePer, Options, Outcome, Patience, RunError, SlotSchedule},
    telemetry::logs,
};

/// The longest time for which a lock is held after its command.
const LONGEST_HOLD: Duration = Duration::from_secs(24 * 3_600);

/// Run a command only while a lock is held.
///
/// Waits for the lock, runs the command, and releases the lock when the command and its process group have ended. When
/// the lease cannot be kept, the command receives the stop signal, and SIGKILL before the lease ends, even if redlock
/// itself is killed or frozen. Signals, standard input and the terminal are passed to the command.
///
/// The command finds the lock, the fencing token and its own identity in REDLOCK_LOCK, REDLOCK_TOKEN and REDLOCK_HOLDER;
/// REDLOCK_PASSWORD is removed from the environment.
///
/// With --once-per, the command runs once for each slot of a schedule, on whichever of the hosts that start redlock at
/// that time, even if their clocks differ by up to a minute. --on-crash retry repeats a run that did not end.
///
/// Exits with the command's own code, 128 + n if signal n ended it, 126 or 127 if it cannot be run, 75 if another
/// candidate holds the lock, 0 if another run has the slot of --once-per and 81 if no run can have it, 69 without a quorum,
/// 77 if user or password are not accepted, and 79 if the lease was lost and the command stopped.
#[derive(Args, Debug)]
#[command(
    mut_arg("namespace", |namespace| namespace.short(None)),
    after_help = "Examples:
  redlock run nightly-report --masters \\
    redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003 \\
    -- sh -c 'echo token $REDLOCK_TOKEN'      # or export REDLOCK_MASTERS
  redlock run -n nightly-report -- true       # ends with 75 if it is held
  redlock run -w 30 -E 1 nightly-report -c 'date >> /tmp/report'
  redlock run --service --lease-duration 10s --stop-grace 3s mailer -- sleep 1
  redlock run --namespace billing nightly-report -- true   # a LeaderLock"
)]
pub(super) struct RunArgs {
    /// The lock: a LeaderLock with a kubeconfig, else its name on the masters.
    #[arg(value_name = "LOCK", value_parser = session::users_lock)]
    lock: LockName,
    /// The command and its arguments.
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    argv: Vec<OsString>,
    /// Run this command line with the shell ($SHELL, else /bin/sh) instead.
    #[arg(short, long, value_name = "COMMAND")]
    command: Option<OsString>,
    /// Do not wait for the lock.
    #[arg(short, long, visible_alias = "nb", conflicts_with = "timeout")]
    nonblock: bool,
    /// Wait for the lock for at most this number of seconds; fractions are allowed.
    #[arg(short = 'w', long, visible_alias = "wait", value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Exit code when the lock was not acquired, and when another run has the slot. Default: 75, and 0 for the slot.
    #[arg(short = 'E', long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// Run the command once for each slot of a schedule, whatever the number of hosts that start it: a cron expression in
    /// the time zone of this host, such as '0 2 * * *' or @daily, or a duration such as 5m or 24h.
    #[arg(long, value_name = "SCHEDULE", value_parser = SlotSchedule::parse, conflicts_with = "service")]
    once_per: Option<SlotSchedule>,
    /// With --once-per, what happens to the slot of a run that did not end, such as after a crash of its host: skip it, or
    /// run it again (retry) on a host that waits for the lock or starts redlock later in the same slot.
    #[arg(long, value_name = "ACTION", requires = "once_per", default_value = "skip")]
    on_crash: CrashAction,
    /// Hold the lock for at least this time, even if the command ends earlier; at most 1440m.
    #[arg(long, value_name = "DURATION", value_parser = hold)]
    hold_at_least: Option<Duration>,
    /// How long one lease lasts. Default: 15s, or the duration that --stop-grace requires.
    #[arg(long, env = "REDLOCK_LEASE_DURATION", value_name = "DURATION", value_parser = session::duration)]
    lease_duration: Option<Duration>,
    /// The signal that stops the command when the lease is lost.
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = signal)]
    stop_signal: Signal,
    /// How long the command has from the stop signal to SIGKILL. Default: a third of the lease, at most 10s.
    #[arg(long, env = "REDLOCK_STOP_GRACE", value_name = "DURATION", value_parser = session::duration)]
    stop_grace: Option<Duration>,
    /// Run the command in a cgroup of its own, which is killed as a whole: also processes that leave the process group. Needs
    /// cgroup v2, Linux 5.14 and the right to create cgroups below that of redlock.
    #[arg(long)]
    contain: bool,
    /// After a lost lease, wait for the lock and run the command again; wait for masters that cannot be reached.
    #[arg(long)]
    service: bool,
    /// Identity of this candidate; defaults to host name and process id.
    #[arg(long, env = "REDLOCK_IDENTITY", value_name = "NAME")]
    identity: Option<HolderIdentity>,
    /// Print nothing while waiting.
    #[arg(short, long)]
    quiet: bool,
    /// Events to write to the standard error: error, warn, info, debug or trace, or target=level,…; defaults to none.
    #[arg(long, env = "REDLOCK_LOG_LEVEL", value_name = "LEVEL", value_parser = level)]
    log_level: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// The values of `--on-crash`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CrashAction {
    Retry,
    Skip,
}

impl From<CrashAction> for OnCrash {
    fn from(action: CrashAction) -> Self {
        match action {
            CrashAction::Retry => Self::Retry,
            CrashAction::Skip => Self::Skip,
        }
    }
}

pub(super) async fn run(args: RunArgs) -> Result<Exit, Failure> {
    if let Some(level) = &args.log_level {
        logs::start(logs::Format::Text, level).map_err(|e| Failure::caused(Exit::Usage, &e))?;
    }
    // Before anything that takes time: the slot is that of the start.
    let once_per = once_per(&args)?;
    let (place, lock, declared) = find(&args).await?;
    let mut words = match args.command {
        Some(command) => {
            let shell = empty::value("SHELL");
            vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), command]
        }
        None => args.argv,
    };
    let program = words.remove(0);
    let options = Options {
        lock: lock.clone(),
        identity: args.identity.map_or_else(identity, Ok)?,
        program,
        arguments: words,
        patience: match (args.nonblock, args.timeout) {
            (true, _) => Patience::Not,
            // As in flock, 0 seconds mean no wait.
            (false, Some(Duration::ZERO)) => Patience::Not,
            (false, Some(time)) => Patience::For(time),
            (false, None) => Patience::Forever,
        },
        once_per,
        hold_at_least: args.hold_at_least.unwrap_or_default(),
        service: args.service,
        lease_duration: args.lease_duration.or(declared),
        stop_grace: args.stop_grace,
        stop_signal: args.stop_signal,
        contain: args.contain,
        quiet: args.quiet,
    };
    let outcome = run::run(place, options).await.map_err(|error| failure(&error))?;
    ended(outcome, &lock, args.conflict_exit_code)
}

fn ended(outcome: Outcome, lock: &LockName, on_conflict: Option<u8>) -> Result<Exit, Failure> {
    match outcome {
        Outcome::Exited(status) => Ok(match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, number) => Exit::Signal(u8::try_from(number.unwrap_or(0)).unwrap_or(0)),
        }),
        Outcome::Lost => {
            let message = format!("lock {lock}: the lease was lost and the command stopped");
            Err(Failure::new(Exit::LeaseLost, message))
        }
        // As in flock, the exit code is the only report.
        Outcome::NotAcquired => Ok(conflict(on_conflict)),
        // The slot runs, on another host: no failure.
        Outcome::SlotTaken { taken, .. } if taken.is_of_a_run() => {
            Ok(on_conflict.map_or(Exit::Ok, Exit::Command))
        }
        Outcome::SlotTaken { slot, taken } => {
            let message = format!("lock {lock}: {slot}: {taken}; no run is known to have the slot");
            Err(Failure::new(Exit::SlotLost, message))
        }
        Outcome::NoQuorum { why, auth } => {
            let exit = if auth { Exit::Auth } else { Exit::NoQuorum };
            Err(Failure::new(exit, format!("lock {lock}: no quorum: {why}")))
        }
        Outcome::Interrupted(signal) => Ok(Exit::Signal(u8::try_from(signal as i32).unwrap_or(0))),
    }
}

fn conflict(code: Option<u8>) -> Exit {
    code.map_or(Exit::NotAcquired, Exit::Command)
}

/// Returns the slot of this run.
fn once_per(args: &RunArgs) -> Result<Option<OncePer>, Failure> {
    let Some(schedule) = &args.once_per else {
        return Ok(None);
    };
    let slot = run::slot_now(schedule, std::env::var_os("TZ"));
    let slot = slot.map_err(|error| Failure::new(Exit::Config, format!("--once-per: {error}")))?;
    let on_crash = args.on_crash.into();
    Ok(Some(OncePer { slot, on_crash }))
}

/// Returns the masters, the name of the lock there, and the lease duration that its object declares.
async fn find(args: &RunArgs) -> Result<(run::Place, LockName, Option<Duration>), Failure> {
    let (cluster, given) = match args.place.place(false).await? {
        Place::Masters => {
            let config = reseals(args.place.quorum.masters_config()?);
            let place = match args.place.quorum.config {
                Some(_) => run::Place::Quorum(config),
                None => run::Place::Urls(config),
            };
            return Ok((place, args.lock.clone(), None));
        }
        Place::Cluster(cluster, given) => (cluster, given),
    };
    let asked = args.place.kubernetes.quorum.as_deref();
    let (quorum, declared) = cluster.declared(args.lock.as_str(), asked).await?;
    let spec = &declared.object.spec;
    let object = format!("LeaderLock {}/{}", cluster.namespace(), args.lock);
    if spec.candidates != Candidates::Agents {
        let message =
            format!("{object}: its candidates are the operator's replicas; set spec.candidates: Agents");
        return Err(Failure::new(Exit::Config, message));
    }
    if spec.state != LockState::Enabled {
        let message = format!(
            "{object}: its state is {:?}: candidates of this cluster do not contend",
            spec.state
        );
        return Err(Failure::new(conflict(args.conflict_exit_code), message));
    }
    let config = cluster.masters_config(&quorum, &given).await?;
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    Ok((
        run::Place::Quorum(reseals(config)),
        declared.lock_name,
        seconds.map(Duration::from_secs),
    ))
}

fn reseals(config: MastersConfig) -> MastersConfig {
    MastersConfig {
        reseal: true,
        ..config
    }
}

fn failure(error: &RunError) -> Failure {
    match error {
        RunError::Adopt(error) => session::adopt_failure(error),
        RunError::Masters(_) | RunError::Contain(_) | RunError::SlotAhead { .. } => {
            Failure::caused(Exit::Config, error)
        }
        RunError::Timings(error) => {
            let value = error.value().as_secs_f64();
            let flag = match error.field() {
                TimingField::LeaseDuration => "--lease-duration",
                // Derived from the lease duration and --stop-grace.
                TimingField::RenewDeadline | TimingField::RetryPeriod => {
                    "--lease-duration: the renew deadline"
                }
            };
            let with = match error {
                TimingError::LeaseTooShort { .. } | TimingError::LeaseTooLong { .. } => "",
                _ => " (--stop-grace)",
            };
            Failure::new(Exit::Config, format!("{flag} {value} s {}{with}", error.reason()))
        }
        _ => Failure::caused(Exit::Software, error),
    }
}

/// Returns an identity that distinguishes the processes of one host.
fn identity() -> Result<HolderIdentity, Failure> {
    on_this_host(&format!("/{}", process::id()))
}

/// Parses the time for which the lock is held at least.
fn hold(text: &str) -> Result<Duration, String> {
    let time = session::duration(text)?;
    let fits = time <= LONGEST_HOLD;
    fits.then_some(time)
        .ok_or_else(|| format!("{text:?} is longer than 1440m: write a shorter duration"))
}

/// Parses seconds as flock does.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("{text:?} is not a number of seconds: write 10 or 0.5"))
}

/// Parses a signal such as `TERM`, `SIGTERM` or `15`.
fn signal(text: &str) -> Result<Signal, String> {
    let by_number = || {
        text.parse::<i32>()
            .ok()
            .and_then(|number| Signal::try_from(number).ok())
    };
    let name = text.to_ascii_uppercase();
    let by_name = || format!("SIG{}", name.trim_start_matches("SIG")).parse().ok();
    let pauses = [
        Signal::SIGSTOP,
        Signal::SIGTSTP,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
        Signal::SIGCONT,
    ];
    by_number()
        .or_else(by_name)
        .filter(|signal| !pauses.contains(signal))
        .ok_or_else(|| format!("{text:?} is not a signal that ends a process: write TERM, INT or 15"))
}
