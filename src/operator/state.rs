//! Holds the state behind the HTTP server: a set of handles that is replaced as a whole at every change.
//! Every answer is computed from them on request.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::{error::ProcessError, readiness::Readiness};
use crate::{
    elector::Elector,
    lease::{BootInstant, ClusterId, HolderIdentity, LockName},
    masters::Masters,
    telemetry::{Origin, QuorumMeter, SiblingContact, Source, Telemetry, Unreadable},
};

#[derive(Debug)]
pub(crate) struct ProcessState {
    pub(crate) identity: HolderIdentity,
    pub(crate) cluster: ClusterId,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) in_use: ArcSwap<InUse>,
    history: Mutex<ReadinessHistory>,
}

impl ProcessState {
    /// Creates the state; `component` is the name of the command.
    pub(crate) fn new(
        component: &'static str,
        identity: HolderIdentity,
        cluster: ClusterId,
        lock_metrics: bool,
        in_use: InUse,
    ) -> Result<Arc<Self>, ProcessError> {
        let origin = Origin {
            component,
            identity: identity.clone(),
            cluster: cluster.clone(),
        };
        Ok(Arc::new(Self {
            identity,
            cluster,
            telemetry: Telemetry::new(origin, lock_metrics).map_err(ProcessError::Metrics)?,
            in_use: ArcSwap::from_pointee(in_use),
            history: Mutex::default(),
        }))
    }

    pub(crate) fn scrape(&self) -> Result<String, prometheus::Error> {
        let in_use = self.in_use.load_full();
        let sources: Vec<_> = in_use.quorums.iter().map(InUseQuorum::source).collect();
        self.telemetry
            .scrape(&sources, &in_use.unreadable, in_use.siblings.as_ref())
    }

    /// Samples the locks. Call this about every second, see [`Telemetry::sample`].
    pub(crate) fn sample(&self) {
        let in_use = self.in_use.load_full();
        let sources: Vec<_> = in_use.quorums.iter().map(InUseQuorum::source).collect();
        self.telemetry.sample(&sources);
        self.readiness();
    }

    /// Reports whether the process could take part at the last sample, or at an earlier one.
    pub(crate) fn was_ready(&self) -> bool {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).ready
    }

    /// Returns whether this process can take part, and the obstacles if not.
    pub(crate) fn readiness(&self) -> Readiness {
        let in_use = self.in_use.load_full();
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let voting = in_use.quorums.iter().filter(|quorum| quorum.has_majority());
        history
            .majorities
            .extend(voting.map(|quorum| quorum.name.clone()));
        let readiness = Readiness::of(&in_use, &history);
        history.ready |= readiness.ready;
        readiness
    }
}

/// The conditions of readiness in addition to the caches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReadinessRule {
    /// A majority of the masters of every quorum, now.
    #[default]
    Now,
    /// A majority of each of these quorums at some time since the process began. Once the process is ready,
    /// only the statuses report a loss of the masters, which would otherwise make all replicas unready at the
    /// same time.
    Once(BTreeSet<String>),
}

/// The quorums that had a majority at some time, and whether the process was ready.
#[derive(Debug, Default)]
pub(crate) struct ReadinessHistory {
    pub(crate) majorities: BTreeSet<String>,
    pub(crate) ready: bool,
}

#[derive(Debug, Default)]
pub(crate) struct InUse {
    pub(crate) quorums: Vec<InUseQuorum>,
    /// Quorums that are declared and valid, but are being reopened at the moment.
    pub(crate) opening: Vec<String>,
    pub(crate) problems: Vec<String>,
    /// Objects that this version cannot read.
    pub(crate) unreadable: Vec<Unreadable>,
    pub(crate) readiness_rule: ReadinessRule,
    /// Kinds of objects whose first list is still awaited.
    pub(crate) awaited: Vec<&'static str>,
    pub(crate) stopping: bool,
    /// The finalizer of the RedisQuorums that locks of this process name; empty if the process has no finalizer.
    pub(crate) finalizer: String,
    /// The RedisQuorums that locks of this process name, open or not.
    pub(crate) named: BTreeSet<String>,
    /// The connections to the siblings; `None` before the first answers, and if they are not known.
    pub(crate) siblings: Option<SiblingContact>,
    /// The time of the last answer of the API server; `None` for a process that uses none.
    pub(crate) api_server_answered: Option<watch::Receiver<BootInstant>>,
}

impl InUse {
    /// Returns the quorums of `of` that this process uses.
    pub(crate) fn uses<'a>(&self, of: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
        let runs = |name: &str| {
            let mut open = self.quorums.iter();
            open.any(|quorum| quorum.name == name && quorum.is_used())
        };
        of.filter(|name| self.named.contains(*name) || runs(name))
            .cloned()
            .collect()
    }

    /// Returns the state of an operator that has just started in a cluster.
    pub(crate) fn awaiting_caches() -> Self {
        Self {
            readiness_rule: ReadinessRule::Once(BTreeSet::new()),
            awaited: vec!["LeaderLock", "RedisQuorum"],
            ..Self::default()
        }
    }
}

impl InUseQuorum {
    /// Reports whether the process contends for locks on the quorum, or watches some.
    pub(crate) fn is_used(&self) -> bool {
        !self.locks.is_empty()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct InUseQuorum {
    pub(crate) name: String,
    pub(crate) masters: Masters,
    pub(crate) elector: Elector,
    pub(crate) meter: Arc<QuorumMeter>,
    pub(crate) locks: Names,
}

/// The namespace and the name of the object that declares each lock of a quorum; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<RwLock<BTreeMap<LockName, (String, String)>>>);

impl Names {
    pub(crate) fn get(&self, lock: &LockName) -> Option<(String, String)> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.get(lock).cloned()
    }

    /// Stores the name and returns the previous one.
    pub(crate) fn put(&self, lock: &LockName, named: (String, String)) -> Option<(String, String)> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        names.insert(lock.clone(), named)
    }

    fn is_empty(&self) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.is_empty()
    }

    pub(crate) fn remove(&self, lock: &LockName) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        names.remove(lock);
    }
}

impl InUseQuorum {
    pub(crate) fn has_majority(&self) -> bool {
        self.masters.voters() >= self.masters.size().majority()
    }

    pub(crate) fn source(&self) -> Source<'_> {
        Source {
            meter: &self.meter,
            masters: &self.masters,
            elector: &self.elector,
        }
    }
}
