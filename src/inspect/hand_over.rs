//! `redlock hand-over`: asks the holder of a lock to pass it on, and follows the result.
//!
//! Only the holder can reserve a lock for another cluster, so the request is an annotation of the LeaderLock.
//! The operator replica that holds the lock handles it; the command reserves nothing itself.

mod follow;
mod request;
mod target;

use std::{collections::BTreeSet, time::Duration};

use kube::ResourceExt;
use serde::Serialize;
use thiserror::Error;

use super::{
    Session,
    cluster::{Blame, Cluster, ClusterError, DeclaredLock, Given},
};
use crate::{
    api::{LeaderLock, RedisQuorum, leader_lock::Candidates, lock_status::Role},
    lease::ClusterId,
};

const COMMAND: &str = "redlock hand-over";
/// Time limit for reading the keys of a master, to find the clusters: enough for some hundred thousand keys.
const WALK: Duration = Duration::from_secs(2);
/// Time limit of a hand-over that stops no targets, which takes milliseconds.
const WAIT: Duration = Duration::from_secs(30);

/// The options of a hand-over.
#[derive(Clone, Debug)]
pub struct HandOverOptions {
    /// Name of the LeaderLock.
    pub lock: String,
    pub quorum: Option<String>,
    /// NAME or NAME/UID of the cluster that is to hold the lock.
    pub to: String,
    /// Whether the cluster may be one that is not seen to be alive.
    pub force: bool,
    pub wait: Option<Duration>,
}

/// The reason why the holder was not asked.
#[derive(Debug, Error)]
pub enum HandOverError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(
        "--to {to}: no cluster of this name reports on RedisQuorum {quorum}; the clusters are: {known}{way_out}"
    )]
    UnknownCluster {
        to: String,
        quorum: String,
        known: String,
        way_out: &'static str,
    },
    #[error("--to {to}: several clusters have this name: {known}; give NAME/UID")]
    SeveralClusters { to: String, known: String },
    #[error("--to {to}: {why}")]
    NoCluster { to: String, why: String },
    #[error(
        "--to {0}: no operator of that cluster has reported for 45 s, so no replica would acquire the lock; --force \
            reserves the lock anyway"
    )]
    NotAlive(ClusterId),
    #[error(
        "LeaderLock {0} has candidates: Agents: only the agent that holds it can give it up \
             (POST /v1/step-down, from its pod)"
    )]
    Agents(String),
    #[error("LeaderLock {lock} is not held by this cluster: {held}")]
    NotHere { lock: String, held: String },
    #[error("LeaderLock {lock} is already held by cluster {cluster}")]
    Already { lock: String, cluster: String },
    #[error("LeaderLock {lock} is already being passed on to {to}; the result is in the annotation {answer}")]
    UnderWay {
        lock: String,
        to: String,
        answer: &'static str,
    },
    #[error("LeaderLock {0} changed during each attempt to write it: retry")]
    Busy(String),
}

impl HandOverError {
    /// Returns the person that must act, or `None` if the lock is not in the required state.
    #[must_use]
    pub const fn blame(&self) -> Option<Blame> {
        match self {
            Self::Cluster(error) => Some(error.blame()),
            Self::SeveralClusters { .. } => Some(Blame::Usage),
            Self::UnknownCluster { .. } | Self::NoCluster { .. } | Self::Agents(_) => {
                Some(Blame::Configuration)
            }
            Self::NotAlive(_)
            | Self::NotHere { .. }
            | Self::Already { .. }
            | Self::UnderWay { .. }
            | Self::Busy(_) => None,
        }
    }
}

/// A planned hand-over.
#[derive(Debug)]
pub struct Plan {
    lock: DeclaredLock,
    /// Namespace and name of the object.
    called: String,
    from: String,
    from_cluster: String,
    token: u64,
    to: ClusterId,
    wait: Duration,
    /// The masters, if they can be read from here.
    session: Option<Session>,
    /// The reason why they cannot be read.
    away: Option<String>,
}

/// The result of a hand-over.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandedOver {
    pub namespace: String,
    pub name: String,
    pub lock_name: String,
    pub from: String,
    pub to: String,
    pub token_before: u64,
    pub result: Ending,
    pub holder_identity: Option<String>,
    pub holder_cluster: Option<String>,
    pub fencing_token: Option<u64>,
    /// The longest time for which no holder was seen; unknown if the masters cannot be read from here.
    pub gap_milliseconds: Option<f64>,
    pub message: String,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Ending {
    /// The requested cluster holds the lock.
    HandedOver,
    /// The holder refused the request and did nothing.
    Refused,
    /// The holder gave the lock up, and another cluster than the requested one holds it.
    TakenByAnother,
    /// The holder gave the lock up, and no other process was seen to acquire it in time.
    NotTaken,
    /// No holder answered, and the request was withdrawn.
    NotAnswered,
    /// The user interrupted the wait, and the request was withdrawn.
    Interrupted,
}

