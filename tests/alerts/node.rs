//! A real node agent, without an API server, masters and cgroups: it restores one pod from its table.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::common::{forget_variables, http};
use redlock_testkit::{ChildGuard, eventually_blocking, free_port};

const BOUND: std::time::Duration = std::time::Duration::from_secs(60);

/// A pod that was killed: it stays so without masters.
fn store(state_dir: &Path) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let master = |n: u32| json!({"name": format!("m{n}"), "url": "redis://127.0.0.1:1"});
    let entry = json!({
        "version": 1, "bootId": boot.trim(), "generation": 1,
        "pod": {"uid": "00000000-0000-0000-0000-000000000001", "namespace": "team", "name": "report-0"},
        "cgroup": state_dir.join("no-cgroup"), "targets": [], "declared": "team/report",
        "lock": {
            "name": "team/report", "cluster": {"name": "eu-1", "uid": "u"},
            "leaseMilliseconds": 15_000, "retryMilliseconds": 2_000,
            "quorum": {
                "name": "default", "masters": [master(0), master(1), master(2)], "keyPrefix": "redlock",
                "longestLeaseMilliseconds": 60_000, "acquireLimitMilliseconds": 2_000, "commandTimeoutMilliseconds": 500,
            },
        },
        "state": {"killed": {"start": null}},
    });
    let pods = state_dir.join("pods");
    fs::create_dir_all(&pods).unwrap();
    fs::write(
        pods.join("00000000-0000-0000-0000-000000000001"),
        entry.to_string(),
    )
    .unwrap();
    let heartbeat = json!({
        "process": 1, "bootId": boot.trim(), "degraded": [], "pods": 1,
        "beatBootNanoseconds": redlock::clock::now().as_nanos(),
    });
    fs::write(state_dir.join("guardian"), heartbeat.to_string()).unwrap();
}

/// One scrape with every family.
pub fn scrape() -> String {
    let folder = tempfile::tempdir().unwrap();
    let (state, kubelet) = (folder.path().join("state"), folder.path().join("kubelet"));
    for name in ["pods", "plugins_registry"] {
        fs::create_dir_all(kubelet.join(name)).unwrap();
    }
    fs::create_dir(&state).unwrap();
    store(&state);
    let kubeconfig = folder.path().join("kubeconfig");
    let cluster = "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}], contexts: [{name: c, context: \
                   {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}";
    fs::write(&kubeconfig, cluster).unwrap();
    let port = free_port().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    forget_variables(&mut command);
    command
        .args(["node-agent", "--node-name", "node-1", "--cluster", "eu-1"])
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .arg("--state-dir")
        .arg(&state)
        .arg("--kubelet-dir")
        .arg(&kubelet)
        .env("KUBECONFIG", &kubeconfig);
    let _agent = ChildGuard::spawn("node-agent", &mut command);
    eventually_blocking(
        BOUND,
        "a scrape of the node agent with a pod",
        || match http::get(port, "/metrics") {
            Ok((200, body)) if body.contains("redlock_fence_state{") => Ok(body),
            other => Err(other.map_err(|error| error.to_string())),
        },
    )
}
