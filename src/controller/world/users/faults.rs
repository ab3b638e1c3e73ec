//! Faults of a random world that last until they are healed.

use std::time::Duration;

use redlock_world::kubernetes::{LatencyRange, Partition, Refusal};

use super::Users;
use crate::{
    clock,
    controller::world::{cluster::ClusterWorld, universe::Universe},
};

/// The time between two faults of the masters, longer than every lease: masters that forget a lease one after the other,
/// or whose clocks are stepped, are too many for it.
const BETWEEN: Duration = Duration::from_secs(70);

/// A fault of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterFault {
    None,
    /// Some replicas reach no master.
    Masters,
    /// Some replicas reach the API server late, seldom or never.
    ApiServer,
    /// The operator is not installed.
    Uninstalled,
}

/// A fault of the masters of `default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuorumFault {
    None,
    /// The fault of the master with this index.
    One(usize),
    /// All masters are down.
    All,
}

impl Users {
    /// Reports whether the replicas of a cluster can write to the API server.
    pub(in crate::controller::world) fn can_report(&self, index: usize) -> bool {
        matches!(self.faults[index], ClusterFault::None | ClusterFault::Masters)
    }

    pub(super) fn begin_fault(&mut self, universe: &Universe, index: usize) -> Option<String> {
        if self.faults[index] != ClusterFault::None || self.quorum_fault == QuorumFault::All || self.rotates()
        {
            return None;
        }
        let cluster = &universe.clusters[index];
        let operators = cluster.operators();
        let some = operators.iter().filter(|_| self.random.bool());
        let some: Vec<String> = some.cloned().collect();
        if self.random.bool() {
            self.faults[index] = ClusterFault::Masters;
            some.iter()
                .for_each(|operator| universe.cut_operator(operator, true));
            return Some(format!("cut {some:?} off from the masters"));
        }
        self.faults[index] = ClusterFault::ApiServer;
        let kind = self.random.u8(..3);
        for operator in &some {
            cluster.api.change_faults(operator, |faults| match kind {
                0 => faults.partition = Partition::Both,
                1 => faults.refusals.push(Refusal {
                    code: 503,
                    probability: 0.4,
                    only_writes: true,
                    is_executed: false,
                }),
                _ => {
                    let delay = LatencyRange {
                        min: Duration::ZERO,
                        max: Duration::from_secs(4),
                    };
                    faults.watch_delays.insert("*".to_owned(), delay);
                }
            });
        }
        Some(format!("API server fault {kind} of {some:?}"))
    }

    pub(super) fn heal(&mut self, universe: &Universe, index: usize) -> Option<String> {
        let cluster = &universe.clusters[index];
        match std::mem::replace(&mut self.faults[index], ClusterFault::None) {
            ClusterFault::None => return None,
            ClusterFault::Masters | ClusterFault::ApiServer => {
                for operator in cluster.operators() {
                    universe.cut_operator(&operator, false);
                    cluster.heal_api(&operator);
                }
            }
            ClusterFault::Uninstalled => cluster.scale_operator(universe.replicas),
        }
        Some("heal".to_owned())
    }

    /// Removes the operator. Its last replica stops the work first, so one has to run.
    pub(super) fn uninstall(&mut self, cluster: &ClusterWorld, index: usize) -> Option<String> {
        let is_calm = self.faults[index] == ClusterFault::None && self.quorum_fault != QuorumFault::All;
        if !is_calm || !cluster.are_operators_ready() {
            return None;
        }
        self.faults[index] = ClusterFault::Uninstalled;
        cluster.scale_operator(0);
        Some("uninstall".to_owned())
    }

    /// Begins a fault of one master, or ends all masters. Work in a cluster that cannot write to its API server then
    /// runs on beside that of the next holder, so the other faults exclude the end of all masters.
    pub(super) async fn begin_quorum_fault(&mut self, universe: &Universe) -> Option<String> {
        let is_early = self
            .masters_healed
            .is_some_and(|healed| clock::now().since(healed) < BETWEEN);
        if self.quorum_fault != QuorumFault::None || is_early || self.rotates() {
            return None;
        }
        let masters = &universe.masters;
        let is_calm = self.faults.iter().all(|fault| *fault == ClusterFault::None);
        // Masters that lose their memory before that are sealed by a person.
        let mut clusters = universe.clusters.iter();
        let is_known = clusters.all(|cluster| cluster.knows_quorum("default"));
        if is_calm && is_known && self.random.u8(..6) == 0 {
            self.quorum_fault = QuorumFault::All;
            masters.iter().for_each(redlock_world::masters::Master::kill);
            return Some("end all masters".to_owned());
        }
        let index = self.random.usize(..masters.len());
        self.quorum_fault = QuorumFault::One(index);
        let master = masters.get(index);
        let fault = match self.random.u8(..6) {
            0 => {
                master.kill();
                "end"
            }
            1 => {
                master.restart_empty().await;
                "restart without data"
            }
            2 => {
                master.pause();
                "pause"
            }
            3 => {
                master.set_delay(Duration::from_millis(self.random.u64(50..800)));
                "delay"
            }
            kind => {
                let most = if kind == 4 { 3_600_000 } else { 12_000 };
                let milliseconds = self.random.i64(-most..most);
                master.step_clock(milliseconds * 1_000);
                return Some(format!(
                    "step the clock of {} by {milliseconds} ms",
                    master.name()
                ));
            }
        };
        Some(format!("{fault} {}", master.name()))
    }

    pub(super) async fn heal_quorum(&mut self, universe: &Universe) -> Option<String> {
        let healed = match std::mem::replace(&mut self.quorum_fault, QuorumFault::None) {
            QuorumFault::None => return None,
            QuorumFault::One(index) => index..index + 1,
            QuorumFault::All => 0..universe.masters.len(),
        };
        for index in healed {
            let master = universe.masters.get(index);
            master.resume();
            master.set_delay(Duration::ZERO);
            if !master.is_running() {
                if self.random.bool() {
                    master.restart().await;
                } else {
                    master.restart_empty().await;
                }
            }
        }
        self.masters_healed = Some(clock::now());
        Some("heal the masters".to_owned())
    }

    fn is_installed(&self, index: usize) -> bool {
        self.faults[index] != ClusterFault::Uninstalled
    }

    pub(super) fn crash_operator(&mut self, cluster: &ClusterWorld, index: usize) -> Option<String> {
        let pods = cluster.operator_pods();
        let (party, uid) = self.random.choice(pods).filter(|_| self.is_installed(index))?;
        cluster.crash_pod(&uid);
        Some(format!("kill -9 {party}"))
    }

    pub(super) fn delete_operator_pod(&mut self, cluster: &ClusterWorld, index: usize) -> Option<String> {
        let pods = cluster.operator_pods();
        let (party, _) = self.random.choice(pods).filter(|_| self.is_installed(index))?;
        let (pod, _) = party.rsplit('/').next()?.split_once('#')?;
        cluster.delete_operator_pod(pod);
        Some(format!("delete pod {party}"))
    }

    pub(super) fn roll_out(&mut self, cluster: &ClusterWorld, index: usize) -> Option<String> {
        if !self.is_installed(index) {
            return None;
        }
        cluster.roll_out_operator(self.random.u32(..));
        Some("roll the operator out".to_owned())
    }
}
