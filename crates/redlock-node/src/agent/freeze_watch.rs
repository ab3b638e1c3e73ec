//! Compares the freeze that the agent decided on with the state that `cgroup.events` shows. Pure.
//!
//! A decision, or a write that succeeded, does not show that a pod stands still.

use std::time::Duration;

use redlock_core::BootInstant;

/// The time within which the processes of a pod stop after the write. A process in uninterruptible sleep takes longer.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// The state of the freeze of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum FreezeWatch {
    /// The pod may run.
    #[default]
    NotDue,
    /// The freeze was decided on at `since`, and is not shown yet.
    Pending { since: BootInstant },
    /// No process of the pod runs.
    Shown,
    /// The freeze cannot be written, and processes of the pod run.
    Failed { reason: String },
    /// Whether processes of the pod run is unknown: the freeze was written and is not shown, or the state cannot be read.
    Unconfirmed { reason: String },
}

/// The state of the processes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProcessesShown {
    /// Every process is frozen, or there is no process.
    Stopped,
    NotFrozen,
    Unreadable {
        reason: String,
    },
}

/// A change of the watch that must be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreezeVerdict {
    Stopped,
    NotStopped,
}

impl FreezeWatch {
    /// Notes that the pod must be frozen. A freeze that is repeated changes nothing.
    pub(super) fn begin(&mut self, now: BootInstant) {
        if *self == Self::NotDue {
            *self = Self::Pending { since: now };
        }
    }

    /// Notes that the pod may run.
    pub(super) fn end(&mut self) {
        *self = Self::NotDue;
    }

    /// Judges a read of the cgroup. `failure` is the reason why the last freeze could not be written.
    pub(super) fn observe(
        &mut self,
        shown: ProcessesShown,
        failure: Option<&str>,
        now: BootInstant,
    ) -> Option<FreezeVerdict> {
        let next = match (&*self, shown, failure) {
            (Self::NotDue, _, _) => return None,
            (_, ProcessesShown::Stopped, _) => Self::Shown,
            (_, ProcessesShown::NotFrozen, Some(reason)) => Self::Failed {
                reason: reason.to_owned(),
            },
            (_, ProcessesShown::Unreadable { reason }, Some(failure)) => Self::Unconfirmed {
                reason: format!("{failure}; {reason}"),
            },
            // A process was started or thawed since. The freeze is repeated each second.
            (Self::Shown, ProcessesShown::NotFrozen | ProcessesShown::Unreadable { .. }, None) => {
                Self::Pending { since: now }
            }
            (Self::Pending { since }, _, None) if now.since(*since) <= SHOWN_WITHIN => return None,
            (_, ProcessesShown::NotFrozen, None) => Self::Unconfirmed {
                reason: "the freeze is written, and cgroup.events does not show it".to_owned(),
            },
            (_, ProcessesShown::Unreadable { reason }, None) => Self::Unconfirmed { reason },
        };
        let verdict = match (&*self, &next) {
            (Self::Shown, Self::Shown) | (_, Self::NotDue | Self::Pending { .. }) => None,
            (_, Self::Shown) => Some(FreezeVerdict::Stopped),
            (Self::Failed { .. }, Self::Failed { .. })
            | (Self::Unconfirmed { .. }, Self::Unconfirmed { .. }) => None,
            (_, Self::Failed { .. } | Self::Unconfirmed { .. }) => Some(FreezeVerdict::NotStopped),
        };
        *self = next;
        verdict
    }

    /// Reports whether the state of the cgroup must be read again soon.
    pub(super) const fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }

    /// Reports whether no process of the pod runs.
    pub(super) const fn is_shown(&self) -> bool {
        matches!(self, Self::Shown)
    }

    /// Returns the reason why the pod is not known to stand still; empty otherwise.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Failed { reason } | Self::Unconfirmed { reason } => reason,
            Self::NotDue | Self::Pending { .. } | Self::Shown => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::at;

    const WRITE: Option<&str> = Some("Read-only file system");

    fn pending() -> FreezeWatch {
        let mut watch = FreezeWatch::default();
        watch.begin(at(1_000));
        watch
    }

    fn unreadable() -> ProcessesShown {
        let reason = "no permission".to_owned();
        ProcessesShown::Unreadable { reason }
    }

    #[test]
    fn a_freeze_is_reported_once_it_is_shown() {
        let mut watch = pending();
        assert_eq!(watch.observe(ProcessesShown::NotFrozen, None, at(1_001)), None);
        let stopped = watch.observe(ProcessesShown::Stopped, None, at(1_002));
        assert_eq!(stopped, Some(FreezeVerdict::Stopped));
        assert!(watch.is_shown());
        // The freeze is repeated, and the state is read again.
        watch.begin(at(2_000));
        assert_eq!(watch.observe(ProcessesShown::Stopped, None, at(2_000)), None);
        watch.end();
        assert_eq!(watch.observe(ProcessesShown::NotFrozen, WRITE, at(2_001)), None);
    }

    #[test]
    fn a_freeze_that_cannot_be_written_is_a_failure_and_not_a_freeze() {
        let mut watch = pending();
        let failed = watch.observe(ProcessesShown::NotFrozen, WRITE, at(1_001));
        assert_eq!(failed, Some(FreezeVerdict::NotStopped));
        assert!(matches!(watch, FreezeWatch::Failed { .. }), "{watch:?}");
        assert_eq!(watch.observe(ProcessesShown::NotFrozen, WRITE, at(1_101)), None);
        // The guardian froze it, or its processes have ended.
        let stopped = watch.observe(ProcessesShown::Stopped, WRITE, at(1_201));
        assert_eq!(stopped, Some(FreezeVerdict::Stopped));
    }

    #[test]
    fn a_state_that_is_not_shown_is_unknown_and_neither_frozen_nor_running() {
        for shown in [ProcessesShown::NotFrozen, unreadable()] {
            let mut watch = pending();
            assert_eq!(watch.observe(shown.clone(), None, at(2_000)), None);
            let unknown = watch.observe(shown.clone(), None, at(2_001));
            assert_eq!(unknown, Some(FreezeVerdict::NotStopped));
            assert!(matches!(watch, FreezeWatch::Unconfirmed { .. }), "{watch:?}");
            assert_eq!(watch.observe(shown, None, at(3_000)), None);
        }
        let mut watch = pending();
        let unknown = watch.observe(unreadable(), WRITE, at(1_001));
        assert_eq!(unknown, Some(FreezeVerdict::NotStopped));
        assert!(watch.reason().contains("no permission"), "{watch:?}");
    }

    #[test]
    fn a_process_that_runs_later_is_not_counted_as_frozen() {
        let mut watch = pending();
        let _ = watch.observe(ProcessesShown::Stopped, None, at(1_001));
        assert_eq!(watch.observe(ProcessesShown::NotFrozen, None, at(5_000)), None);
        assert!(watch.is_pending());
        let unknown = watch.observe(ProcessesShown::NotFrozen, None, at(6_001));
        assert_eq!(unknown, Some(FreezeVerdict::NotStopped));
    }
}
