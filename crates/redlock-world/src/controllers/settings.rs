//! The delays of the controllers and the pods.

use std::time::Duration;

/// A delay between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayRange {
    pub min: Duration,
    pub max: Duration,
}

impl DelayRange {
    pub const ZERO: Self = Self::millis(0, 0);

    pub const fn millis(min: u64, max: u64) -> Self {
        Self {
            min: Duration::from_millis(min),
            max: Duration::from_millis(max),
        }
    }

    pub(super) fn pick(&self, random: &mut fastrand::Rng) -> Duration {
        if self.max <= self.min {
            return self.min;
        }
        self.min + (self.max - self.min).mul_f64(random.f64())
    }
}

/// The time that the containers of a pod take to end after SIGTERM. The annotation `world/stop-seconds` of a pod names
/// another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopBehaviour {
    /// The time `at_once` of [`PodTimes`].
    AtOnce,
    /// SIGTERM is ignored: the containers are killed at the end of the grace period.
    WholeGrace,
    /// A random part of the grace period.
    Random,
}

/// The delays of a pod on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodTimes {
    /// From the creation to the binding to a node.
    pub scheduling: DelayRange,
    /// From the binding to the start of the containers.
    pub startup: DelayRange,
    /// From the start of the containers to the first success of the readiness probe.
    pub readiness: DelayRange,
    pub stop: StopBehaviour,
    /// From SIGTERM to the end of the containers, with [`StopBehaviour::AtOnce`].
    pub at_once: DelayRange,
    /// From the end of the containers to the removal of a deleted pod.
    pub removal: DelayRange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    pub nodes: Vec<String>,
    /// From a change to the decision of a controller, which sees the objects at the time of the decision.
    pub reaction: DelayRange,
    /// From the decision of a controller to its writes, which may be outdated by then. It decides on nothing else in
    /// between.
    pub latency: DelayRange,
    /// The time after which writes that had no effect are computed again, unless an object changes earlier.
    pub retry: Duration,
    pub pods: PodTimes,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            nodes: vec!["node-1".to_owned(), "node-2".to_owned()],
            reaction: DelayRange::millis(1, 20),
            latency: DelayRange::millis(1, 10),
            retry: Duration::from_secs(1),
            pods: PodTimes {
                scheduling: DelayRange::millis(5, 50),
                startup: DelayRange::millis(300, 2_000),
                readiness: DelayRange::millis(100, 2_000),
                stop: StopBehaviour::AtOnce,
                at_once: DelayRange::millis(10, 300),
                removal: DelayRange::millis(20, 300),
            },
        }
    }
}
