//! Runs all quorums of this process, including those that are being closed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use tokio::task::JoinSet;

use super::{
    access::Access,
    metrics_watcher::Changes,
    quorum::{Candidate, QuorumEnded, RunningQuorum},
    state::InUseQuorum,
};
use crate::{
    api::plan::QuorumPlan,
    lease::LockName,
    masters::{ConfigError, QuorumId},
    telemetry::Telemetry,
    transport::Transport,
};

/// Owns and joins the tasks of every quorum.
#[derive(Debug)]
pub(crate) struct RunningQuorums {
    pub(crate) candidate: Candidate,
    /// The way to the masters and to the siblings.
    pub(crate) transport: Transport,
    telemetry: Arc<Telemetry>,
    changes: Option<Changes>,
    running: BTreeMap<String, RunningQuorum>,
    closing: BTreeSet<String>,
    supervisors: JoinSet<Result<String, QuorumEnded>>,
}

impl RunningQuorums {
    /// Creates an empty set. `changes` receives every lock whose holder changed.
    pub(crate) fn new(
        candidate: Candidate,
        transport: Transport,
        telemetry: Arc<Telemetry>,
        changes: Option<Changes>,
    ) -> Self {
        Self {
            candidate,
            transport,
            telemetry,
            changes,
            running: BTreeMap::new(),
            closing: BTreeSet::new(),
            supervisors: JoinSet::new(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RunningQuorum> {
        self.running.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut RunningQuorum> {
        self.running.get_mut(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &RunningQuorum)> {
        self.running.iter()
    }

    /// Reports whether the quorum is still closing and releasing its locks; this must end before it can be
    /// opened again.
    pub(crate) fn is_closing(&self, name: &str) -> bool {
        self.closing.contains(name)
    }

    /// Opens a quorum. `quorum` is its id, if one was stored before.
    pub(crate) fn open(
        &mut self,
        plan: &QuorumPlan,
        access: Access,
        quorum: Option<QuorumId>,
    ) -> Result<(), ConfigError> {
        let (quorum, supervisor) = RunningQuorum::open(
            plan,
            &self.candidate,
            (access, quorum),
            self.transport.clone(),
            &self.telemetry,
            self.changes.clone(),
        )?;
        tracing::info!(
            quorum = plan.name,
            masters = plan.masters.len(),
            majority = plan.majority(),
            command_timeout_ms = plan.command_timeout.as_secs_f64() * 1e3,
            longest_lease_s = plan.longest_lease.as_secs_f64(),
            "quorum opened"
        );
        self.supervisors.spawn(supervisor.run());
        self.running.insert(plan.name.clone(), quorum);
        Ok(())
    }

    /// Releases all locks of a quorum and closes it.
    pub(crate) fn close(&mut self, name: &str, why: &str) {
        if let Some(quorum) = self.running.remove(name) {
            tracing::info!(quorum = name, "quorum closed: {why}");
            quorum.stop(HashSet::new());
            self.closing.insert(name.to_owned());
        }
    }

    /// Waits for the end of a quorum. Returns the name of one that was closed, or the error of an unexpected end.
    /// Cancel safe.
    pub(crate) async fn ended(&mut self) -> Result<String, QuorumEnded> {
        match self.supervisors.join_next().await {
            Some(Ok(ended)) => {
                let name = ended?;
                self.closing.remove(&name);
                Ok(name)
            }
            Some(Err(broken)) => Err(QuorumEnded::supervisor(&broken)),
            None => std::future::pending().await,
        }
    }

    /// Gives up all locks, and hands these locks of each quorum only to siblings; returns when all quorums
    /// have ended.
    pub(crate) async fn stop(&mut self, mut reserve: HashMap<String, HashSet<LockName>>) {
        for (name, quorum) in &self.running {
            quorum.stop(reserve.remove(name).unwrap_or_default());
        }
        while let Some(end) = self.supervisors.join_next().await {
            match end {
                Ok(Ok(_)) => {}
                Ok(Err(ended)) => tracing::error!(error = %ended, "a quorum could not be closed"),
                Err(broken) => tracing::error!(error = %broken, "a quorum could not be closed"),
            }
        }
    }

    pub(crate) fn in_use(&self) -> Vec<InUseQuorum> {
        self.running.values().map(RunningQuorum::in_use).collect()
    }
}
