//! Finds the masters, and begins to contend.

use std::time::Duration;

use tokio::time;

use super::{AgentError, Options, Quorum, post::Post};
use crate::{
    elector::Elector,
    lease::{
        LockName, Terms, Timings,
        timing::{GivenTimings, TimingError},
    },
    masters::{AdoptError, Adopted, Agreement, adopt},
    operator::{
        quorum::{QuorumSupervisor, Stop},
        state::{InUse, InUseQuorum, Names},
    },
};

/// The pause between two attempts to read the masters.
const AGAIN: Duration = Duration::from_secs(1);

/// The parts that run once the masters are open.
pub(super) struct Opened {
    pub(super) elector: Elector,
    pub(super) supervisor: QuorumSupervisor,
    pub(super) stop: Stop,
    pub(super) timings: Timings,
}

/// Begins to contend as soon as the masters show their quorum.
pub(super) async fn open(options: &Options, post: &Post) -> Result<Opened, AgentError> {
    let mut adopted = find(&options.quorum, post).await?;
    let timings = timings(options, adopted.fingerprint.longest_lease())?;
    let config = &mut adopted.config;
    // A command that takes longer than a retry period would hold up the retry.
    config.command_timeout = config.command_timeout.min(timings.retry_period);
    let telemetry = &post.state.telemetry;
    let called = config.masters.iter().map(|master| (master.name.clone(), None));
    let meter = telemetry.quorum(&options.quorum.name, called.collect());
    let (masters, notices, tasks) = adopted.open_with(Some(meter.clone()))?;
    let (elector, task) = Elector::start(masters.clone(), notices, options.identity.clone(), meter.clone());
    let (supervisor, stop) = QuorumSupervisor::new(&options.quorum.name, tasks, elector.clone(), task);
    let locks = Names::default();
    let (namespace, name) = named(&options.lock);
    meter.declare(&options.lock, &namespace, &name);
    locks.put(&options.lock, (namespace, name));
    let terms = Terms::of_own_work(masters.cluster().clone(), timings);
    elector.put(options.lock.clone(), terms);
    let quorum = InUseQuorum {
        name: options.quorum.name.clone(),
        masters,
        elector: elector.clone(),
        meter,
        locks,
    };
    // After its first answer the elector knows the lock, so that the lock can be followed.
    elector.answers().await;
    post.opened(InUse {
        quorums: vec![quorum],
        ..InUse::default()
    });
    tracing::info!(
        lock = %options.lock,
        lease_s = timings.lease_duration.as_secs_f64(),
        stop_grace_s = timings.stop.as_secs_f64(),
        "contending for the lock"
    );
    Ok(Opened {
        elector,
        supervisor,
        stop,
        timings,
    })
}

/// Returns the masters with the fingerprint that they carry. Retries until they can be read.
async fn find(quorum: &Quorum, post: &Post) -> Result<Adopted, AgentError> {
    let mut config = quorum.config.clone();
    config.reseal = true;
    if !quorum.bare {
        return Ok(Adopted::as_configured(config));
    }
    let mut reported = String::new();
    loop {
        let why = match adopt(config.clone(), Agreement::Majority).await {
            Ok(adopted) if adopted.stored => return Ok(adopted),
            // The process that initialises the masters sets the names and the longest lease.
            Ok(_) => {
                "no master was ever sealed: run `redlock init`, or start an operator that uses these masters"
                    .to_owned()
            }
            Err(
                error @ (AdoptError::NoMajority { .. }
                | AdoptError::Disagree { .. }
                | AdoptError::Forgotten { .. }),
            ) => error.to_string(),
            Err(AdoptError::Config(error)) => return Err(error.into()),
            Err(error) => return Err(AgentError::Adopt(error)),
        };
        if why != reported {
            tracing::warn!(
                reason = why,
                "the masters cannot be used yet; retrying until they can"
            );
            post.waits_for(&why);
            reported = why;
        }
        time::sleep(AGAIN).await;
    }
}

/// Returns the timings for the given lease duration. The default is derived from the stop grace and limited
/// by the quorum.
fn timings(options: &Options, longest: Duration) -> Result<Timings, TimingError> {
    let stop = options.stop_grace;
    let usual = || Timings::derive(stop).lease_duration.min(longest);
    let given = GivenTimings {
        lease_duration: Some(options.lease_duration.unwrap_or_else(usual)),
        ..GivenTimings::default()
    };
    Timings::resolve(given, stop, None, longest)
}

/// Returns the namespace and the name of the object that usually declares a lock of this name.
fn named(lock: &LockName) -> (String, String) {
    let (namespace, name) = lock.as_str().split_once('/').unwrap_or(("", lock.as_str()));
    (namespace.to_owned(), name.to_owned())
}
