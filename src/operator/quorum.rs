//! Runs one quorum in use: its masters, its elector, and the supervisor of their tasks.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::{sync::watch, task::JoinError, time};

use super::{
    access::Access,
    config::{Locks, masters_config, terms},
    metrics_watcher::{Changes, MetricsWatcher},
    state::{InUseQuorum, Names},
};
use crate::{
    api::plan::{LockPlan, QuorumPlan},
    elector::{Elector, ElectorTask},
    lease::{ClusterId, HolderIdentity, LockName, ReleaseMode, Terms},
    masters::{Closed, ConfigError, Masters, MastersConfig, QuorumId, TaskEnded, Tasks},
    telemetry::{QuorumMeter, Telemetry},
    transport::Transport,
};

/// Time limit for giving up all locks of a quorum: one release while some masters hang, or thousands of
/// releases.
const GIVING_UP: Duration = Duration::from_millis(1_200);
/// Time limit for the clean-ups after that. Together they stay below the 2 s within which the process must
/// end.
const CLEANING_UP: Duration = Duration::from_millis(300);

const ELECTS: &str = "runs the elections";

/// A task of a quorum ended unexpectedly: the state of the quorum can no longer be trusted.
#[derive(Debug, Error)]
#[error("contending for the locks of {of}")]
pub(crate) struct QuorumEnded {
    of: String,
    source: Cause,
}

impl QuorumEnded {
    /// Returns the error of a supervisor that ended without a result.
    pub(crate) fn supervisor(broken: &JoinError) -> Self {
        Self {
            of: "a quorum".into(),
            source: Cause::Broken("joins its tasks", broken.to_string()),
        }
    }
}

#[derive(Debug, Error)]
enum Cause {
    #[error(transparent)]
    Masters(TaskEnded),
    #[error(transparent)]
    Elector(Closed),
    #[error("the task that {0} ended: {1}")]
    Broken(&'static str, String),
}

/// The identity of the candidate.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) identity: HolderIdentity,
    pub(crate) cluster: ClusterId,
}

#[derive(Debug)]
pub(crate) struct RunningQuorum {
    pub(crate) plan: QuorumPlan,
    pub(crate) masters: Masters,
    pub(crate) elector: Elector,
    meter: Arc<QuorumMeter>,
    locks: BTreeMap<LockName, Terms>,
    pub(crate) names: Names,
    /// Set once: the locks that are reserved for siblings.
    stop: Stop,
}

/// Orders a supervisor to give up all locks and end; the contained locks are handed only to siblings.
pub(crate) type Stop = watch::Sender<Option<HashSet<LockName>>>;

/// Joins all tasks of one quorum. Ends after [`RunningQuorum::stop`], or with the reason of an unexpected end.
#[derive(Debug)]
pub(crate) struct QuorumSupervisor {
    quorum: String,
    tasks: Tasks,
    elector: Elector,
    task: ElectorTask,
    stop: watch::Receiver<Option<HashSet<LockName>>>,
}

/// Checks whether a quorum can be opened with these settings, without opening it.
pub(crate) fn check(plan: &QuorumPlan, access: &Access, cluster: &ClusterId) -> Result<(), ConfigError> {
    let access = (access.credentials.clone(), access.tls.clone());
    Masters::check(&masters_config(plan, access, cluster.clone(), true))
}

impl RunningQuorum {
    /// Starts to connect. `quorum` is the id that was stored outside the masters. The caller must run and join the
    /// supervisor.
    pub(crate) fn open(
        plan: &QuorumPlan,
        candidate: &Candidate,
        (access, quorum): (Access, Option<QuorumId>),
        transport: Transport,
        telemetry: &Arc<Telemetry>,
        changes: Option<Changes>,
    ) -> Result<(Self, QuorumSupervisor), ConfigError> {
        let access = (access.credentials, access.tls);
        let config = MastersConfig {
            quorum,
            transport,
            ..masters_config(plan, access, candidate.cluster.clone(), true)
        };
        let masters = plan.masters.iter();
        let called = masters.map(|master| (master.name.clone(), master.failure_domain.clone()));
        let meter = telemetry.quorum(&plan.name, called.collect());
        let (masters, notices, tasks) = Masters::open(&config, Some(meter.clone()))?;
        let watcher = MetricsWatcher::new(&plan.name, meter.clone(), changes);
        let holder = candidate.identity.clone();
        let (elector, task) = Elector::start(masters.clone(), notices, holder, Arc::new(watcher));
        let (supervisor, stop) = QuorumSupervisor::new(&plan.name, tasks, elector.clone(), task);
        let running = Self {
            plan: plan.clone(),
            masters,
            elector,
            meter,
            locks: BTreeMap::new(),
            names: Names::default(),
            stop,
        };
        Ok((running, supervisor))
    }

