//! Causes each fault at the holder of the lock, for a time that the seed decides, and heals it.

use std::time::Duration;

use fastrand::Rng;
use nix::sys::signal::Signal;
use redlock::clock;
use serde_json::json;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::faults::{Fault, Mark};
use super::fenced_node::Part;
use super::pair::{BOUND, Held, Pair};
use crate::fixture::number;
use redlock_testkit::{Mode, eventually};

#[path = "inject/node.rs"]
mod node;

use node::Without;

/// Causes the fault and heals it. The caller waits for the effects.
pub async fn bring_about(pair: &mut Pair, fault: Fault, held: Held, random: &mut Rng) -> Vec<Mark> {
    let mut acts = Acts {
        held,
        marks: Vec::new(),
        pair,
        random,
    };
    match fault {
        Fault::KillHolder => acts.kill_holder().await,
        Fault::KillSibling => acts.kill_sibling().await,
        Fault::Rollout => acts.rollout().await,
        Fault::DrainAll => acts.drain_all().await,
        Fault::StopApiServer => acts.stop_api_server().await,
        Fault::CutFromMasters => acts.cut_from_masters().await,
        Fault::CutStandby => acts.cut_one(1 - held.replica).await,
        Fault::CutHolder => acts.cut_one(held.replica).await,
        Fault::CutFromApiServer => acts.cut_from_api_server().await,
        Fault::PauseMasters => acts.pause_masters().await,
        Fault::EmptyMasters => acts.empty_masters().await,
        Fault::RestartOperators => acts.restart_operators().await,
        Fault::StepDown => acts.step_down().await,
        Fault::KillAll => acts.kill_all().await,
        Fault::CutFromAll => acts.cut_from_all().await,
        Fault::KillAgent => acts.cut_off_without(Part::Agent, Without::Killed).await,
        Fault::KillGuardian => acts.cut_off_without(Part::Guardian, Without::Killed).await,
        Fault::PauseAgent => acts.cut_off_without(Part::Agent, Without::Paused).await,
        Fault::PauseGuardian => acts.cut_off_without(Part::Guardian, Without::Paused).await,
        Fault::CutOperatorAndAgent => acts.cut_operator_and_agent().await,
        Fault::ForceDelete => acts.force_delete().await,
        Fault::CrashReplica => acts.crash_replica().await,
        Fault::RolloutOperator => acts.rollout_operator().await,
        Fault::RolloutAgent => acts.rollout_part(Part::Agent).await,
        Fault::RolloutGuardian => acts.rollout_part(Part::Guardian).await,
    }
    acts.marks
}

pub struct Acts<'a> {
    pair: &'a mut Pair,
    held: Held,
    random: &'a mut Rng,
    marks: Vec<Mark>,
}