/// Returns the masters, or the reason why they cannot be read. A hand-over works without them: they only show
/// for how long the lock has no holder, and which clusters came a moment ago.
async fn open(cluster: &Cluster, given: &Given, quorum: &RedisQuorum) -> (Option<Session>, Option<String>) {
    match cluster.session(quorum, given).await {
        Err(error) => (None, Some(error.to_string())),
        Ok(session) => match session.unreachable(&quorum.name_any(), COMMAND) {
            None => (Some(session), None),
            Some(away) => {
                session.close().await;
                (None, Some(away.text))
            }
        },
    }
}

/// Returns the time for the holder to release the lock or refuse, and for another cluster to acquire it.
fn long_enough(lock: &LeaderLock) -> Duration {
    let timings = lock.status.as_ref().and_then(|status| status.timings.as_ref());
    let stops = timings.filter(|_| !lock.spec.targets.is_empty());
    let milliseconds = stops.map_or(0, |timings| {
        timings.stop_milliseconds + timings.lease_duration_milliseconds
    });
    WAIT + Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

impl Plan {
    /// Reads the lock, its holder and the cluster that is to hold it. Sends no request.
    ///
    /// # Errors
    /// Returns an error with the reason if the lock cannot be passed on.
    pub async fn make(
        cluster: &Cluster,
        given: &Given,
        options: &HandOverOptions,
    ) -> Result<Self, HandOverError> {
        let (quorum, lock) = cluster.declared(&options.lock, options.quorum.as_deref()).await?;
        let called = format!("{}/{}", cluster.namespace(), options.lock);
        if lock.object.spec.candidates == Candidates::Agents {
            return Err(HandOverError::Agents(called));
        }
        let status = lock.object.status.clone().unwrap_or_default();
        let here = matches!(
            status.role,
            Some(Role::Active | Role::Activating | Role::Stopping)
        );
        let holder = status.holder_identity.clone().zip(status.holder_cluster.clone());
        let token = status.fencing_token.and_then(|token| u64::try_from(token).ok());
        let (Some((identity, from)), Some(token), true) = (holder.clone(), token, here) else {
            let held = match holder {
                Some((identity, cluster)) => {
                    format!(
                        "{identity} of cluster {cluster} holds the lock; run the command there, with its --context"
                    )
                }
                None => "no holder is seen".to_owned(),
            };
            return Err(HandOverError::NotHere { lock: called, held });
        };
        let (session, away) = open(cluster, given, &quorum).await;
        let reporting = match &session {
            Some(session) => session.masters.clusters(WALK).await.clusters,
            None => BTreeSet::new(),
        };
        let to = target::find(&quorum, &reporting, &options.to, options.force).and_then(|to| {
            if to.name() == from {
                let (lock, cluster) = (called.clone(), from.clone());
                return Err(HandOverError::Already { lock, cluster });
            }
            Ok(to)
        });
        let to = match to {
            Ok(to) => to,
            Err(error) => {
                if let Some(session) = session {
                    session.close().await;
                }
                return Err(error);
            }
        };
        Ok(Self {
            called,
            from: format!("{identity} of cluster {from}"),
            from_cluster: from,
            token,
            to,
            wait: options.wait.unwrap_or_else(|| long_enough(&lock.object)),
            lock,
            session,
            away,
        })
    }

    /// Returns the text that announces the request.
    #[must_use]
    pub fn text(&self) -> String {
        let away = self.away.as_ref().map_or_else(String::new, |away| {
            format!(
                "according to the status of the object, since the masters cannot be read from here: {away}\n"
            )
        });
        format!(
            "LeaderLock {} (lock {}) is held by {}, token {}\n{away}passing it on to {}\n",
            self.called, self.lock.lock_name, self.from, self.token, self.to
        )
    }

    /// Sends the request, and waits for its result.
    ///
    /// # Errors
    /// Returns an error if the request could not be written.
    pub async fn carry_out(self, cluster: &Cluster) -> Result<HandedOver, HandOverError> {
        let locks = cluster.locks_api();
        let name = self.lock.object.name_any();
        let end = follow::follow(&locks, &name, &self).await;
        if let Some(session) = self.session {
            session.close().await;
        }
        end
    }
}
