//! The findings of the demo, as text and as the single object of `--output json`.

mod numbers;
mod text;

use std::time::Duration;

use serde::Serialize;

use super::observer::Record;
use super::timeline::Fault;
use super::verdict::{fallen_claims, fallen_tenures, overlaps};
pub(super) use numbers::Numbers;
use redlock_core::BootInstant;

/// The cause that ended the previous lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// kill -9 of the holder.
    Crash,
    /// SIGTERM, after which the holder releases.
    Release,
    /// SIGSTOP past the end of the lease.
    Pause,
}

/// The move of one lock from one replica to another.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Takeover {
    pub kind: Kind,
    pub lock: String,
    pub from: String,
    pub to: String,
    pub from_token: u64,
    pub token: u64,
    /// The time from the end of the old lease until the new holder was active.
    pub milliseconds: f64,
    /// The time from the same end until the observer saw the new lease on a majority of the masters.
    pub seen_milliseconds: f64,
}

/// An expectation, and whether it was met.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub what: String,
    pub ok: bool,
    pub detail: String,
}

/// The numbers of observations.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observations {
    /// Number of reads, each of all leases of one master.
    pub masters: u64,
    /// Number of answers of replicas to `/locks`.
    pub replicas: u64,
    /// Number of lines of their logs.
    pub log_lines: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub ok: bool,
    pub seed: u64,
    pub duration_seconds: f64,
    pub lease_duration_seconds: u64,
    pub overlaps: usize,
    pub overlap_details: Vec<String>,
    pub tokens_strictly_increasing: bool,
    pub token_details: Vec<String>,
    /// The number of times that a replica held a lock.
    pub holders: usize,
    pub takeovers: Vec<Takeover>,
    pub by_kind: Vec<Numbers>,
    pub by_lock: Vec<Numbers>,
    pub checks: Vec<Check>,
    /// The reason why the demo ended early.
    pub failure: Option<String>,
    pub observations: Observations,
}

/// The findings of the script.
#[derive(Debug, Default)]
pub struct Findings {
    pub takeovers: Vec<Takeover>,
    pub checks: Vec<Check>,
    pub failure: Option<String>,
    pub faults: Vec<Fault>,
}

impl Report {
    pub fn new(record: &Record, findings: Findings, seed: u64, took: Duration, lease_seconds: u64) -> Self {
        let claims = record.claims.all();
        let overlaps = overlaps(claims);
        let mut fallen = fallen_claims(claims);
        for (lock, account) in &record.accounts {
            fallen.extend(fallen_tenures(lock, account.tenures()));
        }
        let mut checks = findings.checks;
        let stray: u64 = record.masters.iter().map(|view| view.stray_leases).sum();
        checks.push(Check {
            what: "no master shows a lease while it has no seal".to_owned(),
            ok: stray == 0,
            detail: format!("{stray} reads showed one"),
        });
        let all_checks = checks.iter().all(|check| check.ok);
        Self {
            ok: overlaps.is_empty() && fallen.is_empty() && all_checks && findings.failure.is_none(),
            seed,
            duration_seconds: rounded(took.as_secs_f64()),
            lease_duration_seconds: lease_seconds,
            overlaps: overlaps.len(),
            overlap_details: overlaps.iter().map(ToString::to_string).collect(),
            tokens_strictly_increasing: fallen.is_empty(),
            token_details: fallen.iter().map(ToString::to_string).collect(),
            holders: claims.len(),
            by_kind: Numbers::by_kind(&findings.takeovers),
            by_lock: Numbers::by_lock(&findings.takeovers),
            takeovers: findings.takeovers,
            checks,
            failure: findings.failure,
            observations: observations(record),
        }
    }

    /// Returns the summary for people.
    pub fn text(&self) -> String {
        text::text(self)
    }
}

fn observations(record: &Record) -> Observations {
    Observations {
        masters: record.masters.iter().map(|view| view.reads).sum(),
        replicas: record.replicas.iter().map(|view| view.answered).sum(),
        log_lines: record
            .replicas
            .iter()
            .map(|view| u64::try_from(view.lines.len()).unwrap_or(u64::MAX))
            .sum(),
    }
}

/// Returns the milliseconds from `from` to `to`; negative if `to` is earlier.
pub(super) fn milliseconds(from: BootInstant, to: BootInstant) -> f64 {
    rounded((to.since(from).as_secs_f64() - from.since(to).as_secs_f64()) * 1e3)
}

/// Rounds to the precision of the clocks.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Incarnation;

    fn record(held: &[(&str, u64, u64, u64)]) -> Record {
        let mut record = Record::new(&["l".to_owned()], 5);
        for (name, token, from, to) in held {
            let who = Incarnation {
                name: (*name).to_owned(),
                pid: 1,
            };
            let (from, to) = (BootInstant::from_nanos(*from), BootInstant::from_nanos(*to));
            record.claims.acquired(&who, "l", *token, from, to);
        }
        record
    }

    fn report(held: &[(&str, u64, u64, u64)], findings: Findings) -> Report {
        Report::new(&record(held), findings, 1, Duration::from_secs(1), 3)
    }

    const FINE: [(&str, u64, u64, u64); 2] = [("a", 1, 0, 10), ("b", 2, 10, 20)];

    #[test]
    fn a_run_in_which_all_held_is_fine() {
        assert!(report(&FINE, Findings::default()).ok);
    }

    #[test]
    fn a_planted_overlap_or_token_fails_the_run_and_is_named() {
        let overlap = report(&[("a", 1, 0, 11), ("b", 2, 10, 20)], Findings::default());
        assert!(!overlap.ok && overlap.overlaps == 1);
        assert!(overlap.text().contains("both held it"), "{}", overlap.text());
        let token = report(&[("a", 2, 0, 10), ("b", 1, 10, 20)], Findings::default());
        assert!(!token.ok && !token.tokens_strictly_increasing);
        assert!(
            token.text().contains("token 1 came after token 2"),
            "{}",
            token.text()
        );
    }

    #[test]
    fn something_expected_that_did_not_happen_fails_the_run() {
        let check = Check {
            what: "it rains".to_owned(),
            ok: false,
            detail: "it does not".to_owned(),
        };
        let findings = Findings {
            checks: vec![check],
            ..Findings::default()
        };
        assert!(!report(&FINE, findings).ok);
        let findings = Findings {
            failure: Some("the sky fell".to_owned()),
            ..Findings::default()
        };
        assert!(report(&FINE, findings).text().contains("FAILED"));
    }

    #[test]
    fn a_lease_on_a_master_without_a_seal_fails_the_run() {
        let mut record = record(&FINE);
        record.masters[2].stray_leases = 1;
        assert!(!Report::new(&record, Findings::default(), 1, Duration::ZERO, 3).ok);
    }
}
