//! Tests `--contain` where no cgroup can be created: it is refused before the lock is contended for, with the
//! reason and the remedy.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::process::Command;

use redlock_testkit::ChildGuard;

use crate::common::cgroups::{self, Made};
use crate::wrapper::BOUND;

/// Nothing listens there: an attempt to contend ends with 69.
const RUN: &str =
    "run l --masters redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3 --contain -- echo no";
const REFUSED: &str = "redlock: --contain cannot give the command a cgroup of its own: ";
const NOBODY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
/// A separate mount namespace, even for a user without rights.
const UNSHARED: &[&str] = &["unshare", "--map-root-user", "--mount"];

/// Runs the command in a shell after the commands `before`. The program `by` starts the shell.
fn refused(by: &[&str], before: &str, texts: &[&str]) {
    let script = format!("set -e; {before}; exec {} {RUN}", env!("CARGO_BIN_EXE_redlock"));
    let words: Vec<&str> = by.iter().copied().chain(["sh", "-c", &script]).collect();
    let mut command = Command::new(words[0]);
    crate::common::forget_variables(&mut command);
    let mut child = ChildGuard::spawn("redlock run --contain", command.args(&words[1..]));
    let (status, _) = child.wait(BOUND);
    let (out, err) = (child.stdout().join("\n"), child.stderr().join("\n"));
    assert_eq!((status.code(), out.as_str()), (Some(78), ""), "{err}");
    for text in [&[REFUSED], texts].concat() {
        assert!(err.contains(text), "{text:?} is not in {err}");
    }
}

/// Returns the mount point of cgroup2, or `None` after a report.
fn mount(untested: &str) -> Option<String> {
    let mount = cgroups::mount();
    if let Err(why) = &mount {
        let _ = writeln!(std::io::stderr(), "NOT TESTED: {untested}: {why}");
    }
    Some(mount.ok()?.to_str().unwrap().to_owned())
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn user_without_rights_is_refused() {
    if mount("a user without rights").is_none() {
        return;
    }
    let texts = [
        "creating the cgroup /",
        "this user may not create cgroups there",
        "systemd-run --user --scope -p Delegate=yes",
        "Permission denied",
    ];
    let untested = |why: &str| {
        let _ = writeln!(std::io::stderr(), "NOT TESTED: a user without rights: {why}");
    };
    match (is_root(), cgroups::own()) {
        // The file system is read-only, which is another reason.
        (_, Err(why)) if why.contains("Read-only file system") => untested(&why),
        (true, _) => refused(NOBODY, ":", &texts),
        (false, Err(_)) => refused(&["env"], ":", &texts),
        (false, Ok(own)) => untested(&format!("this one may write {}", own.display())),
    }
}

/// The directory can be created, but no process can be moved: the cgroup of `redlock run` is not the user's.
#[test]
fn user_without_the_right_to_move_processes_is_refused_and_nothing_is_left() {
    let Some(own) = cgroups::own_or_report("a user who may not move processes") else {
        return;
    };
    if !is_root() {
        let _ = writeln!(
            std::io::stderr(),
            "NOT TESTED: a user who may not move processes: only root can become one"
        );
        return;
    }
    let parent = Made::below(&own, "moving").unwrap();
    chown(&parent.0, Some(65534), None).unwrap();
    let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", parent.0.display());
    let by = [&["sh", "-c", &enter, "sh"], NOBODY].concat();
    refused(
        &by,
        ":",
        &[
            "moving a process into the cgroup by /",
            "this user may not move processes out of the cgroup of this process",
        ],
    );
    assert!(cgroups::below(&parent.0).is_empty());
}

#[test]
fn machine_without_cgroup2_is_refused() {
    let Some(mount) = mount("an unmounted cgroup2") else {
        return;
    };
    // In a separate user namespace, cgroup2 may not be unmounted.
    let unshare = Command::new("unshare").args(["--mount", "true"]).output();
    let unshare = unshare.expect("unshare of util-linux");
    if !unshare.status.success() {
        let _ = writeln!(
            std::io::stderr(),
            "NOT TESTED: an unmounted cgroup2: {}",
            String::from_utf8_lossy(&unshare.stderr).trim()
        );
        return;
    }
    let unmount = format!("umount -l {mount}");
    let texts = [
        "no cgroup2 file system is mounted",
        "systemd.unified_cgroup_hierarchy=1",
    ];
    refused(&["unshare", "--mount"], &unmount, &texts);
}

#[test]
fn mount_over_the_tree_is_found() {
    let Some(mount) = mount("a mount over cgroup2") else {
        return;
    };
    let cover = format!("mount -t tmpfs none {mount}");
    refused(UNSHARED, &cover, &["is not in a cgroup2 file system", &mount]);
}

#[test]
fn read_only_tree_is_refused() {
    let Some(mount) = mount("a read-only cgroup2") else {
        return;
    };
    let before = format!("mount -o remount,bind,ro {mount}");
    refused(
        UNSHARED,
        &before,
        &[
            "(the cgroup2 file system is mounted read-only: mount it read-write, or run the container with a writable one)",
            "Read-only file system",
        ],
    );
}

/// A new cgroup below a cgroup with threaded ones cannot hold processes.
#[test]
fn threaded_cgroup_is_refused_and_nothing_left() {
    let Some(own) = cgroups::own_or_report("a threaded cgroup") else {
        return;
    };
    let parent = Made::below(&own, "threaded").unwrap();
    fs::create_dir(parent.0.join("threads")).unwrap();
    fs::write(parent.0.join("threads/cgroup.type"), "threaded").unwrap();
    let before = format!("echo $$ > {}/cgroup.procs", parent.0.display());
    refused(
        &["env"],
        &before,
        &["\"domain invalid\"", "threaded", "/cgroup.type"],
    );
    assert_eq!(cgroups::below(&parent.0), ["threads"]);
}
