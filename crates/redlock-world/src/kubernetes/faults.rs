//! The faults between a caller and the server.

use std::{collections::BTreeMap, time::Duration};

/// A random duration between two bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyRange {
    pub min: Duration,
    pub max: Duration,
}

impl LatencyRange {
    pub const fn fixed(duration: Duration) -> Self {
        Self {
            min: duration,
            max: duration,
        }
    }

    pub(super) fn draw(self, rng: &mut fastrand::Rng) -> Duration {
        let span = u64::try_from(self.max.saturating_sub(self.min).as_micros()).unwrap_or(u64::MAX);
        if span == 0 {
            return self.min;
        }
        self.min + Duration::from_micros(rng.u64(0..=span))
    }
}

/// The directions in which nothing arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partition {
    #[default]
    None,
    /// No request reaches the server; answers and watch events still arrive.
    Requests,
    /// Requests are executed, but no answer and no watch event arrives.
    Answers,
    Both,
}

impl Partition {
    pub(super) const fn stops_requests(self) -> bool {
        matches!(self, Self::Requests | Self::Both)
    }

    pub(super) const fn stops_answers(self) -> bool {
        matches!(self, Self::Answers | Self::Both)
    }
}

/// What happens to waiting requests and open watches at the end of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heal {
    /// They continue.
    Resume,
    /// Their connections are broken.
    Break,
}

/// An error that the server answers. Default: no request is refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refusal {
    /// 429, 500 or 503; any other code is sent as it is.
    pub code: u16,
    /// From 0 to 1.
    pub probability: f64,
    pub only_writes: bool,
    /// Whether the request is executed nevertheless, as when etcd answers the API server too late.
    pub is_executed: bool,
}

/// The faults of one caller. Default: none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallerFaults {
    /// The time of a request and its answer together.
    pub latency: LatencyRange,
    pub partition: Partition,
    pub refusals: Vec<Refusal>,
    /// The probability that a request is lost before it is executed; the connection breaks.
    pub lost_requests: f64,
    /// The probability that the answer of an executed request is lost; the connection breaks.
    pub lost_answers: f64,
    /// The delay of each watch event, by plural name; `*` for all other resources. The order within one watch is kept.
    pub watch_delays: BTreeMap<String, LatencyRange>,
}

impl CallerFaults {
    pub(super) fn watch_delay(&self, plural: &str) -> LatencyRange {
        let delays = &self.watch_delays;
        delays
            .get(plural)
            .or_else(|| delays.get("*"))
            .copied()
            .unwrap_or_default()
    }
}

/// The faults of all callers.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) default: CallerFaults,
    callers: BTreeMap<String, CallerFaults>,
    /// Counts the times at which the connections of a caller were broken.
    breaks: BTreeMap<String, u64>,
}

impl Faults {
    pub(super) fn of(&self, caller: &str) -> &CallerFaults {
        self.callers.get(caller).unwrap_or(&self.default)
    }

    pub(super) fn change(&mut self, caller: &str) -> &mut CallerFaults {
        let default = &self.default;
        self.callers
            .entry(caller.to_owned())
            .or_insert_with(|| default.clone())
    }

    pub(super) fn breaks(&self, caller: &str) -> u64 {
        self.breaks.get(caller).copied().unwrap_or_default()
    }

    pub(super) fn break_connections(&mut self, caller: &str) {
        *self.breaks.entry(caller.to_owned()).or_default() += 1;
    }
}
