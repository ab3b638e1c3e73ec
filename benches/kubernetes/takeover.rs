//! Measures `kill -9` of the replica that holds most locks: how long after the end of each lease another replica
//! holds the lock.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::log::{self, Kind, milliseconds};
use crate::stage::{LEASE, Stage};
use crate::statuses::Statuses;
use crate::table::{self, Many};
use redlock_bench::floor::Floor;

const LOCKS: usize = 100;
const TRIALS: usize = 4;

pub async fn run() {
    let stage = Stage::new(LOCKS).await;
    let mut operators = stage.operators(&["replica-0", "replica-1", "replica-2"]).await;
    let statuses = Statuses::watch(stage.api());
    let floor = Floor::connect(&stage.servers.urls()).await;
    let names = stage.lock_names();
    table::begin(&format!(
        "kill -9 of one of 3 replicas with {LOCKS} locks, {TRIALS} times"
    ));
    let (mut gaps, mut bare, mut reported, mut after_kill) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut observed = Vec::new();
    for trial in 0..TRIALS {
        // Waits until all leases have been renewed since the last trial.
        tokio::time::sleep(LEASE / 2).await;
        let mut held: HashMap<String, Vec<String>> = HashMap::new();
        for (name, holder) in names.iter().zip(stage.masters.holders(&names).await) {
            held.entry(holder.unwrap().identity)
                .or_default()
                .push(name.clone());
        }
        let (victim, lost) = held.into_iter().max_by_key(|(_, locks)| locks.len()).unwrap();
        let place = operators.iter().position(|o| o.name == victim).unwrap();
        let killed = log::now();
        operators[place].child.kill();
        let ends = stage.masters.ends(&lost).await;
        let mut floors = JoinSet::new();
        for (index, end) in ends.iter().copied().enumerate() {
            let floor = floor.clone();
            floors.spawn(async move {
                let due = end + Duration::from_millis(1);
                tokio::time::sleep(due.saturating_sub(log::now())).await;
                floor.acquire(&format!("floor:{trial}:{index}"), "value").await;
                milliseconds(log::now(), end)
            });
        }
        let living: Vec<_> = operators
            .iter()
            .filter(|o| o.name != victim)
            .map(|o| &o.child)
            .collect();
        let events = log::wait_for(&living, Kind::Acquired, lost.len(), killed).await;
        bare.extend(floors.join_all().await);
        stage.wait_reported().await;
        for (lock, end) in lost.iter().zip(ends) {
            let acquired = events
                .iter()
                .find(|event| event.lock == *lock && event.kind == Kind::Acquired);
            let acquired = acquired.expect("a lock that was lost is acquired");
            gaps.push(milliseconds(acquired.at, end));
            observed.extend(acquired.after);
            after_kill.push(milliseconds(acquired.at, killed));
            let at = statuses
                .reported_at(lock, acquired.token)
                .expect("its status reports the holder");
            reported.push(milliseconds(at, acquired.at));
        }
        operators[place] = stage.operator(&victim).await;
        operators[place].wait_ready();
    }
    let (gaps, bare) = (Many::of(gaps), Many::of(bare));
    table::row(
        "a bare timer and one round to the masters, after the same ends",
        &bare.text(),
        "",
    );
    table::row("held again, after the end of the lease", &gaps.text(), "");
    table::row(
        "the same, after the end as the standby had observed it at its last read",
        &Many::of(observed).text(),
        "",
    );
    let excess = gaps.quantile(0.99) - bare.quantile(0.99);
    table::row(
        "p99 beyond the bare timer's",
        &format!("{excess:.1} ms"),
        "≤ 10 ms",
    );
    table::row("held again, after the kill", &Many::of(after_kill).text(), "");
    table::row(
        "status updated, after that",
        &Many::of(reported).text(),
        "≤ 1000 ms",
    );
}
