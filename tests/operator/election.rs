//! Tests that one of several replicas is active through all failures.

use nix::sys::signal::Signal;

use crate::replica::{BOUND, Folder, Replica, active, masters};
use redlock_testkit::eventually_blocking;

#[tokio::test]
async fn one_of_three_replicas_is_active_for_each_lock_and_a_killed_one_is_taken_over() {
    let masters = masters(3).await;
    let locks = ["a", "b", "c"];
    let folder = Folder::with(&masters, &locks);
    let mut replicas: Vec<Replica> = ["r1", "r2", "r3"]
        .into_iter()
        .map(|name| Replica::start(name, &folder))
        .collect();
    let holder = active(&replicas, "a").name.clone();
    for lock in locks {
        let one = active(&replicas, lock);
        eventually_blocking(
            BOUND,
            "the replica reports that it holds the lock, and that all masters vote",
            || {
                let seen = one.lock(lock);
                let right = seen["holderIdentity"] == one.name.as_str() && seen["quorum"] == "3/3";
                right.then_some(()).ok_or(seen)
            },
        );
        for other in replicas.iter().filter(|other| other.name != one.name) {
            eventually_blocking(BOUND, "the others are standbys that know the holder", || {
                let lock = other.lock(lock);
                let right = lock["role"] == "Standby" && lock["holderIdentity"] == one.name.as_str();
                right.then_some(()).ok_or(lock)
            });
        }
    }

    let at = replicas.iter().position(|r| r.name == holder).unwrap();
    let token = replicas[at].lock("a")["fencingToken"].as_u64().unwrap();
    let mut killed = replicas.remove(at);
    killed.child.kill();
    let next = active(&replicas, "a").wait_active("a");
    assert!(next > token, "{next} after {token}");
}

#[tokio::test]
async fn replica_that_was_stopped_past_its_lease_logs_the_loss_first() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let mut first = Replica::start("first", &folder);
    let token = first.wait_active("a");
    let second = Replica::start("second", &folder);
    first.child.wait_for_line(BOUND, "lease acquired");
    first.child.freeze();
    let logged = first.child.stderr().len();
    let next = second.wait_active("a");
    assert!(next > token, "{next} after {token}");
    first.child.signal(Signal::SIGCONT);
    let lost = first.child.wait_for_line(BOUND, "lease lost");
    assert!(lost.contains(&token.to_string()), "{lost}");
    let after = first.child.stderr().split_off(logged);
    let of_leases = after.iter().find(|line| line.contains("\"lock\":\"ns/a\""));
    assert_eq!(of_leases, Some(&lost), "{after:#?}");
    assert!(!first.is_active("a"));
}

#[tokio::test]
async fn replica_that_was_stopped_answers_by_the_clock_before_its_first_log_line() {
    let masters = masters(3).await;
    let folder = Folder::with(&masters, &["a"]);
    let first = Replica::start("first", &folder);
    first.wait_active("a");
    for master in &masters {
        master.pause().unwrap();
    }
    // No replica can take over or refuse: the lease ends only by the clock.
    eventually_blocking(BOUND, "the lease has run out", || {
        let lock = first.lock("a");
        (lock["role"] != "Active").then_some(()).ok_or(lock)
    });
    eventually_blocking(BOUND, "no holder is known", || {
        let lock = first.lock("a");
        (lock["role"] == "Unknown").then_some(()).ok_or(lock)
    });
}
