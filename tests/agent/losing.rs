//! Tests masters that are missing, at the start and later.

use std::time::Instant;

use nix::sys::signal::Signal;

use crate::fixture::{Agent, BOUND, LEASE, masters};
use crate::program::init;
use redlock_testkit::{RedisServers, ServerOptions, eventually_blocking, free_port};

#[test]
fn masters_that_are_down_at_the_start_are_waited_for() {
    let servers = RedisServers::start(3, &ServerOptions::default()).unwrap();
    let urls = servers.urls().join(",");
    for server in servers.iter() {
        server.kill();
    }
    let mut agent = Agent::start("one", &urls);
    let line = agent.child.wait_for_line(BOUND, "cannot be used yet");
    assert!(line.contains("no majority of the masters answers"), "{line}");
    assert_eq!(agent.get("/v1/active").0, 503);
    let lock = agent.lock();
    assert_eq!(
        (&lock["role"], &lock["quorum"]),
        (&"Unknown".into(), &serde_json::Value::Null)
    );
    assert_eq!(agent.json("/")["name"], "");
    assert_eq!(agent.post("/v1/step-down").0, 503);
    agent.wait_alive();
    let (status, body) = agent.get("/readyz");
    assert_eq!(status, 503);
    assert!(body.contains("no majority of the masters answers"), "{body}");

    for server in servers.iter() {
        server.restart().unwrap();
    }
    let line = agent.child.wait_for_line(BOUND, "no master was ever sealed");
    assert!(line.contains("redlock init"), "{line}");
    init(&servers, &[], &[]);
    agent.wait_active();
    agent.wait_ready();
}

#[test]
fn agent_that_waits_for_masters_ends_on_sigterm() {
    let urls = [free_port().unwrap(), free_port().unwrap(), free_port().unwrap()]
        .map(|port| format!("redis://127.0.0.1:{port}"));
    let mut agent = Agent::start("one", &urls.join(","));
    agent.child.signal(Signal::SIGTERM);
    let (status, _) = agent.child.wait(BOUND);
    assert_eq!(status.code(), Some(0), "{:?}", agent.child.stderr());
}

#[test]
fn without_a_majority_the_agent_is_active_until_its_lease_ends_and_then_the_holder_is_unknown() {
    let (servers, urls) = masters();
    let one = Agent::start("one", &urls);
    one.wait_active();
    servers[0].pause().unwrap();
    // The loss of one of three changes nothing.
    let begun = Instant::now();
    eventually_blocking(BOUND, "renewed on two of three", || {
        assert_eq!(one.get("/v1/active").0, 200);
        (begun.elapsed() > LEASE).then_some(()).ok_or(())
    });
    servers[1].pause().unwrap();
    servers[2].pause().unwrap();
    // The last renewal began before this time.
    let paused = Instant::now();
    let mut last_active = paused;
    let end = eventually_blocking(BOUND, "not active any more", || {
        let asked = Instant::now();
        match one.get("/v1/active") {
            (200, body) => {
                last_active = asked;
                Err(body)
            }
            other => Ok(other),
        }
    });
    println!(
        "last active {:?} after the masters hung; then {}",
        last_active - paused,
        end.0
    );
    assert!(last_active < paused + LEASE);
    one.wait(503);
    assert_eq!(one.get("/readyz").0, 503);
    one.wait_alive();
    for server in servers.iter() {
        server.resume().unwrap();
    }
    one.wait_active();
}

/// A standby answers 409 beside an active process; here no process can become active.
#[test]
fn masters_that_refuse_writes_make_an_agent_without_a_holder_unavailable() {
    let (servers, urls) = masters();
    for server in servers.iter().take(2) {
        server.set_config("maxmemory", "1").unwrap();
    }
    let agent = Agent::start("one", &urls);
    eventually_blocking(BOUND, "the refusal is known", || match agent.get("/readyz") {
        (503, body) if body.contains("OOM") => Ok(()),
        other => Err(other),
    });
    assert_eq!(agent.get("/v1/active").0, 503);
    assert_eq!(agent.lock()["quorum"], "1/3");
    for server in servers.iter().take(2) {
        server.set_config("maxmemory", "0").unwrap();
    }
    agent.wait_active();
    agent.wait_ready();
}

#[test]
fn it_is_not_ready_before_the_masters_were_asked() {
    let (servers, urls) = masters();
    servers.iter().for_each(|server| server.pause().unwrap());
    let agent = Agent::start("one", &urls);
    let (status, body) = agent.get("/readyz");
    assert_eq!(status, 503, "{body}");
    servers.iter().for_each(|server| server.resume().unwrap());
    agent.wait_active();
    agent.wait_ready();
}
