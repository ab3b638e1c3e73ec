//! Tests that hostile HTTP clients cost an agent neither its lease nor much memory, and that they do not keep a node agent
//! from its answers.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::common::{forget_variables, http};
use crate::fixture::{Agent, BOUND, masters};
use redlock_testkit::{
    AttackedPaths, ChildGuard, HttpAttack, attack_http, eventually_blocking, free_port, limit_open_files,
};

/// The default limit of many machines, below the connections of the largest attack.
const OPEN_FILES: u64 = 1_024;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn keeps_its_lease(attack: HttpAttack, get: &'static str) {
    let (_servers, urls) = masters();
    let agent = Agent::start_with("one", &urls, |command| {
        command.args(["--identity", "one", "--lease-duration", "10s"]);
        limit_open_files(command, OPEN_FILES);
    });
    let before = agent.wait_active();
    let paths = AttackedPaths {
        // Not a step-down, which would be obeyed.
        post: "/v1/lock",
        get,
    };
    let report = attack_http(agent.child.pid(), address(agent.port), attack, paths);
    assert_eq!(agent.wait_active(), before, "the lease was kept");
    assert_eq!(agent.lock()["leaseTransitions"], 0);
    report.assert_within_bounds();
}

#[test]
fn unfinished_headers_do_not_cost_the_lease() {
    keeps_its_lease(HttpAttack::UnfinishedHeaders, "/metrics");
}

#[test]
fn slow_bodies_do_not_cost_the_lease() {
    keeps_its_lease(HttpAttack::SlowBodies, "/metrics");
}

#[test]
fn big_posts_do_not_cost_the_lease() {
    keeps_its_lease(HttpAttack::BigPosts, "/metrics");
}

#[test]
fn idle_connections_do_not_cost_the_lease() {
    keeps_its_lease(HttpAttack::IdleConnections, "/metrics");
}

#[test]
fn slow_readers_do_not_cost_the_lease() {
    keeps_its_lease(HttpAttack::SlowReaders, "/metrics");
}

#[test]
fn slow_watchers_do_not_cost_the_lease() {
    keeps_its_lease(HttpAttack::SlowReaders, "/v1/watch");
}

/// A kubeconfig of an API server that cannot be reached.
const NOWHERE: &str = "apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: nowhere, user: {}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nowhere}}]
";

#[test]
fn a_node_agent_answers_during_each_attack() {
    // The folder is on tmpfs, as on a node.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["cgroup", "pods", "plugins_registry"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::write(path("kubeconfig"), NOWHERE).unwrap();
    let port = free_port().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    forget_variables(&mut command);
    command
        .args(["node-agent", "--node-name", "n", "--cluster", "test"])
        .args(["--listen", &address(port).to_string()])
        .args([OsStr::new("--state-dir"), path("state").as_os_str()])
        .args([OsStr::new("--cgroup-root"), path("cgroup").as_os_str()])
        .args([OsStr::new("--kubelet-dir"), folder.path().as_os_str()])
        .env("KUBECONFIG", path("kubeconfig"));
    limit_open_files(&mut command, OPEN_FILES);
    let mut agent = ChildGuard::spawn("node-agent", &mut command);
    agent.wait_for_line(BOUND, "node agent started");
    eventually_blocking(BOUND, "the node agent is alive", || {
        match http::get(port, "/livez").map_err(|error| error.to_string())? {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let paths = AttackedPaths {
        post: "/metrics",
        get: "/metrics",
    };
    for attack in HttpAttack::ALL {
        let report = attack_http(agent.pid(), address(port), attack, paths);
        report.assert_within_bounds();
    }
}