    /// Applies the settings that can change while the quorum is open; reopening the quorum would give up
    /// every lock.
    pub(crate) fn adjust(&mut self, plan: &QuorumPlan) {
        let command_timeout = plan.command_timeout;
        self.plan = plan.clone();
        if self.masters.command_timeout() == command_timeout {
            return;
        }
        self.masters.set_command_timeout(command_timeout);
        tracing::info!(
            quorum = plan.name,
            command_timeout_ms = command_timeout.as_secs_f64() * 1e3,
            "command timeout changed"
        );
    }

    /// Connects to a master by another URL, see [`Masters::replace_url`].
    ///
    /// # Errors
    ///
    /// Returns an error if the URL cannot be used.
    pub(crate) fn replace_url(&mut self, master: &str, url: &str) -> Result<(), ConfigError> {
        self.masters.replace_url(master, url)?;
        if let Some(plan) = self.plan.masters.iter_mut().find(|plan| plan.name == master) {
            url.clone_into(&mut plan.url);
        }
        Ok(())
    }

    /// Uses rotated credentials and certificates.
    ///
    /// # Errors
    ///
    /// Returns an error if the certificates are invalid; the previous ones then stay in use.
    pub(crate) fn rekey(&self, access: Access) -> Result<(), ConfigError> {
        self.masters.rekey(access.credentials, access.tls)
    }

    /// Adds, changes and removes locks to match `wanted`.
    pub(crate) fn set_locks(&mut self, wanted: &Locks, cluster: &ClusterId) {
        let gone: Vec<LockName> = self
            .locks
            .keys()
            .filter(|lock| !wanted.contains_key(*lock))
            .cloned()
            .collect();
        for lock in gone {
            self.remove_lock(&lock, ReleaseMode::Release);
        }
        for plan in wanted.values() {
            self.put_lock(plan, cluster);
        }
    }

    /// Contends for a lock, or changes its terms.
    pub(crate) fn put_lock(&mut self, plan: &LockPlan, cluster: &ClusterId) {
        let lock = &plan.lock_name;
        let terms = terms(plan, cluster);
        let named = (plan.namespace.clone(), plan.name.clone());
        let before = self.names.put(lock, named.clone());
        if before.is_some_and(|before| before != named) {
            self.meter.forget(lock);
        }
        self.meter.declare(lock, &plan.namespace, &plan.name);
        let before = self.locks.insert(lock.clone(), terms.clone());
        if before.as_ref() != Some(&terms) {
            let change = if before.is_some() { "changed" } else { "added" };
            let (object, quorum) = (format!("LeaderLock {}", plan.object()), &self.plan.name);
            tracing::info!(%lock, object, quorum, participation = ?terms.participation, "lock {change}");
            self.elector.put(lock.clone(), terms);
        }
    }

    /// Gives up a lock, in this mode if it is held, and forgets it.
    pub(crate) fn remove_lock(&mut self, lock: &LockName, release_mode: ReleaseMode) {
        if self.locks.remove(lock).is_some() {
            tracing::info!(%lock, quorum = self.plan.name, "lock removed");
            self.elector.remove(lock.clone(), release_mode);
            self.names.remove(lock);
            self.meter.forget(lock);
        }
    }

    pub(crate) fn in_use(&self) -> InUseQuorum {
        InUseQuorum {
            name: self.plan.name.clone(),
            masters: self.masters.clone(),
            elector: self.elector.clone(),
            meter: self.meter.clone(),
            locks: self.names.clone(),
        }
    }

