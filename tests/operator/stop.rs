//! Tests SIGTERM and SIGINT: everything is released, and the process ends within 2 s.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::replica::{BOUND, Folder, Replica, masters, released_in_time};
use redlock_testkit::{RedisServer, eventually_blocking};

const PROMISED: Duration = Duration::from_secs(2);
/// The time for which a busy machine may pause during the stop: one that was short of memory took 18 s.
const BUSY: Duration = Duration::from_secs(25);
/// A round is repeated when a busy machine left the replica no time to release its locks.
const ROUNDS: usize = 5;

fn ends_well(mut replica: Replica, signal: Signal) -> Vec<String> {
    replica.child.signal(signal);
    let (status, took) = replica.child.wait(BOUND);
    assert_eq!(status.code(), Some(0), "{:#?}", replica.child.stderr());
    assert!(
        took < PROMISED + BUSY,
        "it took {took:?}: {:#?}",
        replica.child.stderr()
    );
    replica.child.stderr()
}

#[tokio::test]
async fn the_locks_are_given_back() {
    let masters = masters(3).await;
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let released = (0..ROUNDS).any(|_| are_given_back(&masters, signal));
        assert!(released, "{signal}: no round released its locks in time");
    }
}

/// Returns `false` if the locks could not be released in time.
fn are_given_back(masters: &[RedisServer], signal: Signal) -> bool {
    let folder = Folder::with(masters, &["a", "b"]);
    let first = Replica::start("first", &folder);
    let tokens = [first.wait_active("a"), first.wait_active("b")];
    let mut second = Replica::start("second", &folder);
    second.wait_ready();
    eventually_blocking(BOUND, "the second knows the first", || {
        let lock = second.lock("b");
        (lock["holderIdentity"] == "first").then_some(()).ok_or(lock)
    });
    let lines = ends_well(first, signal);
    if !released_in_time(&lines) {
        return false;
    }
    assert!(
        lines.iter().any(|line| line.contains("lease given up")),
        "{lines:#?}"
    );
    assert!(second.wait_active("a") > tokens[0]);
    assert!(second.wait_active("b") > tokens[1]);
    let after = second.child.wait_for_line(BOUND, "lease acquired");
    assert!(after.contains("\"after\":\"release\""), "{after:?}");
    true
}

#[tokio::test]
async fn lock_is_given_up_with_one_master_hung() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let first = Replica::start("first", &folder);
    first.wait_active("a");
    masters[1].pause().unwrap();
    ends_well(first, Signal::SIGTERM);
    let second = Replica::start("second", &folder);
    second.wait_active("a");
}

#[tokio::test]
async fn replica_ends_with_every_master_hung_or_gone() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let first = Replica::start("first", &folder);
    first.wait_active("a");
    for master in &masters {
        master.pause().unwrap();
    }
    ends_well(first, Signal::SIGTERM);
    let second = Replica::start("second", &folder);
    for master in &masters {
        master.kill();
    }
    ends_well(second, Signal::SIGTERM);
    ends_well(Replica::start("third", &folder), Signal::SIGTERM);
}

/// `timeout` and shells send a signal to the process and then to its group.
#[tokio::test]
async fn a_second_signal_takes_nothing_from_the_first() {
    let masters = masters(3).await;
    let released = (0..ROUNDS).any(|_| {
        let folder = Folder::with(&masters, &["a"]);
        let first = Replica::start("first", &folder);
        first.wait_active("a");
        first.child.signal(Signal::SIGTERM);
        first.child.signal(Signal::SIGINT);
        let lines = ends_well(first, Signal::SIGTERM);
        let given_up = lines.iter().any(|line| line.contains("lease given up"));
        assert!(given_up || !released_in_time(&lines), "{lines:#?}");
        given_up
    });
    assert!(released, "no round released its lock in time");
}
