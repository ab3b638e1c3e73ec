//! The grace periods of pod templates, for the targets that do not set their stop time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::target::TargetRef;

/// How long the pods of an object may take to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// Of each pod.
    pub period: Duration,
    /// One pod ends before the next one is asked to: a StatefulSet with `podManagementPolicy: OrderedReady`.
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
    /// Of so many pods together.
    pub(super) fn of_pods(self, pods: u32) -> Duration {
        self.period.saturating_mul(if self.one_by_one { pods } else { 1 })
    }
}

/// The time that the pods of objects in this cluster may take to end, as far as their templates were read. A caller
/// that cannot read any passes an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graces(BTreeMap<TargetRef, Grace>);

impl Graces {
    pub(super) fn of(&self, object: &TargetRef) -> Option<Grace> {
        self.0.get(object).copied()
    }
}

impl<G: Into<Grace>> FromIterator<(TargetRef, G)> for Graces {
    fn from_iter<I: IntoIterator<Item = (TargetRef, G)>>(read: I) -> Self {
        let read = read.into_iter();
        Self(read.map(|(object, grace)| (object, grace.into())).collect())
    }
}
