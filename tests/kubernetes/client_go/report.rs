//! Evaluates the records of the candidates of both clusters.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use redlock::lease::BootInstant;

use super::candidate::Term;
use super::moves::Move;
use super::side::{Election, Side};

/// The durations of the moves.
#[derive(Default)]
pub struct Report(BTreeMap<(Election, Move), Vec<(Duration, Duration)>>);

impl Report {
    /// Adds the time without a leader, and the time from the cause of the move to the next leader.
    pub fn add(&mut self, election: Election, kind: Move, gap: Duration, whole: Duration) {
        println!(
            "{}, {kind:?}: led after {gap:?}, {whole:?} after the cause",
            election.name()
        );
        self.0.entry((election, kind)).or_default().push((gap, whole));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "| election | move | times | without a leader: p50, longest (s) | from the cause to the next leader |"
        )?;
        writeln!(f, "|---|---|---:|---:|---:|")?;
        for ((election, kind), all) in &self.0 {
            let (name, kind, times) = (election.name(), kind.title(), all.len());
            let gaps = ends(all.iter().map(|(gap, _)| *gap));
            let wholes = ends(all.iter().map(|(_, whole)| *whole));
            writeln!(f, "| {name} | {kind} | {times} | {gaps} | {wholes} |")?;
        }
        Ok(())
    }
}

/// Returns the median and the maximum, in seconds.
fn ends(all: impl Iterator<Item = Duration>) -> String {
    let mut all: Vec<Duration> = all.collect();
    all.sort();
    let (median, greatest) = (all[(all.len() - 1) / 2], all[all.len() - 1]);
    format!("{:.1}, {:.1}", median.as_secs_f64(), greatest.as_secs_f64())
}

/// Returns each two candidates of an election that led at the same time after `since`, and for how long.
pub fn overlaps(sides: &[Side; 2], election: Election, since: BootInstant) -> Vec<(Duration, String)> {
    let mut led: Vec<(Term, &str)> = sides.iter().flat_map(|side| side.terms(election)).collect();
    led.sort_unstable();
    led.retain(|(term, _)| term.last > since);
    let mut found = Vec::new();
    for (index, (term, name)) in led.iter().enumerate() {
        let later = led[index + 1..].iter();
        for (other, with) in later.take_while(|(other, _)| other.first <= term.last) {
            let length = term.last.min(other.last).since(other.first);
            found.push((length, format!("{name} {term:?} and {with} {other:?}")));
        }
    }
    found
}