impl Acts<'_> {
    fn mark(&mut self, what: impl Into<String>) {
        self.marks.push((clock::now(), what.into()));
    }

    /// Waits for the length of a fault, which is several times as long with the leases of fenced locks.
    async fn last(&mut self, milliseconds: std::ops::Range<u64>) {
        let length = Duration::from_millis(self.random.u64(milliseconds));
        sleep(length * self.pair.stretch()).await;
    }

    fn name(&self, replica: usize) -> String {
        self.pair.clusters[self.held.cluster].replicas[replica]
            .name
            .clone()
    }

    async fn kill(&mut self, replica: usize) {
        let name = self.name(replica);
        self.mark(format!("kill -9 of {name}"));
        let cluster = &mut self.pair.clusters[self.held.cluster];
        cluster.replicas[replica].kill();
        cluster.set_pod_status(replica, false).await;
    }

    async fn start(&mut self, replica: usize) {
        let name = self.name(replica);
        self.mark(format!("{name} is started"));
        self.pair.clusters[self.held.cluster].start(replica).await;
    }

    async fn kill_holder(&mut self) {
        self.kill(self.held.replica).await;
        self.last(0..8_000).await;
        self.start(self.held.replica).await;
    }

    async fn kill_sibling(&mut self) {
        let sibling = 1 - self.held.replica;
        self.kill(sibling).await;
        self.last(0..3_000).await;
        self.start(sibling).await;
    }

    async fn rollout(&mut self) {
        let name = self.name(self.held.replica);
        self.mark(format!("SIGTERM to {name}"));
        let cluster = &mut self.pair.clusters[self.held.cluster];
        cluster.set_pod_status(self.held.replica, false).await;
        cluster.replicas[self.held.replica].signal(Signal::SIGTERM);
        block_in_place(|| cluster.replicas[self.held.replica].wait());
        self.mark(format!("{name} has ended"));
        self.start(self.held.replica).await;
    }

    async fn drain_all(&mut self) {
        let cluster = self.pair.clusters[self.held.cluster].name;
        for replica in 0..2 {
            self.pair.clusters[self.held.cluster]
                .set_pod_status(replica, false)
                .await;
        }
        // A time in which pods are being deleted, before their kubelet signals their processes.
        self.last(200..500).await;
        self.mark(format!("SIGTERM to both replicas of {cluster}"));
        for replica in 0..2 {
            self.pair.clusters[self.held.cluster].replicas[replica].signal(Signal::SIGTERM);
        }
        for replica in 0..2 {
            block_in_place(|| self.pair.clusters[self.held.cluster].replicas[replica].wait());
        }
        self.mark("both have ended");
        self.wait_for_other().await;
        for replica in 0..2 {
            self.start(replica).await;
        }
    }

    async fn stop_api_server(&mut self) {
        let cluster = self.pair.clusters[self.held.cluster].name;
        self.mark(format!("the API server of {cluster} is killed"));
        self.pair.clusters[self.held.cluster].plane.stop_api_server();
        self.last(500..6_000).await;
        block_in_place(|| self.pair.clusters[self.held.cluster].plane.start_api_server());
        self.mark(format!("the API server of {cluster} is back"));
    }

    async fn cut_from_masters(&mut self) {
        let mode = self.any_mode();
        let cluster = self.pair.clusters[self.held.cluster].name;
        self.mark(format!("{cluster} is cut off from the masters ({mode:?})"));
        self.pair.clusters[self.held.cluster].set_masters(mode);
        self.wait_for_other().await;
        self.mark(format!("{cluster} reaches the masters again"));
        self.pair.clusters[self.held.cluster].set_masters(Mode::Pass);
    }

    /// Cuts a replica off for longer than a lease and the takeover delay.
    async fn cut_one(&mut self, replica: usize) {
        let (mode, name) = (self.any_mode(), self.name(replica));
        self.mark(format!("{name} is cut off from the masters ({mode:?})"));
        self.pair.clusters[self.held.cluster].set_masters_of(replica, mode);
        self.last(8_000..12_000).await;
        self.mark(format!("{name} reaches the masters again"));
        let cluster = &self.pair.clusters[self.held.cluster];
        cluster.set_masters_alike();
        // The next fault requires a sibling that sees a majority.
        eventually(BOUND, "it sees a majority again", async || {
            let seen = cluster.replicas[replica].lock()["quorum"].clone();
            let votes = seen.as_str().and_then(|seen| seen.split_once('/'));
            let votes =
                votes.and_then(|(voting, all)| Some((voting.parse::<u32>().ok()?, all.parse::<u32>().ok()?)));
            if votes.is_some_and(|(voting, all)| 2 * voting > all) {
                Ok(())
            } else {
                Err(seen)
            }
        })
        .await;
    }

    async fn cut_from_api_server(&mut self) {
        let mode = self.any_mode();
        let cluster = self.pair.clusters[self.held.cluster].name;
        self.mark(format!(
            "the replicas of {cluster} are cut off from their API server ({mode:?})"
        ));
        self.pair.clusters[self.held.cluster].set_api(mode);
        self.last(500..6_000).await;
        self.mark("they reach it again");
        self.pair.clusters[self.held.cluster].set_api(Mode::Pass);
    }

    async fn pause_masters(&mut self) {
        let count = self.random.usize(3..=5);
        self.mark(format!("{count} masters hang"));
        for server in &self.pair.servers[..count] {
            server.pause().unwrap();
        }
        self.last(500..9_000).await;
        self.mark("they continue");
        for server in &self.pair.servers[..count] {
            server.resume().unwrap();
        }
    }

    async fn empty_masters(&mut self) {
        self.mark("all masters are killed");
        for server in self.pair.servers.iter() {
            server.kill();
        }
        for server in self.pair.servers.iter() {
            server.restart_empty().unwrap();
        }
        self.mark("all are back, without memory");
        let holder = &self.pair.clusters[self.held.cluster].replicas[self.held.replica];
        eventually(BOUND, "the lease is lost", async || {
            let lock = holder.lock();
            if lock["role"] == "Active" {
                Err(lock)
            } else {
                Ok(())
            }
        })
        .await;
    }

    async fn restart_operators(&mut self) {
        let mut order: Vec<(usize, usize)> = vec![(0, 0), (0, 1), (1, 0), (1, 1)];
        self.random.shuffle(&mut order);
        for (cluster, replica) in order {
            self.held.cluster = cluster;
            if self.random.bool() {
                self.kill(replica).await;
                self.start(replica).await;
            } else {
                self.held.replica = replica;
                self.rollout().await;
            }
            // The caller either waits like a Deployment, or continues like an impatient user.
            if self.random.bool() {
                let replica = &self.pair.clusters[cluster].replicas[replica];
                eventually(BOUND, "the replica is ready", async || {
                    if replica.is_ready() { Ok(()) } else { Err(()) }
                })
                .await;
            }
        }
    }

    async fn step_down(&mut self) {
        let cluster = self.pair.clusters[self.held.cluster].name;
        self.mark(format!("{cluster}: state SteppedDown"));
        let spec = json!({"state": "SteppedDown", "reason": "the test"});
        self.pair.clusters[self.held.cluster].set_lock(&spec).await;
        self.wait_for_other().await;
        self.mark(format!("{cluster}: state Enabled"));
        let spec = json!({"state": "Enabled", "reason": null});
        self.pair.clusters[self.held.cluster].set_lock(&spec).await;
    }

    async fn kill_all(&mut self) {
        for replica in 0..2 {
            self.kill(replica).await;
        }
        self.wait_for_other().await;
        self.last(1_000..3_000).await;
        for replica in 0..2 {
            self.start(replica).await;
        }
    }

    async fn cut_from_all(&mut self) {
        let cluster = self.pair.clusters[self.held.cluster].name;
        self.mark(format!(
            "{cluster} is cut off from the masters and its API server"
        ));
        self.pair.clusters[self.held.cluster].set_all(Mode::BlackHole);
        self.wait_for_other().await;
        sleep(Duration::from_secs(number("REDLOCK_CUT_SECONDS", 0))).await;
        self.last(1_000..3_000).await;
        self.mark(format!("{cluster} reaches both again"));
        self.pair.clusters[self.held.cluster].set_all(Mode::Pass);
    }

    fn any_mode(&mut self) -> Mode {
        let modes = [Mode::BlackHole, Mode::Reset, Mode::LoseReplies];
        modes[self.random.usize(..modes.len())]
    }

    /// Waits until the work runs in the other cluster.
    async fn wait_for_other(&mut self) {
        let other = &self.pair.clusters[self.held.other_cluster()];
        eventually(BOUND, "the work continues in the other cluster", async || {
            let runs = self.pair.work.runs(other, &self.pair.recorder).await;
            if runs { Ok(()) } else { Err(self.pair.leases()) }
        })
        .await;
    }
}
