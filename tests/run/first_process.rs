//! Tests `redlock run` as the first process of a container.

use nix::sys::signal::Signal;

use crate::wrapper::{BOUND, Quorum, Wrapper};
use redlock_testkit::{ChildGuard, eventually_blocking};

/// A separate PID namespace, as in a container. The wrapper is process 1 there.
const CONTAINER: &[&str] = &[
    "unshare",
    "--map-root-user",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
];

#[test]
fn the_first_process_reaps_orphans_and_forwards_signals() {
    let quorum = Quorum::start();
    // Orphans end while the command runs: unless the wrapper reaps them, they would fill the process table.
    let script = "trap 'echo asked; exit 9' TERM; \
                  for n in 1 2 3 4 5; do (sleep 0.1 & sleep 0.05 &) ; done; \
                  (setsid sleep 0.1 &); echo ready; \
                  while :; do sleep 0.1; echo zombies $(cat /proc/[0-9]*/stat | grep -c ') Z '); done";
    let mut command = quorum.command_by(CONTAINER, "l", &["--lease-duration", "60s"], script);
    let mut container = Wrapper::of(ChildGuard::spawn(
        "container (needs unshare of util-linux)",
        &mut command,
    ));
    container.child.wait_for_line(BOUND, "ready");
    eventually_blocking(BOUND, "no zombies", || {
        let lines = container.child.stdout();
        let last = lines.last().cloned().unwrap_or_default();
        let ended = lines.iter().filter(|line| line.starts_with("zombies")).count() > 5;
        if ended && last == "zombies 0" {
            Ok(())
        } else {
            Err(lines)
        }
    });
    // unshare forwards no signal, so the test signals its child, which is process 1 inside.
    let children = format!("/proc/{0}/task/{0}/children", container.child.pid());
    let first: i64 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    crate::wrapper::send(first, Signal::SIGTERM);
    let (code, out, err) = container.end();
    assert_eq!(code, 9, "{out} {err}");
    quorum.is_free("l");
}
