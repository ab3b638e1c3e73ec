//! Decides how a lock is withdrawn: whether its targets are stopped first, and whether this replica may do it. Pure.

/// The facts about a lock that is to be withdrawn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Departing {
    /// Whether the lock is deleted and its targets keep running.
    pub(super) orphan: bool,
    /// Whether targets of the lock may run in this cluster: its finalizer is set, and the record of the object
    /// names this lock or none.
    pub(super) guarded: bool,
    /// Whether the present spec cannot be read: a replica of another version may have started targets that
    /// this one does not know.
    pub(super) unreadable: bool,
    pub(super) enforced: bool,
    /// Whether the annotation forbids to switch the targets.
    pub(super) paused: bool,
    /// Whether the plan declares targets.
    pub(super) targets: bool,
    /// Whether targets run, or may run, according to the last report of the target task. `None` without a
    /// target task.
    pub(super) runs: Option<bool>,
    /// Whether this replica holds the lock.
    pub(super) holds: bool,
    /// Whether a sibling holds the lock, or may hold it.
    pub(super) for_sibling: bool,
}

/// The way in which a lock is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    Wait,
    /// A sibling carries out the departure. This replica contends for the lock no longer, and observes it.
    Observe,
    /// Targets have to be stopped, and the annotation forbids it: lease and finalizer stay.
    Paused,
    /// The lock is withdrawn after its targets are stopped.
    Stop,
    /// The lock is withdrawn immediately; `stopped` is true if no target runs.
    Leave {
        stopped: bool,
    },
}

/// Decides how a lock is withdrawn. The holder carries out the departure: while a sibling holds the lock, every other
/// replica only stops contending, since a replica that wins the lock meanwhile would start the targets again.
///
/// Declared targets are weak evidence about running ones: a target may have been removed from the spec, or be unreadable
/// for this version. So an unknown target counts as running.
pub(super) fn departure(lock: Departing) -> Departure {
    let stops = lock.enforced && (lock.targets || lock.runs == Some(true));
    if lock.orphan {
        // The targets keep running: no other cluster may start them before the lease has expired.
        return Departure::Leave { stopped: false };
    }
    if stops && lock.paused && lock.guarded {
        // Every replica stays a candidate: the lease must not run out when its holder ends.
        return Departure::Paused;
    }
    if lock.for_sibling && !lock.holds {
        return Departure::Observe;
    }
    if stops && !lock.holds && !lock.guarded && !lock.unreadable {
        // According to its object, no target runs under this lock.
        return Departure::Leave { stopped: true };
    }
    match lock.runs {
        // The target task starts shortly after the lock becomes active.
        None if stops => Departure::Wait,
        Some(_) if stops => Departure::Stop,
        runs => Departure::Leave {
            stopped: !lock.unreadable && (!lock.guarded || runs == Some(false)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_counts_as_stopped_only_when_nothing_runs() {
        let lock = Departing {
            guarded: true,
            enforced: true,
            ..Departing::default()
        };
        let leave = |stopped| Departure::Leave { stopped };
        for (what, lock, wanted) in [
            // The last target was removed from the spec.
            (
                "it still runs",
                Departing {
                    runs: Some(true),
                    ..lock
                },
                Departure::Stop,
            ),
            (
                "it is stopped",
                Departing {
                    runs: Some(false),
                    ..lock
                },
                leave(true),
            ),
            ("this replica never knew it", lock, leave(false)),
            (
                "a sibling holds the lock",
                Departing {
                    for_sibling: true,
                    targets: true,
                    runs: Some(true),
                    ..lock
                },
                Departure::Observe,
            ),
            (
                "this replica holds the lock",
                Departing {
                    holds: true,
                    for_sibling: true,
                    targets: true,
                    runs: Some(true),
                    ..lock
                },
                Departure::Stop,
            ),
            (
                "paused while it runs",
                Departing {
                    holds: true,
                    paused: true,
                    targets: true,
                    runs: Some(true),
                    ..lock
                },
                Departure::Paused,
            ),
            (
                "a sibling has stopped the targets and recorded that",
                Departing {
                    guarded: false,
                    targets: true,
                    runs: Some(true),
                    ..lock
                },
                leave(true),
            ),
            // Enforcement was changed to Observe.
            (
                "observed, and it runs",
                Departing {
                    enforced: false,
                    targets: true,
                    runs: Some(true),
                    ..lock
                },
                leave(false),
            ),
            (
                "observed, and nothing of it was ever started",
                Departing {
                    enforced: false,
                    targets: true,
                    runs: Some(true),
                    guarded: false,
                    ..lock
                },
                leave(true),
            ),
            (
                "declared",
                Departing {
                    targets: true,
                    runs: Some(false),
                    ..lock
                },
                Departure::Stop,
            ),
            (
                "declared, without a target task",
                Departing {
                    targets: true,
                    ..lock
                },
                Departure::Wait,
            ),
            (
                "orphaned",
                Departing {
                    orphan: true,
                    targets: true,
                    for_sibling: true,
                    ..lock
                },
                leave(false),
            ),
            (
                "its present spec cannot be read",
                Departing {
                    unreadable: true,
                    runs: Some(false),
                    ..lock
                },
                leave(false),
            ),
            (
                "without targets",
                Departing {
                    guarded: false,
                    ..lock
                },
                leave(true),
            ),
        ] {
            assert_eq!(departure(lock), wanted, "{what}");
        }
    }
}
