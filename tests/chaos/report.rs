//! Reports the result, and which parts of it are violations.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redlock::lease::BootInstant;

use crate::cast;
use crate::claims::{self, Claim, Overlap, Regression};
use crate::kinds::Kind;
use crate::plan::Plan;
use crate::play::Played;
use crate::stage::Seen;

#[derive(Debug)]
pub struct Report<'a> {
    plan: &'a Plan,
    played: &'a Played,
    seen: &'a Seen,
    pub overlaps: Vec<Overlap>,
    pub regressions: Vec<Regression>,
    transitions: usize,
    shortest_between: Duration,
    longest_gap: (Duration, String),
}

impl<'a> Report<'a> {
    pub fn new(plan: &'a Plan, played: &'a Played, seen: &'a Seen) -> Self {
        let gap = |lock: String| (claims::longest_gap(&seen.claims, &lock, &seen.up), lock);
        Self {
            plan,
            played,
            seen,
            overlaps: claims::overlaps(&seen.claims),
            regressions: claims::regressions(&seen.claims),
            transitions: transitions(&seen.claims),
            shortest_between: claims::shortest_between(&seen.claims),
            longest_gap: cast::locks().into_iter().map(gap).max().unwrap_or_default(),
        }
    }

    /// Returns all violations.
    pub fn wrongs(&self) -> Vec<String> {
        let mut wrongs: Vec<String> = self.overlaps.iter().map(two_held).collect();
        wrongs.extend(self.regressions.iter().map(went_back));
        let unfenced = self.seen.unfenced.iter();
        wrongs.extend(unfenced.map(|lock| format!("{lock}: the resource let a smaller token in")));
        wrongs.extend(self.seen.ended.iter().cloned());
        wrongs.extend(self.played.not_held.iter().cloned());
        wrongs.extend(self.seen.traces.wrong());
        let never = Kind::ALL
            .into_iter()
            .filter(|kind| !self.played.faults.contains_key(kind));
        wrongs.extend(never.map(|kind| format!("never happened: {}", kind.what())));
        wrongs
    }

    /// Writes acts, claims and the logs of all processes to a folder, for the search for a cause.
    pub fn keep(&self) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{}", self.plan.seed));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let mut claims = self.seen.claims.clone();
        claims.sort_by_key(|claim| (claim.lock.clone(), claim.from));
        let claims: Vec<String> = claims.iter().map(describe).collect();
        let mut files = vec![
            ("acts".to_owned(), self.played.acts.join("\n")),
            ("claims".to_owned(), claims.join("\n")),
            ("report".to_owned(), self.to_string()),
        ];
        let logs = self.seen.logs.iter();
        files.extend(logs.map(|log| (format!("{}.log", log.who), log.lines.join("\n"))));
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        self.seen.traces.keep(&folder);
        folder
    }
}

/// Returns the number of times that a lock got another holder or token.
fn transitions(claims: &[Claim]) -> usize {
    let mut leases: Vec<(&str, u64)> = claims.iter().map(|c| (&*c.lock, c.token)).collect();
    leases.sort_unstable();
    leases.dedup();
    leases.len()
}

fn seconds(moment: BootInstant) -> f64 {
    moment.since(BootInstant::default()).as_secs_f64()
}

/// Formats a claim. Times are those of the boot clock.
fn describe(claim: &Claim) -> String {
    let (from, to) = (seconds(claim.from), seconds(claim.to));
    format!(
        "{} {} token {} from {from:.6} to {to:.6}",
        claim.lock, claim.who, claim.token
    )
}

fn two_held(overlap: &Overlap) -> String {
    let milliseconds = overlap.length.as_secs_f64() * 1e3;
    format!(
        "two held for {milliseconds:.3} ms: {}; {}",
        describe(&overlap.first),
        describe(&overlap.second)
    )
}

fn went_back(regression: &Regression) -> String {
    format!(
        "a token did not grow: {}; then {}",
        describe(&regression.before),
        describe(&regression.after)
    )
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "chaos with seed {}: {:.0} s, {} storms\n\nfaults",
            self.plan.seed,
            self.played.took.as_secs_f64(),
            self.plan.rounds.len()
        )?;
        for kind in Kind::ALL {
            let count = self.played.faults.get(&kind).copied().unwrap_or(0);
            writeln!(f, "  {:<46} {count:>6}", kind.what())?;
        }
        let total: u32 = self.played.faults.values().sum();
        let (gap, lock) = &self.longest_gap;
        let lines = [
            ("faults of all kinds", total.to_string()),
            ("leases won", self.transitions.to_string()),
            ("two holders at once", self.overlaps.len().to_string()),
            ("tokens that went back", self.regressions.len().to_string()),
            (
                "shortest time between two holders",
                format!("{:.1} ms", self.shortest_between.as_secs_f64() * 1e3),
            ),
            (
                "late writes that the resource refused",
                self.seen.refused.to_string(),
            ),
            (
                "longest time until all was held after a storm",
                format!("{:.1} s", self.played.recovery.as_secs_f64()),
            ),
            (
                "longest without a holder, a majority being up",
                format!("{:.1} s  ({lock})", gap.as_secs_f64()),
            ),
        ];
        writeln!(f, "\nseen")?;
        for (what, value) in lines {
            writeln!(f, "  {what:<46} {value:>6}")?;
        }
        writeln!(f, "\nreplay: {}", self.seen.traces)?;
        writeln!(f, "\nagain: {}", self.plan.again())
    }
}
