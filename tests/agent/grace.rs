//! Tests `--stop-grace`: the app gets its grace period before another agent becomes active.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::fixture::{Agent, BOUND, masters};

const GRACE: Duration = Duration::from_secs(1);

fn with_grace(name: &'static str) -> impl FnOnce(&mut Command) {
    move |command| {
        command.args([
            "--identity",
            name,
            "--lease-duration",
            "10s",
            "--stop-grace",
            "1s",
        ]);
    }
}

#[test]
fn the_lock_is_not_released_before_the_app_had_its_time() {
    let (_servers, urls) = masters();
    let mut one = Agent::start_with("one", &urls, with_grace("one"));
    one.wait_active();
    let two = Agent::start_with("two", &urls, with_grace("two"));
    two.wait_knows("one");

    let asked = Instant::now();
    let body = one.step_down();
    assert!(body.contains("\"role\":\"Standby\""), "{body}");
    assert_ne!(one.get("/v1/active").0, 200, "the app knows at once");
    two.wait_active();
    println!("the next is active {:?} after a step down", asked.elapsed());
    assert!(asked.elapsed() >= GRACE);

    // The signal hands the lock back to the first agent.
    one.wait_knows("two");
    let mut two = two;
    let signalled = Instant::now();
    two.child.signal(Signal::SIGTERM);
    one.wait_active();
    println!("the next is active {:?} after SIGTERM", signalled.elapsed());
    assert!(signalled.elapsed() >= GRACE);
    assert_eq!(two.child.wait(BOUND).0.code(), Some(0));

    // An agent that is not active ends at once.
    let mut three = Agent::start_with("three", &urls, with_grace("three"));
    three.wait_knows("one");
    three.child.signal(Signal::SIGTERM);
    let (status, took) = three.child.wait(BOUND);
    assert_eq!(status.code(), Some(0));
    println!("a standby ends {took:?} after SIGTERM");
    one.child.kill();
}

#[test]
fn without_masters_the_app_learns_of_the_loss_before_the_lease_can_end() {
    let (servers, urls) = masters();
    let one = Agent::start_with("one", &urls, with_grace("one"));
    one.wait_active();
    for server in servers.iter() {
        server.pause().unwrap();
    }
    // Each answer describes one moment: while the role is active, at least the grace is left of the lease.
    let begun = Instant::now();
    let mut least = BOUND;
    loop {
        assert!(begun.elapsed() < BOUND, "still active");
        let lock = one.lock();
        if lock["role"] != "Active" {
            break;
        }
        least = least.min(Duration::from_millis(
            lock["validForMilliseconds"].as_u64().unwrap(),
        ));
        assert!(least >= GRACE, "active in the last {least:?}");
        std::thread::yield_now();
    }
    assert!(least < BOUND, "no answer while the agent was active");
    println!("active until {least:?} before the end of the lease");
    for server in servers.iter() {
        server.resume().unwrap();
    }
}
