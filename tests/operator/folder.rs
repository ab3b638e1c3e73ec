//! Tests that the operator follows the folder.

use std::fs;
use std::os::unix::fs::symlink;

use crate::replica::{BOUND, Folder, Replica, lock, masters, quorum};
use redlock_testkit::eventually_blocking;

fn wait_gone(replica: &Replica, name: &str) {
    eventually_blocking(BOUND, &format!("lock {name} is gone"), || {
        let lock = replica.lock(name);
        lock.is_null().then_some(()).ok_or(lock)
    });
}

#[tokio::test]
async fn locks_are_added_changed_and_removed() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let mut first = Replica::start("first", &folder);
    first.wait_active("a");
    folder.write("b.yaml", &lock("b", ""));
    first.wait_active("b");

    folder.write("b.yaml", &lock("b", ", state: SteppedDown, reason: drill"));
    first.child.wait_for_line(BOUND, "\"reason\":\"SteppedDown\"");
    eventually_blocking(BOUND, "b is given up", || {
        let lock = first.lock("b");
        (lock["role"] == "Standby" && lock["holderIdentity"].is_null())
            .then_some(())
            .ok_or(lock)
    });
    folder.write("b.yaml", &lock("b", ""));
    first.wait_active("b");

    let token = first.wait_active("a");
    folder.remove("b.yaml");
    wait_gone(&first, "b");
    assert_eq!(first.wait_active("a"), token, "the other lock was not touched");
}

#[tokio::test]
async fn changed_quorum_is_reopened_and_removed_one_is_closed() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let mut first = Replica::start("first", &folder);
    let token = first.wait_active("a");
    folder.write(
        "quorum.yaml",
        &quorum(
            &masters,
            "  sharedLockNames: [{prefix: shared/, namespaces: [ns]}]\n",
        ),
    );
    eventually_blocking(BOUND, "a is held anew", || {
        let lock = first.lock("a");
        let anew = lock["role"] == "Active" && lock["fencingToken"].as_u64() > Some(token);
        anew.then_some(()).ok_or(lock)
    });
    folder.remove("quorum.yaml");
    // The quorum of the lock is gone: its lease is released with it.
    wait_gone(&first, "a");
    first.child.wait_for_line(BOUND, "is not declared in this folder");
    eventually_blocking(BOUND, "its series are gone", || {
        let (_, text) = first.get("/metrics");
        let left = text.lines().find(|line| line.contains("quorum=\"default\""));
        left.map_or(Ok(()), |line| Err(line.to_owned()))
    });
    let anew = Folder::with(&masters, &["a"]);
    let second = Replica::start("second", &anew);
    second.wait_active("a");
}

#[tokio::test]
async fn a_command_timeout_changes_without_giving_a_lock_up() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let mut first = Replica::start("first", &folder);
    let token = first.wait_active("a");
    for (file, text, milliseconds) in [
        (
            "quorum.yaml",
            quorum(&masters, "  commandTimeoutMilliseconds: 300\n"),
            "300",
        ),
        ("quorum.yaml", quorum(&masters, ""), "500"),
    ] {
        folder.write(file, &text);
        let line = "command timeout changed\",\"quorum\":\"default\",\"command_timeout_ms\":";
        first.child.wait_for_line(BOUND, &format!("{line}{milliseconds}"));
    }
    // A lock that is too impatient for the quorum is refused by name, and changes nothing for the others.
    folder.write("b.yaml", &lock("b", ", renewDeadlineSeconds: 1"));
    let refused = "three command timeouts of the quorum (commandTimeoutMilliseconds)";
    first.child.wait_for_line(BOUND, refused);
    let changes = first.child.stderr().into_iter();
    let changes = changes.filter(|line| line.contains("command timeout changed"));
    assert_eq!(changes.count(), 2);
    assert_eq!(first.wait_active("a"), token, "held all along");
}

#[tokio::test]
async fn a_mounted_config_map_is_a_link_that_is_swapped() {
    let masters = masters(3).await;
    let folder = Folder::new(&[]);
    let version = |name: &str, locks: &[&str]| {
        let version = folder.path().join(name);
        fs::create_dir(&version).unwrap();
        fs::write(version.join("quorum.yaml"), quorum(&masters, "")).unwrap();
        let all: Vec<String> = locks.iter().map(|name| lock(name, "")).collect();
        fs::write(version.join("locks.yaml"), all.join("---\n")).unwrap();
        symlink(name, folder.path().join("..new")).unwrap();
        fs::rename(folder.path().join("..new"), folder.path().join("..data")).unwrap();
    };
    version("..1", &["a"]);
    for file in ["quorum.yaml", "locks.yaml"] {
        symlink(format!("..data/{file}"), folder.path().join(file)).unwrap();
    }
    let first = Replica::start("first", &folder);
    first.wait_active("a");
    version("..2", &["b"]);
    first.wait_active("b");
    wait_gone(&first, "a");
}

#[tokio::test]
async fn invalid_change_keeps_the_last_valid_version_until_removal() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a", "b"]);
    let mut first = Replica::start("first", &folder);
    let token = first.wait_active("a");
    folder.write("a.yaml", &lock("a", ", retryPeriodSeconds: 5"));
    first.child.wait_for_line(BOUND, "\"last_valid_stays\":true");
    assert_eq!(first.wait_active("a"), token);
    folder.write("a.yaml", &lock("a", ""));
    first.child.wait_for_line(BOUND, "problem resolved");
    assert_eq!(first.wait_active("a"), token);
    // Half a file, as left by an editor that does not replace files atomically.
    folder.write("a.yaml", &lock("a", "").replace('}', ""));
    first.child.wait_for_line(BOUND, "not valid YAML");
    assert_eq!(first.wait_active("a"), token);
    folder.write("a.yaml", &lock("a", ", retryPeriodSeconds: 5"));
    folder.remove("a.yaml");
    wait_gone(&first, "a");
}

#[tokio::test]
async fn a_folder_that_vanishes_changes_nothing_until_it_is_back() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let mut first = Replica::start("first", &folder);
    let token = first.wait_active("a");
    let aside = folder.path().with_extension("aside");
    fs::rename(folder.path(), &aside).unwrap();
    first.child.wait_for_line(BOUND, "folder cannot be read");
    assert_eq!(first.wait_active("a"), token);
    fs::rename(&aside, folder.path()).unwrap();
    first.child.wait_for_line(BOUND, "problem resolved");
    folder.write("b.yaml", &lock("b", ""));
    first.wait_active("b");
    assert_eq!(first.wait_active("a"), token);
}
