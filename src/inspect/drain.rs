//! `redlock drain`: ends the operator of a cluster, and with it all targets of its locks.
//!
//! The command stops nothing itself: the replicas stop the targets when they end. It takes two steps, because
//! a replica that ends leaves the targets to a ready sibling. First all replicas but one end. Once the last
//! one holds their locks, it ends as well: it stops everything, releases the locks and removes its
//! finalizers. Finalizers that remain then have no owner and are removed, those of RedisQuorums only if no
//! pod of the operator is left.

mod objects;

use std::{collections::BTreeSet, time::Duration};

use redlock_csi::DRIVER_NAME;
use tokio::time;

use self::objects::{Objects, Unfinished};
use super::cluster::{Cluster, ClusterError};
use crate::{clock, lease::BootInstant};

/// The time between two reads from the API server.
const POLL: Duration = Duration::from_millis(500);
/// Time limit of the adoption. A sibling adopts within milliseconds; a lock that it cannot adopt must not
/// delay the drain.
const ADOPTION: Duration = Duration::from_secs(15);

/// The options of a drain.
#[derive(Clone, Debug)]
pub struct DrainOptions {
    /// Name of the operator's Deployment.
    pub deployment: String,
    /// Whether the Deployment may have been removed before. A misspelt name must not count as removed:
    /// finalizers would be removed while replicas run.
    pub gone: bool,
    /// The namespaces of its LeaderLocks; all namespaces if empty.
    pub namespaces: Vec<String>,
    /// Whether node fencing is installed: no pod that mounts its volume may be left.
    pub fencing: bool,
    /// Time limit of the whole drain.
    pub timeout: Duration,
}

/// The objects that are left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Pods of the operator that did not end in time.
    pub pods: Vec<String>,
    /// LeaderLocks, as namespace/name, whose targets are not confirmed to have stopped.
    pub unfinished: Vec<String>,
    /// Pods, as namespace/name, that mount a volume of node fencing.
    pub fenced: Vec<String>,
    /// LeaderLocks, as namespace/name, that an agent of this cluster held when the last replica ended: the agent runs on.
    pub agents: Vec<String>,
}

impl Drained {
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.pods.is_empty() && self.unfinished.is_empty() && self.fenced.is_empty()
    }

    /// Returns the text for users, one line for each object.
    #[must_use]
    pub fn text(&self) -> String {
        let agents = self.agents.iter().map(|lock| {
            format!(
                "LeaderLock {lock}: its agent runs on and keeps the lock. The operator has removed the label from the pod of the \
                 agent: in this cluster, no pod is behind a Service that selects the label until an operator runs again\n"
            )
        });
        if self.is_clean() {
            let work = if self.agents.is_empty() {
                "no workload runs under its locks"
            } else {
                "no workload that an operator switches runs under its locks"
            };
            return [format!("drained: no operator runs, and {work}\n")]
                .into_iter()
                .chain(agents)
                .collect();
        }
        let pods = self
            .pods
            .iter()
            .map(|pod| format!("pod {pod} of the operator has not ended: check its node\n"));
        let locks = self.unfinished.iter().map(|lock| {
            format!(
                "LeaderLock {lock}: no replica confirmed that its targets are stopped: check the targets. The lease \
                 expires by itself and the finalizer is removed\n"
            )
        });
        let fenced = self.fenced.iter().map(|pod| {
            format!(
                "pod {pod} mounts a volume of {DRIVER_NAME}: without the node agent it would stay Terminating. Scale its workload to 0, \
                    and try again when the pod is gone\n"
            )
        });
        pods.chain(locks).chain(fenced).chain(agents).collect()
    }
}

/// Drains the operator. Returns the objects that are left, at the latest when the time is up; passes each
/// step to `report`.
///
/// # Errors
/// Returns an error if the API server refuses, or does not have, a required object.
pub async fn drain(
    cluster: &Cluster,
    options: &DrainOptions,
    report: impl Fn(&str),
) -> Result<Drained, ClusterError> {
    let until = clock::now() + options.timeout;
    let objects = Objects::new(cluster, options);
    let mut left = Drained::default();
    if let Some(deployment) = objects.deployment().await? {
        let all = objects.pods(&deployment.selector).await?;
        if deployment.replicas > 1 && all.len() > 1 {
            report("scaling the operator down to its last replica\n");
            objects.scale(1).await?;
            let last = gone(&objects, &deployment.selector, 1, until).await?;
            adopted(&objects, &all, &last, until.min(clock::now() + ADOPTION)).await?;
        }
        let held = objects.unfinished().await?.into_iter();
        left.agents = held
            .filter(|lock| lock.held_by_agent)
            .map(|lock| lock.to_string())
            .collect();
        report("ending the last replica: it stops the workloads under its locks\n");
        objects.scale(0).await?;
        left.pods = gone(&objects, &deployment.selector, 0, until)
            .await?
            .into_iter()
            .collect();
    } else if !options.gone {
        return Err(ClusterError::NotFound(format!(
            "{}: name the Deployment of the operator, or give --gone if it was removed before",
            objects.called()
        )));
    }
    for lock in objects.unfinished().await? {
        objects.remove_finalizer(&lock).await?;
        left.unfinished.push(lock.to_string());
    }
    if left.pods.is_empty() {
        objects.leave_quorums().await?;
    }
    if options.fencing {
        left.fenced = unfenced(&objects, until).await?;
    }
    Ok(left)
}

/// Waits until at most this number of pods exists; returns the remaining pods.
async fn gone(
    objects: &Objects,
    selector: &str,
    most: usize,
    until: BootInstant,
) -> Result<BTreeSet<String>, ClusterError> {
    loop {
        let pods = objects.pods(selector).await?;
        if pods.len() <= most || clock::now() >= until {
            return Ok(pods);
        }
        time::sleep(POLL).await;
    }
}

/// Waits until no pod mounts a volume of node fencing; returns those that do.
async fn unfenced(objects: &Objects, until: BootInstant) -> Result<Vec<String>, ClusterError> {
    loop {
        let pods = objects.fenced_pods().await?;
        if pods.is_empty() || clock::now() >= until {
            return Ok(pods);
        }
        time::sleep(POLL).await;
    }
}

/// Waits until no lock is held by a replica that is gone.
async fn adopted(
    objects: &Objects,
    all: &BTreeSet<String>,
    last: &BTreeSet<String>,
    until: BootInstant,
) -> Result<(), ClusterError> {
    let orphaned = |lock: &Unfinished| all.contains(&lock.holder) && !last.contains(&lock.holder);
    while objects.unfinished().await?.iter().any(orphaned) && clock::now() < until {
        time::sleep(POLL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_objects_are_named() {
        let left = Drained {
            pods: vec!["redlock-operator-1".to_owned()],
            unfinished: vec!["billing/report".to_owned()],
            fenced: vec!["billing/report-0".to_owned()],
            agents: Vec::new(),
        };
        assert!(!left.is_clean());
        let text = left.text();
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.contains("pod redlock-operator-1")
                && text.contains("LeaderLock billing/report")
                && text.contains("pod billing/report-0 mounts"),
            "{text}"
        );
        assert!(Drained::default().is_clean());
        let agents = Drained {
            agents: vec!["billing/api".to_owned()],
            ..Drained::default()
        };
        assert!(agents.is_clean());
        let text = agents.text();
        assert!(
            text.contains("LeaderLock billing/api: its agent runs on"),
            "{text}"
        );
        assert!(!text.contains("no workload runs"), "{text}");
    }
}
