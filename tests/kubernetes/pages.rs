//! Tests that the commands of pages for a cluster work as printed, command by command: from the installation of the
//! README to the uninstall.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::pages::{Block, Mark, blocks, blocks_for, pages};
use crate::fixture::kubelet::Recorder;
use crate::fixture::{BOUND, ControlPlane, Kubelet, Operator, Options, seed};
use crate::typed::{stays, typed_in};
use redlock_testkit::{RedisServer, ServerOptions, eventually_blocking};

const THIS: &str = "tests/kubernetes/pages.rs";
const INSTALL: &str = "docs/install.md";
/// A Namespace is gone only when all of its pods are, and its controller checks again after half of their longest grace
/// period: 105 s, and up to 53 s more.
const PATIENCE: Duration = Duration::from_secs(240);

/// The placeholders of pages in capital letters, which the reader fills in.
const NAMES: [(&str, &str); 3] = [
    ("NAMESPACE", "billing"),
    ("LOCK", "nightly-report"),
    ("QUORUM", "default"),
];
/// The prerequisites of the pages: namespaces of the reader, and a lock.
const THERE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: billing}
---
apiVersion: redlock.dev/v1alpha1
kind: LeaderLock
metadata: {name: nightly-report, namespace: billing}
spec: {quorumRef: {name: default}}
";

/// Copies the repository, with the urls of these masters where a page asks for them.
fn place(masters: &[RedisServer]) -> TempDir {
    let (root, place) = (
        Path::new(env!("CARGO_MANIFEST_DIR")),
        tempfile::tempdir().unwrap(),
    );
    for name in ["charts", "tests"] {
        std::os::unix::fs::symlink(root.join(name), place.path().join(name)).unwrap();
    }
    let examples = place.path().join("examples");
    fs::create_dir_all(examples.join("kubernetes")).unwrap();
    for entry in root.join("examples/kubernetes").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let mut text = fs::read_to_string(&path).unwrap();
        for (index, master) in masters.iter().enumerate() {
            text = text.replace(&format!("redis://redis-{index}.redis:6379"), &master.url());
        }
        fs::write(examples.join("kubernetes").join(path.file_name().unwrap()), text).unwrap();
    }
    fs::write(place.path().join("there.yaml"), THERE).unwrap();
    // The values on the page of the installation.
    let page = fs::read_to_string(root.join(INSTALL)).unwrap();
    let values = page
        .split("```yaml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    fs::write(place.path().join("values.yaml"), values.expect("values")).unwrap();
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_pages_for_a_cluster_work_as_printed() {
    let plane = ControlPlane::start(Options::default());
    // Helm waits for the pods.
    let _kubelet = Kubelet::start(&plane, "test", seed(), &Recorder::default());
    let masters: Vec<RedisServer> = (0..3)
        .map(|_| RedisServer::start(&ServerOptions::default()).unwrap())
        .collect();
    let place = place(&masters);
    let type_it = |command: &str| typed_in(&plane, place.path(), command);
    let play = |block: &Block| {
        for command in block.commands().iter().filter(|command| !stays(command)) {
            println!("{}:{}: {command}", block.page, block.line);
            let filled = NAMES
                .iter()
                .fold(command.clone(), |text, (blank, name)| text.replace(blank, name));
            type_it(&filled);
        }
    };

    blocks_for("README.md", THIS).iter().for_each(play);
    type_it("kubectl apply -f there.yaml");
    let _operator = Operator::start(&plane, "redlock", "replica-1").await;
    let is_held = || {
        let lock = type_it("kubectl get leaderlock nightly-report -n billing -o json");
        let lock: Value = serde_json::from_str(&lock).unwrap();
        let held = lock["status"]["role"] == "Active";
        held.then_some(()).ok_or(lock["status"].clone())
    };
    eventually_blocking(BOUND, "the lock is held", is_held);

    let all: Vec<Block> = pages().iter().flat_map(|page| blocks(page)).collect();
    let of_cluster = all.iter().filter(|block| block.mark == Some(Mark::Cluster));
    assert!(of_cluster.clone().count() > 5);
    of_cluster.for_each(play);

    // The hook runs in pods, which run nothing here.
    type_it("helm uninstall redlock --namespace redlock --no-hooks");
    type_it("kubectl delete namespace redlock --wait=false");
    eventually_blocking(PATIENCE, "the namespace is gone", || {
        let left = type_it("kubectl get namespace redlock --ignore-not-found -o yaml");
        left.is_empty().then_some(()).ok_or(left)
    });
    blocks_for(INSTALL, THIS).iter().for_each(play);
}
