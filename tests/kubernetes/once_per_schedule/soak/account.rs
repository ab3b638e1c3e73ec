//! Determines the result of each slot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redlock::lease::BootInstant;
use serde_json::Value;

use super::super::pair::{NAMES, Pair};
use super::faults::Faults;
use crate::fixture::kubelet::{Recorder, Run};

/// The time within which a slot is decided after its creation.
const DECIDED: Duration = Duration::from_secs(15);

/// The results, with slots by their names.
#[derive(Debug)]
pub struct Findings {
    made: usize,
    pub twice: Vec<String>,
    lost: Vec<String>,
    /// The lost slots without a fault at about the same time.
    unexplained: Vec<String>,
    stalls: usize,
}

impl Findings {
    pub fn check(&self) {
        let Self {
            made,
            twice,
            lost,
            unexplained,
            stalls,
        } = self;
        assert!(twice.is_empty(), "ran in both clusters: {twice:?}");
        assert!(
            unexplained.is_empty(),
            "never ran, without a fault: {unexplained:?}"
        );
        // With few slots, made a hundred times as often as by a schedule, one kill may lose two. A stall does so, too,
        // but most slots must run on any machine.
        let most = made.div_ceil(100).max(2) + (2 * stalls).min(made / 4);
        assert!(
            lost.len() <= most,
            "more than {most} of {made} never ran, with {stalls} stalls: {lost:?}"
        );
    }
}

#[derive(Default)]
pub struct Account {
    made: Vec<(String, BootInstant)>,
}

impl Account {
    /// Records a slot; returns its name in both clusters.
    pub fn slot(&mut self, index: usize, now: BootInstant) -> String {
        let name = format!("slot-{index:03}");
        self.made.push((name.clone(), now));
        name
    }

    /// Determines the results of all slots, and prints them.
    pub fn judge(&self, pair: &Pair, recorder: &Recorder, faults: &Faults, took: Duration) -> Findings {
        let mut runs: BTreeMap<String, Vec<Run>> = BTreeMap::new();
        for run in recorder.runs() {
            let job = run.owner.trim_start_matches("Job ").to_owned();
            runs.entry(job).or_default().push(run);
        }
        let (mut ran, mut twice, mut lost, mut delays) = ([0, 0], Vec::new(), Vec::new(), Vec::new());
        for (name, made) in &self.made {
            let of = runs.get(name).map(Vec::as_slice).unwrap_or_default();
            let clusters: BTreeSet<&str> = of.iter().map(|run| &*run.cluster).collect();
            match clusters.len() {
                0 => lost.push((name.clone(), *made)),
                1 => {
                    ran[usize::from(clusters.contains(NAMES[1]))] += 1;
                    delays.push(of[0].start.since(*made));
                }
                _ => twice.push(name.clone()),
            }
            assert!(
                of.len() <= 1 || clusters.len() > 1,
                "a Job of {name} had several pods: {of:?}"
            );
        }
        delays.sort();
        let at = |share: usize| delays[(delays.len() - 1) * share / 100].as_secs_f64() * 1e3;
        println!("| slots | {} in {:.0} s |", self.made.len(), took.as_secs_f64());
        println!("| faults | {} |", faults.events.len());
        println!(
            "| ran once | {} in {}, {} in {} |",
            ran[0], NAMES[0], ran[1], NAMES[1]
        );
        println!("| ran twice | {} |", twice.len());
        println!("| never ran | {} |", lost.len());
        println!(
            "| made until its pod began | p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms |",
            at(50),
            at(99),
            at(100)
        );
        let mut unexplained = Vec::new();
        for (name, made) in &lost {
            let why = faults.around(*made, DECIDED);
            println!("{name}: {}", why.unwrap_or("no fault near"));
            for cluster in [0, 1] {
                for note in notes(pair, cluster, name) {
                    println!("    {}: {note}", NAMES[cluster]);
                }
            }
            if why.is_none() {
                unexplained.push(name.clone());
            }
        }
        Findings {
            made: self.made.len(),
            twice,
            lost: lost.into_iter().map(|(name, _)| name).collect(),
            unexplained,
            stalls: faults.stalls,
        }
    }
}

/// Returns the events of a cluster about a Job.
fn notes(pair: &Pair, cluster: usize, job: &str) -> Vec<String> {
    let all = pair.clusters[cluster].kubectl(&["get", "events.events.k8s.io", "--output", "json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    let items = all["items"].as_array().unwrap().iter();
    let notes = items.filter_map(|event| event["note"].as_str());
    let about = notes.filter(|note| note.contains(&format!("/{job} is deleted")));
    about.map(str::to_owned).collect()
}
