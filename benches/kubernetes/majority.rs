//! Measures the loss of a majority of the masters for longer than a lease: every holder reports it in time, and all
//! locks are held again without intervention.

use std::collections::HashMap;
use std::time::Duration;

use crate::fixture::{Operator, Options};
use crate::log::{self, Event, Kind, milliseconds};
use crate::stage::{LEASE, Stage};
use crate::table::{self, Many};

const LOCKS: usize = 100;
const LOST: Duration = Duration::from_secs(20);
const MAJORITY: usize = 3;

pub async fn run() {
    // The longest lease decides how long an empty master has no vote, so it is as short as these locks allow.
    let stage = Stage::with(LOCKS, Options::default(), LEASE).await;
    let operators = stage.operators(&["replica-0", "replica-1", "replica-2"]).await;
    tokio::time::sleep(LEASE / 2).await;
    let servers = &stage.servers[..MAJORITY];

    let seconds = LOST.as_secs();
    table::begin(&format!(
        "{MAJORITY} of 5 masters hung (SIGSTOP) for {seconds} s, {LOCKS} locks, 3 replicas"
    ));
    let stop = || servers.iter().for_each(|server| server.pause().unwrap());
    let go = || servers.iter().for_each(|server| server.resume().unwrap());
    lose(&stage, &operators, stop, go).await;

    table::begin(&format!(
        "{MAJORITY} of 5 masters killed for {seconds} s and started empty; longest lease {} s",
        LEASE.as_secs()
    ));
    tokio::time::sleep(LEASE / 2).await;
    let stop = || servers.iter().for_each(|server| server.kill());
    let go = || servers.iter().for_each(|server| server.restart_empty().unwrap());
    lose(&stage, &operators, stop, go).await;
}

async fn lose(stage: &Stage, operators: &[Operator], stop: impl FnOnce(), go: impl FnOnce()) {
    let lost_at = log::now();
    stop();
    // A reply that was in flight may still count.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let valid = valid_until(operators);
    assert_eq!(valid.len(), LOCKS, "every lock is held");
    let children: Vec<_> = operators.iter().map(|o| &o.child).collect();
    let events = log::wait_for(&children, Kind::Lost, LOCKS, lost_at).await;
    let lost: HashMap<&str, &Event> = events
        .iter()
        .filter(|s| s.kind == Kind::Lost)
        .map(|s| (s.lock.as_str(), s))
        .collect();
    let margins: Vec<f64> = valid
        .iter()
        .map(|(lock, until)| milliseconds(*until, lost[lock.as_str()].at))
        .collect();
    let late = margins.iter().filter(|margin| **margin < 0.0).count();
    let before = Many::of(margins.clone());
    tokio::time::sleep((lost_at + LOST).saturating_sub(log::now())).await;
    let still = valid_until(operators).len();
    let back = log::now();
    go();
    let events = log::wait_for(&children, Kind::Acquired, LOCKS, back).await;
    let again = events.iter().filter(|event| event.kind == Kind::Acquired);
    let again = Many::of(again.map(|event| milliseconds(event.at, back)).collect());
    stage.wait_reported().await;
    let reported = milliseconds(log::now(), back);
    table::row(
        "holders that did not report `lost` before `valid_until`",
        &late.to_string(),
        "0",
    );
    let least = margins.iter().copied().fold(f64::INFINITY, f64::min);
    let text = format!("least {least:.0} ms, p50 {:.0} ms", before.quantile(0.5));
    table::row("reported this long before `valid_until`", &text, "> 0");
    table::row("still claimed at the end of the loss", &still.to_string(), "0");
    table::row("held again, after the masters are back", &again.text(), "");
    table::row(
        "all statuses right, after the masters are back",
        &format!("{:.1} s", reported / 1e3),
        "",
    );
}

/// Returns a lower bound for the end of each lease that the replicas claim, since 1970.
fn valid_until(operators: &[Operator]) -> HashMap<String, Duration> {
    let mut valid = HashMap::new();
    for operator in operators {
        let asked = log::now();
        for lock in operator.locks() {
            if lock["role"] == "Active" || lock["validForMilliseconds"].as_u64() > Some(0) {
                let left = Duration::from_millis(lock["validForMilliseconds"].as_u64().unwrap());
                valid.insert(lock["lockName"].as_str().unwrap().to_owned(), asked + left);
            }
        }
    }
    valid
}
