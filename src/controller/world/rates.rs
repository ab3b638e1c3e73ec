//! The rates at which the operators send requests and write to targets.

use std::{collections::BTreeMap, time::Duration};

use super::{cluster::now, universe::Universe};
use crate::{clock, lease::BootInstant};

/// The time over which requests and writes are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The requests that one process of an operator may send to its API server in a window, whatever fails.
const REQUESTS: u64 = 900;
/// The writes of one status that one process of an operator may send in a window, whatever fails.
const STATUS_WRITES: u64 = 120;
/// The writes of all operators of a cluster to one target in a window, whatever fails.
const WRITES: u32 = 20;

/// The counts since the begin of a window.
#[derive(Debug, Default)]
pub(super) struct RequestRates {
    since: Option<BootInstant>,
    /// The writes in the window, by cluster and target.
    writes: BTreeMap<(String, &'static str), u32>,
}

impl RequestRates {
    /// Counts the write of an operator to a target. Fails if the operators write too often.
    pub(super) fn count_write(&mut self, cluster: &str, target: &'static str) -> Result<(), String> {
        let count = self.writes.entry((cluster.to_owned(), target)).or_default();
        *count += 1;
        if *count <= WRITES {
            return Ok(());
        }
        Err(format!(
            "{:.3}: {cluster}: the operators wrote to {target} {count} times within {WINDOW:?}",
            now()
        ))
    }

    /// Checks the requests of a window at its end, and begins the next one.
    pub(super) fn check(&mut self, universe: &Universe) -> Result<(), String> {
        let since = *self.since.get_or_insert_with(clock::now);
        if clock::now().since(since) < WINDOW {
            return Ok(());
        }
        self.since = Some(clock::now());
        self.writes.clear();
        for cluster in &universe.clusters {
            for (process, counts) in cluster.api.take_requests() {
                let sum: u64 = counts.values().sum();
                let statuses = counts.iter().filter(|(target, _)| target.ends_with("/status"));
                let most = statuses.map(|(_, count)| *count).max().unwrap_or_default();
                if !process.contains('#') || (sum <= REQUESTS && most <= STATUS_WRITES) {
                    continue;
                }
                return Err(format!(
                    "{:.3}: {}: {process} sent {sum} requests within {WINDOW:?}: {}",
                    now(),
                    cluster.name,
                    most_frequent(counts)
                ));
            }
        }
        Ok(())
    }
}

fn most_frequent(counts: BTreeMap<String, u64>) -> String {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown = counts
        .into_iter()
        .take(6)
        .map(|(target, count)| format!("{count} {target}"));
    shown.collect::<Vec<_>>().join(", ")
}
