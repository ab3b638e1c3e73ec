//! Tests `--config FILE`: the commands that inspect masters read the operator's own manifest.

use std::path::Path;
use std::process::Command;

use crate::replica::{BOUND, Folder, Replica, lock, quorum, servers};
use redlock_testkit::{ChildGuard, RedisServer, eventually_blocking};

fn redlock(command: &str, config: &Path) -> (Option<i32>, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_redlock"));
    program.args([command, "--config"]).arg(config);
    let mut child = ChildGuard::spawn(command, &mut program);
    let (status, _) = child.wait(BOUND);
    let output = [child.stdout(), child.stderr()].concat().join("\n");
    (status.code(), output)
}

/// Runs the command again while a master on a busy machine answers later than the command waits: after an `init` that
/// ended so, the servers restart empty.
fn answered(command: &str, config: &Path, servers: &[RedisServer]) -> (Option<i32>, String) {
    eventually_blocking(BOUND, command, || {
        let ran = redlock(command, config);
        if ran.0 != Some(69) {
            return Ok(ran);
        }
        if command == "init" {
            servers.iter().for_each(|server| server.restart_empty().unwrap());
        }
        Err(ran)
    })
}

#[tokio::test]
async fn masters_that_were_initialised_by_the_manifest_are_those_of_the_operator() {
    let servers = servers(3);
    let folder = Folder::new(&[(
        "all.yaml",
        &format!("{}---\n{}", quorum(&servers, ""), lock("a", "")),
    )]);
    let file = folder.path().join("all.yaml");
    let (code, output) = answered("init", &file, &servers);
    assert_eq!(code, Some(0), "{output}");
    let replica = Replica::start("r", &folder);
    replica.wait_active("a");
    let (code, output) = answered("status", &file, &servers);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("ns/a") || output.contains("m2"), "{output}");
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
        let (code, output) = redlock("status", &folder.path().join(file));
        assert_eq!(code, Some(78), "{file}: {output}");
        assert!(output.contains(file) && output.contains(part), "{file}: {output}");
    }
}

/// Returns two quorums that share no master.
fn two(quorum: &str) -> String {
    let other = quorum
        .replace("{name: default}", "{name: other}")
        .replace("127.0.0.1", "127.0.0.2");
    format!("{quorum}---\n{other}")
}
