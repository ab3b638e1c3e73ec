//! Tests `--config FILE`: the commands that inspect masters read the operator's own manifest.

use crate::program::{redlock, sealed_by, until};
use crate::replica::{Folder, Replica, lock, quorum, servers};

#[tokio::test]
async fn masters_that_were_initialised_by_the_manifest_are_those_of_the_operator() {
    let servers = servers(3);
    let folder = Folder::new(&[(
        "all.yaml",
        &format!("{}---\n{}", quorum(&servers, ""), lock("a", "")),
    )]);
    let file = folder.path().join("all.yaml");
    let file = file.to_str().unwrap();
    sealed_by(&servers, || vec![redlock(&["init", "--config", file])]);
    let replica = Replica::start("r", &folder);
    replica.wait_active("a");
    let ran = until(|| redlock(&["status", "--config", file]), 0, &[]);
    assert!(ran.shows("ns/a") || ran.shows("m2"), "{ran:#?}");
}

#[test]
fn a_file_without_one_usable_quorum_is_named() {
    let servers = servers(3);
    let good = quorum(&servers, "");
    let folder = Folder::new(&[
        ("none.yaml", &lock("a", "")),
        ("two.yaml", &two(&good)),
        ("bad.yaml", &good.replace("name: m1", "name: m0")),
    ]);
    for (file, part) in [
        ("none.yaml", "no usable RedisQuorum"),
        ("two.yaml", "2 RedisQuorums"),
        ("bad.yaml", "spec.masters[1].name"),
        ("gone.yaml", "cannot be read"),
    ] {
        let path = folder.path().join(file);
        redlock(&["status", "--config", path.to_str().unwrap()]).expect(78, &[file, part]);
    }
}

/// Returns two quorums that share no master.
fn two(quorum: &str) -> String {
    let other = quorum
        .replace("{name: default}", "{name: other}")
        .replace("127.0.0.1", "127.0.0.2");
    format!("{quorum}---\n{other}")
}
