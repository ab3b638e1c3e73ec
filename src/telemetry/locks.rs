//! The series of single locks.
//!
//! The holder reports the values of its lease. Every replica reports the other values as it sees them, so a query takes
//! the maximum over the replicas.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    Origin, SlotResult,
    events::{ACQUIRE_RESULTS, RENEW_RESULTS, SLOT_RESULTS, acquire_result, renew_result},
    text::{Text, labels},
};
use crate::{
    elector::{AcquireResult, LockView, RenewResult},
    lease::{Authority, BootInstant},
};

/// Namespace and name of the object that declares a lock.
pub(super) type Names = (Box<str>, Box<str>);

#[derive(Debug)]
pub(super) struct LockCounts {
    pub(super) names: Names,
    /// Formatted once, because a scrape repeats it in every line.
    labels: String,
    attempts: [AtomicU64; ACQUIRE_RESULTS.len()],
    renewals: [AtomicU64; RENEW_RESULTS.len()],
    slots: [AtomicU64; SLOT_RESULTS.len()],
    unheld: Mutex<Unheld>,
}

#[derive(Debug)]
struct Unheld {
    total: Duration,
    counted_to: BootInstant,
}

impl LockCounts {
    pub(super) fn new(names: &Names, now: BootInstant) -> Self {
        Self {
            names: names.clone(),
            labels: labels(&[("lock_namespace", &names.0), ("lock", &names.1)]),
            attempts: Default::default(),
            renewals: Default::default(),
            slots: Default::default(),
            unheld: Mutex::new(Unheld {
                total: Duration::ZERO,
                counted_to: now,
            }),
        }
    }

