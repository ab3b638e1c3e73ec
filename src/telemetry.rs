//! The telemetry of this process: metrics and logs.
//!
//! Owns the names, the counters and the text of a scrape. Whether a lock is held is computed from `valid_until` at the
//! scrape, never remembered. Label values come from closed sets only: declared names, and variants of an enum.

mod events;
mod locks;
pub(crate) mod logs;
mod masters;
mod meter;
mod nodes;
mod targets;
mod text;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus::{Registry, TextEncoder};

pub(crate) use meter::QuorumMeter;
pub(crate) use nodes::NodeMetrics;
pub(crate) use targets::TargetSeries;

use crate::{
    api::target::Action,
    clock,
    elector::Elector,
    lease::{BootInstant, ClusterId, HolderIdentity},
    masters::Masters,
};
use events::Events;
use locks::{LockCounts, Names, Row};
use text::{Text, labels};

/// One set of masters that is in use, and the elector of the locks on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) meter: &'a QuorumMeter,
    pub(crate) masters: &'a Masters,
    pub(crate) elector: &'a Elector,
}

/// A declared object that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The connections to the other replicas, as a round of questions has shown them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiblingContact {
    /// The number of replicas that answered.
    pub(crate) answering: usize,
    /// The pods that are ready and did not answer.
    pub(crate) unanswered: BTreeSet<String>,
}

/// The result of a slot of a CronJob in this cluster, in the order of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotResult {
    /// Its Job was started.
    Claimed,
    /// A Job of another cluster has the slot.
    Elsewhere,
    /// A later slot was claimed before it.
    Passed,
    /// No Job can have the slot.
    Lost,
    TooOld,
    /// No majority decided an attempt to claim it. The attempt is repeated.
    Undecided,
}

/// The process that the metrics describe.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The command, such as `operator`.
    pub(crate) component: &'static str,
    pub(crate) identity: HolderIdentity,
    pub(crate) cluster: ClusterId,
}

/// All metrics of this process.
#[derive(Debug)]
pub(crate) struct Telemetry {
    registry: Registry,
    events: Arc<Events>,
    origin: Origin,
    lock_series: bool,
    targets: targets::Targets,
    /// The counts by namespace and name, so that counters continue when a quorum is opened again.
    locks: Mutex<HashMap<Names, Arc<LockCounts>>>,
}

impl Telemetry {
    /// Creates the metrics. Without `lock_series`, no series of single locks is written.
    ///
    /// # Errors
    /// Returns an error if the library does not accept a metric.
    pub(crate) fn new(origin: Origin, lock_series: bool) -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        let process = prometheus::process_collector::ProcessCollector::for_self();
        registry.register(Box::new(process))?;
        let events = Arc::new(Events::register(&registry)?);
        Ok(Arc::new(Self {
            registry,
            events,
            origin,
            lock_series,
            targets: targets::Targets::default(),
            locks: Mutex::default(),
        }))
    }

    /// Creates the meter of a quorum that is about to be opened. `masters` are names and failure domains in the order
    /// of the votes.
    #[must_use]
    pub(crate) fn quorum(
        self: &Arc<Self>,
        name: &str,
        masters: Vec<(String, Option<String>)>,
    ) -> Arc<QuorumMeter> {
        Arc::new(QuorumMeter::new(name, masters, self.clone()))
    }

    /// Counts one reconciliation of the declared objects.
    pub(crate) fn reconciled(&self, controller: &str, result: &str, took: Duration) {
        self.events.reconciled(controller, result, took);
    }

    /// Records that a target was confirmed stopped, this many seconds before its deadline; negative if it was too late.
    pub(crate) fn stopped(&self, action: Action, margin: f64) {
        self.events.stopped(action, margin);
    }

    /// Counts the result of a slot of a lock that is declared under this name.
    pub(crate) fn slot(&self, namespace: &str, name: &str, result: SlotResult) {
        let names: Names = (namespace.into(), name.into());
        let locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = locks.get(&names) {
            counts.slot_decided(result);
        }
    }

    /// Returns the text of one scrape.
    ///
    /// # Errors
    ///
    /// Returns an error if the library cannot write a metric.
    pub(crate) fn scrape(
        &self,
        sources: &[Source<'_>],
        unreadable: &[Unreadable],
        siblings: Option<&SiblingContact>,
    ) -> Result<String, prometheus::Error> {
        let mut text = Text::new(TextEncoder::new().encode_to_string(&self.registry.gather())?);
        process_families(&mut text, self.origin.component);
        let name = "redlock_object_unreadable";
        text.family(
            name,
            "gauge",
            "A declared object that this version cannot read; always 1.",
        );
        for object in unreadable {
            let labels = labels(&[
                ("kind", object.kind),
                ("object_namespace", &object.namespace),
                ("object", &object.name),
            ]);
            text.sample(name, &labels, 1);
        }
        if self.origin.component == "operator" {
            write_siblings(&mut text, siblings.unwrap_or(&SiblingContact::default()));
        }
        masters::write(&mut text, sources);
        if self.lock_series {
            let now = clock::now();
            let rows = rows(sources, now);
            locks::write(&mut text, &rows, &self.origin, now, clock::unix_time());
            self.targets.write(&mut text);
        }
        Ok(text.into_string())
    }

    /// Samples every lock. Call it about once a second: between two samples, a lock that was held and released, or
    /// whose holder was not seen, counts as the later sample finds it. The samples must be close together, however rare
    /// the scrapes are.
    pub(crate) fn sample(&self, sources: &[Source<'_>]) {
        if self.lock_series {
            let now = clock::now();
            for source in sources {
                source.meter.sample(source.elector, now);
            }
        }
    }

    /// Drops the series of a quorum that is no longer declared. A quorum that is opened again keeps them.
    pub(crate) fn forget_quorum(&self, name: &str) {
        self.events.forget_quorum(name);
    }

    fn counts(&self, names: &Names) -> Arc<LockCounts> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks
            .entry(names.clone())
            .or_insert_with(|| Arc::new(LockCounts::new(names, clock::now())))
            .clone()
    }

    fn forget(&self, names: &Names) {
        self.locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(names);
    }
}

/// Writes the families that every process has. `component` is the command.
fn process_families(text: &mut Text, component: &str) {
    let build = labels(&[
        ("version", env!("CARGO_PKG_VERSION")),
        ("revision", option_env!("REDLOCK_REVISION").unwrap_or("unknown")),
        ("component", component),
    ]);
    text.family(
        "redlock_build_info",
        "gauge",
        "Version of this process; always 1.",
    );
    text.sample("redlock_build_info", &build, 1);
    let name = "redlock_log_lines_dropped_total";
    text.family(
        name,
        "counter",
        "Lines of the log that were dropped because the standard error was not read.",
    );
    text.sample(name, "", logs::dropped_lines());
}

fn write_siblings(text: &mut Text, contact: &SiblingContact) {
    let name = "redlock_siblings";
    let help =
        "Other replicas of this operator whose pods are ready, by whether they answered the last question.";
    text.family(name, "gauge", help);
    for (state, count) in [
        ("answering", contact.answering),
        ("silent", contact.unanswered.len()),
    ] {
        text.sample(name, &labels(&[("state", state)]), count);
    }
}

fn rows(sources: &[Source<'_>], now: BootInstant) -> Vec<Row> {
    let of_source = |source: &Source<'_>| -> Vec<Row> {
        let standings = source.elector.standings().into_iter();
        let row = |(lock, standing)| Some(Row::new(source.meter.counts(&lock)?, standing, now));
        standings.filter_map(row).collect()
    };
    sources.iter().flat_map(of_source).collect()
}
