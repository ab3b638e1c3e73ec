//! Reads the claims on leases from the logs of replicas, with the times of the log lines.

use std::time::Duration;

use redlock::clock;
use serde_json::Value;

use redlock_testkit::ChildGuard;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Acquired,
    /// Released or passed on.
    GivenUp,
    Lost,
}

#[derive(Clone, Debug)]
pub struct Said {
    /// The time since 1970.
    pub at: Duration,
    pub what: What,
    pub lock: String,
    pub token: u64,
    /// The time from the end of the previous lease, as this replica observed it, in milliseconds.
    pub after: Option<f64>,
}

/// Returns all log lines of the replica about leases since this time, in order.
pub fn said(child: &ChildGuard, since: Duration) -> Vec<Said> {
    let lines = child.stderr();
    let lines = lines.iter().filter(|line| line.contains("\"lease "));
    lines
        .filter_map(|line| parse(line))
        .filter(|said| said.at >= since)
        .collect()
}

fn parse(line: &str) -> Option<Said> {
    let line: Value = serde_json::from_str(line).ok()?;
    let what = match line["message"].as_str()? {
        "lease acquired" => What::Acquired,
        "lease given up" => What::GivenUp,
        "lease lost" => What::Lost,
        _ => return None,
    };
    let lock = line["lock"].as_str()?;
    // The lock by which the replicas elect the reporter is not a lock of a user.
    if lock.starts_with('_') {
        return None;
    }
    let at: jiff::Timestamp = line["timestamp"].as_str()?.parse().ok()?;
    Some(Said {
        at: Duration::from_nanos(u64::try_from(at.as_nanosecond()).ok()?),
        what,
        lock: lock.to_owned(),
        token: line["token"].as_u64()?,
        after: line["after_ms"].as_f64(),
    })
}

/// Waits until these replicas have logged `what` for `count` locks since `since`; returns all their log lines
/// about leases.
pub async fn wait_for(children: &[&ChildGuard], what: What, count: usize, since: Duration) -> Vec<Said> {
    let title = format!("{count} times {what:?}");
    redlock_testkit::eventually(crate::stage::BOUND, &title, async || {
        // A long interval: reading the logs must not disturb the measurement.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let all: Vec<Said> = children.iter().flat_map(|child| said(child, since)).collect();
        let found = all.iter().filter(|said| said.what == what).count();
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
