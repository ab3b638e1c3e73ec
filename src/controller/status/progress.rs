//! Computes the progress of an object for clients that do not know its kind. kstatus (Flux, Argo CD, kpt) reads
//! `Reconciling=True` as in progress, `Stalled=True` as failed, and `Ready=True` without either as current.

use super::condition::{ConditionType, Conditions};
use crate::controller::problem::{Problem, Reason};

/// Exactly one of `Ready`, `Reconciling` and `Stalled` is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The object is in its desired state.
    Current(Problem),
    /// The operator works on the object, or waits for a condition that may be met without a change of this object.
    Working(Problem),
    /// A person has to change something first.
    Stuck(Problem),
}

impl Progress {
    pub(super) fn current(reason: Reason, message: impl Into<String>) -> Self {
        Self::Current(Problem::new(reason, message))
    }

    pub(super) fn in_progress(reason: Reason, message: impl Into<String>) -> Self {
        Self::Working(Problem::new(reason, message))
    }

    /// Returns the progress of an object with a problem; `stuck` means that a person has to change something
    /// first.
    pub(super) fn problem(stuck: bool, reason: Reason, message: impl Into<String>) -> Self {
        let why = Problem::new(reason, message);
        if stuck {
            Self::Stuck(why)
        } else {
            Self::Working(why)
        }
    }

    /// Returns the progress of an object whose target reports this trouble.
    pub(super) fn trouble(trouble: &Problem) -> Self {
        Self::problem(trouble.reason.is_stuck(), trouble.reason, &trouble.message)
    }

    const fn why(&self) -> &Problem {
        match self {
            Self::Current(why) | Self::Working(why) | Self::Stuck(why) => why,
        }
    }

    /// Sets `Ready`.
    pub(super) fn ready(&self, conditions: &mut Conditions<'_>) {
        let why = self.why();
        let current = matches!(self, Self::Current(_));
        conditions.set(ConditionType::Ready, current, why.reason, why.message.clone());
    }

    /// Sets `Reconciling` and `Stalled`.
    pub(super) fn abnormal(&self, conditions: &mut Conditions<'_>) {
        let why = self.why();
        for (kind, truth) in [
            (ConditionType::Reconciling, matches!(self, Self::Working(_))),
            (ConditionType::Stalled, matches!(self, Self::Stuck(_))),
        ] {
            let message = if truth { &why.message } else { "see Ready" };
            conditions.set(kind, truth, why.reason, message.to_owned());
        }
    }
}
