//! Reads the claims on leases from the logs of replicas, with the times of the log lines.

use std::time::Duration;

use redlock::clock;
use serde_json::Value;

use redlock_testkit::ChildGuard;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Acquired,
    /// Released or passed on.
    GivenUp,
    Lost,
}

#[derive(Clone, Debug)]
pub struct Event {
    /// The time since 1970.
    pub at: Duration,
    pub kind: Kind,
    pub lock: String,
    pub token: u64,
    /// The time from the end of the previous lease, as this replica observed it, in milliseconds.
    pub after: Option<f64>,
}

/// Returns all log lines of the replica about leases since this time, in order.
pub fn events(child: &ChildGuard, since: Duration) -> Vec<Event> {
    let lines = child.stderr();
    let lines = lines.iter().filter(|line| line.contains("\"lease "));
    lines
        .filter_map(|line| parse(line))
        .filter(|event| event.at >= since)
        .collect()
}

fn parse(line: &str) -> Option<Event> {
    let line: Value = serde_json::from_str(line).ok()?;
    let kind = match line["message"].as_str()? {
        "lease acquired" => Kind::Acquired,
        "lease given up" => Kind::GivenUp,
        "lease lost" => Kind::Lost,
        _ => return None,
    };
    let lock = line["lock"].as_str()?;
    // The lock by which the replicas elect the reporter is not a lock of a user.
    if lock.starts_with('_') {
        return None;
    }
    let at: jiff::Timestamp = line["timestamp"].as_str()?.parse().ok()?;
    Some(Event {
        at: Duration::from_nanos(u64::try_from(at.as_nanosecond()).ok()?),
        kind,
        lock: lock.to_owned(),
        token: line["token"].as_u64()?,
        after: line["after_ms"].as_f64(),
    })
}

/// Waits until these replicas have logged `kind` for `count` locks since `since`; returns all their log lines
/// about leases.
pub async fn wait_for(children: &[&ChildGuard], kind: Kind, count: usize, since: Duration) -> Vec<Event> {
    let title = format!("{count} times {kind:?}");
    redlock_testkit::eventually(crate::stage::BOUND, &title, async || {
        // A long interval: reading the logs must not disturb the measurement.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let all: Vec<Event> = children.iter().flat_map(|child| events(child, since)).collect();
        let found = all.iter().filter(|event| event.kind == kind).count();
        if found >= count { Ok(all) } else { Err(found) }
    })
    .await
}

pub fn now() -> Duration {
    clock::unix_time()
}

/// Returns `a - b` in milliseconds, negative if `a` is before `b`.
pub fn milliseconds(a: Duration, b: Duration) -> f64 {
    (a.as_secs_f64() - b.as_secs_f64()) * 1e3
}
