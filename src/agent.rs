//! `redlock agent`: contends for one lock beside an app, and reports over HTTP whether the app may act.
//!
//! Owns the one lock, its answers and its end. Has no knowledge of Kubernetes, and does not remember that it is active:
//! every answer is computed from the end of the lease at the time of the request.

mod answer;
mod error;
mod http;
mod open;
mod post;
mod watch;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{task::JoinError, time};

pub(crate) use error::AgentError;

use crate::{
    clock,
    elector::Elector,
    lease::{HolderIdentity, LockName},
    masters::MastersConfig,
    operator::{
        error::{ProcessError, listen},
        process::Process,
        quorum::QuorumEnded,
        signals::Signals,
        state::{InUse, ProcessState},
    },
};
use open::Opened;
use post::{Phase, Post};

/// The process ends at most this long after the stop grace: releasing takes up to 1.5 s where masters hang.
const ENDING: Duration = Duration::from_millis(1_800);

/// The settings of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) lock: LockName,
    pub(crate) listen: SocketAddr,
    pub(crate) identity: HolderIdentity,
    /// Derived from the stop grace unless it is set.
    pub(crate) lease_duration: Option<Duration>,
    /// What the app needs to stop.
    pub(crate) stop_grace: Duration,
    pub(crate) quorum: Quorum,
}

/// Where the masters are.
#[derive(Clone, Debug)]
pub(crate) struct Quorum {
    /// For the metrics.
    pub(crate) name: String,
    pub(crate) config: MastersConfig,
    /// Urls alone: names and longest lease are those that stand on the masters.
    pub(crate) bare: bool,
}

/// Contends for the lock and answers, until SIGTERM or SIGINT.
///
/// # Errors
/// An address or timings that cannot be used; any task that ends.
pub(crate) async fn run(options: Options) -> Result<(), AgentError> {
    let signals = Signals::listen().map_err(ProcessError::Signals)?;
    let listener = listen(options.listen).await?;
    let cluster = options.quorum.config.cluster.clone();
    let state = ProcessState::new(
        "agent",
        options.identity.clone(),
        cluster.clone(),
        true,
        // A client may ask before the masters were asked.
        InUse {
            problems: vec!["the masters were not asked yet".to_owned()],
            ..InUse::default()
        },
    )?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        lock = %options.lock,
        identity = %options.identity,
        %cluster,
        listen = %listener.local_addr().unwrap_or(options.listen),
        "agent started"
    );
    let mut process = Process::new(signals, state.clone());
    let post = Arc::new(Post::new(state, options.lock.clone(), options.stop_grace));
    process.spawn("serves HTTP", http::serve(listener, post.clone()));
    let end = Agent { process, post }.contend(&options).await;
    if end.is_ok() {
        tracing::info!("agent ended");
    }
    end
}

/// How waiting for something ended.
enum Waited<T> {
    Done(T),
    Told,
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
            Waited::Told => {
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
                // Never.
                () = gives_up(&post, &elector, timings.lease_duration) => None,
            }
        };
        let ended_by_itself = match self.meanwhile(ends).await {
            Ok(Waited::Told) => Ok(()),
            Ok(Waited::Done(error)) => error.map_or(Ok(()), |error| Err(error.into())),
            Err(error) => Err(error),
        };
        let until = self.post.stop();
        if keeping.is_finished() {
            return ended_by_itself;
        }
        // The app was informed that it is no longer active. The lease is kept until the app has had its time to stop.
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

    /// Does this until it is done, a signal comes, or HTTP is not served any more.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Result<Waited<T>, AgentError> {
        tokio::select! {
            end = self.process.stopped() => {
                let name = end?;
                tracing::info!(signal = name, "the agent stops and releases the lock");
                Ok(Waited::Told)
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
