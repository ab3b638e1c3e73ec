//! Agents as shipped: a process for each pod, like a container of the pod.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use redlock::lease::ClusterId;

use crate::common::http;
use crate::fixture::BOUND;
use crate::world::World;
use redlock_testkit::{ChildGuard, RedisServer, eventually, free_port};

pub struct AgentProcess {
    child: ChildGuard,
    port: u16,
}

impl AgentProcess {
    /// Contends for lock `web` of this world's namespace, in the pod of this name and UID.
    pub fn start(world: &World, pod: &str, uid: &str, cluster: &ClusterId, lease: Duration) -> Self {
        let port = free_port().unwrap();
        let namespace = world.namespace.name();
        let urls: Vec<String> = world.masters.iter().map(RedisServer::url).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
        command
            .args([
                "agent",
                &format!("{namespace}/web"),
                "--listen",
                &format!("127.0.0.1:{port}"),
            ])
            .args(["--lease-duration", &format!("{}s", lease.as_secs())])
            .env("REDLOCK_MASTERS", urls.join(","))
            .env("REDLOCK_CLUSTER", cluster.to_string())
            .env("POD_NAMESPACE", namespace)
            .env("POD_NAME", pod)
            .env("POD_UID", uid)
            // The agent has no access to the API server, and must not search for one.
            .env("KUBECONFIG", "/nonexistent")
            .env_remove("REDLOCK_IDENTITY");
        let mut child = ChildGuard::spawn(pod, &mut command);
        child.wait_for_line(BOUND, "agent started");
        Self { child, port }
    }

    async fn wait(&self, status: u16) {
        eventually(
            BOUND,
            &format!("the agent answers {status}"),
            async || match http::get(self.port, "/v1/active") {
                Ok((found, _)) if found == status => Ok(()),
                other => Err(other),
            },
        )
        .await;
    }

    pub async fn holds(&self) {
        self.wait(200).await;
    }

    pub async fn stands_by(&self) {
        self.wait(409).await;
    }

    /// Ends the agent like the kubelet does: the agent releases the lock.
    pub fn release(mut self) {
        self.child.signal(Signal::SIGTERM);
        assert_eq!(self.child.wait(BOUND).0.code(), Some(0));
    }

    /// Kills the agent, which then no longer renews and reports nothing.
    pub fn kill(mut self) {
        self.child.kill();
    }
}
