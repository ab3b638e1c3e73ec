//! Causes the faults of a node and its pods, and the faults that fenced pods survive.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use nix::sys::signal::Signal;
use redlock_testkit::{Mode, eventually};
use serde_json::json;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::super::cluster::{Cluster, NAMESPACE};
use super::super::fenced_node::{FencedNode, Part};
use super::super::pair::BOUND;
use super::Acts;

/// The time from the report that a pod is ready to the signal to the pod that it replaces: the status, two
/// controllers and a kubelet.
const REPLACED: Duration = Duration::from_millis(200);

/// The way in which one of the two processes that freeze pods is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Killed,
    Paused,
}

impl Acts<'_> {
    const fn cluster(&mut self) -> &mut Cluster {
        &mut self.pair.clusters[self.held.cluster]
    }

    fn node(&mut self) -> &mut FencedNode {
        self.cluster().node.as_mut().expect("pods that are processes")
    }

    /// Cuts the whole cluster off, without one of the two processes that freeze pods.
    pub(super) async fn cut_off_without(&mut self, part: Part, without: Without) {
        let cluster = self.cluster().name;
        self.mark(format!("{without:?} on the node of {cluster}: {part:?}"));
        match without {
            Without::Killed => self.node().kill_part(part),
            Without::Paused => block_in_place(|| self.node().process(part).freeze()),
        }
        self.mark(format!(
            "{cluster} is cut off from the masters and its API server"
        ));
        self.cluster().set_all(Mode::BlackHole);
        self.wait_for_other().await;
        self.last(500..2_000).await;
        self.mark(format!("{cluster} reaches both again, and its {part:?} runs"));
        self.cluster().set_all(Mode::Pass);
        match without {
            Without::Killed => self.node().start_part(part),
            Without::Paused => self.node().process(part).signal(Signal::SIGCONT),
        }
    }

    pub(super) async fn cut_operator_and_agent(&mut self) {
        let mode = self.any_mode();
        let cluster = self.cluster().name;
        self.mark(format!(
            "the replicas and the agent of {cluster} are cut off ({mode:?})"
        ));
        self.set_operator_and_agent(mode);
        self.wait_for_other().await;
        self.last(500..2_000).await;
        self.mark("they reach masters and API server again");
        self.set_operator_and_agent(Mode::Pass);
    }

    fn set_operator_and_agent(&mut self, mode: Mode) {
        self.cluster().set_masters(mode);
        self.cluster().set_api(mode);
        self.node().api.set(mode);
    }

    /// Deletes a pod by force: its kubelet does not notice, and the operator cannot know when the pod has
    /// ended.
    pub(super) async fn force_delete(&mut self) {
        let agent = self.node().process(Part::Agent).pid();
        let without_masters = self.random.bool();
        let cluster = self.cluster();
        let name = cluster.name;
        let pods = Api::<Pod>::namespaced(cluster.client.clone(), NAMESPACE);
        let found = eventually(BOUND, "the pods are listed", async || {
            pods.list(&ListParams::default()).await
        })
        .await;
        if without_masters {
            cluster
                .masters
                .iter()
                .for_each(|master| master.set_for(agent, Mode::BlackHole));
        }
        let masters = if without_masters { " and the masters" } else { "" };
        self.mark(format!(
            "the node of {name} is cut off from its API server{masters}"
        ));
        self.node().api.set(Mode::BlackHole);
        self.node().kubelet_api.set(Mode::BlackHole);
        for pod in found {
            self.mark(format!("{} is deleted by force", pod.name_any()));
            let now = DeleteParams::default().grace_period(0);
            eventually(BOUND, "the pod is deleted", async || {
                pods.delete(&pod.name_any(), &now).await.map(|_| ())
            })
            .await;
        }
        self.mark(format!("{name}: state SteppedDown"));
        let spec = json!({"state": "SteppedDown", "reason": "the test"});
        self.cluster().set_lock(&spec).await;
        self.wait_for_other().await;
        self.last(500..2_000).await;
        self.mark(format!("{name}: the node reaches all again; state Enabled"));
        self.cluster().set_masters_alike();
        self.node().api.set(Mode::Pass);
        self.node().kubelet_api.set(Mode::Pass);
        let spec = json!({"state": "Enabled", "reason": null});
        self.cluster().set_lock(&spec).await;
    }

    pub(super) async fn crash_replica(&mut self) {
        let replica = self.random.usize(0..2);
        self.kill(replica).await;
        self.last(0..2_000).await;
        self.start(replica).await;
    }

    /// Replaces one replica after the other, each once the kubelet has reported the previous one as ready.
    pub(super) async fn rollout_operator(&mut self) {
        for replica in [1 - self.held.replica, self.held.replica] {
            let cluster = self.cluster();
            let name = cluster.replicas[replica].name.clone();
            cluster.set_pod_status(replica, false).await;
            cluster.replicas[replica].signal(Signal::SIGTERM);
            block_in_place(|| cluster.replicas[replica].wait());
            self.mark(format!("{name} has ended by SIGTERM"));
            self.start(replica).await;
            let started = &self.pair.clusters[self.held.cluster].replicas[replica];
            eventually(BOUND, "the replica is ready", async || {
                if started.is_ready() { Ok(()) } else { Err(()) }
            })
            .await;
            // The kubelet probes a replica every 2 s.
            let probed = Duration::from_millis(self.random.u64(..2_000));
            sleep(probed + REPLACED).await;
        }
    }

    pub(super) async fn rollout_part(&mut self, part: Part) {
        let cluster = self.cluster().name;
        self.mark(format!("SIGTERM to the {part:?} of {cluster}"));
        match part {
            Part::Guardian => block_in_place(|| self.node().replace_guardian()),
            Part::Agent => {
                block_in_place(|| self.node().stop_agent());
                // The time in which a DaemonSet starts the next pod.
                self.last(0..1_500).await;
                self.node().start_part(part);
            }
        }
        self.mark(format!("the {part:?} of {cluster} is replaced"));
    }
}
