//! Decides whether the processes of a pod are in its cgroup. Pure.
//!
//! An empty cgroup has two readings: no process of the pod runs, or its processes are elsewhere, where no freeze reaches
//! them. The kubelet and the container runtime may use different cgroup drivers, and a runtime may run the pod in a virtual
//! machine. The object of the pod shows whether a container runs.

use std::time::Duration;

use redlock_core::BootInstant;

use crate::resolver::ContainersShown;

/// The time for which the cgroup may be empty while the object of the pod shows a container that runs. The status is late
/// by a few seconds when a container ends.
const EMPTY_FOR: Duration = Duration::from_secs(15);

/// Whether the processes of a pod are in its cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Placement {
    /// The cgroup has had no process, and no read has shown whether a container runs.
    #[default]
    Unknown,
    /// The cgroup is empty, and a read has shown that no container runs.
    NoContainer,
    /// The cgroup has had a process since the start of the pod.
    InCgroup,
    /// The cgroup is empty although a container runs, as reads since `since` show. `had_process`: the last known process
    /// was in the cgroup, so the status may be late.
    Contradicted { since: BootInstant, had_process: bool },
    /// A container runs outside the cgroup: the pod is not fenced.
    Elsewhere,
}

impl Placement {
    /// Judges a read of the object of the pod, during which the cgroup was empty or not. Returns whether the pod was found
    /// to run elsewhere by this read.
    pub(super) fn observe(&mut self, populated: bool, containers: ContainersShown, now: BootInstant) -> bool {
        let before = *self;
        *self = match (before, populated, containers) {
            (_, true, _) => Self::InCgroup,
            // A state that is unknown changes nothing.
            (known, false, ContainersShown::Unknown) => known,
            (Self::Elsewhere, false, ContainersShown::Run) => Self::Elsewhere,
            (Self::Contradicted { since, .. }, false, ContainersShown::Run)
                if now.since(since) >= EMPTY_FOR =>
            {
                Self::Elsewhere
            }
            (known @ Self::Contradicted { .. }, false, ContainersShown::Run) => known,
            (Self::Unknown | Self::NoContainer | Self::InCgroup, false, ContainersShown::Run) => {
                Self::Contradicted {
                    since: now,
                    had_process: before == Self::InCgroup,
                }
            }
            (_, false, ContainersShown::NoneRuns) => Self::NoContainer,
        };
        *self == Self::Elsewhere && before != Self::Elsewhere
    }

    /// Notes that the cgroup has a process.
    pub(super) fn note_process(&mut self) {
        *self = Self::InCgroup;
    }

    /// Reports whether an empty cgroup shows that no process of the pod runs.
    pub(super) const fn ends_with_cgroup(self) -> bool {
        match self {
            Self::NoContainer | Self::InCgroup => true,
            Self::Contradicted { had_process, .. } => had_process,
            Self::Unknown | Self::Elsewhere => false,
        }
    }

    pub(super) const fn is_elsewhere(self) -> bool {
        matches!(self, Self::Elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::at;

    #[test]
    fn a_container_that_runs_beside_an_empty_cgroup_is_not_fenced() {
        let mut placement = Placement::default();
        assert!(!placement.observe(false, ContainersShown::NoneRuns, at(0)));
        assert!(!placement.observe(false, ContainersShown::Run, at(1_000)));
        assert!(!placement.observe(false, ContainersShown::Run, at(15_999)));
        assert!(placement.observe(false, ContainersShown::Run, at(16_000)));
        assert!(
            !placement.observe(false, ContainersShown::Run, at(17_000)),
            "reported once"
        );
        assert!(placement.is_elsewhere());
        // An API server that does not answer shows nothing.
        placement.observe(false, ContainersShown::Unknown, at(18_000));
        assert!(placement.is_elsewhere());
        placement.note_process();
        assert_eq!(placement, Placement::InCgroup);
    }

    #[test]
    fn a_status_that_is_late_and_a_pod_that_has_not_started_are_no_contradiction() {
        for shown in [ContainersShown::NoneRuns, ContainersShown::Unknown] {
            let mut placement = Placement::default();
            assert!(!placement.observe(false, shown, at(0)));
            assert!(!placement.observe(false, shown, at(60_000)), "{shown:?}");
            assert_ne!(placement, Placement::Elsewhere);
        }
        let mut placement = Placement::InCgroup;
        placement.observe(false, ContainersShown::Run, at(0));
        placement.observe(false, ContainersShown::NoneRuns, at(3_000));
        assert!(
            !placement.observe(false, ContainersShown::Run, at(16_000)),
            "the wait begins again"
        );
        assert!(!placement.observe(true, ContainersShown::Run, at(40_000)));
        assert_eq!(placement, Placement::InCgroup);
    }

    #[test]
    fn an_empty_cgroup_shows_an_end_only_where_the_processes_were_in_it_or_no_container_runs() {
        let mut placement = Placement::default();
        assert!(!placement.ends_with_cgroup(), "nothing was read");
        placement.observe(false, ContainersShown::Unknown, at(0));
        assert!(!placement.ends_with_cgroup());
        placement.observe(false, ContainersShown::Run, at(1_000));
        assert!(!placement.ends_with_cgroup(), "a container runs");
        placement.observe(false, ContainersShown::Run, at(16_000));
        assert!(!placement.ends_with_cgroup(), "a container runs elsewhere");
        placement.observe(false, ContainersShown::NoneRuns, at(17_000));
        assert!(placement.ends_with_cgroup(), "it has ended");
        placement.note_process();
        assert!(placement.ends_with_cgroup());
        placement.observe(false, ContainersShown::Run, at(20_000));
        assert!(placement.ends_with_cgroup(), "the status is late");
    }
}
