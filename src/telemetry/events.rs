//! Metrics that are counted at an event, beyond single locks. They use the client library, since their series are few.

use std::time::Duration;

use prometheus::core::Collector as _;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::{
    api::target::Action,
    elector::{AcquireResult, RenewResult},
    lease::EndReason,
    masters::Operation,
};

/// A healthy master in the same zone answers within a millisecond, one across a continent in 200 ms, and the command
/// timeout is at most 2 s.
const REQUEST: &[f64] = &[
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];
/// The promises are 10 ms after a release and 50 ms after the end of a lease. More than a second is an incident, in
/// which the difference between seconds and a minute matters.
const TAKEOVER: &[f64] = &[
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
];
/// A renewal without retries leaves about two thirds of the lease; a renewal below a third was retried.
const MARGIN: &[f64] = &[0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// Seconds from the confirmed stop to the end of the lease. A negative value breaks the promise, and its size matters.
/// A positive value depends on the end of the pods, for which the derived budgets allow up to half a minute, and
/// configured ones much more.
const STOP_MARGIN: &[f64] = &[
    -60.0, -10.0, -5.0, -1.0, -0.25, 0.0, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

pub(super) const VOTES: [&str; 3] = ["granted", "refused", "unknown"];
pub(super) const ACQUIRE_RESULTS: [&str; 4] = ["acquired", "contended", "no_quorum", "timeout"];
pub(super) const RENEW_RESULTS: [&str; 3] = ["renewed", "refused", "undecided"];
pub(super) const SLOT_RESULTS: [&str; 6] = ["claimed", "elsewhere", "passed", "lost", "too_old", "undecided"];
const END_REASONS: [&str; 9] = [
    "released",
    "reserved",
    "expired",
    "quorum_lost",
    "refused",
    "stepped_down",
    "clock_stepped",
    "sealed_for_another",
    "abandoned",
];

pub(super) const fn acquire_result(result: AcquireResult) -> usize {
    match result {
        AcquireResult::Acquired => 0,
        AcquireResult::Contended => 1,
        AcquireResult::NoQuorum => 2,
        AcquireResult::Timeout => 3,
    }
}

pub(super) const fn renew_result(result: RenewResult) -> usize {
    match result {
        RenewResult::Renewed => 0,
        RenewResult::Refused => 1,
        RenewResult::Undecided => 2,
    }
}

const fn end_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Released => END_REASONS[0],
        EndReason::Reserved => END_REASONS[1],
        EndReason::Expired => END_REASONS[2],
        EndReason::QuorumLost => END_REASONS[3],
        EndReason::Refused => END_REASONS[4],
        EndReason::SteppedDown => END_REASONS[5],
        EndReason::ClockStepped => END_REASONS[6],
        EndReason::SealedForAnother => END_REASONS[7],
        EndReason::Abandoned => END_REASONS[8],
    }
}

#[derive(Debug)]
pub(super) struct Events {
    requests: IntCounterVec,
    request_duration: HistogramVec,
    acquire_duration: HistogramVec,
    renew_margin: Histogram,
    leases_ended: IntCounterVec,
    takeover_duration: HistogramVec,
    stop_margin: HistogramVec,
    reconciles: IntCounterVec,
    reconcile_duration: HistogramVec,
}

/// Registers families of metrics.
struct Families<'a>(&'a Registry);

impl Families<'_> {
    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(counter.clone()))?;
        Ok(counter)
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec, prometheus::Error> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let histogram = HistogramVec::new(options, labels)?;
        self.0.register(Box::new(histogram.clone()))?;
        Ok(histogram)
    }

    /// Registers a histogram without labels.
    fn single(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, prometheus::Error> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let histogram = Histogram::with_opts(options)?;
        self.0.register(Box::new(histogram.clone()))?;
        Ok(histogram)
    }
}

