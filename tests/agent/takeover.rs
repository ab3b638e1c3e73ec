//! Tests that one of several agents is active through all failures.

use std::time::Instant;

use nix::sys::signal::Signal;

use crate::common::http;
use crate::fixture::{Agent, BOUND, LEASE, masters};
use redlock_testkit::eventually_blocking;

/// A round is repeated when a busy machine left the agent no time to release its lock.
const ROUNDS: usize = 5;

#[test]
fn a_killed_one_is_taken_over_when_its_lease_ends() {
    let (_servers, urls) = masters();
    let mut one = Agent::start("one", &urls);
    let first = one.wait_active();
    let two = Agent::start("two", &urls);
    two.wait_knows("one");
    one.child.kill();
    let killed = Instant::now();
    let next = two.wait_active();
    println!("active {:?} after the kill", killed.elapsed());
    assert!(next > first, "{next} after {first}");
    assert!(killed.elapsed() < LEASE * 2);
}

#[test]
fn sigterm_and_sigint_release_and_the_next_is_active_at_once() {
    let (_servers, urls) = masters();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let released = (0..ROUNDS).any(|_| is_released(&urls, signal));
        assert!(released, "{signal}: no round released its lock in time");
    }
}

/// Returns `false` if the agent could not release its lock in time.
fn is_released(urls: &str, signal: Signal) -> bool {
    let mut one = Agent::start("one", urls);
    let first = one.wait_active();
    let mut two = Agent::start("two", urls);
    two.wait_knows("one");
    let signalled = Instant::now();
    one.child.signal(signal);
    let next = two.wait_active();
    println!("{signal}: active {:?} after it", signalled.elapsed());
    let (status, took) = one.child.wait(BOUND);
    println!("ended after {took:?}");
    assert_eq!(status.code(), Some(0));
    assert!(next > first);
    // Part of the warnings of two time limits.
    let late = "released in time: ";
    if one.child.stderr().iter().any(|line| line.contains(late)) {
        return false;
    }
    let won = two.child.wait_for_line(BOUND, "lease acquired");
    assert!(won.contains("\"after\":\"release\""), "{won}");
    true
}

#[test]
fn with_every_master_hung_the_agent_still_ends() {
    let (servers, urls) = masters();
    let mut one = Agent::start("one", &urls);
    one.wait_active();
    for server in servers.iter() {
        server.pause().unwrap();
    }
    one.child.signal(Signal::SIGTERM);
    let (status, took) = one.child.wait(BOUND);
    assert_eq!(status.code(), Some(0));
    println!("ended after {took:?}");
    assert!(took < LEASE * 2, "{took:?}");
    for server in servers.iter() {
        server.resume().unwrap();
    }
}

#[test]
fn candidate_that_steps_down_leaves_the_lock_to_others_for_a_while() {
    let (_servers, urls) = masters();
    let one = Agent::start("one", &urls);
    let first = one.wait_active();
    let two = Agent::start("two", &urls);
    two.wait_knows("one");
    let asked = Instant::now();
    let body = one.step_down();
    let answered = asked.elapsed();
    assert!(body.contains("\"role\":\"Standby\""), "{body}");
    assert_ne!(one.get("/v1/active").0, 200);
    let next = two.wait_active();
    println!(
        "answered after {answered:?}, the next active after {:?}",
        asked.elapsed()
    );
    assert!(next > first);
    one.wait_knows("two");
    // Without another agent, the agent becomes active again after it has left the others time to take over.
    drop(two);
    assert!(one.wait_active() > next);
    let down = Instant::now();
    one.step_down();
    // The request is also confirmed by an agent that is not active.
    one.step_down();
    one.wait_active();
    assert!(down.elapsed() > LEASE / 2, "back after {:?}", down.elapsed());
}

#[test]
fn one_that_was_frozen_past_its_lease_first_answers_that_it_is_not_active() {
    let (_servers, urls) = masters();
    let one = Agent::start("one", &urls);
    let first = one.wait_active();
    let two = Agent::start("two", &urls);
    two.wait_knows("one");
    one.child.freeze();
    // The requests are sent while the process is stopped, so it answers them before anything else happens.
    let paths = ["/v1/active", "/v1/lock", "/"];
    let asked: Vec<_> = paths
        .iter()
        .map(|path| http::asked("GET", one.port, path).unwrap())
        .collect();
    assert!(two.wait_active() > first);
    one.child.signal(Signal::SIGCONT);
    let answers: Vec<_> = asked
        .into_iter()
        .map(|ask| http::answered(ask).unwrap())
        .collect();
    println!("{answers:#?}");
    assert_ne!(answers[0].0, 200);
    assert!(!answers[1].1.contains("\"role\":\"Active\""));
    assert!(answers[1].1.contains("\"validForMilliseconds\":0"));
    assert_ne!(answers[2].1, "{\"name\":\"one\"}");
    eventually_blocking(BOUND, "it stands by", || match one.get("/v1/active") {
        (409, _) => Ok(()),
        other => Err(other),
    });
}
