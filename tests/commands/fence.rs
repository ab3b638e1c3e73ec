//! Tests `redlock fence` on a state directory without an agent or cgroups. `crates/redlock-node` has both.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::program::{Ran, redlock};

/// Stores a pod in the way in which an agent stores a killed pod.
fn entry(folder: &Path, uid: &str, state: &serde_json::Value) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let entry = json!({
        "version": 1, "bootId": boot.trim(), "generation": 1,
        "pod": {"uid": uid, "namespace": "billing", "name": "report-0"},
        "cgroup": folder.join(format!("pod{uid}")), "targets": [], "declared": "billing/report",
        "lock": {
            "name": "billing/report", "cluster": {"name": "eu-1", "uid": "u"},
            "leaseMilliseconds": 15000, "retryMilliseconds": 2000,
            "quorum": {
                "name": "default", "masters": [], "keyPrefix": "redlock", "longestLeaseMilliseconds": 60000,
                "acquireLimitMilliseconds": 2000, "commandTimeoutMilliseconds": 500,
            },
        },
        "end": {"bootNanoseconds": 0}, "starts": false, "state": state, "why": "few masters answered",
    });
    fs::write(folder.join("pods").join(uid), entry.to_string()).unwrap();
}

#[test]
fn pods_of_a_node_are_listed_and_one_is_released_after_a_confirmation() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    let fence = |arguments: &[&str]| -> Ran {
        let (command, rest) = arguments.split_at(1);
        redlock(&[&["fence"], command, &["--state-dir", state], rest].concat())
    };
    let nothing = ["fence", "list", "--state-dir", "/nonexistent"];
    redlock(&nothing).expect(
        78,
        &["/nonexistent/pods", "--state-dir DIR", "as root on their node"],
    );
    for name in ["pods", "acknowledged", "releases", "poduid-1", "kubelet/pods"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    fence(&["list"]).expect(0, &["no fenced pod on this node", "--kubelet-dir"]);
    fs::write(folder.path().join("poduid-1/cgroup.freeze"), "1").unwrap();
    fs::write(folder.path().join("poduid-1/cgroup.kill"), "").unwrap();
    entry(folder.path(), "uid-1", &json!({"killed": {"start": null}}));
    let kubelet = folder.path().join("kubelet");
    let listed = fence(&["list", "--kubelet-dir", kubelet.to_str().unwrap()]);
    listed.expect(
        0,
        &[
            "billing",
            "report-0",
            "killed",
            "few masters answered",
            "none acts",
            "has not reported",
        ],
    );
    assert!(!listed.stdout.contains("--kubelet-dir"), "{listed:#?}");

    fence(&["release", "report-0"]).expect(
        64,
        &[
            "pod billing/report-0 (UID uid-1)",
            "run the same work beside this pod",
            "nothing was done",
            "--yes",
        ],
    );
    fence(&["release", "report-0", "--yes"]).expect(64, &["--reason"]);
    fence(&["release", "report-0", "--yes", "--reason", " "]).expect(64, &["--reason is empty"]);
    fence(&["release", "report-1"]).expect(
        78,
        &["no record of a pod \"report-1\"", "it has: billing/report-0"],
    );
    let json = fence(&["list", "-o", "json"]).expect(0, &[]).json();
    assert_eq!(json["pods"][0]["state"], "killed", "so far only words: {json:#}");
    let frozen = || fs::read_to_string(folder.path().join("poduid-1/cgroup.freeze")).unwrap();
    assert_eq!(frozen(), "1");

    let released = fence(&["release", "billing/report-0", "--yes", "--reason", "INC-42"]);
    released.expect(
        0,
        &[
            "is released",
            "reason: INC-42",
            "no node agent acts",
            "no node guardian runs",
        ],
    );
    assert_eq!(frozen(), "0");
    let json = fence(&["list", "-o", "json"]).expect(0, &[]).json();
    let pod = &json["pods"][0];
    assert_eq!(
        (&pod["state"], &pod["reason"]),
        (&json!("released"), &json!("released by hand: INC-42"))
    );
    fence(&["release", "uid-1", "--yes", "--reason", "x"]).expect(1, &["is released already: INC-42"]);
}
