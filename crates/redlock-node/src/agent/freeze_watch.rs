//! Compares the freeze that the agent decided on with the state that `cgroup.events` shows. Pure.
//!
//! A decision, or a write that succeeded, does not show that a pod stands still.

use std::time::Duration;

use redlock_core::BootInstant;

/// The time within which the processes of a pod stop after the write. A process in uninterruptible sleep takes longer.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// The time within which the processes of a killed pod end. A frozen process leaves the frozen state to die, and counts
/// as populated until its memory is freed: 57 ms for each 256 MB.
const ENDED_WITHIN: Duration = Duration::from_secs(15);

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

/// Whether the record has ended the processes of the pod, or only stopped them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoppedBy {
    Freeze,
    Kill,
}

impl StoppedBy {
    /// Returns the time within which the cgroup shows the stop. A kill explains a process that runs, and no unreadable state.
    const fn shown_within(self, shown: &ProcessesShown) -> Duration {
        match (self, shown) {
            (Self::Kill, ProcessesShown::NotFrozen) => ENDED_WITHIN,
            (Self::Kill, ProcessesShown::Stopped | ProcessesShown::Unreadable { .. }) | (Self::Freeze, _) => {
                SHOWN_WITHIN
            }
        }
    }
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
        by: StoppedBy,
        now: BootInstant,
    ) -> Option<FreezeVerdict> {
        let within = by.shown_within(&shown);
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
            (Self::Pending { since }, _, None) if now.since(*since) <= within => return None,
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
        assert_eq!(
            watch.observe(ProcessesShown::NotFrozen, None, StoppedBy::Freeze, at(1_001)),
            None
        );
        let stopped = watch.observe(ProcessesShown::Stopped, None, StoppedBy::Freeze, at(1_002));
        assert_eq!(stopped, Some(FreezeVerdict::Stopped));
        assert!(watch.is_shown());
        // The freeze is repeated, and the state is read again.
        watch.begin(at(2_000));
        assert_eq!(
            watch.observe(ProcessesShown::Stopped, None, StoppedBy::Freeze, at(2_000)),
            None
        );
        watch.end();
        assert_eq!(
            watch.observe(ProcessesShown::NotFrozen, WRITE, StoppedBy::Freeze, at(2_001)),
            None
        );
    }

    #[test]
    fn a_freeze_that_cannot_be_written_is_a_failure_and_not_a_freeze() {
        let mut watch = pending();
        let failed = watch.observe(ProcessesShown::NotFrozen, WRITE, StoppedBy::Freeze, at(1_001));
        assert_eq!(failed, Some(FreezeVerdict::NotStopped));
        assert!(matches!(watch, FreezeWatch::Failed { .. }), "{watch:?}");
        assert_eq!(
            watch.observe(ProcessesShown::NotFrozen, WRITE, StoppedBy::Freeze, at(1_101)),
            None
        );
        // The guardian froze it, or its processes have ended.
        let stopped = watch.observe(ProcessesShown::Stopped, WRITE, StoppedBy::Freeze, at(1_201));
        assert_eq!(stopped, Some(FreezeVerdict::Stopped));
    }

    #[test]
    fn a_state_that_is_not_shown_is_unknown_and_neither_frozen_nor_running() {
        for shown in [ProcessesShown::NotFrozen, unreadable()] {
            let mut watch = pending();
            assert_eq!(
                watch.observe(shown.clone(), None, StoppedBy::Freeze, at(2_000)),
                None
            );
            let unknown = watch.observe(shown.clone(), None, StoppedBy::Freeze, at(2_001));
            assert_eq!(unknown, Some(FreezeVerdict::NotStopped));
            assert!(matches!(watch, FreezeWatch::Unconfirmed { .. }), "{watch:?}");
            assert_eq!(watch.observe(shown, None, StoppedBy::Freeze, at(3_000)), None);
        }
        let mut watch = pending();
        let unknown = watch.observe(unreadable(), WRITE, StoppedBy::Freeze, at(1_001));
        assert_eq!(unknown, Some(FreezeVerdict::NotStopped));
        assert!(watch.reason().contains("no permission"), "{watch:?}");
    }

    #[test]
    fn a_process_that_runs_later_is_not_counted_as_frozen() {
        let mut watch = pending();
        let _ = watch.observe(ProcessesShown::Stopped, None, StoppedBy::Freeze, at(1_001));
        assert_eq!(
            watch.observe(ProcessesShown::NotFrozen, None, StoppedBy::Freeze, at(5_000)),
            None
        );
        assert!(watch.is_pending());
        let unknown = watch.observe(ProcessesShown::NotFrozen, None, StoppedBy::Freeze, at(6_001));
        assert_eq!(unknown, Some(FreezeVerdict::NotStopped));
    }

    #[test]
    fn the_processes_of_a_killed_pod_have_time_to_end() {
        let mut watch = pending();
        let _ = watch.observe(ProcessesShown::Stopped, None, StoppedBy::Freeze, at(1_001));
        for now in [30_000, 31_001, 45_000] {
            let dying = watch.observe(ProcessesShown::NotFrozen, None, StoppedBy::Kill, at(now));
            assert_eq!(dying, None, "{now}");
        }
        let unknown = watch.observe(ProcessesShown::NotFrozen, None, StoppedBy::Kill, at(45_001));
        assert_eq!(unknown, Some(FreezeVerdict::NotStopped));
        let ended = watch.observe(ProcessesShown::Stopped, None, StoppedBy::Kill, at(46_000));
        assert_eq!(ended, Some(FreezeVerdict::Stopped));
        let mut watch = pending();
        let unknown = watch.observe(unreadable(), None, StoppedBy::Kill, at(2_001));
        assert_eq!(
            unknown,
            Some(FreezeVerdict::NotStopped),
            "a kill does not explain it"
        );
        let mut watch = pending();
        let failed = watch.observe(ProcessesShown::NotFrozen, WRITE, StoppedBy::Kill, at(1_001));
        assert_eq!(failed, Some(FreezeVerdict::NotStopped));
    }
}
