//! The effects of one fault, as shown by the writers and the cgroups, and the table of all outcomes.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use redlock::clock;
use redlock::lease::BootInstant;
use serde::{Deserialize, Serialize};

use super::super::episode::Episode;
use super::super::pair::Pair;
use super::super::writers::{Change, Interval};

/// The shortest pause that counts, in milliseconds. A busy machine causes shorter pauses.
const NOTICED: u64 = 500;

/// One line of the file of outcomes. Times are in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub work: String,
    pub seed: u64,
    pub row: String,
    pub title: String,
    pub leases: usize,
    pub moved: bool,
    /// The time from the fault to the first write in the other cluster.
    pub takeover: Option<u64>,
    /// The time from the last record of the holder's cluster to the first record in the other cluster.
    pub margin: Option<u64>,
    /// The total time in which nothing ran.
    pub idle: u64,
    pub freezes: usize,
    pub thaws: usize,
    pub kills: usize,
    pub overlaps: Vec<u64>,
}

impl Outcome {
    pub fn of(pair: &Pair, episode: &Episode, seed: u64) -> Self {
        let began = episode.marks[0].0;
        let nodes = pair.clusters.iter().filter_map(|cluster| cluster.node.as_ref());
        let changes: Vec<_> = nodes.flat_map(|node| node.writers.changes()).collect();
        let count = |wanted| {
            let found = changes
                .iter()
                .filter(|(at, change)| *at >= began && *change == wanted);
            found.count()
        };
        let intervals = |cluster: usize| {
            let node = pair.clusters[cluster].node.as_ref();
            node.map_or_else(Vec::new, |node| node.writers.intervals())
        };
        let other = intervals(1 - episode.before.cluster).into_iter();
        let first = other
            .map(|interval| interval.start)
            .filter(|start| *start >= began)
            .min();
        let before = intervals(episode.before.cluster).into_iter();
        let margin = first.and_then(|first| {
            let ends = before
                .filter(|interval| interval.start <= first)
                .map(|interval| interval.end);
            ends.max().map(|end| milliseconds(first.since(end)))
        });
        Self {
            work: format!("{:?}", pair.work),
            seed,
            row: format!("{:?}", episode.fault),
            title: episode.fault.title().to_owned(),
            leases: episode.transitions(),
            moved: episode.has_moved(),
            margin,
            takeover: first.map(|first| milliseconds(first.since(began))),
            idle: milliseconds(idle(pair, began)),
            freezes: count(Change::Frozen),
            thaws: count(Change::Thawed),
            kills: count(Change::Killed),
            overlaps: episode
                .overlaps()
                .iter()
                .map(|overlap| milliseconds(overlap.length))
                .collect(),
        }
    }

    /// Reports whether the pods did not continue as before.
    pub const fn is_noticed(&self) -> bool {
        self.moved || self.freezes + self.kills > 0 || self.idle > NOTICED
    }

    pub fn append(&self, path: &Path) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        // One write: several runs append to one file.
        file.write_all(format!("{}\n", serde_json::to_string(self).unwrap()).as_bytes())
            .unwrap();
    }

    pub fn read(path: &Path) -> Vec<Self> {
        let lines = fs::read_to_string(path).unwrap_or_default();
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap()
}

/// Returns the total time since `began` in which no writer ran.
fn idle(pair: &Pair, began: BootInstant) -> Duration {
    let nodes = pair.clusters.iter().filter_map(|cluster| cluster.node.as_ref());
    let mut intervals: Vec<Interval> = nodes.flat_map(|node| node.writers.intervals()).collect();
    intervals.sort();
    let (mut idle, mut until) = (Duration::ZERO, began);
    for interval in intervals {
        idle += interval.start.since(until);
        until = until.max(interval.end);
    }
    idle + clock::now().since(until).saturating_sub(Duration::from_secs(1))
}

/// Prints a table in Markdown.
pub fn print_table(outcomes: &[Outcome]) {
    let mut rows: BTreeMap<(&str, &str), Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes {
        rows.entry((&outcome.work, &outcome.title))
            .or_default()
            .push(outcome);
    }
    println!(
        "\n| work | fault | times | leases won | moved | takeover: p50, max (s) | least margin (ms) | without work: p50, max (s) | freezes | thaws | kills | overlaps: number, longest (ms) |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for ((work, title), of_row) in &rows {
        let sum = |of: &dyn Fn(&Outcome) -> usize| of_row.iter().map(|outcome| of(outcome)).sum::<usize>();
        let moved = of_row.iter().filter(|outcome| outcome.moved);
        let takeovers = moved.clone().filter_map(|outcome| outcome.takeover).collect();
        let margin = moved.filter_map(|outcome| outcome.margin).min();
        let overlaps = of_row.iter().flat_map(|outcome| &outcome.overlaps);
        println!(
            "| {work} | {title} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}, {} |",
            of_row.len(),
            sum(&|outcome| outcome.leases),
            sum(&|outcome| usize::from(outcome.moved)),
            spread(takeovers),
            margin.map_or_else(|| String::from("–"), |margin| margin.to_string()),
            spread(of_row.iter().map(|outcome| outcome.idle).collect()),
            sum(&|outcome| outcome.freezes),
            sum(&|outcome| outcome.thaws),
            sum(&|outcome| outcome.kills),
            sum(&|outcome| outcome.overlaps.len()),
            overlaps.max().unwrap_or(&0),
        );
    }
    println!(
        "\n{} faults, {} overlaps",
        outcomes.len(),
        outcomes
            .iter()
            .map(|outcome| outcome.overlaps.len())
            .sum::<usize>()
    );
}

fn spread(mut milliseconds: Vec<u64>) -> String {
    milliseconds.sort_unstable();
    let Some(max) = milliseconds.last() else {
        return String::from("–");
    };
    let seconds = |milliseconds: u64| Duration::from_millis(milliseconds).as_secs_f64();
    format!(
        "{:.1}, {:.1}",
        seconds(milliseconds[(milliseconds.len() - 1) / 2]),
        seconds(*max)
    )
}
