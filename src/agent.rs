//! `redlock agent`: contends for one lock on behalf of an app, and reports over HTTP whether the app may act.
//!
//! Owns this lock, the answers about it and its release. Has no knowledge of Kubernetes, and does not store
//! whether it is active: every answer is computed from the end of the lease at the time of the request.

mod answer;
mod error;
mod http;
mod listen;
mod open;
mod post;
mod step_down;
mod watch;

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinError, time};

pub(crate) use error::AgentError;
pub(crate) use listen::ListenAddress;

use crate::{
    clock,
    elector::Elector,
    http_server::{ServedAddress, serve_on_thread},
    lease::{HolderIdentity, LockName},
    masters::MastersConfig,
    operator::{
        error::ProcessError,
        process::Process,
        process_limits::{HttpClients, set_process_limits},
        quorum::QuorumEnded,
        signals::Signals,
        state::{InUse, ProcessState},
    },
};
use open::Opened;
use post::{Phase, Post};

/// The longest time from the end of the stop grace to the end of the process: a release takes up to 1.5 s if
/// masters hang.
const ENDING: Duration = Duration::from_millis(1_800);

/// The settings of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) lock: LockName,
    pub(crate) listen: ListenAddress,
    pub(crate) identity: HolderIdentity,
    /// The lease duration; `None` derives it from the stop grace.
    pub(crate) lease_duration: Option<Duration>,
    /// The time that the app needs to stop.
    pub(crate) stop_grace: Duration,
    pub(crate) quorum: Quorum,
}

/// The quorum that grants the lock.
#[derive(Clone, Debug)]
pub(crate) struct Quorum {
    /// The name in the metrics.
    pub(crate) name: String,
    pub(crate) config: MastersConfig,
    /// Whether only urls are given: the fingerprint, with the longest lease, is then the one on the masters.
    pub(crate) bare: bool,
}

/// Contends for the lock and answers requests, until SIGTERM or SIGINT.
///
/// # Errors
/// Returns an error if an address, the masters or the timings cannot be used, or if a task ends.
pub(crate) async fn run(options: Options) -> Result<(), AgentError> {
    let signals = Signals::listen().map_err(ProcessError::Signals)?;
    set_process_limits(HttpClients {
        addresses: 2,
        long_answers: http::READERS as u64,
    });
    let listeners = options.listen.bind()?;
    let cluster = options.quorum.config.cluster.clone();
    let state = ProcessState::new(
        "agent",
        options.identity.clone(),
        cluster.clone(),
        true,
        // A client may send a request before the masters have been asked.
        InUse {
            problems: vec!["the masters were not asked yet".to_owned()],
            ..InUse::default()
        },
    )?;
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        lock = %options.lock,
        identity = %options.identity,
        %cluster,
        listen = %addresses.join(", "),
        "agent started"
    );
    let mut process = Process::new(signals, state.clone());
    let post = Arc::new(Post::new(state, options.lock.clone(), options.stop_grace));
    let routes = http::routes(&post);
    let served = listeners.into_iter().map(|listener| ServedAddress {
        listener,
        routes: routes.clone(),
    });
    process.spawn("serves HTTP", serve_on_thread(served.collect()));
    let mut agent = Agent { process, post };
    let end = agent.contend(&options).await;
    agent.process.shut_down().await;
    if end.is_ok() {
        tracing::info!("agent ended");
    }
    end
}

/// The end of a wait: the work is done, or a signal arrived.
enum Waited<T> {
    Done(T),
    Signalled,
}

struct Agent {
    process: Process,
    post: Arc<Post>,
}

impl Agent {
    async fn contend(&mut self, options: &Options) -> Result<(), AgentError> {
        let post = self.post.clone();
        let opened = match self.meanwhile(open::open(options, &post)).await? {
            Waited::Done(opened) => opened?,
            Waited::Signalled => {
                self.post.stop();
                return Ok(());
            }
        };
        let Opened {
            elector,
            supervisor,
            stop,
            timings,
        } = opened;
        let mut keeping = tokio::spawn(supervisor.run());
        let ends = async {
            tokio::select! {
                end = &mut keeping => ended(end),
                // Never returns.
                () = gives_up(&post, &elector, timings.lease_duration) => None,
            }
        };
        let ended_by_itself = match self.meanwhile(ends).await {
            Ok(Waited::Signalled) => Ok(()),
            Ok(Waited::Done(error)) => error.map_or(Ok(()), |error| Err(error.into())),
            Err(error) => Err(error),
        };
        let until = self.post.stop();
        if keeping.is_finished() {
            return ended_by_itself;
        }
        // The agent already reports that it is not active. The lease is kept until the app has had its time
        // to stop.
        tokio::select! {
            () = clock::sleep_until(until) => {}
            () = post.given_up(&elector) => {}
        }
        stop.send_replace(Some(Default::default()));
        match time::timeout(ENDING, &mut keeping).await {
            Ok(end) => ended_by_itself.and(ended(end).map_or(Ok(()), |error| Err(error.into()))),
            Err(_) => {
                tracing::warn!("the lock was not released in time: its lease expires by itself");
                ended_by_itself
            }
        }
    }

    /// Runs `work` until it is done, a signal arrives, or HTTP is no longer served.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Result<Waited<T>, AgentError> {
        tokio::select! {
            end = self.process.stopped() => {
                let name = end?;
                tracing::info!(signal = name, "the agent stops and releases the lock");
                Ok(Waited::Signalled)
            }
            done = work => Ok(Waited::Done(done)),
        }
    }
}

/// Gives up the lock after each step-down request, once the stop grace has passed.
async fn gives_up(post: &Post, elector: &Elector, abstain: Duration) {
    loop {
        let at = post.yields().await;
        clock::sleep_until(at).await;
        elector.step_down(post.lock.clone(), abstain);
        // An elector that does not answer may not have given up the lock: the agent does not contend again.
        if !elector.answers().await {
            return std::future::pending().await;
        }
        post.given_up(elector).await;
        post.enter(Phase::Contending);
    }
}

fn ended(end: Result<Result<String, QuorumEnded>, JoinError>) -> Option<ProcessError> {
    match end {
        Ok(Ok(_)) => None,
        Ok(Err(ended)) => Some(ended.into()),
        Err(broken) => Some(QuorumEnded::supervisor(&broken).into()),
    }
}