    /// Orders the supervisor to give up all locks and end; these locks are handed only to siblings.
    pub(crate) fn stop(&self, reserve: HashSet<LockName>) {
        self.stop.send_replace(Some(reserve));
    }
}

impl QuorumSupervisor {
    pub(crate) fn new(quorum: &str, tasks: Tasks, elector: Elector, task: ElectorTask) -> (Self, Stop) {
        let (stop, receiver) = watch::channel(None);
        let supervisor = Self {
            quorum: quorum.to_owned(),
            tasks,
            elector,
            task,
            stop: receiver,
        };
        (supervisor, stop)
    }

    /// Runs until the quorum ends. Returns its name.
    pub(crate) async fn run(mut self) -> Result<String, QuorumEnded> {
        let cause = tokio::select! {
            _ = self.stop.wait_for(Option::is_some) => None,
            end = self.tasks.ended() => Some(Cause::Masters(end)),
            end = &mut self.task => Some(match end {
                Ok(Ok(())) => Cause::Broken(ELECTS, "it returned".into()),
                Ok(Err(closed)) => Cause::Elector(closed),
                Err(broken) => Cause::Broken(ELECTS, broken.to_string()),
            }),
        };
        if let Some(source) = cause {
            self.task.abort();
            let of = format!("quorum {}", self.quorum);
            return Err(QuorumEnded { of, source });
        }
        let reserve = self.stop.borrow().clone().unwrap_or_default();
        self.elector.shut_down(reserve);
        if time::timeout(GIVING_UP, &mut self.task).await.is_err() {
            tracing::warn!(
                quorum = self.quorum,
                "not every lock was released in time: the remaining leases expire by themselves"
            );
            self.task.abort();
        }
        if let Ok(left @ 1..) = time::timeout(CLEANING_UP, self.tasks.close()).await {
            tracing::info!(
                quorum = self.quorum,
                left,
                "clean-ups are left to the expiry of their keys"
            );
        }
        Ok(self.quorum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::validate::{Graces, LockNames, validate_lock, validate_quorum},
        telemetry::Origin,
    };

    /// Returns the command timeouts before and after a lock with this lease is added to a quorum with unreachable
    /// masters.
    fn timeout_beside(lease_seconds: u64) -> (Duration, Duration) {
        let quorum = "{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {name: q}, spec: {masters: [\
             {name: a, url: 'redis://127.0.0.1:1'}, {name: b, url: 'redis://127.0.0.1:2'}, \
             {name: c, url: 'redis://127.0.0.1:3'}]}}";
        let quorum = validate_quorum(&serde_yaml::from_str(quorum).unwrap()).unwrap();
        let lock = format!(
            "{{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {{name: l, namespace: n}}, \
             spec: {{quorumRef: {{name: q}}, leaseDurationSeconds: {lease_seconds}}}}}"
        );
        let lock = serde_yaml::from_str(&lock).unwrap();
        let lock = validate_lock(&lock, &quorum, LockNames::Any, &Graces::default()).unwrap();
        let candidate = Candidate {
            identity: HolderIdentity::parse("me").unwrap(),
            cluster: ClusterId::new("here", "u").unwrap(),
        };
        let origin = Origin {
            component: "operator",
            identity: candidate.identity.clone(),
            cluster: candidate.cluster.clone(),
        };
        let telemetry = Telemetry::new(origin, false).unwrap();
        let access = (Access::default(), None);
        let (mut running, _keeper) =
            RunningQuorum::open(&quorum, &candidate, access, Transport::tcp(), &telemetry, None).unwrap();
        running.put_lock(&lock, &candidate.cluster);
        (running.masters.command_timeout(), lock.timings.retry_period)
    }

    #[tokio::test]
    async fn no_lock_shortens_the_command_timeout_of_its_quorum() {
        let (timeout, retry_period) = timeout_beside(3);
        assert!(retry_period < timeout, "{retry_period:?}");
        assert_eq!(timeout, Duration::from_millis(500));
    }
}