    pub(super) fn attempt_ended(&self, result: AcquireResult) {
        self.attempts[acquire_result(result)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn renewal_ended(&self, result: RenewResult) {
        self.renewals[renew_result(result)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn slot_decided(&self, result: SlotResult) {
        self.slots[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the time from `since`, or from the last count if that is later, to `now` as unheld. Returns the total.
    pub(super) fn unheld_until(&self, now: BootInstant, since: Option<BootInstant>) -> Duration {
        let mut unheld = self.unheld.lock().unwrap_or_else(PoisonError::into_inner);
        let from = since.unwrap_or_default().max(unheld.counted_to);
        unheld.total += now.since(from);
        unheld.counted_to = unheld.counted_to.max(now);
        unheld.total
    }

    /// Counts the time up to `now` by this view of the lock. Returns the total time without a holder.
    pub(super) fn sample(&self, standing: &LockView, now: BootInstant) -> Duration {
        let other_until = standing.holder.as_ref().map(|holder| holder.ends);
        if standing.authority_at(now).is_some() || other_until.is_some_and(|until| until > now) {
            self.held_at(now)
        } else {
            self.unheld_until(now, other_until)
        }
    }

    /// Counts the time up to `now` as held. Returns the total time without a holder.
    fn held_at(&self, now: BootInstant) -> Duration {
        let mut unheld = self.unheld.lock().unwrap_or_else(PoisonError::into_inner);
        unheld.counted_to = unheld.counted_to.max(now);
        unheld.total
    }
}

/// One lock at one scrape.
#[derive(Debug)]
pub(super) struct Row {
    counts: Arc<LockCounts>,
    standing: LockView,
    held: Option<Authority>,
    unheld: Duration,
}

impl Row {
    pub(super) fn new(counts: Arc<LockCounts>, standing: LockView, now: BootInstant) -> Self {
        let unheld = counts.sample(&standing, now);
        Self {
            held: standing.authority_at(now),
            counts,
            standing,
            unheld,
        }
    }

    fn labels(&self) -> &str {
        &self.counts.labels
    }
}

pub(super) fn write(text: &mut Text, rows: &[Row], origin: &Origin, now: BootInstant, unix: Duration) {
    let cluster = labels(&[("cluster", origin.cluster.name())]);
    let name = "redlock_lock_held";
    text.family(name, "gauge", "Whether this process holds the lock now.");
    for row in rows {
        let labels = format!("{},{cluster}", row.labels());
        text.sample(name, &labels, u8::from(row.held.is_some()));
    }

    let holder = labels(&[
        ("holder", origin.identity.as_str()),
        ("holder_cluster", origin.cluster.name()),
    ]);
    let name = "redlock_lock_holder_info";
    text.family(
        name,
        "gauge",
        "The holder of the lock, reported by the holder; always 1.",
    );
    for row in rows.iter().filter(|row| row.held.is_some()) {
        text.sample(name, &format!("{},{holder}", row.labels()), 1);
    }

    each(text, rows, VALIDITY, |row| {
        row.held.map(|held| held.valid_until.left(now).as_secs_f64())
    });
    each(text, rows, VALID_UNTIL, |row| {
        row.held
            .map(|held| (unix + held.valid_until.left(now)).as_secs_f64())
    });
    each(text, rows, ACQUIRED, |row| {
        row.held.and(row.standing.acquired).map(|at| at.as_secs_f64())
    });
    each(text, rows, RENEWED, |row| {
        let renewed = row.held.and(row.standing.renewed)?;
        Some(unix.saturating_sub(now.since(renewed)).as_secs_f64())
    });
    each(text, rows, TOKEN, |row| row.held.map(|held| held.token));
    each(text, rows, TRANSITIONS, |row| Some(row.standing.transitions));
    each(text, rows, UNHELD, |row| Some(row.unheld.as_secs_f64()));

    let name = "redlock_acquisitions_total";
    text.family(name, "counter", "Attempts to acquire the lock.");
    by_result(text, rows, name, &ACQUIRE_RESULTS, |counts| &counts.attempts);
    let name = "redlock_renewals_total";
    text.family(name, "counter", "Rounds of renewal of the lock.");
    by_result(text, rows, name, &RENEW_RESULTS, |counts| &counts.renewals);
    let name = "redlock_slot_claims_total";
    text.family(
        name,
        "counter",
        "Results of the slots of CronJobs in this cluster.",
    );
    by_result(text, rows, name, &SLOT_RESULTS, |counts| &counts.slots);
}

type Family = (&'static str, &'static str, &'static str);

const VALIDITY: Family = (
    "redlock_lock_validity_seconds",
    "gauge",
    "Remaining validity of the lease, reported by the holder.",
);
const VALID_UNTIL: Family = (
    "redlock_lock_valid_until_timestamp_seconds",
    "gauge",
    "End of the lease that this process holds.",
);
const ACQUIRED: Family = (
    "redlock_lock_acquired_timestamp_seconds",
    "gauge",
    "When the holder acquired the lock.",
);
const RENEWED: Family = (
    "redlock_lock_last_renew_timestamp_seconds",
    "gauge",
    "When the holder last won a renewal.",
);
const TOKEN: Family = (
    "redlock_lock_fencing_token",
    "gauge",
    "The fencing token of the lease, reported by the holder; only grows.",
);
const TRANSITIONS: Family = (
    "redlock_lock_transitions_total",
    "counter",
    "Changes of the holder that this process saw.",
);
const UNHELD: Family = (
    "redlock_lock_unheld_seconds_total",
    "counter",
    "Time in which no candidate held the lock, as far as this process saw.",
);

fn each<T: std::fmt::Display>(
    text: &mut Text,
    rows: &[Row],
    (name, kind, help): Family,
    value: impl Fn(&Row) -> Option<T>,
) {
    text.family(name, kind, help);
    for row in rows {
        if let Some(value) = value(row) {
            text.sample(name, row.labels(), value);
        }
    }
}

fn by_result<const N: usize>(
    text: &mut Text,
    rows: &[Row],
    name: &str,
    results: &[&str; N],
    counters: impl Fn(&LockCounts) -> &[AtomicU64; N],
) {
    for row in rows {
        for (result, count) in results.iter().zip(counters(&row.counts)) {
            let count = count.load(Ordering::Relaxed);
            // Most results of most locks never occur: their zeros would make each scrape of ten thousand locks much
            // larger.
            if count > 0 {
                text.sample(name, &format!("{},result=\"{result}\"", row.labels()), count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn no_second_without_a_holder_is_counted_twice() {
        let counts = LockCounts::new(&("n".into(), "l".into()), at(10));
        assert_eq!(counts.unheld_until(at(12), None), Duration::from_secs(2));
        assert_eq!(counts.unheld_until(at(12), Some(at(5))), Duration::from_secs(2));
        assert_eq!(counts.held_at(at(20)), Duration::from_secs(2));
        // The end of the lease is later than the last count, then earlier.
        assert_eq!(counts.unheld_until(at(25), Some(at(22))), Duration::from_secs(5));
        assert_eq!(counts.unheld_until(at(26), Some(at(22))), Duration::from_secs(6));
    }
}
