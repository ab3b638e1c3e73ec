//! The grace periods that were read from pod templates, for the targets that do not give a stop time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::{plan::AwaitedTemplate, target::TargetRef};

/// The time that the pods of an object may take to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// The grace period of each pod.
    pub period: Duration,
    /// Whether one pod ends before the next one is stopped: a StatefulSet with `podManagementPolicy: OrderedReady`.
    pub one_by_one: bool,
}

impl From<Duration> for Grace {
    fn from(period: Duration) -> Self {
        Self {
            period,
            one_by_one: false,
        }
    }
}

impl Grace {
    /// Returns the time that this number of pods may take.
    pub(super) fn of_pods(self, pods: u32) -> Duration {
        self.period.saturating_mul(if self.one_by_one { pods } else { 1 })
    }
}

/// The times that the pods of objects in this cluster may take to end, as far as their templates were read. Empty if
/// the caller cannot read any template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graces {
    read: BTreeMap<TargetRef, Grace>,
    /// The objects whose templates are not known yet, and may become known.
    awaited: BTreeMap<TargetRef, AwaitedTemplate>,
}

impl Graces {
    /// Returns the times with the objects whose templates are not known yet.
    pub fn awaiting(self, awaited: BTreeMap<TargetRef, AwaitedTemplate>) -> Self {
        Self { awaited, ..self }
    }

    pub(super) fn of(&self, object: &TargetRef) -> Option<Grace> {
        self.read.get(object).copied()
    }

    pub(super) fn awaited(&self, object: &TargetRef) -> Option<AwaitedTemplate> {
        self.awaited.get(object).copied()
    }
}

impl<G: Into<Grace>> FromIterator<(TargetRef, G)> for Graces {
    fn from_iter<I: IntoIterator<Item = (TargetRef, G)>>(read: I) -> Self {
        let read = read.into_iter();
        Self {
            read: read.map(|(object, grace)| (object, grace.into())).collect(),
            awaited: BTreeMap::new(),
        }
    }
}