impl Events {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Families(registry);
        let exchange = ["quorum", "master", "operation", "vote"];
        let events = Self {
            requests: families.counter(
                "redlock_master_requests_total",
                "Votes of a master, one for every lock that it was asked for.",
                &exchange,
            )?,
            request_duration: families.histogram(
                "redlock_master_request_duration_seconds",
                "Time until a master answered one script call, under the vote that most of its locks got.",
                REQUEST,
                &exchange,
            )?,
            acquire_duration: families.histogram(
                "redlock_acquire_duration_seconds",
                "Time that an attempt to acquire a lock took.",
                REQUEST,
                &["result"],
            )?,
            renew_margin: families.single(
                "redlock_renew_margin_ratio",
                "Share of the lease that was left when it was renewed.",
                MARGIN,
            )?,
            leases_ended: families.counter(
                "redlock_leases_ended_total",
                "Leases of this process that ended.",
                &["reason"],
            )?,
            takeover_duration: families.histogram(
                "redlock_takeover_duration_seconds",
                "Time from the end of the previous lease to the lease of this process.",
                TAKEOVER,
                &["kind"],
            )?,
            stop_margin: families.histogram(
                "redlock_stop_margin_seconds",
                "Time that was left of the lease when the targets were confirmed stopped; a negative value means too late.",
                STOP_MARGIN,
                &["action"],
            )?,
            reconciles: families.counter(
                "redlock_reconciles_total",
                "Reconciliations of the declared objects.",
                &["controller", "result"],
            )?,
            reconcile_duration: families.histogram(
                "redlock_reconcile_duration_seconds",
                "Duration of a reconciliation of the declared objects.",
                REQUEST,
                &["controller", "result"],
            )?,
        };
        events.begin_at_zero()?;
        Ok(events)
    }

    /// Creates the series at zero: a series that appears with its first event hides that event from `rate`.
    fn begin_at_zero(&self) -> Result<(), prometheus::Error> {
        for reason in END_REASONS {
            self.leases_ended.get_metric_with_label_values(&[reason])?;
        }
        for result in ACQUIRE_RESULTS {
            self.acquire_duration.get_metric_with_label_values(&[result])?;
        }
        for kind in ["crash", "release"] {
            self.takeover_duration.get_metric_with_label_values(&[kind])?;
        }
        for action in Action::ALL {
            self.stop_margin.get_metric_with_label_values(&[action.name()])?;
        }
        Ok(())
    }

    // The label values below match the labels of their families in number. The library cannot express that, and a
    // metric that cannot be counted must not stop an election.

    pub(super) fn exchanged(
        &self,
        quorum: &str,
        master: &str,
        operation: Operation,
        votes: [u64; 3],
        took: Duration,
    ) {
        let mut most = 0;
        for (index, count) in votes.into_iter().enumerate() {
            if count > votes[most] {
                most = index;
            }
            let labels = [quorum, master, operation.name(), VOTES[index]];
            if count > 0
                && let Ok(counter) = self.requests.get_metric_with_label_values(&labels)
            {
                counter.inc_by(count);
            }
        }
        let labels = [quorum, master, operation.name(), VOTES[most]];
        observe(&self.request_duration, &labels, took);
    }

    /// Removes the series of a quorum that is no longer declared.
    pub(super) fn forget_quorum(&self, quorum: &str) {
        for family in self.requests.collect() {
            for series in family.get_metric() {
                let value = |wanted: &str| {
                    let label = series.get_label().iter().find(|label| label.name() == wanted);
                    label.map_or("", |label| label.value())
                };
                if value("quorum") == quorum {
                    let labels = [quorum, value("master"), value("operation"), value("vote")];
                    // Only the vote that most locks of a call got has a duration, so its series may not exist.
                    let _ = self.requests.remove_label_values(&labels);
                    let _ = self.request_duration.remove_label_values(&labels);
                }
            }
        }
    }

    pub(super) fn acquire_ended(&self, result: AcquireResult, took: Duration) {
        let result = ACQUIRE_RESULTS[acquire_result(result)];
        observe(&self.acquire_duration, &[result], took);
    }

    pub(super) fn renewed(&self, margin: f64) {
        self.renew_margin.observe(margin);
    }

    pub(super) fn ended(&self, reason: EndReason) {
        let labels = [end_reason(reason)];
        if let Ok(counter) = self.leases_ended.get_metric_with_label_values(&labels) {
            counter.inc();
        }
    }

    pub(super) fn took_over(&self, released: bool, gap: Duration) {
        let kind = if released { "release" } else { "crash" };
        observe(&self.takeover_duration, &[kind], gap);
    }

    pub(super) fn stopped(&self, action: Action, margin: f64) {
        if let Ok(histogram) = self.stop_margin.get_metric_with_label_values(&[action.name()]) {
            histogram.observe(margin);
        }
    }

    pub(super) fn reconciled(&self, controller: &str, result: &str, took: Duration) {
        let labels = [controller, result];
        if let Ok(counter) = self.reconciles.get_metric_with_label_values(&labels) {
            counter.inc();
        }
        observe(&self.reconcile_duration, &labels, took);
    }
}

fn observe(family: &HistogramVec, labels: &[&str], took: Duration) {
    if let Ok(histogram) = family.get_metric_with_label_values(labels) {
        histogram.observe(took.as_secs_f64());
    }
}
