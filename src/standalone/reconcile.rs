//! Applies the desired state: opens, changes and closes quorums, and sets their locks.
//!
//! If anything in a quorum's plan other than the command timeout changed, the quorum is reopened. It is
//! closed first, so that this process releases its locks before it contends for them again, and is opened
//! when its supervisor has ended.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    desired::Desired,
    manifests::{LoadError, Loaded},
    report::{Finding, Report},
};
use crate::{
    api::plan::QuorumPlan,
    clock,
    operator::{
        access::Access,
        config::Locks,
        quorum::{Candidate, QuorumEnded, RunningQuorum},
        quorums::RunningQuorums,
        state::{InUse, ProcessState},
    },
    transport::Transport,
};

/// All quorums of this process.
#[derive(Debug)]
pub(super) struct Reconciler {
    access: Access,
    state: Arc<ProcessState>,
    desired: Desired,
    findings: BTreeSet<Finding>,
    report: Report,
    quorums: RunningQuorums,
    /// Locks whose targets were reported as not switched.
    with_targets: BTreeSet<String>,
}

impl Reconciler {
    pub(super) fn new(candidate: Candidate, access: Access, state: Arc<ProcessState>) -> Self {
        Self {
            access,
            quorums: RunningQuorums::new(candidate, Transport::tcp(), state.telemetry.clone(), None),
            state,
            desired: Desired::default(),
            findings: BTreeSet::new(),
            report: Report::default(),
            with_targets: BTreeSet::new(),
        }
    }

    /// Applies the present content of the folder.
    pub(super) fn folder_changed(&mut self, loaded: Result<Loaded, LoadError>) {
        match loaded {
            Ok(loaded) => {
                let (desired, findings) = Desired::new(loaded, &self.desired);
                if desired.quorums.is_empty() && findings.is_empty() {
                    tracing::warn!("the folder declares no RedisQuorum: there is nothing to contend for");
                }
                self.desired = desired;
                self.findings = findings;
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let reason = format!("{error}: {}", cause.unwrap_or_default());
                // The manifests were not read again, so their problems remain.
                self.findings
                    .retain(|finding| !matches!(finding, Finding::Folder(_)));
                self.findings.insert(Finding::Folder(reason));
            }
        }
        self.reconcile();
    }

    /// Waits for the end of a quorum that was closed. Returns the error of a quorum that ended unexpectedly.
    /// Cancel safe.
    pub(super) async fn quorum_ended(&mut self) -> Result<(), QuorumEnded> {
        let name = self.quorums.ended().await?;
        if !self.desired.quorums.contains_key(&name) {
            self.state.telemetry.forget_quorum(&name);
        }
        self.reconcile();
        Ok(())
    }

    /// Releases all locks, and returns when no quorum runs any longer.
    pub(super) async fn stop(&mut self) {
        let state = InUse {
            stopping: true,
            ..self.in_use()
        };
        self.state.in_use.store(Arc::new(state));
        self.quorums.stop(HashMap::new()).await;
    }

    fn reconcile(&mut self) {
        let started = clock::now();
        let desired = std::mem::take(&mut self.desired);
        let mut findings = self.findings.clone();
        let stale: Vec<(String, &str)> = self
            .quorums
            .iter()
            .filter_map(|(name, running)| {
                let why = stale(running, desired.quorums.get(name))?;
                Some((name.clone(), why))
            })
            .collect();
        for (name, why) in stale {
            self.quorums.close(&name, why);
        }
        for (name, (plan, locks)) in &desired.quorums {
            if self.quorums.get(name).is_none() && !self.quorums.is_closing(name) {
                self.open(plan, &mut findings);
            }
            let cluster = self.quorums.candidate.cluster.clone();
            if let Some(quorum) = self.quorums.get_mut(name) {
                quorum.adjust(plan);
                quorum.set_locks(locks, &cluster);
            }
        }
        self.warn_about_targets(&desired);
        self.desired = desired;
        let result = if findings.is_empty() { "ok" } else { "problems" };
        self.report.update(findings);
        self.state.in_use.store(Arc::new(self.in_use()));
        let took = clock::now().since(started);
        self.state.telemetry.reconciled("standalone", result, took);
    }

    fn open(&mut self, plan: &QuorumPlan, findings: &mut BTreeSet<Finding>) {
        let object = format!("RedisQuorum {}", plan.name);
        let found = lacks(plan, &self.access).or_else(|| {
            let error = self.quorums.open(plan, self.access.clone(), None).err()?;
            Some(("spec", error.to_string()))
        });
        if let Some((field, reason)) = found {
            findings.insert(Finding::Object {
                object,
                field,
                reason,
            });
        }
    }

    fn warn_about_targets(&mut self, desired: &Desired) {
        let with_targets: BTreeSet<String> = desired
            .locks()
            .filter(|lock| !lock.targets.is_empty())
            .map(|lock| format!("LeaderLock {}", lock.object()))
            .collect();
        for object in with_targets.difference(&self.with_targets) {
            tracing::warn!(
                object,
                "targets are not enforced with --standalone: the operator holds the lock and does not change the \
                 targets"
            );
        }
        self.with_targets = with_targets;
    }

    fn in_use(&self) -> InUse {
        let waiting = self.desired.quorums.keys();
        let opening = waiting.filter(|name| self.quorums.is_closing(name));
        InUse {
            quorums: self.quorums.in_use(),
            opening: opening.cloned().collect(),
            problems: self.report.texts(),
            ..InUse::default()
        }
    }
}

/// Returns the reason why a running quorum has to be closed; `None` if it can continue.
fn stale(running: &RunningQuorum, wanted: Option<&(QuorumPlan, Locks)>) -> Option<&'static str> {
    let Some((plan, _)) = wanted else {
        return Some("the RedisQuorum is not declared any more");
    };
    let adjusted = QuorumPlan {
        command_timeout: plan.command_timeout,
        ..running.plan.clone()
    };
    (*plan != adjusted).then_some("the manifest changed; the operator reconnects")
}

/// Returns the field that depends on missing flags, and the reason.
fn lacks(plan: &QuorumPlan, access: &Access) -> Option<(&'static str, String)> {
    let credentials = &access.credentials;
    if let Some(secret) = &plan.auth_secret
        && credentials.username.is_none()
        && credentials.password.is_none()
    {
        let reason = format!(
            "Secret {}/{} cannot be read with --standalone: give --username and --password-file (or REDLOCK_PASSWORD)",
            secret.namespace, secret.name
        );
        return Some(("spec.auth.secretRef", reason));
    }
    if let Some(secret) = &plan.tls_secret
        && access.tls.ca.is_none()
    {
        let reason = format!(
            "Secret {}/{} cannot be read with --standalone: give --tls-ca (and --tls-cert with --tls-key)",
            secret.namespace, secret.name
        );
        return Some(("spec.tls.secretRef", reason));
    }
    None
}
