//! The processes of one pod on its node, whether or not the API server knows of them.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::object::{annotation, count_or, later, name, namespace, text};

/// The time for which the container of a pod that runs to completion runs.
const RUN_SECONDS: &str = "world/run-seconds";
/// The exit code of such a container.
const EXIT_CODE: &str = "world/exit-code";
/// The time that the container takes to end after SIGTERM.
const STOP_SECONDS: &str = "world/stop-seconds";
/// The exit code of a container that was killed by SIGKILL.
const KILLED: i64 = 137;

/// The end of the processes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessEnd {
    pub(super) at: Timestamp,
    pub(super) exit_code: i64,
}

#[derive(Clone, Debug)]
pub(super) struct PodProcess {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) node: String,
    pub(super) starts: Timestamp,
    pub(super) readies: Timestamp,
    /// The end that the container chooses itself.
    completes: Option<ProcessEnd>,
    /// The end after a SIGTERM.
    stops: Option<ProcessEnd>,
    /// The time at which the grace period is over.
    killed: Option<Timestamp>,
    grace: Duration,
    /// Whether the containers are started again after a crash.
    restarts_always: bool,
    pub(super) restarts: u32,
    /// The time at which a kubelet removes the pod after the end of its processes.
    pub(super) removal: Duration,
}

/// The delays of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodDelays {
    pub(super) startup: Duration,
    pub(super) readiness: Duration,
    pub(super) removal: Duration,
}

impl PodProcess {
    pub(super) fn new(pod: &Value, delays: PodDelays, now: Timestamp) -> Self {
        let starts = later(now, delays.startup);
        let seconds = |key: &str| annotation(pod, key).and_then(|text| text.parse::<f64>().ok());
        let completes = matches!(text(pod, "/spec/restartPolicy"), "Never" | "OnFailure").then(|| {
            let runs = seconds(RUN_SECONDS).unwrap_or(60.0);
            ProcessEnd {
                at: later(starts, Duration::try_from_secs_f64(runs).unwrap_or(Duration::MAX)),
                exit_code: annotation(pod, EXIT_CODE)
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0),
            }
        });
        Self {
            namespace: namespace(pod).to_owned(),
            name: name(pod).to_owned(),
            node: text(pod, "/spec/nodeName").to_owned(),
            starts,
            readies: later(starts, delays.readiness),
            completes,
            stops: None,
            killed: None,
            restarts_always: !matches!(text(pod, "/spec/restartPolicy"), "Never" | "OnFailure"),
            restarts: 0,
            grace: grace(pod, "/spec/terminationGracePeriodSeconds", 30),
            removal: delays.removal,
        }
    }

    /// Returns the end of the processes, if it is known.
    pub(super) fn end(&self) -> Option<ProcessEnd> {
        [self.completes, self.stops]
            .into_iter()
            .flatten()
            .min_by_key(|end| end.at)
    }

    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.end().is_some_and(|end| end.at <= now)
    }

    pub(super) fn runs(&self, now: Timestamp) -> bool {
        self.starts <= now && !self.has_ended(now)
    }

    pub(super) fn grace(&self) -> Duration {
        self.grace
    }

    /// Sends SIGTERM, or shortens the grace period. `takes` chooses the time that the containers need.
    pub(super) fn stop(
        &mut self,
        pod: Option<&Value>,
        grace: Duration,
        takes: impl FnOnce() -> Duration,
        now: Timestamp,
    ) {
        if self.has_ended(now) {
            return;
        }
        let kill = later(now, grace);
        if self.killed.is_some_and(|killed| killed <= kill) {
            return;
        }
        self.killed = Some(kill);
        if self.starts > now {
            // No container was created.
            self.stops = Some(ProcessEnd {
                at: now,
                exit_code: 0,
            });
            return;
        }
        let chosen = pod.and_then(|pod| annotation(pod, STOP_SECONDS)?.parse::<f64>().ok());
        let chosen = chosen.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let ends = match self.stops {
            Some(stops) => stops.at,
            None => later(now, chosen.unwrap_or_else(takes)),
        };
        self.stops = Some(match ends <= kill {
            true => ProcessEnd {
                at: ends,
                exit_code: 0,
            },
            false => ProcessEnd {
                at: kill,
                exit_code: KILLED,
            },
        });
    }

    /// Ends the processes without a SIGTERM, as the failure of the node does.
    pub(super) fn kill(&mut self, now: Timestamp) {
        if !self.has_ended(now) {
            let end = ProcessEnd {
                at: now,
                exit_code: KILLED,
            };
            self.stops = Some(end);
            self.killed = Some(now);
        }
    }

    /// Starts the containers again after a crash.
    pub(super) fn restart(&mut self, delays: PodDelays, now: Timestamp) {
        (self.stops, self.killed) = (None, None);
        self.starts = later(now, delays.startup);
        self.readies = later(self.starts, delays.readiness);
        self.restarts += 1;
    }

    /// Reports whether the containers crashed and are started again unless the pod is deleted.
    pub(super) fn is_crashed(&self, now: Timestamp) -> bool {
        self.restarts_always && self.has_ended(now)
    }

    /// Returns the next time at which the pod changes without a write.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let end = self.end().map(|end| end.at);
        let removed = end.map(|end| later(end, self.removal));
        let all = [Some(self.starts), Some(self.readies), end, removed];
        all.into_iter().flatten().filter(|time| *time > now).min()
    }
}

/// Returns a grace period, which is at least one second on a node.
pub(super) fn grace(pod: &Value, pointer: &str, default: i64) -> Duration {
    let seconds = u64::try_from(count_or(pod, pointer, default)).unwrap_or(0);
    Duration::from_secs(seconds.max(1))
}
