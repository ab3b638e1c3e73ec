//! Tests `/v1/watch`: the events that its readers receive, their order, and that no reader can harm the agent.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::fixture::{Agent, BOUND, Events, LEASE, masters, reader};
use redlock_testkit::eventually_blocking;

/// See `src/agent/http.rs`.
const READERS: usize = 256;

/// Returns the changes without the times in which the masters of a busy machine answered too late.
fn changes(events: &Events) -> Vec<(String, String)> {
    let mut changes = events.changes();
    changes.retain(|(role, _)| role != "Unknown");
    changes.dedup();
    changes
}

/// Reports whether the agent is not active, and knows no holder. The masters may have answered too late.
fn is_idle((role, holder): &(String, String)) -> bool {
    ["Standby", "Unknown"].contains(&role.as_str()) && holder.is_empty()
}

fn change(role: &str, holder: &str) -> (String, String) {
    (role.to_owned(), holder.to_owned())
}

#[test]
fn every_change_is_reported_in_order_and_renewals_as_such() {
    let (_servers, urls) = masters();
    let mut one = Agent::start("one", &urls);
    one.wait_active();
    let two = Agent::start("two", &urls);
    two.wait_knows("one");
    let (of_one, of_two) = (Events::of(&one), Events::of(&two));
    let stands_by = |events: &Events, holder: &str| {
        events.until(&format!("it stands by for {holder}"), |(_, lock)| {
            lock["role"] == "Standby" && lock["holder"] == holder
        });
    };
    stands_by(&of_two, "one");
    // The first event arrives at once.
    of_one.until("the first event", |_| true);
    assert_eq!(of_one.changes(), [change("Active", "one")]);
    of_one.until("a renewal", |(name, _)| name == "renewed");
    let all = of_one.all();
    let until = |at: usize| all[at].1["validUntilBootMilliseconds"].as_u64().unwrap();
    assert!(until(all.len() - 1) > until(0), "{all:?}");

    one.step_down();
    stands_by(&of_one, "two");
    of_two.until("active", |(_, lock)| lock["role"] == "Active");
    println!("{:?}\n{:?}", of_one.changes(), of_two.changes());
    let seen = of_one.changes();
    assert_eq!(seen[0], change("Active", "one"));
    assert!(is_idle(&seen[1]), "{seen:?}");
    assert_eq!(changes(&of_one).last(), Some(&change("Standby", "two")));
    assert_eq!(changes(&of_two).first(), Some(&change("Standby", "one")));
    assert_eq!(changes(&of_two).last(), Some(&change("Active", "two")));
    for events in [&of_one, &of_two] {
        let all = events.all().into_iter();
        let tokens: Vec<u64> = all.filter_map(|(_, lock)| lock["token"].as_u64()).collect();
        assert!(tokens.is_sorted(), "{tokens:?}");
    }

    // The last event reports the end, then the stream ends.
    two.child.signal(Signal::SIGTERM);
    eventually_blocking(BOUND, "the stream ends", || {
        of_two.have_ended().then_some(()).ok_or(of_two.all())
    });
    let seen = of_two.changes();
    assert!(seen.last().is_some_and(is_idle), "{seen:?}");
    one.child.signal(Signal::SIGTERM);
    assert_eq!(one.child.wait(BOUND).0.code(), Some(0));
}

/// Returns the first line of an answer.
fn beginning(stream: TcpStream) -> String {
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn readers_that_do_not_read_hold_nothing_up() {
    let (_servers, urls) = masters();
    let mut one = Agent::start("one", &urls);
    one.wait_active();
    let mut lazy: Vec<_> = (0..READERS).map(|_| reader(&one)).collect();
    // A request that arrives before all of these have a place would take the place of the last one.
    for stream in &lazy {
        stream.set_read_timeout(Some(BOUND)).unwrap();
        assert_eq!(stream.peek(&mut [0]).unwrap(), 1, "an answer, not read");
    }
    let refused = beginning(reader(&one));
    assert!(refused.starts_with("HTTP/1.0 503"), "{refused}");
    // The lease is renewed and requests are answered nevertheless.
    let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
    let token = one.lock()["token"].clone();
    eventually_blocking(BOUND, "longer than a lease", || {
        let asked = Instant::now();
        let (status, body) = one.get("/v1/active");
        slowest = slowest.max(asked.elapsed());
        assert_eq!(status, 200, "{body}");
        (begun.elapsed() > LEASE + Duration::from_secs(1))
            .then_some(())
            .ok_or(())
    });
    println!("slowest answer with {READERS} readers: {slowest:?}");
    assert_eq!(one.lock()["token"], token, "the lease was kept");
    // A place becomes free when its reader leaves.
    lazy.clear();
    let events = eventually_blocking(BOUND, "a new reader", || {
        let events = Events::of(&one);
        eventually_blocking(BOUND, "an answer", || {
            (events.have_ended() || !events.all().is_empty())
                .then_some(())
                .ok_or(())
        });
        (!events.all().is_empty()).then_some(events).ok_or("refused")
    });
    assert_eq!(events.changes(), [change("Active", "one")]);
    let _lazy: Vec<_> = (0..READERS / 2).map(|_| reader(&one)).collect();
    one.child.signal(Signal::SIGTERM);
    assert_eq!(one.child.wait(BOUND).0.code(), Some(0));
}
