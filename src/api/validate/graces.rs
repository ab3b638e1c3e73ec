//! What was read of pod templates, for the targets that do not say how long they take to stop.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::target::TargetRef;

/// How long the pods of objects in this cluster may take to end, as far as their templates were read. Whoever cannot
/// read any gives an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graces(BTreeMap<TargetRef, Duration>);

impl Graces {
    pub(super) fn of(&self, object: &TargetRef) -> Option<Duration> {
        self.0.get(object).copied()
    }
}

impl FromIterator<(TargetRef, Duration)> for Graces {
    fn from_iter<I: IntoIterator<Item = (TargetRef, Duration)>>(read: I) -> Self {
        Self(read.into_iter().collect())
    }
}
