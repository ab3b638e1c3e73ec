//! How far an object is from what it asks for, for clients that know nothing of its kind. kstatus (Flux, Argo CD, kpt)
//! reads `Reconciling=True` as in progress, `Stalled=True` as failed, and `Ready=True` without either as current.

use super::condition::Conditions;

/// Exactly one of `Ready`, `Reconciling` and `Stalled` is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is left to do.
    Current(Why),
    /// The operator works on it, or waits for what can still come without a change of this object.
    Working(Why),
    /// A person has to change something first.
    Stuck(Why),
}

/// Reason and message of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Why {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Trouble of targets that lasts until a person changes something. All other trouble may end by itself: an object is
/// created later, a pod becomes ready, the API server answers again.
const STUCK: [&str; 7] = [
    "EnforcementConflict",
    "Forbidden",
    "HolderNotSelected",
    "KindUnknown",
    "NoScaleSubresource",
    "SelectorInvalid",
    "TargetNotSafe",
];

impl Progress {
    pub(super) fn current(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Current(Why::new(reason, message))
    }

    pub(super) fn in_progress(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Working(Why::new(reason, message))
    }

    /// By a problem of an object, which is `stuck` until a person changes it.
    pub(super) fn problem(stuck: bool, reason: &'static str, message: impl Into<String>) -> Self {
        let why = Why::new(reason, message);
        if stuck {
            Self::Stuck(why)
        } else {
            Self::Working(why)
        }
    }

    /// By the trouble that a target reports.
    pub(super) fn trouble(reason: &'static str, message: impl Into<String>) -> Self {
        Self::problem(STUCK.contains(&reason), reason, message)
    }

    const fn why(&self) -> &Why {
        match self {
            Self::Current(why) | Self::Working(why) | Self::Stuck(why) => why,
        }
    }

    /// Sets `Ready`.
    pub(super) fn ready(&self, conditions: &mut Conditions<'_>) {
        let why = self.why();
        let current = matches!(self, Self::Current(_));
        conditions.set("Ready", current, why.reason, why.message.clone());
    }

    /// Sets `Reconciling` and `Stalled`.
    pub(super) fn abnormal(&self, conditions: &mut Conditions<'_>) {
        let why = self.why();
        for (kind, truth) in [
            ("Reconciling", matches!(self, Self::Working(_))),
            ("Stalled", matches!(self, Self::Stuck(_))),
        ] {
            let message = if truth { &why.message } else { "see Ready" };
            conditions.set(kind, truth, why.reason, message.to_owned());
        }
    }
}

impl Why {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}
